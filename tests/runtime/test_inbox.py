"""The inbox: one turn at a time per conversation, in order; queues, cancelling, ending."""

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from clawd.config.schema import AgentSection, ChannelsSection, CliSection, LimitsSection
from clawd.errors import (
    BusyError,
    CancelledByUserError,
    ClawError,
    ForbiddenError,
    InvalidRequestError,
    ProviderError,
    StoppedError,
)
from clawd.providers.base import Sampling
from clawd.runtime.incoming import MAX_MESSAGE_BYTES
from clawd.tools.base import Arguments, ToolContext, ToolResult, failed, succeeded
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    QuestionAsked,
    TextDelta,
    ToolFinished,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from tests.runtime.inboxes import House, events_of
from tests.runtime.models import DONE, EVALUATED, Hop, Pause, calls, fails, says
from tests.security.fakes import ADA, BOB
from tests.support.dispatching import LIMIT_S, Bench, Probe
from tests.support.passing import pass_time
from tests.support.rows import each_row

CALL = calls(("probe", '{"text":"a"}'))


def users(house: House, hop: int = -1) -> list[str]:
    """Return what the user said, as a hop was asked with it."""
    said = [m.content or "" for m in house.model.seen(hop) if m.role == "user"]
    return [text.rpartition("\n\n")[2] for text in said]


async def reached(pause: Pause) -> None:
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()


async def test_a_turn_streams_from_start_to_end(bench: Bench) -> None:
    house = House(bench, CALL, says("done"))
    ticket = await house.send("hi")
    events = await events_of(ticket)
    finished = await ticket.finished()
    assert events[0] == TurnStarted(
        conversation_id=ticket.conversation_id,
        turn_id=ticket.turn_id,
        provider="mock",
        model="small",
        workspace=str(bench.workspace.resolve()),
    )
    assert events[-1] == finished
    assert any(isinstance(event, ToolFinished) for event in events)
    assert house.inbox.turns == (0, 0)


async def test_messages_of_one_conversation_are_answered_in_order(bench: Bench) -> None:
    pause = Pause()
    house = House(bench, [pause, *says("1")], says("2"), says("3"))
    first = await house.send("a")
    await reached(pause)
    others = [await house.send(text, conversation_id=first.conversation_id) for text in "bc"]
    assert house.inbox.turns == (1, 2)
    pause.let_go.set()
    texts = [(await ticket.finished()).text for ticket in (first, *others)]
    assert texts == ["1", "2", "3"]
    assert users(house) == ["a", "b", "c"]


async def test_conversations_run_side_by_side(bench: Bench) -> None:
    pause = Pause()
    house = House(bench, [pause, *says("slow")], says("fast"))
    slow = await house.send("a")
    await reached(pause)
    assert (await house.say("b")).text == "fast"
    pause.let_go.set()
    assert (await slow.finished()).text == "slow"


async def test_a_full_queue_is_busy_at_once_and_free_again(bench: Bench) -> None:
    pause = Pause()
    house = House(bench, [pause, *says("ok")], says("ok"))
    house.change(limits=LimitsSection(max_queued_messages=2))
    first = await house.send("a")
    second = await house.send("b", conversation_id=first.conversation_id)
    with pytest.raises(BusyError, match="2 messages wait") as caught:
        await house.send("c", conversation_id=first.conversation_id)
    assert caught.value.retry_after_s > 0
    other = await house.send("in another conversation")
    second.cancel()
    with pytest.raises(CancelledByUserError):
        await second.finished()
    third = await house.send("c", conversation_id=first.conversation_id)
    await reached(pause)
    pause.let_go.set()
    for ticket in (first, third, other):
        await ticket.finished()


