"""The terminal that other tests use shows what a person would see."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.screen import TerminalScreen, in_front

Start = Callable[..., TerminalScreen]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Start]:
    """Start a shell that prompts with `$ ` and reads no file of anybody."""
    screens: list[TerminalScreen] = []

    def start(*, lines: int = 24, columns: int = 80) -> TerminalScreen:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PS1": "$ ",
            "LANG": "C.UTF-8",
        }
        argv = ["bash", "--norc", "--noprofile"]
        screens.append(TerminalScreen(argv, environ, lines=lines, columns=columns, cwd=tmp_path))
        screens[-1].wait_for("$ ")
        return screens[-1]

    yield start
    for screen in screens:
        screen.close()


def test_shows_what_is_written_and_gives_the_exit_code(shell: Start) -> None:
    screen = shell()
    screen.type("printf '\\033[31mred\\033[0m 日本 %s\\n' done\r")
    screen.wait_for("red 日")
    assert screen.cell_of("red 日").fg == "red"
    screen.type("exit 3\r")
    assert screen.exit_code() == 3


def test_another_size_reaches_the_program(shell: Start) -> None:
    screen = shell()
    screen.resize(12, 60)
    screen.type("stty size\r")
    screen.wait_for("12 60")
    assert len(screen.lines) == 12


def test_what_scrolled_off_is_found(shell: Start) -> None:
    screen = shell(lines=5)
    screen.type("seq 100 140\r")
    screen.wait_for("\n140\n$")
    assert "\n101\n" not in screen.text
    screen.wait_for("\n101\n", anywhere=True)


def test_the_second_screen_leaves_the_first_as_it_was(shell: Start) -> None:
    screen = shell()
    screen.type("printf 'first\\n\\033[?1049h\\033[Hsecond'; read; printf '\\033[?1049l'\r")
    screen.wait_for(lambda shown: shown.lines[0].startswith("second"))
    assert "first" not in screen.text
    screen.press("Enter")
    screen.wait_for(re.compile("^first$", re.MULTILINE))
    assert "second\n" not in screen.text


def test_it_tells_where_its_cursor_is(shell: Start) -> None:
    screen = shell()
    screen.type("IFS= read -rsd R -p $'ab\\033[6n' at; echo \"${at#*[}\"\r")
    screen.wait_for(re.compile("^ab[0-9]+;3$", re.MULTILINE))


def test_keys_and_signals_reach_the_program(shell: Start) -> None:
    screen = shell()
    screen.type("trap 'echo told' USR1; sleep 100\r")
    screen.wait_for(in_front("sleep"))
    screen.press("C-c")
    screen.wait_for("^C\n$")
    screen.kill(signal.SIGUSR1)
    screen.press("Enter")
    screen.wait_for("\ntold")


def test_a_lost_terminal_hangs_up(shell: Start) -> None:
    screen = shell()
    screen.hang_up()
    assert screen.exit_code() != 0
