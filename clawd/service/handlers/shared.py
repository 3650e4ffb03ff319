"""What handlers of several resources do alike."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from clawd.channels.rpc.connection import Call
from clawd.errors import ClawError, InvalidRequestError
from clawd.memory.rows import check_shown, visible_to
from clawd.runtime.calls import ClientCall
from clawd.runtime.hub import Subscription
from clawd.security.approvals import Answer as ApprovalWord
from clawd.security.principal import Principal
from clawd.service.build import Daemon
from clawd.tools.outcome import CallOutcome, CallRequest
from clawd.wire.codec import Answer
from clawd.wire.events import Event
from clawd.wire.method import Done
from clawd.wire.tools import ToolOutcome

CHUNK_BYTES = 4 << 20
MAX_CURSOR_DIGITS = 18
# Of an MCP server, for those who are no admins: a problem may quote addresses and commands.
NOT_SHOWN = "it cannot be used now; an admin can see why"
APPROVAL_WORDS: tuple[ApprovalWord, ...] = ("deny", "once", "conversation", "project", "always")
_log = logging.getLogger(__name__)


async def own_conversation(daemon: Daemon, beginning: str, call: Call) -> tuple[str, str]:
    """Return workspace and id of a conversation of the caller's own."""
    owner = call.principal.uid
    matched = await daemon.memory.conversations.match(beginning, owner=owner)
    found = check_shown(matched, call.principal)
    return found.workspace, found.id


async def forget_conversation(daemon: Daemon, beginning: str, call: Call) -> Done:
    """Delete a conversation of the caller's, by its id or a unique beginning of it."""
    owner = visible_to(call.principal)
    record = await daemon.memory.conversations.match(beginning, owner=owner)
    daemon.inbox.cancel_conversation(record.id)
    await daemon.memory.conversations.delete(record.id, owner=owner)
    daemon.keeper.erase_soon()
    daemon.inbox.book.forget(record.id)
    daemon.rules.end_conversation(record.id)
    return Done(message=f"deleted {record.id}")


def take_answer(daemon: Daemon, answer: Answer, principal: Principal) -> None:
    """Give a client's answer to the approval or question it names; a late one is ignored."""
    if daemon.person.questions.answer(answer.question, answer.value, principal):
        return
    word: ApprovalWord = next((w for w in APPROVAL_WORDS if w == answer.value), "deny")
    approvals = daemon.approvals
    try:
        if answer.value == "edit" and answer.arguments:
            approvals.edit(answer.question, answer.arguments, principal, digest=answer.digest)
            return
        approvals.answer(answer.question, word, principal, digest=answer.digest)
    except ClawError as error:
        _log.info("an answer came to nothing: %s", error.message)


def cursor_number(cursor: str) -> int | None:
    """Return the number that a cursor of a list is; None for the first page.

    Raises:
        InvalidRequestError: it is none that a list gave.
    """
    if not cursor:
        return None
    if not cursor.isdecimal() or len(cursor) > MAX_CURSOR_DIGITS:
        raise InvalidRequestError(
            f"cursor {cursor[:32]!r} is none of this list's",
            hint="Use the cursor of the page before, or none for the first page.",
        )
    return int(cursor)


@asynccontextmanager
async def streaming(events: Subscription, call: Call) -> AsyncIterator[None]:
    """Send events to the caller while the body runs; all are sent when this ends.

    Raises:
        ConnectionError: the caller is gone; the body was cancelled.
    """

    async def pump() -> None:
        async for event in events:
            await call.emit(event)

    failure: Exception | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pump())
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised below, when all is sent
                failure = error
            finally:
                events.close()
    except ExceptionGroup as group:
        gone = any(isinstance(error, ConnectionError) for error in group.exceptions)
        cause = ConnectionAbortedError("the caller is gone") if gone else group.exceptions[0]
        raise cause from group
    if failure is not None:
        raise failure


async def call_tool(
    daemon: Daemon, request: CallRequest, visit: ClientCall, call: Call, *, streams: bool = True
) -> CallOutcome:
    """Make a call of a tool through the gate; `streams` sends its events and asks the caller."""
    if not streams:
        return await daemon.calls.visit(request, call.principal, visit, _ignore)
    call.on_answer = lambda answer: take_answer(daemon, answer, call.principal)
    events = Subscription()
    with call.attending(visit.attendance, interactive=visit.interactive):
        async with streaming(events, call):
            return await daemon.calls.visit(request, call.principal, visit, events.put)


def outcome_report(outcome: CallOutcome) -> ToolOutcome:
    """Return what came of a call, as a client sees it."""
    exit_code = outcome.metadata.get("exit_code")
    return ToolOutcome(
        status=outcome.status,
        kind=outcome.kind,
        output=outcome.text,
        receipt_id=outcome.receipt_id,
        risk=outcome.risk,
        duration_ms=outcome.duration_ms,
        exit_code=exit_code if isinstance(exit_code, int) else None,
        unanswered=outcome.kind == "unanswered",
    )


def absolute_path(path: str) -> Path:
    """Return the path that a client names.

    Raises:
        InvalidRequestError: it is not absolute.
    """
    if "\0" in path or not Path(path).is_absolute():
        raise InvalidRequestError(f"{path[:80]!r} is no absolute path")
    return Path(path)


def _ignore(_event: Event) -> None:
    """Take an event of a call that nobody follows."""
