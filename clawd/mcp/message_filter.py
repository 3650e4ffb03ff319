"""Stands between a transport and the SDK's session, and hands on nothing that could break it.

What a server says of its tools and what its calls come to is read here, by `tool_checks` and
`contents`; the SDK gets a small and valid message in its place. Notifications that nobody waits
for end here.
"""

import asyncio
import base64
import binascii
from typing import Any, Literal, Self

import anyio
import msgspec
from mcp.client._transport import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from clawd.mcp.connection_end import Trouble
from clawd.mcp.events import Ear
from clawd.mcp.model import Content, RemoteResult
from clawd.mcp.tool_checks import ToolPage, json_problem, read_page
from clawd.wire.safe_text import single_line

# From the result of a call, as it came, to what the model may be given. Pure.
#
# Nothing here raises for what a server sent. What is too large is left out and named.

MAX_BLOCKS = 1_000
_MAX_STRUCTURED_DEPTH = 64
_MAX_LABEL = 500


class _Budget:
    """How many bytes of a result may still be taken."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.left = max_bytes

    def text(self, text: str) -> str:
        """Take text, cut where it does not fit."""
        data = text.encode("utf-8", "replace")
        taken = data[: self.left].decode("utf-8", "ignore")
        self.left -= min(len(data), self.left)
        if len(taken.encode()) == len(data):
            return taken
        return f"{taken}\n[cut: the result has more than {self.max_bytes} bytes]"

    def take(self, size: int) -> bool:
        """Take that many bytes, or none."""
        if size > self.left:
            return False
        self.left -= size
        return True


def read_result(result: dict[str, Any], max_bytes: int) -> RemoteResult:
    """Read the result of `tools/call`.

    Args:
        result: the JSON object that the server answered with.
        max_bytes: how much of its content is taken.
    """
    if result.get("resultType") == "input_required":
        return RemoteResult(
            failure="tool dispatch failed: the server asks for more input in the middle of the "
            "call, which is not supported here. Give all of it in the arguments."
        )
    budget = _Budget(max_bytes)
    blocks = result.get("content")
    if blocks is None:
        blocks = []
    if not isinstance(blocks, list):
        blocks = [blocks]
    content = [_block(block, budget) for block in blocks[:MAX_BLOCKS]]
    if len(blocks) > MAX_BLOCKS:
        content.append(_note(f"{len(blocks) - MAX_BLOCKS} more blocks were left out"))
    structured = result.get("structuredContent")
    if problem := _structured_problem(structured, budget):
        structured = None
        content.append(_note(f"structured content was left out: it {problem}"))
    return RemoteResult(
        content=tuple(content), structured=structured, is_error=_is_true(result.get("isError"))
    )


def _structured_problem(structured: Any, budget: _Budget) -> str:
    if structured is None:
        return ""
    if problem := json_problem(structured, _MAX_STRUCTURED_DEPTH):
        return problem
    if not budget.take(_size(structured)):
        return f"does not fit into {budget.max_bytes} bytes"
    return ""


def _size(value: Any) -> int:
    """Return about how many bytes a value has as JSON."""
    size, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            size += len(each.encode("utf-8", "replace")) + 2
        elif isinstance(each, dict):
            waiting.extend(each)
            waiting.extend(each.values())
            size += 2 * len(each) + 2
        elif isinstance(each, list):
            waiting.extend(each)
            size += len(each) + 2
        else:
            size += 8
    return size


def _block(block: Any, budget: _Budget) -> Content:
    if not isinstance(block, dict):
        return _note("content that is no object was left out")
    given = block.get("type")
    kind = given if isinstance(given, str) else ""
    if kind == "text" and isinstance(block.get("text"), str):
        return Content(kind="text", text=budget.text(block["text"]))
    if kind in {"image", "audio"}:
        return _blob(block, block.get("data"), kind, budget)
    if kind == "resource" and isinstance(block.get("resource"), dict):
        return _resource(block["resource"], budget)
    if kind == "resource_link" and isinstance(block.get("uri"), str):
        return _labelled("link", block)
    return _note(f"content of the type {_label(kind) or 'unknown'} was left out: it is not known")


def _resource(resource: dict[str, Any], budget: _Budget) -> Content:
    text = resource.get("text")
    if not isinstance(text, str):
        return _blob(resource, resource.get("blob"), "resource", budget)
    data = text.encode("utf-8", "replace")
    if not budget.take(len(data)):
        return _too_large("resource", len(data), budget)
    labelled = _labelled("blob", resource)
    return msgspec.structs.replace(labelled, data=data, mime=labelled.mime or "text/plain")


def _blob(block: dict[str, Any], encoded: Any, what: str, budget: _Budget) -> Content:
    if not isinstance(encoded, str):
        return _note(f"content of the type {what} was left out: it has no data")
    size = len(encoded) * 3 // 4
    if size > budget.left + 2:
        return _too_large(what, size, budget)
    try:
        data = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return _note(f"content of the type {what} was left out: its data is no base64")
    if not budget.take(len(data)):
        return _too_large(what, len(data), budget)
    return msgspec.structs.replace(_labelled("blob", block), data=data)


def _too_large(what: str, size: int, budget: _Budget) -> Content:
    return _note(
        f"content of the type {what} with {size} bytes was left out: "
        f"the result has more than {budget.max_bytes} bytes"
    )


def _note(text: str) -> Content:
    return Content(kind="other", text=text)


def _labelled(kind: Literal["blob", "link"], block: dict[str, Any]) -> Content:
    return Content(
        kind=kind,
        mime=_label(block.get("mimeType")),
        uri=_label(block.get("uri")),
        name=_label(block.get("name")),
    )


def _label(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return single_line(value.encode("utf-8", "replace").decode(), _MAX_LABEL)


def _is_true(value: Any) -> bool:
    return value is True or value == "true"


_RESULT_KEY = "clawd/result"

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


class MessageFilter:
    """What is known of one session's messages.

    Args:
        max_result_bytes: how much of a result is taken.
        trouble: told when the streams end.
        ear: hears what the server tells unasked.
    """

    def __init__(self, max_result_bytes: int, trouble: Trouble, ear: Ear) -> None:
        self.page = ToolPage()
        self.has_changed = False
        self._max_result_bytes = max_result_bytes
        self._trouble = trouble
        self._ear = ear
        self._methods: dict[str, str] = {}
        self._late: dict[str, str] = {}
        self._told_end: set[str] = set()
        self._results: dict[int, RemoteResult] = {}
        self._number = 0
        self._asked = 0
        self._progress_at = 0.0

    def result(self, meta: Any) -> RemoteResult | None:
        """Hand over, once, the result that stands behind a message's `_meta`."""
        number = meta.get(_RESULT_KEY) if isinstance(meta, dict) else None
        return self._results.pop(number, None) if isinstance(number, int) else None

    def is_waiting(self, request: object) -> bool:
        """Return whether the request of an id was sent and has no answer yet, also a late one."""
        return str(request) in self._methods or str(request) in self._late

    def sent(self, message: JSONRPCMessage) -> None:
        """Take note of what goes out."""
        match message:
            case JSONRPCRequest():
                self._methods[str(message.id)] = message.method
                meta = (message.params or {}).get("_meta")
                # Of the newest revision, lines of a log come with the request that asks for them.
                if self._ear.level and isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta:
                    meta[LOG_LEVEL_META_KEY] = self._ear.level
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
        self._ear.hear(message.method, message.params or {})
        if message.method not in _PASSED_ON or json_problem(message.params, _MAX_DEPTH):
            return False
        if message.method == "notifications/tools/list_changed":
            self.has_changed = True
            self._trouble.stir.set()
        if message.method == "notifications/progress":
            return self._is_timely(message.params or {})
        return True

    def _is_timely(self, progress: dict[str, Any]) -> bool:
        """Return whether progress comes late enough after the last; its end does, once a call."""
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
        return {"content": [], "_meta": {_RESULT_KEY: self._number}, "resultType": "complete"}


