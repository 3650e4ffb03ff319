"""A drawn view before a terminal of the test, whose clock is the test's as well."""

import io
from typing import Any

import pyte
from typing_extensions import override

from clawctl.repl.canvas import Canvas
from clawctl.repl.drawn_view import DrawnView
from clawctl.repl.theme import DARK, Look
from clawctl.safe_stream import Screen
from clawctl.turn import ViewOptions
from clawd.wire.events import Event


class Tty(io.StringIO):
    """A stream that says it is a terminal, and keeps what was written."""

    @override
    def isatty(self) -> bool:
        return True

    def taken(self) -> str:
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


class PyteTerminal:
    """pyte behind the line discipline of a terminal; keeps all of the scrollback."""

    def __init__(self, columns: int, lines: int) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=100_000)
        self._stream = pyte.Stream(self._screen)

    @property
    def columns(self) -> int:
        return int(self._screen.columns)

    @property
    def lines(self) -> int:
        return int(self._screen.lines)

    def feed(self, data: str) -> None:
        self._stream.feed(data.replace("\n", "\r\n"))

    def resize(self, columns: int, lines: int) -> None:
        self._screen.resize(lines=lines, columns=columns)

    @property
    def cells(self) -> list[list[tuple[str, str, bool]]]:
        """Characters with colour and weight, of scrollback and screen."""
        shown = [*self._screen.history.top]
        shown += [self._screen.buffer[row] for row in range(self.lines)]
        return [
            [(line[x].data, line[x].fg, line[x].bold) for x in range(self.columns)]
            for line in shown
        ]

    @property
    def text(self) -> list[str]:
        lines = ["".join(cell[0] for cell in row).rstrip() for row in self.cells]
        while lines and not lines[-1]:
            lines.pop()
        return lines


class Nowhere:
    """A terminal that nobody looks at: what it was sent is what matters."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines

    def feed(self, data: str) -> None:
        pass


class Drawing:
    """A drawn view on a terminal; `bytes_written` counts what it cost."""

    def __init__(
        self,
        terminal: Any,
        *,
        options: ViewOptions | None = None,
        look: Look | None = None,
        reflows: bool = False,
    ) -> None:
        self.terminal = terminal
        self.now = 100.0
        self.bytes_written = 0
        self.raw = ""
        self._tty = Tty()
        canvas = Canvas(
            Screen(self._tty),  # type: ignore[arg-type]
            lambda: (terminal.columns, terminal.lines),
            sync=False,
            reflows=reflows,
        )
        self.view = DrawnView(
            self._tty,
            options or ViewOptions(),
            look or Look(theme=DARK),
            canvas,
            lambda: self.now,
        )

    def show(self, *events: Event, every_s: float = 0.05) -> None:
        for event in events:
            self.now += every_s
            self.view.show(event)
            self._pass_on()

    def tick(self, seconds: float = 0.1) -> None:
        self.now += seconds
        self.view.tick()
        self._pass_on()

    def pause(self) -> None:
        self.view.pause()
        self._pass_on()

    def finish(self, text: str | None, finished: Any = None) -> None:
        self.view.finish(text, finished)
        self._pass_on()

    def _pass_on(self) -> None:
        data = self._tty.taken()
        self.raw += data
        self.bytes_written += len(data.encode())
        self.terminal.feed(data)


def drawn(text: str, columns: int = 80, lines: int = 24) -> PyteTerminal:
    """Return the terminal after the text was drawn at once."""
    terminal = PyteTerminal(columns, lines)
    Drawing(terminal).finish(text)
    return terminal
