"""`clawctl logs`: followed over a restart of the daemon, and read from the journal."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from clawd.wire.daemon import LogLine, LogPage, TailLog
from tests.clawctl.conftest import Run
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.fake_systemd import FakeSystemd


def line(text: str) -> LogLine:
    return LogLine(at="2026-01-02T03:04:05Z", level="info", logger="clawd", text=text)


def writes(*texts: str) -> dict[str, object]:
    """Return a daemon that wrote these lines down, and nothing since."""

    def tail(call: Call) -> LogPage:
        assert isinstance(call.params, TailLog)
        at = int(call.params.cursor or 0)
        return LogPage(items=tuple(map(line, texts[at:])), cursor=str(len(texts)))

    return {"tail_log": tail}


@pytest.fixture
def followed(environ: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "clawctl", "logs", "--follow", "--json"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def next_text(stream: IO[str] | None) -> str:
    assert stream is not None
    return str(json.loads(stream.readline())["text"])


def test_a_log_is_followed_over_a_restart_of_the_daemon(
    home: Path, request: pytest.FixtureRequest
) -> None:
    with FakeDaemon(home / "run" / "clawd.sock", home, **writes("one", "two")):
        process = request.getfixturevalue("followed")
        assert [next_text(process.stdout), next_text(process.stdout)] == ["one", "two"]
    assert process.stderr.readline() == "● the daemon went away; waiting for it\n"
    with FakeDaemon(home / "run" / "clawd.sock", home, **writes("three")):
        assert next_text(process.stdout) == "three"
        assert process.poll() is None


def test_the_journal_is_asked_for_the_users_own_unit(
    clawctl: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    journal = FakeSystemd(tmp_path / "systemd")
    journal.says("journalctl.says", "a line\x1b[2J\nanother\n")
    environ["PATH"] = f"{journal.path}{os.pathsep}{environ['PATH']}"
    done = clawctl("logs", "--from", "journal", "-n", "7")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "a line‹U+001B›[2J\nanother\n"
    assert journal.calls() == ["journalctl --user --unit clawd.service --no-pager --lines=7"]


def test_a_journal_that_may_not_be_read_is_an_error_with_a_hint(
    clawctl: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    journal = FakeSystemd(tmp_path / "systemd")
    journal.says("fail.journalctl", "")
    environ["PATH"] = f"{journal.path}{os.pathsep}{environ['PATH']}"
    done = clawctl("logs", "--from", "journal")
    assert done.returncode == 1
    assert "journalctl ended with status 1" in done.stderr
    assert "hint: Members of the groups adm and systemd-journal" in done.stderr


def test_without_journalctl_the_file_is_pointed_at(
    clawctl: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    environ["PATH"] = str(tmp_path)
    done = clawctl("logs", "--from", "journal")
    assert done.returncode == 1
    assert "clawctl logs --from file" in done.stderr
