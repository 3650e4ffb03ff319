"""Conversations and their messages: kept whole, in order, and only for whom they belong to."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.errors import InvalidRequestError, NotFoundError, StorageError
from clawd.memory.rows import (
    TITLED_BY,
    Conversation,
    Counts,
    NewMessage,
    clean,
    message_of,
    message_row,
    timestamp_now,
    visible_to,
)
from clawd.memory.rows import StoredMessage as Stored
from clawd.memory.store import Memory
from clawd.providers.base import Message, ToolCall
from clawd.security.principal import Principal
from tests.memory.samples import ANNA, BEN, begun, said, texts_of


async def test_a_conversation_is_kept_with_all_its_facts(memory: Memory) -> None:
    made = await memory.conversations.create(
        Conversation(
            owner=ANNA,
            workspace="/w",
            title="Parts",
            provider="local",
            model="embedded",
            agent="helper",
            metadata={"tainted": True, "tags": ["a"]},
        )
    )
    assert made.id.startswith("conv-")
    assert made.created_at == made.updated_at
    assert await memory.conversations.get(made.id, owner=ANNA) == made
    assert await memory.conversations.get(made.id, owner=None) == made


async def test_an_id_can_be_given_once(memory: Memory) -> None:
    chosen = Conversation(id="conv-mine", owner=ANNA, workspace="/w")
    assert (await memory.conversations.create(chosen)).id == "conv-mine"
    with pytest.raises(InvalidRequestError, match="already is a conversation conv-mine"):
        await memory.conversations.create(chosen)


async def test_conversations_are_listed_page_by_page_last_active_first(memory: Memory) -> None:
    made = [await begun(memory) for _ in range(7)]
    await memory.messages.append(made[2].id, [said("again")], owner=ANNA, turn_id="t")
    seen: list[str] = []
    cursor = ""
    sizes = []
    while True:
        page = await memory.conversations.list(owner=ANNA, limit=3, cursor=cursor)
        sizes.append(len(page.conversations))
        seen += [conversation.id for conversation in page.conversations]
        cursor = page.cursor
        if not cursor:
            break
    assert sizes == [3, 3, 1]
    assert seen[0] == made[2].id
    assert sorted(seen) == sorted(conversation.id for conversation in made)
    exact = await memory.conversations.list(owner=ANNA, limit=7)
    assert (len(exact.conversations), exact.cursor) == (7, "")


async def test_bad_limits_and_cursors_are_refused(memory: Memory) -> None:
    for limit in (0, -1, 1001):
        with pytest.raises(InvalidRequestError, match="1 to 1000"):
            await memory.conversations.list(owner=None, limit=limit)
    for cursor in ("x", " ", "x ", "' OR 1"):
        with pytest.raises(InvalidRequestError, match="cursor"):
            await memory.conversations.list(owner=None, cursor=cursor)
    with pytest.raises(InvalidRequestError, match="at least 1"):
        await memory.messages.history("x", owner=None, limit=0)


async def test_a_noted_title_never_replaces_one_and_facts_are_added(memory: Memory) -> None:
    made = await begun(memory)
    noted = await memory.conversations.note(made.id, owner=ANNA, title="old", facts={"a": 1})
    assert (noted.title, noted.metadata) == ("old", {"a": 1})
    again = await memory.conversations.note(made.id, owner=ANNA, title="x", facts={"b": 2})
    assert (again.title, again.metadata) == ("old", {"a": 1, "b": 2})
    renamed = await memory.conversations.rename(made.id, "new", owner=ANNA)
    assert (renamed.title, renamed.workspace) == ("new", made.workspace)
    assert renamed.metadata == {"a": 1, "b": 2, TITLED_BY: "hand"}


async def test_a_turn_is_kept_in_order_with_all_its_facts(memory: Memory) -> None:
    made = await begun(memory)
    call = ToolCall(id="call_0", name="file_list", arguments='{"path": "."}')
    turn = [
        NewMessage(message=Message(role="user", content="What is here?")),
        NewMessage(
            message=Message(role="assistant", tool_calls=(call,)),
            timestamp="2026-11-21T08:00:00.000Z",
            provider="local",
            model="embedded",
            metadata={"tokens": 12},
        ),
        NewMessage(
            message=Message(role="tool", content="a\nb/", tool_call_id="call_0", name="file_list")
        ),
        NewMessage(message=Message(role="assistant", content="Two"), is_complete=False),
    ]
    kept = await memory.messages.append(made.id, turn, owner=ANNA, turn_id="turn-1")
    history = await memory.messages.history(made.id, owner=ANNA)
    assert tuple(history) == kept
    assert [s.message for s in history] == [new.message for new in turn]
    assert [s.is_complete for s in history] == [True, True, True, False]
    assert {(s.turn_id, s.owner, s.conversation_id) for s in history} == {("turn-1", ANNA, made.id)}
    assert (history[1].timestamp, history[1].provider, history[1].metadata) == (
        "2026-11-21T08:00:00.000Z",
        "local",
        {"tokens": 12},
    )


async def test_titles_are_found_by_parts_of_words_in_any_case(memory: Memory) -> None:
    for title in ("Taxes of 2026", "Änderung: 100 % done", "a_b", "axb", "taxes, again"):
        await begun(memory, title=title)

    async def found(words: str) -> list[str]:
        page = await memory.conversations.list(owner=ANNA, title=words)
        return [each.title for each in page.conversations]

    assert await found("TAX") == ["taxes, again", "Taxes of 2026"]
    assert await found("2026 taxes") == ["Taxes of 2026"]
    assert await found("änderung") == ["Änderung: 100 % done"]
    assert await found("%") == ["Änderung: 100 % done"]
    assert await found("a_b") == ["a_b"]
    assert await found("\\") == []
    assert len(await found(" ")) == 5


async def test_history_can_be_read_in_parts(memory: Memory) -> None:
    made = await begun(memory, "a", "b", "c")
    first = await memory.messages.history(made.id, owner=ANNA, limit=2)
    rest = await memory.messages.history(made.id, owner=ANNA, after=first[-1].id)
    assert (texts_of(first), texts_of(rest)) == (["a", "b"], ["c"])


async def test_a_turn_that_cannot_be_kept_whole_is_not_kept_at_all(memory: Memory) -> None:
    made = await begun(memory)
    bad = NewMessage(message=Message(role="user", content="b"), metadata={"x": object()})
    with pytest.raises(InvalidRequestError, match="JSON"):
        await memory.messages.append(made.id, [said("a"), bad], owner=ANNA, turn_id="t")
    assert await memory.messages.history(made.id, owner=ANNA) == []
    assert (await memory.conversations.get(made.id, owner=ANNA)).updated_at == made.updated_at


async def test_what_belongs_to_somebody_else_is_not_there(memory: Memory) -> None:
    hers = await begun(memory, "hers", title="hers")
    his = await begun(memory, "his", owner=BEN)
    for act in (
        memory.conversations.get(hers.id, owner=BEN),
        memory.conversations.rename(hers.id, "mine", owner=BEN),
        memory.conversations.note(hers.id, owner=BEN, title="mine", facts={}),
        memory.conversations.suggest_title(hers.id, "mine", owner=BEN),
        memory.conversations.delete(hers.id, owner=BEN),
        memory.messages.history(hers.id, owner=BEN),
        memory.messages.append(hers.id, [said("x")], owner=BEN, turn_id="t"),
    ):
        with pytest.raises(NotFoundError, match="there is no conversation"):
            await act
    page = await memory.conversations.list(owner=BEN)
    assert [c.id for c in page.conversations] == [his.id]
    assert await memory.conversations.counts(owner=BEN) == Counts(conversations=1, messages=1)
    assert (await memory.conversations.get(hers.id, owner=ANNA)).title == "hers"
    assert texts_of(await memory.messages.history(hers.id, owner=ANNA)) == ["hers"]


async def test_an_admin_sees_everything_and_the_rows_stay_the_owners(memory: Memory) -> None:
    assert visible_to(Principal(uid=BEN, gid=1, pid=1)) == BEN
    everything = visible_to(Principal(uid=BEN, gid=1, pid=1, role="admin"))
    hers = await begun(memory, "hers")
    (kept,) = await memory.messages.append(hers.id, [said("x")], owner=everything, turn_id="t")
    assert kept.owner == ANNA
    assert await memory.conversations.counts(owner=everything) == Counts(
        conversations=1, messages=2
    )


async def test_deleting_takes_the_messages_along(memory: Memory) -> None:
    made = await begun(memory, "aardvark")
    other = await begun(memory, "zebra")
    await memory.conversations.delete(made.id, owner=ANNA)
    with pytest.raises(NotFoundError):
        await memory.conversations.get(made.id, owner=ANNA)
    assert await memory.search.find("aardvark", owner=None) == []
    assert await memory.conversations.counts(owner=None) == Counts(conversations=1, messages=1)
    assert texts_of(await memory.messages.history(other.id, owner=ANNA)) == ["zebra"]


async def test_clear_forgets_one_owner_down_to_the_bytes(memory: Memory, tmp_path: Path) -> None:
    await begun(memory, *(f"quixotic xylophone {n}" for n in range(50)), title="quixotic")
    kept = await begun(memory, "walrus", owner=BEN)

    def on_disk(word: bytes) -> bool:
        files = tmp_path.glob("memory.sqlite*")
        return any(word in file.read_bytes() for file in files)

    assert on_disk(b"quixotic")
    gone = await memory.conversations.clear(owner=ANNA)
    assert gone == Counts(conversations=1, messages=50)
    assert not on_disk(b"quixotic")
    assert not on_disk(b"xylophone")
    assert await memory.search.find("quixotic", owner=None) == []
    assert texts_of(await memory.messages.history(kept.id, owner=BEN)) == ["walrus"]
    assert len(await memory.search.find("walrus", owner=BEN)) == 1
    assert await memory.conversations.clear(owner=None) == Counts(conversations=1, messages=1)


async def test_concurrent_turns_of_many_conversations_are_all_kept(memory: Memory) -> None:
    made = [await begun(memory) for _ in range(10)]
    await asyncio.gather(
        *(
            memory.messages.append(c.id, [said(f"{n}"), said(f"{n}")], owner=ANNA, turn_id=f"{n}")
            for n in range(10)
            for c in made
        )
    )
    for conversation in made:
        history = await memory.messages.history(conversation.id, owner=ANNA)
        assert texts_of(history) == [str(n) for n in range(10) for _ in range(2)]


async def test_a_conversation_is_found_by_a_beginning_that_only_it_has(memory: Memory) -> None:
    for name in ("conv-a1", "conv-a2", "conv-b", "conv-b9"):
        await memory.conversations.create(Conversation(id=name, owner=ANNA, workspace="/w"))
    await memory.conversations.create(Conversation(id="conv-a2x", owner=BEN, workspace="/w"))
    match = memory.conversations.match
    assert (await match(" conv-a1 ", owner=ANNA)).id == "conv-a1"
    assert (await match("conv-a2", owner=ANNA)).id == "conv-a2"
    assert (await match("conv-b", owner=None)).id == "conv-b"
    assert (await match("conv-a2x", owner=None)).id == "conv-a2x"
    with pytest.raises(NotFoundError, match="several"):
        await match("conv-a", owner=ANNA)
    for absent in ("", "  ", "conv-c", "conv-a2x", "conv-%", "CONV-A1"):
        with pytest.raises(NotFoundError, match="there is no conversation"):
            await match(absent, owner=ANNA)


async def test_messages_are_counted_by_conversation(memory: Memory) -> None:
    one, two, none = await begun(memory, "a"), await begun(memory, "b", "c"), await begun(memory)
    assert await memory.messages.counts([one.id, two.id, none.id]) == {one.id: 1, two.id: 2}
    assert await memory.messages.counts([]) == {}


async def test_a_closed_memory_says_so(memory: Memory) -> None:
    await memory.close()
    with pytest.raises(StorageError, match="not open"):
        await begun(memory)
    with pytest.raises(StorageError, match="not open"):
        await memory.search.find("x", owner=None)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_CLEAN = st.text().map(clean)
_MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.none() | _CLEAN,
    tool_calls=st.lists(
        st.builds(ToolCall, id=_CLEAN, name=_CLEAN, arguments=_CLEAN), max_size=3
    ).map(tuple),
    tool_call_id=_CLEAN,
    name=_CLEAN,
)


@given(message=_MESSAGES, text=_CLEAN, metadata=st.dictionaries(_CLEAN, _JSON, max_size=3))
def test_a_message_survives_its_row(message: Message, text: str, metadata: dict[str, str]) -> None:
    stored = Stored(
        id=1,
        conversation_id="c",
        owner=ANNA,
        turn_id=text,
        message=message,
        timestamp=timestamp_now(),
        provider=text,
        model=text,
    )
    assert message_of((1, *message_row(stored))) == stored


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(), min_size=1, max_size=5))
async def test_any_text_survives_the_file(memory: Memory, texts: list[str]) -> None:
    made = await begun(memory, *texts)
    history = await memory.messages.history(made.id, owner=ANNA)
    assert texts_of(history) == [clean(text) for text in texts]
    for text in texts:
        await memory.search.find(text, owner=ANNA)


async def test_half_a_surrogate_pair_becomes_a_replacement_character(memory: Memory) -> None:
    made = await begun(memory, "a\ud800b", title="\udcff")
    assert made.title == "\ufffd"
    assert (await memory.conversations.get(made.id, owner=ANNA)).title == "\ufffd"
    call = ToolCall(id="1", name="x", arguments='{"a": "\ud800"}')
    new = NewMessage(
        message=Message(role="assistant", tool_calls=(call,)), metadata={"\ud800": "\ud800"}
    )
    await memory.messages.append(made.id, [new], owner=ANNA, turn_id="t")
    text, called = await memory.messages.history(made.id, owner=ANNA)
    assert text.message.content == "a\ufffdb"
    assert called.message.tool_calls[0].arguments == '{"a": "\ufffd"}'
    assert called.metadata == {"\ufffd": "\ufffd"}
