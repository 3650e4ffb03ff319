"""clawd's own routes that only look: the reports of the control socket as JSON.

Server-sent events of clawd's own routes: one for every wire event, by its tag.

    event: text
    data: {"type":"text","text":"Hello"}

A comment is sent whenever nothing was for a second, so that nothing between takes the silence for
the end. What fails before the first event is a status; after it, the event `error`.
"""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http import app
from clawd.channels.http.body import (
    AnswerBody,
    ChatBody,
    PresetBody,
    ReplyBody,
    RunBody,
    StopBody,
    as_struct,
    body_as,
    query_as,
)
from clawd.channels.http.errors import message_of
from clawd.channels.http.routes_table import document_of
from clawd.errors import ClawError, NotFoundError
from clawd.providers.presets import check_preset, preset_values
from clawd.runtime.hub import HubSubscription
from clawd.wire.conversations import ListConversations, ShowConversation
from clawd.wire.daemon import ClearEstop, EstopState, SetEstop, Status
from clawd.wire.events import Event, TurnFailed
from clawd.wire.memory import SearchMemory
from clawd.wire.method import Done, Method
from clawd.wire.models import ListModels
from clawd.wire.policy import AnswerApproval, ListApprovals
from clawd.wire.receipts import HeadOfReceipts, ListReceipts, ShowReceipt, VerifyReceipts
from clawd.wire.schedules import RunSchedule
from clawd.wire.tools import ListTools, RunTool, ToolLine, ToolList
from clawd.wire.turns import CancelTurn, FollowConversation, SendMessage

MAX_HOOK_BYTES = 16_384

_PRESET_NOTE = (
    "a preset holds for one message: name it in the field `preset` of a request, or in its header "
    "X-Clawd-Preset"
)


def _json_of(value: Any, status: int = 200) -> web.Response:
    """Return a response with a struct, or plain data, as JSON."""
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


async def told(request: web.Request, params: Method[Any]) -> web.Response:
    """Return what a method of the control socket answers to the caller."""
    result = await request.app[app.GATEWAY].invoke(params, app.caller_of(request).principal)
    return _json_of(result)


