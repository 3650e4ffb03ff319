"""What a body of /v1/chat/completions becomes, in every form that clients send."""

from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from clawd.channels.http.model_api import ModelRequest
from clawd.channels.http.openai.chat import ChatAsked, read_chat
from clawd.errors import InvalidRequestError
from clawd.providers.base import Message, Sampling, ToolCall, ToolSpec
from tests.channels.http.openai.recorded import LITELLM_HISTORY, OPENCODE_FIRST, WEATHER
from tests.support.rows import each_row

USER = {"role": "user", "content": "hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def read(body: dict[str, Any], **headers: str) -> ChatAsked:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = {"messages": [USER], **body}
    return read_chat(asked, make_mocked_request("POST", "/v1/chat/completions", headers=named))


def request(body: dict[str, Any], **headers: str) -> ModelRequest:
    return read(body, **headers).request


def messages(*given: dict[str, Any]) -> tuple[Message, ...]:
    return request({"messages": list(given)}).messages


def test_the_smallest_body_asks_for_one_whole_answer_of_the_default_model() -> None:
    asked = read({})
    assert asked.request == ModelRequest(messages=(Message(role="user", content="hello"),))
    assert (asked.choices, asked.telling.stream, asked.telling.usage) == (1, False, False)


def test_an_explicit_null_is_an_absent_field() -> None:
    names = (
        "model stream stream_options max_tokens max_completion_tokens temperature top_p stop seed "
        "tools tool_choice parallel_tool_calls response_format n presence_penalty logit_bias user "
        "frequency_penalty logprobs top_logprobs metadata store service_tier functions grammar "
        "top_k min_p typical_p repeat_penalty json_schema return_progress modalities n_predict"
    )
    assert read(dict.fromkeys(names.split())) == read({})


def test_unknown_fields_and_those_of_no_meaning_here_are_ignored() -> None:
    extras: dict[str, Any] = {
        "user": "me",
        "store": True,
        "service_tier": "auto",
        "cache_prompt": True,
        "id_slot": 3,
        "timings_per_token": True,
        "provider_specific_fields": {"x": [1]},
    }
    assert read(extras) == read({})


def test_a_system_message_alone_is_answered_in_one_pass() -> None:
    asked = request({"messages": [{"role": "developer", "content": "be brief"}]})
    assert (asked.system, asked.is_plain) == ("be brief", True)
    assert asked.messages == (Message(role="user", content=""),)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert request({"max_tokens": 9.0, "seed": 7.0, "top_k": 5.0}).sampling == Sampling(
        max_tokens=9, seed=7, top_k=5
    )
    for value in (1.5, 1e300):
        with pytest.raises(InvalidRequestError, match="max_tokens"):
            request({"max_tokens": value})


def test_every_sampling_field_arrives() -> None:
    sampling = request(
        {
            "temperature": 0,
            "top_p": 0.9,
            "top_k": 5,
            "min_p": 0.1,
            "typical_p": 0.8,
            "repeat_penalty": 1.1,
            "frequency_penalty": -0.5,
            "presence_penalty": 1,
            "seed": 7,
            "max_tokens": 9,
            "stop": "END",
            "dry_multiplier": 0.5,
            "dry_base": 2,
            "dry_allowed_length": 3,
            "dry_penalty_last_n": 64,
            "dry_sequence_breakers": ["\n"],
            "xtc_probability": 0.2,
            "xtc_threshold": 0.3,
            "logit_bias": {"12": -100, "13": 2.5},
        }
    ).sampling
    assert sampling == Sampling(
        temperature=0.0,
        top_p=0.9,
        top_k=5,
        min_p=0.1,
        typical_p=0.8,
        repeat_penalty=1.1,
        frequency_penalty=-0.5,
        presence_penalty=1.0,
        seed=7,
        max_tokens=9,
        stop=("END",),
        dry_multiplier=0.5,
        dry_base=2.0,
        dry_allowed_length=3,
        dry_last_n=64,
        dry_breakers=("\n",),
        xtc_probability=0.2,
        xtc_threshold=0.3,
        logit_bias={12: -100.0, 13: 2.5},
    )


@each_row(
    ("body", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": None, "n_predict": 7}, 7),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 10**15}, 2**31 - 1),
    ],
)
def test_the_answer_is_bounded_by_either_name(body: dict[str, Any], limit: int | None) -> None:
    assert request(body).sampling.max_tokens == limit


@each_row(
    ("stop", "stops"),
    [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ()), ("", ()), (["", "x"], ("x",))],
)
def test_stops_are_one_text_or_a_list(stop: Any, stops: tuple[str, ...]) -> None:
    assert request({"stop": stop}).sampling.stop == stops


def test_biases_come_by_id_or_as_pairs_and_false_bans() -> None:
    assert request({"logit_bias": [[15, 1.5], [16, False]]}).sampling.logit_bias == {
        15: 1.5,
        16: -100.0,
    }
    assert request({"logit_bias": {}}).sampling.logit_bias is None


