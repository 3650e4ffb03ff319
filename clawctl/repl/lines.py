"""Where the REPL's lines come from: an editor, a plain prompt, or lines that nobody types.

The editor is for a terminal that can move its cursor. `CLAWD_PLAIN=1` (or `plain = true` in
`client.toml` of the home) asks for the plain prompt, which suits screen readers; `TERM=dumb` too.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from clawctl.repl.history import HistoryFile

if TYPE_CHECKING:
    from clawctl.repl.offering import Known

HISTORY_LOADED = 1_000
PROMPT = "> "
CONTINUATION = "… "


class Lines(Protocol):
    """Gives one message after the other.

    Attributes:
        edits: whether it reads single keys, and sets the terminal up for that by itself.
    """

    edits: bool

    def read(self, typed: str = "", text: str = "") -> str:
        """Return the next message.

        Args:
            typed: keys that were typed before, as a terminal sends them.
            text: what the line holds at first.

        Raises:
            EOFError: there is no more.
            KeyboardInterrupt: Ctrl-C at the prompt.
        """
        ...

    def whole(self, line: str) -> str:
        """Return a line with all that was folded in it."""
        ...

    def typed(self, line: str) -> str:
        """Return what was typed of a line, without what was pasted and folded."""
        ...

    def written(self, text: str) -> str:
        """Return a text that the person wrote elsewhere, as it goes into a line."""
        ...

    def redraw(self) -> None:
        """Show anew what may have changed below the prompt; from any thread."""
        ...

    def presses(self) -> int:
        """Return how often Ctrl-C was pressed after the one that ended `read`, and forget these."""
        ...


class PipedLines:
    """Lines of standard input, one message each, without any prompt."""

    edits = False

    def read(self, typed: str = "", text: str = "") -> str:  # noqa: ARG002 there is nobody who types
        """Return the next line."""
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def whole(self, line: str) -> str:
        """Return the line."""
        return line

    def typed(self, line: str) -> str:
        """Return the line."""
        return line

    def written(self, text: str) -> str:
        """Return the text."""
        return text

    def redraw(self) -> None:
        """Do nothing."""

    def presses(self) -> int:
        """Return that there was none."""
        return 0


class PlainLines:
    """A prompt that writes no more than itself; the terminal or readline edits the line.

    A line that ends with a backslash goes on in the next one.
    """

    edits = False

    def __init__(
        self, history: Path, status: Callable[[], str], known: "Callable[[], Known]"
    ) -> None:
        self._file = HistoryFile(history)
        self._status = status
        self._queued = ""
        if os.environ.get("TERM", "") != "dumb":
            import readline

            # The file is written here, entry by entry, and only what may be kept.
            readline.set_auto_history(False)
            for entry in self._file.load()[-HISTORY_LOADED:]:
                if "\n" not in entry:
                    readline.add_history(entry)
            from clawctl.repl.plain_completing import complete_with

            complete_with(known(), PROMPT)

    def read(self, typed: str = "", text: str = "") -> str:
        """Return what was typed."""
        status = self._status()
        if status:
            print(status)
        if text:
            print(f"(not sent yet: {text})")
        self._queued += typed.replace("\r", "\n")
        line = self._next(PROMPT)
        while line.endswith("\\"):
            line = f"{line[:-1]}\n{self._next(CONTINUATION)}"
        self._file.add(line)
        return line

    def whole(self, line: str) -> str:
        """Return the line."""
        return line

    def typed(self, line: str) -> str:
        """Return the line."""
        return line

    def written(self, text: str) -> str:
        """Return the text."""
        return text

    def redraw(self) -> None:
        """Do nothing: a line that comes by itself would be read out in mid-word."""

    def presses(self) -> int:
        """Return that there was none: each is a signal here."""
        return 0

    def _next(self, prompt: str) -> str:
        """Return the next line that was typed ahead, or ask for one; half a line is its begin."""
        begun, ended, self._queued = self._queued.partition("\n")
        if ended:
            print(prompt + begun)
            return begun
        return begun + self._typed(prompt + begun)

    def _typed(self, prompt: str) -> str:
        try:
            line = input(prompt)
        except KeyboardInterrupt:
            print()
            raise
        readline = sys.modules.get("readline")
        if readline is not None and line.strip() and not line[0].isspace():
            readline.add_history(line)
        return line
