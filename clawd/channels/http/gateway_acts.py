"""clawd's own routes that act: messages, tool calls, answers, the emergency stop; and following."""

import msgspec
from aiohttp import web

from clawd.channels.http.app import GATEWAY
from clawd.channels.http.bodies import (
    AnswerBody,
    ChatBody,
    ReplyBody,
    RunBody,
    StopBody,
    as_struct,
    body_as,
)
from clawd.channels.http.caller import caller_of
from clawd.channels.http.event_stream import EventStream, until_drained
from clawd.channels.http.gateway import json_of, told
from clawd.channels.http.scopes import require
from clawd.errors import ClawError, NotFoundError
from clawd.runtime.hub import HubSubscription
from clawd.wire.events import Event, TurnFailed
from clawd.wire.methods import (
    AnswerApproval,
    CancelTurn,
    ClearEstop,
    FollowConversation,
    RunTool,
    SendMessage,
    SetEstop,
)
from clawd.wire.reports import Done


async def run_tool(request: web.Request) -> web.StreamResponse:
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
    gateway, principal = request.app[GATEWAY], caller_of(request).principal
    async with EventStream(request, ping_s=request.app[GATEWAY].ping_s()) as stream:
        outcome = await gateway.stream(params, principal, stream.send_wire)
        await stream.send("tool_outcome", msgspec.to_builtins(outcome) | {"type": "tool_outcome"})
    return stream.response


async def chat(request: web.Request) -> web.StreamResponse:
    """Send a message; the turn ends with the request unless it is detached."""
    body = await body_as(request, ChatBody)
    values = msgspec.structs.asdict(body)
    wants_stream, text = values.pop("stream"), values.pop("message")
    params = as_struct(values | {"text": text}, SendMessage)
    if not wants_stream:
        return await told(request, params)
    gateway, principal = request.app[GATEWAY], caller_of(request).principal
    has_failed = False
    async with EventStream(request, ping_s=request.app[GATEWAY].ping_s()) as stream:

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


async def follow(request: web.Request) -> web.StreamResponse:
    """Follow a conversation until the client leaves."""
    gateway, principal = request.app[GATEWAY], caller_of(request).principal
    live = await gateway.inbox.book.load(request.match_info["id"], principal)
    async with EventStream(request, ping_s=request.app[GATEWAY].ping_s()) as stream:
        await stream.start()
        params = FollowConversation(conversation_id=live.record.id)
        await until_drained(request, gateway.stream(params, principal, stream.send_wire))
    return stream.response


async def cancel(request: web.Request) -> web.Response:
    """Cancel the running turn of a conversation."""
    return await told(request, CancelTurn(conversation_id=request.match_info["id"]))


async def events(request: web.Request) -> web.StreamResponse:
    """Follow everything that the caller may see, until it leaves or is too slow."""
    hub, principal = request.app[GATEWAY].inbox.book.hub, caller_of(request).principal
    subscription = hub.subscribe(principal)
    try:
        async with EventStream(request, ping_s=request.app[GATEWAY].ping_s()) as stream:
            await stream.start()
            await until_drained(request, _tell(subscription, stream))
    finally:
        hub.unsubscribe(subscription)
    return stream.response


async def _tell(subscription: HubSubscription, stream: EventStream) -> None:
    async for each in subscription:
        await stream.send_wire(each.event, conversation_id=each.conversation_id)


async def answer(request: web.Request) -> web.Response:
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


async def reply(request: web.Request) -> web.Response:
    """Reply to a question of a tool, which an event told."""
    body, wanted = await body_as(request, ReplyBody), request.match_info["id"]
    questions, principal = request.app[GATEWAY].questions, caller_of(request).principal
    if not questions.answer(wanted, body.value, principal):
        raise NotFoundError(f"question {wanted[:64]!r} is not open")
    return json_of(Done(message=f"{wanted}: answered"))


async def stop(request: web.Request) -> web.Response:
    """Set the emergency stop, as whoever may use tools can, or clear it, as admins can."""
    body = await body_as(request, StopBody)
    if body.set:
        if "admin" not in caller_of(request).scopes:
            require(caller_of(request), "tools")
        return await told(request, SetEstop(reason=body.reason))
    require(caller_of(request), "admin")
    return await told(request, ClearEstop())


ROUTES = [
    web.post("/tools/{name}/run", run_tool),
    web.post("/chat", chat),
    web.get("/conversations/{id}/events", follow, allow_head=False),
    web.post("/conversations/{id}/cancel", cancel),
    web.get("/events", events, allow_head=False),
    web.post("/approvals/{id}", answer),
    web.post("/questions/{id}", reply),
    web.post("/estop", stop),
]