def test_a_seed_of_any_size_is_one_that_the_engine_takes() -> None:
    assert request({"seed": 2**40 + 3}).sampling.seed == 3
    assert request({"seed": -1}).sampling.seed is None


def test_system_and_developer_messages_are_the_system_prompt_in_their_order() -> None:
    asked = request(
        {
            "messages": [
                {"role": "system", "content": "One."},
                {"role": "developer", "content": [{"type": "text", "text": "Two."}]},
                USER,
            ]
        }
    )
    assert asked.system == "One.\n\nTwo."
    assert asked.messages == (Message(role="user", content="hello"),)


def test_content_comes_as_text_as_parts_and_for_assistants_as_nothing_too() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = ToolCall(id="c1", name="f", arguments='{"a":1}')
    calling = Message(role="assistant", tool_calls=(call,))
    found = messages(
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": parts},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
        {"role": "assistant", "tool_calls": [CALL], "provider_specific_fields": {}},
        {"role": "tool", "tool_call_id": "c1", "content": None},
        {"role": "assistant", "content": parts, "refusal": None},
        USER,
    )
    assert found == (
        Message(role="user", content="a\nb"),
        calling,
        Message(role="tool", content="a\nb", tool_call_id="c1", name="f"),
        calling,
        Message(role="tool", content="r", tool_call_id="c1", name="f"),
        calling,
        Message(role="tool", content="", tool_call_id="c1", name="f"),
        Message(role="assistant", content="ab"),
        Message(role="user", content="hello"),
    )


def test_arguments_of_earlier_calls_come_as_text_as_object_or_not_at_all() -> None:
    def arguments(value: Any) -> str:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": value}}
        return (
            messages(USER, {"role": "assistant", "tool_calls": [call]})[1].tool_calls[0].arguments
        )

    assert [arguments(value) for value in ('{"a":1}', {"a": 1}, "", None)] == [
        '{"a":1}',
        '{"a":1}',
        "{}",
        "{}",
    ]


def test_results_know_their_tool() -> None:
    calls = [
        {"id": "x", "type": "function", "function": {"name": "first", "arguments": "{}"}},
        {"type": "function", "function": {"name": "second", "arguments": "{}"}},
    ]
    found = messages(
        USER,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_unnamed_1", "content": "2"},
        {"role": "tool", "tool_call_id": "x", "content": "1"},
    )
    assert [(each.name, each.content) for each in found[2:]] == [("second", "2"), ("first", "1")]


def test_a_result_without_an_id_answers_the_next_call() -> None:
    found = messages(
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "r"},
    )
    assert found[-1] == Message(role="tool", content="r", tool_call_id="c1", name="f")


def test_functions_are_taken_and_tools_of_other_kinds_passed_over() -> None:
    bare = {"type": "function", "function": {"name": "bare"}}
    tools = [{"type": "namespace", "name": "x"}, WEATHER, {"type": "web_search"}, bare]
    asked = request({"tools": tools})
    assert asked.tools == (
        ToolSpec(
            name="get_weather",
            description="Weather of a city",
            parameters=WEATHER["function"]["parameters"],
        ),
        ToolSpec(name="bare", description="", parameters={"type": "object", "properties": {}}),
    )
    assert not asked.is_plain


@each_row(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        (NAMED, "get_weather"),
        ({"type": "function", "name": "get_weather"}, "get_weather"),
        ({"type": "auto"}, "auto"),
    ],
)
def test_the_choice_of_a_tool_comes_in_every_form(choice: Any, expected: str) -> None:
    asked = request({"tools": [WEATHER], "tool_choice": choice})
    assert (asked.tool_choice, len(asked.tools)) == (expected, 1)


