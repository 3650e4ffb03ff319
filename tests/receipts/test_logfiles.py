"""Reading the files of a chain while the daemon writes them, and is held up anywhere."""

import fcntl
import time
from pathlib import Path

import pytest

from clawd.receipts import logfiles
from clawd.receipts.logfiles import read_lines, read_lines_backwards, rotated_files
from clawd.receipts.verify import verify
from tests.receipts.samples import receipts, write
from tests.support.rows import each_row

LINES = [b"one\n", b"two\n", b"three\n"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log.000001").write_bytes(LINES[0])
    (tmp_path / "log").write_bytes(LINES[1])
    return tmp_path / "log"


def rotate(log: Path) -> None:
    log.rename(log.with_name("log.000002"))
    log.write_bytes(LINES[2])


@pytest.mark.parametrize("is_before", [True, False])
def test_a_rotation_beside_the_list_of_files_leaves_no_gap(
    log: Path, monkeypatch: pytest.MonkeyPatch, *, is_before: bool
) -> None:
    def listed(path: Path) -> list[Path]:
        if is_before and path.read_bytes() == LINES[1]:
            rotate(path)
        found = rotated_files(path)
        if not is_before and path.read_bytes() == LINES[1]:
            rotate(path)
        return found

    monkeypatch.setattr(logfiles, "rotated_files", listed)
    assert list(read_lines_backwards(log)) == [b"two", b"one"]
    assert list(read_lines_backwards(log)) == [b"three", b"two", b"one"]


def test_the_moment_between_the_two_steps_of_a_rotation_is_no_error(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.rename(log.with_name("log.000002"))
    monkeypatch.setattr(Path, "exists", lambda _path: True)  # it was there a moment ago
    assert list(read_lines(log)) == LINES[:2]
    assert list(read_lines_backwards(log)) == [b"two", b"one"]


@each_row("is_written", [True, False])
def test_a_writer_that_is_held_up_in_a_line_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    path = write(tmp_path / "log", receipts(3))
    whole, naps = path.read_bytes(), 0
    path.write_bytes(whole[:-20])

    def nap(_seconds: float) -> None:
        nonlocal naps
        naps += 1
        if naps == 100:
            path.write_bytes(whole)

    monkeypatch.setattr(time, "sleep", nap)
    with (tmp_path / "log.lock").open("w") as lock:
        if is_written:
            fcntl.flock(lock, fcntl.LOCK_EX)
        found = verify(path)
    assert (found.ok, naps) == ((True, 100) if is_written else (False, 5))
