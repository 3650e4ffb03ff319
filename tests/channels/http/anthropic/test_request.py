"""Bodies of /v1/messages as requests: everything that clients send, and what is refused."""

from typing import Any

import pytest

from clawd.channels.http.anthropic import request_of, shows_thoughts
from clawd.errors import InvalidRequestError
from clawd.providers.base import Message, Sampling, ToolCall, ToolSpec
from tests.support.rows import each_row

WEATHER = {"name": "weather", "description": "how it is", "input_schema": {"type": "object"}}
SPEC = ToolSpec(name="weather", description="how it is", parameters={"type": "object"})


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "messages": list(messages)} | fields


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value, "cache_control": {"type": "ephemeral"}}


def use(call_id: str = "toolu_1", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "weather", "input": given}


def result(content: Any = None, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content} | fields


def tool_message(content: str) -> Message:
    return Message(role="tool", content=content, tool_call_id="toolu_1", name="weather")


ASKED = Message(role="user", content="hi")
CALLED = Message(
    role="assistant",
    content="",
    tool_calls=(ToolCall(id="toolu_1", name="weather", arguments='{"at":"é"}'),),
)


@each_row(
    ("given", "expected"),
    [
        (None, None),
        ("", None),
        ("be brief", "be brief"),
        ([], None),
        ([text("one"), text("two")], "one\n\ntwo"),
        ([text("x-anthropic-billing-header: cc_version=1; cch=abc;"), text("two")], "two"),
        ("x-anthropic-billing-header: cc_version=1", None),
    ],
)
def test_system_is_a_text_or_blocks_without_notes_to_the_vendor(
    given: Any, expected: str | None
) -> None:
    assert request_of(body(user("hi"), system=given)).system == expected


@each_row(
    ("content", "expected"),
    [
        ("hi", (ASKED,)),
        ([text("hi")], (ASKED,)),
        ([text("a"), text("b")], (Message(role="user", content="a\n\nb"),)),
        ("", (Message(role="user", content=""),)),
    ],
)
def test_what_a_user_says_is_a_text_or_blocks(content: Any, expected: Any) -> None:
    assert request_of(body(user(content))).messages == expected


def test_no_messages_are_a_request_too() -> None:
    asked = request_of({"model": "m", "messages": []})
    assert asked.messages == (Message(role="user", content=""),)
    assert asked.is_plain
    assert not request_of(body(user("hi"))).is_plain


@each_row(
    ("given", "expected"),
    [
        (result("warm"), (tool_message("warm"),)),
        (result([text("warm"), text("dry")]), (tool_message("warm\ndry"),)),
        (result(), (tool_message(""),)),
        (result("no such place", is_error=True), (tool_message("error: no such place"),)),
        (result("error: none", is_error=True), (tool_message("error: none"),)),
        (result([{"type": "tool_reference", "tool_name": "x"}]), (tool_message("x"),)),
    ],
)
def test_a_result_is_a_text_or_blocks_and_may_be_an_error(given: Any, expected: Any) -> None:
    asked = request_of(body(user("hi"), assistant(use(at="é")), user([given])))
    assert asked.messages == (ASKED, CALLED, *expected)


def test_results_come_before_the_text_beside_them() -> None:
    asked = request_of(
        body(user("hi"), assistant(use(at="é")), user([text("and now?"), result("warm")]))
    )
    said = Message(role="user", content="and now?")
    assert asked.messages == (ASKED, CALLED, tool_message("warm"), said)


def test_r5_thoughts_come_back_with_the_history_and_what_foreign_servers_did_does_not() -> None:
    said = assistant(
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "abc"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        text("one"),
        text(" two"),
        use(at="é"),
    )
    (_, message) = request_of(body(user("hi"), said)).messages
    assert message.content == "one two"
    assert message.reasoning == "hm"
    assert message.tool_calls == CALLED.tool_calls


