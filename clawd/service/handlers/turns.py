"""Handlers about turns."""

from typing import Any, Literal

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.errors import ForbiddenError
from clawd.providers.base import ChatRequest, Sampled, Sampling, able
from clawd.providers.presets import SHARED, with_preset
from clawd.runtime.approval_prompts import approval_event
from clawd.runtime.incoming import IncomingMessage
from clawd.service.build import Daemon
from clawd.service.documents import with_documents
from clawd.service.handlers.shared import take_answer
from clawd.tools.narrowing import Narrowing
from clawd.wire import turns
from clawd.wire.events import TurnFinished
from clawd.wire.method import Done
from clawd.wire.pictures import PixelGrid

# What an answer tells, and what names tokens of one vocabulary.
_OF_ANSWERS = frozenset({"logprobs", "top_logprobs", "logit_bias"})


async def send_message(daemon: Daemon, params: turns.SendMessage, call: Call) -> TurnFinished:
    """Run a turn, and stream its events; it ends with this request unless it is detached."""
    wishes = _wishes(params.sampling, call) if params.sampling else None
    given = msgspec.structs.asdict(params) | {"door": call.door, "sampling": wishes}
    given |= {"is_resumable": True, "pictures": (), "client": params.client or call.client}
    del given["documents"]
    if params.allowed_tools:
        given["narrowed"] = (Narrowing(by="the message", tools=params.allowed_tools),)
    if params.url:
        given["provider"] = _provider_at(daemon, params.url, call)
    incoming = msgspec.convert(given, IncomingMessage)
    if params.pictures:
        read = await daemon.pictures.read_all(params.pictures)
        incoming = msgspec.structs.replace(incoming, pictures=read)
    if params.documents:
        incoming = await with_documents(daemon, incoming, params.documents, call.principal)
    ticket = await daemon.inbox.submit(incoming, call.principal)
    call.on_answer = lambda answer: take_answer(daemon, answer, call.principal)
    try:
        with call.attending(ticket.attendance, interactive=params.interactive):
            async for event in ticket.events:
                await call.emit(event)
        if ticket.events.stalled:
            raise ConnectionAbortedError("the owner of the turn was too slow")
        return await ticket.finished()
    finally:
        if not params.detach:
            ticket.cancel()


async def preview_picture(daemon: Daemon, params: turns.PreviewPicture, _call: Call) -> PixelGrid:
    """Return the colours of a picture."""
    return await daemon.pictures.preview(params.data, params.longest)


async def show_sampling(
    daemon: Daemon, params: turns.ShowSampling, call: Call
) -> turns.SamplingReport:
    """Show how a message would be sampled; loads no model."""
    given = msgspec.structs.asdict(params) | {"text": "", "door": call.door}
    given["sampling"] = _wishes(params.sampling, call) if params.sampling else None
    incoming = msgspec.convert(given, IncomingMessage)
    provider, model, wishes = daemon.inbox.preparation.sampled(incoming)
    asked, shaped = _values(wishes), _values(with_preset(wishes))
    found = able(provider, Sampled, model)  # type: ignore[type-abstract]
    if found is None:
        values = {each: shaped[each] for each in shaped if each in asked or each in SHARED}
    else:
        owner, model = found
        values = owner.sampled(ChatRequest(model=model, sampling=wishes))

    def origin(name: str) -> Literal["message", "preset", "config"]:
        # A wish that was not heeded, as a penalty may be, is not where the value comes from.
        if name in asked and asked[name] == values[name]:
            return "message"
        return "preset" if name not in asked and name in shaped else "config"

    lines = tuple(
        turns.SamplingLine(
            name=name, value=msgspec.json.encode(values[name]).decode(), origin=origin(name)
        )
        for name in values
        if name not in _OF_ANSWERS
    )
    return turns.SamplingReport(
        provider=provider.name(), model=model, items=lines, is_whole=found is not None
    )


async def follow_conversation(daemon: Daemon, params: turns.FollowConversation, call: Call) -> Done:
    """Stream the events of a conversation until the request is cancelled; what waits first."""
    live = await daemon.inbox.book.load(params.conversation_id, call.principal)
    call.on_answer = lambda answer: take_answer(daemon, answer, call.principal)
    call.ends = False
    subscription = live.broadcast.subscribe()
    try:
        with call.attending(live.attendance):
            for pending in daemon.approvals.pending(call.principal):
                if pending.question.action.conversation_id == live.record.id:
                    subscription.put(approval_event(pending))
            async for event in subscription:
                await call.emit(event)
    finally:
        live.broadcast.unsubscribe(subscription)
    return Done(message="this follower was too slow and was cut off")


async def cancel_turn(daemon: Daemon, params: turns.CancelTurn, call: Call) -> Done:
    """Cancel the turns of a conversation."""
    live = await daemon.inbox.book.load(params.conversation_id, call.principal)
    count = daemon.inbox.cancel_conversation(live.record.id)
    return Done(message=f"cancelled {count} turn{'' if count == 1 else 's'}")


async def steer_turn(daemon: Daemon, params: turns.SteerTurn, call: Call) -> turns.SteerReport:
    """Say something to a turn that runs."""
    joined = await daemon.inbox.steer(
        params.conversation_id, params.turn_id, params.text, call.principal, params.steer_id
    )
    return turns.SteerReport(joined=joined)


async def list_turns(daemon: Daemon, _params: turns.ListTurns, call: Call) -> turns.TurnList:
    """List the turns that run."""
    return daemon.activity.listed(call.principal)


def _provider_at(daemon: Daemon, url: str, call: Call) -> str:
    """Return the name of the provider at an address that a person gave.

    Raises:
        ForbiddenError: the daemon asks no address that somebody else names.
        ConfigError: it is no address.
    """
    if call.door != "socket" or not call.principal.is_admin:
        raise ForbiddenError(
            "an address to ask is for admins",
            hint="Name a provider of the config instead: clawctl provider list",
        )
    return daemon.state.provider_at(url)


def _wishes(sampling: turns.SamplingWishes, call: Call) -> dict[str, Any]:
    """Return the wishes as a message holds them; the operator's own penalties always count."""
    by_operator = call.door == "socket" and call.principal.is_admin
    return msgspec.structs.asdict(sampling) | {"by_operator": by_operator or None}


def _values(sampling: Sampling) -> dict[str, Any]:
    """Return what is said of how to sample."""
    given = msgspec.to_builtins(sampling)
    return {name: given[name] for name in given if name not in {"preset", "by_operator"}}
