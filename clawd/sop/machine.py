"""The state of a run and what follows from it: no clock, no disk, nobody to ask. Pure.

    while isinstance(move := next_move(procedure, run), Do):
        run = begun(run, move.step.id, mark)                       # on disk before it is done
        run = settled(procedure, run, move.step, outcome)          # on disk after

Steps are done in their order; the first that is not over is the next. When one fails for good the
compensations of those that were done follow, last first, and then the run has failed.
"""

from typing import Any

import msgspec

from clawd.security.principal import Principal
from clawd.security.risk import Autonomy
from clawd.sop.expressions import StepValue
from clawd.sop.load import Procedure, SopStep
from clawd.tools.narrowing import Narrowing
from clawd.wire.sops import SopRunStatus, SopStepStatus

ENDED = frozenset({"succeeded", "failed", "cancelled"})
_OVER = frozenset({"done", "failed", "skipped"})


class StepState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a step is.

    Attributes:
        attempts: how often it was tried; of a step with foreach, its item.
        mark: id of the receipt that the attempt at hand will have; what it may have done is found
            by it. Of a step of kind sub, the id of the run that it started.
        receipt_id: of the last attempt that is over.
        items: of a step with foreach, the list as it was when the step began; None before.
        outputs: of the items that are done.
    """

    status: SopStepStatus = "pending"
    attempts: int = 0
    mark: str = ""
    output: str = ""
    error: str = ""
    exit_code: int | None = None
    receipt_id: str = ""
    items: list[Any] | None = None
    outputs: tuple[str, ...] = ()


class Bounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run may have, where less than any other: that of the turn that started it.

    Attributes:
        tools: the names of those that it may call; None for all.
        narrowed: calls that one of these does not name are asked about.
        steps: what is left of the budget of the run of which it is a step; None without one.
        tokens: the same.
    """

    tools: tuple[str, ...] | None = None
    narrowed: tuple[Narrowing, ...] = ()
    steps: int | None = None
    tokens: int | None = None


class SopRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a procedure, as it is kept.

    Attributes:
        source: the SOP.toml that it runs, whatever becomes of the file.
        principal: for whom it runs.
        mode: how far its calls may go; "" is as configured.
        grants: as it was started with.
        conversation_id: of its calls, so that its receipts can be found among all others.
        failure: why it does not go forward any more; compensations are done then.
        recoveries: how often it was found running by a daemon that started, since its last step.
        parent: the run of which it is a step, or "".
        bounds: what its calls and agents may have at most.
    """

    id: str
    name: str
    digest: str
    source: str
    workspace: str
    principal: Principal
    conversation_id: str
    created_at: str
    updated_at: str = ""
    origin: str = "user"
    mode: Autonomy | str = ""
    grants: tuple[str, ...] | None = None
    inputs: dict[str, Any] = {}
    status: SopRunStatus = "running"
    reason: str = ""
    failure: str = ""
    steps: dict[str, StepState] = {}
    steps_used: int = 0
    tokens_used: int = 0
    recoveries: int = 0
    parent: str = ""
    bounds: Bounds = Bounds()

    def state(self, step: str) -> StepState:
        """Return how far a step is."""
        return self.steps.get(step, _UNTOUCHED)


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one attempt; `steps` and `tokens` are what it used of the budget."""

    ok: bool
    output: str = ""
    error: str = ""
    exit_code: int | None = None
    receipt_id: str = ""
    steps: int = 0
    tokens: int = 0


class Do(msgspec.Struct, frozen=True):
    """Do this step next."""

    step: SopStep


class Finish(msgspec.Struct, frozen=True):
    """Nothing is left to do."""

    status: SopRunStatus
    reason: str = ""


_UNTOUCHED = StepState()


def next_move(procedure: Procedure, run: SopRun) -> Do | Finish:
    """Return what is to be done now."""
    if not run.failure:
        for step in procedure.steps:
            if run.state(step.id).status not in _OVER:
                return Do(step)
        return Finish("succeeded")
    for step in reversed(procedure.steps):
        # What was done in part, item by item, is taken back as well.
        happened = run.state(step.id).status == "done" or run.state(step.id).outputs
        if step.compensation and happened:
            undo = procedure.step(step.compensation)
            if run.state(undo.id).status not in _OVER:
                return Do(undo)
    return Finish("failed", run.failure)


def over_budget(procedure: Procedure, run: SopRun) -> str:
    """Return which limit of the budget leaves no room for another attempt; "" for none.

    What takes back has room in any case.
    """
    if run.failure:
        return ""
    steps, tokens = _budget(procedure, run)
    if run.steps_used >= steps:
        return f"the budget of {steps} steps is used up"
    if tokens is not None and run.tokens_used >= tokens:
        return f"the budget of {tokens} tokens is used up"
    return ""


def bounds_below(procedure: Procedure, run: SopRun) -> Bounds:
    """Return what a run may have that is a step of this one."""
    steps, tokens = _budget(procedure, run)
    return msgspec.structs.replace(
        run.bounds,
        steps=max(steps - run.steps_used, 0),
        tokens=None if tokens is None else max(tokens - run.tokens_used, 0),
    )


