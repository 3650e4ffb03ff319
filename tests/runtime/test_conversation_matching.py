"""Which conversation a chat is: any chats, edits and regenerations of any people."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.memory.conversations import Messages
from clawd.memory.rows import TAINT, NewMessage
from clawd.memory.store import Memory
from clawd.providers.base import Message, ToolCall
from clawd.runtime.conversation_matching import BROUGHT, Brought, Continuity, Place, digests
from clawd.security.principal import Principal
from tests.runtime.inboxes import House
from tests.security.fakes import ADA, ROOT
from tests.support.dispatching import bench_in
from tests.support.rows import each_row

BOB = Principal(uid=ADA.uid + 1, gid=1, pid=1)
PEOPLE = (ADA, BOB, msgspec.structs.replace(ROOT, uid=BOB.uid + 1))


def said(text: str, role: str = "user") -> Message:
    return msgspec.convert({"role": role, "content": text}, Message)


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody does next.

    Attributes:
        chat: which of the chats that person has, counted round; a new one beyond them.
        cut: how many exchanges are cut off its end before.
        lie: an answer is changed before.
        taints: untrusted text comes in with the answer.
        restarts: the daemon is started anew before.
    """

    person: int
    chat: int
    cut: int
    text: str
    lie: bool
    taints: bool
    restarts: bool


moves = st.lists(
    st.builds(
        Move,
        person=st.integers(0, 2),
        chat=st.integers(0, 3),
        cut=st.integers(0, 2),
        text=st.sampled_from(["hi", "go on", "hi "]),
        lie=st.integers(0, 5).map(lambda number: number == 0),
        taints=st.integers(0, 3).map(lambda number: number == 0),
        restarts=st.integers(0, 7).map(lambda number: number == 0),
    ),
    max_size=10,
)


