"""What is reported of calls: to the log, to the client, and how much of a result the model gets."""

import logging
from collections.abc import Callable

import msgspec

from clawd.security.approvals import Resolution
from clawd.security.copies import Copies
from clawd.tools.call_hosts import ReachSettings
from clawd.tools.changes import CommandLog
from clawd.tools.hooks import Hooks
from clawd.tools.journal import Entry
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope
from clawd.tools.pictures import Pictures
from clawd.tools.session_files import SessionStore
from clawd.wire.events import ApprovalResolved, ToolFinished
from clawd.wire.safe_text import shortened

OUTPUT_LIMIT_BYTES = 64 * 1024
EDITED_SHOWN = 2_000
_TOLD_AS = {"allowed": "completed", "denied": "denied", "failed": "failed"}
_log = logging.getLogger(__name__)


class DispatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What dispatch is told by the config and by the sandbox probe.

    Attributes:
        output_limit_bytes: how much of a result the model is told.
        copies: the copies of workspaces, judged as those that they stand for; None for none.
        commands: keeps what commands change in workspaces; None keeps nothing.
        sessions: keeps the whole of what is longer; None keeps nothing.
        count: is told the tool and the outcome of every call.
        reach: how processes of calls reach hosts.
        hooks: the owner's programs that are told of calls; None for none.
        pictures: reads those of results; None leaves them out.
    """

    sandbox_level: str
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES
    audit_log: bool = True
    copies: Copies | None = None
    commands: CommandLog | None = None
    sessions: SessionStore | None = None
    count: Callable[[str, CallOutcome], None] | None = None
    reach: ReachSettings = ReachSettings()
    hooks: Hooks | None = None
    pictures: Pictures | None = None


class CallReports:
    """Reports calls as the settings want it."""

    def __init__(self, settings: DispatchSettings) -> None:
        self._settings = settings

    def finished(
        self, outcome: CallOutcome, entry: Entry, request: CallRequest, scope: CallScope
    ) -> None:
        """Report the end of a call to the log and to its followers."""
        if self._settings.count is not None:
            self._settings.count(entry.tool, outcome)
        self.audit(
            f"tool {_TOLD_AS[outcome.status]}",
            entry,
            kind=outcome.kind,
            receipt=outcome.receipt_id,
            duration_ms=outcome.duration_ms,
            **({"asked": outcome.asked} if outcome.asked else {}),
        )
        exit_code = outcome.metadata.get("exit_code")
        scope.emit(
            ToolFinished(
                call_id=request.id,
                tool=entry.tool,
                status=outcome.status,
                output=outcome.text,
                receipt_id=outcome.receipt_id,
                duration_ms=outcome.duration_ms,
                asked=outcome.asked,
                exit_code=exit_code if isinstance(exit_code, int) else None,
                job=str(outcome.metadata["job"]) if outcome.metadata.get("running") else "",
            )
        )

    def resolved(self, resolution: Resolution, scope: CallScope) -> None:
        """Report to the followers of a call how its question ended."""
        scope.emit(
            ApprovalResolved(
                approval_id=resolution.approval_id,
                answer="edit" if resolution.edited else resolution.answer,
                by=resolution.by,
                reason="" if resolution.edited else resolution.reason,
            )
        )

    def edited(self, entry: Entry) -> str:
        """Return what the model is told of a call that others changed; "" when nobody did."""
        arguments = shortened(entry.arguments.decode(errors="replace"), EDITED_SHOWN)
        who = "the user edited" if entry.edited_by else f"the hook {entry.changed_by} changed"
        return f"[{who} this call; it ran with the arguments {arguments}]\n"

    def audit(self, event: str, entry: Entry, **facts: object) -> None:
        """Log a step of a call: names and verdicts, no contents."""
        level = logging.INFO if self._settings.audit_log else logging.DEBUG
        fields = {"tool": entry.tool, "conversation": entry.conversation_id or "-", **facts}
        _log.log(level, "%s", event, extra=fields)

    def is_long(self, text: str) -> bool:
        """Return whether a text is longer than may be told."""
        limit = self._settings.output_limit_bytes
        return len(text) > limit or len(text.encode(errors="replace")) > limit

    def head_bytes(self, text: str) -> int:
        """Return how many bytes of a long text are told."""
        head = text.encode(errors="replace")[: self._settings.output_limit_bytes]
        return len(head.decode(errors="ignore").encode())

    def clip(self, text: str, note: str = "") -> str:
        """Return what may be told of the text: so many bytes of it, and all of it UTF-8.

        A note says where the whole is, and stands in the place of the mark of a cut.
        """
        limit = self._settings.output_limit_bytes
        data = text.encode(errors="replace")
        if len(data) <= limit and not note:
            return data.decode()
        kept = data[:limit].decode(errors="ignore")
        if note:
            return f"{kept}\n{note}"
        return f"{kept}\n[cut: {len(data) - limit} of {len(data)} bytes left out]"
