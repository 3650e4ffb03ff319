"""The approval broker: who may answer, what an answer binds, and that silence is no."""

import asyncio

import pytest

from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError
from clawd.security.approval_rules import RuleBook
from clawd.security.approvals import (
    MAX_PENDING,
    Answer,
    ApprovalQuestion,
    Approvals,
    Attendance,
    PendingApproval,
    Resolution,
)
from clawd.security.principal import Principal
from clawd.security.risk import Action
from tests.security import fakes
from tests.support.passing import pass_time
from tests.support.rows import each_row

LIMIT_S = 60.0


class Desk:
    """A broker and whoever sits before it."""

    def __init__(self, timeout_s: float = LIMIT_S) -> None:
        self.stop = fakes.Stop()
        self.store = fakes.MemoryRuleStore()
        self.clock = fakes.Clock()
        self.rules = RuleBook(self.store, record=fakes.RuleReceipts(), clock=self.clock)
        self.approvals = Approvals(self.rules, estop=self.stop, timeout_s=timeout_s)
        self.shown: asyncio.Queue[PendingApproval] = asyncio.Queue()

    async def deliver(self, pending: PendingApproval) -> bool:
        self.shown.put_nowait(pending)
        return True

    def ask(self, action: Action | None = None) -> asyncio.Task[Resolution]:
        question = ApprovalQuestion(action=action or fakes.action(), reason="writes a file")
        return asyncio.create_task(self.approvals.ask(question, deliver=self.deliver))

    async def next(self) -> PendingApproval:
        return await asyncio.wait_for(self.shown.get(), LIMIT_S)

    def answer(self, pending: PendingApproval, answer: Answer, who: Principal = fakes.ADA) -> None:
        self.approvals.answer(pending.id, answer, who, digest=pending.digest)


async def test_a_yes_lets_it_run_once_and_says_who() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    assert [p.id for p in desk.approvals.pending(fakes.ADA)] == [pending.id]
    desk.answer(pending, "once")
    assert await task == Resolution(approval_id=pending.id, answer="once", by="uid 1000")
    assert desk.approvals.pending(fakes.ADA) == []
    assert desk.rules.find(fakes.action()) is None


async def test_a_no_is_a_no() -> None:
    desk = Desk()
    task = desk.ask()
    desk.answer(await desk.next(), "deny")
    resolution = await task
    assert not resolution.granted
    assert resolution.reason == "denied by the user"


async def test_silence_is_a_no() -> None:
    desk = Desk(timeout_s=0.02)
    resolution = await desk.ask()
    assert not resolution.granted
    assert resolution.reason == "no answer within 0.02 s"
    assert not resolution.unanswerable


async def test_nobody_to_ask_is_a_no_at_once() -> None:
    desk = Desk()

    async def nobody(_pending: PendingApproval) -> bool:
        return False

    question = ApprovalQuestion(action=fakes.action(), reason="writes a file")
    resolution = await desk.approvals.ask(question, deliver=nobody)
    assert (resolution.granted, resolution.unanswerable) == (False, True)


async def test_a_delivery_that_hangs_is_a_no() -> None:
    desk = Desk(timeout_s=0.02)

    async def hangs(_pending: PendingApproval) -> bool:
        await asyncio.Event().wait()
        return True

    question = ApprovalQuestion(action=fakes.action(), reason="writes a file")
    assert not (await desk.approvals.ask(question, deliver=hangs)).granted


async def test_an_answer_to_other_bytes_is_refused_and_the_question_stays_open() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    changed = fakes.action(arguments={"path": "a.md", "content": "y"}).digest
    for digest in ("", changed, pending.digest.upper(), "é"):
        with pytest.raises(InvalidRequestError):
            desk.approvals.answer(pending.id, "once", fakes.ADA, digest=digest)
    desk.answer(pending, "once")
    assert (await task).granted


def test_the_digest_binds_tool_arguments_workspace_and_environment() -> None:
    base = fakes.action()
    others = [
        fakes.action("file_append"),
        fakes.action(arguments={"path": "a.md", "content": "y"}),
        fakes.action(workspace=base.workspace / "sub"),
        fakes.action(environment={"A": "1"}),
        fakes.action(environment={"A": "", "1": ""}),
    ]
    assert len({a.digest for a in (base, *others)}) == len(others) + 1
    assert base.digest == fakes.action(call_id="call-2").digest


async def test_only_the_owner_or_an_admin_answers_and_sees() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    assert desk.approvals.pending(fakes.BOB) == []
    with pytest.raises(ForbiddenError):
        desk.answer(pending, "once", fakes.BOB)
    assert len(desk.approvals.pending(fakes.ROOT)) == 1
    desk.answer(pending, "once", fakes.ROOT)
    assert (await task).by == "uid 0"


