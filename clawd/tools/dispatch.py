"""The one door to every tool: decode, assess, judge, ask, note the intent, run, write the receipt.

Whatever happens is a `CallOutcome` and leaves exactly one receipt: unknown tool, bad arguments,
denied, failed, timed out, stopped. Only a chain that cannot be written raises, and then nothing
of the call reaches the model.
"""

import asyncio
import contextlib
import functools
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
from clawd.kernel.concurrency import cancel_is_wanted, settled
from clawd.receipts.record import Status, new_id
from clawd.security.approvals import (
    ApprovalQuestion,
    Approvals,
    PendingApproval,
    Resolution,
    may_come_late,
)
from clawd.security.estop import ESTOP_REASON
from clawd.security.gate import Gate
from clawd.security.policy import Allow, Ask, Deny, told_sources
from clawd.security.risk import Action, Assessment
from clawd.security.taint import TaintBook
from clawd.tools.audit import CallReports, DispatchSettings
from clawd.tools.base import ToolResult, failed, in_thread
from clawd.tools.call_hosts import Hosts
from clawd.tools.changes import CommandChanges, call_facts
from clawd.tools.execution import (
    CANCELLED,
    Executor,
    Refused,
    StartPermit,
    denied,
    not_permitted,
    refused_by,
    told,
)
from clawd.tools.hooks import Hooks, HookScene, merged_arguments
from clawd.tools.journal import CANONICAL, Entry, Journal
from clawd.tools.narrowing import outside
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope, Execution, OutcomeKind
from clawd.tools.preparing import CallPreparer, PreparedCall
from clawd.tools.preview import Preview, UnseenFileError
from clawd.tools.registry import Registry
from clawd.tools.session_files import OutputKeeper
from clawd.tools.taint_tracking import Passage, TaintTracking, touched_by
from clawd.wire.events import Notice, ToolStarted
from clawd.wire.pictures import MAX_PICTURES, Picture
from clawd.wire.policy import HOST_TOOL, host_grant
from clawd.wire.safe_text import shortened

REASON_LIMIT = 400
READER = "file_read"
EDITOR = "file_edit"
_ABOUT_LOSS = "use {edit} to change a part of the file"

