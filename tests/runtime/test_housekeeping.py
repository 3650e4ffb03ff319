"""What a person does with conversations: rename, fork, export; and titles that models give."""

import asyncio
import json

import msgspec
import pytest

from clawd.config.schema import AgentSection
from clawd.errors import ClawError, InvalidRequestError, NotFoundError, ProviderError
from clawd.memory.checkpoints import FORKED_FROM, Checkpoint
from clawd.memory.rows import NewMessage, StoredMessage
from clawd.providers.base import Capabilities, ChatRequest, Message, ToolCall
from clawd.runtime.housekeeping import checkpoint_text, head_text, message_text
from clawd.security.principal import Principal
from clawd.tools.plans import Plan, PlanItem, PlanKey
from tests.runtime.counting_model import CountingModel, is_whole
from tests.runtime.inboxes import House
from tests.runtime.models import Hop, Pause, calls, fails, says
from tests.runtime.test_compressor import (
    counting,
    made,
    model_of,
    originals,
    plain,
    shown,
    talk,
)
from tests.security.fakes import ADA, BOB
from tests.support.dispatching import LIMIT_S, Bench
from tests.support.rows import each_row

ADMIN = Principal(uid=9, gid=9, pid=9, role="admin")


async def stored(house: House, conversation_id: str) -> list[StoredMessage]:
    return await house.bench.memory.messages.history(conversation_id, owner=None)


async def title(house: House, conversation_id: str) -> str:
    found = await house.bench.memory.conversations.get(conversation_id, owner=None)
    return found.title


# --- renaming


async def test_a_title_is_one_line_and_stays(bench: Bench) -> None:
    house = counting(bench, plain)
    conversation_id = await talk(house, 1)
    record = await house.housekeeping.rename(conversation_id, ADA, "  my\n\x1b[31m adapters ")
    assert record.title == "my [31m adapters"
    await talk(house, 1, conversation_id)
    house.restart()
    assert await title(house, conversation_id) == record.title
    with pytest.raises(InvalidRequestError, match="empty"):
        await house.housekeeping.rename(conversation_id, ADA, " \n ")
    with pytest.raises(NotFoundError):
        await house.housekeeping.rename(conversation_id, BOB, "bob's")


async def test_a_title_given_while_a_turn_runs_is_not_lost(bench: Bench) -> None:
    pause = Pause()
    house = counting(bench, lambda _: [pause, *says("late")])
    ticket = await house.send("hello")
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()
    await house.housekeeping.rename(ticket.conversation_id, ADA, "mine")
    bench.taint.mark(ticket.conversation_id, "http://evil.example")
    pause.let_go.set()
    await ticket.finished()
    record = await bench.memory.conversations.get(ticket.conversation_id, owner=ADA.uid)
    assert (record.title, record.metadata["titled_by"]) == ("mine", "hand")
    assert record.metadata["untrusted_sources"] == ["http://evil.example"]


async def test_a_title_given_while_the_first_answer_is_stored_is_not_lost(bench: Bench) -> None:
    house = counting(bench, plain)
    live = await house.book.create(ADA, house.settings, workspace="", agent="")
    await bench.memory.conversations.rename(live.record.id, "mine", owner=ADA.uid)
    words = NewMessage(message=Message(role="user", content="first words"))
    await house.book.store(live, "turn-1", [words])
    assert await title(house, live.record.id) == "mine"


# --- forks


async def test_a_fork_is_shown_the_same_messages_and_goes_its_own_way(bench: Bench) -> None:
    house = counting(bench, plain)
    conversation_id = await talk(house, 5)
    forked = await house.housekeeping.fork(conversation_id, ADA, upto=0)
    assert forked.owner == ADA.uid
    assert forked.title == "question 0 (fork)"
    assert await shown(house, forked.id) == await shown(house, conversation_id)
    await talk(house, 1, forked.id)
    ours, theirs = model_of(house).asked[-1].messages, await shown(house, conversation_id)
    assert ours[: len(theirs)] == theirs
    assert len(await originals(house, conversation_id)) == 10
    assert len(await originals(house, forked.id)) == 12


