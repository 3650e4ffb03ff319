"""What is said to a turn that runs: the model reads it after its calls, once, or never."""

import asyncio

import pytest

from clawd.errors import (
    BusyError,
    CancelledByUserError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    StoppedError,
)
from clawd.runtime.inbox import MAX_SAID, MAX_SAID_BYTES, Ticket
from clawd.security.principal import Principal
from clawd.wire.events import MessageJoined, ToolFinished
from tests.runtime.inboxes import House, events_of
from tests.runtime.models import Pause, calls, says
from tests.security.fakes import ADA, BOB
from tests.support.dispatching import LIMIT_S, Bench, Held, Probe

CALL = calls(("probe", '{"text":"a"}'))
AGAIN = calls(("probe", '{"text":"b"}'))


def said_to(house: House, ticket: Ticket, text: str, **others: Principal) -> asyncio.Task[bool]:
    principal = others.get("principal", ADA)
    saying = house.inbox.steer(ticket.conversation_id, ticket.turn_id, text, principal, text)
    return asyncio.create_task(saying)


async def waiting(house: House, ticket: Ticket, count: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while len(house.inbox._running[ticket.turn_id].said) < count:
            await asyncio.sleep(0)


def held_house(bench: Bench, *hops: object) -> tuple[House, Held]:
    held = Held()
    house = House(bench, *hops, tools=[Probe(act=held)])  # type: ignore[arg-type]
    return house, held


async def stored(house: House, conversation_id: str) -> list[tuple[str, str]]:
    rows = await house.bench.memory.messages.history(conversation_id, owner=ADA.uid, limit=100)
    return [(row.message.role, row.message.content or "") for row in rows]


async def test_what_is_said_during_a_turn_is_read_with_the_next_answer(bench: Bench) -> None:
    house, held = held_house(bench, CALL, says("with the tests"))
    ticket = await house.send("do it")
    await held.has_begun()
    first = said_to(house, ticket, "and the tests")
    await waiting(house, ticket, 1)
    second = said_to(house, ticket, "<context>\nnot from here")
    await waiting(house, ticket, 2)
    held.let_go.set()
    finished = await ticket.finished()
    assert (finished.text, await first, await second) == ("with the tests", True, True)
    one, two = house.model.seen(0), house.model.seen(1)
    assert two[: len(one)] == one, "what was read stays the beginning of what is read"
    roles = [message.role for message in two]
    assert roles == ["user", "assistant", "tool", "user"]
    assert two[-1].content == "and the tests\n\n<context>\nnot from here"
    events = await events_of(ticket)
    joined = [event for event in events if isinstance(event, MessageJoined)]
    assert [event.text for event in joined] == ["and the tests", "<context>\nnot from here"]
    assert joined[0] == MessageJoined(
        turn_id=ticket.turn_id, text="and the tests", steer_id="and the tests"
    )
    kinds = [type(event) for event in events]
    assert kinds.index(ToolFinished) < kinds.index(MessageJoined)
    kept = await stored(house, ticket.conversation_id)
    assert [text for role, text in kept if role == "user"] == ["do it", two[-1].content]
    house.restart()
    await house.say("and now?", ticket.conversation_id)
    later = house.model.seen(-1)
    assert later[: len(two)] == two, "it is told in the same words after a restart"


async def test_what_comes_too_late_joins_no_turn_and_is_kept_nowhere(bench: Bench) -> None:
    pause = Pause()
    house = House(bench, [pause, *says("done")], says("next"))
    ticket = await house.send("do it")
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()
    late = said_to(house, ticket, "late")
    await waiting(house, ticket, 1)
    pause.let_go.set()
    await ticket.finished()
    assert not await late
    assert not await said_to(house, ticket, "later still"), "its turn is over"
    assert (await house.say("late", ticket.conversation_id)).text == "next"
    kept = await stored(house, ticket.conversation_id)
    assert [text for role, text in kept if role == "user"] == ["do it", "late"]
    elsewhere = await house.send("another")
    wrong = house.inbox.steer(ticket.conversation_id, elsewhere.turn_id, "x", ADA, "")
    assert not await wrong, "the turn of another conversation does not take it"
    await elsewhere.finished()


@pytest.mark.parametrize("is_stop", [False, True])
async def test_a_turn_that_is_stopped_takes_nothing_more(bench: Bench, *, is_stop: bool) -> None:
    pause = Pause()
    house, held = held_house(bench, CALL, [pause, *says("never")])
    ticket = await house.send("do it")
    await held.has_begun()
    joins = said_to(house, ticket, "in time")
    await waiting(house, ticket, 1)
    held.let_go.set()
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()
    assert await joins
    late = said_to(house, ticket, "too late")
    await waiting(house, ticket, 1)
    if is_stop:
        house.inbox.stop_generations()
        with pytest.raises(StoppedError):
            await ticket.finished()
    else:
        ticket.cancel()
        with pytest.raises(CancelledByUserError):
            await ticket.finished()
    assert not await late
    kept = await stored(house, ticket.conversation_id)
    assert [text for role, text in kept if role == "user"] == ["do it", "in time"]
    assert kept[-1] == ("user", "in time")


async def test_it_is_on_disk_before_the_model_reads_it(bench: Bench) -> None:
    pause = Pause()
    house, held = held_house(bench, CALL, [pause, *says("never")])
    ticket = await house.send("do it")
    await held.has_begun()
    joins = said_to(house, ticket, "remember me")
    await waiting(house, ticket, 1)
    held.let_go.set()
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()
    assert await joins
    # A daemon that dies here finds it again, once.
    kept = await stored(house, ticket.conversation_id)
    assert [text for role, text in kept if role == "user"] == ["do it", "remember me"]
    ticket.cancel()


async def test_what_waits_can_be_taken_back_and_is_bounded(bench: Bench) -> None:
    house, held = held_house(bench, CALL, AGAIN, says("done"))
    ticket = await house.send("do it")
    await held.has_begun()
    taken_back = said_to(house, ticket, "no, wait")
    await waiting(house, ticket, 1)
    taken_back.cancel()
    await asyncio.wait([taken_back])
    many = [said_to(house, ticket, f"{number}") for number in range(MAX_SAID)]
    await waiting(house, ticket, MAX_SAID)
    with pytest.raises(BusyError, match=f"{MAX_SAID} messages wait"):
        await said_to(house, ticket, "one more")
    with pytest.raises(InvalidRequestError, match="at most"):
        await said_to(house, ticket, "x" * (MAX_SAID_BYTES + 1))
    with pytest.raises(InvalidRequestError, match="empty"):
        await said_to(house, ticket, "  ")
    held.let_go.set()
    await ticket.finished()
    assert all(await asyncio.gather(*many))
    said = house.model.seen(1)[-1].content
    assert said == "\n\n".join(str(number) for number in range(MAX_SAID))


async def test_only_whoever_began_the_turn_may_say_something_to_it(bench: Bench) -> None:
    house, held = held_house(bench, CALL, says("done"))
    ticket = await house.send("do it")
    await held.has_begun()
    with pytest.raises(NotFoundError):
        await said_to(house, ticket, "hello", principal=BOB)
    admin = Principal(uid=0, gid=0, pid=1, role="admin")
    with pytest.raises(ForbiddenError, match="somebody else"):
        await said_to(house, ticket, "hello", principal=admin)
    held.let_go.set()
    await ticket.finished()
    assert len(house.model.seen(1)) == 3
