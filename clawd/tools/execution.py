"""Running a call: whether it may start, its task under a time limit, and why one did not act.

A call may act when its intent is on disk and the gate says yes once more. A tool that starts a
process first starts its sandbox, which is held at its gate, and asks then: the disk writes the
intent while the sandbox is set up. Other tools begin when this has been given. Each runs in a task
of its own, stoppable from outside at once.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from clawd.errors import ClawError, ForbiddenError
from clawd.kernel.concurrency import cancel_is_wanted
from clawd.security.approvals import PendingApproval
from clawd.security.estop import ESTOP_REASON
from clawd.security.policy import Allow, Deny
from clawd.tools.base import Tool, ToolContext, ToolResult, failed
from clawd.tools.outcome import Execution, OutcomeKind

TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Executor:
    """The calls that are running now."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[ToolResult], str] = {}
        self._stopped: set[str] = set()

    def stop_all(self) -> int:
        """Cancel every running call because of the emergency stop; returns how many there were."""
        for task, call in self._running.items():
            self._stopped.add(call)
            task.cancel()
        return len(self._running)

    async def run(
        self, tool: Tool, arguments: dict[str, Any], context: ToolContext, *, call: str
    ) -> Execution:
        """Run a tool to its end. Never raises: a cancellation of the caller is kind `cancelled`.

        Whatever way it ends, nothing of the call is running when this returns.
        """
        limit_s = None if tool.waits_for_person else tool.timeout_s or TIMEOUT_S
        task = asyncio.create_task(_guarded(tool, arguments, context))
        self._running[task] = call
        try:
            async with asyncio.timeout(limit_s) as limit:
                if context.way_out is not None:
                    context.way_out.halt(limit)
                result = await asyncio.shield(task)
            return Execution(kind="ok" if result.success else "failed", result=result)
        except TimeoutError:
            await _end(task)
            why = f"it took longer than {limit_s:g} s and was stopped"
            return Execution(kind="timed_out", result=failed(why))
        except asyncio.CancelledError:
            await _end(task)
            if call in self._stopped:
                return Execution(kind="stopped", result=failed(ESTOP_REASON))
            if not cancel_is_wanted():
                return Execution(kind="failed", result=failed(f"{tool.name} broke off by itself"))
            return Execution(kind="cancelled", result=failed("cancelled"))
        finally:
            del self._running[task]
            self._stopped.discard(call)


async def _guarded(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    try:
        result: object = await tool.invoke(arguments, context)
        if not isinstance(result, ToolResult):
            raise TypeError(f"{tool.name} returned a {type(result).__name__}")
        return result
    except ClawError as error:
        return failed(f"{error.message}; {error.hint}" if error.hint else error.message)
    except Exception as error:  # noqa: BLE001 - the outermost handler of a tool
        _log.error("tool %s failed with a defect", tool.name, exc_info=error)
        return failed(f"{tool.name} failed: {type(error).__name__}")


async def _end(task: asyncio.Task[ToolResult]) -> None:
    """Cancel a tool's task and wait until it is gone, even while being cancelled."""
    task.cancel()
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue


@dataclass(eq=False)
class StartPermit(Generic[_T]):
    """The permit of one call.

    Args:
        write_intent: puts the intent on disk, and what else must be there before the act; called
            when somebody first asks.
        may_start: the gate's last word.
        on_given: called once, before the call acts.
    """

    write_intent: Callable[[], Coroutine[Any, Any, _T]]
    may_start: Callable[[], Allow | Deny]
    on_given: Callable[[], None]
    is_given: bool = field(default=False, init=False)
    refusal: Deny | None = field(default=None, init=False)
    _intent: asyncio.Task[_T] | None = field(default=None, init=False)

    async def __call__(self) -> None:
        """Return when the call may act.

        Raises:
            StorageError: its intent is not on disk.
            ForbiddenError: the gate refuses it now.
        """
        await self.written()
        if self.is_given:
            return
        verdict = self.may_start()
        if isinstance(verdict, Deny):
            self.refusal = verdict
            raise ForbiddenError(verdict.reason)
        self.is_given = True
        self.on_given()

    async def written(self) -> _T:
        """Have the intent written and return what that gave; cancelling the wait undoes nothing.

        Raises:
            StorageError: it is not.
        """
        if self._intent is None:
            self._intent = asyncio.create_task(self.write_intent())
        return await asyncio.shield(self._intent)


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A call that did not act: the kind for programs, the receipt's reason, the model's text.

    `lapsed` is the question that nobody answered, where that may be done late.
    """

    kind: OutcomeKind
    reason: str
    text: str
    lapsed: PendingApproval | None = None


CANCELLED = Refused(kind="cancelled", reason="cancelled", text="error: cancelled")


def denied(reason: str, *, hint: str = "", kind: OutcomeKind = "denied") -> Refused:
    """Return a denial."""
    text = f"denied: {reason}" + (f" ({hint})" if hint else "")
    return Refused(kind=kind, reason=reason, text=text)


def refused_by(verdict: Deny) -> Refused:
    """Return what a verdict of the gate comes to."""
    if verdict.kind == "estop":
        return denied(verdict.reason, kind="stopped")
    return denied(verdict.reason, hint=verdict.hint)


def not_permitted(permit: StartPermit[Any], execution: Execution | None) -> Refused | None:
    """Return why a call did not get to act; None when it could not even get ready."""
    if permit.refusal is not None:
        return refused_by(permit.refusal)
    if execution is None or execution.kind == "cancelled":
        return CANCELLED
    return denied(ESTOP_REASON, kind="stopped") if execution.kind == "stopped" else None


def told(execution: Execution) -> str:
    """Return what the model is told of a call that ran."""
    result = execution.result
    if execution.kind == "stopped":
        return f"denied: {ESTOP_REASON}"
    if result.success:
        return result.output
    return f"error: {result.error}" + (f"\n{result.output}" if result.output else "")
