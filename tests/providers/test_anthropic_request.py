"""Requests in Anthropic's dialect: turns, results, names, marks for the cache."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.config.schema import ProviderSection
from clawd.errors import InvalidRequestError
from clawd.providers.anthropic import Block, build_body
from clawd.providers.base import ChatRequest, Message, Sampling, ToolCall, ToolSpec
from tests.support.rows import each_row

CACHED = {"type": "ephemeral"}
ENABLED = {"type": "enabled", "budget_tokens": 8192}
TOOLS = (
    ToolSpec(name="time", description="Tells the time.", parameters={"type": "object"}),
    ToolSpec(name="note", description="", parameters={"type": "object"}),
)


def body_of(request: ChatRequest, **fields: Any) -> dict[str, Any]:
    section = ProviderSection(kind="anthropic", **fields)
    return build_body(request, model="m", section=section, kept=lambda _message: None)


def user(text: str | None) -> Message:
    return Message(role="user", content=text)


def said(text: str | None, *calls: ToolCall) -> Message:
    return Message(role="assistant", content=text, tool_calls=calls)


def result(call_id: str, text: str | None, name: str = "time") -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id, name=name)


def messages_of(*history: Message, **fields: Any) -> list[tuple[str, list[Block]]]:
    """Return roles and blocks, without the marks for the cache."""
    body = body_of(ChatRequest(messages=history, tools=TOOLS, **fields))
    return [
        (
            message["role"],
            [
                {key: value for key, value in block.items() if key != "cache_control"}
                for block in message["content"]
            ],
        )
        for message in body["messages"]
    ]


def text(value: str) -> Block:
    return {"type": "text", "text": value}


def test_results_of_one_answer_are_one_user_message_before_what_the_user_said() -> None:
    calls = (ToolCall(id="a", name="time", arguments='{"z": 1}'), ToolCall(id="b", name="time"))
    history = (
        user("hi"),
        said("I look.", *calls),
        result("a", "noon"),
        result("b", "error: no such zone"),
        user("and?"),
    )
    assert messages_of(*history) == [
        ("user", [text("hi")]),
        (
            "assistant",
            [
                text("I look."),
                {"type": "tool_use", "id": "a", "name": "time", "input": {"z": 1}},
                {"type": "tool_use", "id": "b", "name": "time", "input": {}},
            ],
        ),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "a", "content": "noon"},
                {
                    "type": "tool_result",
                    "tool_use_id": "b",
                    "content": "error: no such zone",
                    "is_error": True,
                },
                text("and?"),
            ],
        ),
    ]


def test_what_is_empty_is_left_out_and_roles_take_turns() -> None:
    history = (
        said("before"),
        user(None),
        user(" \n"),
        user("one"),
        said(None),
        said(""),
        user("two"),
        said("three \n"),
    )
    assert messages_of(*history) == [
        ("user", [text("(the conversation goes on)")]),
        ("assistant", [text("before")]),
        ("user", [text("one"), text("two")]),
        ("assistant", [text("three")]),
    ]
    assert messages_of() == [("user", [text("(the conversation goes on)")])]


def test_an_empty_result_has_no_content() -> None:
    history = (user("x"), said(None, ToolCall(id="a", name="time")), result("a", ""))
    assert messages_of(*history)[-1] == ("user", [{"type": "tool_result", "tool_use_id": "a"}])


def test_names_ids_and_arguments_that_the_api_refuses_are_made_fit() -> None:
    calls = (
        ToolCall(id="functions.time:0", name="fly away", arguments="{oops"),
        ToolCall(id="functions_time_0", name="", arguments="[1]"),
        ToolCall(id="", name="x" * 200, arguments='{"n": NaN}'),
    )
    history = (user("x"), said("", *calls), *(result(call.id, "r") for call in calls))
    _, (_, blocks), (_, results) = messages_of(*history)
    assert [(b["id"], b["name"], b["input"]) for b in blocks] == [
        ("functions_time_0", "fly_away", {"unreadable": "{oops"}),
        ("functions_time_0_2", "unknown", {"unreadable": "[1]"}),
        ("call", "x" * 128, {"n": "NaN"}),
    ]
    assert [block["tool_use_id"] for block in results] == [block["id"] for block in blocks]


@each_row("after", [(), (user("and?"),), (said("Well."),)])
def test_a_call_without_a_result_is_given_one(after: tuple[Message, ...]) -> None:
    calls = (ToolCall(id="a", name="time"), ToolCall(id="b", name="time"))
    found = messages_of(user("x"), said(None, *calls), result("a", "noon"), *after)
    role, blocks = found[2]
    assert (role, [block.get("tool_use_id") for block in blocks[:2]]) == ("user", ["a", "b"])
    assert blocks[1]["is_error"]


def test_results_come_first_though_one_without_a_call_came_before_them() -> None:
    call = ToolCall(id="a", name="time")
    history = (user("x"), said(None, call), result("lost", "gone"), result("a", "noon"))
    assert [block["type"] for block in messages_of(*history)[-1][1]] == ["tool_result", "text"]


def test_a_result_without_a_call_is_text() -> None:
    assert messages_of(user("x"), result("lost", "noon"))[-1] == (
        "user",
        [text("x"), text("[tool: time]\nnoon")],
    )


def test_without_tools_calls_are_text_as_the_api_wants_the_tools_beside_them() -> None:
    history = (user("x"), said(None, ToolCall(id="a", name="time")), result("a", "noon"))
    plain = [
        ("user", [text("x")]),
        ("assistant", [text("[call: time]\n{}")]),
        ("user", [text("[tool: time]\nnoon")]),
    ]
    body = body_of(ChatRequest(messages=history))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert "tools" not in body
    with_tools = body_of(ChatRequest(messages=history, tools=TOOLS), use_tool_role=False)
    for each in (body, with_tools):
        shown = [(m["role"], [text(b["text"]) for b in m["content"]]) for m in each["messages"]]
        assert shown == plain


def test_the_stable_parts_are_marked_for_the_cache_and_no_more_than_four() -> None:
    pairs = [(user(f"q{n}"), said(f"a{n}")) for n in range(6)]
    history = (*itertools.chain.from_iterable(pairs), user("last"))
    body = body_of(ChatRequest(system="Be good.", messages=history, tools=TOOLS))
    assert body["system"] == [{"type": "text", "text": "Be good.", "cache_control": CACHED}]
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]
    marked = [
        block["text"]
        for message in body["messages"]
        for block in message["content"]
        if "cache_control" in block
    ]
    assert marked == ["q5", "last"]


def test_a_longer_history_extends_a_shorter_but_for_the_marks() -> None:
    history: list[Message] = []
    bodies = []
    for n in range(4):
        history += [
            user(f"q{n}"),
            said("", ToolCall(id=f"c{n}", name="time")),
            result(f"c{n}", f"r{n}"),
        ]
        bodies.append(messages_of(*history))
        history.append(said(f"a{n}"))
    for earlier, later in itertools.pairwise(bodies):
        assert later[: len(earlier)] == earlier


@each_row(
    ("choice", "expected"),
    [
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("time", {"type": "tool", "name": "time"}),
    ],
)
def test_the_choice_of_a_tool(choice: str, expected: dict[str, str]) -> None:
    request = ChatRequest(messages=(user("x"),), tools=TOOLS, tool_choice=choice)
    assert body_of(request)["tool_choice"] == expected
    assert "tool_choice" not in body_of(ChatRequest(messages=(user("x"),), tools=TOOLS))


def test_sampling_is_told_in_the_words_of_the_api() -> None:
    wishes = Sampling(max_tokens=9, stop=("END", " "), top_p=0.5, top_k=3, seed=1, min_p=0.1)
    body = body_of(ChatRequest(messages=(user("x"),), sampling=wishes))
    assert {key: body[key] for key in body if key not in {"messages", "model", "stream"}} == {
        "max_tokens": 9,
        "stop_sequences": ["END"],
        "top_p": 0.5,
        "top_k": 3,
    }
    warm = body_of(ChatRequest(messages=(user("x"),), temperature=1.7, sampling=wishes))
    assert (warm["temperature"], "top_p" in warm) == (1.0, False)


@each_row(
    ("thinking", "fields", "expected"),
    [
        ("", {}, None),
        ("adaptive", {}, {"type": "adaptive"}),
        ("disabled", {}, {"type": "disabled"}),
        ("enabled", {}, ENABLED),
        ("enabled", {"sampling": Sampling(max_tokens=100)}, {"type": "disabled"}),
        ("adaptive", {"tools": TOOLS, "tool_choice": "required"}, {"type": "disabled"}),
        ("enabled", {"tools": TOOLS, "tool_choice": "auto"}, ENABLED),
    ],
)  # fmt: skip
def test_thinking_is_asked_for_where_it_may_be(
    thinking: Any, fields: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    body = body_of(ChatRequest(messages=(user("x"),), temperature=0.5, **fields), thinking=thinking)
    assert body.get("thinking") == expected
    thinks = expected is not None and expected["type"] != "disabled"
    assert ("temperature" in body) is not thinks


def test_thinking_that_was_lost_in_a_round_is_not_asked_for_and_comes_back_after_it() -> None:
    lost = (user("x"), said("", ToolCall(id="a", name="time")), result("a", "noon"))
    request = ChatRequest(messages=lost, tools=TOOLS)
    assert body_of(request, thinking="enabled")["thinking"] == {"type": "disabled"}
    assert body_of(request, thinking="adaptive")["thinking"] == {"type": "adaptive"}
    later = ChatRequest(messages=(*lost, said("Noon."), user("thanks")), tools=TOOLS)
    assert body_of(later, thinking="enabled")["thinking"]["type"] == "enabled"


def test_a_response_format_is_a_schema_or_refused() -> None:
    schema = {"type": "object"}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    body = body_of(ChatRequest(messages=(user("x"),), response_format=wanted))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    for other in ({"type": "json_object"}, {"type": "json_schema"}, {}):
        with pytest.raises(InvalidRequestError):
            body_of(ChatRequest(messages=(user("x"),), response_format=other))


TEXTS = st.one_of(st.none(), st.sampled_from(["", " ", "a", "error: b", "ünï"]))
IDS = st.sampled_from(["a", "b", "a.b", "a_b", ""])
MESSAGES = st.one_of(
    st.builds(user, TEXTS),
    st.builds(lambda content, ids: said(content, *(ToolCall(id=i, name="time") for i in ids)),
              TEXTS, st.lists(IDS, max_size=3, unique=True)),
    st.builds(result, IDS, TEXTS),
)  # fmt: skip


@given(st.lists(MESSAGES, max_size=12), st.booleans())
def test_any_history_makes_a_request_that_the_api_takes(
    history: list[Message],
    offers_tools: bool,
) -> None:
    request = ChatRequest(messages=tuple(history), tools=TOOLS if offers_tools else (), system="s")
    messages = body_of(request)["messages"]
    roles = [message["role"] for message in messages]
    assert roles[0] == "user"
    assert all(a != b for a, b in itertools.pairwise(roles))
    assert sum("cache_control" in b for m in messages for b in m["content"]) <= 2
    for message, following in itertools.zip_longest(messages, messages[1:]):
        assert message["content"]
        for block in message["content"]:
            assert block["type"] != "text" or block["text"].strip()
        kinds = [b["type"] for b in message["content"]]
        if message["role"] == "user":
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")
        used = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        if used:
            answers = [b["tool_use_id"] for b in following["content"] if "tool_use_id" in b]
            assert sorted(answers) == sorted(used)


def test_a_raw_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="raw prompt"):
        body_of(ChatRequest(prompt="def f():"))


@each_row(("choice", "kind"), [("auto", "auto"), ("required", "any"), ("time", "tool")])
def test_several_calls_are_turned_off_with_the_choice(choice: str, kind: str) -> None:
    request = ChatRequest(messages=(user("hi"),), tools=TOOLS, tool_choice=choice)
    off = body_of(msgspec.structs.replace(request, parallel_calls=False))["tool_choice"]
    assert (off["type"], off["disable_parallel_tool_use"]) == (kind, True)
    on = body_of(msgspec.structs.replace(request, parallel_calls=True))
    assert "disable_parallel_tool_use" not in on.get("tool_choice", {})
