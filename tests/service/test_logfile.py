"""The log of a daemon without a journal is cut off while it runs."""

import os
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Writes 40 lines of 100 bytes through the handler, and one past it at the end.
WRITER = """
import logging, os, sys
from pathlib import Path
from clawd.service.logs import LogFileHandler
handler = LogFileHandler(Path(sys.argv[1]), max_bytes=1000, kept=3)
log = logging.getLogger("x")
log.addHandler(handler)
for number in range(40):
    log.warning("%03d %s", number, "." * 95)
os.write(1, b"from a library\\n")
"""


def write(log: Path, to: Path) -> None:
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    subprocess.run(
        [sys.executable, "-c", WRITER, str(log)],
        cwd=ROOT,
        stdout=descriptor,
        stderr=descriptor,
        check=True,
    )
    os.close(descriptor)


def numbers(path: Path) -> list[int]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [int(line[:3]) for line in lines if line[:3].isdigit()]


def test_a_full_log_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    log = tmp_path / "clawd.log"
    write(log, log)
    kept = [log.with_name(f"clawd.log.{number}") for number in (3, 2, 1)]
    assert [numbers(each) for each in kept] == [
        [*range(10)],
        [*range(10, 20)],
        [*range(20, 30)],
    ]
    assert numbers(log) == [*range(30, 40)]
    assert len(list(tmp_path.iterdir())) == 4


def test_what_libraries_print_goes_to_the_new_file_as_well(tmp_path: Path) -> None:
    log = tmp_path / "clawd.log"
    write(log, log)
    assert log.read_text(encoding="utf-8").endswith("from a library\n")


def test_nobody_else_may_read_the_new_file(tmp_path: Path) -> None:
    log = tmp_path / "clawd.log"
    write(log, log)
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_a_file_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "mine.txt"
    write(tmp_path / "clawd.log", other)
    assert numbers(other) == [*range(40)]
    assert [*tmp_path.iterdir()] == [other]


def test_a_link_is_not_rotated(tmp_path: Path) -> None:
    other, log = tmp_path / "mine.txt", tmp_path / "clawd.log"
    log.symlink_to(other)
    write(log, other)
    assert numbers(other) == [*range(40)]
