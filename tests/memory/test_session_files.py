"""Session files in memory: they belong to one conversation, have limits, and go with it."""

import sqlite3
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.config.sections import SessionFilesSection
from clawd.errors import InvalidRequestError, NotFoundError
from clawd.memory.session_files import SUMMARY_LIMIT, FileNews, described
from clawd.memory.store import Memory
from tests.memory.samples import ANNA, BEN, begun
from tests.support.rows import each_row


async def names(memory: Memory, conversation_id: str) -> list[str]:
    found = await memory.session_files.list(conversation_id, owner=None)
    return [file.name for file in found]


async def test_what_is_saved_is_loaded_byte_by_byte(memory: Memory) -> None:
    files, conversation = memory.session_files, await begun(memory)
    content = bytes(range(256)) * 3
    saved = await files.save(conversation.id, "a.bin", content, owner=ANNA)
    assert await files.load(conversation.id, "a.bin", owner=ANNA) == (saved, content)
    assert (saved.size, saved.mime, saved.summary) == (768, "application/octet-stream", "not text")
    changed = await files.append(conversation.id, "a.bin", b"more", owner=ANNA)
    assert (changed.size, changed.created_at) == (772, saved.created_at)
    _, part = await files.part(conversation.id, "a.bin", owner=ANNA, offset=767, length=3)
    assert part == b"\xffmo"
    assert (await files.part(conversation.id, "a.bin", owner=ANNA, offset=9999))[1] == b""


async def test_append_begins_a_file_that_is_missing(memory: Memory) -> None:
    conversation = await begun(memory)
    made = await memory.session_files.append(conversation.id, "a.md", "é\n".encode(), owner=ANNA)
    assert (made.mime, made.summary, made.size) == ("text/markdown", "1 line: é", 3)
    await memory.session_files.append(conversation.id, "a.md", b"two\nthree", owner=ANNA)
    file, content = await memory.session_files.load(conversation.id, "a.md", owner=ANNA)
    assert (file.summary, content.decode()) == ("3 lines: é two three", "é\ntwo\nthree")


async def test_nobody_else_sees_or_changes_them(memory: Memory) -> None:
    files, conversation = memory.session_files, await begun(memory)
    await files.save(conversation.id, "a.txt", b"mine", owner=ANNA)
    for work in (
        files.list(conversation.id, owner=BEN),
        files.load(conversation.id, "a.txt", owner=BEN),
        files.save(conversation.id, "a.txt", b"his", owner=BEN),
        files.append(conversation.id, "a.txt", b"his", owner=BEN),
        files.keep(conversation.id, "shell", b"his", owner=BEN),
        files.delete(conversation.id, "a.txt", owner=BEN),
    ):
        with pytest.raises(NotFoundError):
            await work
    assert (await files.load(conversation.id, "a.txt", owner=None))[1] == b"mine"
    other = await begun(memory, owner=BEN)
    with pytest.raises(NotFoundError):
        await files.load(other.id, "a.txt", owner=BEN)
    with pytest.raises(NotFoundError):
        await files.copy(conversation.id, other.id, owner=BEN)


async def test_a_number_is_never_given_twice(memory: Memory) -> None:
    files, conversation = memory.session_files, await begun(memory)
    first = await files.keep(conversation.id, "shell", b"1", owner=ANNA)
    await files.save(conversation.id, "shell-2.txt", b"by name", owner=ANNA)
    second = await files.keep(conversation.id, "shell", b"2", owner=ANNA)
    assert (first.name, second.name) == ("shell-1.txt", "shell-3.txt")
    assert (first.is_kept, second.is_kept) == (True, True)
    await files.delete(conversation.id, "shell-3.txt", owner=ANNA)
    third = await files.keep(conversation.id, "http", b"3", owner=ANNA)
    assert third.name == "http-4.txt"