def test_allowed_tools_leave_the_others_out() -> None:
    other = {"type": "function", "function": {"name": "other"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
    asked = request({"tools": [WEATHER, other], "tool_choice": allowed})
    assert asked.tool_choice == "required"
    assert [tool.name for tool in asked.tools] == ["get_weather"]


def test_no_tool_at_all_may_be_called_where_the_choice_is_none_without_tools() -> None:
    assert request({"tool_choice": "none"}).is_plain


def test_formats_of_the_answer() -> None:
    inner = {"name": "a", "schema": SCHEMA, "strict": True}
    by_schema = {"type": "json_schema", "json_schema": inner}
    unnamed = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    assert request({"response_format": {"type": "text"}}).response_format is None
    asked = request({"response_format": {"type": "json_object"}})
    assert asked.response_format == {"type": "json_object"}
    assert request({"response_format": by_schema}).response_format == by_schema
    assert request({"json_schema": SCHEMA}).response_format == unnamed
    of_object = {"type": "json_object", "schema": SCHEMA}
    assert request({"response_format": of_object}).response_format == unnamed


def test_log_probabilities_make_one_plain_pass() -> None:
    asked = request({"logprobs": True, "top_logprobs": 3})
    assert (asked.sampling.logprobs, asked.sampling.top_logprobs) == (True, 3)
    assert asked.is_plain
    assert request({"logprobs": False}).sampling == Sampling()


def test_the_beginning_of_an_answer_is_gone_on_with_in_one_plain_pass() -> None:
    asked = request({"messages": [USER, {"role": "assistant", "content": "Once upon"}]})
    assert asked.messages[-1] == Message(role="assistant", content="Once upon")
    assert asked.is_plain


def test_how_it_is_told_is_asked_in_options_and_headers() -> None:
    options = {
        "include_usage": True,
        "clawd_prompt_progress": True,
        "clawd_events": False,
        "unknown": 1,
    }
    telling = read({"stream": True, "stream_options": options}, X_Clawd_Events="on").telling
    assert (telling.stream, telling.usage, telling.progress, telling.events) == (
        True,
        True,
        True,
        False,
    )
    assert read({}, X_Clawd_Events="on").telling.events
    assert read({"return_progress": True}).request.wants_progress


def test_headers_leave_clawds_prompt_out_and_name_a_conversation() -> None:
    asked = request({}, X_Clawd_Inject="off", X_Clawd_Conversation="conv-1")
    assert (asked.inject, asked.conversation_id) == (False, "conv-1")
    assert request({}).inject


def test_metadata_of_text_are_hints_but_no_conversation() -> None:
    given = {"cost": "low", "n": 3, "conversation_id": "conv-of-another"}
    assert request({"metadata": given}).metadata == {"cost": "low"}


def test_the_first_request_of_opencode_is_taken_whole() -> None:
    asked = read(OPENCODE_FIRST)
    assert len(asked.request.tools) == 10
    assert asked.request.sampling.max_tokens == 32000
    assert asked.telling.stream and asked.telling.usage
    assert asked.request.system is not None
    assert asked.request.messages[-1].role == "user"


def test_a_history_as_litellm_sends_it_loses_no_turn() -> None:
    roles = [message.role for message in request({"messages": LITELLM_HISTORY}).messages]
    assert roles == ["user", "assistant", "tool", "user"]


@each_row(
    "fields",
    [
        {"content": "so", "reasoning_content": "a plan"},
        {"content": "so", "reasoning": "a plan", "reasoning_content": None},
        {"content": "so", "thinking": "a plan"},
        {"content": [{"type": "thinking", "thinking": "a plan"}, {"type": "text", "text": "so"}]},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "a plan"}]},
                {"type": "text", "text": "so"},
            ]
        },
    ],
)
def test_r5_what_was_thought_comes_back_with_the_history(fields: dict[str, Any]) -> None:
    said = messages({"role": "user", "content": "hi"}, {"role": "assistant", **fields})[1]
    assert (said.content, said.reasoning) == ("so", "a plan")


@each_row(
    "fields",
    [
        {"content": "so"},
        {"content": "so", "reasoning": {"effort": "low"}},
        {"content": "so", "reasoning_content": ""},
        {"content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "so"}]},
    ],
)
def test_r5_reasoning_in_a_form_that_nobody_reads_is_passed_over(fields: dict[str, Any]) -> None:
    said = messages({"role": "user", "content": "hi"}, {"role": "assistant", **fields})[1]
    assert (said.content, said.reasoning) == ("so", "")


@each_row(
    ("body", "variables"),
    [
        ({}, None),
        ({"reasoning_effort": None, "chat_template_kwargs": None}, None),
        ({"reasoning_effort": "none"}, {"enable_thinking": False, "thinking": False}),
        (
            {"reasoning_effort": "minimal"},
            {"enable_thinking": True, "thinking": True, "reasoning_effort": "low"},
        ),
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"thinking": True, "x": [1]}},
            {"enable_thinking": False, "thinking": True, "x": [1]},
        ),
        ({"reasoning": {"effort": "none"}}, {"enable_thinking": False, "thinking": False}),
        (
            {"reasoning": {"effort": "low"}, "reasoning_effort": "high"},
            {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
        ),
        ({"reasoning": {"effort": None, "summary": "auto"}}, None),
    ],
)
def test_r5_what_is_said_of_thinking_reaches_the_chat_template(
    body: dict[str, Any], variables: dict[str, Any] | None
) -> None:
    assert request(body).sampling.template_kwargs == variables


@each_row(
    "body",
    [
        {"reasoning_effort": "much"},
        {"chat_template_kwargs": [1]},
        {"reasoning": {"effort": "much"}},
        {"reasoning": {"effort": 3}},
    ],
)
def test_r5_a_wish_for_thinking_that_cannot_be_meant_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(body))):
        request(body)
