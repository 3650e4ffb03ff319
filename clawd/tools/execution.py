"""Running a tool: in a task of its own, under a time limit, stoppable from outside at once."""

import asyncio
import logging
from typing import Any

from clawd.errors import ClawError
from clawd.security.estop import ESTOP_REASON
from clawd.tools.base import Tool, ToolContext, ToolResult, failed
from clawd.tools.outcome import Execution
from clawd.tools.settle import cancel_is_wanted

TIMEOUT_S = 30.0

_log = logging.getLogger(__name__)


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
        limit_s = tool.timeout_s or TIMEOUT_S
        task = asyncio.create_task(_guarded(tool, arguments, context))
        self._running[task] = call
        try:
            async with asyncio.timeout(limit_s):
                result = await asyncio.shield(task)
            return Execution(kind="ok" if result.success else "failed", result=result)
        except TimeoutError:
            await _end(task)
            limit = f"it took longer than {limit_s:g} s and was stopped"
            return Execution(kind="timed_out", result=failed(limit))
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
        return failed(error.message + (f" {error.hint}" if error.hint else ""))
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
