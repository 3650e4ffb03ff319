"""Hooks around turns: what they add and refuse, what they are told, and that no failure counts."""

import asyncio
import json
from typing import Any

import pytest

from clawd.errors import ForbiddenError, ProviderError
from clawd.runtime.hub import DaemonEvent
from clawd.runtime.turn_hooks import TurnHooks
from clawd.tools.hooks import Hook, Hooks, HookTrail
from clawd.tools.journal import Journal
from clawd.tools.taint_tracking import TaintTracking
from clawd.wire.events import ApprovalRequested, Notice, QuestionAsked
from tests.runtime.inboxes import House, events_of
from tests.runtime.models import Pause, fails, says
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench
from tests.tools.test_hooks import Programs, ended, gives, hook
from tests.tools.test_hooks import says as answers


def hooked(house: House, programs: Programs, *hooks: Hook) -> TurnHooks:
    bench = house.bench
    journal = Journal(bench.chain, bench.memory.ledger, bench.redactor)
    runner = Hooks(
        lambda: hooks,
        HookTrail(journal=journal, flow=TaintTracking(bench.taint)),
        sandbox=programs,
        owner=programs,
        is_stopped=bench.stop.is_set,
    )
    house.inbox._hooks = made = TurnHooks(runner, house.book)
    return made


def told_of(programs: Programs) -> list[dict[str, Any]]:
    plain = {"hook", "conversation", "folder"}
    return [{name: told[name] for name in told if name not in plain} for told in programs.told]


async def test_what_begins_with_a_turn_adds_to_its_message_and_taints(bench: Bench) -> None:
    house = House(bench, says("one"), says("two"))
    programs = Programs(ticket=answers(context="ticket 7 is open"))
    hooked(house, programs, hook("ticket", "turn_start", may=frozenset({"context"})))
    first = await house.say("hi")
    (asked,) = house.model.seen(0)
    text = asked.content or ""
    assert "[from hook ticket; untrusted text]\nticket 7 is open\n[end of hook]" in text
    assert text.endswith("\n\nhi")
    assert bench.taint.sources(first.conversation_id) == ("the hook ticket",)
    await house.say("again", first.conversation_id)
    assert house.model.seen(1)[0] == asked, "it is told once and stays as it was"
    assert told_of(programs)[0] == {"event": "turn_start", "message": "hi"}


async def test_what_begins_with_a_turn_may_refuse_the_message(bench: Bench) -> None:
    house = House(bench, says("never"))
    programs = Programs(hours=answers(decision="deny", reason="not at night"))
    hooked(house, programs, hook("hours", "turn_start"))
    ticket = await house.send("hi")
    with pytest.raises(ForbiddenError, match="the hook hours refuses it: not at night"):
        await ticket.finished()
    assert house.model.requests == []
    (run,) = bench.receipts()
    assert run.reason == "hours of [hooks] turn_start: deny: not at night"


async def test_what_ends_with_a_turn_is_told_how_it_went(bench: Bench) -> None:
    house = House(bench, says("done"), fails(ProviderError("out of order", kind="network")))
    programs = Programs(note=answers())
    hooked(house, programs, hook("note", "turn_end"))
    first = await house.say("hi")
    with pytest.raises(ProviderError):
        await house.say("again", first.conversation_id)
    assert told_of(programs) == [
        {"event": "turn_end", "status": "finished", "answer": "done"},
        {"event": "turn_end", "status": "failed", "answer": "out of order"},
    ]


async def test_a_failing_hook_of_a_turn_is_told_once_and_the_turn_goes_on(bench: Bench) -> None:
    house = House(bench, says("done"))
    broken = gives(ended(exit_code=1, errors="no such table"))
    hooked(house, Programs(db=broken), hook("db", "turn_start"), hook("db", "turn_end"))
    told: list[str] = []
    for _ in range(2):
        ticket = await house.send("hi")
        events = await events_of(ticket)
        assert (await ticket.finished()).text == "done"
        told += [event.text for event in events if isinstance(event, Notice)]
    assert told == ["the hook db failed with exit code 1: no such table"] * 2, "once each"
    assert [run.status for run in bench.receipts()] == ["failed"] * 4


async def test_a_hook_is_told_of_each_question_and_answers_none(bench: Bench) -> None:
    house = House(bench, says("done"))
    heard = asyncio.Event()

    async def bell(_told: dict[str, Any]) -> str:
        heard.set()
        return json.dumps({"decision": "deny", "reason": "no"})

    programs = Programs(bell=bell)
    hooks = hooked(house, programs, hook("bell", "on_question"))
    conversation = (await house.say("hi")).conversation_id
    asks = ApprovalRequested(
        approval_id="a", digest="d", call_id="c", tool="shell", arguments='{"command":"make"}',
        risk="medium", reason="it is on the list", workspace="/w",
    )  # fmt: skip
    question = QuestionAsked(question_id="q", text="which?", options=("a", "b"))
    for event in (asks, question):
        heard.clear()
        hooks.note(DaemonEvent(event=event, owner=ADA.uid, conversation_id=conversation))
        async with asyncio.timeout(LIMIT_S):
            await heard.wait()
    await hooks.close()
    assert told_of(programs) == [
        {
            "event": "on_question",
            "question": "it is on the list",
            "risk": "medium",
            "tool": "shell",
            "arguments": {"command": "make"},
        },
        {"event": "on_question", "question": "which?", "options": ["a", "b"]},
    ]


async def test_what_ends_with_a_turn_is_told_of_one_that_was_stopped(bench: Bench) -> None:
    pause, heard = Pause(), asyncio.Event()
    house = House(bench, [pause], says("done"))

    async def note(_told: dict[str, Any]) -> str:
        heard.set()
        return ""

    programs = Programs(note=note)
    hooks = hooked(house, programs, hook("note", "turn_end"))
    ticket = await house.send("hi")
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()
        ticket.cancel()
        with pytest.raises(Exception, match="cancelled"):
            await ticket.finished()
        await heard.wait()
    await hooks.close()
    assert told_of(programs) == [{"event": "turn_end", "status": "stopped", "answer": ""}]
