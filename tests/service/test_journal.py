"""Journal entries, read by a stand-in for the journal that speaks its protocol."""

import array
import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.service.logs import EVENTS, JournalHandler, event_of

STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Journal:
    """Receives entries, in datagrams and in sealed memory files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(10)

    def entry(self) -> dict[str, str]:
        descriptors = array.array("i")
        room = socket.CMSG_SPACE(descriptors.itemsize)
        data, ancillary, _, _ = self.socket.recvmsg(1 << 20, room)
        for _, _, payload in ancillary:
            descriptors.frombytes(payload)
        for descriptor in descriptors:
            with os.fdopen(descriptor, "rb") as file:
                file.seek(0)
                data += file.read()
        return parsed(data)


def parsed(data: bytes) -> dict[str, str]:
    fields = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + length], rest[8 + length :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        fields[name.decode()] = value.decode()
        data = rest
    return fields


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "socket")
    yield made
    made.socket.close()


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("clawd.x", logging.WARNING, "/a/b.py", 7, message, (), None, "act")
    made.__dict__.update(fields)
    return made


def told(journal: Journal, made: logging.LogRecord) -> dict[str, str]:
    handler = JournalHandler(STANDARD, journal.path)
    handler.emit(made)
    handler.close()
    return journal.entry()


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
@given(text=st.text(st.characters(exclude_categories=["Cs"])), name=st.from_regex(r"[a-z-]{1,80}"))
def test_no_text_makes_a_field_of_its_own(journal: Journal, text: str, name: str) -> None:
    entry = told(journal, record("x", **{name: text, "tool": text}))
    assert entry["CLAWD_TOOL"] == text
    assert entry["MESSAGE"] == "x"
    assert all(len(each) <= 64 for each in entry)
    assert not any(each.startswith("_") for each in entry)


def test_an_entry_that_no_datagram_holds_arrives_whole(journal: Journal) -> None:
    text = "long\n" * 400_000
    assert told(journal, record(text))["MESSAGE"] == text


def test_without_a_journal_the_line_goes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = JournalHandler(STANDARD, tmp_path / "nobody")
    handler.emit(record("odd"))
    handler.close()
    assert capsys.readouterr().err == "<4>odd\n"


def test_where_stderr_has_ended_too_nothing_but_the_line_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1, closefd=False) as ended:
        monkeypatch.setattr("sys.stderr", ended)
        handler = JournalHandler(STANDARD, tmp_path / "nobody")
        handler.emit(record("odd"))
        handler.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # what is still buffered goes there
    os.close(writing)


def test_an_entry_arrives_again_when_the_journal_is_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "socket"
    first = Journal(path)
    handler = JournalHandler(STANDARD, path)
    handler.emit(record("one"))
    assert first.entry()["MESSAGE"] == "one"
    first.socket.close()
    path.unlink()
    handler.emit(record("two"))
    assert capsys.readouterr().err == "<4>two\n"
    second = Journal(path)
    handler.emit(record("three"))
    assert second.entry()["MESSAGE"] == "three"
    handler.close()
    second.socket.close()
