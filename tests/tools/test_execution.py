"""Running a tool: limits, stops, cancellation, and work that must not be broken off."""

import asyncio

import pytest

from clawd.kernel.concurrency import settled
from clawd.tools.base import Arguments, ToolContext, ToolResult, succeeded
from clawd.tools.execution import Executor
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench, Held, Probe


@pytest.fixture
def context(bench: Bench) -> ToolContext:
    return ToolContext(conversation_id="", call_id="c", principal=ADA, workspace=bench.workspace)


async def test_a_call_that_works_is_ok(context: ToolContext) -> None:
    execution = await Executor().run(Probe(), {"text": "a"}, context, call="1")
    assert (execution.kind, execution.result) == ("ok", succeeded("ok a"))


async def test_one_stop_ends_all_calls_and_only_those(context: ToolContext) -> None:
    executor, helds = Executor(), [Held() for _ in range(5)]
    running = [
        asyncio.create_task(executor.run(Probe(act=held), {}, context, call=str(number)))
        for number, held in enumerate(helds)
    ]
    for held in helds:
        await held.has_begun()
    assert executor.stop_all() == 5
    executions = await asyncio.gather(*running)
    assert {execution.kind for execution in executions} == {"stopped"}
    assert all(held.is_cancelled for held in helds)
    assert executor.stop_all() == 0
    assert (await executor.run(Probe(), {}, context, call="0")).kind == "ok"


async def test_a_time_limit_does_not_touch_the_other_calls(context: ToolContext) -> None:
    executor, held = Executor(), Held()
    other = asyncio.create_task(executor.run(Probe(act=held), {}, context, call="1"))
    await held.has_begun()
    late = await executor.run(Probe(act=Held(), timeout_s=0.01), {}, context, call="2")
    assert late.kind == "timed_out"
    held.let_go.set()
    assert (await other).result == succeeded("let go")


async def test_a_cancelled_caller_gets_the_end_of_its_call_not_an_exception(
    context: ToolContext,
) -> None:
    held = Held()
    running = asyncio.create_task(Executor().run(Probe(act=held), {}, context, call="1"))
    await held.has_begun()
    running.cancel()
    assert (await running).kind == "cancelled"
    assert held.is_cancelled


async def test_nothing_runs_any_more_when_a_call_has_ended(context: ToolContext) -> None:
    """Even a tool that takes its time to die, and a caller that is cancelled again and again."""
    dying, may_die = asyncio.Event(), asyncio.Event()
    is_dead = False

    async def stubborn(_arguments: Arguments, _context: ToolContext) -> ToolResult:
        nonlocal is_dead
        try:
            await asyncio.Event().wait()
        finally:
            dying.set()
            await may_die.wait()
            is_dead = True
        raise AssertionError

    running = asyncio.create_task(
        Executor().run(Probe(act=stubborn, timeout_s=0.01), {}, context, call="1")
    )
    async with asyncio.timeout(LIMIT_S):
        await dying.wait()
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
    assert not running.done()
    may_die.set()
    assert (await running).kind == "timed_out"
    assert is_dead


async def test_a_time_limit_of_the_tools_own_is_a_failure(context: ToolContext) -> None:
    async def impatient(_arguments: Arguments, _context: ToolContext) -> ToolResult:
        raise TimeoutError

    execution = await Executor().run(Probe(act=impatient), {}, context, call="1")
    assert (execution.kind, execution.result.error) == ("failed", "probe failed: TimeoutError")


async def test_settled_work_goes_on_through_cancellation_and_tells_of_it() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await may_end.wait()
        return "written"

    task = asyncio.create_task(settled(work()))
    await begun.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    may_end.set()
    assert await task == ("written", True)


async def test_settled_work_that_nobody_cancels_says_so() -> None:
    async def work() -> int:
        return 7

    assert await settled(work()) == (7, False)


async def test_an_error_of_settled_work_is_raised() -> None:
    async def work() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await settled(work())
