"""What goes into dispatch and what comes out of it: values that every door shares."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from clawd.receipts.record import Status
from clawd.security.approvals import Attendance, LateAnswer, PendingApproval
from clawd.security.principal import Principal
from clawd.security.risk import Autonomy, Risk
from clawd.tools.base import ToolResult
from clawd.tools.narrowing import Narrowing
from clawd.tools.registry import ToolMode
from clawd.wire.events import Event, FileDiff
from clawd.wire.pictures import Picture

DELEGATE = "delegate"
"""The tool by which a turn has a helper."""
HELPER_MERGE = "helper_merge"
"""The tool by which what a helper changed in a copy comes into the workspace."""
SOP = "sop"
"""The tool by which a turn runs procedures."""
OutcomeKind = Literal[
    "ok",
    "failed",
    "unknown_tool",
    "bad_arguments",
    "denied",
    "unanswered",
    "timed_out",
    "stopped",
    "cancelled",
]


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call as somebody asked for it.

    Attributes:
        arguments: the raw JSON text.
        by_model: a model wrote it, so a name that is no tool's may be read as that of a built-in
            one; a program names what it means.
        doubt: why it is not to be trusted, or "": with one it may look, and add, but not change.
        late: what a person answered after the call's question had lapsed; None for a call that was
            not asked about yet.
        receipt_id: what its receipt will be called, chosen by who must find it after a crash; "" is
            a fresh one.
    """

    id: str
    tool: str
    arguments: str
    by_model: bool = False
    doubt: str = ""
    late: LateAnswer | None = None
    receipt_id: str = ""


class CallScope(msgspec.Struct, frozen=True, kw_only=True):
    """For whom and where a call runs.

    Attributes:
        conversation_id: empty for a call outside a conversation.
        offered: the names of the flat tools that may be called; None for every tool.
        mode: how they are offered to the model; decides which names errors give, nothing else.
        emit: takes the events of the call; never blocks.
        deliver: displays an approval to the users who may answer; False for none.
        ask: puts a question of a tool to the person; None when there is nobody.
        open_page: asks the person to open a page at their side, and returns what came of it.
        attendance: who is there to answer; while somebody is, questions wait without end.
        is_resumable: a call that nobody answers for may be answered late.
        hold: keeps a question before it is shown, with the id that its call's receipt will have, so
            that a crash does not lose it; None keeps nothing.
        keep_taint: writes down what untrusted text the conversation holds, before the receipt; for
            who reads results out of receipts. None where a message keeps it.
        at_most: the mode beyond which no call goes, whatever the conversation's is; "" for that.
        narrowed: a call that one of these does not name is asked about, in every mode.
        helps: the conversations that it works for as a helper, the nearest first: their modes and
            what their rules refuse hold for it.
        seen: the files that the model has read or written in its conversation; None for calls that
            no model makes.
    """

    conversation_id: str
    principal: Principal
    workspace: Path
    offered: frozenset[str] | None
    emit: Callable[[Event], None]
    deliver: Callable[[PendingApproval], Awaitable[bool]]
    ask: Callable[[str, tuple[str, ...]], Awaitable[str | None]] | None = None
    open_page: Callable[[str], Awaitable[str | None]] | None = None
    mode: ToolMode = "split"
    attendance: Attendance | None = None
    is_resumable: bool = False
    hold: Callable[[PendingApproval, str], Awaitable[None]] | None = None
    keep_taint: Callable[[], Awaitable[None]] | None = None
    at_most: Autonomy | Literal[""] = ""
    narrowed: tuple[Narrowing, ...] = ()
    helps: tuple[str, ...] = ()
    seen: set[Path] | None = None


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call.

    Attributes:
        kind: what happened, for programs.
        asked: the name that was called, where it is not the one of the tool that it was read as.
        status: the receipt's word for it.
        text: what the model is told.
        receipt_id: empty only when receipts are switched off.
        metadata: what the tool reported (`exit_code`, …).
        lapsed: the question that nobody answered and that may be answered late; None for none.
        tool: what it was read as.
        arguments: canonical JSON, as it ran or would have.
        changes: what it made of files, where that was computed; nothing where it did not act.
        pictures: what the model is shown beside the text, which names each by its hash.
    """

    kind: OutcomeKind
    status: Status
    text: str
    receipt_id: str
    risk: Risk
    duration_ms: int
    asked: str = ""
    metadata: dict[str, Any] = {}
    lapsed: PendingApproval | None = None
    tool: str = ""
    arguments: bytes = b""
    changes: tuple[FileDiff, ...] = ()
    pictures: tuple[Picture, ...] = ()


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """How a call that ran has ended.

    Attributes:
        cut_note: where the whole of a result is kept that is too long to be told; "" for nowhere.
        pictures: those of the result.
        pictures_told: a line for each, and for each that could not be read.
    """

    kind: Literal["ok", "failed", "timed_out", "stopped", "cancelled"]
    result: ToolResult
    cut_note: str = ""
    pictures: tuple[Picture, ...] = ()
    pictures_told: str = ""


class SopAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said to a step of a procedure: whether it may be done, or whether it was."""

    run: str
    step: str
    asked: str
    word: str
    conversation_id: str
    workspace: str
    by: Principal