class Chats:
    """People who chat, and what must be true of it all."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.chats: dict[int, list[tuple[Message, ...]]] = {uid.uid: [] for uid in PEOPLE}
        self.tainted: set[tuple[int, tuple[Message, ...]]] = set()
        self.owners: dict[str, int] = {}
        self.continuity = self._continuity()

    def _continuity(self) -> Continuity:
        memory = self.house.bench.memory
        return Continuity(memory, self.house.book, lambda: self.house.settings)

    async def make(self, move: Move) -> None:
        if move.restarts:
            self.house.restart()
            self.continuity = self._continuity()
        person = PEOPLE[move.person]
        mine = self.chats[person.uid]
        number = move.chat if move.chat < len(mine) else len(mine)
        before = mine[number] if number < len(mine) else ()
        history = before[: max(len(before) - 2 * move.cut, 0)]
        must_taint = self._is_tainted(person.uid, history)
        if move.lie and history:
            history = (*history[:-1], said("I never said that", "assistant"))
            must_taint = True
        seen = (*history, said(move.text))
        conversation = await self._answer(person, history, move)
        sources = await self._sources(conversation, person)
        assert not must_taint or sources, (history, move)
        # What is in the conversation is what the client told, and nothing of anybody else's.
        assert self.owners.setdefault(conversation, person.uid) == person.uid
        rows = await self.house.bench.memory.messages.history(conversation, owner=person.uid)
        told = tuple(row.message for row in rows)
        assert digests(told) == digests((*seen, said("so it is", "assistant")))
        after = (*seen, said("so it is", "assistant"))
        if sources:
            self.tainted.add((person.uid, after))
        mine[number:] = [after, *mine[number + 1 :]]

    def _is_tainted(self, uid: int, history: tuple[Message, ...]) -> bool:
        beginnings = {history[:end] for end in range(len(history) + 1)}
        return any(owner == uid and there in beginnings for owner, there in self.tainted)

    async def _answer(self, person: Principal, history: tuple[Message, ...], move: Move) -> str:
        """Do what a turn does, without a model."""
        place = await self.continuity.place(Brought(history=history), person)
        book = self.house.book
        if place.conversation_id:
            live = await book.load(place.conversation_id, person)
        else:
            live = await book.create(person, self.house.settings, workspace="", agent="")
        if move.taints:
            self.house.bench.taint.mark(live.record.id, "web_fetch evil.example")
        answer = said("so it is", "assistant")
        rows = [NewMessage(message=said(move.text)), NewMessage(message=answer)]
        await book.store(live, "turn", rows)
        seen = (*history, said(move.text), answer)
        await self.continuity.note(live.record.id, Brought(history=seen), person)
        self.continuity.release(place)
        return live.record.id

    async def _sources(self, conversation: str, person: Principal) -> list[str]:
        record = await self.house.bench.memory.conversations.get(conversation, owner=person.uid)
        sources: list[str] = record.metadata.get(TAINT, [])
        assert set(self.house.book.sources(conversation)) <= {*sources}
        return sources


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(moves)
def test_nobody_gets_anothers_conversation_and_no_taint_is_lost(made: list[Move]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with bench_in(Path(folder)) as bench:
                chats = Chats(House(bench))
                for move in made:
                    await chats.make(move)

    asyncio.run(run())


async def test_a_chat_whose_conversation_is_deleted_is_a_foreign_one(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        chats = Chats(House(bench))
        move = Move(person=0, chat=0, cut=0, text="hi", lie=False, taints=False, restarts=False)
        await chats.make(move)
        (first,) = chats.owners
        await bench.memory.conversations.delete(first, owner=ADA.uid)
        chats.house.book.forget(first)
        await chats.make(move)
        (second,) = set(chats.owners) - {first}
        record = await bench.memory.conversations.get(second, owner=ADA.uid)
        assert record.metadata[TAINT] == [BROUGHT]


async def test_an_end_that_is_taken_is_no_end_until_it_is_released(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        chats = Chats(House(bench))
        await chats.make(
            Move(person=0, chat=0, cut=0, text="hi", lie=False, taints=False, restarts=False)
        )
        (first,) = chats.owners
        brought = Brought(history=chats.chats[ADA.uid][0])
        place = await chats.continuity.place(brought, ADA)
        assert place == Place(conversation_id=first, is_held=True)
        other = await chats.continuity.place(brought, ADA)
        assert other.is_new and other.conversation_id != first
        # Who names it does not hold it, and so lets go of nobody's hold.
        chats.continuity.release(await chats.continuity.named(first, ADA))
        assert (await chats.continuity.place(brought, ADA)).is_new
        chats.continuity.release(place)
        assert (await chats.continuity.place(brought, ADA)) == place


class SlowMessages:
    """The messages of a memory; what is appended waits for a sign."""

    def __init__(self, inner: Messages) -> None:
        self._inner = inner
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def append(self, *args: Any, **named: Any) -> Any:
        self.begun.set()
        await self.may_end.wait()
        return await self._inner.append(*args, **named)

    async def counts(self, ids: list[str]) -> dict[str, int]:
        return await self._inner.counts(ids)


class SlowMemory:
    """A memory that is slow to write messages."""

    def __init__(self, inner: Memory) -> None:
        self.points = inner.points
        self.conversations = inner.conversations
        self.forks = inner.forks
        self.messages = SlowMessages(inner.messages)


@each_row("is_known", [False, True])
async def test_a_place_that_nobody_waits_for_any_more_is_taken_back(
    tmp_path: Path, is_known: bool
) -> None:
    async with bench_in(tmp_path) as bench:
        chats = Chats(House(bench))
        await chats.make(
            Move(person=0, chat=0, cut=0, text="hi", lie=False, taints=False, restarts=False)
        )
        before = chats.chats[ADA.uid][0] if is_known else ()
        told = Brought(history=(*before, said("and"), said("no", "assistant")))
        memory = SlowMemory(bench.memory)
        continuity = Continuity(
            memory,  # type: ignore[arg-type]
            chats.house.book,
            lambda: chats.house.settings,
        )
        placing = asyncio.create_task(continuity.place(told, ADA))
        async with asyncio.timeout(60):
            await memory.messages.begun.wait()
            placing.cancel()
            memory.messages.may_end.set()
            await asyncio.wait({placing})
        assert placing.cancelled()
        assert (await bench.memory.conversations.counts(owner=None)).conversations == 1


def test_a_digest_is_of_what_was_said_and_not_of_how_it_was_sent() -> None:
    call = ToolCall(id="a", name="t", arguments="{}")
    one = Message(role="assistant", content=None, tool_calls=(call,))
    same = Message(
        role="assistant", content=" ", tool_calls=(msgspec.structs.replace(call, id="b"),)
    )
    other = msgspec.structs.replace(one, tool_calls=())
    assert digests([said("x\n"), one]) == digests([said("x"), same])
    assert digests([said("x"), other])[-1] != digests([said("x"), one])[-1]
    assert digests([said("x"), said("y")])[0] == digests([said("x")])[0]
    assert digests([said("xy")]) != digests([said("x"), said("y")])[1:]
    assert digests([said("\ud800")])
