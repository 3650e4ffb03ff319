"""Handlers about procedures and their runs."""

import logging
from contextlib import AsyncExitStack
from pathlib import Path

from clawd.channels.rpc.connection import Call
from clawd.errors import InvalidRequestError
from clawd.runtime.approval_prompts import approval_event
from clawd.service.build import Daemon
from clawd.service.handlers.shared import streaming, take_answer
from clawd.sop.load import SopStep
from clawd.sop.machine import SopRun, output_of
from clawd.sop.runner import SopStart
from clawd.sop.store import Sop
from clawd.sop.views import does, mermaid, on_failure_text, planned
from clawd.tools.base import in_thread
from clawd.wire import sops
from clawd.wire.codec import mirror
from clawd.wire.method import PAGE_LIMIT, Done

_log = logging.getLogger(__name__)


async def list_sops(daemon: Daemon, params: sops.ListSops, _call: Call) -> sops.SopList:
    """List the procedures of the home and of a workspace."""
    workspace = daemon.calls.workspace(params.workspace)
    items, left_out = await in_thread(lambda: daemon.sops.store.found(workspace))
    return sops.SopList(items=tuple(map(_line, items)), left_out=left_out)


async def inspect_sop(daemon: Daemon, params: sops.InspectSop, _call: Call) -> sops.SopReview:
    """Say what a procedure is."""
    if bool(params.path) == bool(params.name):
        raise InvalidRequestError("either a path or a name is wanted")
    store = daemon.sops.store
    if params.path:
        if "\0" in params.path or not Path(params.path).is_absolute():
            raise InvalidRequestError(f"{params.path[:80]!r} is no absolute path")
        sop = await in_thread(lambda: store.inspect(Path(params.path)))
    else:
        workspace = daemon.calls.workspace(params.workspace)
        sop = await in_thread(lambda: store.review(params.name, workspace))
    procedure = sop.procedure
    return sops.SopReview(
        sop=_line(sop),
        inputs=tuple(mirror(sops.SopInputLine, each) for each in procedure.inputs),
        steps=tuple(map(_step_line, procedure.steps)),
        compensations=tuple(map(_step_line, procedure.compensations)),
        source=sop.source,
        changes=sop.changes,
        mermaid=mermaid(procedure) if not sop.problems else "",
    )


async def enable_sop(daemon: Daemon, params: sops.EnableSop, call: Call) -> Done:
    """Let a workspace's procedure run as it is, or no longer."""
    workspace, name = daemon.calls.workspace(params.workspace), params.name
    by, digest, store = call.principal.uid, params.digest, daemon.sops.store
    if params.revoke:
        place = await in_thread(lambda: store.revoke(name, workspace))
    else:
        place = await in_thread(lambda: store.enable(name, workspace, digest=digest, by=by))
    what = "no longer enabled" if params.revoke else "enabled"
    _log.info("procedure %s", what, extra={"sop": str(place), "digest": digest, "by": by})
    return Done(message=f"{name} is {what}")


async def dry_run_sop(daemon: Daemon, params: sops.DryRunSop, call: Call) -> sops.SopPlan:
    """Say what a run would do."""
    workspace = daemon.calls.workspace(params.workspace)
    sop = await in_thread(lambda: daemon.sops.store.ready(params.name, workspace))
    return planned(sop.procedure, params.inputs, daemon.calls, call.principal, str(workspace))


async def run_sop(daemon: Daemon, params: sops.RunSop, call: Call) -> sops.SopRunReport:
    """Start a run, and follow it until it rests."""
    start = SopStart(name=params.name, workspace=params.workspace, inputs=params.inputs)
    run = await daemon.sops.begin(start, call.principal)
    return await _followed(daemon, run, params, call)


async def resume_sop(daemon: Daemon, params: sops.ResumeSop, call: Call) -> sops.SopRunReport:
    """Let a run go on, and follow it until it rests."""
    run = await daemon.sops.resume(params.run, call.principal, params.answer)
    return await _followed(daemon, run, params, call)


async def cancel_sop(daemon: Daemon, params: sops.CancelSop, call: Call) -> sops.SopRunReport:
    """End a run for good."""
    return _report(daemon, await daemon.sops.cancel(params.run, call.principal))


async def show_sop_run(daemon: Daemon, params: sops.ShowSopRun, call: Call) -> sops.SopRunReport:
    """Show a run."""
    return _report(daemon, await daemon.sops.load(params.run, call.principal))


async def list_sop_runs(daemon: Daemon, params: sops.ListSopRuns, call: Call) -> sops.SopRunList:
    """List the runs that the caller may see."""
    if not 1 <= params.limit <= PAGE_LIMIT:
        raise InvalidRequestError(f"limit is {params.limit}; it must be 1 to {PAGE_LIMIT}")
    found = await daemon.sops.listed(
        call.principal, name=params.name, open_only=params.open_only, limit=params.limit
    )
    return sops.SopRunList(items=tuple(map(_run_line, found)))


async def _followed(
    daemon: Daemon, run: SopRun, params: sops.RunSop | sops.ResumeSop, call: Call
) -> sops.SopRunReport:
    """Send what happens in a run until it rests; it does not end with the caller."""
    if params.detach:
        return _report(daemon, run)
    async with AsyncExitStack() as stack:
        live = await daemon.inbox.book.load(run.conversation_id, call.principal)
        # A client that answers nothing would answer no: what is asked waits for others.
        if call.shows_events and params.interactive:
            call.on_answer = lambda answer: take_answer(daemon, answer, call.principal)
            events = live.broadcast.subscribe()
            stack.callback(live.broadcast.unsubscribe, events)
            stack.enter_context(call.attending(live.attendance))
            for pending in daemon.approvals.pending(call.principal):
                if pending.question.action.conversation_id == run.conversation_id:
                    events.put(approval_event(pending))
            await stack.enter_async_context(streaming(events, call))
        return _report(daemon, await daemon.sops.rest(run.id))


def _line(sop: Sop) -> sops.SopLine:
    return mirror(
        sops.SopLine,
        sop,
        folder=str(sop.folder),
        description=sop.procedure.description,
        steps=len(sop.procedure.steps),
    )


def _step_line(step: SopStep) -> sops.SopStepLine:
    return mirror(sops.SopStepLine, step, does=does(step), on_failure=on_failure_text(step))


def _run_line(run: SopRun) -> sops.SopRunLine:
    states = [(name, state.status) for name, state in run.steps.items()]
    at = [name for name, status in states if status != "skipped"]
    return mirror(sops.SopRunLine, run, step=at[-1] if at else "")


def _report(daemon: Daemon, run: SopRun) -> sops.SopRunReport:
    procedure, steps = daemon.sops.procedure(run), []
    for step in (*procedure.steps, *procedure.compensations):
        state = run.state(step.id)
        steps.append(
            mirror(
                sops.SopStepReport,
                state,
                id=step.id,
                kind=step.kind,
                child=state.mark if step.kind == "sub" else "",
                done=len(state.outputs),
                items=len(state.items or ()),
            )
        )
    return sops.SopRunReport(
        run=_run_line(run),
        steps=tuple(steps),
        inputs=run.inputs,
        output=output_of(procedure, run),
        steps_used=run.steps_used,
        tokens_used=run.tokens_used,
    )
