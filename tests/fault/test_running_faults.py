"""What goes wrong around a daemon that runs: descriptors, config, folders, other processes."""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from clawctl.client import connect
from clawd.errors import ClawError
from clawd.wire.daemon import Ping, Reload, Status
from clawd.wire.tools import RunTool
from tests.fault import few_processes
from tests.support.home import DEADLINE_S, Home
from tests.support.lent_home import LentHome
from tests.support.second_verifier import verify as verify_again

pytestmark = [pytest.mark.fault, pytest.mark.daemon]

FULL = '[security]\nautonomy = "full"\n'
DESCRIPTORS = 120
PAGE = 4096
CALL = {
    "when": "write",
    "tool_calls": [{"name": "file_append", "arguments": {"path": "a.txt", "content": "x\n"}}],
}
WROTE = {"when": "write", "after": "tool", "text": "wrote"}


def wait_for(claim: Callable[[], bool], home: Home) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not claim():
        assert time.monotonic() < deadline, home.log()[-3000:]
        time.sleep(0.02)


def started(home: Home, *replies: dict[str, Any], tables: str = FULL) -> Path:
    """Start a daemon that writes a line when it is told to; return its socket."""
    home.configure(CALL, WROTE, *replies, {"text": "answered"}, tables=tables)
    home.start()
    return home.path / "run" / "clawd.sock"


def works(home: Home) -> None:
    done = home.ctl("--no-start", "agent", "-m", "write")
    assert (done.returncode, done.stdout) == (0, "wrote\n"), (done.stderr, home.log()[-3000:])
    assert home.receipt_lines()[-1]["status"] == "allowed"


def test_a_daemon_without_descriptors_turns_clients_away_and_recovers(home: Home) -> None:
    path = started(home)
    pid = home.pid()
    assert pid is not None
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    with contextlib.ExitStack() as many:
        for _ in range(2 * DESCRIPTORS):
            waiting = many.enter_context(socket.socket(socket.AF_UNIX))
            waiting.settimeout(5)
            with contextlib.suppress(OSError):
                waiting.connect(str(path))
        wait_for(lambda: "Too many open files" in home.log() or _descriptors(pid) > 110, home)
        # It waits for room and does not spin.
        process = psutil.Process(pid)
        before = process.cpu_times()
        time.sleep(1.0)
        after = process.cpu_times()
        assert (after.user + after.system) - (before.user + before.system) < 0.9
    wait_for(lambda: _descriptors(pid) < 80, home)
    works(home)
    assert home.pid() == pid
    assert home.ctl("receipt", "verify").returncode == 0


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_config_that_is_broken_or_gone_at_a_reload_changes_nothing(lent_home: LentHome) -> None:
    home = lent_home
    path = started(home)
    good = home.config.read_text()
    broken = good.replace('"full"', '"godmode"') + "[limits]\nno_such = 1\n[memory]\nbackend = 7\n"
    with connect(path) as client:
        for text, words in (
            (broken, ("godmode", "no_such", "memory.backend")),
            ("workspace_dir = ", ("not TOML",)),
            (None, ("does not exist", "clawctl init")),
        ):
            if text is None:
                home.config.unlink()
            else:
                home.config.write_text(text)
            with pytest.raises(ClawError) as caught:
                client.call(Reload())
            told = f"{caught.value.message} {caught.value.hint}"
            assert [word for word in words if word not in told] == [], told
            report = client.call(Status())
            assert (report.autonomy, report.workspace) == ("full", str(home.workspace))
        works(home)
        home.config.write_text(good)
        assert "reloaded" in client.call(Reload()).message


def test_a_home_that_is_gone_stops_all_tools_and_says_so(home: Home) -> None:
    path = started(home)
    works(home)
    with connect(path) as client:
        pid = client.welcome.pid
        with _stopped(pid, home):  # or it may make its socket again before all is gone
            shutil.rmtree(home.path)
        wait_for(lambda: client.call(Status()).estop, home)
        why = client.call(Status()).estop_reason
        assert "was removed, moved or unmounted" in why or "is another directory now" in why
    before = (home.workspace / "a.txt").read_text()
    os.kill(pid, signal.SIGTERM)
    assert home.daemon is not None
    assert home.daemon.wait(DEADLINE_S) in {0, 1}
    assert (home.workspace / "a.txt").read_text() == before
    assert not home.path.exists(), "a home that is gone was begun anew"