async def test_a_turn_that_waits_can_be_cancelled(bench: Bench) -> None:
    pause = Pause()
    house = House(bench, [pause, *says("1")], says("3"))
    first = await house.send("a")
    await reached(pause)
    second = await house.send("b", conversation_id=first.conversation_id)
    third = await house.send("c", conversation_id=first.conversation_id)
    await asyncio.sleep(0)
    second.cancel()
    (failed,) = await events_of(second)
    assert isinstance(failed, TurnFailed)
    assert (failed.code, failed.turn_id) == ("cancelled", second.turn_id)
    with pytest.raises(CancelledByUserError):
        await second.finished()
    pause.let_go.set()
    assert [(await ticket.finished()).text for ticket in (first, third)] == ["1", "3"]
    assert users(house) == ["a", "c"]


async def test_a_turn_that_runs_can_be_cancelled_and_the_next_one_runs(bench: Bench) -> None:
    pause = Pause()
    house = House(bench, [TextDelta(text="half"), pause, DONE], says("2"))
    first = await house.send("a")
    await reached(pause)
    first.cancel()
    first.cancel()
    events = await events_of(first)
    assert [type(event) for event in events] == [TurnStarted, TextDelta, TurnFailed]
    assert (await house.say("b", first.conversation_id)).text == "2"
    assert users(house) == ["b"]
    first.cancel()


async def test_cancelling_a_conversation_cancels_all_of_its_turns(bench: Bench) -> None:
    pause = Pause()
    house = House(bench, [pause, *says("1")])
    first = await house.send("a")
    await reached(pause)
    second = await house.send("b", conversation_id=first.conversation_id)
    assert house.inbox.cancel_conversation("conv-unknown") == 0
    assert house.inbox.cancel_conversation(first.conversation_id) == 2
    for ticket in (first, second):
        with pytest.raises(CancelledByUserError):
            await ticket.finished()
    assert house.inbox.turns == (0, 0)


async def test_cancelling_an_owner_leaves_the_turns_of_others(bench: Bench) -> None:
    pauses = [Pause(), Pause(), Pause()]
    house = House(bench, *([pause, *says("ok")] for pause in pauses))
    tickets = [await house.send("a", principal=person) for person in (ADA, BOB, ADA)]
    for pause in pauses:
        await reached(pause)
    assert house.inbox.cancel_owner(ADA.uid) == 2
    for ticket in tickets[::2]:
        with pytest.raises(CancelledByUserError):
            await ticket.finished()
    for pause in pauses:
        pause.let_go.set()
    assert (await tickets[1].finished()).text == "ok"


async def test_a_failure_of_the_provider_is_told_in_stream_and_end(bench: Bench) -> None:
    house = House(bench, fails(ProviderError("HTTP 503: no", kind="http", hint="later")))
    ticket = await house.send("hi")
    last = (await events_of(ticket))[-1]
    assert isinstance(last, TurnFailed)
    assert (last.code, last.message, last.hint) == ("provider", "HTTP 503: no", "later")
    with pytest.raises(ProviderError, match="HTTP 503"):
        await ticket.finished()


