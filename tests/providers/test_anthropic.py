"""The anthropic provider against a real server on loopback that speaks its dialect."""

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.config.schema import ProviderSection
from clawd.errors import ConfigError, ProviderError
from clawd.providers.anthropic import (
    MAX_KEPT_ANSWERS,
    MAX_PAUSES,
    AnthropicAnswer,
    AnthropicProvider,
    KeptAnswers,
)
from clawd.providers.base import (
    CallAssembler,
    CallDelta,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Message,
    ToolCall,
    ToolSpec,
)
from clawd.providers.http import SseParser
from clawd.providers.reliable import ReliableProvider, RetrySettings
from clawd.providers.router import RoutedProvider, RouterProvider
from clawd.providers.scripted import ScriptedProvider
from clawd.wire.events import HopUsage, ReasoningDelta, TextDelta
from tests.support.chat_server import Answer, ChatServer
from tests.support.collecting import collect, end_of, text_of
from tests.support.message_server import (
    HELLO,
    answered,
    begin,
    block,
    call,
    end,
    event,
    serving,
    text,
    thought,
)
from tests.support.rows import each_row

KEY = "a very secret key"
FAST = RetrySettings(initial_s=0.001, max_s=0.002, jitter_s=0.001)
LIMIT_S = 60.0
ASK = ChatRequest(messages=(Message(role="user", content="Hi"),))
TOOL = ToolSpec(name="time", description="Tells the time.", parameters={"type": "object"})
ACTING = (
    begin(),
    thought(0, "Which zone?", "sig-1"),
    text(1, "I look."),
    call(2, "toolu_1", "time", '{"zone"', ': "UTC"}'),
    call(3, "toolu_2", "time"),
    end("tool_use"),
)


def section_of(**fields: Any) -> ProviderSection:
    return ProviderSection(kind="anthropic", model="m", **fields)


@asynccontextmanager
async def provider_for(server: ChatServer, **fields: Any) -> AsyncIterator[AnthropicProvider]:
    async with serving(server) as url:
        section = section_of(**{"base_url": url} | fields)
        provider = AnthropicProvider("claude", section, key=KEY, retry=FAST)
        try:
            yield provider
        finally:
            await provider.close()


async def deltas_of(server: ChatServer, request: ChatRequest = ASK, **fields: Any) -> list[Delta]:
    async with asyncio.timeout(LIMIT_S), provider_for(server, **fields) as provider:
        return [delta async for delta in provider.chat(request)]


async def error_of(server: ChatServer, **fields: Any) -> tuple[ProviderError, bool]:
    last = (await deltas_of(server, **fields))[-1]
    assert isinstance(last, Failed), last
    assert isinstance(last.error, ProviderError)
    return last.error, last.partial


def calls_of(deltas: list[Delta]) -> list[tuple[str, str, str]]:
    assembler = CallAssembler()
    for delta in deltas:
        if isinstance(delta, CallDelta):
            assembler.add(delta)
    return [(one.id, one.name, one.arguments) for one in assembler.calls()]


def whole(*content: dict[str, Any], reason: str = "end_turn") -> bytes:
    usage = {"input_tokens": 4, "output_tokens": 2}
    message = {"type": "message", "model": "m-1", "stop_reason": reason, "usage": usage}
    return json.dumps(message | {"content": list(content)}).encode()


# --- answers


async def test_a_stream_gives_text_and_usage_with_what_was_cached() -> None:
    server = ChatServer(answered(*HELLO))
    deltas = await deltas_of(server)
    finished = end_of(deltas)
    assert deltas[:-1] == [TextDelta(text="He"), TextDelta(text="llo")]
    assert (finished.reason, finished.provider, finished.model) == ("stop", "claude", "m-1")
    usage = msgspec.structs.replace(finished.usage, tokens_per_s=0.0)
    assert usage == HopUsage(prompt_tokens=20, cached_tokens=12, completion_tokens=7)
    assert server.headers[0]["x-api-key"] == KEY
    assert server.headers[0]["anthropic-version"] == "2023-06-01"
    assert "Authorization" not in server.headers[0]
    assert server.requests[0] == {
        "model": "m",
        "max_tokens": 16_384,
        "stream": True,
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
            }
        ],
    }


