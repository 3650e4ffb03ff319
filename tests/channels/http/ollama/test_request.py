"""Bodies of /api/chat and /api/generate as requests: everything sent, and what is refused."""

from typing import Any

import pytest

from clawd.channels.http.ollama.chat import (
    chat_request,
    generate_request,
    keep_alive_s,
    model_of,
    shows_thoughts,
)
from clawd.errors import InvalidRequestError
from clawd.providers.base import Message, Sampling, ToolCall, ToolSpec
from tests.support.rows import each_row

HI = {"role": "user", "content": "hi"}
ASKED = Message(role="user", content="hi")


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)} | fields


def called(*names: str, **more: Any) -> dict[str, Any]:
    calls = [{"function": {"name": name, "arguments": {"n": 1}}} | more for name in names]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def answered(content: str, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content} | fields


def test_roles_are_taken_and_system_messages_joined() -> None:
    asked = chat_request(
        chat(
            {"role": "system", "content": "one"},
            HI,
            {"role": "assistant", "content": "yes", "thinking": "hm"},
            {"role": "system", "content": "two"},
        )
    )
    assert asked.system == "one\n\ntwo"
    assert asked.messages == (ASKED, Message(role="assistant", content="yes", reasoning="hm"))
    assert chat_request(chat(HI)).system is None


def test_a_system_message_alone_is_answered_in_one_pass() -> None:
    asked = chat_request(chat({"role": "system", "content": "be brief"}))
    assert (asked.system, asked.is_plain) == ("be brief", True)
    assert asked.messages == (Message(role="user", content=""),)
    assert not chat_request(chat(HI)).is_plain


def test_results_find_their_calls_by_the_tools_name_in_order() -> None:
    asked = chat_request(
        chat(
            HI,
            called("a", "b", "a"),
            answered("first a", tool_name="a"),
            answered("b's", name="b"),
            answered("second a", tool_name="a"),
        )
    )
    arguments = '{"n":1}'
    assert asked.messages == (
        ASKED,
        Message(
            role="assistant",
            content="",
            tool_calls=(
                ToolCall(id="call_1", name="a", arguments=arguments),
                ToolCall(id="call_2", name="b", arguments=arguments),
                ToolCall(id="call_3", name="a", arguments=arguments),
            ),
        ),
        Message(role="tool", content="first a", tool_call_id="call_1", name="a"),
        Message(role="tool", content="b's", tool_call_id="call_2", name="b"),
        Message(role="tool", content="second a", tool_call_id="call_3", name="a"),
    )


def test_ids_are_kept_where_there_are_some_and_a_nameless_result_is_the_next_ones() -> None:
    asked = chat_request(
        chat(HI, called("a", id="x9"), answered("by id", tool_call_id="x9"), called("b"), HI)
    )
    assert asked.messages[2] == Message(role="tool", content="by id", tool_call_id="x9", name="a")
    nameless = chat_request(chat(HI, called("b"), answered("whose?")))
    assert nameless.messages[-1] == Message(
        role="tool", content="whose?", tool_call_id="call_1", name="b"
    )
    another = chat_request(chat(HI, called("b"), answered("whose?", tool_name="c")))
    assert another.messages == nameless.messages
    lost = chat_request(chat(HI, answered("of none", tool_name="c")))
    assert lost.messages[-1] == Message(role="tool", content="of none", name="c")


def test_arguments_may_be_text_as_other_dialects_have_them() -> None:
    call = {"function": {"name": "a", "arguments": '{"n": 2}'}}
    asked = chat_request(chat(HI, {"role": "assistant", "tool_calls": [call]}))
    assert asked.messages[1].tool_calls[0].arguments == '{"n": 2}'


def test_tools_are_functions_and_an_empty_list_is_none() -> None:
    function = {"name": "a", "description": "does", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}, {"function": {"name": "b"}}]
    assert chat_request(chat(HI, tools=tools)).tools == (
        ToolSpec(name="a", description="does", parameters={"type": "object"}),
        ToolSpec(name="b", description="", parameters={"type": "object", "properties": {}}),
    )
    assert chat_request(chat(HI, tools=[])).tools == ()
    assert chat_request(chat(HI, tools=None)).tools == ()


def test_options_are_sampling_and_others_are_passed_over() -> None:
    options = {
        "num_predict": 9,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 3,
        "min_p": 0.1,
        "typical_p": 0.9,
        "repeat_penalty": 1.1,
        "presence_penalty": -0.5,
        "frequency_penalty": 0.5,
        "seed": 7,
        "stop": "END",
        "num_ctx": 8192,
        "num_gpu": 99,
        "mirostat": 0,
    }
    assert chat_request(chat(HI, options=options)).sampling == Sampling(
        max_tokens=9,
        temperature=0.0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        typical_p=0.9,
        repeat_penalty=1.1,
        presence_penalty=-0.5,
        frequency_penalty=0.5,
        seed=7,
        stop=("END",),
    )
    endless = {"num_predict": -1, "stop": ["a", "b"]}
    assert chat_request(chat(HI, options=endless)).sampling == Sampling(stop=("a", "b"))
    assert chat_request(chat(HI, temperature=2)).sampling == Sampling()
    assert chat_request(chat(HI, options={"seed": -1})).sampling.seed is None
    # 0 draws from all candidates, as in llama.cpp; only what is not given is the model's.
    given = [{"top_k": 0}, {"top_k": -1}, {"top_k": None}, {}]
    asked = [chat_request(chat(HI, options=each)).sampling.top_k for each in given]
    assert asked == [0, 0, None, None]
    # Ollama's own clients write whole numbers as they like, and as much heat.
    loose = {"num_predict": 9.0, "top_k": 3.0, "seed": 7.0, "temperature": 3}
    assert chat_request(chat(HI, options=loose)).sampling == Sampling(
        max_tokens=9, top_k=3, seed=7, temperature=3.0
    )
    large = {"seed": 2**40 + 5, "num_predict": 2**40, "top_k": 2**40}
    assert chat_request(chat(HI, options=large)).sampling == Sampling(
        seed=5, max_tokens=2**31 - 1, top_k=2**31 - 1
    )