async def test_a_defect_fails_its_turn_and_nothing_else(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(bench, says("fine"))
    ticket = await house.send("hi")
    house.model._hops = ()
    with pytest.raises(ClawError, match="inside the daemon: IndexError") as caught:
        await ticket.finished()
    assert caught.value.code == "internal"
    assert "a turn failed with a defect" in caplog.text
    house.model._hops = (says("fine"),)
    assert (await house.say("again", ticket.conversation_id)).text == "fine"


@each_row("text", ["", " \n\t", "x" * (MAX_MESSAGE_BYTES + 1)], fresh=["bench"])
async def test_a_message_that_cannot_be_meant_opens_nothing(bench: Bench, text: str) -> None:
    house = House(bench, says("ok"))
    with pytest.raises(InvalidRequestError):
        await house.send(text)
    assert (await bench.memory.conversations.counts(owner=None)).conversations == 0


async def test_a_door_that_is_switched_off_takes_nothing(bench: Bench) -> None:
    house = House(bench, says("ok"))
    house.change(channels=ChannelsSection(cli=CliSection(enabled=False)))
    with pytest.raises(ForbiddenError, match="switched off"):
        await house.send("hi")


async def test_followers_see_the_events_of_every_turn(bench: Bench) -> None:
    house = House(bench, says("1"), says("2"))
    first = await house.send("a")
    await first.finished()
    live = await house.book.load(first.conversation_id, ADA)
    follower = live.broadcast.subscribe()
    ticket = await house.send("b", conversation_id=first.conversation_id)
    own = await events_of(ticket)
    live.broadcast.unsubscribe(follower)
    assert [event async for event in follower] == own


async def test_a_slow_reader_does_not_hold_up_its_turn(bench: Bench) -> None:
    words = [TextDelta(text=f"{number} ") for number in range(3000)]
    house = House(bench, [*words, DONE])
    ticket = await house.send("count")
    finished = await ticket.finished()
    events = await events_of(ticket)
    assert len(events) < 1100
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == finished.text


async def test_an_approval_is_put_into_the_stream_and_answered(bench: Bench) -> None:
    tool = Probe(risk="medium")
    house = House(bench, CALL, says("done"), tools=[tool])
    ticket = await house.send("do it", interactive=True)
    async for event in ticket.events:
        if isinstance(event, ApprovalRequested):
            assert event.arguments == '{"text":"a"}'
            bench.approvals.answer(event.approval_id, "once", ADA, digest=event.digest)
        if isinstance(event, ApprovalResolved):
            assert event.answer == "once"
    assert ((await ticket.finished()).denied, tool.calls) == (0, 1)


async def test_without_anybody_to_ask_an_approval_is_denied_at_once(bench: Bench) -> None:
    tool = Probe(risk="medium")
    house = House(bench, CALL, says("done"), tools=[tool])
    finished = await house.say("do it")
    assert (finished.unanswered_approvals, tool.calls) == (1, 0)


async def test_a_cancelled_turn_withdraws_its_question(bench: Bench) -> None:
    house = House(bench, CALL, says("done"), tools=[Probe(risk="medium")])
    ticket = await house.send("do it", interactive=True)
    async for event in ticket.events:
        if isinstance(event, ApprovalRequested):
            ticket.cancel()
    assert bench.approvals.pending(ADA) == []
    assert [(r.status, r.reason) for r in bench.receipts()] == [("denied", "cancelled")]


async def test_a_tool_can_ask_the_person_where_there_is_one(bench: Bench) -> None:
    async def act(_arguments: Arguments, context: ToolContext) -> ToolResult:
        if context.ask is None:
            return failed("nobody is there")
        return succeeded(f"they said {await context.ask('Which?', ('a', 'b'))}")

    house = House(bench, CALL, says("done"), CALL, says("done"), tools=[Probe(act=act)])
    ticket = await house.send("ask me", interactive=True)
    async for event in ticket.events:
        if isinstance(event, QuestionAsked):
            assert house.person.questions.answer(event.question_id, "b", ADA)
    assert house.model.seen(1)[-1].content == "they said b"
    await house.say("ask nobody", ticket.conversation_id)
    assert house.model.seen()[-1].content == "error: nobody is there"


def _rounds(count: int) -> list[Hop]:
    return [calls(("probe", f'{{"text":"{n}"}}')) for n in range(count)]


async def _echo(arguments: Arguments, _context: ToolContext) -> ToolResult:
    return succeeded(str(arguments["text"]))


async def test_a_person_who_is_there_is_asked_at_their_limit_of_rounds(bench: Bench) -> None:
    house = House(bench, *_rounds(60), tools=[Probe(act=_echo)])
    ticket = await house.send("work", interactive=True)
    asked: list[QuestionAsked] = []
    async for event in ticket.events:
        if isinstance(event, QuestionAsked):
            asked.append(event)
            word = "yes" if len(asked) == 1 else ""
            assert house.person.questions.answer(event.question_id, word, ADA)
    told = [(each.text, each.options, each.default) for each in asked]
    assert told == [
        ("25 rounds of tool calls are done. Go on, for up to 25 more?", ("yes", "no"), "yes"),
        ("50 rounds of tool calls are done. Go on, for up to 25 more?", ("yes", "no"), "yes"),
    ]
    finished = await ticket.finished()
    assert (finished.stop_reason, finished.usage.rounds) == ("cap", 50)
    assert finished.text.endswith("is reached (max_tool_rounds_attended in [agent]).")


@each_row(
    ("fields", "configured", "rounds", "key"),
    [
        ({}, {}, 8, "max_tool_rounds in [agent]"),
        ({"detach": True}, {}, 8, "max_tool_rounds in [agent]"),
        ({"interactive": True, "detach": True}, {}, 8, "max_tool_rounds in [agent]"),
        ({"interactive": True, "door": "http"}, {}, 8, "max_tool_rounds in [agent]"),
        ({"max_rounds": 11}, {}, 11, "max_rounds of the message"),
        ({"max_rounds": 2, "interactive": True}, {}, 2, "max_rounds of the message"),
        ({"max_rounds": 2, "door": "http"}, {}, 2, "max_rounds of the message"),
        ({}, {"max_tool_rounds_attended": 3}, 8, "max_tool_rounds in [agent]"),
    ],
    fresh=["bench"],
)
async def test_a_turn_that_nobody_attends_ends_at_its_limit_of_rounds_unasked(
    bench: Bench, fields: dict[str, Any], configured: dict[str, Any], rounds: int, key: str
) -> None:
    house = House(bench, *_rounds(30), tools=[Probe(act=_echo)])
    house.change(loop=AgentSection(**configured))
    ticket = await house.send("work", **fields)
    events = await events_of(ticket)
    assert not [event for event in events if isinstance(event, QuestionAsked)]
    finished = await ticket.finished()
    assert (finished.stop_reason, finished.usage.rounds) == ("cap", rounds)
    assert finished.text == f"I stopped: the limit of {rounds} tool rounds is reached ({key})."


async def test_a_person_is_never_asked_before_the_limit_that_holds_alone(bench: Bench) -> None:
    house = House(bench, *_rounds(5), says("done"), tools=[Probe(act=_echo)])
    house.change(loop=AgentSection(max_tool_rounds_attended=3))
    finished = await house.say("work", interactive=True)
    assert (finished.text, finished.usage.rounds) == ("done", 5)


async def test_the_emergency_stop_ends_answers_and_later_ones_still_come(bench: Bench) -> None:
    pause = Pause()
    house = House(bench, [TextDelta(text="half"), pause, DONE], says("I am stopped"))
    ticket = await house.send("a")
    await reached(pause)
    house.inbox.stop_generations()
    with pytest.raises(StoppedError):
        await ticket.finished()
    last = (await events_of(ticket))[-1]
    assert isinstance(last, TurnFailed)
    assert last.code == "estop"
    bench.stop.value = True
    assert (await house.say("b", ticket.conversation_id)).text == "I am stopped"


async def test_closing_lets_turns_end_then_cancels_them_and_takes_no_more(bench: Bench) -> None:
    quick, stuck = Pause(), Pause()
    house = House(bench, [quick, *says("in time")], [stuck, *says("never")])
    tickets = [await house.send(text) for text in "ab"]
    for pause in (quick, stuck):
        await reached(pause)
    closing = asyncio.create_task(house.inbox.close(grace_s=60.0))
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="shutting down"):
        await house.send("c")
    quick.let_go.set()
    assert (await tickets[0].finished()).text == "in time"
    assert not closing.done()
    pass_time(60.0)
    await closing
    with pytest.raises(BusyError, match="shutting down"):
        await tickets[1].finished()
    last = (await events_of(tickets[1]))[-1]
    assert isinstance(last, TurnFailed)
    assert (last.code, last.message) == ("busy", "the daemon is shutting down")
    assert house.inbox.turns == (0, 0)


