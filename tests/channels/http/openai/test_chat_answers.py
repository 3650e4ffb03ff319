"""Whole and streamed answers of /v1/chat/completions, read raw from the socket."""

import json
from typing import Any

import msgspec
import pytest

from clawd import __version__
from clawd.channels.http.model_api import GatewayEvent
from clawd.engine.protocol import TokenLogprob, TopLogprob
from clawd.errors import BusyError, ContextFullError, ProviderError
from clawd.providers.base import CallDelta, Failed, Finished, ScoredText
from clawd.wire.events import (
    HopUsage,
    Notice,
    PromptEvaluated,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolRequested,
)
from tests.channels.http.openai.recorded import OPENCODE_FIRST, WEATHER
from tests.channels.http.openai.rig import DONE, HELLO, USAGE, Answer, door
from tests.support.rows import each_row

CALLING: tuple[GatewayEvent, ...] = (
    TextDelta(text="Let me see."),
    CallDelta(index=0, id="call_x", name="get_weather"),
    CallDelta(index=0, arguments='{"ci'),
    CallDelta(index=0, arguments='ty":"Zürich"}'),
    CallDelta(index=1, id="call_y", name="get_weather", arguments='{"city":"Oslo"}'),
    CallDelta(index=2, id="call_z", name="now"),
    Finished(reason="tool_calls", usage=USAGE),
)
USAGE_TOLD = {
    "prompt_tokens": 11,
    "completion_tokens": 3,
    "total_tokens": 14,
    "prompt_tokens_details": {"cached_tokens": 4},
}
SIDE: tuple[GatewayEvent, ...] = (
    ToolRequested(call_id="c", tool="time", arguments="{}"),
    ToolFinished(call_id="c", tool="time", status="allowed", output="noon", receipt_id="receipt-1"),
    Notice(level="warning", text="slow"),
    *HELLO,
)


def token(text: str, logprob: float = -0.5) -> TokenLogprob:
    likely = TopLogprob(token=0, piece=b"x", logprob=-1.0)
    return TokenLogprob(token=0, piece=text.encode(), logprob=logprob, top=(likely,))


def deltas(answer: Answer, index: int = 0) -> list[dict[str, Any]]:
    return [
        choice["delta"]
        for chunk in answer.data()
        for choice in chunk["choices"]
        if choice["index"] == index
    ]


def said(answer: Answer, index: int = 0) -> str:
    return "".join(delta.get("content") or "" for delta in deltas(answer, index))


async def test_a_whole_answer_has_every_field() -> None:
    async with door((ReasoningDelta(text="Hm."), *HELLO)) as at:
        told = (await at.chat({"model": "some/model"})).json()
    created, made = told.pop("created"), told.pop("id")
    assert isinstance(created, int) and made.startswith("chatcmpl-")
    assert told == {
        "object": "chat.completion",
        "model": "some/model",
        "system_fingerprint": f"clawd-{__version__}",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "reasoning_content": "Hm."},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE_TOLD,
    }


async def test_a_whole_answer_with_calls_has_their_arguments_as_text() -> None:
    async with door(CALLING) as at:
        choice = (await at.chat({"tools": [WEATHER]})).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    calls = choice["message"]["tool_calls"]
    assert [call["id"] for call in calls] == ["call_x", "call_y", "call_z"]
    assert [call["type"] for call in calls] == ["function"] * 3
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [
        {"city": "Zürich"},
        {"city": "Oslo"},
        {},
    ]


async def test_content_is_null_where_there_are_only_calls() -> None:
    async with door(CALLING[1:]) as at:
        message = (await at.chat({"tools": [WEATHER]})).json()["choices"][0]["message"]
    assert message["content"] is None


