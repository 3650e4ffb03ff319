"""Stands between a transport and the SDK's session, and hands on nothing that could break it.

What a server says of its tools and what its calls come to is read here, by `repair` and
`contents`; the SDK gets a small and valid message in its place. Notifications that nobody waits
for end here.
"""

import asyncio
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.client._transport import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from clawd.mcp.contents import read_result
from clawd.mcp.model import RemoteResult
from clawd.mcp.repair import ToolPage, json_problem, read_page
from clawd.mcp.trouble import Trouble

RESULT_KEY = "clawd/result"

_DISCOVER = "server/discover"
_MAX_ASKED = 64
_MAX_KEPT = 64
_MAX_DEPTH = 100
_PROGRESS_EVERY_S = 0.05
_PASSED_ON = {
    "notifications/progress",
    "notifications/cancelled",
    "notifications/subscriptions/acknowledged",
    "notifications/tools/list_changed",
}


class Tap:
    """What is known of one session's messages.

    Args:
        max_result_bytes: how much of a result is taken.
        trouble: told when the streams end.
    """

    def __init__(self, max_result_bytes: int, trouble: Trouble) -> None:
        self.page = ToolPage()
        self.has_changed = False
        self._max_result_bytes = max_result_bytes
        self._trouble = trouble
        self._methods: dict[str, str] = {}
        self._late: dict[str, str] = {}
        self._told_end: set[str] = set()
        self._results: dict[int, RemoteResult] = {}
        self._number = 0
        self._asked = 0
        self._progress_at = 0.0

    def result(self, meta: Any) -> RemoteResult | None:
        """Hand over, once, the result that stands behind a message's `_meta`."""
        number = meta.get(RESULT_KEY) if isinstance(meta, dict) else None
        return self._results.pop(number, None) if isinstance(number, int) else None

    def is_waiting(self, request: object) -> bool:
        """Return whether the request of an id was sent and has no answer yet, also a late one."""
        return str(request) in self._methods or str(request) in self._late

    def sent(self, message: JSONRPCMessage) -> None:
        """Take note of what goes out."""
        match message:
            case JSONRPCRequest():
                self._methods[str(message.id)] = message.method
            case JSONRPCNotification(method="notifications/cancelled"):
                # What comes all the same is nobody's.
                request = str((message.params or {}).get("requestId"))
                if method := self._forget(request):
                    self._late[request] = method
                while len(self._late) > _MAX_KEPT:
                    del self._late[next(iter(self._late))]
            case JSONRPCResponse() | JSONRPCError():
                self._asked = max(0, self._asked - 1)
            case _:
                pass

    def received(self, message: JSONRPCMessage) -> JSONRPCMessage | None:
        """Return what the session may see of a message; None for nothing."""
        match message:
            case JSONRPCResponse():
                return self._response(message)
            case JSONRPCError():
                self._forget(str(message.id))
                self._late.pop(str(message.id), None)
                return message
            case JSONRPCRequest():
                # A server that asks faster than it reads the answers is not answered.
                self._asked += 1
                return message if self._asked <= _MAX_ASKED else None
            case JSONRPCNotification():
                return message if self._is_wanted(message) else None

    def over(self) -> None:
        """The transport has ended."""
        self._trouble.end("the server closed the connection")

    def _forget(self, request: str) -> str:
        """Return the method of a request that is over; empty for one that is not known."""
        self._told_end.discard(request)
        return self._methods.pop(request, "")

    def _is_wanted(self, message: JSONRPCNotification) -> bool:
        if message.method not in _PASSED_ON or json_problem(message.params, _MAX_DEPTH):
            return False
        if message.method == "notifications/tools/list_changed":
            self.has_changed = True
            self._trouble.stir.set()
        if message.method == "notifications/progress":
            return self._is_timely(message.params or {})
        return True

    def _is_timely(self, progress: dict[str, Any]) -> bool:
        """Tell whether progress is not too soon after the last; its end always is, once a call."""
        now = asyncio.get_running_loop().time()
        token = str(progress.get("progressToken"))
        if _is_end(progress) and token in self._methods and token not in self._told_end:
            self._told_end.add(token)
        elif now - self._progress_at < _PROGRESS_EVERY_S:
            return False
        self._progress_at = now
        return True

    def _response(self, message: JSONRPCResponse) -> JSONRPCResponse | None:
        method = self._forget(str(message.id))
        match method:
            case "":  # late, or never asked for
                if self._late.pop(str(message.id), "") == _DISCOVER:
                    self._trouble.learn_newest(message.result)
                return None
            case "tools/list":
                self.page = read_page(message.result)
                result = _listed(self.page)
            case "tools/call":
                result = self._called(message.result)
            case "initialize":
                result = _initialized(message.result)
            case _:
                if method == _DISCOVER and self._trouble.ignores_discover:
                    self._trouble.learn_newest(message.result)
                return message
        kept = {"resultType", "ttlMs", "cacheScope"} & message.result.keys()
        result |= {key: message.result[key] for key in kept if method != "tools/call"}
        return JSONRPCResponse(jsonrpc="2.0", id=message.id, result=result)

    def _called(self, given: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self._results[self._number] = read_result(given, self._max_result_bytes)
        while len(self._results) > _MAX_KEPT:
            del self._results[next(iter(self._results))]
        # Of the newest revision, the SDK takes no result without the mark; servers leave it out.
        return {"content": [], "_meta": {RESULT_KEY: self._number}, "resultType": "complete"}


class TappedRead:
    """The session's end of what a server says."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], tap: Tap) -> None:
        self._inner = inner
        self._tap = tap

    @property
    def last_context(self) -> Any:
        """The sender's context variables, where the transport keeps them."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message that the session may see."""
        while True:
            try:
                item = await self._inner.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._tap.over()
                raise
            if isinstance(item, Exception):
                continue  # counted where it was met
            seen = self._tap.received(item.message)
            if seen is not None:
                return SessionMessage(seen, item.metadata)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class TappedWrite:
    """The session's end of what is said to a server."""

    def __init__(self, inner: WriteStream[SessionMessage], tap: Tap) -> None:
        self._inner = inner
        self._tap = tap

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        self._tap.sent(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def _is_end(progress: dict[str, Any]) -> bool:
    done, total = progress.get("progress"), progress.get("total")
    return isinstance(done, int | float) and isinstance(total, int | float) and done >= total


def _listed(page: ToolPage) -> dict[str, Any]:
    tools = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}
        for tool in page.tools
    ]
    return {"tools": tools} | ({"nextCursor": page.cursor} if page.cursor else {})


def _initialized(given: dict[str, Any]) -> dict[str, Any]:
    """Keep of the handshake what is used, and fill in what old and careless servers leave out."""
    info = given.get("serverInfo")
    info = info if isinstance(info, dict) else {}
    name, version = info.get("name"), info.get("version")
    capabilities = given.get("capabilities")
    tools = capabilities.get("tools") if isinstance(capabilities, dict) else None
    changes = isinstance(tools, dict) and tools.get("listChanged") is True
    return {
        "protocolVersion": given.get("protocolVersion"),
        "capabilities": {"tools": {"listChanged": changes}},
        "serverInfo": {
            "name": name if isinstance(name, str) else "",
            "version": version if isinstance(version, str) else "",
        },
    }