async def test_closing_an_idle_inbox_is_quick(bench: Bench) -> None:
    house = House(bench, says("ok"))
    await house.inbox.close(grace_s=60)
    await house.inbox.close(grace_s=60)


async def test_many_conversations_at_once_keep_apart(bench: Bench) -> None:
    house = House(bench, says("ok"))
    tickets = [await house.send(f"number {n}") for n in range(20)]
    ends: list[TurnFinished] = [await ticket.finished() for ticket in tickets]
    assert len({finished.conversation_id for finished in ends}) == 20
    for number, finished in enumerate(ends):
        live = await house.book.load(finished.conversation_id, ADA)
        assert (live.context.messages[0].content or "").endswith(f"number {number}")
        assert len(live.context.messages) == 2


async def test_m1_a_message_says_how_it_samples_and_which_tools_it_may_use(bench: Bench) -> None:
    empty = [DONE]
    house = House(bench, empty, says("one"), says("two"))
    wishes = Sampling(temperature=0.2, max_tokens=7)
    first = await house.say("hello", sampling=wishes, tools_allow=("-other",), retry=False)
    assert first.text == ""  # an empty answer is not asked for again
    await house.say("and now", first.conversation_id)
    asked, following = house.model.requests
    assert (asked.sampling, [tool.name for tool in asked.tools]) == (wishes, ["probe"])
    assert following.sampling != wishes
    assert [tool.name for tool in following.tools] == ["other", "probe"]


