"""Parses calls that stand behind a marker: what most families share; each tells its own form.

    text <OPEN> body <CLOSE> text

The closing marker may be missing at the end of the text and before the next call. A body that
does not decode stays in the text as it was written, markers and all.
"""

from collections.abc import Callable
from enum import Enum, auto

import msgspec

from clawd.providers.base import Reasoning, Text
from clawd.providers.toolcalls.base import ParsedDelta, ParserOptions, split_at_marker
from clawd.providers.toolcalls.call_objects import Call
from clawd.providers.toolcalls.output import Output
from clawd.providers.toolcalls.plain import PlainParser
from clawd.providers.toolcalls.scanners import GOES_ON, BodyScanner

# Long pieces are taken in parts, so that what is left of one is never copied often.
_PART = 2048


class Mark(msgspec.Struct, frozen=True):
    """How a call is framed, and what its body is.

    Attributes:
        open: the marker before the body; empty for a body that begins the answer.
        close: the marker after it; empty where none is written.
        scanner: makes what finds the body's end.
        decode: returns the body's calls, or None for a body that is no call.
        repeats: another body may follow at once, without a marker of its own.
    """

    open: str
    close: str
    scanner: Callable[[], BodyScanner]
    decode: Callable[[str, ParserOptions], list[Call] | None]
    repeats: bool = False


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How a family writes. No marker of a form begins with another.

    Attributes:
        marks: the ways to write a call; at most one of them without an opening marker.
        drops: control tokens that are no text, should they come spelled out.
        thoughts: the markers around reasoning; None for `<think>` at the start.
        calls_end_thoughts: a call's marker inside reasoning is a call.
        is_framed: text too is written behind markers, so they count without tools as well.
    """

    marks: tuple[Mark, ...]
    drops: tuple[str, ...] = ()
    thoughts: tuple[str, str] | None = None
    calls_end_thoughts: bool = False
    is_framed: bool = False


class _Place(Enum):
    TEXT = auto()
    THOUGHT = auto()
    BODY = auto()
    CLOSING = auto()


class MarkedParser:
    """Streams text, reasoning and whole calls of a model that writes in a form."""

    def __init__(self, options: ParserOptions, form: Form) -> None:
        self._options = options
        self._form = form
        self._plain = PlainParser(options) if form.thoughts is None else None
        marks = form.marks if options.calls or form.is_framed else ()
        self._marks = {mark.open: mark for mark in marks}
        self._opens = tuple(filter(None, self._marks))
        self._think, self._stop_thinking = form.thoughts or ("", "")
        self._in_text = (*self._opens, *form.drops, *((self._think,) if self._think else ()))
        self._in_thought = (self._stop_thinking, *(self._opens if form.calls_end_thoughts else ()))
        self._out = Output()
        self._held = ""
        self._raw: list[str] = []
        self._body: list[str] = []
        self._calls: list[Call] = []
        self._place = _Place.TEXT
        if "" in self._marks:
            self._open("")
        if form.thoughts and options.starts_in_reasoning:
            self._place = _Place.THOUGHT

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        for at in range(0, len(text), _PART):
            self._sort(text[at : at + _PART])
        return self._out.take()

    def finish(self) -> list[ParsedDelta]:
        """Take the end of the text; a call that is whole but not closed is taken."""
        if self._plain is not None:
            self._pass_on(self._plain.finish())
        if self._place is _Place.BODY:
            self._decode()
        if self._place is _Place.CLOSING:
            self._deliver()
        elif self._place is _Place.THOUGHT:
            self._out.add_reasoning(self._held)
        else:
            self._out.add_text(self._held)
        return self._out.finish()

    def _sort(self, text: str) -> None:
        if self._plain is None:
            self._take(text)
        else:
            self._pass_on(self._plain.feed(text))

    def _pass_on(self, deltas: list[ParsedDelta]) -> None:
        for delta in deltas:
            if isinstance(delta, Text):
                self._take(delta.text)
            elif isinstance(delta, Reasoning):
                self._out.add_reasoning(delta.text)

    def _take(self, text: str) -> None:
        text = self._held + text
        self._held = ""
        while text:
            match self._place:
                case _Place.TEXT:
                    text = self._take_text(text)
                case _Place.THOUGHT:
                    text = self._take_thought(text)
                case _Place.BODY:
                    text = self._take_body(text)
                case _Place.CLOSING:
                    text = self._take_closing(text)

    def _take_text(self, text: str) -> str:
        before, marker, after = split_at_marker(text, self._in_text)
        self._out.add_text(before)
        if not marker:
            self._held = after
            return ""
        if marker in self._marks:
            self._open(marker)
        elif marker == self._think:
            self._out.part()
            self._place = _Place.THOUGHT
        return after

    def _take_thought(self, text: str) -> str:
        before, marker, after = split_at_marker(text, self._in_thought)
        self._out.add_reasoning(before)
        if not marker:
            self._held = after
            return ""
        self._out.part()
        self._place = _Place.TEXT
        if marker in self._marks:
            self._open(marker)
        return after

    def _take_body(self, text: str) -> str:
        end = self._scanner.scan(text)
        piece = text if end == GOES_ON else text[:end]
        self._raw.append(piece)
        self._body.append(piece)
        if end == GOES_ON:
            return ""
        if self._scanner.is_rejected:
            self._give_up()
        else:
            self._decode()
        return text[end:]

    def _take_closing(self, text: str) -> str:
        """Wait for the closing marker; another call or the end of the turn does as well."""
        body = text.lstrip()
        self._raw.append(text[: len(text) - len(body)])
        if not body:
            return ""
        for marker in (self._mark.close, *self._opens, *self._form.drops):
            if body.startswith(marker):
                self._deliver()
                if marker in self._marks:
                    self._open(marker)
                return body[len(marker) :]
            if marker.startswith(body):
                self._held = body
        if not self._held:
            self._give_up()
            return body
        return ""

    def _open(self, marker: str) -> None:
        self._place = _Place.BODY
        self._mark = self._marks[marker]
        self._scanner = self._mark.scanner()
        self._raw = [marker]
        self._body = []

    def _decode(self) -> None:
        """Judge the body: it waits for its closing marker, is delivered, or is text."""
        calls = self._mark.decode("".join(self._body), self._options)
        self._body = []
        if calls is None:
            self._give_up()
            return
        self._calls = calls
        self._place = _Place.CLOSING
        if not self._mark.close:
            self._deliver()

    def _deliver(self) -> None:
        self._place = _Place.TEXT
        self._held = ""
        for call in self._calls:
            self._out.add_call(call.name, call.arguments)
        self._out.part()
        self._raw, self._calls = [], []
        if self._mark.repeats:
            self._open(self._mark.open)

    def _give_up(self) -> None:
        """Turn what was read since the marker back into text."""
        self._place = _Place.TEXT
        raw, self._raw = "".join(self._raw), []
        self._out.add_text(raw)
