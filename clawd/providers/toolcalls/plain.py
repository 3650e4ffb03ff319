"""Splits reasoning (`<think>…</think>` at the start of an answer) off the text."""

from enum import Enum, auto

from clawd.providers.base import Reasoning, Text
from clawd.providers.toolcalls.base import ParsedDelta, ParserOptions, split_at_marker

THINK = ("<think>", "</think>")
OPEN, CLOSE = THINK

_MAX_LEADING_BLANKS = 256


class _Place(Enum):
    START = auto()
    REASONING = auto()
    TEXT = auto()


class PlainParser:
    """The parser of a model that calls no tools, and the first stage of the others.

    Reasoning is recognised at the start of the answer only: there models put it, and anywhere
    else the marker is what they write about. Blanks around reasoning and between it and the text
    belong to neither. Reasoning that is not closed stays reasoning.
    """

    def __init__(self, options: ParserOptions) -> None:
        self._place = _Place.REASONING if options.starts_in_reasoning else _Place.START
        self._held = ""
        self._blanks: list[str] = []
        self._is_empty = True

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        text = self._held + text
        self._held = ""
        deltas: list[ParsedDelta] = []
        if self._place is _Place.START:
            text = self._start(text)
        if self._place is _Place.REASONING:
            text = self._reason(text, deltas)
        if self._place is _Place.TEXT:
            self._add_text(text, deltas)
        return deltas

    def finish(self) -> list[ParsedDelta]:
        """Take the end of the text."""
        if not self._held:
            return []
        if self._place is _Place.REASONING:
            deltas: list[ParsedDelta] = []
            self._add_reasoning(self._held, deltas)
            return deltas
        return [Text(text=self._held)]

    def _start(self, text: str) -> str:
        """Decide whether the answer begins with reasoning, as soon as it can be told."""
        begin = text.lstrip()
        is_near = len(text) - len(begin) <= _MAX_LEADING_BLANKS
        if is_near and begin.startswith(OPEN):
            self._place = _Place.REASONING
            return begin[len(OPEN) :]
        if is_near and OPEN.startswith(begin):
            self._held = text
            return ""
        self._place = _Place.TEXT
        self._is_empty = False
        return text

    def _reason(self, text: str, deltas: list[ParsedDelta]) -> str:
        before, marker, after = split_at_marker(text, (CLOSE,))
        self._add_reasoning(before, deltas)
        if not marker:
            self._held = after
            return ""
        self._place = _Place.TEXT
        self._is_empty = True
        return after

    def _add_reasoning(self, text: str, deltas: list[ParsedDelta]) -> None:
        """Emit reasoning; blanks wait until something follows them, for those at its end go."""
        if self._is_empty:
            text = text.lstrip()
        body = text.rstrip()
        if body:
            deltas.append(Reasoning(text="".join((*self._blanks, body))))
            self._blanks.clear()
            self._is_empty = False
        if not self._is_empty and len(body) < len(text):
            self._blanks.append(text[len(body) :])

    def _add_text(self, text: str, deltas: list[ParsedDelta]) -> None:
        if self._is_empty:
            text = text.lstrip()
        if text:
            deltas.append(Text(text=text))
            self._is_empty = False