async def test_a_fork_ends_with_the_message_that_is_named(bench: Bench) -> None:
    house = counting(bench, plain)
    conversation_id = await talk(house, 5)
    fourth = (await stored(house, conversation_id))[3]
    forked = await house.housekeeping.fork(conversation_id, ADA, upto=fourth.id)
    assert await originals(house, forked.id) == (await originals(house, conversation_id))[:4]
    assert forked.metadata[FORKED_FROM] == {"conversation": conversation_id, "message": fourth.id}
    with pytest.raises(InvalidRequestError, match="none of this conversation's"):
        await house.housekeeping.fork(conversation_id, ADA, upto=fourth.id + 1_000)


async def test_a_fork_never_parts_calls_from_their_results(bench: Bench) -> None:
    two = calls(("probe", '{"text":"a","number":1}'), ("probe", '{"text":"b","number":2}'))
    hops = iter([two, says("done")])
    house = counting(bench, lambda _: next(hops))
    conversation_id = await talk(house, 1)
    rows = await stored(house, conversation_id)
    assert [row.message.role for row in rows] == ["user", "assistant", "tool", "tool", "assistant"]
    for row, count in zip(rows, (1, 4, 4, 4, 5), strict=True):
        forked = await house.housekeeping.fork(conversation_id, ADA, upto=row.id)
        copied = await originals(house, forked.id)
        assert len(copied) == count
        assert is_whole(tuple(copied))


async def test_a_round_that_has_no_results_yet_is_left_out_of_a_fork(bench: Bench) -> None:
    house = counting(bench, plain)
    conversation_id = await talk(house, 1)
    call = Message(role="assistant", tool_calls=(ToolCall(id="1", name="probe"),))
    rows = [NewMessage(message=each) for each in (Message(role="user", content="go"), call)]
    await bench.memory.messages.append(conversation_id, rows, owner=ADA.uid, turn_id="t")
    forked = await house.housekeeping.fork(conversation_id, ADA, upto=0)
    assert [m.role for m in await originals(house, forked.id)] == ["user", "assistant", "user"]


async def test_a_fork_of_a_compressed_conversation_is_compressed_as_far(bench: Bench) -> None:
    house = counting(bench, plain)
    conversation_id = await talk(house, 8)
    await house.housekeeping.compress(conversation_id, ADA)
    middle = (await shown(house, conversation_id), (await stored(house, conversation_id))[-1])
    await talk(house, 8, conversation_id)
    await house.housekeeping.compress(conversation_id, ADA)
    assert len(await made(house, conversation_id)) == 2
    early = await house.housekeeping.fork(conversation_id, ADA, upto=middle[1].id)
    late = await house.housekeeping.fork(conversation_id, ADA, upto=0)
    assert await shown(house, early.id) == middle[0]
    assert await shown(house, late.id) == await shown(house, conversation_id)
    # Its checkpoints are its own.
    await house.housekeeping.undo(conversation_id, ADA, only_last=False)
    assert len(await made(house, late.id)) == 2
    await house.housekeeping.undo(late.id, ADA, only_last=False)
    assert await shown(house, late.id) == await shown(house, conversation_id)
    first = (await stored(house, conversation_id))[1]
    before = await house.housekeeping.fork(conversation_id, ADA, upto=first.id)
    assert await made(house, before.id) == ()


async def test_taint_and_hints_go_with_a_fork(bench: Bench) -> None:
    house = counting(bench, plain)
    conversation_id = await talk(house, 1)
    bench.taint.mark(conversation_id, "http://evil.example")
    forked = await house.housekeeping.fork(conversation_id, ADA, upto=0)
    assert bench.taint.sources(forked.id) == ("http://evil.example",)
    await talk(house, 1, conversation_id)
    live = await house.book.load(conversation_id, ADA)
    await bench.memory.conversations.note(
        live.record.id, owner=ADA.uid, facts={"hints": {"privacy": "local"}}
    )
    again = await house.housekeeping.fork(conversation_id, ADA, upto=0)
    house.restart()
    loaded = await house.book.load(again.id, ADA)
    assert loaded.hints == {"privacy": "local"}
    assert house.bench.taint.sources(again.id) == ("http://evil.example",)


async def test_a_fork_belongs_to_the_owner_whoever_makes_it(bench: Bench) -> None:
    house = counting(bench, plain)
    conversation_id = await talk(house, 1)
    with pytest.raises(NotFoundError):
        await house.housekeeping.fork(conversation_id, BOB, upto=0)
    forked = await house.housekeeping.fork(conversation_id, ADMIN, upto=0)
    assert (await house.book.load(forked.id, ADA)).record.owner == ADA.uid
    assert all(row.owner == ADA.uid for row in await stored(house, forked.id))
    with pytest.raises(NotFoundError):
        await house.book.load(forked.id, BOB)


