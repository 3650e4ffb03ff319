"""Handlers about turns.

Of the PDFs of a message: their text goes into it, and pages of one without any text as pictures.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.errors import ForbiddenError, InvalidRequestError
from clawd.providers.base import ChatRequest, Sampled, Sampling, able, sees
from clawd.providers.presets import SHARED, with_preset
from clawd.runtime.approval_prompts import approval_event
from clawd.runtime.incoming import IncomingMessage
from clawd.security.principal import Principal
from clawd.service.build import Daemon
from clawd.service.handlers.shared import take_answer
from clawd.tools.narrowing import Narrowing
from clawd.wire import turns
from clawd.wire.events import Notice, TurnFinished
from clawd.wire.method import Done
from clawd.wire.pictures import MAX_DOCUMENTS, Document, PixelGrid, looks_like_pdf
from clawd.wire.safe_text import fenced, single_line

_NAME_CHARS = 200


async def with_documents(
    daemon: Daemon,
    incoming: IncomingMessage,
    documents: Sequence[Document],
    principal: Principal,
) -> IncomingMessage:
    """Return the message with what is in its documents.

    Raises:
        InvalidRequestError: there are too many, one is not taken, or one has no text and the model
            sees no pictures.
        NotFoundError: there is no such conversation.
        SandboxUnavailableError: there is no sandbox of the required level here.
    """
    if len(documents) > MAX_DOCUMENTS:
        raise InvalidRequestError(f"{len(documents)} PDFs; a message takes {MAX_DOCUMENTS}")
    state = daemon.state
    state, parts, notices = daemon.state, list[str](), list[Notice]()
    pictures, names = list(incoming.pictures), list(incoming.untrusted)
    for document in documents:
        name = single_line(document.name, _NAME_CHARS) or "document.pdf"
        if not looks_like_pdf(document.data):
            raise InvalidRequestError(f"{name} is no PDF")
        found = await daemon.toolset.pdf_text(document.data, state.loaded, state.policy)
        if found.problem:
            raise InvalidRequestError(f"{name}{found.problem}")
        names.append(name)
        parts.append(f"[document {name}]\n{fenced(found.text)}")
        if found.pictures:
            await _check_seen(daemon, incoming, name, principal)
            pictures += await daemon.pictures.read_all(found.pictures)
            shown = f"{name} has no text: the model is shown {len(found.pictures)} of its pages"
            notices.append(Notice(level="info", text=shown))
        if found.left_out:
            left_out = f"of {name} pages {found.left_out} are left out"
            parts[-1] += f"\n[{left_out}]"
            notices.append(Notice(level="warning", text=left_out))
    return msgspec.structs.replace(
        incoming,
        text="\n\n".join(filter(None, (incoming.text, *parts))),
        pictures=tuple(pictures),
        untrusted=tuple(names),
        notices=(*incoming.notices, *notices),
    )


async def _check_seen(
    daemon: Daemon, incoming: IncomingMessage, name: str, principal: Principal
) -> None:
    """Refuse a document without text for a model that sees no pictures, and say why."""
    if incoming.conversation_id and not incoming.agent:
        live = await daemon.inbox.book.load(incoming.conversation_id, principal)
        incoming = msgspec.structs.replace(incoming, agent=live.record.agent)
    provider, model, _ = daemon.inbox.preparation.sampled(incoming)
    if not sees(provider, model):
        raise InvalidRequestError(
            f"{name} has no text, only pictures of pages, and the model sees none",
            hint="Ask a model with `vision` among its capabilities, or send a PDF with text.",
        )


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
    except BaseException:
        if not params.detach:
            ticket.cancel()
        raise


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
