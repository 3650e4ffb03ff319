"""The contract of /v1/messages, raw: what its clients cannot do without."""

import asyncio
import json
from pathlib import Path
from typing import Any

from clawd.errors import ContextFullError, ProviderError
from clawd.providers.base import CallDelta, Failed, Message
from clawd.wire.events import PromptProgress, ReasoningDelta, TextDelta
from tests.channels.http.anthropic.claude_code import HEADERS, QUERY, first_request, second_request
from tests.channels.http.anthropic.reading import message_of
from tests.channels.http.rig import served
from tests.channels.http.told import EVALUATED, Raw, Told, finished, raw, reread_sse

PATH = "/v1/messages"
CALL = (
    CallDelta(index=0, id="call_9", name="Tool3"),
    CallDelta(index=0, arguments='{"path": "a b'),
    CallDelta(index=0, arguments='"}'),
)
ANSWER = (
    EVALUATED,
    ReasoningDelta(text="hm"),
    TextDelta(text="Grüße "),
    TextDelta(text="🙂"),
    finished(),
)
HI = {"role": "user", "content": "hi"}


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "told-model", "max_tokens": 64, "messages": [HI]} | fields


def refusal(answer: Raw) -> tuple[int, str, str]:
    """Return status, type and message; the envelope must be the dialect's own."""
    value = answer.json()
    assert set(value) == {"type", "error"}
    assert value["type"] == "error"
    assert set(value["error"]) == {"type", "message"}
    return answer.status, value["error"]["type"], value["error"]["message"]


async def test_a_stream_has_named_events_and_every_field_that_clients_need(tmp_path: Path) -> None:
    async with served(tmp_path, generations=Told(*ANSWER)) as door:
        answer = await raw(door.url, PATH, asked(stream=True, thinking={"type": "adaptive"}))
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers
    message = message_of(reread_sse(answer.body))
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "told-model",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "Grüße 🙂"},
        ],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 18,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 12,
            "output_tokens": 7,
        },
    }


async def test_who_does_not_ask_for_thoughts_finds_the_text_first(tmp_path: Path) -> None:
    async with served(tmp_path, generations=Told(*ANSWER)) as door:
        whole = await raw(door.url, PATH, asked(stream=False))
        streamed = await raw(door.url, PATH, asked(stream=True))
        wanted = await raw(door.url, PATH, asked(thinking={"type": "enabled"}))
    for message in (whole.json(), message_of(reread_sse(streamed.body))):
        assert message["content"] == [{"type": "text", "text": "Grüße 🙂"}]
        assert message["usage"]["output_tokens"] == 7
    assert [each["type"] for each in wanted.json()["content"]] == ["thinking", "text"]


async def test_threads_are_refused_in_the_words_on_which_clients_go_on_without(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, generations=Told(*ANSWER)) as door:
        threads: tuple[dict[str, str], ...] = (
            {"type": "create"},
            {"type": "continue", "previous_message_id": "msg_1"},
            {},
        )
        for thread in threads:
            for stream in (True, False):
                answer = await raw(door.url, PATH, asked(stream=stream, thread=thread))
                assert answer.status == 400
                error = answer.json()["error"]
                assert error["type"] == "invalid_request_error"
                assert error["details"] == {
                    "error_code": "thread_unsupported_request",
                    "unsupported": ["thread"],
                }
        assert (await raw(door.url, PATH, asked(thread=None))).status == 200


async def test_a_whole_answer_is_what_its_stream_tells_and_leaks_no_times(tmp_path: Path) -> None:
    async with served(tmp_path, generations=Told(*ANSWER[:-1], *CALL, finished())) as door:
        whole = await raw(door.url, PATH, asked(stream=False))
        streamed = await raw(door.url, PATH, asked(stream=True))
    assert whole.headers["content-type"].startswith("application/json")
    first, second = whole.json(), message_of(reread_sse(streamed.body))
    assert first.pop("id") != second.pop("id")
    assert first == second
    assert first["stop_reason"] == "tool_use"
    assert b"timings" not in whole.body + streamed.body


async def test_an_agents_first_requests_are_understood(tmp_path: Path) -> None:
    told = Told(EVALUATED, ReasoningDelta(text="I look."), *CALL, finished("tool_calls"))
    async with served(tmp_path, generations=told) as door:
        answer = await raw(door.url, PATH + QUERY, first_request(), headers=HEADERS)
        message = message_of(reread_sse(answer.body))
        call = message["content"][-1]
        assert call == {
            "type": "tool_use",
            "id": "call_9",
            "name": "Tool3",
            "input": {"path": "a b"},
        }
        assert (await raw(door.url, PATH + QUERY, second_request("call_9"))).status == 200
    first, second = told.requests
    assert first.system is not None
    assert first.system.startswith("You help with code.")
    assert "billing" not in first.system
    assert len(first.tools) == 24
    assert first.sampling.max_tokens == 32000
    # What was told before stands unchanged before what is new, so that it need not be read again.
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[-1] == Message(
        role="tool", content="error: there is no such file", tool_call_id="call_9", name="Tool3"
    )