def test_neighbours_of_one_role_are_one_turn() -> None:
    asked = request_of(body(user("a"), user("b"), assistant(text("c")), assistant(use(at="é"))))
    assert asked.messages == (
        Message(role="user", content="a\n\nb"),
        Message(role="assistant", content="c", tool_calls=CALLED.tool_calls),
    )


def test_the_beginning_of_an_answer_stays_the_last_message() -> None:
    asked = request_of(body(user("hi"), {"role": "assistant", "content": "The sky is"}))
    assert asked.messages[-1] == Message(role="assistant", content="The sky is")


def test_system_messages_among_the_others_join_the_system_prompt() -> None:
    asked = request_of(body(user("hi"), {"role": "system", "content": "new"}, system="old"))
    assert (asked.system, asked.messages) == ("old\n\nnew", (ASKED,))


def test_texts_of_documents_are_read() -> None:
    plain = {"type": "document", "source": {"type": "text", "data": "a page"}}
    parts = {"type": "document", "source": {"type": "content", "content": [text("p1")]}}
    found = {"type": "search_result", "title": "T", "source": "S", "content": [text("body")]}
    (message,) = request_of(body(user([plain, parts, found]))).messages
    assert message.content == "a page\n\np1\n\nT\nS\nbody"


def test_tools_of_the_client_are_taken_and_those_of_foreign_servers_passed_over() -> None:
    foreign = {"type": "web_search_20250305", "name": "web_search"}
    custom = WEATHER | {"type": "custom", "cache_control": {"type": "ephemeral"}}
    assert request_of(body(user("hi"), tools=[foreign, custom])).tools == (SPEC,)
    bare = request_of(body(user("hi"), tools=[{"name": "now"}])).tools
    assert bare[0].parameters == {"type": "object", "properties": {}}


@each_row(
    ("choice", "expected"),
    [
        (None, ("auto", None)),
        ({"type": "auto"}, ("auto", None)),
        ({"type": "any"}, ("required", None)),
        ({"type": "none"}, ("none", None)),
        ({"type": "tool", "name": "weather"}, ("weather", None)),
        ({"type": "auto", "disable_parallel_tool_use": True}, ("auto", False)),
        ({"type": "any", "disable_parallel_tool_use": False}, ("required", None)),
    ],
)
def test_every_choice_of_tools(choice: Any, expected: Any) -> None:
    asked = request_of(body(user("hi"), tools=[WEATHER], tool_choice=choice))
    assert (asked.tool_choice, asked.parallel_calls) == expected


def test_sampling_is_taken_and_the_length_clamped() -> None:
    given = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop_sequences": ["END", ""]}
    assert request_of(body(user("hi"), **given)).sampling == Sampling(
        temperature=0.5, top_p=0.9, top_k=40, max_tokens=100, stop=("END",)
    )
    asked = [request_of(body(user("hi"), top_k=each)).sampling.top_k for each in (0, -1, None)]
    assert asked == [0, 0, None]
    assert request_of(body(user("hi"), max_tokens=0)).sampling.max_tokens == 1
    assert request_of(body(user("hi"), max_tokens=-5)).sampling.max_tokens == 1
    assert request_of(body(user("hi"), max_tokens=10**9)).sampling.max_tokens == 10**9
    assert request_of(body(user("hi"), max_tokens=10**12)).sampling.max_tokens == 2**31 - 1
    assert request_of(body(user("hi"), max_tokens=None)).sampling.max_tokens is None


@each_row("place", ["output_config", "output_format"])
def test_an_answer_may_be_held_to_a_schema(place: str) -> None:
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    given = {"format": wanted, "effort": "high"} if place == "output_config" else wanted
    asked = request_of(body(user("hi"), **{place: given}))
    assert asked.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
    }
    assert request_of(body(user("hi"), output_config={"effort": "low"})).response_format is None


@each_row(
    ("thinking", "expected"),
    [
        (None, False),
        ({}, False),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive"}, True),
        ({"type": "adaptive", "display": "omitted"}, False),
        ({"type": "disabled"}, False),
    ],
)
def test_every_way_of_thinking_is_taken(thinking: Any, expected: bool) -> None:
    assert shows_thoughts(body(user("hi"), thinking=thinking)) is expected