async def test_what_was_kept_goes_oldest_first_and_what_was_written_stays(memory: Memory) -> None:
    files, conversation = memory.session_files, await begun(memory)
    files.limits = SessionFilesSection.model_construct(
        max_file_bytes=60, max_conversation_bytes=100, max_files=4
    )
    await files.save(conversation.id, "named.txt", b"n" * 40, owner=ANNA)
    for _ in range(2):
        await files.keep(conversation.id, "shell", b"k" * 20, owner=ANNA)
    await files.keep(conversation.id, "shell", b"k" * 30, owner=ANNA)  # 110 bytes: one goes
    assert await names(memory, conversation.id) == ["shell-3.txt", "shell-2.txt", "named.txt"]
    await files.save(conversation.id, "more.txt", b"m" * 60, owner=ANNA)
    assert await names(memory, conversation.id) == ["more.txt", "named.txt"]
    with pytest.raises(InvalidRequestError, match="no room for session file shell-4"):
        await files.keep(conversation.id, "shell", b"k", owner=ANNA)
    with pytest.raises(InvalidRequestError, match="no room"):
        await files.append(conversation.id, "named.txt", b"n", owner=ANNA)
    assert await names(memory, conversation.id) == ["more.txt", "named.txt"]
    assert (await files.save(conversation.id, "named.txt", b"n" * 40, owner=ANNA)).size == 40


async def test_a_refused_file_drops_nothing(memory: Memory) -> None:
    files, conversation = memory.session_files, await begun(memory)
    files.limits = SessionFilesSection.model_construct(
        max_file_bytes=100, max_conversation_bytes=100, max_files=9
    )
    await files.save(conversation.id, "named.txt", b"n" * 60, owner=ANNA)
    await files.keep(conversation.id, "shell", b"k" * 40, owner=ANNA)
    for size in (50, 101):
        with pytest.raises(InvalidRequestError):
            await files.save(conversation.id, "big.txt", b"x" * size, owner=ANNA)
    assert await names(memory, conversation.id) == ["shell-1.txt", "named.txt"]


async def test_there_are_only_so_many_files(memory: Memory) -> None:
    files, conversation = memory.session_files, await begun(memory)
    files.limits = SessionFilesSection.model_construct(max_files=2)
    await files.keep(conversation.id, "shell", b"", owner=ANNA)
    await files.save(conversation.id, "a", b"", owner=ANNA)
    await files.save(conversation.id, "b", b"", owner=ANNA)
    assert await names(memory, conversation.id) == ["b", "a"]
    with pytest.raises(InvalidRequestError, match="2 files written by name"):
        await files.save(conversation.id, "c", b"", owner=ANNA)


@each_row(
    "name", ["", ".", "..", "../a", "a/b", "a b", "a\0", ".a", "é", "a" * 101], fresh=["memory"]
)
async def test_hostile_names_are_refused(memory: Memory, name: str) -> None:
    conversation = await begun(memory)
    with pytest.raises(InvalidRequestError, match="no name of a session file"):
        await memory.session_files.save(conversation.id, name, b"", owner=ANNA)
    with pytest.raises(NotFoundError):
        await memory.session_files.load(conversation.id, name, owner=ANNA)


