"""The REPL while its daemon is away, and while it is put aside in the middle of a turn."""

import contextlib
import shlex
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from clawd.wire.turns import SendMessage
from tests.clawctl.conftest import Look
from tests.clawctl.repl_turns import at_prompt, in_two_parts
from tests.support.fake_daemon import FakeDaemon
from tests.support.screen import TerminalScreen
from tests.support.terminal import echo

# Looks as often as clawctl does, for half a second in all.
IMPATIENT = """
import sys
from clawctl.__main__ import run
from clawctl.repl import host
host.RETRIES_S = tuple(wait_s / 10 for wait_s in host.RETRIES_S)
sys.exit(run())
"""


def test_a_daemon_that_is_gone_for_good_is_looked_for_once_and_the_message_stays(
    home: Path, look: Look
) -> None:
    with FakeDaemon(home / "run" / "clawd.sock", home) as daemon:
        screen = look("--no-start", "agent", columns=120, lines=40, how=("-c", IMPATIENT))
        screen.wait_for(at_prompt)
    screen.type("where are you\r")
    screen.wait_for("looking for it for a few seconds")
    screen.wait_for("hint:")
    screen.wait_for(lambda shown: shown.line == "> where are you")
    assert screen.all_text.count("looking for it") == 1
    assert screen.all_text.count("hint:") == 1
    assert daemon.calls_of(SendMessage) == []
    with FakeDaemon(home / "run" / "clawd.sock", home) as second:
        second.handlers["send_message"] = echo
        screen.press("Enter")
        screen.wait_for("<where are you>")


@contextlib.contextmanager
def hanging_up(path: Path) -> Iterator[None]:
    """Let somebody listen there who says nothing and hangs up, on the first one at once."""
    ended = threading.Event()
    threads: list[threading.Thread] = []

    def hold(connection: socket.socket, limit_s: float) -> None:
        with connection:
            ended.wait(limit_s)

    def answer(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            # Shorter than anybody waits for a greeting: so it is looked for again and again.
            limit_s = 3.0 if threads else 0.0
            threads.append(threading.Thread(target=hold, args=(connection, limit_s)))
            threads[-1].start()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        listening = threading.Thread(target=answer, args=(server,))
        listening.start()
        yield
        ended.set()
        server.shutdown(socket.SHUT_RDWR)
        for thread in (listening, *threads):
            thread.join()


def test_ctrl_c_ends_the_search_for_a_daemon_and_keeps_the_prompt(home: Path, look: Look) -> None:
    with FakeDaemon(home / "run" / "clawd.sock", home):
        screen = look("--no-start", "agent", columns=120, lines=40)
        screen.wait_for(at_prompt)
    with hanging_up(home / "run" / "clawd.sock"):
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