@each_row("size", [1, 7, 1000])
async def test_the_size_of_the_pieces_does_not_matter(size: int) -> None:
    data = b"".join(ACTING).replace(b"\n", b"\r\n")
    pieces = tuple(data[at : at + size] for at in range(0, len(data), size))
    deltas = await deltas_of(ChatServer(Answer(pieces=pieces)))
    assert text_of(deltas) == "I look."
    assert calls_of(deltas) == [
        ("toolu_1", "time", '{"zone": "UTC"}'),
        ("toolu_2", "time", "{}"),
    ]
    assert end_of(deltas).reason == "tool_calls"


@given(cuts=st.lists(st.integers(0, 4000), max_size=20))
@settings(deadline=None)
def test_wherever_a_stream_is_cut_the_deltas_add_up_to_the_same(cuts: list[int]) -> None:
    data = b"".join(ACTING)

    def read(pieces: list[bytes]) -> tuple[str, str, list[tuple[str, str, str]]]:
        answer, parser, deltas = AnthropicAnswer("p", "m"), SseParser(), list[Delta]()
        for piece in pieces:
            for found in parser.feed(piece):
                deltas += answer.take(found.data)
        deltas += answer.finish()
        thoughts = "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))
        return text_of(deltas), thoughts, calls_of(deltas)

    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(borders)]
    assert read(pieces) == read([data])


async def test_a_whole_message_is_read_as_well() -> None:
    body = whole(
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Noon."},
        {"type": "tool_use", "id": "t", "name": "time", "input": {"zone": "UTC"}},
        reason="tool_use",
    )
    server = ChatServer(Answer(pieces=(body[:9], body[9:])))
    deltas = await deltas_of(server, stream=False)
    assert deltas[:2] == [ReasoningDelta(text="hm"), TextDelta(text="Noon.")]
    assert calls_of(deltas) == [("t", "time", '{"zone": "UTC"}')]
    usage = msgspec.structs.replace(end_of(deltas).usage, tokens_per_s=0.0)
    assert usage == HopUsage(prompt_tokens=4, completion_tokens=2)
    assert server.requests[0]["stream"] is False


@each_row(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "stop"),
        ("something new", "stop"),
    ],
)
async def test_why_it_stopped(reason: str, expected: str) -> None:
    deltas = await deltas_of(ChatServer(answered(begin(), text(0, "x"), end(reason))))
    assert end_of(deltas).reason == expected


async def test_a_refusal_is_a_failure_that_says_so() -> None:
    server = ChatServer(answered(begin(), text(0, "I can"), end("refusal")))
    error, partial = await error_of(server)
    assert (error.kind, partial) == ("invalid", True)
    assert "refused" in error.message
    assert len(server.requests) == 1


async def test_a_paused_answer_is_gone_on_with() -> None:
    searching = block(
        1,
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"query": "x"}'},
    )
    found = block(2, {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []})
    first = answered(begin(), text(0, "I look. "), searching, found, end("pause_turn"))
    rest = answered(begin(), text(0, "Found."), end("end_turn", output_tokens=3))
    server = ChatServer(first, rest)
    deltas = await deltas_of(server)
    assert text_of(deltas) == "I look. Found."
    assert [type(delta) for delta in deltas].count(Finished) == 1
    assert end_of(deltas).usage.completion_tokens == 10
    assert server.requests[1]["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look. "},
                {
                    "type": "server_tool_use",
                    "id": "srv",
                    "name": "web_search",
                    "input": {"query": "x"},
                },
                {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
            ],
        }
    ]