async def test_they_go_with_their_conversation(memory: Memory, tmp_path: Path) -> None:
    files, conversation = memory.session_files, await begun(memory)
    await files.keep(conversation.id, "shell", b"purple", owner=ANNA)
    await memory.conversations.delete(conversation.id, owner=ANNA)
    with sqlite3.connect(tmp_path / "memory.sqlite") as connection:
        for table in ("session_files", "session_file_numbers"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    connection.close()


async def test_a_copy_is_its_own_and_goes_on_counting(memory: Memory) -> None:
    files = memory.session_files
    old, new = await begun(memory), await begun(memory)
    kept = await files.keep(old.id, "shell", b"1", owner=ANNA)
    named = await files.save(old.id, "a.txt", b"a", owner=ANNA)
    assert await files.copy(old.id, new.id, owner=ANNA) == 2
    assert await files.list(new.id, owner=ANNA) == (named, kept)
    await files.save(new.id, "a.txt", b"b", owner=ANNA)
    assert (await files.load(old.id, "a.txt", owner=ANNA))[1] == b"a"
    assert (await files.keep(new.id, "shell", b"2", owner=ANNA)).name == "shell-2.txt"
    await memory.conversations.delete(old.id, owner=ANNA)
    assert await names(memory, new.id) == ["shell-2.txt", "a.txt", "shell-1.txt"]


async def test_they_survive_a_restart(memory: Memory) -> None:
    conversation = await begun(memory)
    await memory.session_files.keep(conversation.id, "shell", b"x" * 300_000, owner=ANNA)
    await memory.close()
    again = await Memory.open(memory.path)
    _, content = await again.session_files.load(conversation.id, "shell-1.txt", owner=ANNA)
    assert content == b"x" * 300_000
    await again.close()


@given(st.binary(max_size=400), st.sampled_from(["a", "a.txt", "a.png", "a.json", "a.tar.gz"]))
def test_a_summary_is_one_short_line_of_printable_text(content: bytes, name: str) -> None:
    mime, summary = described(name, content)
    assert len(summary) <= SUMMARY_LIMIT
    assert not set(summary) & set(map(chr, [*range(32), 127]))
    assert set(mime) <= set(string.ascii_letters + string.digits + "/.+-")


@each_row(
    ("name", "content", "expected"),
    [
        ("a.txt", b"", ("text/plain", "0 lines")),
        ("a", b"one\r\ntwo\n", ("text/plain", "2 lines: one two")),
        ("a.json", b"{}", ("application/json", "1 line: {}")),
        ("a.txt", b"\xff", ("application/octet-stream", "not text")),
        ("a.png", b"\x89PNG\0", ("image/png", "not text")),
        ("a", b"a\x1b[31m\x00", ("application/octet-stream", "not text")),
        ("a", b"a\x1b]0;x\x07b", ("text/plain", "1 line: a ]0;x b")),
    ],
)
def test_type_and_summary_are_made_from_name_and_content(
    name: str, content: bytes, expected: tuple[str, str]
) -> None:
    assert described(name, content) == expected


async def test_m6_every_change_is_told_once_it_is_kept(memory: Memory) -> None:
    files, conversation = memory.session_files, await begun(memory)
    told: list[FileNews] = []
    files.tell = told.append
    files.limits = SessionFilesSection.model_construct(max_files=3)
    kept = await files.keep(conversation.id, "shell", b"long", owner=ANNA)
    saved = await files.save(conversation.id, "a.txt", b"one", owner=ANNA)
    longer = await files.append(conversation.id, "a.txt", b" two", owner=ANNA)
    assert not await files.summarise(conversation.id, saved, "the old one", owner=ANNA)
    assert await files.summarise(conversation.id, longer, "Holds two\nwords.", owner=ANNA)
    (summed, _) = await files.load(conversation.id, "a.txt", owner=ANNA)
    await files.save(conversation.id, "b.txt", b"b", owner=ANNA)
    await files.save(conversation.id, "c.txt", b"c", owner=ANNA)  # shell-1.txt makes room
    await files.delete(conversation.id, "a.txt", owner=ANNA)
    with pytest.raises(NotFoundError):
        await files.delete(conversation.id, "a.txt", owner=ANNA)
    assert {(news.conversation_id, news.owner) for news in told} == {(conversation.id, ANNA)}
    assert [(news.name, news.file and news.file.summary, news.is_by_model) for news in told] == [
        ("shell-1.txt", "1 line: long", False),
        ("a.txt", "1 line: one", False),
        ("a.txt", "1 line: one two", False),
        ("a.txt", "Holds two words.", True),
        ("b.txt", "1 line: b", False),
        ("shell-1.txt", None, False),
        ("c.txt", "1 line: c", False),
        ("a.txt", None, False),
    ]
    assert (kept.name, summed.summary) == ("shell-1.txt", "Holds two words.")
