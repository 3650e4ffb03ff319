"""What must be true after a kill: nothing told is lost, and all that was done is recorded."""

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawctl.client import Client
from clawd.receipts.verify import verify
from clawd.wire.conversations import ConversationDetail, ReadSessionFile, ShowConversation
from clawd.wire.daemon import ClearEstop, EstopState, Status
from clawd.wire.memory import LoadKnowledge
from clawd.wire.policy import ListRules
from clawd.wire.receipts import VerifyReceipts
from clawd.wire.turns import SendMessage
from tests.fault.lanes import MARK
from tests.fault.told import ANY, Told
from tests.support.home import Home
from tests.support.second_verifier import verify as verify_again

Receipt = dict[str, Any]
CRASHED = re.compile(
    r"the last clawd of this home \(pid (\d+), started [^)]+\) did not end in order"
)
CLOSED = re.compile(r"(\d+) calls? (?:was|were) (?:cut off|still waiting)")
KNOWLEDGE_AT_ONCE = 12


class Oracle:
    """Holds a home against what its clients were told.

    Attributes:
        interrupted: how many calls the starts had to close, in all.
    """

    def __init__(self, home: Home, told: Told) -> None:
        self.interrupted = 0
        self._home = home
        self._told = told
        self._last_message = 0
        self._next_receipt = 0
        self._by_mark: dict[str, Receipt] = {}
        self._ids: set[str] = set()
        self._closed = 0

    def check(self, client: Client, *, killed: set[int], is_torn: bool | None) -> None:
        """Check everything; a daemon that was just started answers at the client."""
        assert self._told.failures == [], (self._told.failures, self._home.log()[-4000:])
        self._check_chain(client)
        self._check_receipts()
        self._check_what_it_says(client, killed, is_torn=is_torn)
        self._check_workspace()
        self._check_memory()
        self._check_by_asking(client)
        self._told.forget_round()

    def _check_chain(self, client: Client) -> None:
        report = client.call(Status())
        assert report.receipts_problem == ""
        by_daemon = client.call(VerifyReceipts())
        assert by_daemon.ok, by_daemon.message
        found = verify(self._home.receipts)
        assert found.ok, found.message
        again = verify_again(self._home.receipts, (report.receipts, report.receipts_head))
        assert (again[0], again[-1]) == (report.receipts, None)

    def _check_receipts(self) -> None:
        """Take the new receipts in: each call has one, and has left its arguments and result."""
        fresh = self._home.receipt_lines()[self._next_receipt :]
        self._next_receipt += len(fresh)
        ids = Counter(receipt["id"] for receipt in fresh)
        assert [name for name, count in ids.items() if count > 1] == []
        assert not self._ids & set(ids)
        self._ids |= set(ids)
        assert self._told.receipts - {""} <= self._ids, "a receipt that was told is gone"
        self._closed = sum(receipt["reason"].startswith("interrupted") for receipt in fresh)
        self.interrupted += self._closed
        with self._memory() as memory:
            for receipt in fresh:
                asked = _content(memory, receipt["args_hash"])
                _content(memory, receipt["result_hash"])
                if receipt["tool"] == "approval_rule":
                    continue  # a rule that was granted tells of the call that it was asked for
                for mark in set(MARK.findall(asked)):
                    # A question that was cut off is answered late, with a receipt of its own.
                    before = self._by_mark.get(mark, {"reason": "can still be answered"})
                    assert "can still be answered" in before["reason"], f"{mark} has two receipts"
                    self._by_mark[mark] = receipt
            (open_ones,) = memory.execute("SELECT count(*) FROM intents").fetchone()
        assert open_ones == 0

    def _check_what_it_says(
        self, client: Client, killed: set[int], *, is_torn: bool | None
    ) -> None:
        found = client.call(Status()).found_at_start
        if not killed:
            assert found == ()
            return
        told = CRASHED.search(found[0])
        assert told is not None, found
        assert int(told[1]) in killed
        text = "\n".join(found)
        assert sum(map(int, CLOSED.findall(text))) <= self._closed
        assert is_torn is None or ("half a receipt" in text) == is_torn, found
        log = self._home.log()
        assert [line for line in found if line not in log] == []

    def _check_workspace(self) -> None:
        told = self._told
        done: Counter[str] = Counter()
        where: dict[str, str] = {}
        for path in self._home.workspace.glob("*.txt"):
            for mark in MARK.findall(path.read_text()):
                done[mark] += 1
                where[mark] = path.name
        assert [mark for mark, count in done.items() if count > 1] == [], "done twice"
        unknown = {mark: where[mark] for mark in done if mark not in self._by_mark}
        assert unknown == {}, "done without a receipt"
        assert {mark for mark, path in told.marks.items() if where.get(mark) != path} == set()
        assert told.undone & set(done) == set()
        assert told.denied & set(done) == set()
        for mark in done:
            status, reason = (self._by_mark[mark][name] for name in ("status", "reason"))
            assert (
                status == "allowed"
                or (status, reason) == ("failed", "interrupted")
                or (
                    # It had done its work when somebody stopped it.
                    status == "failed"
                )
            ), self._by_mark[mark]
        for path in list(self._home.workspace.glob("*.txt")):
            if path.stat().st_size > 100_000:  # or every check reads more than the one before
                path.unlink()
                told.marks = {m: p for m, p in told.marks.items() if p != path.name}

    def _check_memory(self) -> None:
        with self._memory() as memory:
            assert memory.execute("PRAGMA quick_check").fetchone() == ("ok",)
            rows = memory.execute(
                "SELECT id, role, conversation_id, content FROM messages WHERE id > ? ORDER BY id",
                (self._last_message,),
            ).fetchall()
            replaced = dict(
                memory.execute("SELECT conversation_id, count(*) FROM checkpoints GROUP BY 1")
            )
        self._last_message = rows[-1][0] if rows else self._last_message
        said = "\n".join(row[3] or "" for row in rows if row[1] == "user")
        answered = "\n".join(row[3] or "" for row in rows if row[1] == "assistant")
        for conversation, text, answer in self._told.answers:
            assert text in said, f"{text!r} is lost"
            assert answer in answered, f"the answer {answer!r} is lost"
            assert not conversation or any(row[2] == conversation for row in rows)
        assert self._told.compressed <= set(replaced)
        for path in self._told.backups:
            with contextlib.closing(sqlite3.connect(path)) as copy:
                assert copy.execute("PRAGMA quick_check").fetchone() == ("ok",)
            Path(path).unlink()

    def _check_by_asking(self, client: Client) -> None:
        told = self._told
        assert client.call(EstopState()).is_set in told.stops
        client.call(ClearEstop())
        told.stops = [False]
        rules = {rule.id for rule in client.call(ListRules()).items}
        assert told.rules <= rules, "a rule that was told is not in force"
        for keywords, content in list(told.knowledge.items())[-KNOWLEDGE_AT_ONCE:]:
            entries = client.call(LoadKnowledge(keywords=keywords)).entries
            texts = [entry.text.strip() for entry in entries]
            assert texts == [content.strip()], (keywords, texts)
        for keywords in list(told.deleted)[-KNOWLEDGE_AT_ONCE:]:
            assert client.call(LoadKnowledge(keywords=keywords)).entries == ()
        for (conversation, name), data in list(told.files.items())[-KNOWLEDGE_AT_ONCE:]:
            ask = ReadSessionFile(conversation_id=conversation, name=name)
            assert client.call(ask).data == data
        titles = list(told.titles.items())[-3:]
        for conversation, title in titles:
            shown: ConversationDetail = client.call(ShowConversation(conversation_id=conversation))
            assert ANY in title or shown.conversation.title in title
            self._check_goes_on(client, conversation)

    def _check_goes_on(self, client: Client, conversation: str) -> None:
        stream = client.stream(SendMessage(text="go on", conversation_id=conversation))
        for _event in stream:
            pass
        assert stream.result.text == "answer to go on"

    @contextlib.contextmanager
    def _memory(self) -> Iterator[sqlite3.Connection]:
        path = self._home.path / "memory.sqlite"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as memory:
            yield memory


def _content(memory: sqlite3.Connection, digest: str) -> str:
    row = memory.execute("SELECT content FROM contents WHERE hash = ?", (digest,)).fetchone()
    assert row is not None, f"what a receipt hashed is gone: {digest}"
    return bytes(row[0]).decode()
