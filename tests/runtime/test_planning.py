"""Plan mode: while a turn plans it only looks; a yes begins the work, a no ends it there."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from clawd.runtime.approval_prompts import Questions
from clawd.runtime.incoming import IncomingMessage
from clawd.runtime.planning import PLAN_FIRST, PLANNING, UNANSWERED, WORK
from clawd.security.approval_rules import rule_for
from clawd.security.gate import Gate
from clawd.security.policy import Allow, Deny, PolicySettings
from clawd.security.risk import AUTONOMIES
from clawd.wire.events import Event, Notice, PlanChanged, QuestionAsked, TurnFinished
from tests.runtime.inboxes import House
from tests.runtime.models import Hop, calls, says
from tests.security.fakes import ADA, action
from tests.support.dispatching import LIMIT_S, Bench, Probe
from tests.support.inprocess import OWNER, daemon_in
from tests.support.rows import each_row

CHANGE = calls(("change", '{"text":"a"}'))
LOOK = calls(("look", '{"text":"a"}'))
PLAN = says("I change a.")


def house_of(bench: Bench, *hops: Hop) -> tuple[House, Probe, Probe]:
    bench.policy = PolicySettings(autonomy="full")
    look, change = Probe("look"), Probe("change", risk="medium")
    return House(bench, *hops, tools=[look, change]), look, change


async def planned(
    house: House, *answers: str, seen: Callable[[], None] = lambda: None, **how: Any
) -> tuple[TurnFinished, list[QuestionAsked]]:
    """Send a message that is planned first, and give the questions these answers."""
    asked: list[QuestionAsked] = []
    left = list(answers)
    ticket = await house.send("do it", plan_first=True, interactive=True, **how)

    def note(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            seen()
            asked.append(event)
            assert house.person.questions.answer(event.question_id, left.pop(0), ADA)

    async with asyncio.timeout(LIMIT_S):
        async for event in ticket.events:
            note(event)
        return await ticket.finished(), asked


async def test_what_changes_is_refused_until_the_person_says_yes(bench: Bench) -> None:
    house, look, change = house_of(bench, LOOK, CHANGE, PLAN, CHANGE, says("done"))
    seen: list[tuple[int, int]] = []
    finished, asked = await planned(
        house, "yes", seen=lambda: seen.append((look.calls, change.calls))
    )
    assert seen == [(1, 0)]
    assert (change.calls, finished.text) == (1, "done")
    assert [each.options for each in asked] == [("yes", "no")]
    assert PLAN_FIRST in (house.model.seen(0)[-1].content or "")
    assert house.model.seen(3)[-1].content == WORK
    looked, refused, made = bench.receipts()
    assert [each.status for each in (looked, refused, made)] == ["allowed", "denied", "allowed"]
    assert "readonly" in refused.reason


async def test_who_follows_from_elsewhere_is_asked_as_well(bench: Bench) -> None:
    house, _, change = house_of(bench, CHANGE, PLAN, CHANGE, says("done"))
    finished, asked = await planned(house, "yes", detach=True, door="http")
    assert (finished.text, change.calls, len(asked)) == ("done", 1, 1)


@each_row("answer", ["no", "n", "", "  NO "], fresh=["bench"])
async def test_a_no_leaves_it_at_the_plan(bench: Bench, answer: str) -> None:
    house, _, change = house_of(bench, CHANGE, PLAN, CHANGE, says("done"))
    finished, asked = await planned(house, answer)
    assert (finished.text, change.calls, len(asked)) == ("I change a.", 0, 1)


async def test_other_words_are_said_to_the_model_which_plans_on(bench: Bench) -> None:
    house, _, change = house_of(bench, PLAN, CHANGE, says("I change b."), CHANGE, says("done"))
    seen: list[int] = []
    finished, asked = await planned(
        house, "b instead", "yes", seen=lambda: seen.append(change.calls)
    )
    assert (seen, change.calls, len(asked), finished.text) == ([0, 0], 1, 2, "done")
    assert house.model.seen(1)[-1].content == "b instead"


async def test_where_nobody_can_be_asked_it_ends_with_the_plan(bench: Bench) -> None:
    house, _, change = house_of(bench, CHANGE, PLAN, CHANGE)
    finished = await house.say("do it", plan_first=True)
    assert (finished.text, change.calls) == ("I change a.", 0)


async def test_a_question_whose_reader_left_ends_and_the_next_message_begins_the_work(
    bench: Bench,
) -> None:
    house, _, change = house_of(bench, CHANGE, PLAN, CHANGE, says("done"))
    limit_s = 0.1
    house.person.questions = Questions(timeout_s=limit_s)
    ticket = await house.send("do it", plan_first=True, interactive=True, detach=True)
    finishing = asyncio.create_task(ticket.finished())
    notices: list[str] = []
    async with asyncio.timeout(LIMIT_S):
        with ticket.attendance.attended():
            async for event in ticket.events:
                if isinstance(event, QuestionAsked):
                    assert event.expires_in_s == 0  # while it is read, no clock runs
                    break
            done, _ = await asyncio.wait({finishing}, timeout=3 * limit_s)
            assert not done
        async for event in ticket.events:
            notices += [event.text] if isinstance(event, Notice) else []
        finished = await finishing
    assert (finished.text, change.calls) == ("I change a.", 0)
    assert notices == [UNANSWERED]
    later = await house.say("go on", conversation_id=ticket.conversation_id)
    assert (later.text, change.calls) == ("done", 1)


async def test_the_next_message_is_not_planned_first(bench: Bench) -> None:
    house, _, change = house_of(bench, PLAN, CHANGE, says("done"))
    finished, _ = await planned(house, "no")
    await house.say("then do it", finished.conversation_id)
    assert change.calls == 1
    assert PLAN_FIRST not in (house.model.seen(1)[-1].content or "")


async def test_no_mode_and_no_rule_goes_further(bench: Bench) -> None:
    asked = action()
    await bench.rules.add(rule_for(asked, now=bench.rules.now(), conversation=False))
    for autonomy in AUTONOMIES:
        policy = PolicySettings(autonomy=autonomy)
        gate = Gate(lambda: policy, estop=bench.stop, taint=bench.taint, rules=bench.rules)  # noqa: B023 - it is asked at once
        planning = msgspec.structs.replace(asked, at_most=PLANNING)
        assert isinstance(gate.review(asked), Deny if autonomy == "readonly" else Allow)
        assert isinstance(gate.review(planning), Deny)
        assert isinstance(gate.may_start(planning), Deny)
        assert not gate.is_full(planning)


async def test_the_mode_that_is_chosen_is_the_conversations_and_has_its_receipt(
    tmp_path: Path,
) -> None:
    write = {"name": "file_write", "arguments": {"path": "a.txt", "content": "hello"}}
    step = {"name": "plan", "arguments": {"action": "add", "text": "write a.txt"}}
    done = {"name": "plan", "arguments": {"action": "update", "id": "1", "status": "done"}}
    replies = [{"tool_calls": [write, step]}, {"text": "I write a.txt."}]
    replies += [{"tool_calls": [write, done]}, {"text": "Done."}]
    script = tmp_path / "script.json"
    script.write_text(msgspec.json.encode({"replies": replies}).decode())
    async with daemon_in(tmp_path, f'script = "{script}"\n') as inside:
        house = inside.daemon
        message = IncomingMessage(text="do it", plan_first=True, interactive=True)
        ticket = await house.inbox.submit(message, OWNER)
        events: list[Event] = []
        async with asyncio.timeout(LIMIT_S):
            async for event in ticket.events:
                events.append(event)
                if isinstance(event, QuestionAsked):
                    assert event.options == ("yes", "edits", "full", "no")
                    assert not (inside.workspace / "a.txt").exists()
                    assert house.person.questions.answer(event.question_id, "edits", OWNER)
            assert (await ticket.finished()).text == "Done."
        assert (inside.workspace / "a.txt").read_text() == "hello"
        assert [(each.tool, each.status) for each in inside.receipts()] == [
            ("file_write", "denied"), ("plan", "allowed"), ("conversation_mode", "allowed"),
            ("file_write", "allowed"), ("plan", "allowed"),
        ]  # fmt: skip
        plans = [each.markdown for each in events if isinstance(each, PlanChanged)]
        assert plans == ["- [ ] 1. write a.txt", "- [x] 1. write a.txt"]