async def test_the_first_answer_counts() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    desk.answer(pending, "deny")
    with pytest.raises(NotFoundError, match="not open any more"):
        desk.answer(pending, "once", fakes.ROOT)
    assert not (await task).granted
    with pytest.raises(NotFoundError, match="not open any more"):
        desk.answer(pending, "once")


async def test_an_unknown_approval_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="is unknown"):
        Desk().approvals.answer("approval-0", "once", fakes.ADA, digest="")


async def test_the_emergency_stop_denies_what_waits_and_what_comes() -> None:
    desk = Desk()
    task = desk.ask()
    await desk.next()
    desk.stop.value = True
    assert desk.approvals.deny_all() == 1
    assert (await task).reason == "emergency stop is set"
    assert (await desk.ask()).reason == "emergency stop is set"
    assert desk.shown.empty()


async def test_a_yes_that_the_emergency_stop_overtook_is_a_no() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    desk.answer(pending, "once")
    desk.stop.value = True
    assert not (await task).granted


async def test_cancelling_the_turn_withdraws_its_question() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(NotFoundError):
        desk.answer(pending, "once")


async def test_a_full_table_denies() -> None:
    desk = Desk()
    tasks = [desk.ask() for _ in range(MAX_PENDING)]
    for _ in tasks:
        await desk.next()
    resolution = await desk.ask()
    assert "already waiting" in resolution.reason
    desk.approvals.deny_all("done")
    assert not any([(await task).granted for task in tasks])


async def test_always_keeps_a_rule_that_is_listed_expires_and_is_revoked() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    assert pending.rule == 'file_write content=* path="a.md" in /home/ada/w'
    desk.answer(pending, "always")
    resolution = await task
    rule = desk.rules.find(fakes.action(conversation_id="another"))
    assert rule is not None
    assert resolution.rule_id == rule.id
    assert desk.rules.rules(fakes.ADA) == [rule]
    assert desk.rules.rules(fakes.BOB) == []
    assert desk.store.rules == (rule,)
    desk.clock.advance(days=29)
    assert desk.rules.find(fakes.action()) == rule
    desk.clock.advance(days=1)
    assert desk.rules.find(fakes.action()) is None
    assert desk.rules.rules(fakes.ADA) == []
    with pytest.raises(ForbiddenError):
        await desk.rules.revoke(rule.id, fakes.BOB)
    await desk.rules.revoke(rule.id, fakes.ADA)
    assert not desk.store.rules
    with pytest.raises(NotFoundError):
        await desk.rules.revoke(rule.id, fakes.ADA)


async def test_this_conversation_keeps_a_grant_in_memory_only() -> None:
    desk = Desk()
    task = desk.ask()
    desk.answer(await desk.next(), "conversation")
    assert (await task).rule_id
    assert desk.rules.find(fakes.action()) is not None
    assert desk.rules.find(fakes.action(conversation_id="c2")) is None
    assert desk.store.rules == ()


async def test_this_conversation_outside_a_conversation_counts_once() -> None:
    desk = Desk()
    action = fakes.action(conversation_id="")
    task = desk.ask(action)
    desk.answer(await desk.next(), "conversation")
    resolution = await task
    assert (resolution.answer, resolution.rule_id) == ("once", "")
    assert desk.rules.find(action) is None


async def test_a_rule_that_cannot_be_kept_counts_once() -> None:
    desk = Desk()
    desk.store.failing = True
    task = desk.ask()
    desk.answer(await desk.next(), "always")
    resolution = await task
    assert (resolution.answer, resolution.reason) == ("once", "counts once only: no disk")
    assert desk.rules.find(fakes.action()) is None


@each_row("days", [-1, 366, 10**9])
async def test_a_rule_for_longer_than_a_year_is_refused(days: int) -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    with pytest.raises(InvalidRequestError, match="1 to 365 can"):
        desk.approvals.answer(pending.id, "always", fakes.ADA, digest=pending.digest, days=days)
    desk.answer(pending, "deny")
    assert not (await task).granted


async def test_an_answer_may_say_how_long_its_rule_holds() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    desk.approvals.answer(pending.id, "always", fakes.ADA, digest=pending.digest, days=7)
    assert (await task).rule_id
    desk.clock.advance(days=6)
    assert desk.rules.find(fakes.action()) is not None
    desk.clock.advance(days=1)
    assert desk.rules.find(fakes.action()) is None


