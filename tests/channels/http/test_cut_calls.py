"""A call in every dialect while it is written, and one that a limit of tokens cut."""

import asyncio
import json
from pathlib import Path
from typing import Any

from clawd.providers.base import CallDelta
from clawd.wire.events import TextDelta
from tests.channels.http.rig import events_of, served
from tests.channels.http.told import Told, finished

HELLO = [{"role": "user", "content": "hello"}]
LOOK = {"name": "look", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": LOOK}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO, "tools": [TOOL]},
    "/v1/responses": {"input": "hello", "tools": [{"type": "function", **LOOK}]},
    "/v1/messages": {
        "messages": HELLO,
        "max_tokens": 9,
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    },
    "/api/chat": {"messages": HELLO, "tools": [TOOL]},
}
ENDS = {
    "/v1/chat/completions": '"finish_reason":"length"',
    "/v1/responses": '"incomplete"',
    "/v1/messages": '"stop_reason":"max_tokens"',
    "/api/chat": '"done_reason":"length"',
}
NAME = CallDelta(index=0, id="call_1", name="look")
PIECES = ('{"pa', 'th": "s', 'rc"')


async def test_h4_a_cut_call_ends_as_cut_in_every_dialect(tmp_path: Path) -> None:
    cut = [CallDelta(index=0, arguments=piece) for piece in PIECES]
    told = Told(TextDelta(text="I look."), NAME, *cut, finished("length"))
    async with served(tmp_path, generations=told) as door:
        for path, body in BODIES.items():
            for stream in (False, True):
                status, text = await door.stream(path, {**body, "model": "m", "stream": stream})
                assert status == 200, (path, stream, text)
                assert ENDS[path] in text.replace(": ", ":"), (path, stream, text)
                assert '"error":{' not in text.replace(": ", ":"), (path, text)


def arguments_in(path: str, value: Any) -> str:
    match path:
        case "/v1/chat/completions":
            calls = [
                call for each in value["choices"] for call in each["delta"].get("tool_calls", [])
            ]
            return "".join(call["function"]["arguments"] for call in calls)
        case "/v1/responses":
            is_delta = value["type"] == "response.function_call_arguments.delta"
            return str(value["delta"]) if is_delta else ""
        case _:
            return str(value.get("delta", {}).get("partial_json", ""))


async def test_h4_arguments_stream_while_they_are_written(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    pieces = [CallDelta(index=0, arguments=piece) for piece in (*PIECES, "}")]
    told = Told(NAME, *pieces[:2], go_on, *pieces[2:], finished("tool_calls"))
    async with served(tmp_path, generations=told) as door:
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            go_on.clear()
            asked = {**BODIES[path], "model": "m", "stream": True}
            async with door.session.post(door.url + path, json=asked) as response:
                seen = b""
                async with asyncio.timeout(60):
                    while not early(path, seen):
                        seen += await response.content.readany()
                    assert early(path, seen) == "".join(PIECES[:2]), path
                    assert b'"look"' in seen
                    go_on.set()
                    seen += await response.content.read()
            assert json.loads(early(path, seen)) == {"path": "src"}, path


def early(path: str, seen: bytes) -> str:
    whole = seen[: seen.rfind(b"\n\n") + 2].decode()
    values = [value for _, value in events_of(whole) if value != "[DONE]"]
    return "".join(arguments_in(path, value) for value in values)