_log = logging.getLogger(__name__)


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose intent is on disk: what it reads and writes, and a command's stay."""

    passage: Passage
    visit: CommandChanges | None = None


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
        self._flow = TaintTracking(taint)
        self._settings = settings
        self._preparer = CallPreparer(registry, journal, settings)
        self._reports = CallReports(settings)
        self._output = OutputKeeper(settings.sessions)
        self._hosts = Hosts(
            settings.reach,
            review=self._review,
            may_start=gate.may_start,
            approvals=approvals,
            taint=taint,
        )
        self._executor = Executor()

    def stop_all(self) -> int:
        """Cancel every running call because of the emergency stop; returns how many there were."""
        return self._executor.stop_all()

    def may_run_beside(self, request: CallRequest, scope: CallScope) -> bool:
        """Return whether a call may run at the same time as others: it only reads, unasked.

        Where a hook is told of it, it may do anything.
        """
        action = self._preparer.reading(request, scope)
        if action is None or action.assessment.risk != "low" or self.hooks_for(action.tool):
            return False
        if scope.narrowed and outside(scope.narrowed, action):
            return False
        return isinstance(self._gate.review(action), Allow)

    async def call(self, request: CallRequest, scope: CallScope) -> CallOutcome:
        """Make one call.

        Raises:
            ReceiptError, StorageError: the trail cannot be written; nothing may be told.
            CancelledError: the caller was cancelled; the call is dead and has its receipt.
        """
        entry = Entry(
            id=request.receipt_id or new_id(),
            conversation_id=scope.conversation_id,
            tool=self._journal.name_of(request.tool),
            arguments=request.arguments.encode(errors="replace"),
            uid=scope.principal.uid,
            key=scope.principal.key_id,
            workspace=str(scope.workspace),
            late=request.late,
            helps="".join(scope.helps[:1]),
        )
        prepared: PreparedCall | Refused
        try:
            prepared = self._preparer.prepare(request, scope, entry)
        except Exception as error:  # noqa: BLE001 - what cannot be read is a no, with its receipt
            _log.error("a call could not be read, it is denied", exc_info=error)
            prepared = denied(f"it could not be read: {type(error).__name__}")
        self._reports.audit("tool requested", entry, risk=entry.risk)
        if isinstance(prepared, Refused):
            return await self._refuse(entry, prepared, request, scope)
        try:
            return await self._judge_and_run(prepared, entry, request, scope)
        finally:
            prepared.held.close()

    async def _judge_and_run(
        self, prepared: PreparedCall, entry: Entry, request: CallRequest, scope: CallScope
    ) -> CallOutcome:
        hooks, refusal = self._settings.hooks, None
        try:
            if hooks is not None and hooks.settings():
                refusal = await self._hooked(prepared, entry, request, scope)
            if refusal is None:
                refusal = await self._permit(prepared, entry, request, scope)
            commands = self._settings.commands
            may_write = prepared.tool.starts_process and self._may_write(prepared, entry)
            if refusal is None and commands is not None and may_write:
                # Not while the sandbox waits: its time would run.
                await commands.prepare(str(prepared.context.workspace))
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
        if request.tool == HOST_TOOL:
            action = self._host_action(request, scope)
        else:
            action = self._preparer.action(request, scope)
        return action.assessment, self._gate.review(action)

    def hooks_for(self, tool: str) -> tuple[str, ...]:
        """Return the hooks that are told of calls of a tool, in words."""
        hooks, found = self._settings.hooks, self.registry.find(tool)
        if hooks is None or found is None:
            return ()
        told = (*hooks.of("before_tool", found.name), *hooks.of("after_tool", found.name))
        return tuple(f"{hook.event}: {hook.name} ({hook.where})" for hook in told)

    def _host_action(self, request: CallRequest, scope: CallScope) -> Action:
        try:
            host = host_grant(msgspec.json.decode(request.arguments, type=dict[str, str])["host"])
        except (msgspec.DecodeError, KeyError) as error:
            raise InvalidRequestError('a host is asked about as {"host": "HOST:PORT"}') from error
        return self._hosts.action(host, request, scope)

    # --- before the act

    async def _hooked(
        self, prepared: PreparedCall, entry: Entry, request: CallRequest, scope: CallScope
    ) -> Refused | None:
        """Let the owner's hooks refuse or change a call before it is judged; None means go on."""
        hooks, prepared.ask_because = self._settings.hooks, ""
        found = () if hooks is None else hooks.of("before_tool", prepared.tool.name)
        if found and isinstance(self._gate.may_start(prepared.action), Deny):
            return None  # what is refused in any case needs no program to say so
        for hook in found:
            assert hooks is not None
            arguments = prepared.action.arguments
            masked = self._journal.json_without_secrets(arguments)
            run = await hooks.run(hook, _scene(prepared, scope, entry, arguments))
            if refusal := run.refusal:
                return denied(refusal)
            if run.answer.arguments is not None:
                merged, problem = merged_arguments(run.answer.arguments, arguments, masked)
                if problem := problem or self._changed(prepared, merged, entry, request, scope):
                    return denied(f"the hook {hook.name} {problem}")
                if prepared.action.arguments != arguments:
                    entry.changed_by = hook.name
            if run.answer.decision == "ask":
                prepared.ask_because = f"the hook {hook.name} asks: {run.reason}"
            entry.remarks += (run.remark,) if run.remark else ()
        return None

    def _changed(
        self,
        prepared: PreparedCall,
        arguments: bytes,
        entry: Entry,
        request: CallRequest,
        scope: CallScope,
    ) -> str:
        """Give a call the arguments of a hook, in place; return why it cannot have them."""
        if arguments == prepared.action.arguments:
            return ""
        try:
            self._preparer.edit(prepared, arguments.decode(), request, scope, entry)
        except (NotFoundError, InvalidRequestError) as error:
            return f"gave arguments that cannot be used: {error.message}"
        return ""

    async def _permit(
        self, prepared: PreparedCall, entry: Entry, request: CallRequest, scope: CallScope
    ) -> Refused | None:
        """Ask the gate and, where it says so, a person; None means go."""
        verdict = self._review(prepared.action)
        narrowed = outside(scope.narrowed, prepared.action) if scope.narrowed else ""
        is_no = isinstance(verdict, Deny) and not verdict.may_ask
        if not is_no and (refusal := await self._foresee(prepared)):
            return refusal
        lost = self._loss(prepared) if prepared.context.preview is not None else ""
        if because := "; ".join(filter(None, (prepared.ask_because, narrowed, lost))):
            verdict = _asked_too(verdict, because)
        if request.late is not None and isinstance(verdict, Allow):
            # What would not ask any more is what was shown, or it does not run.
            verdict = Ask(reason=verdict.rule)
        if isinstance(verdict, Ask):
            refusal = await self._ask(prepared, verdict, entry, request, scope)
            if refusal is not None:
                return refusal
        elif isinstance(verdict, Deny):
            if not verdict.may_ask or scope.ask is None:
                return refused_by(verdict)
            reason = prepared.action.assessment.reason or verdict.reason
            if verdict.in_view_of:
                reason = f"{reason}; {told_sources(verdict.in_view_of)}"
            reason = "; ".join(filter(None, (reason, lost)))
            asked = Ask(reason=reason, tainted_by=verdict.tainted_by, in_view_of=verdict.in_view_of)
            refusal = await self._ask(prepared, asked, entry, request, scope)
            if refusal is not None:
                return refused_by(verdict) if refusal.kind == "unanswered" else refusal
        else:
            entry.approval = "rule" if verdict.rule_id else "auto"
            losses = prepared.context.preview.losses if prepared.context.preview else ()
            entry.approved_by, entry.reason = verdict.rule_id, "; ".join((verdict.rule, *losses))
        last = self._gate.may_start(prepared.action)
        return refused_by(last) if isinstance(last, Deny) else None

    async def _foresee(self, prepared: PreparedCall) -> Refused | None:
        """Compute what the call makes of files, to which it is held; returns why it is refused."""
        tool = prepared.tool
        try:
            async with asyncio.timeout(tool.timeout_s):
                preview = await tool.preview(prepared.arguments, prepared.context)
        except TimeoutError:
            return denied(f"what it would change could not be computed within {tool.timeout_s:g} s")
        except UnseenFileError as error:
            return Refused(kind="failed", reason="not read before", text=f"error: {error.message}")
        except ClawError as error:
            # It fails in the same way when it runs, and says so; nothing may be changed by it.
            _log.info("nothing is foreseen of a call: %s", error.code)
            preview = Preview()
        if preview is not None:
            outcome = preview.digest
            prepared.action = msgspec.structs.replace(prepared.action, outcome=outcome)
            prepared.context = msgspec.structs.replace(prepared.context, preview=preview)
        return None

    def _loss(self, prepared: PreparedCall) -> str:
        """Return what is lost by a call, so that a person is asked in every mode but full."""
        preview = prepared.context.preview
        if preview is None or not preview.losses or self._gate.is_full(prepared.action):
            return ""
        return "; ".join(preview.losses)

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
            in_view_of=verdict.in_view_of,
            unlisted=prepared.action.assessment.unlisted,
            changes=preview.diffs if (preview := prepared.context.preview) else (),
        )
        resolution = await self._resolution(question, entry, request, scope)
        self._reports.resolved(resolution, scope)
        if resolution.edited:
            again = await self._edited(prepared, resolution, entry, request, scope)
            if isinstance(again, Refused):
                return again
            if refusal := await self._foresee(prepared):
                return refusal
            if lost := self._loss(prepared):
                again = msgspec.structs.replace(again, reason=f"{again.reason}; {lost}")
            asked = msgspec.structs.replace(request, late=None)
            return await self._ask(prepared, again, entry, asked, scope)
        if not resolution.granted:
            kind: OutcomeKind = "unanswered" if resolution.unanswerable else "denied"
            preview = prepared.context.preview
            is_loss = (
                resolution.unanswerable and preview and preview.writes and self._loss(prepared)
            )
            hint = _ABOUT_LOSS.format(edit=prepared.offer.of(EDITOR)) if is_loss else ""
            refused = denied(resolution.reason, hint=hint, kind=kind)
            return msgspec.structs.replace(refused, lapsed=resolution.lapsed)
        entry.approval, entry.approved_by = "user", resolution.by
        return None

    async def _resolution(
        self, question: ApprovalQuestion, entry: Entry, request: CallRequest, scope: CallScope
    ) -> Resolution:
        if request.late is not None:
            return await self._approvals.answer_late(question, request.late)

        async def deliver(pending: PendingApproval) -> bool:
            if scope.hold is not None:
                await scope.hold(pending, entry.id)
            return await scope.deliver(pending)

        resolution = await self._approvals.ask(
            question, deliver=deliver, attendance=scope.attendance
        )
        if resolution.lapsed is None:
            return resolution
        if not scope.is_resumable:
            return msgspec.structs.replace(resolution, lapsed=None)
        reason = may_come_late(resolution.reason, resolution.approval_id)
        return msgspec.structs.replace(resolution, reason=reason)

    async def _edited(
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
            # Who writes what a file shall hold need not have had it read.
            prepared.context = msgspec.structs.replace(prepared.context, seen=None)
        except (NotFoundError, InvalidRequestError) as error:
            problem = f"it is as before, because the edit cannot be used ({error.message}); "
        if refusal := await self._hooked(prepared, entry, request, scope):
            return refusal
        verdict = self._review(prepared.action)
        if isinstance(verdict, Deny) and verdict.may_ask:
            return Ask(
                reason=problem + verdict.reason,
                tainted_by=verdict.tainted_by,
                in_view_of=verdict.in_view_of,
            )
        if isinstance(verdict, Deny):
            return refused_by(verdict)
        if isinstance(verdict, Ask):
            return msgspec.structs.replace(verdict, reason=problem + verdict.reason)
        return Ask(reason=f"{problem}edited calls are always asked about")

    async def _refuse(
        self, entry: Entry, refused: Refused, request: CallRequest, scope: CallScope
    ) -> CallOutcome:
        entry.approval, entry.reason = "none", refused.reason
        is_failure = refused.kind in {"failed", "unknown_tool", "bad_arguments"}
        status: Status = "failed" if is_failure else "denied"
        text = self._reports.clip(refused.text)
        receipt_id, cancelled = await settled(self._journal.finish(entry, status, text))
        outcome = CallOutcome(
            kind=refused.kind,
            status=status,
            text=text,
            receipt_id=receipt_id,
            risk=entry.risk,
            duration_ms=entry.duration_ms,
            asked=entry.asked,
            lapsed=refused.lapsed,
            tool=entry.tool,
            arguments=entry.arguments,
        )
        self._reports.finished(outcome, entry, request, scope)
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
        entry.changes = preview.diffs if (preview := prepared.context.preview) else ()

        def started() -> None:
            by, changes = entry.approved_by or "-", entry.changes
            self._reports.audit("tool approved", entry, approval=entry.approval, by=by)
            told = ToolStarted(
                call_id=request.id,
                tool=entry.tool,
                sandbox=entry.sandbox,
                changes=changes if entry.approval != "user" else (),
            )
            scope.emit(told)

        permit = StartPermit(
            lambda: self._begin(prepared, entry),
            may_start=lambda: self._gate.may_start(prepared.action),
            on_given=started,
        )
        execution: Execution | None = None
        if prepared.tool.holds_until_cleared:
            execution = await self._execute(prepared, entry, permit, request, scope)
        try:
            _, cancelled = await settled(permit.written())
        except (ReceiptError, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 - a defect on the way to the act is a no
            _log.error("a call could not be prepared, it is denied", exc_info=error)
            unprepared = denied(f"it could not be prepared: {type(error).__name__}")
            return await self._refuse(entry, unprepared, request, scope)
        if execution is None and not cancelled:
            with contextlib.suppress(ForbiddenError):
                await permit()
                execution = await self._execute(prepared, entry, permit, request, scope)
        begun = await permit.written()  # it is: this returns at once
        refused = None if permit.is_given else not_permitted(permit, execution)
        if begun.visit is not None:
            await settled(self._leave(begun.visit, scope))
        if refused is not None:
            await settled(self._flow.end(begun.passage))
            outcome = await self._refuse(entry, refused, request, scope)
        else:
            assert execution is not None
            outcome = await self._finish(execution, begun.passage, entry, request, scope)
        if cancelled or outcome.kind == "cancelled" or cancel_is_wanted():
            raise asyncio.CancelledError
        return outcome

    async def _execute(
        self,
        prepared: PreparedCall,
        entry: Entry,
        permit: StartPermit[_Begun],
        request: CallRequest,
        scope: CallScope,
    ) -> Execution:
        is_full = entry.approval == "auto" and self._gate.is_full(prepared.action)
        context = msgspec.structs.replace(
            prepared.context, cleared=permit, is_answered=is_full or entry.approval == "user"
        )
        reach = None
        if prepared.tool.reaches_hosts:
            resolved = functools.partial(self._reports.resolved, scope=scope)
            granted = prepared.tool.hosts
            reach = self._hosts.reach(prepared.action, request, scope, resolved, granted)
        if reach is not None:
            context = msgspec.structs.replace(context, way_out=reach.way_out, hosts=reach)
        execution = await self._executor.run(
            prepared.tool, prepared.arguments, context, call=entry.id
        )
        if reach is not None:
            entry.contacted, entry.refused = reach.contacted(), reach.refused()
        else:
            entry.contacted = execution.result.contacted
            entry.refused = execution.result.refused
        if execution.kind == "failed" and self._is_stopped(prepared):
            return Execution(kind="stopped", result=failed(ESTOP_REASON))
        if execution.kind == "ok" and not permit.is_given:
            _log.error("%s did not wait until it was cleared", prepared.tool.name)
            return Execution(kind="failed", result=failed("it did not wait until it was cleared"))
        if execution.result.error:
            execution = self._named_as_offered(execution, prepared)
        if reach is not None:
            execution = msgspec.structs.replace(execution, result=reach.told(execution.result))
        if execution.result.images:
            execution, _ = await settled(self._with_pictures(execution))
        if not permit.is_given or not self._reports.is_long(told(execution)):
            return execution
        # A cancellation meanwhile is seen again when the receipt is written.
        kept, _ = await settled(self._kept_whole(execution, prepared))
        return kept

    async def _with_pictures(self, execution: Execution) -> Execution:
        """Read the pictures of a result; lines name each by its hash, so that the receipt does."""
        images, reader = execution.result.images, self._settings.pictures
        found: list[Picture] = []
        lines: list[str] = []
        for number, data in enumerate(images[:MAX_PICTURES] if reader else (), start=1):
            assert reader is not None
            try:
                found.append(await reader.read(data, f"picture {number}"))
                lines.append(found[-1].mark)
            except ClawError as error:
                lines.append(f"[{error.message}]")
        if left := len(images) - len(lines):
            lines.append(f"[{left} pictures were left out]")
        return msgspec.structs.replace(
            execution, pictures=tuple(found), pictures_told="\n".join(lines)
        )

    async def _kept_whole(self, execution: Execution, prepared: PreparedCall) -> Execution:
        """Keep a result that is too long to be told, and note where."""
        said = told(execution)
        tool, context = prepared.tool.name, prepared.context
        clean = await in_thread(lambda: self._journal.without_secrets(said))
        kept = await self._output.keep(clean, tool=tool, context=context)
        if not kept:
            return execution
        note = f"[cut: the whole, {len(clean.encode(errors='replace'))} bytes, is {kept}"
        if READER in prepared.offer.names:
            # Tags are longer or shorter than the secrets in whose places they are kept.
            told_bytes = self._reports.head_bytes(said)
            head = said.encode(errors="replace")[:told_bytes].decode(errors="ignore")
            head = await in_thread(lambda: self._journal.without_secrets(head))
            reader, told_bytes = prepared.offer.of(READER), min(told_bytes, len(head.encode()))
            note += f"; {reader} with offset={told_bytes} shows more of it"
        return msgspec.structs.replace(execution, cut_note=f"{note}]")

    def _named_as_offered(self, execution: Execution, prepared: PreparedCall) -> Execution:
        """Let an error name tools as the session calls them; what it quotes stays as it is."""
        result = execution.result
        if result.success:
            return execution
        spared = CANONICAL.encode(prepared.arguments).decode(errors="replace")
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
        said = told(execution)
        if entry.edited_by or entry.changed_by:
            said = self._journal.without_secrets(self._reports.edited(entry)) + said
        text = self._reports.clip(said, execution.cut_note)
        shown = (execution.pictures_told,) if execution.pictures_told else ()
        status: Status = "allowed" if result.success else "failed"
        kept = self._reports.clip(self._journal.without_secrets(said), execution.cut_note)
        kept = "\n".join((kept, *shown))
        finish = self._write_receipt(entry, status, kept, result, passage, scope)
        receipt_id, cancelled = await settled(finish)
        outcome = CallOutcome(
            kind=execution.kind,
            status=status,
            text="\n".join((text, *shown)),
            receipt_id=receipt_id,
            risk=entry.risk,
            duration_ms=entry.duration_ms,
            asked=entry.asked,
            metadata=result.metadata,
            tool=entry.tool,
            arguments=entry.arguments,
            changes=entry.changes if result.success else (),
            pictures=execution.pictures,
        )
        hooks, is_over = self._settings.hooks, execution.kind in {"cancelled", "stopped"}
        try:
            if not (cancelled or is_over) and hooks is not None and hooks.settings():
                await self._hooks_after(hooks, outcome, entry, scope)
        except asyncio.CancelledError:
            cancelled = True
        text = "\n".join((outcome.text, *entry.remarks))
        outcome = msgspec.structs.replace(outcome, text=text)
        self._reports.finished(outcome, entry, request, scope)
        if cancelled:
            raise asyncio.CancelledError
        return outcome

    async def _hooks_after(
        self, hooks: Hooks, outcome: CallOutcome, entry: Entry, scope: CallScope
    ) -> None:
        """Tell the owner's hooks what came of a call; what they say is told with its result."""
        for hook in hooks.of("after_tool", entry.tool):
            facts = {
                "arguments": msgspec.Raw(entry.arguments),
                "receipt": outcome.receipt_id,
                "status": outcome.status,
                "result": outcome.text,
            }
            scene = HookScene(
                conversation_id=scope.conversation_id,
                principal=scope.principal,
                workspace=scope.workspace,
                tool=entry.tool,
                facts=facts,
            )
            run = await hooks.run(hook, scene)
            if hooks.is_news(run):
                text = f"the hook {hook.name} {run.problem}"
                scope.emit(Notice(level="warning", text=text))
            if run.answer.decision == "deny":
                entry.remarks += (f"[the hook {hook.name} objects: {run.reason}]",)
            entry.remarks += (run.remark,) if run.remark else ()

    def _is_stopped(self, prepared: PreparedCall) -> bool:
        """Return whether the stop is set, which kills processes before it cancels their calls."""
        verdict = self._gate.may_start(prepared.action)
        return (
            prepared.tool.starts_process and isinstance(verdict, Deny) and verdict.kind == "estop"
        )

    async def _begin(self, prepared: PreparedCall, entry: Entry) -> _Begun:
        await self._journal.begin(entry)
        tool, context = prepared.tool, prepared.context
        touched = touched_by(tool, prepared.arguments, context)
        passage = await self._flow.begin(context.conversation_id, touched)
        commands = self._settings.commands
        if commands is None or not (tool.starts_process and self._may_write(prepared, entry)):
            return _Begun(passage=passage)
        visit = await commands.enter(call_facts(context, tool.name))
        return _Begun(passage=passage, visit=visit)

    def _may_write(self, prepared: PreparedCall, entry: Entry) -> bool:
        """Return whether a call that starts a process can change the workspace."""
        tool, context = prepared.tool, prepared.context
        if entry.risk == "low":
            return False
        return context.workspace in touched_by(tool, prepared.arguments, context).writes

    # --- after the act

    async def _leave(self, visit: CommandChanges, scope: CallScope) -> None:
        """Have what a command changed kept for undo, and say what is not covered."""
        assert self._settings.commands is not None
        aftermath = await self._settings.commands.leave(visit)
        if aftermath.uncovered:
            text = f"undo does not cover all of this: {'; '.join(aftermath.uncovered)}"
            scope.emit(Notice(level="warning", text=text))

    async def _write_receipt(
        self,
        entry: Entry,
        status: Status,
        text: str,
        result: ToolResult,
        passage: Passage,
        scope: CallScope,
    ) -> str:
        """Note what untrusted text the result brings, then write the receipt; returns its id.

        In this order, since a result that has a receipt may be told after a crash.
        """
        exit_code = result.metadata.get("exit_code")
        try:
            await self._flow.end(passage, result)
            if scope.keep_taint is not None:
                await scope.keep_taint()
        finally:  # what was done has its receipt all the same
            receipt_id = await self._journal.finish(
                entry, status, text, exit_code=exit_code if isinstance(exit_code, int) else None
            )
        return receipt_id


def _asked_too(verdict: Allow | Ask | Deny, because: str) -> Allow | Ask | Deny:
    """Return a verdict where there is more to ask a person about; a no stays one."""
    if isinstance(verdict, Deny):
        return verdict
    if isinstance(verdict, Allow):
        return Ask(reason=because)
    return msgspec.structs.replace(verdict, reason=f"{verdict.reason}; {because}")


def _scene(prepared: PreparedCall, scope: CallScope, entry: Entry, arguments: bytes) -> HookScene:
    """Return what hooks are told of a call that is to be judged."""
    return HookScene(
        conversation_id=scope.conversation_id,
        principal=scope.principal,
        workspace=scope.workspace,
        tool=prepared.tool.name,
        facts={"arguments": msgspec.Raw(arguments), "receipt": entry.id},
    )
