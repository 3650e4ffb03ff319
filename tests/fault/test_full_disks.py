"""A disk that is full or takes no writes: what is refused, what is told, and how it goes on."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawctl.client import connect
from clawd.wire.daemon import Reload
from tests.fault.small_disks import empty, fill, home_on_disk, mounted, remount
from tests.support.home import Home
from tests.support.second_verifier import verify as verify_again

pytestmark = [pytest.mark.fault, pytest.mark.daemon]

FULL = '[security]\nautonomy = "full"\n'
SAID = {"when": "write", "after": "tool", "text": "the tool said {{last_tool_result}}"}


def write(content: str) -> dict[str, Any]:
    arguments = {"path": "a.txt", "content": f"{content}\n"}
    return {"when": "write", "tool_calls": [{"name": "file_append", "arguments": arguments}]}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_on_disk(tmp_path / "u") as made:
        made.configure(write("x"), SAID, {"text": "answered"}, tables=FULL)
        yield made


def lines(home: Home) -> int:
    path = home.workspace / "a.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def refused_at_start(home: Home) -> str:
    """Return what a daemon said that could not start."""
    done = subprocess.run(  # not by `spawn`: its log would lie on that disk
        [sys.executable, "-m", "clawd"],
        env=home.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_full_home_refuses_what_it_cannot_keep_and_goes_on_when_there_is_room(
    home: Home,
) -> None:
    home.start()
    assert home.ctl("agent", "-m", "write 1").returncode == 0
    fill(home.path)
    for words in (
        ("agent", "-m", "write 2"),
        ("agent", "-m", "hello"),
        ("tool", "run", "file_append", "--json", '{"path": "a.txt", "content": "y"}'),
        ("knowledge", "save", "some keywords", "some text"),
    ):
        done = home.ctl(*words)
        assert done.returncode == 1, (words, done)
        assert "is full" in done.stderr, (words, done)
        assert "Make room" in done.stderr
    # What nobody could record was not done.
    assert lines(home) == 1
    assert list((home.path / "knowledge").glob("*.md")) == []
    # To stop everything takes no room.
    assert home.ctl("estop").returncode == 0
    assert home.json("status")["estop"]
    assert home.ctl("estop", "--clear").returncode == 0
    empty(home.path)
    assert home.ctl("agent", "-m", "write 3").returncode == 0
    assert lines(home) == 2
    assert home.ctl("receipt", "verify").returncode == 0
    home.close()
    assert verify_again(home.receipts)[-1] is None

    fill(home.path)
    told = refused_at_start(home)
    assert "memory.sqlite" in told
    assert "full" in told
    empty(home.path)
    home.start()
    assert home.ctl("agent", "-m", "write 4").returncode == 0
    assert home.json("status")["found_at_start"] == []


def test_a_home_that_became_read_only_serves_nothing_it_cannot_record(home: Home) -> None:
    home.start()
    assert home.ctl("agent", "-m", "write 1").returncode == 0
    home.close()
    remount(home.path, "ro")
    told = refused_at_start(home)
    assert "Read-only file system" in told
    remount(home.path, "rw")
    home.start()
    assert home.ctl("agent", "-m", "write 2").returncode == 0
    assert lines(home) == 2


@pytest.mark.sandbox
def test_a_temporary_folder_that_is_full_stops_no_turn_and_no_command(tmp_path: Path) -> None:
    folder = tmp_path / "u"
    folder.mkdir()
    made, disk = Home(folder), tmp_path / "tmp"
    shell = {"name": "shell", "arguments": {"command": "echo in > $TMPDIR/f; cat $TMPDIR/f"}}
    with mounted(disk, 1):
        made.environ["TMPDIR"] = str(disk)
        made.configure(
            write("x"), {"when": "run", "tool_calls": [shell]}, SAID | {"when": ""}, tables=FULL
        )
        fill(disk)
        made.start()
        try:
            done = made.ctl("agent", "-m", "write 1")
            assert (done.returncode, done.stderr.count("allowed")) == (0, 1), done
            ran = made.ctl("agent", "-m", "run it")
            assert "the tool said in" in ran.stdout, ran
            assert made.ctl("receipt", "verify").returncode == 0
        finally:
            made.close()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Home]:
    """A home whose receipts lie on a small disk of their own."""
    folder = tmp_path / "u"
    folder.mkdir()
    made = Home(folder)
    disk = tmp_path / "receipts"
    with mounted(disk, 1):
        made.configure(
            write("x"),
            SAID,
            {"text": "answered"},
            tables=f'{FULL}[receipts]\npath = "{disk}/log"\n',
        )
        try:
            yield made
        finally:
            empty(disk)
            made.close()


def test_a_result_without_a_receipt_reaches_nobody_and_tools_are_refused(
    elsewhere: Home, tmp_path: Path
) -> None:
    home, disk = elsewhere, tmp_path / "receipts"
    home.start()
    first = home.ctl("agent", "-m", "write 1")
    assert "the tool said created a.txt" in first.stdout
    fill(disk)
    # A few receipts may still fit into the block that was begun.
    done = home.ctl("agent", "-m", "write 2")
    for _ in range(20):
        if done.returncode:
            break
        done = home.ctl("agent", "-m", "write 2")
    assert done.returncode == 1, done
    assert "the tool said" not in done.stdout
    assert "cannot write the receipt" in done.stderr
    assert "No space left on device" in done.stderr
    assert "reload or restart clawd" in done.stderr
    before = lines(home)
    status = home.ctl("status").stdout
    assert "PROBLEM: No space left on device" in status
    again = home.ctl("agent", "-m", "write 3")
    assert again.returncode == 1
    assert "takes nothing since a write failed" in again.stderr
    assert lines(home) == before, "a tool ran that nobody could record"
    assert home.ctl("agent", "-m", "hello").stdout.startswith("answered")
    empty(disk)
    pid = home.pid()
    with connect(home.path / "run" / "clawd.sock") as client:
        assert "receipts are written again" in client.call(Reload()).message
    assert home.ctl("agent", "-m", "write 4").returncode == 0, home.log()[-2000:]
    assert home.pid() == pid
    home.close()
    receipts = verify_again(disk / "log")
    assert receipts[-1] is None
    # Every line that was written has its receipt, or one that says it was cut off.
    assert receipts[0] >= lines(home)
