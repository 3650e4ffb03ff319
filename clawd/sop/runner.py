"""The runs of procedures: started, driven step by step, stopped, and gone on with after a crash.

What a run is about to do is on disk before it is done, and what came of it before anything else
is. A run is a task of the runner; it waits for people without one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from clawd import errors
from clawd.memory.sop_runs import SopRunRow, SopRunRows
from clawd.receipts.record import new_id, new_ulid
from clawd.runtime.conversation import CONFINED, ConversationBook, LiveConversation
from clawd.runtime.settings import RuntimeSettings
from clawd.security.estop import ESTOP_REASON, Stop
from clawd.security.principal import Principal
from clawd.security.risk import Autonomy
from clawd.sop import machine
from clawd.sop.expressions import (
    TYPES,
    ExpressionError,
    as_text,
    evaluate,
    parse,
    read_json,
    render,
    render_tree,
)
from clawd.sop.load import MAX_DEPTH, MAX_ITEMS, InputType, Procedure, SopInput, SopStep, load
from clawd.sop.steps import Hold, StepActor
from clawd.sop.store import SopStore
from clawd.tools.base import in_thread
from clawd.tools.outcome import CallScope, SopAnswer
from clawd.wire.events import Notice
from clawd.wire.safe_text import visible

MAX_RUNNING = 16
MAX_ASKED = 4_000
MAX_RECOVERIES = 3
END_LIMIT_S = 10.0

RunAnswer = Literal["", "approve", "deny", "repeat", "done", "failed"]

_log = logging.getLogger(__name__)


class SopStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is started with.

    Attributes:
        workspace: where it works; "" is the configured one.
        origin: what starts it, for people: `user`, `schedule nightly`, `run …`.
        mode: how far its calls may go; "" is as configured.
        grants: patterns of calls that need no approval in it, where no standing rule is to allow
            anything; None where they do.
        id: "" is a fresh one.
        parent: the run of which it is a step.
        within: the conversation that starts it; what is untrusted there is so in the run.
        bounds: what its calls and agents may have at most.
    """

    name: str
    workspace: str = ""
    inputs: dict[str, Any] = {}
    origin: str = "user"
    mode: Literal["", "readonly", "supervised", "edits", "full"] = ""
    grants: tuple[str, ...] | None = None
    id: str = ""
    parent: str = ""
    within: str = ""
    bounds: machine.Bounds = machine.Bounds()


class SopParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner works with.

    Attributes:
        store: the procedures.
        rows: the runs.
        actor: makes attempts of steps.
        book: the conversations.
        settings: returns the settings in force.
        estop: while it is set nothing goes on.
        record: writes the receipt of what a person answered, and returns its id.
        is_key_in_force: returns whether a key of the HTTP gateway may still be used.
    """

    store: SopStore
    rows: SopRunRows
    actor: StepActor
    book: ConversationBook
    settings: Callable[[], RuntimeSettings]
    estop: Stop
    record: Callable[[SopAnswer], Awaitable[str]]
    is_key_in_force: Callable[[str], bool]


class _Driven:
    """A run that goes on."""

    def __init__(self, run: machine.SopRun) -> None:
        self.run = run
        self.is_cancelled = False
        self.task: asyncio.Task[None] | None = None


class SopRunner:
    """Runs procedures. One of a daemon."""

    def __init__(self, parts: SopParts) -> None:
        self.store = parts.store
        self._parts = parts
        self._driven: dict[str, _Driven] = {}
        self._changes: dict[str, asyncio.Event] = {}
        self._is_closing = False

    # --- what is asked for

    async def start(
        self,
        name: str,
        workspace: str,
        inputs: dict[str, Any],
        origin: str,
        *,
        principal: Principal,
    ) -> str:
        """Start a run and return its id; it goes on by itself.

        Raises:
            ClawError: there is no such procedure that may run, or the inputs are not its own.
        """
        begin = SopStart(name=name, workspace=workspace, inputs=inputs, origin=origin)
        return (await self.begin(begin, principal)).id

    async def begin(self, start: SopStart, principal: Principal) -> machine.SopRun:
        """Start a run as `start` does.

        Raises:
            BusyError: too many go on.
            StoppedError: the emergency stop is set.
            ClawError: there is no such procedure that may run, or the inputs are not its own.
        """
        self._check_room(is_child=bool(start.parent))
        settings = self._parts.settings()
        folder = settings.resolve_workspace(start.workspace)
        sop = await in_thread(lambda: self.store.ready(start.name, folder))
        inputs = given_inputs(sop.procedure.inputs, start.inputs)
        live = await self._parts.book.create(
            principal,
            settings,
            workspace=str(folder),
            agent="",
            title=f"SOP {start.name}",
            grants=start.grants,
        )
        if start.mode:
            await self._parts.book.set_mode(live, start.mode, principal)
        if start.within:
            await self._parts.book.load(start.within, principal)
            self._parts.book.taint(live.record.id, self._parts.book.sources(start.within))
            await self._parts.book.keep_taint(live.record.id, principal)
        run = machine.SopRun(
            id=start.id or f"run-{new_ulid()}",
            name=start.name,
            digest=sop.digest,
            source=sop.source,
            workspace=str(folder),
            principal=principal,
            conversation_id=live.record.id,
            created_at=_now(),
            origin=start.origin,
            mode=start.mode,
            grants=start.grants,
            inputs=inputs,
            parent=start.parent,
            bounds=start.bounds,
        )
        run = await self._save(run)
        _log.info("procedure started", extra={"run": run.id, "sop": run.name, "origin": run.origin})
        self._drive(run)
        return run

    async def resume(
        self, beginning: str, principal: Principal, answer: RunAnswer = ""
    ) -> machine.SopRun:
        """Let a run go on that waits, or was stopped; `answer` is what it waits for.

        Raises:
            NotFoundError: there is none that the principal may see.
            InvalidRequestError: it ended, goes on already, or waits for another word.
            StoppedError: the emergency stop is set.
            ClawError: the answer cannot be recorded.
        """
        run = await self.load(beginning, principal)
        if run.status in machine.ENDED:
            raise errors.InvalidRequestError(f"{run.id} has {run.status}; start another run")
        if run.id in self._driven:
            raise errors.InvalidRequestError(f"{run.id} goes on already")
        self._check_room()
        procedure = self._procedure(run)
        run = await self._answered(procedure, run, principal, answer)
        again = msgspec.structs.replace(run, recoveries=0)
        run = await self._save(machine.held(again, "running", run.reason))
        self._drive(run)
        return run

    async def cancel(self, beginning: str, principal: Principal) -> machine.SopRun:
        """End a run for good, and what it does; nothing is taken back.

        Raises:
            NotFoundError: there is none that the principal may see.
            InvalidRequestError: it has ended.
        """
        run = await self.load(beginning, principal)
        if run.status in machine.ENDED:
            raise errors.InvalidRequestError(f"{run.id} has {run.status} already")
        driven = self._driven.get(run.id)
        if driven is not None and driven.task is not None:
            driven.is_cancelled = True
            driven.task.cancel()
            await asyncio.wait([driven.task])
            run = driven.run
        else:
            run = await self._save(machine.held(run, "cancelled", "cancelled by the user"))
        for state in run.steps.values():
            if state.status == "running" and state.mark.startswith("run-"):
                await self._cancel_child(state.mark, principal)
        return run

    async def load(self, beginning: str, principal: Principal) -> machine.SopRun:
        """Return a run that the principal may see, by its id or a beginning of it.

        Raises:
            NotFoundError, InvalidRequestError: there is none, or more than one.
        """
        row = await self._parts.rows.match(beginning)
        if not principal.may_see(row.owner, row.key):
            raise errors.NotFoundError(f"there is no run {beginning[:64]!r}")
        driven = self._driven.get(row.id)
        return driven.run if driven is not None else decoded(row)

    async def listed(
        self, principal: Principal, *, name: str = "", open_only: bool = False, limit: int = 50
    ) -> list[machine.SopRun]:
        """Return the runs that a principal may see, newest first."""
        owner = None if principal.is_admin else principal.uid
        rows = await self._parts.rows.listed(
            owner=owner, name=name, open_only=open_only, limit=limit
        )
        return [decoded(row) for row in rows if principal.may_see(row.owner, row.key)]

    async def rest(self, run_id: str) -> machine.SopRun:
        """Wait until a run ends or waits, and return it."""
        driven = self._driven.get(run_id)
        if driven is not None and driven.task is not None:
            await asyncio.wait([driven.task])
            return driven.run
        return decoded(await self._parts.rows.match(run_id))

    async def at_end(self, run_id: str) -> machine.SopRun:
        """Wait until a run has ended or was stopped, also while it waits for people; return it.

        When the daemon ends it is returned as far as it is.
        """
        while True:
            changed = self._changes.setdefault(run_id, asyncio.Event())
            run = await self.rest(run_id)
            if run.status in {*machine.ENDED, "stopped"} or self._is_closing:
                self._changes.pop(run_id, None)
                return run
            await changed.wait()

    def procedure(self, run: machine.SopRun) -> Procedure:
        """Return what a run does, as it was when it began."""
        return self._procedure(run)

    # --- what a turn starts

    def turn_scope(self, conversation_id: str) -> CallScope | None:
        """Return for whom and where the turn calls that runs in a conversation; None for none."""
        return self._parts.actor.turn_scope(conversation_id)

    def is_of_run(self, conversation_id: str) -> bool:
        """Return whether a conversation is that of a run which goes on."""
        return any(each.run.conversation_id == conversation_id for each in self._driven.values())

    def mode_of(self, conversation_id: str, scope: CallScope) -> Autonomy | Literal[""]:
        """Return how far a run may go that a turn starts: as far as the turn; "" as configured."""
        live = self._parts.book.live(conversation_id)
        # What a turn is held to at most is the narrowest mode.
        return scope.at_most or (live.mode if live is not None else "")  # type: ignore[return-value]  # as it was set

    def grants_of(self, conversation_id: str) -> tuple[str, ...] | None:
        """Return what a run is granted that a turn starts: no standing rule where none holds."""
        live = self._parts.book.live(conversation_id)
        return () if live is not None and live.record.metadata.get(CONFINED) else None

    async def abandon(self, run_id: str, principal: Principal) -> None:
        """End a run whose turn was cancelled; one that the emergency stop holds can go on."""
        if self._is_closing or self._parts.estop.is_set():
            return
        try:
            await self.cancel(run_id, principal)
        except errors.ClawError as error:
            _log.info("a run was not cancelled with its turn: %s", error.message)

    async def conversation(self, run: machine.SopRun) -> LiveConversation:
        """Return the conversation of a run.

        Raises:
            NotFoundError: it was deleted.
        """
        return await self._parts.actor.live(run)

    async def sources(self, run: machine.SopRun) -> tuple[str, ...]:
        """Return where the untrusted text of a run came from."""
        try:
            live = await self._parts.actor.live(run)
        except errors.NotFoundError:
            return (f"run {run.id}",)
        return self._parts.book.sources(live.record.id)

    # --- the daemon's life

    async def recover(self) -> int:
        """Let the runs go on that went on when the daemon ended; return how many do."""
        rows = await self._parts.rows.listed(open_only=True, limit=1000)
        for row in rows:
            run = decoded(row)
            if run.status != "running" or run.id in self._driven:
                continue
            if self._parts.estop.is_set():
                await self._save(machine.held(run, "stopped", ESTOP_REASON))
            elif run.recoveries >= MAX_RECOVERIES:
                why = f"clawd ended {run.recoveries} times in its last step"
                await self._save(machine.held(run, "stopped", why))
            else:
                again = msgspec.structs.replace(run, recoveries=run.recoveries + 1)
                self._drive(await self._save(again))
        return len(self._driven)

    async def close(self) -> None:
        """Cut off what goes on; the next daemon goes on with it."""
        self._is_closing = True
        for changed in self._changes.values():
            changed.set()
        tasks = [each.task for each in self._driven.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=END_LIMIT_S)
            if stuck:
                _log.error("%d runs did not end when they were cut off", len(stuck))

    # --- one run

    def _check_room(self, *, is_child: bool = False) -> None:
        if self._is_closing:
            raise errors.BusyError("clawd is ending", retry_after_s=5.0)
        if self._parts.estop.is_set():
            raise errors.StoppedError(
                ESTOP_REASON, hint="an admin clears it: clawctl estop --clear"
            )
        if len(self._driven) >= MAX_RUNNING and not is_child:
            raise errors.BusyError(f"{len(self._driven)} runs go on already", retry_after_s=30.0)

    def _procedure(self, run: machine.SopRun) -> Procedure:
        return load(run.source.encode(), "", self.store.schemas).procedure

    async def _save(self, run: machine.SopRun) -> machine.SopRun:
        run = msgspec.structs.replace(run, updated_at=_now())
        row = SopRunRow(
            id=run.id,
            owner=run.principal.uid,
            key=run.principal.key_id,
            name=run.name,
            status=run.status,
            run=msgspec.json.encode(run).decode(),
        )
        await self._parts.rows.put(row, is_ended=run.status in machine.ENDED)
        driven = self._driven.get(run.id)
        if driven is not None:
            driven.run = run
        if run.id in self._changes:
            self._changes.pop(run.id).set()
        return run

    def _drive(self, run: machine.SopRun) -> None:
        driven = self._driven[run.id] = _Driven(run)
        driven.task = asyncio.create_task(self._driven_to_rest(driven))

    async def _driven_to_rest(self, driven: _Driven) -> None:
        """Drive a run until it ends or waits; whatever happens, it is kept as far as it is."""
        run = driven.run
        try:
            key = run.principal.key_id
            if key and not self._parts.is_key_in_force(key):
                raise errors.ForbiddenError("it was started with a key that is not in force")
            await self._steps(self._procedure(run), run)
        except asyncio.CancelledError:
            if driven.is_cancelled:
                await self._keep(machine.held(driven.run, "cancelled", "cancelled by the user"))
        except errors.ClawError as error:
            await self._keep(machine.held(driven.run, "stopped", error.message))
        except Exception as error:  # noqa: BLE001 - the outermost handler of a run
            _log.error("a run of a procedure failed with a defect", exc_info=error)
            await self._keep(
                machine.held(driven.run, "stopped", f"a defect: {type(error).__name__}")
            )
        finally:
            del self._driven[run.id]
        await self._ended(driven.run)

    async def _keep(self, run: machine.SopRun) -> None:
        try:
            await self._save(run)
        except errors.ClawError as error:
            _log.error("how far a run is could not be kept: %s", error.message)

    async def _ended(self, run: machine.SopRun) -> None:
        if run.status == "running":
            return  # the daemon ends
        _log.info("procedure at rest", extra={"run": run.id, "status": run.status})
        text = f"SOP {run.name} {_SAID[run.status]}: {run.reason or run.id}"
        level: Literal["info", "warning"] = "info" if run.status == "succeeded" else "warning"
        try:
            live = await self._parts.actor.live(run)
            live.broadcast.emit(Notice(level=level, text=text))
            if run.parent and run.status in machine.ENDED and run.parent not in self._driven:
                parent = decoded(await self._parts.rows.match(run.parent))
                if parent.status in {"waiting", "stopped"}:
                    self._drive(await self._save(machine.held(parent, "running")))
        except errors.ClawError as error:
            _log.info("a run is not announced: %s", error.message)

    async def _steps(self, procedure: Procedure, run: machine.SopRun) -> None:
        while not isinstance(move := machine.next_move(procedure, run), machine.Finish):
            if self._parts.estop.is_set():
                await self._save(machine.held(run, "stopped", ESTOP_REASON))
                return
            run = await self._step(procedure, run, move.step)
            if run.status != "running":
                return
        await self._save(machine.held(run, move.status, move.reason))

    async def _step(
        self, procedure: Procedure, run: machine.SopRun, step: SopStep
    ) -> machine.SopRun:
        """Bring a step one attempt further; what is returned is on disk."""
        status = run.state(step.id).status
        if status in {"running", "waiting", "unsure"}:
            done = await self._cut_off(run, step)
        else:
            begun_run = self._begun(procedure, run, step)
            if begun_run.state(step.id).status != "running":
                return await self._save(begun_run)
            run = await self._save(begun_run)
            done = await self._attempt(procedure, run, step)
        if done is None:
            return await self._save(machine.undone(run, step.id))
        if isinstance(done, machine.StepOutcome):
            return await self._save(machine.settled(procedure, run, step, done))
        if done.undone:
            run = machine.undone(run, step.id)
        elif done.status in {"waiting", "unsure"} and step.kind != "sub":
            run = machine.marked(run, step.id, "waiting" if done.status == "waiting" else "unsure")
        return await self._save(machine.held(run, done.status, done.reason))

    def _begun(self, procedure: Procedure, run: machine.SopRun, step: SopStep) -> machine.SopRun:
        """Return a run in which a step is begun, skipped, or failed before it could begin."""
        if why := machine.over_budget(procedure, run):
            return machine.failed_for_good(machine.marked(run, step.id, "failed"), why)
        scope, state, items = machine.scope_of(procedure, run, step), run.state(step.id), None
        try:
            is_new = state.attempts == 0 and state.items is None
            if is_new and step.when and not evaluate(parse(step.when), scope):
                return machine.marked(run, step.id, "skipped")
            if step.foreach and state.items is None:
                items = _items(evaluate(parse(step.foreach), scope))
                if not items:
                    return machine.marked(run, step.id, "done")
        except ExpressionError as error:
            failure = machine.StepOutcome(ok=False, error=str(error))
            return machine.settled(procedure, machine.begun(run, step.id, ""), step, failure)
        mark = f"run-{new_ulid()}" if step.kind == "sub" else new_id()
        return machine.begun(run, step.id, mark, items)

    async def _attempt(
        self, procedure: Procedure, run: machine.SopRun, step: SopStep
    ) -> machine.StepOutcome | Hold | None:
        scope = machine.scope_of(procedure, run, step)
        try:
            if step.kind == "approval":
                return Hold("waiting", _asked(as_text(render(step.prompt, scope))))
            if step.kind == "sub":
                return await self._child(procedure, run, step, render_tree(step.inputs, scope))
            return await self._parts.actor.act(run, step, scope)
        except ExpressionError as error:
            return machine.StepOutcome(ok=False, error=str(error))

    async def _cut_off(
        self, run: machine.SopRun, step: SopStep
    ) -> machine.StepOutcome | Hold | None:
        """Return what became of an attempt that was begun, and of which no outcome is kept."""
        if step.kind == "approval":
            return Hold("waiting", run.reason) if run.reason else None
        if step.kind == "sub":
            return await self._rested_child(run, run.state(step.id).mark, goes_on=True)
        return await self._parts.actor.found(run, step)

    # --- runs of runs

    async def _child(
        self, procedure: Procedure, run: machine.SopRun, step: SopStep, inputs: dict[str, Any]
    ) -> machine.StepOutcome | Hold:
        depth, above = 1, run.parent
        while above:
            depth, above = depth + 1, decoded(await self._parts.rows.match(above)).parent
        if depth >= MAX_DEPTH:
            return machine.StepOutcome(
                ok=False, error=f"procedures are nested more than {MAX_DEPTH} deep"
            )
        start = SopStart(
            name=step.sop,
            workspace=run.workspace,
            inputs=inputs,
            origin=f"run {run.id}",
            mode=run.mode,  # type: ignore[arg-type]  # as it was given
            grants=run.grants,
            id=run.state(step.id).mark,
            parent=run.id,
            within=run.conversation_id,
            bounds=machine.bounds_below(procedure, run),
        )
        try:
            child = await self.begin(start, run.principal)
        except errors.ClawError as error:
            return machine.StepOutcome(ok=False, error=error.message)
        found = await self._rested_child(run, child.id)
        assert found is not None
        return found

    async def _rested_child(
        self, run: machine.SopRun, child_id: str, *, goes_on: bool = False
    ) -> machine.StepOutcome | Hold | None:
        """Wait for a run that is a step of another; None where it never began.

        With `goes_on` one that was stopped is driven again.
        """
        try:
            child = await self.rest(child_id)
            if goes_on and child.status in {"running", "stopped"}:
                self._drive(await self._save(machine.held(child, "running")))
                child = await self.rest(child_id)
        except errors.NotFoundError:
            return None
        await self._parts.actor.live(run)
        self._parts.book.taint(run.conversation_id, await self.sources(child))
        await self._parts.book.keep_taint(run.conversation_id, run.principal)
        if child.status in machine.ENDED:
            ok = child.status == "succeeded"
            return machine.StepOutcome(
                ok=ok,
                output=machine.output_of(self._procedure(child), child) if ok else "",
                error="" if ok else f"{child.id} has {child.status}: {child.reason}",
                steps=child.steps_used,
                tokens=child.tokens_used,
            )
        status = child.status if child.status == "stopped" else "waiting"
        return Hold(status, f"{child.id} of {child.name} {_SAID[child.status]}: {child.reason}")

    async def _cancel_child(self, child_id: str, principal: Principal) -> None:
        try:
            await self.cancel(child_id, principal)
        except errors.ClawError as error:
            _log.info("a run of a run was not cancelled: %s", error.message)

    # --- people

    async def _answered(
        self, procedure: Procedure, run: machine.SopRun, principal: Principal, answer: RunAnswer
    ) -> machine.SopRun:
        """Return a run with what a person says to the step that waits for a word."""
        move = machine.next_move(procedure, run)
        step = move.step if not isinstance(move, machine.Finish) else None
        status = run.state(step.id).status if step is not None else ""
        allowed: tuple[str, ...] = ("",)
        if status == "waiting" and step is not None and step.kind == "approval":
            allowed = ("", "approve", "deny")
        elif status == "unsure":
            allowed = ("repeat", "done", "failed")
        if answer not in allowed:
            name = step.id if step is not None else run.id
            expected = " or ".join(filter(None, allowed)) or "no answer: clawctl sop resume"
            raise errors.InvalidRequestError(f"{name} takes {expected}, not {answer or 'nothing'}")
        if step is None or not answer:
            return run
        receipt = await self._parts.record(
            SopAnswer(
                run=run.id,
                step=step.id,
                asked=run.reason,
                word=answer,
                conversation_id=run.conversation_id,
                workspace=run.workspace,
                by=principal,
            )
        )
        if answer == "repeat":
            return machine.marked(run, step.id, "pending")
        ok = answer in {"approve", "done"}
        outcome = machine.StepOutcome(
            ok=ok,
            output=f"{'approved' if answer == 'approve' else 'done'} by uid {principal.uid}",
            error="" if ok else f"{_NO[answer]} by uid {principal.uid}",
            receipt_id=receipt,
        )
        return machine.settled(procedure, run, step, outcome)


_NO = {"deny": "denied", "failed": "reported as failed"}
_SAID: dict[str, str] = {
    "running": "goes on",
    "waiting": "waits",
    "unsure": "asks",
    "stopped": "was stopped",
    "succeeded": "is done",
    "failed": "has failed",
    "cancelled": "was cancelled",
}


def given_inputs(wanted: tuple[SopInput, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a run, defaults filled in.

    Raises:
        InvalidRequestError: one is missing, not known or of another type; all are named.
    """
    problems = [f"{name} is no input" for name in given if name not in {w.name for w in wanted}]
    values: dict[str, Any] = {}
    for each in wanted:
        value = _typed(given.get(each.name, each.default), each.type)
        if value is None:
            problems.append(f"{each.name} is missing")
        elif not TYPES[each.type](value):
            problems.append(f"{each.name} must be of type {each.type}")
        values[each.name] = value
    if problems:
        names = ", ".join(each.name for each in wanted) or "none"
        raise errors.InvalidRequestError("; ".join(problems[:10]), hint=f"The inputs are: {names}")
    return values