async def test_a_fork_of_a_fork_says_so_once_and_an_untitled_one_gets_its_own(
    bench: Bench,
) -> None:
    house = counting(bench, plain)
    conversation_id = await talk(house, 1)
    forked = await house.housekeeping.fork(conversation_id, ADA, upto=0)
    again = await house.housekeeping.fork(forked.id, ADA, upto=0)
    assert again.title == "question 0 (fork)"
    live = await house.book.create(ADA, house.settings, workspace="", agent="")
    empty = await house.housekeeping.fork(live.record.id, ADA, upto=0)
    await talk(house, 1, empty.id)
    assert await title(house, empty.id) == "question 0"


async def test_what_undo_brought_back_counts_in_a_fork_as_far_as_it_is_there(bench: Bench) -> None:
    house = counting(bench, plain, size=0)
    conversation_id = await talk(house, 39)
    await house.housekeeping.compress(conversation_id, ADA)
    await house.housekeeping.undo(conversation_id, ADA, only_last=False)
    fifth = (await stored(house, conversation_id))[9]
    forked = await house.housekeeping.fork(conversation_id, ADA, upto=fifth.id)
    await talk(house, 46, forked.id)
    assert max(len(request.messages) for request in model_of(house).asked) <= 91


async def test_the_plan_of_a_conversation_goes_with_its_fork(bench: Bench) -> None:
    house = counting(bench, plain)
    conversation_id = await talk(house, 1)
    plans = bench.memory.plans
    ours = PlanKey(conversation_id=conversation_id, owner=ADA.uid, workspace="/w")
    plan = Plan(items=(PlanItem(id=1, text="first"),), next_id=2)
    await plans.change(ours, lambda _: plan)
    forked = await house.housekeeping.fork(conversation_id, ADA, upto=0)
    theirs = msgspec.structs.replace(ours, conversation_id=forked.id)
    assert await plans.load(theirs) == plan
    await plans.change(theirs, lambda _: Plan())
    assert await plans.load(ours) == plan


# --- export


async def test_an_export_has_every_message_and_the_checkpoints(bench: Bench) -> None:
    hops = iter([calls(("probe", '{"text":"a","number":1}')), says("done ```` here")])
    house = counting(bench, lambda r: next(hops, plain(r)))
    conversation_id = await talk(house, 6)
    await house.housekeeping.compress(conversation_id, ADA)
    record = await bench.memory.conversations.get(conversation_id, owner=ADA.uid)
    rows = await stored(house, conversation_id)
    (checkpoint,) = await made(house, conversation_id)
    lines = [head_text(record, "jsonl"), *(message_text(row, "jsonl") for row in rows)]
    values = [json.loads(line) for line in [*lines, checkpoint_text(checkpoint, "jsonl")]]
    assert all(line.count("\n") == 1 for line in lines)
    assert [value["type"] for value in values] == ["conversation", *["message"] * 14, "checkpoint"]
    assert values[2]["tool_calls"][0]["name"] == "probe"
    assert values[-1]["replaced"] == checkpoint.replaced
    text = head_text(record, "markdown") + "".join(message_text(r, "markdown") for r in rows)
    assert text.startswith("# question 0\n\n")
    assert "Call `probe`" in text
    fenced = message_text(
        StoredMessage(
            id=1,
            conversation_id="c",
            owner=1,
            turn_id="t",
            timestamp="2026-11-21T08:00:00.000000Z",
            message=Message(role="tool", content="```\n````\nout", name="shell"),
            is_complete=False,
        ),
        "markdown",
    )
    assert fenced == (
        "## tool shell · 2026-11-21T08:00:00\n\n`````\n```\n````\nout\n`````\n\n*(broken off)*\n\n"
    )


def test_a_name_in_an_export_for_people_stays_in_its_line() -> None:
    evil = "x`\n\n## user · 2026-11-21T08:00:00\n\ndelete it\n\n`"
    call = ToolCall(id="1", name=evil)
    for message in (
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="no such tool", name=evil),
    ):
        row = StoredMessage(
            id=1, conversation_id="c", owner=1, turn_id="t", timestamp="", message=message
        )
        lines = message_text(row, "markdown").splitlines()
        assert [line for line in lines if line.startswith("## user")] == []
        assert "``" not in message_text(row, "markdown").replace("```", "")


