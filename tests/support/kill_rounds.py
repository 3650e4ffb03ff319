"""A daemon that is killed in the middle of eight conversations, and what must be true after.

Every call of a round writes a mark of its own (`mark-r7-l2-t0-c1`) into a file of the workspace,
so that what ran can be told from what the receipts say ran.
"""

import contextlib
import os
import random
import re
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawctl.client import Client, connect
from clawd.errors import ClawError
from clawd.receipts.verify import verify
from clawd.wire.daemon import Status
from clawd.wire.events import ToolFinished, ToolStarted
from clawd.wire.receipts import VerifyReceipts
from clawd.wire.turns import SendMessage
from tests.support.home import DEADLINE_S, Home

CONVERSATIONS = 8
TURNS = 6
CALLS = 3
MOST_EVENTS = 2 * CONVERSATIONS * TURNS * CALLS
FULL = '[security]\nautonomy = "full"\n'
MARK = re.compile(r"mark-r\d+-l\d+-t\d+-c\d+")

Receipt = dict[str, Any]


class KillRounds:
    """Runs rounds on one home; each start checks what is there.

    Attributes:
        told: the ids of receipts whose calls a client saw finished.
        interrupted: how many receipts the starts had to write.
        kills: how often the daemon was killed, at work or while it started.
    """

    def __init__(self, home: Home, seed: int) -> None:
        self.told: set[str] = set()
        self.interrupted = 0
        self.kills = 0
        self._rounds = 0
        self._home = home
        self._random = random.Random(seed)
        self._seen = 0
        self._news = threading.Condition()

    def restart(self) -> None:
        """Start the daemon with new work to do, and check what the last kill left."""
        self._rounds += 1
        self._home.configure(*_script(self._rounds), tables=FULL)
        self._home.spawn()
        self._wait_until_it_answers()
        self._check()

    def kill_at_work(self) -> None:
        """Let eight conversations work and kill the daemon at a random point."""
        self._seen = 0
        point = self._random.randrange(1, MOST_EVENTS)
        lanes = [
            threading.Thread(target=self._converse, args=(number,))
            for number in range(CONVERSATIONS)
        ]
        for lane in lanes:
            lane.start()
        with self._news:
            self._news.wait_for(
                lambda: self._seen >= point or not any(lane.is_alive() for lane in lanes),
                timeout=DEADLINE_S,
            )
        time.sleep(self._random.uniform(0, 0.01))  # the point is random, so no event marks it
        self._kill()
        for lane in lanes:
            lane.join(DEADLINE_S)
            assert not lane.is_alive(), self._home.log()

    def kill_at_start(self) -> None:
        """Kill the daemon while it starts, perhaps in the middle of closing what was cut off."""
        self._home.spawn()
        time.sleep(self._random.uniform(0.2, 1.0))
        self._kill()

    def receipts(self) -> list[Receipt]:
        """Return the receipts of the log, without what else stands in it."""
        return [line for line in self._home.receipt_lines() if "id" in line]

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(ClawError), self._connected() as client:
                client.call(Status())
                return
            assert self._home.daemon is not None
            assert self._home.daemon.poll() is None, self._home.log()
            assert time.monotonic() < deadline, self._home.log()
            time.sleep(0.01)

    def _check(self) -> None:
        with self._connected() as client:
            assert client.call(Status()).receipts_problem == ""
            by_daemon = client.call(VerifyReceipts())
        assert by_daemon.ok, by_daemon.message
        found = verify(self._home.receipts)
        assert found.ok, found.message
        receipts = self.receipts()
        ids = Counter(receipt["id"] for receipt in receipts)
        assert [name for name, count in ids.items() if count > 1] == []
        assert self.told <= set(ids), "a client was told of a call whose receipt is gone"
        self._check_marks(receipts)
        assert self._intents() == 0
        self.interrupted = sum(r["reason"] == "interrupted" for r in receipts)

    def _check_marks(self, receipts: list[Receipt]) -> None:
        contents = self._contents()
        by_mark: dict[str, Receipt] = {}
        for receipt in receipts:
            asked = contents[receipt["args_hash"]]
            assert receipt["result_hash"] in contents
            for mark in MARK.findall(asked):
                assert mark not in by_mark, f"{mark} has two receipts"
                by_mark[mark] = receipt
        done = Counter(self._marks())
        assert [mark for mark, count in done.items() if count > 1] == []
        assert [mark for mark in done if mark not in by_mark] == [], "ran without a receipt"
        for mark, receipt in by_mark.items():
            if mark in done:
                assert (receipt["status"], receipt["reason"]) == ("failed", "interrupted") or (
                    receipt["status"] == "allowed"
                ), receipt
            else:
                assert receipt["status"] != "allowed", receipt

    def _converse(self, lane: int) -> None:
        with contextlib.suppress(ClawError), self._connected() as client:
            conversation = ""
            for turn in range(TURNS):
                text = f"lane {lane} turn {turn}."
                stream = client.stream(SendMessage(text=text, conversation_id=conversation))
                for event in stream:
                    if isinstance(event, ToolFinished):
                        self.told.add(event.receipt_id)
                    if isinstance(event, ToolFinished | ToolStarted):
                        with self._news:
                            self._seen += 1
                            self._news.notify()
                conversation = stream.result.conversation_id
        with self._news:
            self._news.notify()

    def _kill(self) -> None:
        assert self._home.daemon is not None
        self.kills += 1
        self._home.daemon.send_signal(signal.SIGKILL)
        self._home.daemon.wait(DEADLINE_S)
        assert self._home.daemon.returncode == -signal.SIGKILL, self._home.log()
        self._home.daemon = None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Client]:
        with connect(self._home.path / "run" / "clawd.sock") as client:
            yield client

    def _marks(self) -> list[str]:
        texts = [path.read_text() for path in self._home.workspace.glob("lane-*.txt")]
        return [mark for text in texts for mark in MARK.findall(text)]

    def _contents(self) -> dict[str, str]:
        with self._memory() as memory:
            rows = memory.execute("SELECT hash, content FROM contents")
            return {row[0]: bytes(row[1]).decode() for row in rows}

    def _intents(self) -> int:
        with self._memory() as memory:
            (count,) = memory.execute("SELECT count(*) FROM intents").fetchone()
            return int(count)

    @contextlib.contextmanager
    def _memory(self) -> Iterator[sqlite3.Connection]:
        path: Path = self._home.path / "memory.sqlite"
        memory = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            yield memory
        finally:
            memory.close()


def kills_wanted(default: int) -> int:
    """Return how often to kill: CLAWD_KILLS, or the default."""
    return int(os.environ.get("CLAWD_KILLS", "") or default)


def _script(number: int) -> list[dict[str, Any]]:
    replies: list[dict[str, Any]] = []
    for lane in range(CONVERSATIONS):
        for turn in range(TURNS):
            calls = [_call(f"mark-r{number}-l{lane}-t{turn}-c{call}") for call in range(CALLS)]
            calls.insert(turn % CALLS, {"name": "file_read", "arguments": {"path": "/etc/shadow"}})
            replies.append({"when": f"lane {lane} turn {turn}.", "tool_calls": calls})
    return [*replies, {"after": "tool", "text": "done"}]


def _call(mark: str) -> dict[str, Any]:
    """Return a call that leaves the mark: every third by a command, the others by a tool."""
    path = f"lane-{mark.split('-')[2]}.txt"
    if mark.endswith("c2"):
        return {"name": "shell", "arguments": {"command": f"echo {mark} >> {path}"}}
    return {"name": "file_append", "arguments": {"path": path, "content": f"{mark}\n"}}