def test_an_answer_may_be_held_to_json_or_to_a_schema() -> None:
    assert chat_request(chat(HI, format="json")).response_format == {"type": "json_object"}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for asked in (
        chat_request(chat(HI, format=schema)),
        generate_request({"model": "m", "prompt": "p", "format": schema}),
    ):
        assert asked.response_format is not None
        assert asked.response_format["json_schema"]["schema"] == schema
    assert chat_request(chat(HI, format="")).response_format is None


def test_a_prompt_is_what_a_user_says_unless_it_is_raw() -> None:
    asked = generate_request({"model": "m", "prompt": "p", "system": "s", "context": [1, 2]})
    assert (asked.system, asked.messages) == ("s", (Message(role="user", content="p"),))
    raw = generate_request({"model": "m", "prompt": "<s>p", "raw": True})
    assert (raw.prompt, raw.messages, raw.system) == ("<s>p", (), None)
    empty = {"model": "m", "prompt": "p", "template": "", "suffix": "", "images": []}
    assert generate_request(empty).messages == (Message(role="user", content="p"),)


@each_row(
    ("given", "expected"),
    [({"model": "m"}, "m"), ({"name": "n"}, "n"), ({"model": "m:latest"}, "m")],
)
def test_a_models_name_stands_under_either_key(given: Any, expected: str) -> None:
    assert model_of(given) == expected


@each_row(
    ("given", "expected"),
    [(None, True), (True, True), (False, False), ("low", True), ("high", True)],
)
def test_thoughts_are_shown_unless_nobody_wants_them(given: Any, expected: bool) -> None:
    assert shows_thoughts({"think": given}) is expected


@each_row(
    ("given", "expected"),
    [
        (None, None),
        ("", None),
        (0, 0.0),
        ("0", 0.0),
        ("0s", 0.0),
        (-1, -1.0),
        ("-1", -1.0),
        ("-1m", -60.0),
        (300, 300.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("250ms", 0.25),
    ],
)
def test_a_model_stays_for_seconds_or_a_duration(given: Any, expected: float | None) -> None:
    assert keep_alive_s({"keep_alive": given}) == expected


@each_row("given", ["soon", "5 minutes", "m", [1], {}, True])
def test_what_is_no_duration_is_refused(given: Any) -> None:
    with pytest.raises(InvalidRequestError, match="keep_alive"):
        keep_alive_s({"keep_alive": given})


@each_row(
    ("given", "place"),
    [
        (chat(HI | {"images": ["hi!"]}), "messages[0].images[0]"),
        (chat({"role": "system", "content": "x", "images": ["aGk="]}), "messages[0].images"),
        (chat({"role": "robot", "content": "x"}), "messages[0].role"),
        (chat("hi"), "messages[0]"),
        (chat({"role": "user", "content": [1]}), "messages[0].content"),
        ({"messages": [HI]}, "model"),
        (chat(HI, tools=["x"]), "tools[0]"),
        (chat(HI, tools=[{"type": "function"}]), "tools[0].function.name"),
        (chat(HI, format="xml"), "format"),
        (chat(HI, format=[1]), "format"),
        (chat(HI, options={"temperature": -1}), "options.temperature"),
        (chat(HI, options={"temperature": "hot"}), "options.temperature"),
        (chat(HI, options={"stop": [1]}), "options.stop"),
        (chat(HI, options={"num_predict": 1.5}), "options.num_predict"),
        (chat(answered("x", tool_name=5)), "messages[0].tool_name"),
        (chat(HI, options=[1]), "options"),
        (chat({"role": "assistant", "tool_calls": [{"name": "a"}]}), "messages[0].tool_calls[0]"),
        (
            chat(
                {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": 1}}]}
            ),
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(given: Any, place: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        chat_request(given)
    assert str(refused.value).startswith(place)


@each_row(
    ("more", "name"),
    [
        ({"template": "x"}, "template"),
        ({"images": ["aGk="], "raw": True}, "images"),
        ({"images": ["aGk="], "suffix": "x"}, "images"),
        ({"images": "aGk="}, "images"),
    ],
)
def test_what_is_not_done_here_is_refused_by_name(more: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        generate_request({"model": "m", "prompt": "p"} | more)


def test_there_are_not_other_ways_to_think() -> None:
    with pytest.raises(InvalidRequestError, match="think"):
        shows_thoughts({"think": "deeply"})


@each_row(
    ("think", "variables"),
    [
        (None, None),
        (False, {"enable_thinking": False, "thinking": False}),
        (True, {"enable_thinking": True, "thinking": True}),
        ("low", {"enable_thinking": True, "thinking": True, "reasoning_effort": "low"}),
    ],
)
def test_r5_think_reaches_the_chat_template(think: Any, variables: Any) -> None:
    told = chat_request(chat({"role": "user", "content": "hi"}, think=think))
    generated = generate_request({"model": "m", "prompt": "hi", "think": think})
    assert told.sampling.template_kwargs == generated.sampling.template_kwargs == variables
