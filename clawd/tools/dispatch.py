"""The one door to every tool: decode, assess, judge, ask, note the intent, run, write the receipt.

Whatever happens is a `CallOutcome` and leaves exactly one receipt: unknown tool, bad arguments,
denied, failed, timed out, stopped. Only a chain that cannot be written raises, and then nothing
of the call reaches the model.
"""

import asyncio
import contextlib
import logging

import msgspec

from clawd.errors import (
    ClawError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    ReceiptError,
    StorageError,
)
from clawd.receipts.record import Status
from clawd.security.action import Action
from clawd.security.approvals import ApprovalQuestion, Approvals, Resolution
from clawd.security.estop import ESTOP_REASON
from clawd.security.gate import Gate
from clawd.security.policy import Allow, Ask, Deny
from clawd.security.risk import Assessment
from clawd.security.taint import TaintBook
from clawd.tools.base import ToolResult, failed, in_thread
from clawd.tools.clearance import Clearance
from clawd.tools.execution import Executor
from clawd.tools.flow import Flow, Passage
from clawd.tools.journal import Entry, Journal
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope, Execution, OutcomeKind
from clawd.tools.preparing import CallPreparer, PreparedCall
from clawd.tools.preview import Preview
from clawd.tools.refusals import CANCELLED, Refused, denied, not_cleared, refused_by, told
from clawd.tools.registry import Registry
from clawd.tools.session_files import OutputKeeper
from clawd.tools.settle import cancel_is_wanted, settled
from clawd.tools.telling import DispatchSettings, Telling
from clawd.wire.changes import FileDiff
from clawd.wire.events import ToolStarted
from clawd.wire.safe_text import shortened

REASON_LIMIT = 400
READER = "file_read"

_log = logging.getLogger(__name__)


