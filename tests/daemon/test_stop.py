"""Ending the daemon and starting it anew without systemd, and what environment it then has."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawctl.client import ABSENT
from clawctl.daemon_finder import holder_of
from clawctl.daemon_stop import Running, end, environment_of
from clawd.errors import UnreachableError
from clawd.paths import layout
from tests.support.home import Home

pytestmark = pytest.mark.daemon

DEAF = """
import fcntl, os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[2] == "deaf" else signal.SIG_DFL)
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(str(os.getpid())); file.flush()
print("held", flush=True)
signal.pause()
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    home.configure()
    yield home
    home.close()


def test_p5_p8_a_daemon_keeps_its_environment_until_it_is_started_anew(house: Home) -> None:
    house.environ["CLAWD_SECURITY__AUTONOMY"] = "readonly"
    assert house.ctl("status").returncode == 0, "the daemon that it starts has what it asks for"
    first = house.pid()
    house.environ["CLAWD_SECURITY__AUTONOMY"] = "full"
    refused = house.ctl("agent", "-m", "hello")
    assert refused.returncode == 1
    for word in (f"pid {first}", 'security.autonomy = "full"', 'is "readonly" there'):
        assert word in refused.stderr
    assert "clawctl restart" in refused.stderr
    shown = house.ctl("config", "show")
    assert 'security.autonomy = "full"  # environment CLAWD_SECURITY__AUTONOMY' in shown.stdout
    assert 'is "readonly" there' in shown.stderr
    assert house.ctl("estop", "--status").returncode == 0

    report = house.json("restart")

    assert (report["pid"], report["how"], report["started"]) == (first, "asked", house.pid())
    assert house.pid() != first
    assert house.ctl("status").returncode == 0
    assert house.ctl("config", "show").stderr == ""
    assert house.json("stop")["how"] == "asked"
    assert holder_of(house.path / "clawd.lock") is None
    assert "No daemon runs" in house.ctl("stop").stdout
    looked = house.ctl("status")
    assert (looked.returncode, "Start one with" in looked.stderr) == (6, True)
    assert holder_of(house.path / "clawd.lock") is None
    assert house.json("restart")["started"]
    assert house.ctl("status").returncode == 0
    assert house.json("stop")["how"] == "asked"


def test_p8_a_daemon_that_was_started_by_hand_is_ended_and_started_anew_as_it_was(
    house: Home,
) -> None:
    (house.workspace / "other.toml").write_text(house.config.read_text())
    house.start("-m", "clawd", "--config", "other.toml")
    first = house.json("status")
    assert first["config"] == str(house.workspace / "other.toml")
    # Another shell, in another folder, which knows the home alone.
    house.environ.pop("LANG")
    done = house.ctl("restart", "--json", cwd=house.path.parent)
    assert done.returncode == 0, done.stderr
    again = house.json("status")
    assert (again["config"], again["pid"]) == (first["config"], house.pid())
    assert again["pid"] != first["pid"]
    assert house.json("stop")["pid"] == again["pid"]
    assert holder_of(house.path / "clawd.lock") is None


@pytest.mark.parametrize(("manner", "how"), [("deaf", "killed"), ("meek", "terminated")])
def test_p8_a_daemon_that_hangs_is_ended_by_signals_and_said_so(
    tmp_path: Path, manner: str, how: str
) -> None:
    lock = tmp_path / "clawd.lock"
    program = [sys.executable, "-c", DEAF, str(lock), manner]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as hung:
        assert hung.stdout is not None
        assert hung.stdout.readline() == "held\n"
        assert holder_of(lock) == hung.pid
        said: list[str] = []

        def nobody() -> None:
            raise UnreachableError("nobody", data={"reason": ABSENT})

        daemon = Running(pid=hung.pid, home=tmp_path, socket=tmp_path / "no.sock")
        # One that obeys has as long for it as a busy machine makes it take.
        limit_s = 0.3 if how == "killed" else 60.0
        assert end(daemon, nobody, said.append, limit_s=limit_s) == how  # type: ignore[arg-type]
        assert said[0].endswith("it gets SIGTERM")
        assert len(said) == (2 if how == "killed" else 1)
        assert hung.wait(60) < 0


def test_p8_only_who_holds_the_home_gets_a_signal(tmp_path: Path) -> None:
    lock = tmp_path / "clawd.lock"
    with lock.open("w") as file, subprocess.Popen(["sleep", "60"]) as bystander:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(str(os.getpid()))
        file.flush()

        def nobody() -> None:
            raise UnreachableError("nobody", data={"reason": ABSENT})

        daemon = Running(pid=bystander.pid, home=tmp_path, socket=tmp_path / "no.sock")
        with pytest.raises(Exception, match="does not end"):
            end(daemon, nobody, print, limit_s=0.1)  # type: ignore[arg-type]
        assert bystander.poll() is None
        bystander.kill()


def test_p8_a_daemon_is_started_anew_where_it_was(tmp_path: Path) -> None:
    own = {"HOME": str(tmp_path), "CLAWD_HOME": str(tmp_path / "a")}
    there = layout({"CLAWD_HOME": str(tmp_path / "b")})
    for socket, named in ((there.socket, None), (tmp_path / "s.sock", str(tmp_path / "s.sock"))):
        environ = environment_of(Running(pid=1, home=there.home, socket=socket), own)
        assert environ["CLAWD_HOME"] == str(there.home)
        assert environ.get("CLAWD_SOCKET") == named