async def test_an_answer_that_pauses_again_and_again_ends() -> None:
    server = ChatServer(answered(begin(), text(0, "x"), end("pause_turn")))
    deltas = await deltas_of(server)
    assert (text_of(deltas), end_of(deltas).reason) == ("x" * (MAX_PAUSES + 1), "stop")
    assert len(server.requests[-1]["messages"]) == 2


# --- hostile and careless servers


async def test_blocks_without_index_are_taken_in_order() -> None:
    def without_index(data: bytes) -> bytes:
        out = []
        for line in data.split(b"\n"):
            if line.startswith(b"data: "):
                value = json.loads(line[6:])
                value.pop("index", None)
                line = b"data: " + json.dumps(value).encode()
            out.append(line)
        return b"\n".join(out)

    server = ChatServer(answered(*(without_index(piece) for piece in ACTING)))
    deltas = await deltas_of(server)
    assert text_of(deltas) == "I look."
    assert calls_of(deltas) == [
        ("toolu_1", "time", '{"zone": "UTC"}'),
        ("toolu_2", "time", "{}"),
    ]


async def test_deltas_of_blocks_in_any_order_find_their_block() -> None:
    starts = [
        event(
            "content_block_start",
            index=n,
            content_block={"type": "tool_use", "id": f"t{n}", "name": "time", "input": {}},
        )
        for n in (5, 2)
    ]
    pieces = [
        event(
            "content_block_delta",
            index=n,
            delta={"type": "input_json_delta", "partial_json": piece},
        )
        for n, piece in ((2, '{"a"'), (5, '{"b"'), (2, ": 1}"), (5, ": 2}"))
    ]
    deltas = await deltas_of(ChatServer(answered(begin(), *starts, *pieces, end("tool_use"))))
    assert calls_of(deltas) == [("t5", "time", '{"b": 2}'), ("t2", "time", '{"a": 1}')]


async def test_text_without_a_start_is_text_and_arguments_without_one_are_nothing() -> None:
    loose = [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hi"}),
        event(
            "content_block_delta",
            index=9,
            delta={"type": "input_json_delta", "partial_json": "{}"},
        ),
        event("content_block_stop", index=44),
    ]
    deltas = await deltas_of(ChatServer(answered(begin(), *loose, end("end_turn"))))
    assert (text_of(deltas), calls_of(deltas)) == ("hi", [])


async def test_input_that_came_with_the_start_is_kept_though_the_block_never_ends() -> None:
    start = {"type": "tool_use", "id": "t1", "name": "undo", "input": {"steps": 3}}
    begun = event("content_block_start", index=0, content_block=start)
    deltas = await deltas_of(ChatServer(answered(begin(), begun, end("tool_use"))))
    assert calls_of(deltas) == [("t1", "undo", '{"steps": 3}')]
    assert end_of(deltas).reason == "tool_calls"


async def test_a_call_without_an_id_gets_one_and_input_may_come_with_the_start() -> None:
    start = {"type": "tool_use", "name": "time", "input": {"zone": "UTC"}}
    server = ChatServer(answered(begin(), block(0, start), end("tool_use")))
    ((call_id, name, arguments),) = calls_of(await deltas_of(server))
    assert (name, json.loads(arguments)) == ("time", {"zone": "UTC"})
    assert call_id.startswith("toolu_")