class FilteredRead:
    """The session's end of what a server says."""

    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], message_filter: MessageFilter
    ) -> None:
        self._inner = inner
        self._filter = message_filter

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
                self._filter.over()
                raise
            if isinstance(item, Exception):
                continue  # counted where it was met
            seen = self._filter.received(item.message)
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

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()


class FilteredWrite:
    """The session's end of what is said to a server."""

    def __init__(self, inner: WriteStream[SessionMessage], message_filter: MessageFilter) -> None:
        self._inner = inner
        self._filter = message_filter

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        self._filter.sent(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
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


def _is_on(capability: Any, name: str) -> bool:
    return isinstance(capability, dict) and capability.get(name) is True


def _initialized(given: dict[str, Any]) -> dict[str, Any]:
    """Keep of the handshake what is used, and fill in what old and careless servers leave out."""
    info = given.get("serverInfo")
    info = info if isinstance(info, dict) else {}
    name, version = info.get("name"), info.get("version")
    capabilities = given.get("capabilities")
    offers = capabilities if isinstance(capabilities, dict) else {}
    kept: dict[str, Any] = {"tools": {"listChanged": _is_on(offers.get("tools"), "listChanged")}}
    if _is_on(offers.get("resources"), "subscribe"):
        kept["resources"] = {"subscribe": True}
    if isinstance(offers.get("logging"), dict):
        kept["logging"] = {}
    return {
        "protocolVersion": given.get("protocolVersion"),
        "capabilities": kept,
        "serverInfo": {
            "name": name if isinstance(name, str) else "",
            "version": version if isinstance(version, str) else "",
        },
    }
