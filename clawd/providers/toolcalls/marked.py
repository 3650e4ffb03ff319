"""Parses calls that stand behind a marker: what most families share; each tells its own form.

    text <OPEN> body <CLOSE> text

The closing marker may be missing at the end of the text and before the next call. A body that
does not decode stays in the text as it was written, markers and all.
"""

from collections.abc import Callable

import msgspec

from clawd.providers.toolcalls.base import THINK, ParsedCall, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.pull_parser import CallDialect, Markers, PullParser, Reading, Source
from clawd.providers.toolcalls.scanners import BodyScanner


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
    decode: Callable[[str, ParserOptions], list[ParsedCall] | None]
    repeats: bool = False


class CallForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a family writes. No marker of a form begins with another.

    Attributes:
        marks: the ways to write a call; at most one of them without an opening marker.
        drops: control tokens that are no text, should they come spelled out.
        thoughts: the markers around reasoning anywhere; None for reasoning at the start.
        openings: other ways to open it.
        endings: what ends it beside the closing marker.
        leading: the markers around reasoning at the start.
        calls_end_thoughts: a call's marker inside reasoning is a call.
        is_framed: text too is written behind markers, so they count without tools as well.
        names: whom what is framed may be for beside the tools, where it begins with a name.
    """

    marks: tuple[Mark, ...]
    drops: tuple[str, ...] = ()
    thoughts: tuple[str, str] | None = None
    openings: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    leading: tuple[tuple[str, str], ...] = (THINK,)
    calls_end_thoughts: bool = False
    is_framed: bool = False
    names: tuple[str, ...] = ()


def marked_parser(options: ParserOptions, form: CallForm) -> ToolCallParser:
    """Return the parser of one answer of a model that writes in a form."""
    reader = _FormReader(options, form)
    return PullParser(
        options,
        CallDialect(
            markers=(),
            read=reader.read,
            always=(*reader.opens, *form.drops, *(form.thoughts or ())[:1], *form.openings),
            calls=reader.opens,
            begins="" in reader.marks,
            thoughts=() if form.thoughts else form.leading,
            inner_thought=form.thoughts[0] if form.thoughts else "",
        ),
    )


class _FormReader:
    def __init__(self, options: ParserOptions, form: CallForm) -> None:
        self._options = options
        self._form = form
        looks_for_calls = options.calls or form.is_framed
        self.marks = {mark.open: mark for mark in form.marks if looks_for_calls}
        self.opens = tuple(filter(None, self.marks))
        self._opens = Markers(*self.opens)
        think, stop = form.thoughts or ("", "")
        self._thinks = tuple(filter(None, (think, *form.openings)))
        calls = self.opens if form.calls_end_thoughts else ()
        self._in_thought = Markers(*calls, stop, *form.endings)
        self._goes_on = options.has_begun
        self._held = Markers(*(() if form.calls_end_thoughts else self.opens))
        self._closings = {
            mark.open: _closings(mark.close, (*self.opens, *form.drops)) for mark in form.marks
        }

    def read(self, source: Source, marker: str) -> Reading[None]:
        """Read what a marker opens, and calls that follow at once."""
        if marker in self._form.drops:
            source.claim()
            return
        following: str | None = marker
        if marker in self._thinks:
            following = yield from self._read_thought(source)
        while following is not None:
            following = yield from self._read_call(source, self.marks[following])

    def _read_thought(self, source: Source) -> Reading[str | None]:
        """Read reasoning to its end; return the marker of a call that ends it."""
        source.claim()
        if not self._goes_on:
            source.out.part()
        self._goes_on = False
        marker = yield from source.thought(self._in_thought, self._held, source.out.add_reasoning)
        source.out.part()
        if marker in self.opens:
            return marker
        source.claim()
        return None

    def _read_call(self, source: Source, mark: Mark) -> Reading[str | None]:
        """Read a body and what closes it; return the mark of the call that follows at once."""
        scanner = mark.scanner()
        body = yield from source.scan(scanner, "" if mark.open else source.unclaimed_so_far())
        calls = None if scanner.is_rejected else mark.decode(body, self._options)
        if calls is None:
            if self._form.is_framed and not mark.open:
                source.drop_cut(
                    *(f"{name}\n" for name in (*self._options.schemas, *self._form.names))
                )
            return None
        following = ""
        if mark.close:
            closings = self._closings[mark.open]
            yield from source.blanks()
            following = yield from source.peek(closings)
            if not following and not source.ends_in(closings):
                return None
        for call in calls:
            source.deliver(call.name, call.arguments)
        source.claim()
        source.out.part()
        if following in self.opens:
            return (yield from source.one_of(self._opens))
        if following:
            yield from source.one_of(Markers(following))
            source.claim()
        return mark.open if mark.repeats else None


def _closings(close: str, others: tuple[str, ...]) -> Markers:
    """Return what may stand behind a body; the closing marker goes before what it begins."""
    return Markers(close, *(one for one in others if not close or not one.startswith(close)))
