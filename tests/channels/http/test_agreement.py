"""One answer told in every dialect: counts, cached tokens and reasons agree, whole and streamed."""

import json
from pathlib import Path
from typing import Any

from clawd.channels.http.model_api import GatewayEvent
from clawd.providers.base import CallDelta, Finished, StopReason
from clawd.wire.events import HopUsage, TextDelta
from tests.channels.http.rig import Served, served
from tests.channels.http.told import EVALUATED, Told, finished, raw, reread_lines, reread_sse
from tests.support.rows import each_row

USER = [{"role": "user", "content": "hi"}]
FUNCTION = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": USER, "tools": [FUNCTION]},
    "/v1/completions": {"model": "m", "prompt": "hi"},
    "/v1/responses": {"model": "m", "input": "hi"},
    "/v1/messages": {"model": "m", "max_tokens": 9, "messages": USER},
    "/api/chat": {"model": "m", "messages": USER, "tools": [FUNCTION]},
    "/api/generate": {"model": "m", "prompt": "hi"},
}
CALL = CallDelta(index=0, id="call_1", name="now", arguments="{}")

# prompt, of these cached (None: the dialect has no word for it), answer
Counts = tuple[int, int | None, int]


def chat_counts(usage: dict[str, Any]) -> Counts:
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], cached, usage["completion_tokens"]


def response_counts(usage: dict[str, Any]) -> Counts:
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    cached = usage["input_tokens_details"]["cached_tokens"]
    return usage["input_tokens"], cached, usage["output_tokens"]


def message_counts(usage: dict[str, Any]) -> Counts:
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached, cached, usage["output_tokens"]


def line_counts(value: dict[str, Any]) -> Counts:
    return value["prompt_eval_count"], None, value["eval_count"]


def read_whole(path: str, value: dict[str, Any]) -> tuple[Counts, str]:
    match path:
        case "/v1/responses":
            why = (value["incomplete_details"] or {}).get("reason", "")
            return response_counts(value["usage"]), why or value["status"]
        case "/v1/messages":
            return message_counts(value["usage"]), value["stop_reason"]
        case "/api/chat" | "/api/generate":
            return line_counts(value), value["done_reason"]
        case _:
            return chat_counts(value["usage"]), value["choices"][0]["finish_reason"]


def read_stream(path: str, data: bytes) -> tuple[Counts, str]:
    if path.startswith("/api/"):
        return read_whole(path, reread_lines(data)[-1])
    if path == "/v1/responses":
        return read_whole(path, reread_sse(data)[-1][1]["response"])
    if path == "/v1/messages":
        told = dict(reread_sse(data))
        start = told["message_start"]["message"]["usage"]
        delta = told["message_delta"]
        whole = start | delta["usage"]
        assert whole["cache_read_input_tokens"] == start["cache_read_input_tokens"]
        assert whole["input_tokens"] == start["input_tokens"]
        return message_counts(whole), delta["delta"]["stop_reason"]
    events = [block for block in data.split(b"\n\n") if block and not block.startswith(b":")]
    blocks = [block.removeprefix(b"data: ") for block in events]
    assert blocks.pop() == b"[DONE]"
    chunks = [json.loads(block) for block in blocks]
    reasons = [each["finish_reason"] for chunk in chunks for each in chunk["choices"]]
    return chat_counts(chunks[-1]["usage"]), reasons[-1]


WORDS: dict[str, dict[str, str]] = {
    "/v1/chat/completions": {"stop": "stop", "length": "length", "calls": "tool_calls"},
    "/v1/completions": {"stop": "stop", "length": "length"},
    "/v1/responses": {"stop": "completed", "length": "max_output_tokens", "calls": "completed"},
    "/v1/messages": {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use"},
    "/api/chat": {"stop": "stop", "length": "length", "calls": "stop"},
    "/api/generate": {"stop": "stop", "length": "length"},
}
CASES = [(path, why) for path, words in WORDS.items() for why in words]


def events(why: str) -> tuple[GatewayEvent, ...]:
    reason: StopReason = "length" if why == "length" else "stop"
    said = (TextDelta(text="He"), TextDelta(text="llo"))
    return (EVALUATED, *((CALL,) if why == "calls" else said), finished(reason))


async def both(door: Served, path: str) -> tuple[tuple[Counts, str], tuple[Counts, str]]:
    options = {"include_usage": True}
    more = {"stream_options": options} if path.startswith(("/v1/chat", "/v1/comp")) else {}
    whole = await raw(door.url, path, ASKED[path] | {"stream": False})
    stream = await raw(door.url, path, ASKED[path] | {"stream": True} | more)
    assert (whole.status, stream.status) == (200, 200)
    return read_whole(path, whole.json()), read_stream(path, stream.body)


@each_row(("path", "why"), CASES)
async def test_counts_and_reasons_are_the_same_in_every_dialect(
    tmp_path: Path, path: str, why: str
) -> None:
    async with served(tmp_path, generations=Told(*events(why))) as door:
        whole, stream = await both(door, path)
    cached = None if path.startswith("/api/") else 12
    assert whole == stream == ((30, cached, 7), WORDS[path][why])


async def test_nothing_is_counted_below_nothing_where_a_cache_had_more_than_the_prompt(
    tmp_path: Path,
) -> None:
    """Servers exist that tell a cache of more tokens than the prompt had."""
    odd = Finished(reason="stop", usage=HopUsage(cached_tokens=5))
    async with served(tmp_path, generations=Told(TextDelta(text="a"), odd)) as door:
        for path, body in ASKED.items():
            answer = await raw(door.url, path, body | {"stream": False})
            counts, _ = read_whole(path, answer.json())
            assert all(count >= 0 for count in counts if count is not None), path


async def test_a_mark_of_byte_order_before_a_body_is_passed_over(tmp_path: Path) -> None:
    async with served(tmp_path, generations=Told(*events("stop"))) as door:
        for path, body in ASKED.items():
            data = b"\xef\xbb\xbf" + json.dumps(body | {"stream": False}).encode()
            assert (await raw(door.url, path, data)).status == 200, path


async def test_no_proxy_is_to_hold_a_stream_back(tmp_path: Path) -> None:
    async with served(tmp_path, generations=Told(*events("stop"))) as door:
        for path, body in ASKED.items():
            headers = (await raw(door.url, path, body | {"stream": True})).headers
            kind = "application/x-ndjson" if path.startswith("/api/") else "text/event-stream"
            assert headers["content-type"].partition(";")[0] == kind, path
            assert headers["cache-control"] == "no-cache", path
            assert headers["x-accel-buffering"] == "no", path
            assert "content-encoding" not in headers, path


LOOKED_AT = ("/", "/health", "/v1/models", "/api/tags", "/api/version", "/api/ps")


async def test_what_may_be_read_may_be_asked_about(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        for path in LOOKED_AT:
            got = await raw(door.url, path)
            head = await raw(door.url, path, method="HEAD")
            assert (got.status, head.status, head.body) == (200, 200, b""), path
            assert head.headers["content-type"] == got.headers["content-type"], path