@each_row(
    "odd",
    [
        event("content_block_start", index=0, content_block={"type": 7, "text": [1]}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": {"a": 1}}),
        event("content_block_start", index=-3, content_block={"type": "newer"}),
        event("content_block_delta", index=0),
        event("content_block_start"),
        event("message_start"),
        event("message_delta", delta={"stop_reason": 3}, usage={"output_tokens": "many"}),
        event("message_delta", usage={"output_tokens": -5, "x": True}),
        event("newer_event", value=[1]),
        b"data: {}\n\n",
        b": comment\n\n",
    ],
)
async def test_odd_events_are_passed_over(odd: bytes) -> None:
    deltas = await deltas_of(ChatServer(answered(begin(), odd, text(1, "fine"), end("end_turn"))))
    assert text_of(deltas) == "fine"
    assert end_of(deltas).reason == "stop"


@each_row(
    "data",
    [
        b"data: {nonsense\n\n",
        b"data: [1]\n\n",
        b'data: {"type": 1}\n\n',
        b'data: {"type": "content_block_start", "index": "0"}\n\n',
        b"data: " + b"[" * 5000 + b"\n\n",
    ],
)
async def test_what_is_no_event_is_an_error(data: bytes) -> None:
    error, _ = await error_of(ChatServer(answered(data)))
    assert error.kind == "invalid"


async def test_an_end_in_mid_answer_is_a_network_failure_and_is_not_tried_again() -> None:
    for cut in (True, False):
        server = ChatServer(answered(*HELLO[:3], cut=cut))
        error, partial = await error_of(server)
        assert (error.kind, partial, len(server.requests)) == ("network", True, 1)


async def test_a_message_stop_alone_is_an_end() -> None:
    server = ChatServer(answered(begin(), text(0, "x"), event("message_stop")))
    assert end_of(await deltas_of(server)).reason == "stop"


# --- errors


@each_row("status", [408, 429, 500, 503, 529])
async def test_passing_failures_are_tried_again_before_the_first_byte(status: int) -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    server = ChatServer(Answer(status=status, pieces=(body,)), answered(*HELLO))
    assert text_of(await deltas_of(server)) == "Hello"
    assert len(server.requests) == 2


@each_row(
    ("status", "kind"), [(400, "http"), (401, "auth"), (403, "auth"), (404, "http"), (413, "http")]
)
async def test_other_failures_are_told_with_status_and_body(status: int, kind: str) -> None:
    server = ChatServer(Answer(status=status, pieces=(b"x" * 1000,)))
    error, partial = await error_of(server)
    assert error.message == f"HTTP {status}: {'x' * 400}"
    assert (error.kind, error.status, partial, len(server.requests)) == (kind, status, False, 1)


@each_row(
    ("kind", "status", "expected"),
    [
        ("overloaded_error", 529, "http"),
        ("rate_limit_error", 429, "http"),
        ("authentication_error", 401, "auth"),
        ("invalid_request_error", 400, "http"),
        ("newer_error", 0, "http"),
    ],
)
async def test_an_error_inside_the_stream_is_raised(kind: str, status: int, expected: str) -> None:
    broken = event("error", error={"type": kind, "message": "no"})
    server = ChatServer(answered(*HELLO[:3], broken))
    error, partial = await error_of(server)
    assert (error.kind, error.status, partial) == (expected, status, True)
    assert f"{kind}: no" in error.message
    assert len(server.requests) == 1


async def test_an_error_that_a_stream_begins_with_is_tried_again_where_it_passes() -> None:
    overloaded = event("error", error={"type": "overloaded_error", "message": "busy"})
    server = ChatServer(answered(overloaded), answered(*HELLO))
    assert text_of(await deltas_of(server)) == "Hello"
    assert len(server.requests) == 2
    wrong = event("error", error={"type": "invalid_request_error", "message": "no"})
    server = ChatServer(answered(wrong), answered(*HELLO))
    error, partial = await error_of(server)
    assert (error.status, partial, len(server.requests)) == (400, False, 1)
    half = ChatServer(answered(overloaded[:12]), answered(*HELLO))
    assert (await error_of(half))[0].kind == "network"


async def test_an_error_with_status_200_is_an_error() -> None:
    body = b'{"type":"error","error":{"type":"api_error","message":"broken"}}'
    error, _ = await error_of(ChatServer(Answer(pieces=(body,))))
    assert (error.status, "broken" in error.message) == (500, True)


async def test_the_key_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = f"bad key {KEY}".encode()
    refusing = Answer(status=401, pieces=(body,))
    stream = event("error", error={"type": "api_error", "message": f"key {KEY}"})
    for server in (ChatServer(refusing, models=refusing), ChatServer(answered(stream))):
        error, _ = await error_of(server)
        assert KEY not in str(error)
        assert "[redacted]" in error.message
    async with provider_for(ChatServer(refusing, models=refusing)) as provider:
        with pytest.raises(ProviderError) as caught:
            await provider.check()
    assert KEY not in str(caught.value)
    retried = ChatServer(Answer(status=500, pieces=(body,)), answered(*HELLO))
    assert text_of(await deltas_of(retried)) == "Hello"
    assert KEY not in str([vars(record) for record in caplog.records])


@each_row("kept", [5, 9, len(KEY) - 1])
async def test_half_a_key_is_in_no_error_where_the_answer_was_cut(kept: int) -> None:
    long = "x" * (400 - kept) + KEY
    refusing = Answer(status=401, pieces=(long.encode(),))
    stream = event("error", error={"message": long})
    for server in (ChatServer(refusing), ChatServer(answered(begin(), stream))):
        error, _ = await error_of(server)
        assert KEY[:5] not in error.message
        assert error.message.endswith("x[redacted]")


def test_bad_addresses_and_keys_are_refused_without_saying_them() -> None:
    with pytest.raises(ConfigError) as caught:
        AnthropicProvider("x", section_of(base_url="http://me:pw1@x/"))
    assert "pw1" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        AnthropicProvider("x", section_of(), key=f"{KEY}\n")
    assert KEY not in str(caught.value)


async def test_silence_and_nobody_there_are_told() -> None:
    error, _ = await error_of(ChatServer(Answer(hang="headers")), first_byte_timeout_s=0.2)
    assert error.kind == "timeout"
    hanging = ChatServer(answered(*HELLO[:3], hang="end"))
    error, partial = await error_of(hanging, timeout_s=1.0)
    assert (error.kind, partial) == ("timeout", True)
    error, _ = await error_of(ChatServer(answered()), base_url="http://127.0.0.1:1")
    assert (error.kind, "127.0.0.1:1" in error.message) == ("network", True)


async def test_closing_the_stream_closes_the_connection() -> None:
    server = ChatServer(answered(*HELLO[:3], hang="end"))
    async with asyncio.timeout(LIMIT_S), provider_for(server) as provider:
        async with aclosing(provider.chat(ASK)) as stream:
            assert await anext(stream) == TextDelta(text="He")
        await server.closed.wait()


# --- thoughts across a round of calls


def after(deltas: list[Delta], *results: str) -> ChatRequest:
    """Return the request with the calls and their results, as the agent loop makes it."""
    calls = tuple(ToolCall(id=i, name=n, arguments=a) for i, n, a in calls_of(deltas))
    answers = [
        Message(role="tool", content=result, tool_call_id=one.id, name=one.name)
        for one, result in zip(calls, results, strict=True)
    ]
    said = Message(role="assistant", content=text_of(deltas), tool_calls=calls)
    return ChatRequest(messages=(*ASK.messages, said, *answers), tools=(TOOL,))


async def test_thoughts_go_back_signed_with_the_results_of_their_calls() -> None:
    server = ChatServer(answered(*ACTING), answered(*HELLO))
    asking = msgspec.structs.replace(ASK, tools=(TOOL,))
    async with provider_for(server, thinking="enabled") as provider:
        deltas = [delta async for delta in provider.chat(asking)]
        again = after(deltas, "noon", "one")
        await collect(provider.chat(again))
        other = msgspec.structs.replace(again, model="another")
        await collect(provider.chat(other))
    thinking = {"type": "enabled", "budget_tokens": 8192}
    assert [request["thinking"] for request in server.requests] == [
        thinking, thinking, {"type": "disabled"},
    ]  # fmt: skip
    assert server.requests[1]["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Which zone?", "signature": "sig-1"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "time", "input": {"zone": "UTC"}},
                {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "noon"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "one",
                    "cache_control": {"type": "ephemeral"},
                },
            ],
        },
    ]
    kinds = [part["type"] for part in server.requests[2]["messages"][1]["content"]]
    assert kinds == ["text", "tool_use", "tool_use"]


