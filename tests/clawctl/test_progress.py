"""The line that tells how far something is: late, in place, on a terminal only."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawctl import progress
from clawctl.app import App
from clawctl.main import cli
from clawctl.progress import ProgressLine, progress_of_command
from clawctl.render import display_width
from tests.support.rows import each_row


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def drawn(screen: Screen) -> list[str]:
    return [text.rstrip() for text in screen.getvalue().split("\r") if text.strip()]


def test_what_is_quick_draws_nothing() -> None:
    screen = Screen()
    with ProgressLine("copying x", stream=screen, clock=Clock()) as bar:
        bar.show(1, 2)
        bar.tick()
    assert screen.getvalue() == ""


def test_it_is_drawn_in_place_with_what_is_left_and_taken_off() -> None:
    clock, screen = Clock(), Screen()
    with ProgressLine("copying x", unit="bytes", stream=screen, clock=clock) as bar:
        for clock.now, done in ((1.0, 1000), (1.05, 1500), (2.0, 2000)):
            bar.show(done, 4000)
    assert drawn(screen) == [
        "copying x  █████░░░░░░░░░░░░░░░  25 %  1.0 kB of 4.0 kB  3 s left",
        "copying x  ██████████░░░░░░░░░░  50 %  2.0 kB of 4.0 kB  2 s left",
    ]
    assert screen.getvalue().endswith("\r")


def test_without_a_total_it_tells_the_time() -> None:
    clock, screen = Clock(), Screen()
    with ProgressLine("loading tiny", stream=screen, clock=clock) as bar:
        for clock.now in (3.0, 65.0):
            bar.tick()
        clock.now = 70.0
        bar.tick(12)
    assert drawn(screen) == [
        "loading tiny ⠋ 3 s",
        "loading tiny ⠙ 1 min 5 s",
        "loading tiny ⠹ 1 min 10 s  12",
    ]


@each_row("case", ["pipe", "quiet", "dumb"])
def test_elsewhere_nothing_is_written(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO() if case == "pipe" else Screen()
    if case == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    clock = Clock()
    with ProgressLine("copying x", quiet=case == "quiet", stream=stream, clock=clock) as bar:
        clock.now = 5.0
        bar.show(1, 2)
        bar.tick()
    assert stream.getvalue() == ""


@each_row("words", [["--quiet", "version"], ["version"]])
def test_quiet_before_a_command_is_heard_in_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", Screen())
    app = App()
    with cli.make_context("clawctl", list(words), obj=app) as context:
        assert cli.callback is not None
        context.invoke(cli.callback, **context.params)
        shown = progress_of_command("verifying").is_shown
    assert (app.is_quiet, shown) == ("--quiet" in words, "--quiet" not in words)


def test_a_terminal_without_unicode_gets_plain_signs() -> None:
    clock, screen = Clock(), Screen()
    screen.encoding = "ascii"
    with ProgressLine("copying x", stream=screen, clock=clock) as bar:
        clock.now = 1.0
        bar.show(1, 2)
        clock.now = 2.0
        bar.tick()
    assert screen.getvalue().isascii()


@given(
    what=st.text(max_size=80),
    done=st.integers(0, 10**13),
    total=st.integers(0, 10**13),
    columns=st.integers(2, 200),
)
def test_it_never_wraps_and_never_drives_the_terminal(
    what: str, done: int, total: int, columns: int
) -> None:
    clock, screen = Clock(), Screen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "_columns", lambda _stream: columns)
        with ProgressLine(what, unit="bytes", stream=screen, clock=clock) as bar:
            clock.now = 9.0
            bar.show(done, total)
    for text in screen.getvalue().split("\r"):
        assert display_width(text) < columns
        assert "\x1b" not in text
        assert "\n" not in text