async def test_the_configured_life_of_a_rule_is_taken() -> None:
    desk = Desk()
    desk.approvals = Approvals(desk.rules, estop=desk.stop, timeout_s=LIMIT_S, rule_days=2)
    task = desk.ask()
    desk.answer(await desk.next(), "always")
    await task
    (rule,) = desk.rules.rules(fakes.ADA)
    assert (rule.expires_at - rule.created_at).days == 2


async def test_no_standing_rule_is_made_while_untrusted_text_is_about() -> None:
    desk = Desk()
    question = ApprovalQuestion(action=fakes.action(), reason="x", tainted_by=("web a",))
    task = asyncio.create_task(desk.approvals.ask(question, deliver=desk.deliver))
    pending = await desk.next()
    assert pending.rule == ""
    desk.answer(pending, "always")
    resolution = await task
    assert (resolution.answer, resolution.rule_id) == ("once", "")
    assert "untrusted text" in resolution.reason
    assert desk.rules.rules(fakes.ADA) == []


async def test_this_conversation_with_untrusted_text_means_exactly_this_call() -> None:
    desk = Desk()
    question = ApprovalQuestion(action=fakes.action(), reason="x", tainted_by=("web a",))
    task = asyncio.create_task(desk.approvals.ask(question, deliver=desk.deliver))
    desk.answer(await desk.next(), "conversation")
    assert (await task).rule_id
    other = fakes.action(arguments={"path": "a.md", "content": "other"})
    for tainted_by in ((), ("web a",)):
        assert desk.rules.find(fakes.action(), tainted_by=tainted_by) is not None
        assert desk.rules.find(other, tainted_by=tainted_by) is None
    assert desk.rules.find(fakes.action(), tainted_by=("web a", "web b")) is None


async def test_whoever_answers_too_late_is_told_how_it_ended() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    desk.answer(pending, "once", fakes.ROOT)
    for _ in range(2):
        with pytest.raises(NotFoundError, match="it was answered by uid 0: once"):
            desk.answer(pending, "deny")
        await task
    with pytest.raises(NotFoundError, match="is unknown"):
        desk.answer(pending, "deny", fakes.BOB)


async def test_an_answer_to_what_was_withdrawn_is_told_so() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    task.cancel()
    for _ in range(2):
        with pytest.raises(NotFoundError, match="it was withdrawn"):
            desk.answer(pending, "once")
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_denial_by_time_is_told_to_the_late() -> None:
    desk = Desk(timeout_s=0.01)
    task = desk.ask()
    pending = await desk.next()
    await task
    with pytest.raises(NotFoundError, match="it was denied: no answer within"):
        desk.answer(pending, "once")


async def test_while_somebody_is_there_silence_ends_nothing() -> None:
    desk, followers = Desk(timeout_s=100.0), Attendance()
    there = Attendance(followers)
    question = ApprovalQuestion(action=fakes.action(), reason="writes a file")

    def ask() -> asyncio.Task[Resolution]:
        asking = desk.approvals.ask(question, deliver=desk.deliver, attendance=there)
        return asyncio.create_task(asking)

    def left() -> float:
        (pending,) = desk.approvals.pending(fakes.ADA)
        return pending.expires_in_s

    with there.attended():
        task = ask()
        assert (await desk.next()).expires_in_s == 0
        with followers.attended():
            pass_time(1_000.0)
        pass_time(1_000.0)
        await asyncio.sleep(0)
        assert left() == 0
    assert left() == 100
    pass_time(60.0)
    assert left() == 40
    with followers.attended():
        pass_time(1_000.0)
    assert left() == 100, "whoever leaves starts the clock anew"
    pass_time(101.0)
    resolution = await task
    assert (resolution.granted, resolution.reason) == (False, "no answer within 100 s")
    assert resolution.lapsed is not None


async def test_when_the_daemon_ends_every_question_lapses_and_so_do_those_that_come() -> None:
    desk = Desk()
    task = desk.ask()
    pending = await desk.next()
    desk.approvals.close()
    late = await desk.ask()
    for resolution in (await task, late):
        assert (resolution.granted, resolution.reason) == (
            False, "clawd shut down before anybody answered",
        )  # fmt: skip
        assert resolution.lapsed is not None
    assert not desk.approvals.is_open(pending.id)


async def test_one_owner_cannot_take_the_room_of_another() -> None:
    desk = Desk()
    tasks = [desk.ask() for _ in range(MAX_PENDING)]
    for _ in tasks:
        await desk.next()
    assert "are already waiting" in (await desk.ask()).reason
    other = desk.ask(fakes.action(principal=fakes.BOB))
    pending = await desk.next()
    desk.answer(pending, "once", fakes.BOB)
    assert (await other).granted
    desk.approvals.deny_all()
    await asyncio.gather(*tasks)
