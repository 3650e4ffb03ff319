"""Journal entries: what is given to systemd.journal, and what becomes of it where that fails."""

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.security.redact import Redactor
from clawd.service import logs
from clawd.service.logs import EVENTS, JournalHandler, event_of, set_up


class Journal(ModuleType):
    """Keeps the entries that it is given."""

    def __init__(self) -> None:
        super().__init__("systemd.journal")
        self.entries: list[dict[str, str]] = []
        self.error: OSError | None = None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def send(self, *, CODE_LINE: int, **entry: str) -> None:  # noqa: N803 - as in systemd.journal
        if self.error is not None:
            raise self.error
        "".join(entry.values()).encode()  # as libsystemd does
        self.entries.append(entry | {"CODE_LINE": f"{CODE_LINE:d}"})


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    """A journal whose socket is there."""
    monkeypatch.setattr(logs, "JOURNAL_SOCKET", tmp_path / "socket")
    made = Journal()
    with made.socket:
        made.socket.bind(str(tmp_path / "socket"))
        yield made


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("clawd.x", logging.WARNING, "/a/b.py", 7, message, (), None, "act")
    made.__dict__.update(fields)
    return made


def told(journal: Journal, made: logging.LogRecord) -> dict[str, str]:
    JournalHandler(journal).emit(made)
    return journal.entries.pop()


def test_an_entry_says_what_where_and_how_bad(journal: Journal) -> None:
    assert told(journal, record("odd", tool="shell", duration_ms=3, nothing=None)) == {
        "MESSAGE": "odd",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "clawd",
        "LOGGER": "clawd.x",
        "CODE_FILE": "/a/b.py",
        "CODE_LINE": "7",
        "CODE_FUNC": "act",
        "CLAWD_TOOL": "shell",
        "CLAWD_DURATION_MS": "3",
    }


def test_an_event_has_its_name_and_its_id(journal: Journal) -> None:
    entry = told(journal, record("tool denied"))
    assert (entry["CLAWD_EVENT"], entry["MESSAGE_ID"]) == EVENTS["tool denied"]
    assert event_of(record("tool denied")) == "tool_denied"
    assert not event_of(record("tool denied by somebody"))


def test_ids_are_128_bits_and_names_are_plain_and_each_is_there_once() -> None:
    names, ids = zip(*EVENTS.values(), strict=True)
    assert len(set(names)) == len(set(ids)) == len(EVENTS)
    assert all(len(bytes.fromhex(each)) == 16 for each in ids)
    assert all(name.replace("_", "").isalpha() and name.islower() for name in names)


@settings(
    # A text is drawn as slowly as the machine is busy.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    max_examples=60,
)
@given(text=st.text(), name=st.from_regex(r"[a-z-]{1,80}"))
def test_no_text_makes_a_field_of_its_own(journal: Journal, text: str, name: str) -> None:
    entry = told(journal, record("x", **{name: text, "tool": text}))
    assert entry["CLAWD_TOOL"] == text.encode(errors="replace").decode()
    assert entry["MESSAGE"] == "x"
    assert all(len(each) <= 64 for each in entry)
    assert not any(each.startswith("_") for each in entry)


def test_without_a_journal_the_line_goes_to_stderr(
    journal: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = JournalHandler(journal)
    journal.error = ConnectionRefusedError()
    handler.emit(record("odd"))
    assert capsys.readouterr().err == "<4>odd\n"
    journal.error = None
    handler.emit(record("back"))
    assert [entry["MESSAGE"] for entry in journal.entries] == ["back"]
    assert not capsys.readouterr().err
    logs.JOURNAL_SOCKET.unlink()
    handler.emit(record("odd, too"))
    assert capsys.readouterr().err == "<4>odd, too\n"


def test_a_journal_that_does_not_read_is_not_waited_for(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "_SEND_LIMIT_S", 0.001)
    with journal.socket.dup() as full, contextlib.suppress(BlockingIOError):
        while True:
            full.sendto(b"x", str(logs.JOURNAL_SOCKET))
    JournalHandler(journal).emit(record("odd"))
    assert capsys.readouterr().err == "<4>odd\n"
    assert journal.entries == []


def test_where_stderr_has_ended_too_nothing_but_the_line_is_lost(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.JOURNAL_SOCKET.unlink()
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1, closefd=False) as ended:
        monkeypatch.setattr("sys.stderr", ended)
        JournalHandler(journal).emit(record("odd"))
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # what is still buffered goes there
    os.close(writing)


def test_with_the_extra_a_log_that_is_the_journals_gets_entries(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = ModuleType("systemd")
    package.journal = journal  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "systemd", package)
    monkeypatch.setitem(sys.modules, "systemd.journal", journal)
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    about = os.fstat(2)
    set_up({"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"}, Redactor(["hunter22"], b"k" * 32))
    logging.getLogger("clawd.test").warning("with hunter22", extra={"tool": "shell"})
    (entry,) = journal.entries
    assert (entry["PRIORITY"], entry["CLAWD_TOOL"]) == ("4", "shell")
    assert entry["MESSAGE"].startswith("with [secret:")
