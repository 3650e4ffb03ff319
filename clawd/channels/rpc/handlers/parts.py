"""What the handlers work with: the parts of a daemon, connected by service/build."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawd.channels.rpc.connection import Call
from clawd.engine.supervisor import Engine
from clawd.errors import ClawError, InvalidRequestError
from clawd.mcp.directory import ServerDirectory
from clawd.memory.changes import Changes
from clawd.memory.rows import visible_to
from clawd.memory.store import Memory
from clawd.plugins.loader import PluginStore
from clawd.providers.base import Provider
from clawd.providers.local import LocalModel
from clawd.runtime.approval_prompts import Questions
from clawd.runtime.calls import Calls, ToolClients
from clawd.runtime.housekeeping import Housekeeping
from clawd.runtime.hub import Subscription
from clawd.runtime.inbox import Inbox
from clawd.runtime.late_answers import LateAnswers
from clawd.runtime.replay import Judge, PolicyChange
from clawd.security.approval_rules import RuleBook
from clawd.security.approvals import Answer as ApprovalWord
from clawd.security.approvals import Approvals, Attendance
from clawd.security.estop import EmergencyStop
from clawd.security.keys import KeyBook
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from clawd.security.sandbox_home import ProjectCaches
from clawd.tools.external import ManifestProblem
from clawd.tools.jobs import Jobs
from clawd.tools.registry import Registry
from clawd.wire.daemon import LogPage, MetricsReport, OverrideLine, StatusReport, TailLog
from clawd.wire.frames import Answer
from clawd.wire.method import Done
from clawd.wire.models import ModelList, ProviderLine
from clawd.wire.turns import TurnList

MAX_CURSOR_DIGITS = 18
# Of an MCP server, for those who are no admins: a problem may quote addresses and commands.
NOT_SHOWN = "it cannot be used now; an admin can see why"
APPROVAL_WORDS: tuple[ApprovalWord, ...] = (
    "deny",
    "once",
    "conversation",
    "project",
    "always",
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of one daemon that handlers call.

    Attributes:
        tool_clients: makes the doors of clients that call tools by themselves.
        tool_problems: returns what of the tools that others wrote was left out or is doubtful.
        caches: what commands keep between them; None where nothing is.
        cache_bytes: returns how large all of that may be.
        keys: of the HTTP gateway.
        plugins: what is installed; its methods block.
        mcp: the MCP servers and their tools.
        reload_tools: reads manifests and plugins again and puts the tools in force.
        late: takes answers to approvals that had lapsed.
        providers: returns the providers by name.
        provider_at: returns the name of one at an address, which is made if need be.
        provider_lines: returns what the config says of them.
        changes: what undo can take back.
        erase_soon: says that something was deleted from memory.
        redactor: replaces secrets in what is handed out to keep.
        receipts_path: where the chain lies.
        first_public_key_path: where its first public key lies.
        models: reads the folder of models and returns what is there; called off the loop.
        find_model: returns a local model by its name, or raises ModelNotFoundError.
        effective_config: returns the config as JSON-like data, secrets redacted.
        overridden: returns which of a client's variables ask for what is not in force.
        metrics: reports what is counted and measured.
        turns: lists the turns that run, as the principal may see them.
        log: returns lines of the daemon's log.
        status: reports what only the service knows, as the principal may see it.
        reload: reads the config again and returns what to tell.
        accept_receipts: takes the receipt log as it stands and returns what to tell.
        shutdown: begins the end of the daemon.
        judge_of: returns who judges under another policy; raises ConfigError for a bad one.
        policy_cases: reads the configured table of policy cases; called off the loop.
    """

    inbox: Inbox
    housekeeping: Housekeeping
    calls: Calls
    jobs: Jobs
    caches: ProjectCaches | None
    cache_bytes: Callable[[], int]
    memory: Memory
    keys: KeyBook
    changes: Changes
    erase_soon: Callable[[], None]
    redactor: Redactor
    receipts_path: Path
    first_public_key_path: Path
    registry: Registry
    tool_clients: ToolClients
    tool_problems: Callable[[], tuple[ManifestProblem, ...]]
    plugins: PluginStore
    mcp: ServerDirectory
    reload_tools: Callable[[], Awaitable[None]]
    approvals: Approvals
    late: LateAnswers
    rules: RuleBook
    questions: Questions
    estop: EmergencyStop
    engine: Engine
    providers: Callable[[], Mapping[str, Provider]]
    provider_at: Callable[[str], str]
    provider_lines: Callable[[], tuple[ProviderLine, ...]]
    models: Callable[[], ModelList]
    find_model: Callable[[str], LocalModel]
    effective_config: Callable[[], tuple[str, dict[str, Any]]]
    overridden: Callable[[Mapping[str, str]], tuple[OverrideLine, ...]]
    metrics: Callable[[], Awaitable[MetricsReport]]
    turns: Callable[[Principal], TurnList]
    log: Callable[[TailLog], LogPage]
    status: Callable[[Principal], Awaitable[StatusReport]]
    reload: Callable[[], Awaitable[str]]
    accept_receipts: Callable[[Principal], Awaitable[str]]
    shutdown: Callable[[], None]
    judge_of: Callable[[PolicyChange], Judge]
    policy_cases: Callable[[], str]


class Handler:
    """The base of the handler groups."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def forget_conversation(self, beginning: str, call: Call) -> Done:
        """Delete a conversation of the caller's, by its id or a unique beginning of it."""
        parts, owner = self.parts, visible_to(call.principal)
        record = await parts.memory.conversations.match(beginning, owner=owner)
        parts.inbox.cancel_conversation(record.id)
        await parts.memory.conversations.delete(record.id, owner=owner)
        parts.erase_soon()
        parts.inbox.book.forget(record.id)
        parts.rules.end_conversation(record.id)
        return Done(message=f"deleted {record.id}")

    def take_answer(self, answer: Answer, principal: Principal) -> None:
        """Give a client's answer to the approval or question it names; a late one is ignored."""
        if self.parts.questions.answer(answer.question, answer.value, principal):
            return
        word: ApprovalWord = next((w for w in APPROVAL_WORDS if w == answer.value), "deny")
        approvals = self.parts.approvals
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


def attending(
    attendance: Attendance, call: Call, *, interactive: bool = True
) -> AbstractContextManager[None]:
    """Count a caller as there, if it sees what is asked and may answer it."""
    may_answer = call.door == "socket" or call.principal.is_admin
    is_there = interactive and call.shows_events and may_answer
    return attendance.attended() if is_there else nullcontext()


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