@contextlib.contextmanager
def _stopped(pid: int, home: Home) -> Iterator[None]:
    """Hold a process still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED), home)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_an_emergency_stop_that_cannot_be_read_is_set(lent_home: LentHome) -> None:
    home = lent_home
    started(home)
    stop = home.path / "ESTOP"
    stop.symlink_to(home.path / "nowhere")
    assert home.json("status")["estop"]
    refused = home.ctl("--no-start", "agent", "-m", "write")
    assert not (home.workspace / "a.txt").exists(), refused
    assert home.receipt_lines()[-1]["status"] == "denied"
    stop.unlink()
    stop.mkdir(mode=0)
    assert home.json("status")["estop"]
    done = home.ctl("estop", "--clear")
    assert done.returncode == 1
    assert "could not be removed" in done.stderr
    stop.rmdir()
    works(home)


def test_a_log_that_nobody_reads_any_more_ends_nothing(home: Home) -> None:
    home.configure(CALL, WROTE, tables=FULL)
    reading, writing = os.pipe()
    home.path.mkdir(exist_ok=True)
    log = home.path / "daemon.log"
    log.unlink(missing_ok=True)
    log.symlink_to(f"/proc/self/fd/{writing}")
    try:
        home.spawn()
    finally:
        log.unlink()
        os.close(writing)
    path = home.path / "run" / "clawd.sock"
    wait_for(lambda: _pings(path), home)
    os.close(reading)  # from here on every line meets EPIPE
    works(home)
    works(home)
    assert _pings(path)


def _pings(path: Path) -> bool:
    try:
        with connect(path) as client:
            return client.call(Ping()).message == "pong"
    except ClawError:
        return False


@pytest.mark.sandbox
def test_a_command_that_finds_no_more_processes_fails_and_the_daemon_goes_on(
    lent_home: LentHome,
) -> None:
    home = lent_home
    bomb = ":(){ :|:& };:; for i in $(seq 400); do sleep 5 & done; wait"
    forks = {"tool_calls": [{"name": "shell", "arguments": {"command": bomb}}]}
    path = started(
        home,
        forks | {"when": "fork"},
        {"when": "fork", "after": "tool", "text": "it said {{last_tool_result}}"},
        tables=FULL + "[limits]\nshell_timeout_s = 5\nmax_command_s = 5\n",
    )
    with connect(path) as client:
        done = home.ctl("--no-start", "agent", "-m", "fork")
        assert done.returncode == 0, done.stderr
        assert client.call(Ping()).message == "pong"
    works(home)


def test_a_temporary_folder_that_takes_nothing_ends_no_daemon(home: Home, tmp_path: Path) -> None:
    gone = tmp_path / "tmp"
    gone.mkdir()
    home.environ["TMPDIR"] = str(gone)
    started(home)
    gone.rmdir()
    works(home)


def _wrecked(home: Home) -> None:
    """Write noise over all of memory but its first page, with nothing left in the -wal."""
    memory = home.path / "memory.sqlite"
    with contextlib.closing(sqlite3.connect(memory)) as connection:

        def is_emptied() -> bool:
            (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not is_busy

        wait_for(is_emptied, home)
    noise = random.Random(7)
    with memory.open("r+b") as file:
        for page in range(1, memory.stat().st_size // PAGE):
            file.seek(page * PAGE)
            file.write(noise.randbytes(PAGE))


def test_a_memory_that_is_damaged_while_it_runs_is_told_and_receipts_stand(home: Home) -> None:
    started(home)
    works(home)
    before = home.receipt_lines()
    _wrecked(home)
    refused = home.ctl("--no-start", "agent", "-m", "write")
    assert refused.returncode == 1
    assert "the file is damaged" in refused.stderr
    assert "put a backup in its place" in refused.stderr
    assert (home.workspace / "a.txt").read_text() == "x\n", "a call was made without memory"
    status = home.json("--no-start", "status")
    assert "the file is damaged" in status["problem"]
    assert (status["receipts"], status["receipts_problem"]) == (len(before), "")
    verdict = home.ctl("--no-start", "receipt", "verify")
    assert verdict.returncode == 0, verdict
    assert "it was not held against memory" in verdict.stdout
    assert home.receipt_lines() == before
    assert home.ctl("estop").returncode == 0
    home.close()
    assert verify_again(home.receipts)[-1] is None
    (home.path / "ESTOP").unlink()
    for path in home.path.glob("memory.sqlite*"):
        path.rename(home.workspace / path.name)
    home.start()
    works(home)


def test_a_call_that_finds_no_descriptor_fails_clearly_and_has_its_receipt(
    lent_home: LentHome,
) -> None:
    home = lent_home
    path = started(home)
    works(home)
    pid = home.pid()
    assert pid is not None
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    append = RunTool(name="file_append", arguments=json.dumps({"path": "b.txt", "content": "y"}))
    shell = RunTool(name="shell", arguments=json.dumps({"command": "true"}))
    with connect(path) as client:
        # None above the three that every process begins with, whatever the others are by now.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
        for call, status in ((append, "denied"), (shell, "failed")):  # a path is held when judged
            done = client.call(call)
            assert (done.status, "Too many open files" in done.output) == (status, True), done
            assert home.receipt_lines()[-1]["id"] == done.receipt_id
            assert home.receipt_lines()[-1]["status"] == status
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert not (home.workspace / "b.txt").exists()
        assert client.call(append).status == "allowed"
    works(home)
    assert home.ctl("receipt", "verify").returncode == 0


def test_without_new_processes_and_threads_it_goes_on_and_can_be_stopped(home: Home) -> None:
    home.configure(CALL, WROTE, {"text": "answered"}, tables=FULL)
    home.start("-c", few_processes.PROGRAM)
    pid = home.pid()
    assert pid is not None
    few_processes.forbid(pid)
    works(home)
    failed = home.ctl("--no-start", "tool", "run", "shell", "--json", '{"command": "true"}')
    assert "cannot start a process" in failed.stdout + failed.stderr
    assert home.receipt_lines()[-1]["status"] == "failed"
    saved = home.ctl("--no-start", "knowledge", "save", "some keywords", "some text")
    assert saved.returncode == 0, saved
    # The daemon does it itself: nothing falls back to writing the file beside it.
    stopped = home.ctl("--no-start", "estop")
    assert (stopped.returncode, "did not take the call" in stopped.stderr) == (0, False), stopped
    assert home.json("--no-start", "status")["estop"]
    assert home.ctl("--no-start", "estop", "--clear").returncode == 0
    assert not home.json("--no-start", "status")["estop"]
    works(home)
    assert "can't start new thread" not in home.log()
    few_processes.allow(pid)
    assert home.pid() == pid
    works(home)
