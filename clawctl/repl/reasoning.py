"""The model's reasoning: folded to one line, or whole, line by line."""

from clawctl.repl.styled_rows import Span, rendered, safe, width_of, wrapped
from clawctl.repl.theme import Look

TAIL_CHARS = 400


class Thoughts:
    """Takes reasoning as it comes.

    Args:
        started_at: on the clock of the view.
        is_whole: every line of it is shown.
    """

    def __init__(self, started_at: float, *, is_whole: bool) -> None:
        self._started_at = started_at
        self._is_whole = is_whole
        self._tail = ""
        self._words = 0
        self._partial = ""
        self._lines: list[str] = []

    def add(self, text: str) -> None:
        """Take a part of it."""
        goes_on = bool(self._tail) and not self._tail[-1].isspace()
        words = len(text.split())
        self._words += words - (goes_on and bool(words) and not text[0].isspace())
        self._tail = (self._tail + text)[-TAIL_CHARS:]
        if self._is_whole:
            *lines, self._partial = (self._partial + text).split("\n")
            self._lines += lines

    def tail(self, columns: int) -> str:
        """Return the live line: the last words that fit."""
        label = "thinking … "
        words = safe(" ".join(self._tail.split()))
        room = max(columns - width_of(label) - 2, 8)
        while width_of(words) > room:
            words = words[max((width_of(words) - room) // 2, 1) :]
        return label + words

    def rows(self, columns: int, look: Look, *, is_over: bool = False) -> list[str]:
        """Return the rows that are complete and were not returned yet; none when folded."""
        lines, self._lines = self._lines, []
        if is_over and self._partial:
            lines, self._partial = [*lines, self._partial], ""
        bar = f"  {look.marks.bar} "
        return [
            rendered(row)
            for line in lines
            for row in wrapped([Span(bar + safe(line), look.theme.dim)], columns, indent=bar)
        ]

    def summary(self, now: float, look: Look) -> str:
        """Return what stays of it."""
        words = "word" if self._words == 1 else "words"
        seconds = f"{max(now - self._started_at, 0.0):.1f} s"
        return f"{look.marks.folded} thought for {seconds} ({self._words} {words})"
