"""An approval of a tool whose program is not clawd's own is one of that program, and no other."""

import asyncio
from typing import ClassVar

from clawd.security.approvals import Answer
from clawd.tools.dispatch import Dispatcher
from clawd.tools.outcome import CallOutcome, CallRequest
from tests.support.dispatching import Bench, Probe
from tests.support.rows import each_row


class First(Probe):
    """Of a program that was approved."""

    identity: ClassVar[str] = "a" * 64


class Second(Probe):
    """Of the same name, of another program."""

    identity: ClassVar[str] = "b" * 64


def request(number: int) -> CallRequest:
    return CallRequest(id=f"call-{number}", tool="probe", arguments='{"text": "x"}')


async def run(
    bench: Bench, dispatcher: Dispatcher, number: int, answer: Answer | None = None
) -> CallOutcome:
    task = asyncio.create_task(dispatcher.call(request(number), bench.scope()))
    if answer is not None:
        await bench.answer(answer)
    return await task


@each_row("word", ["conversation", "always"], fresh=["bench"])
async def test_a_rule_ends_where_the_program_is_another(bench: Bench, word: Answer) -> None:
    first, second = First(risk="medium"), Second(risk="medium")
    dispatcher = bench.dispatcher([first])
    assert (await run(bench, dispatcher, 1, word)).status == "allowed"
    assert (await run(bench, dispatcher, 2)).status == "allowed"
    dispatcher.registry.replace([second])
    assert (await run(bench, dispatcher, 3, "deny")).status == "denied"
    assert (first.calls, second.calls) == (2, 0)


async def test_a_call_that_waited_does_not_run_another_program(bench: Bench) -> None:
    first, second = First(risk="medium"), Second(risk="medium")
    dispatcher = bench.dispatcher([first])
    task = asyncio.create_task(dispatcher.call(request(1), bench.scope()))
    async with asyncio.timeout(60):
        pending = await bench.asked.get()
    assert pending.question.action.environment == {"TOOL_HASH": "a" * 32}
    dispatcher.registry.replace([second])
    bench.approvals.answer(
        pending.id, "once", pending.question.action.principal, digest=pending.digest
    )
    outcome = await task
    assert outcome.status == "denied"
    assert "the tool was changed while the call waited" in outcome.text
    assert (first.calls, second.calls) == (0, 0)


async def test_a_tool_of_clawds_own_may_be_made_anew_while_a_call_waits(bench: Bench) -> None:
    dispatcher = bench.dispatcher([Probe(risk="medium")])
    task = asyncio.create_task(dispatcher.call(request(1), bench.scope()))
    async with asyncio.timeout(60):
        pending = await bench.asked.get()
    fresh = Probe(risk="medium")
    dispatcher.registry.replace([fresh])
    bench.approvals.answer(
        pending.id, "once", pending.question.action.principal, digest=pending.digest
    )
    assert (await task).status == "allowed"
    assert fresh.calls == 1