def _typed(value: Any, kind: InputType) -> Any:
    """Return a value that was written as text as the type that is wanted, where it can be."""
    if not isinstance(value, str) or kind == "string":
        return value
    try:
        return read_json(value)
    except ValueError:
        return value


def decoded(row: SopRunRow) -> machine.SopRun:
    """Return a run as it was kept; what it may do is no more than what is known of today."""
    run = msgspec.json.decode(row.run, type=machine.SopRun)
    known = msgspec.structs.replace(run.principal, pid=0, role="user")
    return msgspec.structs.replace(run, principal=known)


def _asked(text: str) -> str:
    """Return a question as a person reads it whole: nothing hidden in it, its end in sight."""
    text = visible(text)
    if len(text) <= MAX_ASKED:
        return text
    half = MAX_ASKED // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters are left out]\n{text[-half:]}"


def _items(value: object) -> list[Any]:
    """Return what a foreach goes through.

    Raises:
        ExpressionError: it is no list, or too long.
    """
    if isinstance(value, str):
        value = [line for line in value.splitlines() if line.strip()]
    if not isinstance(value, list):
        raise ExpressionError(
            f"foreach is {as_text(value)[:40]}; a list or lines of text are wanted"
        )
    if len(value) > MAX_ITEMS:
        raise ExpressionError(f"foreach has {len(value)} items; at most {MAX_ITEMS} are taken")
    return value


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
