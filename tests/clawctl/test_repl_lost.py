"""The REPL while its daemon is away, and while it is put aside in the middle of a turn."""

import shlex
import sys
import threading
from pathlib import Path

from clawd.wire.methods import SendMessage
from tests.clawctl.conftest import Look
from tests.clawctl.repl_turns import at_prompt, in_two_parts
from tests.support.fake_daemon import FakeDaemon
from tests.support.screen import TerminalScreen
from tests.support.terminal import echo


def test_a_daemon_that_is_gone_for_good_is_told_and_the_message_stays(
    home: Path, look: Look
) -> None:
    with FakeDaemon(home / "run" / "clawd.sock", home) as daemon:
        screen = look("--no-start", "agent", columns=120, lines=40)
        screen.wait_for(at_prompt)
    screen.type("where are you\r")
    screen.wait_for("looking for it for a few seconds")
    screen.wait_for("hint:")
    screen.wait_for(lambda shown: shown.line == "> where are you")
    assert daemon.calls_of(SendMessage) == []
    with FakeDaemon(home / "run" / "clawd.sock", home) as second:
        second.handlers["send_message"] = echo
        screen.press("Enter")
        screen.wait_for("<where are you>")


def test_ctrl_c_ends_the_search_for_a_daemon_and_keeps_the_prompt(home: Path, look: Look) -> None:
    with FakeDaemon(home / "run" / "clawd.sock", home):
        screen = look("--no-start", "agent", columns=120, lines=40)
        screen.wait_for(at_prompt)
    screen.type("where are you\r")
    screen.wait_for("looking for it for a few seconds")
    screen.press("C-c")
    screen.wait_for("stopped")
    screen.wait_for(lambda shown: shown.line.startswith(">"))
    assert "Traceback" not in screen.all_text
    screen.press("C-c")
    screen.wait_for(at_prompt)
    screen.press("C-d")
    assert screen.exit_code() == 0


def test_ctrl_z_in_a_turn_suspends_and_fg_goes_on_with_the_answer(
    daemon: FakeDaemon, environ: dict[str, str]
) -> None:
    go_on = threading.Event()
    daemon.handlers["send_message"] = in_two_parts(go_on)
    shell = {**environ, "PS1": "shell$ "}
    with TerminalScreen(["bash", "--norc", "--noprofile", "-i"], shell, columns=120) as screen:
        screen.wait_for("shell$ ")
        screen.type(f"{shlex.quote(sys.executable)} -m clawctl agent\r")
        screen.wait_for(at_prompt)
        screen.type("x\r")
        screen.wait_for("first words")
        screen.press("C-z")
        screen.wait_for("Stopped")
        screen.wait_for(lambda shown: shown.line == "shell$")
        screen.type("echo seen as typed\r")
        screen.wait_for("\nseen as typed")
        assert "$ echo seen as typed" in screen.all_text, "the shell has its echo"
        go_on.set()
        screen.type("fg\r")
        screen.wait_for("and last words")
        screen.wait_for(at_prompt)
        screen.press("C-d")
        screen.wait_for(lambda shown: shown.line == "shell$")
