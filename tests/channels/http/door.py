"""The gateway's own server inside a test, all guards in place, and raw bytes to and from it."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from clawd.channels.http import server as http_server
from clawd.channels.http.app import caller_of
from clawd.channels.http.body import read_object
from clawd.channels.http.server import Server
from clawd.security.keys import SCOPES
from clawd.security.peer import PeerPolicy
from clawd.security.principal import Principal
from clawd.service.http import start_gateway
from tests.support.inprocess import OWNER, Inside, daemon_in

LIMIT_S = 60.0


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A response: its status, its headers by lower-case name, its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Guarded:
    """A gateway that listens, a key of all scopes for it, and what reached its handlers."""

    def __init__(self, inside: Inside, server: Server) -> None:
        self.inside = inside
        self.server = server
        self.key = ""
        self.reached: list[str] = []
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.cancelled = asyncio.Event()
        self.waiting = 0

    @property
    def port(self) -> int:
        return int(self.server.addresses[0].rpartition(":")[2])

    async def make_key(self, who: Principal = OWNER, *scopes: str, days: int = 0) -> str:
        _, text = await self.inside.daemon.keys.create(
            who, name="k", scopes=scopes or ("chat", "tools"), days=days
        )
        return text

    async def raw(self, data: bytes, tls: ssl.SSLContext | None = None) -> bytes:
        """Send bytes and return all that comes until the other side closes."""
        async with asyncio.timeout(LIMIT_S):
            name = "localhost" if tls else None
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=tls, server_hostname=name
            )
            try:
                writer.write(data)
                return await rest_of(reader)
            finally:
                writer.close()

    async def ask(
        self,
        method: str = "GET",
        path: str = "/who",
        *,
        host: str | None = "",
        body: bytes | None = None,
        key: str | None = None,
        **headers: str,
    ) -> Reply:
        """Send one request; `host=None` sends none, "" the right one. Names take _ for -."""
        lines = [f"{method} {path} HTTP/1.1", "Connection: close"]
        if host is not None:
            lines.append(f"Host: {host or f'127.0.0.1:{self.port}'}")
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        shown = self.key if key is None else key
        if shown:
            lines.append(f"Authorization: Bearer {shown}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        text = "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")
        return reply_of(await self.raw(text + (body or b"")))


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Return all that comes, also before a reset: what was sent too late causes one."""
    data = b""
    try:
        while piece := await reader.read(1 << 16):
            data += piece
    except ConnectionError:
        data += bytes(reader._buffer)  # type: ignore[attr-defined]  # it hands out no more itself
    return data


def reply_of(data: bytes) -> Reply:
    """Return the first response of what a server sent."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    pairs = [line.split(": ", 1) for line in rest]
    headers: dict[str, str] = {}
    for name, value in pairs:
        held = headers.get(name.lower())
        headers[name.lower()] = f"{held}, {value}" if held else value
    return Reply(status=int(first.split()[1]), headers=headers, body=body)


def statuses(data: bytes) -> list[int]:
    """Return the status of each response in what a server sent."""
    parts = data.split(b"HTTP/1.1 ")[1:]
    return [int(part[:3]) for part in parts]


@asynccontextmanager
async def guarded(
    folder: Path,
    http: str = "",
    *,
    mode: str = "user",
    with_key: bool = True,
    own_routes: bool = False,
) -> AsyncIterator[Guarded]:
    """Serve the gateway of a daemon with routes that say who asked and what came, or its own.

    What nobody reads of a body is waited for shortly only.
    """
    tables = f"[channels.http]\nenabled = true\nport = 0\n{http}\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "_LINGERING_S", 0.1)
        async with daemon_in(folder, tables) as inside:
            owner = os.geteuid()
            policy = PeerPolicy(mode="system" if mode == "system" else "user", owner_uid=owner)
            holder: list[Guarded] = []
            key = ""
            if with_key or "0.0.0.0" in http:
                _, key = await inside.daemon.keys.create(OWNER, name="first", scopes=SCOPES, days=0)
            server = await start_gateway(
                inside.daemon, policy, None if own_routes else _routes(holder)
            )
            found = Guarded(inside, server)
            found.key = key
            holder.append(found)
            try:
                yield found
            finally:
                found.go_on.set()
                await server.close()


def _routes(holder: list[Guarded]) -> list[web.RouteDef]:
    async def who(request: web.Request) -> web.StreamResponse:
        caller = caller_of(request)
        holder[0].reached.append(request.raw_path)
        told = {
            "uid": caller.principal.uid,
            "role": caller.principal.role,
            "scopes": sorted(caller.scopes),
            "key": caller.key_id,
        }
        return web.json_response(told)

    async def take(request: web.Request) -> web.StreamResponse:
        holder[0].reached.append(request.raw_path)
        return web.json_response({"got": await read_object(request)})

    async def health(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "ok"})

    async def defect(_request: web.Request) -> web.StreamResponse:
        raise LookupError("a secret of ours")

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        await response.prepare(request)
        await response.write(b"data: one\n\n")
        holder[0].begun.set()
        try:
            await holder[0].go_on.wait()
        except asyncio.CancelledError:
            holder[0].cancelled.set()
            raise
        await response.write(b"data: two\n\n")
        return response

    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        holder[0].begun.set()
        try:
            while not holder[0].go_on.is_set():
                await response.write(b"x" * 65_536)
        except (asyncio.CancelledError, ConnectionError):
            holder[0].cancelled.set()
            raise
        return response

    async def wait(_request: web.Request) -> web.StreamResponse:
        holder[0].begun.set()
        holder[0].waiting += 1
        try:
            await holder[0].go_on.wait()
        except asyncio.CancelledError:
            holder[0].cancelled.set()
            raise
        return web.json_response({})

    return [
        web.get("/flood", flood),
        web.get("/wait", wait),
        web.post("/wait", wait),
        web.get("/who", who),
        web.post("/take", take),
        web.post("/v1/messages", take),
        web.post("/api/chat", take),
        web.get("/status", who),
        web.get("/health", health),
        web.get("/v1/health", health),
        web.get("/", health),
        web.get("/defect", defect),
        web.get("/stream", stream),
    ]