async def test_m3_each_prompt_that_was_read_is_a_line_of_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(bench, [EVALUATED, *says("hello")])
    with caplog.at_level(logging.INFO, logger="clawd.runtime.turn"):
        await house.say("my secret words")
    (line,) = [r for r in caplog.records if r.getMessage() == "[prompt_eval]"]
    told = vars(line)
    assert (told["tokens"], told["cached"], told["context_size"]) == (3, 1, 100)
    assert (told["elapsed_ms"], told["model"]) == (2.0, "small")
    assert "secret words" not in str(told)


async def test_p12_a_first_message_that_comes_to_nothing_leaves_no_conversation(
    bench: Bench,
) -> None:
    house = House(
        bench,
        fails(ProviderError("down", kind="network")),
        says("hello"),
        fails(ProviderError("again", kind="network")),
    )
    rows: dict[str, dict[str, Any]] = {
        "a hint nobody heeds": {"hints": {"size": "large"}},
        "a provider that fails": {},
    }
    left: dict[str, object] = {}
    for why, fields in rows.items():
        ticket = await house.send("hi", **fields)
        last = (await events_of(ticket))[-1]
        assert isinstance(last, TurnFailed)
        with pytest.raises(ClawError):
            await house.book.load(ticket.conversation_id, ADA)
        left[why] = last.conversation_id
    assert left == dict.fromkeys(rows, "")
    assert (await bench.memory.conversations.list(owner=None)).conversations == ()
    kept = await house.say("hi")
    ticket = await house.send("once more", conversation_id=kept.conversation_id)
    last = (await events_of(ticket))[-1]
    assert isinstance(last, TurnFailed)
    assert last.conversation_id == kept.conversation_id
    assert (await house.book.load(kept.conversation_id, ADA)).record.id == kept.conversation_id


async def test_p12_a_conversation_that_was_opened_by_itself_stays_when_its_message_fails(
    bench: Bench,
) -> None:
    house = House(bench, fails(ProviderError("down", kind="network")))
    opened = await house.inbox.open(ADA, workspace="")
    ticket = await house.send("hi", conversation_id=opened.record.id)
    await events_of(ticket)
    assert (await house.book.load(opened.record.id, ADA)).record.id == opened.record.id


async def test_p12_a_turn_names_the_model_that_answered_where_the_config_names_none(
    bench: Bench,
) -> None:
    answer: Hop = [TextDelta(text="hello"), msgspec.structs.replace(DONE, model="its-own-7b")]
    house = House(bench, answer, answer)
    assert (await house.say("hi")).model == "small"
    house.settings = msgspec.structs.replace(house.settings, default_model="")
    assert (await house.say("hi")).model == "its-own-7b"