class Dispatcher:
    """Runs calls; a daemon has one.

    Args:
        registry: the tools.
        gate: judges.
        approvals: asks people.
        journal: keeps the trail.
        taint: is told where untrusted text goes.
        settings: limits and the sandbox level in force.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        gate: Gate,
        approvals: Approvals,
        journal: Journal,
        taint: TaintBook,
        settings: DispatchSettings,
    ) -> None:
        self.registry = registry
        self._gate = gate
        self._approvals = approvals
        self._journal = journal
        self._flow = Flow(taint)
        self._settings = settings
        self._preparer = CallPreparer(registry, journal, settings)
        self._telling = Telling(settings)
        self._output = OutputKeeper(settings.sessions)
        self._executor = Executor()

    def stop_all(self) -> int:
        """Cancel every running call because of the emergency stop; returns how many there were."""
        return self._executor.stop_all()

    async def call(self, request: CallRequest, scope: CallScope) -> CallOutcome:
        """Make one call.

        Raises:
            ReceiptError, StorageError: the trail cannot be written; nothing may be told.
            CancelledError: the caller was cancelled; the call is dead and has its receipt.
        """
        entry = Entry(
            conversation_id=scope.conversation_id,
            tool=self._journal.name_of(request.tool),
            arguments=request.arguments.encode(errors="replace"),
            uid=scope.principal.uid,
            key=scope.principal.key_id,
            workspace=str(scope.workspace),
        )
        prepared = self._prepare(request, scope, entry)
        self._telling.audit("tool requested", entry, risk=entry.risk)
        if isinstance(prepared, Refused):
            return await self._refuse(entry, prepared, request, scope)
        try:
            return await self._judge_and_run(prepared, entry, request, scope)
        finally:
            prepared.held.close()

    async def _judge_and_run(
        self, prepared: PreparedCall, entry: Entry, request: CallRequest, scope: CallScope
    ) -> CallOutcome:
        try:
            refusal = await self._permit(prepared, entry, request, scope)
        except asyncio.CancelledError:
            await self._refuse(entry, CANCELLED, request, scope)
            raise
        except Exception as error:  # noqa: BLE001 - a defect around the question is a no
            _log.error("a call could not be judged, it is denied", exc_info=error)
            refusal = denied(f"the approval failed: {type(error).__name__}")
        if refusal is None and entry.approval == "user":
            refusal = self._judge_again(prepared, request, scope)
        if refusal is not None:
            return await self._refuse(entry, refusal, request, scope)
        return await self._run(prepared, entry, request, scope)

    def explain(
        self, request: CallRequest, scope: CallScope
    ) -> tuple[Assessment, Allow | Ask | Deny]:
        """Say what the gate would answer, without making the call.

        Raises:
            NotFoundError, InvalidRequestError: no such tool, or arguments that cannot be meant.
        """
        action = self._preparer.action(request, scope)
        return action.assessment, self._gate.review(action)

    # --- before the act

    def _prepare(
        self, request: CallRequest, scope: CallScope, entry: Entry
    ) -> PreparedCall | Refused:
        try:
            return self._preparer.prepare(request, scope, entry)
        except Exception as error:  # noqa: BLE001 - what cannot be read is a no, with its receipt
            _log.error("a call could not be read, it is denied", exc_info=error)
            return denied(f"it could not be read: {type(error).__name__}")

    async def _permit(
        self, prepared: PreparedCall, entry: Entry, request: CallRequest, scope: CallScope
    ) -> Refused | None:
        """Ask the gate and, where it says so, a person; None means go."""
        verdict = self._review(prepared.action)
        if not isinstance(verdict, Deny) and (problem := await self._foresee(prepared)):
            return denied(problem)
        if isinstance(verdict, Ask):
            refusal = await self._ask(prepared, verdict, entry, request, scope)
            if refusal is not None:
                return refusal
        elif isinstance(verdict, Deny):
            return refused_by(verdict)
        else:
            entry.approval = "rule" if verdict.rule_id else "auto"
            entry.approved_by, entry.reason = verdict.rule_id, verdict.rule
        last = self._gate.may_start(prepared.action)
        return refused_by(last) if isinstance(last, Deny) else None

    async def _foresee(self, prepared: PreparedCall) -> str:
        """Compute what the call makes of files, to which it is held; returns why it cannot be."""
        tool = prepared.tool
        try:
            async with asyncio.timeout(tool.timeout_s):
                preview = await tool.preview(prepared.arguments, prepared.context)
        except TimeoutError:
            return f"what it would change could not be computed within {tool.timeout_s:g} s"
        except ClawError as error:
            # It fails in the same way when it runs, and says so; nothing may be changed by it.
            _log.info("nothing is foreseen of a call: %s", error.code)
            preview = Preview()
        if preview is not None:
            outcome = preview.digest
            prepared.action = msgspec.structs.replace(prepared.action, outcome=outcome)
            prepared.context = msgspec.structs.replace(prepared.context, preview=preview)
        return ""

    def _review(self, action: Action) -> Allow | Ask | Deny:
        if not self._journal.is_recording and action.assessment.risk != "low":
            return Deny(reason="receipts are switched off, so only low-risk tools run")
        return self._gate.review(action)

    async def _ask(
        self,
        prepared: PreparedCall,
        verdict: Ask,
        entry: Entry,
        request: CallRequest,
        scope: CallScope,
    ) -> Refused | None:
        """Put the call to a person; None means yes. The intent is on disk while it waits."""
        entry.reason = verdict.reason
        _, cancelled = await settled(self._journal.begin(entry))
        if cancelled:
            raise asyncio.CancelledError
        question = ApprovalQuestion(
            action=prepared.action,
            reason=entry.full_reason,
            tainted_by=verdict.tainted_by,
            changes=_diffs(prepared),
        )
        resolution = await self._approvals.ask(question, deliver=scope.deliver)
        self._telling.resolved(resolution, scope)
        if resolution.edited:
            again = self._edited(prepared, resolution, entry, request, scope)
            if isinstance(again, Refused):
                return again
            if problem := await self._foresee(prepared):
                return denied(problem)
            return await self._ask(prepared, again, entry, request, scope)
        if not resolution.granted:
            kind: OutcomeKind = "unanswered" if resolution.unanswerable else "denied"
            return denied(resolution.reason, kind=kind)
        entry.approval, entry.approved_by = "user", resolution.by
        return None

    def _edited(
        self,
        prepared: PreparedCall,
        resolution: Resolution,
        entry: Entry,
        request: CallRequest,
        scope: CallScope,
    ) -> Ask | Refused:
        """Take what a person wrote; it is judged like any call, and asked about in any case."""
        problem = ""
        try:
            self._preparer.edit(prepared, resolution.edited, request, scope, entry)
            entry.edited_by = resolution.by
        except (NotFoundError, InvalidRequestError) as error:
            problem = f"it is as before, because the edit cannot be used ({error.message}); "
        verdict = self._review(prepared.action)
        if isinstance(verdict, Deny):
            return refused_by(verdict)
        if isinstance(verdict, Ask):
            return msgspec.structs.replace(verdict, reason=problem + verdict.reason)
        return Ask(reason=f"{problem}edited calls are always asked about")

    async def _refuse(
        self, entry: Entry, refused: Refused, request: CallRequest, scope: CallScope
    ) -> CallOutcome:
        entry.approval, entry.reason = "none", refused.reason
        is_failure = refused.kind in {"unknown_tool", "bad_arguments"}
        status: Status = "failed" if is_failure else "denied"
        text = self._telling.clip(refused.text)
        receipt_id, cancelled = await settled(self._journal.finish(entry, status, text))
        outcome = CallOutcome(
            kind=refused.kind,
            status=status,
            text=text,
            receipt_id=receipt_id,
            risk=entry.risk,
            duration_ms=entry.duration_ms,
            asked=entry.asked,
        )
        self._telling.finished(outcome, entry, request, scope)
        if cancelled:
            raise asyncio.CancelledError
        return outcome

    def _judge_again(
        self, prepared: PreparedCall, request: CallRequest, scope: CallScope
    ) -> Refused | None:
        """Judge a call that waited for a person: meanwhile the policy may have been reloaded."""
        approved = prepared.action
        try:
            self._preparer.renew(prepared, request, scope)
        except ForbiddenError as error:
            return denied(f"a path was changed while the call waited: {error.message}")
        except (NotFoundError, InvalidRequestError) as error:
            return denied(f"the tool was changed while the call waited: {error.message}")
        if prepared.action.environment != approved.environment:
            return denied("the tool was changed while the call waited: it is another call now")
        if prepared.action.digest != approved.digest:
            return denied("it would do something else by now than what was shown; nothing was done")
        verdict = self._gate.may_start(prepared.action)
        return refused_by(verdict) if isinstance(verdict, Deny) else None

    # --- the act

    async def _run(
        self, prepared: PreparedCall, entry: Entry, request: CallRequest, scope: CallScope
    ) -> CallOutcome:
        clearance = self._clearance(prepared, entry, request, scope)
        execution: Execution | None = None
        if prepared.tool.holds_until_cleared:
            execution = await self._execute(prepared, entry, clearance)
        try:
            _, cancelled = await settled(clearance.written())
        except (ReceiptError, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 - a defect on the way to the act is a no
            _log.error("a call could not be prepared, it is denied", exc_info=error)
            unprepared = denied(f"it could not be prepared: {type(error).__name__}")
            return await self._refuse(entry, unprepared, request, scope)
        if execution is None and not cancelled:
            with contextlib.suppress(ForbiddenError):
                await clearance()
                execution = await self._execute(prepared, entry, clearance)
        passage = await clearance.written()  # it is: this returns at once
        refused = not_cleared(clearance, execution)
        if refused is not None:
            await settled(self._flow.end(passage))
            outcome = await self._refuse(entry, refused, request, scope)
        else:
            assert execution is not None
            outcome = await self._finish(execution, passage, entry, request, scope)
        if cancelled or outcome.kind == "cancelled" or cancel_is_wanted():
            raise asyncio.CancelledError
        return outcome

    def _clearance(
        self, prepared: PreparedCall, entry: Entry, request: CallRequest, scope: CallScope
    ) -> Clearance[Passage]:
        def started() -> None:
            self._telling.audit(
                "tool approved", entry, approval=entry.approval, by=entry.approved_by or "-"
            )
            scope.emit(
                ToolStarted(
                    call_id=request.id,
                    tool=entry.tool,
                    sandbox=entry.sandbox,
                    changes=_diffs(prepared) if entry.approval != "user" else (),
                )
            )

        return Clearance(
            lambda: self._begin(prepared, entry),
            may_start=lambda: self._gate.may_start(prepared.action),
            on_given=started,
        )

    async def _execute(
        self, prepared: PreparedCall, entry: Entry, clearance: Clearance[Passage]
    ) -> Execution:
        context = msgspec.structs.replace(prepared.context, cleared=clearance)
        execution = await self._executor.run(
            prepared.tool, prepared.arguments, context, call=entry.id
        )
        if execution.kind == "failed" and self._is_stopped(prepared):
            return Execution(kind="stopped", result=failed(ESTOP_REASON))
        if execution.kind == "ok" and not clearance.is_given:
            _log.error("%s did not wait until it was cleared", prepared.tool.name)
            return Execution(kind="failed", result=failed("it did not wait until it was cleared"))
        execution = self._named_as_offered(execution, prepared)
        if not clearance.is_given:
            return execution
        # A cancellation meanwhile is seen again when the receipt is written.
        kept, _ = await settled(self._kept_whole(execution, prepared))
        return kept

    async def _kept_whole(self, execution: Execution, prepared: PreparedCall) -> Execution:
        """Keep a result that is too long to be told, and note where."""
        said = told(execution)
        if not self._telling.is_long(said):
            return execution
        tool, context = prepared.tool.name, prepared.context
        clean = await in_thread(lambda: self._journal.without_secrets(said))
        kept = await self._output.keep(clean, tool=tool, context=context)
        if not kept:
            return execution
        note = f"[cut: the whole, {len(clean.encode(errors='replace'))} bytes, is {kept}"
        if READER in prepared.offer.names:
            # Tags are longer or shorter than the secrets in whose places they are kept.
            told_bytes = self._telling.head_bytes(said)
            head = said.encode(errors="replace")[:told_bytes].decode(errors="ignore")
            head = await in_thread(lambda: self._journal.without_secrets(head))
            reader, told_bytes = prepared.offer.of(READER), min(told_bytes, len(head.encode()))
            note += f"; {reader} with offset={told_bytes} shows more of it"
        return msgspec.structs.replace(execution, cut_note=f"{note}]")

    def _named_as_offered(self, execution: Execution, prepared: PreparedCall) -> Execution:
        """Let an error name tools as the session calls them; what it quotes stays as it is."""
        result = execution.result
        if result.success or not result.error:
            return execution
        spared = self._journal.canonical(prepared.arguments).decode(errors="replace")
        error = prepared.offer.spelled(result.error, spared=spared)
        result = msgspec.structs.replace(result, error=error)
        return msgspec.structs.replace(execution, result=result)

    async def _finish(
        self,
        execution: Execution,
        passage: Passage,
        entry: Entry,
        request: CallRequest,
        scope: CallScope,
    ) -> CallOutcome:
        result = execution.result
        if not result.success:
            entry.reason = shortened(self._journal.without_secrets(result.error), REASON_LIMIT)
        said = self._journal.without_secrets(self._telling.edited(entry)) + told(execution)
        text = self._telling.clip(said, execution.cut_note)
        status: Status = "allowed" if result.success else "failed"
        kept = self._telling.clip(self._journal.without_secrets(said), execution.cut_note)
        finish = self._write_receipt(entry, status, kept, result, passage)
        receipt_id, cancelled = await settled(finish)
        outcome = CallOutcome(
            kind=execution.kind,
            status=status,
            text=text,
            receipt_id=receipt_id,
            risk=entry.risk,
            duration_ms=entry.duration_ms,
            asked=entry.asked,
            metadata=result.metadata,
        )
        self._telling.finished(outcome, entry, request, scope)
        if cancelled:
            raise asyncio.CancelledError
        return outcome

    def _is_stopped(self, prepared: PreparedCall) -> bool:
        """Tell whether the stop is set, which kills processes before it cancels their calls."""
        verdict = self._gate.may_start(prepared.action)
        return (
            prepared.tool.starts_process and isinstance(verdict, Deny) and verdict.kind == "estop"
        )

    async def _begin(self, prepared: PreparedCall, entry: Entry) -> Passage:
        await self._journal.begin(entry)
        return await self._flow.begin(prepared.tool, prepared.arguments, prepared.context)

    # --- after the act

    async def _write_receipt(
        self, entry: Entry, status: Status, text: str, result: ToolResult, passage: Passage
    ) -> str:
        """Write the receipt, then note what untrusted text the result brings; returns its id."""
        exit_code = result.metadata.get("exit_code")
        receipt_id = await self._journal.finish(
            entry, status, text, exit_code=exit_code if isinstance(exit_code, int) else None
        )
        await self._flow.end(passage, result)
        return receipt_id


def _diffs(prepared: PreparedCall) -> tuple[FileDiff, ...]:
    preview = prepared.context.preview
    return () if preview is None else preview.diffs
