"""Splits reasoning (`<think>…</think>` at the start of an answer) off the text."""

from enum import Enum, auto

from clawd.providers.toolcalls.base import ParsedDelta, ParserOptions, split_at_marker
from clawd.providers.toolcalls.output import Output

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
        self._out = Output()

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        text = self._held + text
        self._held = ""
        if self._place is _Place.START:
            text = self._start(text)
        if self._place is _Place.REASONING:
            text = self._reason(text)
        if self._place is _Place.TEXT:
            self._out.add_text(text)
        return self._out.take()

    def finish(self) -> list[ParsedDelta]:
        """Take the end of the text."""
        if self._place is _Place.REASONING:
            self._out.add_reasoning(self._held)
        else:
            self._out.add_text(self._held)
        return self._out.finish()

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
        return text

    def _reason(self, text: str) -> str:
        before, marker, after = split_at_marker(text, (CLOSE,))
        self._out.add_reasoning(before)
        if not marker:
            self._held = after
            return ""
        self._place = _Place.TEXT
        self._out.part()
        return after
