"""PDFs of a message: their text goes into it, and pages of one without any text as pictures."""

from collections.abc import Sequence

import msgspec

from clawd.errors import InvalidRequestError
from clawd.providers.base import sees
from clawd.runtime.incoming import IncomingMessage
from clawd.security.principal import Principal
from clawd.service.build import Daemon
from clawd.wire.events import Notice
from clawd.wire.pictures import MAX_DOCUMENTS, Document, looks_like_pdf
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