def test_what_is_for_the_vendor_is_passed_over() -> None:
    more = {
        "metadata": {"user_id": "u"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
        "service_tier": "auto",
        "stream": True,
        "never_heard_of": [1],
    }
    assert request_of(body(user("hi"), **more)) == request_of(body(user("hi")))


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}}
FILE = {"type": "image", "source": {"type": "file", "file_id": "f"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf"}}


@each_row(
    ("given", "place"),
    [
        (body(user([text("see"), FILE])), "messages[0].content[1].source.type"),
        (body(user([PDF])), "messages[0].content[0]"),
        (body(user("hi"), assistant(use()), user([result([FILE])])), "messages[2].content[0]"),
        (body(user([{"type": "video"}])), "messages[0].content[0].type"),
        (body(user(123)), "messages[0].content"),
        (body(user([1])), "messages[0].content[0]"),
        (body("hi"), "messages[0]"),
        (body({"role": "robot", "content": "hi"}), "messages[0].role"),
        (body({"content": "hi"}), "messages[0].role"),
        (body(user([{"type": "text", "text": 1}])), "messages[0].content[0].text"),
        (body(user([{"type": "text"}])), "messages[0].content[0].text"),
        (body(user([{"type": "tool_result", "content": "a"}])), "messages[0].content[0].tool_use"),
        (body(assistant({"type": "tool_use", "input": {}})), "messages[0].content[0]"),
        (body(assistant(use() | {"input": "text"})), "messages[0].content[0].input"),
        ({"messages": "hi"}, "messages"),
        (body(user("hi"), system=1), "system"),
        (body(user("hi"), system=[IMAGE]), "system[0]"),
        (body(user("hi"), tools=["x"]), "tools[0]"),
        (body(user("hi"), tools=[{"input_schema": {}}]), "tools[0].name"),
        (body(user("hi"), tools=[WEATHER | {"input_schema": []}]), "tools[0].input_schema"),
        (body(user("hi"), tools=[WEATHER], tool_choice={"type": 1}), "tool_choice.type"),
        (body(user("hi")) | {"messages": None}, "messages"),
        ({"model": "m", "max_tokens": 5}, "messages"),
        (body(user("hi"), tools=[WEATHER], tool_choice={"type": "all"}), "tool_choice.type"),
        (body(user("hi"), tool_choice={"type": "any"}), "tool_choice"),
        (
            body(user("hi"), tools=[WEATHER], tool_choice={"type": "tool", "name": "x"}),
            "tool_choice.name",
        ),
        (body(user("hi"), max_tokens="many"), "max_tokens"),
        (body(user("hi"), temperature=-1), "temperature"),
        (body(user("hi"), top_p=1.5), "top_p"),
        (body(user("hi"), stop_sequences="END"), "stop_sequences"),
        (body(user("hi"), stop_sequences=["END"] * 65), "stop_sequences"),
        (body(user("hi"), output_config={"format": {"type": "xml"}}), "output_config.format"),
        (body(user("hi"), output_format={"type": "json_schema"}), "output_format"),
        (body(user("hi"), model=["m"]), "model"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(given: Any, place: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        request_of(given)
    assert str(refused.value).startswith(place)


@each_row(
    ("thinking", "variables"),
    [
        (None, None),
        ({"type": "adaptive"}, None),
        (
            {"type": "enabled", "budget_tokens": 1024},
            {"enable_thinking": True, "thinking": True},
        ),
        ({"type": "disabled"}, {"enable_thinking": False, "thinking": False}),
    ],
)
def test_r5_thinking_is_switched_in_the_chat_template(thinking: Any, variables: Any) -> None:
    sampling = request_of(body(user("hi"), thinking=thinking)).sampling
    assert sampling.template_kwargs == variables
    budget = thinking.get("budget_tokens") if thinking else None
    assert sampling.reasoning_tokens == budget


def test_a_way_of_thinking_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="sometimes"):
        shows_thoughts({"thinking": {"type": "sometimes"}})
