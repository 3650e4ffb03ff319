"""One line on stderr that tells how far something is, once it has taken a second.

Nothing is written where stderr is no terminal, nor with --quiet: a log or a pipe gets no bars, but
a line every ten seconds of what may take hours.

    with Progress("copying tiny.gguf", unit="bytes") as bar:
        bar.show(done, total)

    copying tiny.gguf  ███████░░░░░░░░░  45 %  1.2 GB of 2.6 GB  3 s left
    loading tiny ⠹ 12 s
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Literal, TextIO, TypeVar

import click

from clawctl.app import App
from clawctl.client import Client
from clawctl.render import display_width, duration, size
from clawd.errors import UnreachableError
from clawd.wire.events import ModelLoading
from clawd.wire.method import Method, method_name
from clawd.wire.safe_text import visible_line

PATIENCE_S = 1.0
REDRAW_S = 0.1
WRITE_EVERY_S = 10.0
BAR_CELLS = 20
NAME_LIMIT = 40
TURNING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAIN_TURNING = "|/-\\"

R = TypeVar("R")


class ProgressLine:
    """Draws one line in place; takes it away when it is left. `what` says what goes on.

    With `is_long` it tells how fast it goes, too, and a pipe gets a line from time to time.
    """

    def __init__(
        self,
        what: str,
        *,
        unit: Literal["bytes", "count"] = "count",
        quiet: bool = False,
        is_long: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = visible_line(what, NAME_LIMIT)
        self._unit = unit
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._is_long = is_long
        self._began_at = clock()
        self._due_at = self._began_at + PATIENCE_S
        self._is_begun = False
        self._first = 0
        self._width = 0
        self._drawn = 0
        self.is_shown = not quiet and self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._is_written = is_long and not quiet and not self.is_shown
        encoding = (getattr(self._stream, "encoding", None) or "").lower()
        self._is_plain = "utf" not in encoding

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.clear()

    def show(self, done: int, total: int) -> None:
        """Draw how much of a known total is done, if it is time to."""
        if self._is_long and not self._is_begun:
            # What was there before it began says nothing about how fast it goes.
            self._is_begun, self._first, self._began_at = True, done, self._clock()
        if self._is_due():
            self._draw(self._measured(done, max(total, done)))

    def tick(self, done: int | None = None) -> None:
        """Draw that it goes on, with how much is done where only that is known."""
        if not self._is_due():
            return
        signs = PLAIN_TURNING if self._is_plain else TURNING
        sign = signs[self._drawn % len(signs)]
        count = "" if done is None else f"  {self._amount(done)}"
        self._draw(f"{self._what} {sign} {duration(self._clock() - self._began_at)}{count}")

    def clear(self) -> None:
        """Take it off the terminal."""
        if self._width:
            print(f"\r{' ' * self._width}\r", end="", file=self._stream, flush=True)
            self._width = 0

    def _is_due(self) -> bool:
        if not (self.is_shown or self._is_written) or self._clock() < self._due_at:
            return False
        self._due_at = self._clock() + (REDRAW_S if self.is_shown else WRITE_EVERY_S)
        return True

    def _measured(self, done: int, total: int) -> str:
        share = done / total if total else 1.0
        filled = round(share * BAR_CELLS)
        full, empty = ("#", ".") if self._is_plain else ("█", "░")
        bar = full * filled + empty * (BAR_CELLS - filled)
        amount = f"{self._amount(done)} of {self._amount(total)}"
        rate = (done - self._first) / max(self._clock() - self._began_at, 1e-9)
        left = f"  {duration((total - done) / rate)} left" if rate > 0 and share < 1 else ""
        speed = f"  {self._amount(round(rate))}/s" if self._is_long else ""
        return f"{self._what}  {bar}  {100 * share:.0f} %  {amount}{speed}{left}"

    def _amount(self, count: int) -> str:
        return size(count) if self._unit == "bytes" else str(count)

    def _draw(self, text: str) -> None:
        if self._is_written:
            print(text, file=self._stream, flush=True)
            return
        # A line that wraps could not be drawn anew in place.
        columns = _columns(self._stream)
        while display_width(text) >= columns:
            text = text[:-1]
        width = display_width(text)
        pad = " " * max(0, self._width - width)
        print(f"\r{text}{pad}", end="", file=self._stream, flush=True)
        self._width = width
        self._drawn += 1


def progress_of_command(what: str, *, unit: Literal["bytes", "count"] = "count") -> ProgressLine:
    """Return the line of the command that runs, which may have been told to be quiet."""
    context = click.get_current_context(silent=True)
    app = context.find_object(App) if context is not None else None
    return ProgressLine(what, unit=unit, quiet=app is not None and app.is_quiet)


def call(client: Client, params: Method[R], bar: ProgressLine, *, limit_s: float) -> R:
    """Call a method that may take long, with the line drawn meanwhile.

    Raises:
        ClawError: the daemon refused it, or did not answer in time.
    """
    stream = client.stream(params)
    deadline = time.monotonic() + limit_s
    is_measured = False
    with bar:
        while not stream.is_done:
            left = deadline - time.monotonic()
            if left <= 0:
                raise UnreachableError(
                    f"the daemon (pid {client.welcome.pid}) did not answer "
                    f"{method_name(type(params))} within {limit_s:g} s",
                    hint="It may hang: see clawctl logs, or end it.",
                )
            event = stream.wait(min(left, REDRAW_S))
            if isinstance(event, ModelLoading):
                # With all of it in memory, what is left to do has no measure.
                is_measured = event.loaded_bytes < event.total_bytes
                if is_measured:
                    bar.show(event.loaded_bytes, event.total_bytes)
            elif not is_measured:
                bar.tick()
    return stream.result


def _columns(stream: TextIO) -> int:
    try:
        return max(os.get_terminal_size(stream.fileno()).columns, 2)
    except (OSError, ValueError, AttributeError):
        return 80