def _budget(procedure: Procedure, run: SopRun) -> tuple[int, int | None]:
    """Return how many steps and tokens a run may use, None for without a limit."""
    budget, above = procedure.budget, run.bounds
    steps = budget.steps if above.steps is None else min(budget.steps, above.steps)
    limits = [each for each in (budget.tokens or None, above.tokens) if each is not None]
    return steps, min(limits, default=None)


def begun(run: SopRun, step: str, mark: str, items: list[Any] | None = None) -> SopRun:
    """Return a run in which an attempt of a step is about to be made."""
    state = run.state(step)
    again = msgspec.structs.replace(
        state,
        status="running",
        attempts=state.attempts + 1,
        mark=mark,
        items=state.items if items is None else items,
    )
    return _with(msgspec.structs.replace(run, steps_used=run.steps_used + 1), step, again)


def undone(run: SopRun, step: str) -> SopRun:
    """Return a run in which the attempt at hand never began: no retry and no budget is spent."""
    state = run.state(step)
    again = msgspec.structs.replace(state, status="pending", attempts=max(state.attempts - 1, 0))
    run = msgspec.structs.replace(run, steps_used=max(run.steps_used - 1, 0))
    return _with(run, step, again)


def marked(run: SopRun, step: str, status: SopStepStatus) -> SopRun:
    """Return a run with another status of a step."""
    return _with(run, step, msgspec.structs.replace(run.state(step), status=status))


def held(run: SopRun, status: SopRunStatus, reason: str = "") -> SopRun:
    """Return a run with another status of its own."""
    return msgspec.structs.replace(run, status=status, reason=reason)


def failed_for_good(run: SopRun, reason: str) -> SopRun:
    """Return a run that goes back from here."""
    return msgspec.structs.replace(run, failure=run.failure or reason)


def settled(procedure: Procedure, run: SopRun, step: SopStep, outcome: StepOutcome) -> SopRun:
    """Return a run with what came of an attempt, by the step's `on_failure`."""
    state = msgspec.structs.replace(
        run.state(step.id),
        error=outcome.error,
        exit_code=outcome.exit_code,
        receipt_id=outcome.receipt_id or run.state(step.id).receipt_id,
    )
    run = msgspec.structs.replace(
        run,
        steps_used=run.steps_used + outcome.steps,
        tokens_used=run.tokens_used + outcome.tokens,
        recoveries=0,
        reason="",
    )
    if outcome.ok:
        return _with(run, step.id, _after(state, outcome.output, is_done=True))
    if state.attempts <= step.on_failure.retries:
        return _with(run, step.id, msgspec.structs.replace(state, status="pending"))
    if step.on_failure.then == "continue":
        state = _after(state, outcome.output, is_done=False)
        return _with(run, step.id, state)
    state = msgspec.structs.replace(state, status="failed", output=outcome.output)
    run = _with(run, step.id, state)
    if step.on_failure.then == "goto" and not run.failure:
        ids = [each.id for each in procedure.steps]
        between = ids[ids.index(step.id) + 1 : ids.index(step.on_failure.target)]
        for each in between:
            run = marked(run, each, "skipped")
        return run
    if run.failure:  # a compensation failed: the others are tried all the same
        also = f"{run.failure}; {step.id} could not take back: {outcome.error}"
        return msgspec.structs.replace(run, failure=also)
    return failed_for_good(run, f"{step.id}: {outcome.error}")


def scope_of(procedure: Procedure, run: SopRun, step: SopStep) -> dict[str, Any]:
    """Return what the expressions of a step may refer to."""
    scope: dict[str, Any] = {
        each.id: StepValue(
            status=(state := run.state(each.id)).status,
            output=state.output,
            error=state.error,
            exit_code=state.exit_code,
            items=state.outputs,
        )
        for each in procedure.steps
    }
    scope["inputs"] = run.inputs
    scope["run"] = {"id": run.id, "name": run.name}
    state = run.state(step.id)
    if state.items is not None and len(state.outputs) < len(state.items):
        scope |= {"item": state.items[len(state.outputs)], "index": len(state.outputs)}
    return scope


def output_of(procedure: Procedure, run: SopRun) -> str:
    """Return the output of the last step that was done."""
    done = [each.id for each in procedure.steps if run.state(each.id).status == "done"]
    return run.state(done[-1]).output if done else ""


def _after(state: StepState, output: str, *, is_done: bool) -> StepState:
    """Return a step after an attempt that is over, with the next item where there is one."""
    if state.items is None:
        status: SopStepStatus = "done" if is_done else "failed"
        return msgspec.structs.replace(state, status=status, output=output)
    outputs = (*state.outputs, output if is_done else "")
    if len(outputs) < len(state.items):
        return msgspec.structs.replace(state, status="pending", attempts=0, outputs=outputs)
    status = "failed" if "" in outputs and not is_done else "done"
    text = "\n".join(outputs)
    return msgspec.structs.replace(state, status=status, outputs=outputs, output=text)


def _with(run: SopRun, step: str, state: StepState) -> SopRun:
    return msgspec.structs.replace(run, steps=run.steps | {step: state})
