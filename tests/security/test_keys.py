"""API keys: their form and life, kept in a real memory."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clawd.errors import BusyError, ForbiddenError, InvalidRequestError, NotFoundError, StorageError
from clawd.memory.store import Memory
from clawd.security import keys
from clawd.security.keys import MAX_KEYS, MAX_LINKS, ApiKey, KeyBook, KeyStore, LoginLinks
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from tests.support.rows import each_row

ADA = Principal(uid=1001, gid=1001, pid=1)
BOB = Principal(uid=1002, gid=1002, pid=2)
ADMIN = Principal(uid=0, gid=0, pid=3, role="admin")


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 8, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    opened = await Memory.open(tmp_path / "memory.sqlite")
    yield opened
    await opened.close()


@pytest.fixture
def book(memory: Memory, clock: Clock) -> KeyBook:
    return KeyBook(memory.keys, clock)


async def test_a_key_is_found_by_its_text_also_after_a_restart(
    memory: Memory, book: KeyBook, clock: Clock
) -> None:
    made, text = await book.create(ADA, name="laptop", scopes=("tools", "chat"))
    assert made.scopes == ("chat", "tools")
    assert (made.owner, made.name, made.expires_at) == (ADA.uid, "laptop", "")
    assert book.find(text) == made
    again = KeyBook(memory.keys, clock)
    await again.load()
    assert again.find(text) == made


async def test_nothing_of_a_key_is_kept_that_lets_anybody_in(
    memory: Memory, book: KeyBook, tmp_path: Path
) -> None:
    _, text = await book.create(ADA, name="", scopes=("chat",))
    await memory.close()
    secret = text.rpartition("_")[2]
    for path in tmp_path.iterdir():
        assert secret.encode() not in path.read_bytes()
        assert bytes.fromhex(secret) not in path.read_bytes()


async def test_a_text_that_differs_anywhere_is_no_key(book: KeyBook) -> None:
    _, text = await book.create(ADA, name="", scopes=("chat",))
    for at, letter in enumerate(text):
        other = "b" if letter != "b" else "c"
        assert book.find(text[:at] + other + text[at + 1 :]) is None
    for wrong in ("", text[:-1], text + "0", f" {text}", text.upper(), "clawd_", text + "\n"):
        assert book.find(wrong) is None


async def test_a_key_ends_when_its_days_are_over(book: KeyBook, clock: Clock) -> None:
    made, text = await book.create(ADA, name="", scopes=("chat",), days=2)
    assert made.expires_at == "2026-11-23T08:00:00Z"
    clock.now += timedelta(days=2, seconds=-1)
    assert book.find(text) == made
    clock.now += timedelta(seconds=1)
    assert book.find(text) is None
    # It still counts as one: a door that a key closed does not open by time alone.
    assert (len(book), book.in_force, book.is_expired(made)) == (1, 0, True)


async def test_each_sees_and_revokes_own_keys_and_an_admin_all(book: KeyBook) -> None:
    adas, text = await book.create(ADA, name="a", scopes=("chat",))
    bobs, _ = await book.create(BOB, name="b", scopes=("chat",))
    assert book.visible_to(ADA) == (adas,)
    assert book.visible_to(ADMIN) == (adas, bobs)
    for name in (adas.id, "a"):
        with pytest.raises(NotFoundError):
            await book.revoke(name, BOB)
    assert book.find(text) == adas
    assert await book.revoke("a", ADA) == adas
    assert book.find(text) is None
    assert await book.revoke(bobs.id, ADMIN) == bobs
    assert len(book) == 0


async def test_a_name_that_several_keys_have_revokes_none(book: KeyBook) -> None:
    one, _ = await book.create(ADA, name="x", scopes=("chat",))
    two, _ = await book.create(ADA, name="x", scopes=("chat",))
    with pytest.raises(InvalidRequestError, match=f"{one.id}, {two.id}"):
        await book.revoke("x", ADA)
    assert len(book) == 2


@each_row("scopes", [(), ("root",), ("chat", "")], fresh=["book"])
async def test_scopes_that_are_none_are_refused(book: KeyBook, scopes: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="chat, tools, admin"):
        await book.create(ADMIN, name="", scopes=scopes)


async def test_an_admins_key_is_made_by_admins_only(book: KeyBook) -> None:
    with pytest.raises(ForbiddenError):
        await book.create(ADA, name="", scopes=("chat", "admin"))
    assert len(book) == 0
    made, _ = await book.create(ADMIN, name="", scopes=("admin",))
    assert made.scopes == ("admin",)


@each_row("days", [-1, 3_651], fresh=["book"])
async def test_times_that_cannot_be_meant_are_refused(book: KeyBook, days: int) -> None:
    with pytest.raises(InvalidRequestError):
        await book.create(ADA, name="", scopes=("chat",), days=days)


async def test_use_is_kept_to_the_hour_and_brings_no_revoked_key_back(
    memory: Memory, book: KeyBook, clock: Clock
) -> None:
    made, text = await book.create(ADA, name="", scopes=("chat",))
    await book.note_use(made)
    used = book.find(text)
    assert used is not None
    assert used.used_at == "2026-11-21T08:00:00Z"
    clock.now += timedelta(minutes=30)
    await book.note_use(used)
    assert book.find(text) == used
    assert await memory.keys.load() == (used,)
    await book.revoke(made.id, ADA)
    clock.now += timedelta(hours=2)
    await book.note_use(used)
    assert (await memory.keys.load(), len(book)) == ((), 0)


class Full:
    """A store on a full disk."""

    async def load(self) -> tuple[ApiKey, ...]:
        return tuple(
            ApiKey(id=f"k{n}", digest="", owner=1, name="", scopes=("chat",), created_at="")
            for n in range(MAX_KEYS)
        )

    async def put(self, key: ApiKey) -> None:
        raise StorageError("full")

    async def drop(self, key_id: str) -> None:
        raise StorageError("full")

    async def had_any(self) -> bool:
        return False


async def test_a_key_that_could_not_be_kept_is_none_and_a_revoked_one_stays_revoked() -> None:
    store: KeyStore = Full()
    book = KeyBook(store)
    with pytest.raises(StorageError):
        await book.create(ADA, name="", scopes=("chat",))
    assert len(book) == 0
    await book.load()
    with pytest.raises(StorageError):
        await book.revoke("k1", ADMIN)
    assert len(book) == MAX_KEYS - 1


async def test_keys_are_bounded() -> None:
    book = KeyBook(Full())
    await book.load()
    with pytest.raises(BusyError, match="already"):
        await book.create(ADA, name="", scopes=("chat",))


async def test_a_key_in_a_text_is_taken_out_of_logs_and_receipts(book: KeyBook) -> None:
    _, text = await book.create(ADA, name="", scopes=("chat",))
    assert text not in Redactor([], b"k" * 32).text(f"use {text} please")


async def test_s12_a_revoked_last_key_is_remembered_also_by_the_next_daemon(
    memory: Memory, book: KeyBook
) -> None:
    assert not book.had_any
    made, _ = await book.create(ADA, name="", scopes=("models",))
    assert book.had_any
    await book.revoke(made.id, ADA)
    assert (len(book), book.had_any) == (0, True)
    again = KeyBook(memory.keys)
    await again.load()
    assert (len(again), again.had_any) == (0, True)


def test_a_link_logs_in_once_and_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    links = LoginLinks()
    text = links.make(ADA, is_here=True)
    for other in (
        "",
        "clawd_pagelogin_",
        text[:-1],
        text.upper(),
        f"{text}\n",
        "clawd_pagelogin_é",
    ):
        assert links.take(other) is None, other
    link = links.take(text)
    assert link is not None
    assert (link.principal, link.is_here) == (ADA, True)
    assert links.take(text) is None
    monkeypatch.setattr(keys, "LINK_S", 0.0)
    assert links.take(links.make(ADA, is_here=True)) is None


def test_of_too_many_links_the_oldest_end() -> None:
    links = LoginLinks()
    texts = [links.make(ADA, is_here=False) for _ in range(MAX_LINKS + 1)]
    assert [links.take(text) is not None for text in texts] == [False] + [True] * MAX_LINKS


def test_a_link_in_a_text_is_taken_out_of_logs_and_is_no_key(book: KeyBook) -> None:
    text = book.links.make(ADA, is_here=True)
    assert book.find(text) is None
    assert text not in Redactor([], b"k" * 32).text(f"opened http://127.0.0.1/#login={text}")
