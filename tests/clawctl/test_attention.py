"""Who looks elsewhere is called: bell, notification and title, on a terminal and nowhere else."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clawctl.request_follower import level_of, notify, waiting
from tests.support.fake_daemon import FakeDaemon
from tests.support.hostile import ATTACKS
from tests.support.rows import each_row
from tests.support.screen import workspace_of
from tests.support.terminal import asking, code_of, echo, spawn_clawctl

CODES = re.compile(r"\x07|\x1b\](?:2|9|777);|\x1b\[2[23];2t")
TITLED = "\x1b[22;2t\x1b]2;? clawd: approval\x1b\\"
RESTORED = "\x1b]2;clawd\x1b\\\x1b[23;2t"


class Taken:
    """A terminal that keeps what it is sent."""

    def __init__(self) -> None:
        self.codes = ""

    def signal(self, codes: str) -> None:
        self.codes += codes


def played(environ: dict[str, str], **changes: str) -> str:
    """Answer an approval of `agent -m` on a terminal; return all that it was sent."""
    child = spawn_clawctl({**environ, "CLAWD_NOTIFY": "all", **changes}, "agent", "-m", "x")
    child.expect(r"Approve\? \[y/N\]  ")
    said = child.before + child.after
    child.sendline("n")
    code_of(child)
    return str(said + child.before)


def test_a_question_rings_notifies_and_titles_the_window_until_it_is_answered(
    daemon: FakeDaemon, environ: dict[str, str]
) -> None:
    daemon.handlers["send_message"] = asking
    said = played(environ)
    before, _, after = said.rpartition("Approve? [y/N]  ")
    assert "\x07" in before
    assert "\x1b]9;clawd waits: approval file_write\x1b\\" in before
    assert "\x1b]777;notify;clawd waits: approval;file_write\x1b\\" in before
    assert TITLED in before
    assert RESTORED not in before
    assert after.count(RESTORED) == 1
    assert said.count("\x07") == 1


@each_row(
    "changes, codes",
    [
        ({"CLAWD_NOTIFY": "off"}, set()),
        ({"CLAWD_NOTIFY": "bell"}, {"\x07"}),
        ({"NO_COLOR": "1"}, {"\x07"}),
        ({"TERM": "dumb"}, {"\x07"}),
    ],
)
def test_less_is_sent_where_less_is_wanted(
    daemon: FakeDaemon, environ: dict[str, str], changes: dict[str, str], codes: set[str]
) -> None:
    daemon.handlers["send_message"] = asking
    assert set(CODES.findall(played(environ, **changes))) == codes


def test_a_pipe_gets_none_of_it(daemon: FakeDaemon, environ: dict[str, str]) -> None:
    daemon.handlers["send_message"] = asking
    done = subprocess.run(
        [sys.executable, "-m", "clawctl", "agent", "-m", "x"],
        env={**environ, "CLAWD_NOTIFY": "all"},
        cwd=workspace_of(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        check=False,
    )
    assert CODES.findall(done.stdout + done.stderr) == []


def test_names_of_others_cannot_drive_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWD_NOTIFY", "all")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name in ATTACKS.values():
        plain, hostile = Taken(), Taken()
        with waiting(plain, "approval", "x"):
            pass
        with waiting(hostile, "approval", f"{name};{name}"):
            pass
        notify(hostile, name)
        controls = [each for each in hostile.codes if not each.isprintable()]
        # Three more codes come of the second notification, each with its end.
        assert controls.count("\x07") == 1
        assert hostile.codes.count("\x1b]") == plain.codes.count("\x1b]") + 2
        assert set(controls) <= {"\x07", "\x1b"}
        assert len(hostile.codes) < 1_000


def test_the_title_comes_back_when_the_person_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWD_NOTIFY", "all")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    taken = Taken()
    with pytest.raises(KeyboardInterrupt), waiting(taken, "question"):
        raise KeyboardInterrupt
    assert taken.codes.endswith(RESTORED)


def test_the_end_of_a_long_turn_is_told_and_that_of_a_short_one_is_not(
    daemon: FakeDaemon, environ: dict[str, str]
) -> None:
    daemon.handlers["send_message"] = echo
    long = ("-c", "import sys; from clawctl import request_follower\n"
            "request_follower.LONG_TURN_S = 0\n"
            "from clawctl.__main__ import run; sys.exit(run())")  # fmt: skip
    for how, told in (("-m", "clawctl"), 0), (long, 1):
        child = spawn_clawctl({**environ, "CLAWD_NOTIFY": "all"}, "agent", "-m", "x", how=how)
        child.expect("<x>")
        said = child.before
        code_of(child)
        assert said.count("\x1b]9;clawd has finished\x1b\\") == told


@each_row(
    "environ, settings, level",
    [
        ({"TERM": "xterm"}, "", "all"),
        ({"TERM": "xterm"}, 'notify = "off"', "off"),
        ({"TERM": "xterm"}, 'notify = "bell"', "bell"),
        ({"TERM": "xterm", "CLAWD_NOTIFY": "all"}, 'notify = "off"', "all"),
        ({"TERM": "linux"}, "", "bell"),
        ({}, "", "bell"),
    ],
)
def test_the_settings_say_how_much(
    environ: dict[str, str],
    settings: str,
    level: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLAWD_HOME", str(tmp_path))
    (tmp_path / "client.toml").write_text(settings)
    assert level_of(environ) == level