async def test_the_start_waits_for_the_count_and_pings_until_then(tmp_path: Path) -> None:
    ready = asyncio.Event()
    told = Told(PromptProgress(processed=1, cached=0, total=30), ready, *ANSWER)
    async with served(tmp_path, generations=told) as door:
        body = asked(stream=True)
        async with door.session.post(door.url + PATH, json=body) as response:
            first = await response.content.readuntil(b"\n\n")
            assert reread_sse(first) == [("ping", {"type": "ping"})]
            ready.set()
            rest = await response.read()
    message = message_of(reread_sse(rest))
    assert message["usage"]["input_tokens"] == 18


async def test_an_error_before_the_first_event_is_a_status_also_of_a_stream(tmp_path: Path) -> None:
    error = ContextFullError("too much", data={"n_prompt_tokens": 9, "n_ctx": 8})
    async with served(tmp_path, generations=Told(Failed(error=error))) as door:
        for stream in (True, False):
            answer = await raw(door.url, PATH, asked(stream=stream))
            told = "prompt is too long: 9 tokens > 8 maximum; too much"
            assert refusal(answer) == (400, "invalid_request_error", told)


async def test_a_later_error_is_an_event_and_ends_the_stream(tmp_path: Path) -> None:
    error = ProviderError("it broke", kind="network")
    told = Told(EVALUATED, TextDelta(text="Good "), Failed(error=error, partial=True))
    async with served(tmp_path, generations=told) as door:
        answer = await raw(door.url, PATH, asked(stream=True))
    assert answer.status == 200
    *_, last = reread_sse(answer.body)
    assert last == (
        "error",
        {"type": "error", "error": {"type": "api_error", "message": "it broke"}},
    )


async def test_a_client_that_leaves_ends_the_work(tmp_path: Path) -> None:
    told = Told(EVALUATED, TextDelta(text="Good "), asyncio.Event())
    async with served(tmp_path, generations=told) as door:
        async with door.session.post(door.url + PATH, json=asked(stream=True)) as response:
            await response.content.readuntil(b"\n\n")
        async with asyncio.timeout(60):
            await told.closed.wait()


async def test_bad_requests_are_told_in_the_dialects_envelope(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    async with served(tmp_path) as door:
        for body, problem in (
            (b"{", "not valid JSON"),
            (b"[]", "must be a JSON object"),
            (b"[" * 300, "nested"),
            (asked(max_tokens=10**30), "64 bits"),
            (asked(tools=[{"name": "a", "input_schema": {"maximum": 10**30}}]), "64 bits"),
            (asked(messages=None), "messages"),
            (b"", "messages"),
            (asked(system=5), "system"),
            (asked(messages=[None]), "messages[0]"),
            (asked(messages=["hi"]), "messages[0]"),
            (asked(messages=[123]), "messages[0]"),
            (asked(messages=[{}]), "messages[0].role"),
            (asked(messages=[{"role": 123, "content": "a"}]), "messages[0].role"),
            (asked(messages=[{"role": "user", "content": 123}]), "messages[0].content"),
            (asked(messages=[{"role": "user", "content": [image]}]), "neither base64 nor url"),
            (asked(stream="yes"), "stream"),
        ):
            status, kind, message = refusal(await raw(door.url, PATH, body))
            assert (status, kind) == (400, "invalid_request_error")
            assert problem in message
        answer = await raw(door.url, PATH, asked(model="nobody-has-this"))
        assert refusal(answer)[:2] == (404, "not_found_error")
        assert refusal(await raw(door.url, PATH))[0] == 405
        assert refusal(await raw(door.url, PATH + "/batches", asked()))[0] == 404


async def test_counting_needs_no_length_and_tells_one_number(tmp_path: Path) -> None:
    told = Told(count=321)
    async with served(tmp_path, generations=told) as door:
        body = {"model": "m", "messages": [HI], "system": "s", "tools": [{"name": "now"}]}
        answer = await raw(door.url, PATH + "/count_tokens?beta=true", body)
    assert answer.json() == {"input_tokens": 321}
    (request,) = told.requests
    assert (request.system, request.tools[0].name) == ("s", "now")


async def test_headers_say_whether_clawd_adds_its_own(tmp_path: Path) -> None:
    told = Told(*ANSWER)
    async with served(tmp_path, generations=told) as door:
        await raw(door.url, PATH, asked())
        await raw(door.url, PATH, asked(), headers=["X-Clawd-Inject: off"])
    assert [request.inject for request in told.requests] == [True, False]


async def test_against_the_daemon_a_scripted_call_makes_its_round_trip(tmp_path: Path) -> None:
    replies = (
        {"tool_calls": [{"name": "Tool3", "arguments": {"path": "ä"}}]},
        {"text": "It said: {{last_tool_result}}", "after": "tool"},
    )
    async with served(tmp_path, *replies) as door:
        first = await raw(door.url, PATH, first_request(model="mock"))
        (call,) = message_of(reread_sse(first.body))["content"]
        assert call["input"] == {"path": "ä"}
        body = second_request(call["id"]) | {"model": "mock", "stream": False}
        second = (await raw(door.url, PATH, body)).json()
    assert second["content"] == [{"type": "text", "text": "It said: error: there is no such file"}]
    assert second["stop_reason"] == "end_turn"
    assert json.dumps(second).count("usage") == 1
