"""A daemon inside the test with its gateway on a loopback port, and raw and JSON ways to ask it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from clawd.channels.http.app import CALLER, Handler, make_app
from clawd.channels.http.model_api import Caller, Generations
from clawd.service.http import gateway_of, routes_of
from tests.support.inprocess import OWNER, Inside, daemon_in

EVERYTHING = frozenset({"chat", "tools", "admin"})
LIMIT_S = 60.0


class Served:
    """A gateway that serves, and a session to ask it with.

    Attributes:
        caller: who asks; `callers` says it for single paths.
    """

    def __init__(self, inside: Inside, url: str, session: aiohttp.ClientSession) -> None:
        self.inside = inside
        self.url = url
        self.session = session
        self.caller = Caller(principal=OWNER, scopes=EVERYTHING)
        self.callers: dict[str, Caller] = {}
        self.app: web.Application

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """Post a JSON value; return the status and the decoded answer."""
        async with self.session.post(self.url + path, json=body, headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """Get a JSON value; return the status and the decoded answer."""
        async with self.session.get(self.url + path, headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def stream(self, path: str, body: Any, **headers: str) -> tuple[int, str]:
        """Post a JSON value; return the status and the whole text of a stream."""
        async with self.session.post(self.url + path, json=body, headers=headers) as response:
            return response.status, await response.text()


@asynccontextmanager
async def served(
    folder: Path,
    *replies: dict[str, Any],
    tables: str = "",
    routes: Sequence[web.RouteDef] | None = None,
    generations: Generations | None = None,
) -> AsyncIterator[Served]:
    """Serve a daemon whose mock provider gives these replies; without any it echoes.

    `generations` answer instead of the daemon's own.
    """
    if replies:
        script = folder / "script.json"
        script.write_text(json.dumps({"replies": list(replies)}))
        tables = f'script = "{script}"\n{tables}'
    async with (
        daemon_in(folder, tables) as inside,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT_S)) as session,
    ):
        found = Served(inside, "", session)

        @web.middleware
        async def vouch(request: web.Request, handler: Handler) -> web.StreamResponse:
            request[CALLER] = found.callers.get(request.path, found.caller)
            return await handler(request)

        chosen = list(routes) if routes is not None else routes_of()
        gateway = gateway_of(inside.daemon)
        if generations is not None:
            gateway = msgspec.structs.replace(gateway, generations=generations)
        app = make_app(gateway, chosen, [vouch])
        found.app = app
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        found.url = f"http://127.0.0.1:{port}"
        try:
            yield found
        finally:
            await runner.cleanup()


def events_of(text: str) -> list[tuple[str, Any]]:
    """Return the events of an SSE text: name (empty for none) and decoded data (`[DONE]` as is)."""
    found: list[tuple[str, Any]] = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        name, data = "", []
        for line in block.split("\n"):
            if line.startswith("event:"):
                name = line.removeprefix("event:").strip()
            elif line.startswith("data:"):
                data.append(line.removeprefix("data:").strip())
        if data:
            joined = "\n".join(data)
            found.append((name, joined if joined == "[DONE]" else json.loads(joined)))
    return found