async def test_a_stream_begins_with_the_role_and_ends_with_a_reason_and_done() -> None:
    async with door(HELLO) as at:
        answer = await at.chat({"stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers
    assert [name for name, _ in answer.events()] == [""] * len(answer.events())
    chunks = answer.data()
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
        for delta, reason in [
            ({"role": "assistant", "content": ""}, None),
            ({"content": "He"}, None),
            ({"content": "llo"}, None),
            ({}, "stop"),
        ]
    ]
    assert all("usage" not in chunk for chunk in chunks)


async def test_the_usage_chunk_comes_last_without_choices_and_only_if_asked_for() -> None:
    async with door(HELLO) as at:
        answer = await at.chat({"stream": True, "stream_options": {"include_usage": True}})
    *others, last = answer.data()
    assert last["choices"] == []
    assert last["usage"] == USAGE_TOLD
    assert all("usage" not in chunk for chunk in others)


async def test_a_streamed_call_has_index_always_and_id_type_and_name_once() -> None:
    async with door(CALLING) as at:
        answer = await at.chat({"stream": True, "tools": [WEATHER]})
    pieces = [piece for delta in deltas(answer) for piece in delta.get("tool_calls", [])]
    opening = {"type": "function", "function": {"name": "get_weather", "arguments": ""}}
    assert pieces == [
        {"index": 0, "id": "call_x", **opening},
        {"index": 0, "function": {"arguments": '{"ci'}},
        {"index": 0, "function": {"arguments": 'ty":"Zürich"}'}},
        {"index": 1, "id": "call_y", **opening},
        {"index": 1, "function": {"arguments": '{"city":"Oslo"}'}},
        {
            "index": 2,
            "id": "call_z",
            "type": "function",
            "function": {"name": "now", "arguments": ""},
        },
        {"index": 2, "function": {"arguments": "{}"}},
    ]
    assert said(answer) == "Let me see."
    assert answer.data()[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_call_is_not_opened_before_its_name_is_known() -> None:
    late = (
        CallDelta(index=0, id="call_x", arguments='{"a"'),
        CallDelta(index=0, name="f", arguments=":1}"),
        DONE,
    )
    async with door(late) as at:
        answer = await at.chat({"stream": True, "tools": [WEATHER]})
    first, second = [piece for delta in deltas(answer) for piece in delta.get("tool_calls", [])]
    assert (first["id"], first["function"]["name"]) == ("call_x", "f")
    assert second == {"index": 0, "function": {"arguments": '{"a":1}'}}
    assert answer.data()[-1]["choices"][0]["finish_reason"] == "tool_calls"


@each_row("stream", [False, True])
async def test_an_answer_that_was_cut_says_length_also_with_calls(stream: bool) -> None:
    async with door((*CALLING[:-1], Finished(reason="length"))) as at:
        answer = await at.chat({"stream": stream, "tools": [WEATHER]})
    told = answer.data()[-1] if stream else answer.json()
    assert told["choices"][0]["finish_reason"] == "length"


async def test_reasoning_travels_beside_the_content() -> None:
    async with door((ReasoningDelta(text="I "), ReasoningDelta(text="think."), *HELLO)) as at:
        answer = await at.chat({"stream": True})
    thought = "".join(delta.get("reasoning_content", "") for delta in deltas(answer))
    assert (thought, said(answer)) == ("I think.", "Hello")


@each_row("by_text", [True, False])
@each_row("stream", [True, False])
async def test_log_probabilities_join_to_the_content(by_text: bool, stream: bool) -> None:
    he, llo = token("He"), token("llo", float("-inf"))
    markers = (token("<think>"), token("x"), token("</think>"))
    texts = (
        (ScoredText(text="He", logprobs=(he,)), ScoredText(text="llo", logprobs=(llo,)))
        if by_text
        else (TextDelta(text="He"), TextDelta(text="llo"))
    )
    end = Finished(reason="stop", usage=USAGE, logprobs=(*markers, he, llo, token("<end>")))
    async with door((*texts, end)) as at:
        answer = await at.chat({"stream": stream, "logprobs": True, "top_logprobs": 1})
    chunks = answer.data() if stream else [answer.json()]
    found = [
        one
        for chunk in chunks
        for choice in chunk["choices"]
        for one in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert "".join(one["token"] for one in found) == "Hello"
    assert bytes(byte for one in found for byte in one["bytes"]) == b"Hello"
    assert found[0]["top_logprobs"] == [{"token": "x", "logprob": -1.0, "bytes": [120]}]
    assert found[0]["logprob"] == -0.5 and found[1]["logprob"] < -1000


async def test_several_choices_have_their_indexes_and_one_usage() -> None:
    other = (TextDelta(text="Bye"), Finished(reason="length", usage=USAGE))
    async with door(HELLO, other) as at:
        told = (await at.chat({"n": 2, "seed": 5})).json()
        assert [each.sampling.seed for each in at.generations.asked] == [5, 6]
        assert all(each.is_plain for each in at.generations.asked)
    assert [
        (each["index"], each["message"]["content"], each["finish_reason"])
        for each in told["choices"]
    ] == [(0, "Hello", "stop"), (1, "Bye", "length")]
    assert told["usage"] == {
        "prompt_tokens": 11,
        "completion_tokens": 6,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    async with door(HELLO, other) as at:
        options = {"include_usage": True}
        answer = await at.chat({"n": 2, "stream": True, "stream_options": options})
        assert all(each.is_closed for each in at.generations.opened)
    assert (said(answer, 0), said(answer, 1)) == ("Hello", "Bye")
    reasons = {
        choice["index"]: choice["finish_reason"]
        for chunk in answer.data()
        for choice in chunk["choices"]
    }
    assert reasons == {0: "stop", 1: "length"}
    assert answer.data()[-1]["usage"] == told["usage"]


async def test_one_choice_that_fails_ends_all_of_them() -> None:
    broken = (Failed(error=ProviderError("gone", kind="network")),)
    async with door(HELLO, broken) as at:
        answer = await at.chat({"n": 2})
        assert all(each.is_closed for each in at.generations.opened)
    assert answer.status == 502
    assert answer.json()["error"]["message"] == "gone"


async def test_timings_are_told_as_llama_cpp_tells_them() -> None:
    evaluated = PromptEvaluated(
        tokens=11, cached=4, elapsed_ms=70.0, context_used=11, context_size=100
    )
    end = Finished(reason="stop", usage=msgspec.structs.replace(USAGE, tokens_per_s=30.0))
    expected = {
        "cache_n": 4,
        "prompt_n": 7,
        "prompt_ms": 70.0,
        "prompt_per_token_ms": 10.0,
        "prompt_per_second": 100.0,
        "predicted_n": 3,
        "predicted_ms": 100.0,
        "predicted_per_token_ms": pytest.approx(100 / 3),
        "predicted_per_second": pytest.approx(30.0),
    }
    async with door((evaluated, TextDelta(text="a"), end)) as at:
        assert (await at.chat({})).json()["timings"] == expected
        *others, last = (await at.chat({"stream": True})).data()
    assert last["timings"] == expected
    assert all("timings" not in chunk for chunk in others)


async def test_prompt_progress_goes_from_the_cache_to_the_whole_in_llama_cpps_words() -> None:
    events = (
        PromptProgress(processed=40, cached=10, total=100),
        PromptProgress(processed=80, cached=10, total=100),
        PromptEvaluated(tokens=100, cached=10, elapsed_ms=5, context_used=100, context_size=200),
        *HELLO,
    )
    async with door(events) as at:
        chunks = (await at.chat({"stream": True, "return_progress": True})).data()
        plain = (await at.chat({"stream": True})).data()
    told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert [one["processed"] for one in told] == [10, 40, 80, 100]
    assert {(one["cache"], one["total"]) for one in told} == {(10, 100)}
    assert all("prompt_progress" not in chunk and "clawd" not in chunk for chunk in plain)


async def test_what_clawd_does_beside_the_answer_is_told_only_to_who_asks() -> None:
    async with door(SIDE, conversation_id="conv-1") as at:
        quiet = await at.chat({"stream": True})
        by_option = await at.chat({"stream": True, "stream_options": {"clawd_events": True}})
        by_header = await at.chat({"stream": True}, X_Clawd_Events="on")
        whole = (await at.chat({})).json()
    assert all(chunk["choices"] and "clawd" not in chunk for chunk in quiet.data())
    for answer in (by_option, by_header):
        beside = [chunk for chunk in answer.data() if "clawd" in chunk]
        assert all(chunk["choices"] == [] for chunk in beside)
        assert [chunk["clawd"]["event"] for chunk in beside] == [
            "clawd.tool_call",
            "clawd.tool_result",
            "clawd.notice",
        ]
        assert beside[1]["clawd"]["receipt_id"] == "receipt-1"
        assert said(answer) == "Hello"
    assert quiet.headers["x-clawd-conversation"] == "conv-1"
    assert whole["clawd"] == {
        "conversation_id": "conv-1",
        "tool_calls": [
            {
                "id": "c",
                "name": "time",
                "arguments": "{}",
                "status": "allowed",
                "receipt_id": "receipt-1",
                "duration_ms": 0,
            }
        ],
        "notices": ["slow"],
    }


@each_row("stream", [False, True])
async def test_a_failure_before_the_answer_is_a_status(stream: bool) -> None:
    full = ContextFullError("too long", data={"n_prompt_tokens": 900, "n_ctx": 512})
    async with door((Failed(error=full),)) as at:
        answer = await at.chat({"stream": stream})
        at.generations.refusal = BusyError("full", retry_after_s=2)
        busy = await at.chat({"stream": stream})
    assert answer.status == 400
    assert answer.json()["error"] == {
        "message": "too long",
        "type": "exceed_context_size_error",
        "param": None,
        "code": "context_length_exceeded",
        "n_prompt_tokens": 900,
        "n_ctx": 512,
    }
    assert (busy.status, busy.headers["retry-after"]) == (503, "2")


async def test_a_failure_in_the_middle_is_an_error_event_and_then_the_end() -> None:
    broken = (
        TextDelta(text="He"),
        Failed(error=ProviderError("gone", kind="network"), partial=True),
    )
    async with door(broken) as at:
        answer = await at.chat({"stream": True})
        assert at.generations.opened[0].is_closed
    assert answer.status == 200
    assert answer.events()[-1] == (
        "",
        {"error": {"message": "gone", "type": "server_error", "param": None, "code": "provider"}},
    )
    assert b"[DONE]" not in answer.body


async def test_text_that_splits_lines_by_unicodes_rules_keeps_its_event_whole() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x1cf\r\ng"
    async with door((TextDelta(text=text), DONE)) as at:
        answer = await at.chat({"stream": True})
    assert said(answer) == text
    for line in answer.body.decode().splitlines():
        assert line == "" or line.startswith("data: ")
    events = [line for line in answer.body.decode().splitlines() if line]
    assert len(events) == 4


async def test_the_first_request_of_opencode_is_answered_twice_at_once() -> None:
    import asyncio

    async with door(HELLO) as at:
        titled = {**OPENCODE_FIRST, "tools": []}
        both = await asyncio.gather(at.chat(OPENCODE_FIRST), at.chat(titled))
    assert [said(answer) for answer in both] == ["Hello", "Hello"]


async def test_tokens_of_a_prompt_are_counted() -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "tools": [WEATHER]}
    async with door() as at:
        answer = await at.post("/v1/chat/completions/input_tokens", body)
        assert len(at.asked.tools) == 1
    assert answer.json() == {"object": "response.input_tokens", "input_tokens": 42}


async def test_the_path_without_its_version_is_the_same() -> None:
    async with door() as at:
        body = {"messages": [{"role": "user", "content": "hello"}]}
        assert (await at.post("/chat/completions", body)).status == 200


async def test_usage_of_nothing_is_still_told() -> None:
    async with door((TextDelta(text="a"), Finished(reason="stop", usage=HopUsage()))) as at:
        assert (await at.chat({})).json()["usage"]["total_tokens"] == 0
