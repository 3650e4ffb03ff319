"""A server at a URL that behaves as it is told. Raw, so that it can break any rule of HTTP."""

import asyncio
import contextlib
import json
import socket
from typing import Any

import msgspec

ECHO = {"name": "echo", "description": "says it again", "inputSchema": {"type": "object"}}
PHRASES = {200: "OK", 202: "Accepted", 307: "Temporary Redirect", 404: "Not Found"}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `body` is None where it is no JSON."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class HttpServer:
    """Serves on the loopback interface.

    Attributes:
        how: what it does; may be changed while it runs.
        requests: all that came.
        go_on: ends the hanging of calls.
    """

    def __init__(self, how: str) -> None:
        self.how = how
        self.port = 0
        self.requests: list[Request] = []
        self.tools: list[dict[str, Any]] = [ECHO]
        self.listening = asyncio.Event()
        self.go_on = asyncio.Event()
        self._held: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[tuple[asyncio.StreamWriter, Any]] = []
        self._sessions = 0
        self._calls = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        """Begin to listen, on the port it had before if any."""
        if self._held is None:
            # Bound, and not listening: nobody else gets the port while this one is stopped.
            self._held = socket.socket()
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.bind(("127.0.0.1", 0))
            self.port = self._held.getsockname()[1]
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, reuse_address=True
        )

    async def close(self) -> None:
        """Stop for good."""
        await self.stop()
        if self._held is not None:
            self._held.close()

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await read_request(reader):
                self.requests.append(request)
                if not await self._answer(request, writer):
                    return
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        if request.method == "GET":
            return await self._get(request, writer)
        if request.method == "DELETE":
            if self.how == "hang-at-delete":
                await asyncio.sleep(300)
            return await reply(writer, 200)
        message = request.body
        method, number = message.get("method"), message.get("id")
        if number is None:
            return await reply(writer, 202)
        match method:
            case "server/discover":
                return await self._discover(writer, number)
            case "initialize":
                return await self._initialize(writer, message)
            case "tools/list":
                return await self._list(writer, message)
            case "tools/call":
                return await self._call(request, writer)
            case "subscriptions/listen":
                return await self._listen(writer, message)
            case _:
                return await reply(writer, 404, error(number, -32601, "no such method"))

    async def _get(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        if self.how == "resumes" and "last-event-id" in request.headers:
            await events(writer, [(answer(self._calls, text("resumed")), "2")])
            return False
        if self.how != "pushes":
            return await reply(writer, 405)
        await events(writer, [])
        self._listeners.append((writer, None))
        self.listening.set()
        await asyncio.sleep(300)
        return False

    async def push(self, what: str = "tools/list_changed", **params: Any) -> None:
        """Say something to all who listen: that the tools have changed."""
        for writer, number in self._listeners:
            note: dict[str, Any] = {"jsonrpc": "2.0", "method": f"notifications/{what}"}
            if number is not None:
                meta = {"io.modelcontextprotocol/subscriptionId": number}
                note["params"] = params | {"_meta": meta}
            with contextlib.suppress(ConnectionError):  # who listens no more
                writer.write(event(note))
                await writer.drain()

    async def _discover(self, writer: asyncio.StreamWriter, number: Any) -> bool:
        if self.how in {"hang-at-connect", "hang-at-discover"}:
            await asyncio.sleep(300)
        if self.how in {"401", "403", "500"}:
            asks = {"WWW-Authenticate": 'Bearer realm="tests"'} if self.how == "401" else {}
            return await reply(writer, int(self.how), b"<html>no</html>", asks)
        if self.how == "redirects":
            return await reply(writer, 307, b"", {"Location": "http://127.0.0.2:9/other"})
        if not self.how.startswith("modern"):
            return await reply(writer, 400, error(number, -32601, "no such method"))
        result = {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "modern", "version": "2"},
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
        }
        return await reply(writer, 200, answer(number, result))

    async def _initialize(self, writer: asyncio.StreamWriter, message: Any) -> bool:
        if self.how == "hang-at-connect":
            await asyncio.sleep(300)
        if self.how == "absurd-revision":
            result: dict[str, Any] = {"protocolVersion": "never", "capabilities": None}
            return await reply(writer, 200, answer(message["id"], result))
        self._sessions += 1
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "test", "version": "1"},
        }
        session = {"Mcp-Session-Id": f"s{self._sessions}"}
        return await reply(writer, 200, answer(message["id"], result), session)

    async def _list(self, writer: asyncio.StreamWriter, message: Any) -> bool:
        number = message["id"]
        result: dict[str, Any] = {"tools": self.tools}
        if self.how.startswith("modern"):
            result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if self.how == "hang-at-list":
            await asyncio.sleep(300)
        if self.how == "one-bad-tool":
            result = {"tools": [{"name": "bad"}, {"name": 5}, ECHO, ECHO]}
        if self.how == "cursor-loop":
            result = {"tools": [ECHO], "nextCursor": "same"}
        return await reply(writer, 200, answer(number, result))

    async def _listen(self, writer: asyncio.StreamWriter, message: Any) -> bool:
        await events(writer, [])
        number, wanted = message["id"], message["params"]["notifications"]
        meta = {"io.modelcontextprotocol/subscriptionId": number}
        params = {"_meta": meta, "notifications": wanted}
        method = "notifications/subscriptions/acknowledged"
        writer.write(event({"jsonrpc": "2.0", "method": method, "params": params}))
        await writer.drain()
        self._listeners.append((writer, number))
        self.listening.set()
        await asyncio.sleep(300)
        return False

    async def _call(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        number = request.body["id"]
        self._calls = number
        words = request.body["params"].get("arguments", {}).get("text", "")
        good = answer(number, text(words))
        match self.how:
            case "hang-in-call":
                await self.go_on.wait()
            case "cuts-in-call":
                return False
            case "cuts-the-body":
                writer.write(head(200, {"Content-Length": "1000"}) + b'{"jsonrpc"')
                await writer.drain()
                return False
            case "401-in-call" | "403-in-call" | "500-in-call":
                return await reply(writer, int(self.how[:3]), b"nobody")
            case "404-in-call" if request.headers.get("mcp-session-id") == "s1":
                return await reply(writer, 404, b"gone")
            case "404-with-error" if request.headers.get("mcp-session-id") == "s1":
                return await reply(writer, 404, error(None, -32001, "Session not found"))
            case "404-for-ever":
                return await reply(writer, 404, b"gone")
            case "no-json":
                return await reply(writer, 200, b"well, hello")
            case "text":
                return await reply(writer, 200, b"hello", {"Content-Type": "text/plain"})
            case "no-type":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                return True
            case "accepted":
                return await reply(writer, 202)
            case "no-http":
                writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
                return False
            case "endless-head":
                writer.write(b"HTTP/1.1 200 OK\r\n")
                await pour(writer, b"X-Header: " + b"x" * 1000 + b"\r\n", 20_000)
            case "endless-body":
                writer.write(head(200, {"Transfer-Encoding": "chunked"}))
                await pour(writer, b"10000\r\n" + b"x" * 65536 + b"\r\n", 100_000)
            case "endless-error":
                writer.write(head(500, {"Transfer-Encoding": "chunked"}))
                await pour(writer, b"10000\r\n" + b"x" * 65536 + b"\r\n", 100_000)
            case "slow-body":
                writer.write(head(200, {"Content-Length": "100000"}))
                await pour(writer, b" " * 100, 1000, wait_s=0.1)
            case "30-mb":
                return await reply(writer, 200, answer(number, text("x" * 30_000_000)))
            case "packed":
                return await reply(writer, 200, b"\x1f\x8b....", {"Content-Encoding": "gzip"})
            case "null-is-error":
                return await reply(writer, 200, answer(number, text(words) | {"isError": None}))
            case "no-content":
                return await reply(writer, 200, answer(number, {}))
            case "call-error":
                return await reply(writer, 400, error(number, -32602, "wrong arguments"))
            case "sse" | "modern-sse":
                await events(writer, [(good, "")])
                return False
            case "sse-cut":
                await events(writer, [])
                return False
            case "resumes" | "sse-cut-with-id":
                await events(writer, [(b"", "1")])
                return False
            case "sse-hangs":
                await events(writer, [])
                await asyncio.sleep(300)
            case "sse-junk":
                await events(writer, [(b"{no json", ""), (good, "")])
                return False
            case "sse-endless-event":
                await events(writer, [])
                await pour(writer, b"data: " + b"x" * 65536 + b"\n", 100_000)
            case "sse-flood":
                await events(writer, [])
                note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}
                for _ in range(2000):
                    writer.write(event(note))
                writer.write(b"data: " + good + b"\n\n")
                await writer.drain()
                return False
            case _:
                if self.how.startswith("modern"):
                    good = answer(number, text(words) | {"resultType": "complete"})
        return await reply(writer, 200, good)


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Read a request; None at the end."""
    try:
        top, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    except asyncio.IncompleteReadError:
        return None
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, path, _ = top.split(" ")
    parsed = None
    with contextlib.suppress(ValueError):
        parsed = json.loads(body)
    return Request(method=method, path=path, headers=headers, body=parsed)


def head(status: int, headers: dict[str, str]) -> bytes:
    """Return a response's beginning, of JSON if it does not say otherwise."""
    fields = {"Content-Type": "application/json"} | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} {PHRASES.get(status, 'No')}\r\n{lines}\r\n".encode()


async def reply(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> bool:
    """Send a whole response."""
    writer.write(head(status, {"Content-Length": str(len(body))} | (headers or {})) + body)
    await writer.drain()
    return True


async def events(writer: asyncio.StreamWriter, sent: list[tuple[bytes, str]]) -> None:
    """Begin a stream of events, and send some: data and id."""
    writer.write(head(200, {"Content-Type": "text/event-stream"}))
    for data, number in sent:
        mark = f"id: {number}\nretry: 10\n".encode() if number else b""
        writer.write(mark + b"data: " + data + b"\n\n")
    await writer.drain()


async def pour(writer: asyncio.StreamWriter, data: bytes, times: int, wait_s: float = 0.0) -> None:
    """Send something very often."""
    for _ in range(times):
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(wait_s)


def event(message: dict[str, Any]) -> bytes:
    """Return a message as an event."""
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def answer(number: Any, result: dict[str, Any]) -> bytes:
    """Return a response of JSON-RPC."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()


def error(number: Any, code: int, message: str) -> bytes:
    """Return an error of JSON-RPC."""
    failure = {"code": code, "message": message}
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": failure}).encode()


def text(words: str) -> dict[str, Any]:
    """Return a result that holds text."""
    return {"content": [{"type": "text", "text": words}]}