async def test_half_of_a_surrogate_pair_in_a_call_breaks_no_conversation() -> None:
    half = '{"a": "\\ud800"}'
    asking = (begin(), thought(0, "Hm.", "sig-1"), call(1, "toolu_1", "time", half))
    server = ChatServer(answered(*asking, end("tool_use")), answered(*HELLO))
    async with asyncio.timeout(LIMIT_S), provider_for(server) as provider:
        first = [delta async for delta in provider.chat(ASK)]
        assert end_of(first).reason == "tool_calls"
        again = after(first, "noon")
        assert text_of([delta async for delta in provider.chat(again)]) == "Hello"
    other = msgspec.structs.replace(again, model="another")
    assert text_of(await deltas_of(ChatServer(answered(*HELLO)), other)) == "Hello"


def _thinking_answer(call_id: str, said: str = "x") -> list[dict[str, Any]]:
    return [
        {"type": "redacted_thinking", "data": said},
        {"type": "tool_use", "id": call_id, "name": "time", "input": {}},
    ]


def _message(*ids: str, content: str = "") -> Message:
    return Message(
        role="assistant",
        content=content,
        tool_calls=tuple(ToolCall(id=one, name="time") for one in ids),
    )


def test_kept_thoughts_are_of_the_same_answer_of_the_same_model_and_bounded() -> None:
    kept = KeptAnswers()
    blocks = _thinking_answer("a")
    kept.keep("m", blocks)
    assert kept.blocks("m", _message("a")) == blocks
    assert kept.blocks("other", _message("a")) is None
    assert kept.blocks("m", _message("a", "b")) is None
    assert kept.blocks("m", _message("a", content="changed")) is None
    assert kept.blocks("m", _message()) is None
    kept.keep("m", blocks[1:])
    assert kept.blocks("m", _message("a")) == blocks
    for number in range(MAX_KEPT_ANSWERS):
        kept.keep("m", _thinking_answer(str(number)))
    assert kept.blocks("m", _message("a")) is None
    kept.keep("m", _thinking_answer("huge", "x" * 9_000_000))
    assert kept.blocks("m", _message("huge")) is None