def _answering(
    kind: type[Method[Any]], *, with_query: bool = False, **parts: str
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler that answers what a method of the control socket reports.

    Args:
        kind: the method.
        with_query: its fields are taken from what stands after the question mark.
        parts: the part of the path that is a field's value, by the field.
    """

    async def answer(request: web.Request) -> web.Response:
        given = {field: request.match_info[part] for field, part in parts.items()}
        return await told(
            request, query_as(request, kind, **given) if with_query else kind(**given)
        )

    return answer


async def _tool(request: web.Request) -> web.Response:
    """Show one tool, by its name or another name of it."""
    name = request.match_info["name"]
    for line in (await _tools(request)).items:
        if name == line.name or name in line.aliases:
            return _json_of(line)
    raise NotFoundError(f"there is no tool {name[:64]!r}", hint="GET /tools lists them.")


async def _tools_as_functions(request: web.Request) -> web.Response:
    """List the tools as OpenAI clients would send them."""
    functions = [_function(line) for line in (await _tools(request)).items]
    return _json_of({"object": "list", "data": functions})


async def _search(request: web.Request) -> web.Response:
    """Search the stored messages for `q`."""
    words = request.query.get("q", "")
    return await told(request, query_as(request, SearchMemory, query=words))


async def presets(_request: web.Request) -> web.Response:
    """List the sampling presets."""
    return _json_of({"presets": preset_values(), "note": _PRESET_NOTE})


async def preset(request: web.Request) -> web.Response:
    """Check a preset and return its values; it changes nothing."""
    name = (await body_as(request, PresetBody)).preset
    check_preset(name or "none")
    return _json_of({"preset": name, "values": preset_values()[name], "note": _PRESET_NOTE})


async def _openapi(request: web.Request) -> web.Response:
    """Return the document of the routes that are served."""
    return _json_of(document_of(request.app.router, request.app[app.GATEWAY].version))


async def _tools(request: web.Request) -> ToolList:
    found = await request.app[app.GATEWAY].invoke(ListTools(), app.caller_of(request).principal)
    assert isinstance(found, ToolList)
    return found


def _function(line: ToolLine) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": line.name,
            "description": line.description,
            "parameters": line.parameters,
        },
    }


_PING_S = 1.0
_STALL_S = 30.0
_PING = b": ping\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class EventStream:
    """One stream to one client. Use it as a context; the response begins with the first event.

    Args:
        request: what it answers.
        ping_s: so much silence is told as a comment.
        stall_s: a client that takes nothing for that long is cut off.
    """

    def __init__(
        self, request: web.Request, *, ping_s: float = _PING_S, stall_s: float = _STALL_S
    ) -> None:
        self._request = request
        self._ping_s = ping_s
        self._stall_s = stall_s
        self._response = web.StreamResponse(headers=_HEADERS)
        self._response.content_type = "text/event-stream"
        self._starting = asyncio.Lock()
        self._said_at = time.monotonic()
        self._pinging: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "EventStream":
        self._pinging = asyncio.create_task(self._ping())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """End it; an error that came after the beginning is told as an event."""
        assert self._pinging is not None
        self._pinging.cancel()
        await asyncio.wait([self._pinging])
        if isinstance(error, ConnectionError):
            return self._response.prepared
        if isinstance(error, ClawError) and self._response.prepared:
            told = {"type": "error", "code": error.code, "message": message_of(error)}
            with contextlib.suppress(ConnectionError):
                await self.send("error", told)
            return True
        return False

    @property
    def response(self) -> web.StreamResponse:
        """What the handler returns."""
        return self._response

    async def start(self) -> None:
        """Send the head of the response, if it was not sent."""
        async with self._starting:
            if not self._response.prepared:
                await self._response.prepare(self._request)

    async def send(self, name: str, value: Any, *, event_id: str = "") -> None:
        """Send an event, with the id to go on behind; waits while the client is slow.

        Raises:
            ConnectionError: the client left, or takes nothing.
        """
        data = msgspec.json.encode(value)
        mark = b"id: %b\n" % event_id.encode() if event_id else b""
        await self._write(b"%bevent: %b\ndata: %b\n\n" % (mark, name.encode(), data))

    async def send_wire(self, event: Any, *, event_id: str = "", **more: str) -> None:
        """Send a wire event by its tag, with further fields beside its own.

        Raises:
            ConnectionError: the client left.
        """
        value = msgspec.to_builtins(event)
        await self.send(value["type"], value | more, event_id=event_id)

    async def _write(self, data: bytes) -> None:
        await self.start()
        self._said_at = time.monotonic()
        try:
            async with asyncio.timeout(self._stall_s):
                await self._response.write(data)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionAbortedError("the client takes nothing") from None

    async def _ping(self) -> None:
        while True:
            silent_s = time.monotonic() - self._said_at
            if silent_s < self._ping_s:
                await asyncio.sleep(self._ping_s - silent_s)
                continue
            try:
                await self._write(_PING)
            except ConnectionError:
                return


async def _until_drained(request: web.Request, work: Coroutine[Any, Any, Any]) -> None:
    """Do work that has no end of its own; it is cancelled when the daemon ends."""
    drained = asyncio.create_task(request.app[app.DRAINING].wait())
    working = asyncio.create_task(work)
    try:
        await asyncio.wait({drained, working}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_over = working.done()
        drained.cancel()
        working.cancel()
        await asyncio.wait({drained, working})
    if is_over:
        working.result()


# clawd's own routes that act: messages, tool calls, answers, the emergency stop; and following.


async def _run_tool(request: web.Request) -> web.StreamResponse:
    """Make one tool call; whatever comes of it is an outcome with a receipt."""
    body = await body_as(request, RunBody)
    given = body.arguments
    params = RunTool(
        name=request.match_info["name"],
        arguments=given if isinstance(given, str) else msgspec.json.encode(given).decode(),
        workspace=body.workspace,
        conversation_id=body.conversation_id,
        interactive=body.interactive,
    )
    if not body.stream:
        return await told(request, params)
    gateway, principal = request.app[app.GATEWAY], app.caller_of(request).principal
    async with EventStream(request, ping_s=request.app[app.GATEWAY].ping_s()) as stream:
        outcome = await gateway.stream(params, principal, stream.send_wire)
        await stream.send("tool_outcome", msgspec.to_builtins(outcome) | {"type": "tool_outcome"})
    return stream.response


async def _chat(request: web.Request) -> web.StreamResponse:
    """Send a message; the turn ends with the request unless it is detached."""
    body = await body_as(request, ChatBody)
    values = msgspec.structs.asdict(body)
    wants_stream, text = values.pop("stream"), values.pop("message")
    params = as_struct(values | {"text": text}, SendMessage)
    if not wants_stream:
        return await told(request, params)
    gateway, principal = request.app[app.GATEWAY], app.caller_of(request).principal
    has_failed = False
    async with EventStream(request, ping_s=request.app[app.GATEWAY].ping_s()) as stream:

        async def send(event: Event) -> None:
            nonlocal has_failed
            await stream.send_wire(event)
            has_failed = has_failed or isinstance(event, TurnFailed)

        try:
            await gateway.stream(params, principal, send)
        except ClawError:
            if not has_failed:
                raise
    return stream.response


async def _follow(request: web.Request) -> web.StreamResponse:
    """Follow a conversation until the client leaves."""
    gateway, principal = request.app[app.GATEWAY], app.caller_of(request).principal
    live = await gateway.inbox.book.load(request.match_info["id"], principal)
    async with EventStream(request, ping_s=request.app[app.GATEWAY].ping_s()) as stream:
        await stream.start()
        params = FollowConversation(conversation_id=live.record.id)
        await _until_drained(request, gateway.stream(params, principal, stream.send_wire))
    return stream.response


async def _events(request: web.Request) -> web.StreamResponse:
    """Follow everything that the caller may see, until it leaves or is too slow.

    With `Last-Event-ID` it goes on behind that event; where what came in between is no longer
    kept, or is of a daemon before this one, the first event is `resync`.
    """
    hub, principal = request.app[app.GATEWAY].inbox.book.hub, app.caller_of(request).principal
    last = request.headers.get("Last-Event-ID", "")
    subscription = hub.subscribe(principal)
    is_whole = not last or hub.replay(subscription, behind=last)
    try:
        async with EventStream(request, ping_s=request.app[app.GATEWAY].ping_s()) as stream:
            await stream.start()
            if not is_whole:
                await stream.send("resync", {"type": "resync"})
            await _until_drained(request, _tell(subscription, stream, hub.epoch))
    finally:
        hub.unsubscribe(subscription)
    return stream.response


async def _tell(subscription: HubSubscription, stream: EventStream, epoch: str) -> None:
    async for each in subscription:
        event_id = f"{epoch}-{each.number}"
        await stream.send_wire(each.event, event_id=event_id, conversation_id=each.conversation_id)


async def _answer(request: web.Request) -> web.Response:
    """Answer a call that waits."""
    body = await body_as(request, AnswerBody)
    return await told(
        request,
        AnswerApproval(
            approval_id=request.match_info["id"],
            digest=body.digest,
            answer=body.answer,
            days=body.days,
        ),
    )


async def _reply(request: web.Request) -> web.Response:
    """Reply to a question of a tool, which an event told."""
    body, wanted = await body_as(request, ReplyBody), request.match_info["id"]
    questions, principal = request.app[app.GATEWAY].questions, app.caller_of(request).principal
    if not questions.answer(wanted, body.value, principal):
        raise NotFoundError(f"question {wanted[:64]!r} is not open")
    return _json_of(Done(message=f"{wanted}: answered"))


async def _stop(request: web.Request) -> web.Response:
    """Set the emergency stop (any client that may use tools) or clear it (admins)."""
    body = await body_as(request, StopBody)
    if body.set:
        if "admin" not in app.caller_of(request).scopes:
            app.require(app.caller_of(request), "tools")
        return await told(request, SetEstop(reason=body.reason))
    app.require(app.caller_of(request), "admin")
    return await told(request, ClearEstop())


# Whether requests can be answered, for monitoring. Nobody is asked for a key.

_UNAVAILABLE = 503
_LOADING = "Loading model"


async def _health(request: web.Request) -> web.Response:
    """Say 200 when requests can be answered, 503 in llama.cpp's words when they cannot."""
    gateway = request.app[app.GATEWAY]
    found = await gateway.health()
    if not found.problem:
        return _json_of({"status": "ok", **_compat(found, gateway.version)})
    error = {"code": _UNAVAILABLE, "message": found.problem, "type": "unavailable_error"}
    response = _json_of(
        {"error": error, "status": "unavailable", **_compat(found, gateway.version)}, _UNAVAILABLE
    )
    response.headers["Retry-After"] = "1"
    return response


def _compat(found: app.GatewayHealth, version: str) -> dict[str, Any]:
    """Return what clients of several servers look for, and nothing about what anybody does."""
    facts = msgspec.structs.asdict(found)
    del facts["problem"]
    return {"server": "clawd", "version": version, **facts}


async def _hook(request: web.Request) -> web.Response:
    """Begin the schedule of a hook; what came with it is told to the model as untrusted text."""
    data = await request.read()
    if len(data) > MAX_HOOK_BYTES:
        raise ClawError(f"a hook takes {MAX_HOOK_BYTES} bytes", code="too_large")
    caller = app.caller_of(request)
    given = request.headers.get("Idempotency-Key", "") or secrets.token_hex(16)
    begun = await request.app[app.GATEWAY].invoke(
        RunSchedule(
            name=caller.key_id.removeprefix(app.HOOK_KEY),
            key=hashlib.sha256(given.encode(errors="replace")).hexdigest()[:32],
            body=data.decode(errors="replace"),
        ),
        caller.principal,
    )
    return _json_of({"state": begun.state}, 202)


ROUTES = [
    web.get("/status", _answering(Status)),
    web.get("/models/local", _answering(ListModels)),
    web.get("/tools", _answering(ListTools)),
    web.get("/tools/{name}", _tool),
    web.get("/v1/tools", _tools_as_functions),
    web.get("/conversations", _answering(ListConversations, with_query=True)),
    web.get(
        "/conversations/{id}", _answering(ShowConversation, with_query=True, conversation_id="id")
    ),
    web.get("/memory/search", _search),
    web.get("/receipts", _answering(ListReceipts, with_query=True)),
    web.get("/receipts/verify", _answering(VerifyReceipts, with_query=True)),
    web.get("/receipts/head", _answering(HeadOfReceipts)),
    web.get("/receipts/{id}", _answering(ShowReceipt, receipt_id="id")),
    web.get("/approvals", _answering(ListApprovals)),
    web.get("/estop", _answering(EstopState)),
    web.get("/v1/preset", presets),
    web.post("/v1/preset", preset),
    web.get("/openapi.json", _openapi),
    web.post("/tools/{name}/run", _run_tool),
    web.post("/chat", _chat),
    web.get("/conversations/{id}/events", _follow, allow_head=False),
    web.post("/conversations/{id}/cancel", _answering(CancelTurn, conversation_id="id")),
    web.get("/events", _events, allow_head=False),
    web.post("/approvals/{id}", _answer),
    web.post("/questions/{id}", _reply),
    web.post("/estop", _stop),
    web.post(app.HOOK_PATH, _hook),
    web.get("/health", _health),
    web.get("/v1/health", _health),
]
