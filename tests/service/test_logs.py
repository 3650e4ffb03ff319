"""Logs: lines for people, JSON for programs, nothing forged, no secret in them."""

import json
import logging
import os
import sys
import unicodedata
from collections.abc import Iterator

import pytest

from clawd.security.redact import Redactor
from clawd.service.logs import set_up
from tests.support.hostile import HOSTILE
from tests.support.rows import each_row

SECRET = "correct-horse-battery"
REDACTOR = Redactor([SECRET], b"k" * 32)
log = logging.getLogger("clawd.test")


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def entry(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    (line,) = lines(capsys)
    decoded: dict[str, object] = json.loads(line)
    return decoded


def fail() -> None:
    raise ValueError(f"\x1b[2J{SECRET}\n2026-01-01 00:00:00 INFO clawd: forged")


def test_a_line_for_people_has_time_level_place_text_and_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up({}, REDACTOR)
    log.info("tool %s", "completed", extra={"tool": "file_list", "count": 3, "ok": True})
    (line,) = lines(capsys)
    date, time, rest = line.split(" ", 2)
    assert (len(date), len(time)) == (10, 8)
    assert rest == "INFO clawd.test: tool completed tool=file_list count=3 ok=True"


def test_fields_cannot_be_confused(capsys: pytest.CaptureFixture[str]) -> None:
    set_up({}, REDACTOR)
    log.info("x", extra={"a": "one two", "b": 'y" receipt="z', "c": "", "d": "k=v", "e": None})
    (line,) = lines(capsys)
    assert line.endswith(r' x a="one two" b="y\" receipt=\"z" c="" d="k=v" e=None')


def test_no_text_drives_the_terminal_that_a_log_is_read_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for environ in ({}, {"CLAWD_LOG": "json"}):
        set_up(environ, REDACTOR)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("bad: %s", HOSTILE, extra={"tool": HOSTILE})
        told = capsys.readouterr().err
        bad = [c for c in told if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]
        assert set(bad) <= {"\n"}
        first = told.splitlines()[0]
        assert len(first) < 6_000 or environ


def test_control_characters_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    set_up({}, REDACTOR)
    hostile = "\x1b[31mred\r\n2026-01-01 00:00:00 INFO clawd: forged\u202e\x9b\udcff"
    log.warning("peer said %s", hostile, extra={"name_of_file": hostile})
    (line,) = lines(capsys)
    assert "‹U+001B›[31mred‹U+000D›‹U+000A›2026" in line
    assert not set(line) & set("\x1b\r\u202e\x9b")


def test_a_traceback_stands_indented_and_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    set_up({}, REDACTOR)
    try:
        fail()
    except ValueError as error:
        log.error("a defect", exc_info=error)
    first, *rest = lines(capsys)
    assert first.endswith("ERROR clawd.test: a defect")
    assert any("ValueError" in line for line in rest)
    assert all(line.startswith("  ") for line in rest)
    assert SECRET not in "".join(rest)
    assert "\x1b" not in "".join(rest)


def test_json_has_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up({"CLAWD_LOG": "json"}, REDACTOR)
    log.warning("peer said %s", "a\nb\u202e\udcff", extra={"count": 3, "path": ["x"], "on": None})
    found = entry(capsys)
    assert str(found.pop("time")).endswith("Z")
    assert found == {
        "level": "warning",
        "logger": "clawd.test",
        "message": "peer said a\nb\u202e\udcff",
        "count": 3,
        "path": "['x']",
        "on": None,
    }


def test_json_carries_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    set_up({"CLAWD_LOG": "json"}, REDACTOR)
    try:
        fail()
    except ValueError:
        log.exception("a defect")
    traceback = str(entry(capsys)["traceback"])
    assert traceback.startswith("Traceback")
    assert "ValueError" in traceback
    assert SECRET not in traceback


@each_row("environ", [{}, {"CLAWD_LOG": "json"}])
def test_secrets_are_in_no_part_of_a_record(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(environ, REDACTOR)
    log.info(f"a {SECRET}", extra={"key": SECRET, "error": ValueError(SECRET), "all": [SECRET]})  # noqa: G004 - as somebody may write it
    log.info("b %s", SECRET)
    text = capsys.readouterr().err
    assert SECRET not in text
    assert text.count("[secret:") == 5


def test_a_record_that_went_through_holds_no_exception_with_a_secret() -> None:
    seen: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    set_up({}, REDACTOR)
    keep = Keep()
    handler, _ring = logging.getLogger().handlers
    for each in handler.filters:
        keep.addFilter(each)
    log.addHandler(keep)
    try:
        log.error("a defect %s", SECRET, exc_info=ValueError(SECRET), extra={"key": SECRET})
    finally:
        log.removeHandler(keep)
    assert SECRET not in repr(vars(seen[0]))


def test_the_level_is_chosen_by_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    set_up({"CLAWD_LOG_LEVEL": "warning"}, REDACTOR)
    log.info("quiet")
    log.warning("loud")
    assert [line.rpartition(" ")[2] for line in lines(capsys)] == ["loud"]


def test_a_level_that_is_none_is_told_and_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    set_up({"CLAWD_LOG_LEVEL": "chatty"}, REDACTOR)
    log.debug("quiet")
    log.info("loud")
    first, second = lines(capsys)
    assert "CLAWD_LOG_LEVEL is no level" in first
    assert second.endswith("loud")


def test_chatty_libraries_are_held_back(capsys: pytest.CaptureFixture[str]) -> None:
    set_up({}, REDACTOR)
    logging.getLogger("asyncio").info("slow callback")
    assert lines(capsys) == []


def test_for_the_journal_lines_carry_their_priority(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the extra; with it the journal gets fields instead."""
    monkeypatch.setitem(sys.modules, "systemd", None)
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    about = os.fstat(2)
    set_up({"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"}, REDACTOR)
    log.warning("careful")
    assert "<4>WARNING clawd.test: careful" in capfd.readouterr().err


def test_another_streams_journal_variable_is_not_believed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up({"JOURNAL_STREAM": "1:2"}, REDACTOR)
    log.info("here")
    assert lines(capsys)[0].endswith("INFO clawd.test: here")
