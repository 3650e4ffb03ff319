"""What goes wrong around a daemon that runs: descriptors, config, folders, other processes."""

import contextlib
import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from clawctl.client import connect
from clawd.errors import ClawError
from clawd.wire.methods import Ping, Reload, Status
from tests.support.home import DEADLINE_S, Home

pytestmark = [pytest.mark.fault, pytest.mark.daemon]

FULL = '[security]\nautonomy = "full"\n'
DESCRIPTORS = 120
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


def test_a_config_that_is_broken_or_gone_at_a_reload_changes_nothing(home: Home) -> None:
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
        shutil.rmtree(home.path)
        wait_for(lambda: client.call(Status()).estop, home)
        why = client.call(Status()).estop_reason
        assert "was removed, moved or unmounted" in why or "is another directory now" in why
        pid = client.welcome.pid
    before = (home.workspace / "a.txt").read_text()
    os.kill(pid, signal.SIGTERM)
    assert home.daemon is not None
    assert home.daemon.wait(DEADLINE_S) in {0, 1}
    assert (home.workspace / "a.txt").read_text() == before


def test_an_emergency_stop_that_cannot_be_read_is_set(home: Home) -> None:
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
def test_a_command_that_finds_no_more_processes_fails_and_the_daemon_goes_on(home: Home) -> None:
    bomb = ":(){ :|:& };:; for i in $(seq 400); do sleep 5 & done; wait"
    forks = {"tool_calls": [{"name": "shell", "arguments": {"command": bomb}}]}
    path = started(
        home,
        forks | {"when": "fork"},
        {"when": "fork", "after": "tool", "text": "it said {{last_tool_result}}"},
        tables=FULL + "[limits]\nshell_timeout_s = 5\n",
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
