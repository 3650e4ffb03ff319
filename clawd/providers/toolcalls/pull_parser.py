"""The parser that the families share: end tokens, then reasoning, then text and calls.

A family adds a `Dialect`: the markers to look for, and a reader of what follows one.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from clawd.providers.toolcalls.base import THINK, ParsedDelta, ParserOptions
from clawd.providers.toolcalls.output import Output
from clawd.providers.toolcalls.pull import Markers, Reading, Source

_OPENED = re.compile(r"(?:[;,]\s*)?\[?\s*\{(?P<rest>.*)", re.DOTALL)
_CALL_KEYS = ('"name":"', '"type":"function"')
_SEEN_CHARS = 300
_KEY_CHARS = 16  # of a key or a marker that a reader waited for the end of


class Dialect(NamedTuple):
    """How a family writes.

    Attributes:
        markers: what opens a call, anywhere in the text.
        read: reads what follows such a marker. It delivers each call as soon as that is whole;
            what it consumed and did not claim becomes text.
        starts: what opens a call as the first thing of the answer only.
        ends: end-of-turn tokens, which do not belong to the answer when they are its end.
        thoughts: pairs that open and close reasoning at the start of the answer.
        always: markers that count without tools as well.
        begins: an answer is read as a call from its first character on.
        inner_thought: a marker that opens reasoning anywhere, which `read` reads.
    """

    markers: tuple[str, ...]
    read: Callable[[Source, str], Reading[None]]
    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    thoughts: tuple[tuple[str, str], ...] = (THINK,)
    always: tuple[str, ...] = ()
    begins: bool = False
    inner_thought: str = ""


class PullParser:
    """Streams reasoning, text and whole calls.

    Reasoning is recognised at the start of the answer only, unless the family's reader takes it
    anywhere; what is not closed stays reasoning. Blanks around a call become one line break
    between texts.
    """

    def __init__(self, options: ParserOptions, dialect: Dialect) -> None:
        self._dialect = dialect
        self._starts_in_reasoning = options.starts_in_reasoning
        markers = dialect.markers if options.calls else ()
        self._markers = Markers(*markers, *dialect.always)
        self._starts = Markers(*(dialect.starts if options.calls else ()))
        self._out = Output()
        self._end_tokens = _EndTokens(dialect.ends)
        told = frozenset(options.schemas) if options.calls and options.streams else frozenset()
        self._source = Source(self._out, told)
        self._names = frozenset(options.schemas)
        self._is_cut = False
        self._steps = self._run()

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        self._source.push(self._end_tokens.feed(text))
        return self._advance()

    def finish(self, *, is_cut: bool = False) -> list[ParsedDelta]:
        """Take the end of the text."""
        self._is_cut = is_cut
        self._source.push(self._end_tokens.finish())
        self._source.end(is_cut=is_cut)
        return [*self._advance(), *self._out.finish()]

    def _advance(self) -> list[ParsedDelta]:
        next(self._steps, None)
        return self._out.take()

    def _run(self) -> Reading[None]:
        source = self._source
        marker = yield from self._first()
        while True:
            if marker is not None:
                yield from self._dialect.read(source, marker)
                if self._is_cut_call():
                    source.drop_rest()
                if self._out.leave_call():
                    source.claim()
            self._out.add_text(source.unclaimed())
            marker = yield from source.pour(self._markers, self._out.add_text)
            if not marker:
                return

    def _is_cut_call(self) -> bool:
        """Return whether what was read and not claimed is the beginning of a call that was cut."""
        if not self._is_cut or not self._source.ends_within(_KEY_CHARS):
            return False
        raw = self._source.unclaimed_so_far().lstrip()
        if raw.startswith(self._markers.texts) and not raw.startswith("```"):
            return True
        opened = _OPENED.fullmatch(raw)
        return opened is not None and self._begins_call(opened["rest"] + self._source.rest())

    def _begins_call(self, text: str) -> bool:
        """Return whether what stands in an open object may be the beginning of a call."""
        seen = "".join(text[:_SEEN_CHARS].split())
        name, kind = _CALL_KEYS
        if seen.startswith(kind) or name.startswith(seen) or kind.startswith(seen):
            return True
        said, is_whole, _ = seen.removeprefix(name).partition('"')
        fits = said in self._names if is_whole else any(n.startswith(said) for n in self._names)
        return seen.startswith(name) and fits

    def _first(self) -> Reading[str | None]:
        """Read what stands before the text; return what a reader begins with."""
        if self._dialect.inner_thought and self._starts_in_reasoning:
            return self._dialect.inner_thought
        yield from self._think()
        if self._dialect.begins:
            return ""
        yield from self._source.blanks()
        return (yield from self._source.one_of(self._starts)) or None

    def _think(self) -> Reading[None]:
        """Split reasoning off; the blanks around it belong to neither."""
        source, pairs = self._source, dict(self._dialect.thoughts)
        yield from source.blanks()
        opening = yield from source.one_of(Markers(*pairs))
        if not opening and not self._starts_in_reasoning:
            return
        source.claim()
        closing = Markers(pairs[opening]) if opening else Markers(*pairs.values())
        yield from source.pour(closing, self._out.add_reasoning)
        yield from source.blanks()
        source.claim()


class _EndTokens:
    """Holds end-of-turn tokens back: text when text follows, nothing when they are the end."""

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self._tokens = Markers(*tokens)
        self._passed: list[str] = []
        self._source = Source(Output())
        self._steps = self._run()

    def feed(self, text: str) -> str:
        self._source.push(text)
        return self._advance()

    def finish(self) -> str:
        self._source.end()
        return self._advance()

    def _advance(self) -> str:
        next(self._steps, None)
        passed = "".join(self._passed)
        self._passed.clear()
        return passed

    def _run(self) -> Reading[None]:
        source = self._source
        while (yield from source.pour(self._tokens, self._passed.append)):
            more = True
            while more:
                yield from source.blanks()
                more = bool((yield from source.one_of(self._tokens)))
            if source.is_at_end():
                return
            self._passed.append(source.unclaimed())