# --- among others


async def test_a_chain_asks_the_next_one_and_a_router_takes_it() -> None:
    refusing = ChatServer(Answer(status=401, pieces=(b"no",)))
    async with provider_for(refusing) as provider:
        chain = ReliableProvider("safe", [provider, ScriptedProvider("mock")])
        assert (await collect(chain.chat(ASK))).final_text == "Hi"
    overloaded = ChatServer(Answer(status=529, pieces=(b"busy",)))
    async with provider_for(overloaded) as provider:
        router = RouterProvider(
            "fleet",
            [RoutedProvider(provider=provider), RoutedProvider(provider=ScriptedProvider("mock"))],
        )
        assert (await collect(router.chat(ASK))).final_text == "Hi"
        await router.close()
    assert len(overloaded.requests) == 1, "a chain's members try no second time"


async def test_check_lists_the_models() -> None:
    async with provider_for(ChatServer(answered(*HELLO))) as provider:
        assert "answered with 1 models; m is one of them" in await provider.check()
    async with provider_for(ChatServer(answered(*HELLO), models=Answer(status=404))) as provider:
        with pytest.raises(ProviderError, match="HTTP 404"):
            await provider.check()
    async with provider_for(
        ChatServer(answered(*HELLO), models=Answer(pieces=(b"hello",)))
    ) as provider:
        assert "without a list of models" in await provider.check()


@each_row("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_address_may_end_with_the_version(suffix: str) -> None:
    async with serving(ChatServer(answered(*HELLO))) as url:
        provider = AnthropicProvider("c", section_of(base_url=url + suffix), retry=FAST)
        assert (await collect(provider.chat(ASK))).final_text == "Hello"
        await provider.close()
