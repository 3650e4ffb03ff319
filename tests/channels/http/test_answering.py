"""One request through the gateway's middle, with the plainest dialect there can be."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aiohttp import web

from clawd.channels.http.answering import answer
from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import read_object
from clawd.channels.http.exchange import (
    Answered,
    GatewayEvent,
    Generation,
    ModelRequest,
)
from clawd.providers.base import Finished, Message, Text
from tests.channels.http.rig import served


class Plain:
    content_type = "text/plain"
    ping = b"."

    def begin(self, generation: Generation) -> Iterable[bytes]:
        return (b"<",)

    def take(self, event: GatewayEvent) -> Iterable[bytes]:
        if isinstance(event, Text):
            return (event.text.encode(),)
        return (b">",) if isinstance(event, Finished) else ()

    def broken(self, error: Exception) -> Iterable[bytes]:
        return (f"!{error}".encode(),)

    def whole(self, generation: Generation, answered: Answered) -> Any:
        return {"text": answered.text}


async def say(request: web.Request) -> web.StreamResponse:
    body = await read_object(request)
    asked = ModelRequest(messages=(Message(role="user", content=body["text"]),), is_plain=True)
    generation = await request.app[GATEWAY].generations.open(asked, caller_of(request))
    return await answer(request, generation, Plain(), stream=body.get("stream", False))


ROUTES = [web.post("/say", say)]


async def test_a_whole_answer_and_a_streamed_one_are_the_same(tmp_path: Path) -> None:
    async with served(tmp_path, {"text": "four words, no more"}, routes=ROUTES) as door:
        status, whole = await door.post("/say", {"text": "hello"})
        assert (status, whole) == (200, {"text": "four words, no more"})
        status, streamed = await door.stream("/say", {"text": "hello", "stream": True})
        assert (status, streamed) == (200, "<four words, no more>")


async def test_an_error_before_the_first_event_is_a_status_also_of_a_stream(tmp_path: Path) -> None:
    reply = {"error": {"kind": "http", "status": 500}}
    async with served(tmp_path, reply, routes=ROUTES) as door:
        status, told = await door.stream("/say", {"text": "hello", "stream": True})
        assert status == 502
        assert json.loads(told)["error"]["type"] == "server_error"


async def test_what_is_not_there_and_what_is_no_json_is_told_in_the_envelope(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, routes=ROUTES) as door:
        assert (await door.get("/nothing"))[0] == 404
        status, told = await door.get("/say")
        assert status == 405 and told["error"]["type"] == "invalid_request_error"
        async with door.session.post(door.url + "/say", data=b"{") as response:
            assert response.status == 400
            assert "not valid JSON" in (await response.json())["error"]["message"]
        async with door.session.post(door.url + "/say", data=b"[" * 300) as response:
            assert response.status == 400
