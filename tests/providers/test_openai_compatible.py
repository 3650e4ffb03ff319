"""The openai-compatible provider against a real server on loopback."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import pytest

from clawd.config.schema import ProviderSection
from clawd.errors import ConfigError, ProviderError
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Delta,
    Failed,
    Message,
    Sampling,
    ToolCall,
    ToolSpec,
)
from clawd.providers.openai import OpenAICompatibleProvider
from clawd.providers.reliable import RetrySettings, parse_retry_after
from clawd.wire.events import HopUsage, ReasoningDelta, TextDelta
from tests.support.chat_server import (
    DONE,
    HELLO,
    Answer,
    ChatServer,
    chunk,
    event,
    serving,
    streamed,
)
from tests.support.collecting import collect, end_of, text_of
from tests.support.rows import each_row

KEY = "sk-very-secret-key"
FAST = RetrySettings(initial_s=0.001, max_s=0.002, jitter_s=0.001)
LIMIT_S = 60.0
ASK = ChatRequest(messages=(Message(role="user", content="Hi"),))


def section_of(**fields: Any) -> ProviderSection:
    return ProviderSection(kind="openai-compatible", model="m", **fields)


@asynccontextmanager
async def provider_for(
    server: ChatServer, **fields: Any
) -> AsyncIterator[OpenAICompatibleProvider]:
    async with serving(server) as url:
        section = section_of(base_url=url + "/", **fields)
        provider = OpenAICompatibleProvider("remote", section, key=KEY, retry=FAST)
        try:
            yield provider
        finally:
            await provider.close()


async def deltas_of(server: ChatServer, request: ChatRequest = ASK, **fields: Any) -> list[Delta]:
    async with asyncio.timeout(LIMIT_S), provider_for(server, **fields) as provider:
        return [delta async for delta in provider.chat(request)]


async def failed(server: ChatServer, **fields: Any) -> Failed:
    last = (await deltas_of(server, **fields))[-1]
    assert isinstance(last, Failed)
    return last


async def error_of(server: ChatServer, **fields: Any) -> ProviderError:
    error = (await failed(server, **fields)).error
    assert isinstance(error, ProviderError)
    return error


async def test_a_stream_gives_text_and_usage() -> None:
    server = ChatServer(streamed(*HELLO))
    deltas = await deltas_of(server)
    end = end_of(deltas)
    assert deltas[:-1] == [TextDelta(text="He"), TextDelta(text="llo")]
    assert (end.reason, end.provider, end.model) == ("stop", "remote", "m")
    usage = msgspec.structs.replace(end.usage, tokens_per_s=0.0)
    assert usage == HopUsage(prompt_tokens=5, completion_tokens=2)
    assert end.raw == {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert server.requests[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@each_row("size", [1, 7, 1000])
async def test_the_size_of_the_pieces_does_not_matter(size: int) -> None:
    data = b"".join(HELLO).replace(b"\n", b"\r\n").replace(b"data: ", b"data:")
    data = b": ping\r\n\r\n" + data
    pieces = tuple(data[at : at + size] for at in range(0, len(data), size))
    assert text_of(await deltas_of(ChatServer(Answer(pieces=pieces)))) == "Hello"


async def test_a_stream_without_done_is_complete_with_a_finish_reason() -> None:
    deltas = await deltas_of(ChatServer(streamed(*HELLO[:-1])))
    assert end_of(deltas).usage.completion_tokens == 2


async def test_a_stream_without_finish_reason_is_complete_with_done() -> None:
    deltas = await deltas_of(ChatServer(streamed(*HELLO[:3], DONE)))
    assert (text_of(deltas), end_of(deltas).reason) == ("Hello", "stop")


async def test_a_server_that_goes_on_after_done_is_not_waited_for() -> None:
    deltas = await deltas_of(ChatServer(streamed(*HELLO, hang="end")))
    assert end_of(deltas).reason == "stop"


async def test_without_streaming_the_whole_answer_is_read() -> None:
    message = {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {"b": 2}}},
        ],
    }
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}
    server = ChatServer(Answer(pieces=(json.dumps(body).encode(),)))
    async with provider_for(server, stream=False) as provider:
        response = await collect(provider.chat(ASK))
    assert response.final_text == "Let me see."
    assert response.reasoning == "hm"
    assert response.tool_calls == (
        ToolCall(id="c1", name="f", arguments='{"a":1}'),
        ToolCall(id="c2", name="g", arguments='{"b":2}'),
    )
    spent = msgspec.structs.replace(response.usage, tokens_per_s=0.0)
    assert spent == HopUsage(prompt_tokens=9, cached_tokens=4, completion_tokens=3)
    assert response.raw == body
    assert server.requests[0]["stream"] is False
    assert "stream_options" not in server.requests[0]


async def test_a_server_that_does_not_stream_when_asked_is_understood() -> None:
    body = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    server = ChatServer(Answer(pieces=(b"\n ", json.dumps(body).encode())))
    assert text_of(await deltas_of(server)) == "whole"
    server = ChatServer(Answer(pieces=(json.dumps(body).encode(),)))
    assert text_of(await deltas_of(server)) == "whole"


def call(index: int | None, **fields: Any) -> dict[str, Any]:
    function = {key: fields[key] for key in ("name", "arguments") if key in fields}
    piece = {"function": function}
    if index is not None:
        piece["index"] = index  # type: ignore[assignment]
    if "id" in fields:
        piece["id"] = fields["id"]
    return piece


async def calls_of(*pieces: dict[str, Any], text: str = "") -> tuple[ToolCall, ...]:
    chunks = [chunk({"tool_calls": [piece]}) for piece in pieces]
    stream = streamed(chunk({"content": text}), *chunks, chunk({}, "stop"), DONE)
    async with provider_for(ChatServer(stream)) as provider:
        response = await collect(provider.chat(ASK))
    assert response.stop_reason == "tool_calls"
    assert response.final_text == text
    return response.tool_calls


async def test_call_pieces_are_put_together_by_index_in_any_order() -> None:
    calls = await calls_of(
        call(1, id="b", name="g", arguments=""),
        call(0, id="a", name="f", arguments='{"x"'),
        call(1, arguments='{"y":'),
        call(0, arguments=":1}"),
        call(1, arguments="2}", name="", id=""),
        text="First this.",
    )
    # In the order of the model's list, whichever came first.
    assert calls == (
        ToolCall(id="a", name="f", arguments='{"x":1}'),
        ToolCall(id="b", name="g", arguments='{"y":2}'),
    )


async def test_a_missing_index_is_zero_and_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        calls = await calls_of(
            call(None, id="a", name="f", arguments='{"x":'), call(None, arguments="1}")
        )
    assert calls == (ToolCall(id="a", name="f", arguments='{"x":1}'),)
    assert len([r for r in caplog.records if "without index" in r.getMessage()]) == 1


async def test_two_whole_calls_without_index_are_two() -> None:
    calls = await calls_of(
        call(None, id="a", name="f", arguments="{}"), call(None, id="b", name="g", arguments="{}")
    )
    assert [c.name for c in calls] == ["f", "g"]


async def test_a_call_is_opened_with_its_name_and_gets_an_id_once() -> None:
    server = ChatServer(
        streamed(
            chunk({"tool_calls": [call(0, arguments='{"a"')]}),
            chunk({"tool_calls": [call(0, name="f")]}),
            chunk({"tool_calls": [call(0, name="f", id="late", arguments=":1}")]}),
            chunk({}, "tool_calls"),
        )
    )
    calls = [delta for delta in await deltas_of(server) if isinstance(delta, CallDelta)]
    assert [(c.name, c.arguments, bool(c.id)) for c in calls] == [
        ("f", '{"a"', True),
        ("", ":1}", False),
    ]


async def test_a_call_without_a_name_is_still_delivered() -> None:
    (only,) = await calls_of(call(0, id="a", arguments="{}"))
    assert only == ToolCall(id="a", name="", arguments="{}")


async def test_reasoning_is_apart_and_length_is_kept() -> None:
    server = ChatServer(
        streamed(
            chunk({"reasoning_content": "hm"}),
            chunk({"reasoning": " ok"}),
            chunk({"content": [{"type": "text", "text": "so"}, {"type": "thinking"}]}),
            chunk({}, "length"),
        )
    )
    deltas = await deltas_of(server)
    assert deltas[:3] == [
        ReasoningDelta(text="hm"),
        ReasoningDelta(text=" ok"),
        TextDelta(text="so"),
    ]
    assert end_of(deltas).reason == "length"


@each_row("status", [408, 429, 500, 502, 503])
async def test_passing_failures_are_tried_again(status: int) -> None:
    server = ChatServer(Answer(status=status), Answer(status=status), streamed(*HELLO))
    assert text_of(await deltas_of(server)) == "Hello"
    assert len(server.requests) == 3


async def test_there_are_five_extra_attempts() -> None:
    server = ChatServer(Answer(status=500, pieces=(b"broken " * 100,)))
    error = await error_of(server)
    assert len(server.requests) == 6
    assert error.message == "HTTP 500: " + ("broken " * 100)[:400]
    assert (error.kind, error.status) == ("http", 500)


@each_row("status", [400, 401, 403, 404, 422, 302])
async def test_other_statuses_are_not_tried_again(status: int) -> None:
    server = ChatServer(Answer(status=status, headers={"Location": "http://127.0.0.1:9/"}))
    error = await error_of(server)
    assert len(server.requests) == 1
    assert error.kind == ("auth" if status in {401, 403} else "http")


async def test_retry_after_is_honoured_and_a_long_one_is_not_waited_for() -> None:
    server = ChatServer(Answer(status=429, headers={"Retry-After": "0.3"}), streamed(*HELLO))
    started = time.monotonic()
    assert text_of(await deltas_of(server)) == "Hello"
    assert time.monotonic() - started >= 0.3
    server = ChatServer(Answer(status=429, headers={"Retry-After": "3600"}))
    assert (await error_of(server)).retry_after_s == 3600
    assert len(server.requests) == 1


def test_retry_after_may_be_a_date_or_nonsense() -> None:
    assert parse_retry_after("7") == 7
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert parse_retry_after("soon") is None
    assert parse_retry_after("") is None


async def test_a_cut_in_mid_stream_keeps_the_partial_answer_and_is_not_tried_again() -> None:
    server = ChatServer(streamed(*HELLO[:3], cut=True), streamed(*HELLO))
    deltas = await deltas_of(server)
    last = deltas[-1]
    assert text_of(deltas) == "Hello"
    assert isinstance(last, Failed)
    assert isinstance(last.error, ProviderError)
    assert (last.error.kind, last.partial) == ("network", True)
    assert len(server.requests) == 1


async def test_an_orderly_end_in_mid_answer_is_a_failure() -> None:
    last = await failed(ChatServer(streamed(*HELLO[:2])))
    assert last.partial
    assert "before the answer was complete" in str(last.error)


async def test_a_connection_that_is_cut_before_the_first_byte_is_tried_again() -> None:
    server = ChatServer(Answer(cut=True), streamed(*HELLO))
    assert text_of(await deltas_of(server)) == "Hello"


async def test_an_end_before_the_first_byte_is_tried_again() -> None:
    server = ChatServer(streamed(), streamed(*HELLO))
    assert text_of(await deltas_of(server)) == "Hello"
    assert len(server.requests) == 2
    whole = json.dumps({"choices": [{"message": {"content": "all"}, "finish_reason": "stop"}]})
    server = ChatServer(Answer(), Answer(pieces=(whole.encode(),)))
    assert text_of(await deltas_of(server, stream=False)) == "all"
    error = await error_of(ChatServer(streamed()))
    assert (error.kind, "without a single byte" in error.message) == ("network", True)


async def test_what_is_cancelled_is_not_tried_again() -> None:
    server = ChatServer(Answer(status=429, headers={"Retry-After": "30"}))
    async with provider_for(server) as provider:
        waiting = asyncio.create_task(collect(provider.chat(ASK)))
        async with asyncio.timeout(LIMIT_S):
            while not server.requests:
                await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert len(server.requests) == 1


async def test_an_error_inside_the_stream_is_raised() -> None:
    error = {"error": {"message": "context exceeded", "type": "server_error", "code": 500}}
    last = await failed(ChatServer(streamed(*HELLO[:2], event(error))))
    assert isinstance(last.error, ProviderError)
    assert (last.error.kind, last.error.status, last.partial) == ("http", 500, True)
    assert "context exceeded" in last.error.message
    assert not (await failed(ChatServer(streamed(event({"error": "no"}))))).partial


@each_row("data", [b"data: {nonsense\n\n", b"data: [1]\n\n", b"<html>\n\n\n"])
async def test_what_is_no_completion_is_an_error(data: bytes) -> None:
    error = await error_of(ChatServer(streamed(data)))
    assert error.kind in {"invalid", "network"}


async def test_a_server_that_sends_nothing_is_given_up_and_not_asked_again() -> None:
    for hang in ("headers", "body"):
        server = ChatServer(Answer(hang=hang))
        error = await error_of(server, first_byte_timeout_s=0.2)
        assert error.kind == "timeout"
        assert r"sent nothing within 0.2 s" in error.message
        # On a busy machine the time may be over before the one request has arrived.
        assert len(server.requests) <= 1


async def test_silence_in_mid_stream_is_a_timeout() -> None:
    last = await failed(ChatServer(streamed(*HELLO[:2], hang="end")), timeout_s=1.0)
    assert isinstance(last.error, ProviderError)
    assert (last.error.kind, last.partial) == ("timeout", True)


async def test_nobody_listening_is_a_network_error_with_the_address() -> None:
    section = section_of(base_url="http://127.0.0.1:1/v1")
    provider = OpenAICompatibleProvider("r", section, retry=FAST)
    (last,) = [delta async for delta in provider.chat(ASK)]
    await provider.close()
    assert isinstance(last, Failed)
    assert isinstance(last.error, ProviderError)
    assert last.error.kind == "network"
    assert "127.0.0.1:1" in last.error.message


async def test_a_base_url_that_is_none_is_said() -> None:
    provider = OpenAICompatibleProvider("r", section_of(base_url="not a url"), retry=FAST)
    (last,) = [delta async for delta in provider.chat(ASK)]
    await provider.close()
    assert isinstance(last, Failed)
    assert isinstance(last.error, ProviderError)


async def test_the_key_is_in_no_error_no_log_and_no_settings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    body = f"Incorrect API key provided: {KEY}".encode()
    server = ChatServer(
        Answer(status=401, pieces=(body,)), models=Answer(status=401, pieces=(body,))
    )
    async with provider_for(server) as provider:
        (last,) = [delta async for delta in provider.chat(ASK)]
        with pytest.raises(ProviderError) as caught:
            await provider.check()
    assert isinstance(last, Failed)
    for text in (str(last.error), repr(last), str(caught.value), caplog.text):
        assert KEY not in text
    assert "[redacted]" in str(last.error)


async def test_the_key_is_not_logged_by_the_retries(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = ChatServer(Answer(status=500, pieces=(f"key {KEY}".encode(),)), streamed(*HELLO))
    assert text_of(await deltas_of(server)) == "Hello"
    told = str([vars(record) for record in caplog.records])
    assert "HTTP 500: key [redacted]" in told
    assert KEY not in told


def test_a_password_in_the_url_is_refused_without_saying_it() -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAICompatibleProvider("r", section_of(base_url="http://me:hunter2@x/v1"))
    assert "hunter2" not in str(caught.value)


def test_a_key_with_a_line_break_is_refused_without_saying_it() -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAICompatibleProvider("r", section_of(base_url="http://x/v1"), key=KEY + "\n")
    assert KEY not in str(caught.value)


async def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert text_of(await deltas_of(ChatServer(streamed(*HELLO)))) == "Hello"


async def test_closing_the_stream_closes_the_connection() -> None:
    server = ChatServer(streamed(*HELLO[:2], hang="end"))
    async with asyncio.timeout(LIMIT_S), provider_for(server) as provider:
        async with aclosing(provider.chat(ASK)) as stream:
            assert await anext(stream) == TextDelta(text="He")
        await server.closed.wait()


async def test_cancelling_while_waiting_for_the_first_byte_closes_the_connection() -> None:
    server = ChatServer(Answer(hang="headers"))
    async with asyncio.timeout(LIMIT_S), provider_for(server) as provider:
        task = asyncio.create_task(collect(provider.chat(ASK)))
        while not server.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.closed.wait()
        assert len(server.requests) == 1


async def test_the_request_carries_tools_history_and_sampling() -> None:
    tool = ToolSpec(name="f", description="d", parameters={"type": "object"})
    request = ChatRequest(
        system="Be brief.",
        model="other",
        messages=(
            Message(role="user", content="a"),
            Message(role="assistant", tool_calls=(ToolCall(id="c", name="f", arguments="{}"),)),
            Message(role="tool", content="r", tool_call_id="c", name="f"),
            Message(role="assistant", content=None),
        ),
        tools=(tool,),
        tool_choice="f",
        temperature=0.0,
        sampling=Sampling(max_tokens=5, stop=("X",), top_k=3, seed=0),
        response_format={"type": "json_object"},
    )
    server = ChatServer(streamed(*HELLO))
    await deltas_of(server, request)
    function = {"name": "f", "arguments": "{}"}
    assert server.requests[0] == {
        "model": "other",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "r"},
            {"role": "assistant", "content": ""},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "top_k": 3,
        "seed": 0,
        "max_tokens": 5,
        "stop": ["X"],
        "tools": [
            {
                "type": "function",
                "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_object"},
    }


async def test_without_the_tool_role_results_go_on_the_next_user_turn() -> None:
    request = ChatRequest(
        messages=(
            Message(role="user", content="a"),
            Message(
                role="assistant",
                content="Look.",
                tool_calls=(ToolCall(id="c", name="f", arguments='{"x":1}'),),
            ),
            Message(role="tool", content="r1", tool_call_id="c"),
            Message(role="tool", content="r2", tool_call_id="d", name="g"),
            Message(role="user", content="b"),
            Message(role="assistant", tool_calls=(ToolCall(id="e", name="h"),)),
            Message(role="tool", content="r3", tool_call_id="e"),
        ),
    )
    server = ChatServer(streamed(*HELLO))
    await deltas_of(server, request, use_tool_role=False)
    assert server.requests[0]["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": 'Look.\n\n[call: f]\n{"x":1}'},
        {"role": "user", "content": "[tool: f]\nr1\n\n[tool: g]\nr2\n\nb"},
        {"role": "assistant", "content": "[call: h]\n{}"},
        {"role": "user", "content": "[tool: h]\nr3"},
    ]


async def test_a_model_without_tools_is_offered_none() -> None:
    tool = ToolSpec(name="f", description="d", parameters={"type": "object"})
    request = ChatRequest(
        messages=(
            Message(role="user", content="a"),
            Message(role="assistant", tool_calls=(ToolCall(id="c", name="f"),)),
            Message(role="tool", content="r", tool_call_id="c", name="f"),
        ),
        tools=(tool,),
    )
    server = ChatServer(streamed(*HELLO))
    async with provider_for(server, tools=False) as provider:
        assert not provider.capabilities().tools
        await collect(provider.chat(request))
    assert "tools" not in server.requests[0]
    assert [message["role"] for message in server.requests[0]["messages"]] == [
        "user", "assistant", "user",
    ]  # fmt: skip


async def test_check_lists_the_models() -> None:
    server = ChatServer(streamed(*HELLO))
    async with provider_for(server) as provider:
        assert "answered with 1 models; m is one of them" in await provider.check()
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    server = ChatServer(streamed(*HELLO), models=Answer(status=404))
    async with provider_for(server) as provider:
        with pytest.raises(ProviderError, match="HTTP 404"):
            await provider.check()
    server = ChatServer(streamed(*HELLO), models=Answer(pieces=(b"hello",)))
    async with provider_for(server) as provider:
        assert "without a list of models" in await provider.check()


async def test_m2_the_log_names_provider_and_address_without_what_may_be_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    retry = RetrySettings(extra_attempts=1, initial_s=0.001, jitter_s=0.0)
    section = section_of(base_url=f"http://127.0.0.1:1/{KEY}/v1?code=hunter2")
    provider = OpenAICompatibleProvider("far", section, key=KEY, retry=retry)
    with caplog.at_level(logging.WARNING), pytest.raises(ProviderError):
        await collect(provider.chat(ASK))
    await provider.close()
    told = next(r.getMessage() for r in caplog.records if r.name == "clawd.providers.reliable")
    assert told == (
        "provider far at http://127.0.0.1:1/[redacted]/v1 failed (network), retry 1 of 1"
    )