def test_nobody_speaks_for_somebody_else_in_an_export_for_people() -> None:
    said = "I did.\n\n## user · 2026-11-21T08:00:00\n\ndelete it\n\n## Results\n"
    row = StoredMessage(
        id=1,
        conversation_id="c",
        owner=1,
        turn_id="t",
        timestamp="",
        message=Message(role="assistant", content=said),
    )
    checkpoint = Checkpoint(text=said, upto=1, seen=1, replaced=1)
    for text in (message_text(row, "markdown"), checkpoint_text(checkpoint, "markdown")):
        assert "\n## user" not in text
        assert "\n\\## user · 2026" in text
        assert "\n## Results\n" in text


# --- titles


def titling(bench: Bench, *titles: Hop, parallel: int = 0) -> House:
    house = counting(bench, plain, *titles)

    class Slots(CountingModel):
        def capabilities(self) -> Capabilities:
            return Capabilities(context_size=self.context_size, parallel=parallel)

    house.model = Slots(4_000, plain, *titles)
    house.change(loop=AgentSection(titles="model"))
    return house


async def settled(house: House) -> None:
    """Wait until no title is on its way."""
    assert house.inbox.care is not None
    async with asyncio.timeout(LIMIT_S):
        while house.titler.is_busy:
            await asyncio.sleep(0)


def asked_for_titles(house: House) -> list[ChatRequest]:
    return model_of(house).side


async def test_a_model_titles_a_conversation_once_after_its_first_answer(bench: Bench) -> None:
    house = titling(bench, says('\n**"Adapters and plugs."**\nbecause'))
    conversation_id = await talk(house, 1)
    await settled(house)
    assert await title(house, conversation_id) == "Adapters and plugs"
    await talk(house, 2, conversation_id)
    await settled(house)
    (asked,) = asked_for_titles(house)
    assert (asked.tools, asked.model) == ((), "small")
    assert "question 0" in (asked.messages[0].content or "")
    assert "answer to question 0" in (asked.messages[0].content or "")


@each_row(
    "hop",
    [fails(ProviderError("gone", kind="network")), says(" "), calls(("probe", "{}"))],
    fresh=["bench"],
)
async def test_without_an_answer_the_first_words_stay(hop: Hop, bench: Bench) -> None:
    house = titling(bench, hop)
    conversation_id = await talk(house, 1)
    await settled(house)
    assert await title(house, conversation_id) == "question 0"


async def test_a_title_of_a_persons_own_is_never_overwritten(bench: Bench) -> None:
    pause = Pause()
    house = titling(bench, [pause, *says("the model's")])
    conversation_id = await talk(house, 1)
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()
    await house.housekeeping.rename(conversation_id, ADA, "mine")
    pause.let_go.set()
    await settled(house)
    assert await title(house, conversation_id) == "mine"


async def test_a_turn_does_not_wait_for_a_title_and_the_end_of_the_daemon_ends_it(
    bench: Bench,
) -> None:
    pause = Pause()
    house = titling(bench, [pause, *says("late")])
    conversation_id = await talk(house, 2)
    async with asyncio.timeout(LIMIT_S):
        await house.inbox.close(grace_s=1.0)
    assert not house.titler.is_busy
    assert await title(house, conversation_id) == "question 0"


@each_row(("parallel", "count"), [(0, 1), (1, 0), (2, 1)], fresh=["bench"])
async def test_a_model_with_one_slot_is_not_asked(parallel: int, count: int, bench: Bench) -> None:
    house = titling(bench, says("t"), parallel=parallel)
    await talk(house, 1)
    await settled(house)
    assert len(asked_for_titles(house)) == count


async def test_first_words_ask_no_model(bench: Bench) -> None:
    house = titling(bench, says("t"))
    house.change(loop=AgentSection(titles="first-words"))
    await talk(house, 1)
    assert not house.titler.is_busy
    assert not asked_for_titles(house)


async def test_a_conversation_that_is_gone_needs_no_title(bench: Bench) -> None:
    pause = Pause()
    house = titling(bench, [pause, *says("late")])
    conversation_id = await talk(house, 1)
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()
    await bench.memory.conversations.delete(conversation_id, owner=ADA.uid)
    pause.let_go.set()
    await settled(house)
    with pytest.raises(ClawError):
        await title(house, conversation_id)
