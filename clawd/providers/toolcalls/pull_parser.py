"""The parser that the families share, over text that is read forward and pauses where it runs out.

First end tokens are looked for, then reasoning, then text and calls. A family adds a `CallDialect`:
the markers to look for, and a reader of what follows one. A reader is a plain function in the order
of its format, so that no state machine is kept by hand:

    name, stop = yield from source.until(Markers("<sep>"))
    yield from source.blanks()
    arguments = yield from read_object(source)

What it does depends on the text alone, never on how the text was cut. Every character is read
once; none is read again, and nothing recurses. What is found is gathered as deltas, with the blanks
between text, reasoning and calls settled.
"""

import re
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from clawd.providers.base import CallDelta
from clawd.providers.toolcalls.base import THINK, ParsedDelta, ParserOptions
from clawd.providers.toolcalls.scanners import BodyScanner, CallWatch, JsonBody, ObjectScanner
from clawd.wire.events import ReasoningDelta, TextDelta, ToolDraft

_T = TypeVar("_T")
Reading = Generator[None, None, _T]
_BLANKS = re.compile(r"\s*")
_NEVER = "(?!)"
_SCAN_CHARS = 4096
SURELY_MARKER = 4  # so much of a marker at the end of a cut text was to be one
_OPENED = re.compile(r"(?:[;,]\s*)?\[?\s*\{(?P<rest>.*)", re.DOTALL)
_CALL_KEYS = ('"name":"', '"type":"function"')
_SEEN_CHARS = 300
_KEY_CHARS = 24  # of a key or a marker that a reader waited for the end of
_NAME = re.compile(r"\w[\w.:/-]*")


class Markers:
    """A set of strings to look for; none of them begins another one, and empty ones are none."""

    def __init__(self, *given: str) -> None:
        texts = tuple(filter(None, given))
        assert not any(a != b and b.startswith(a) for a in texts for b in texts), texts
        self.texts = texts
        self._pattern = re.compile("|".join(re.escape(text) for text in texts) or _NEVER)
        self._firsts = frozenset(text[0] for text in texts)
        self.longest = max((len(text) for text in texts), default=1)

    def find(self, text: str, start: int) -> re.Match[str] | None:
        """Return the earliest whole marker from `start` on."""
        return self._pattern.search(text, start)

    def held_from(self, text: str, start: int) -> int:
        """Return where an unfinished marker begins at the end of a text that holds no whole one."""
        for at in range(max(start, len(text) - self.longest + 1), len(text)):
            if text[at] in self._firsts and self.may_begin(text[at:]):
                return at
        return len(text)

    def may_begin(self, text: str) -> bool:
        """Return whether a marker begins with this text."""
        return any(marker.startswith(text) for marker in self.texts)


class AnswerDeltas:
    """The deltas of one answer.

    Blanks around a call and around reasoning belong to neither; parts that they separate are
    joined by one line break. All other blanks stay as they were written.

    Args:
        drafts: what is written of a call is a draft of it, which binds nobody.
        goes_on: an answer had begun, and goes on, maybe within its reasoning.
    """

    def __init__(self, *, drafts: bool = False, goes_on: bool = False) -> None:
        self.drafts = drafts
        self._text = _Stream(is_apart=False)
        self._reasoning = _Stream(is_apart=not goes_on)
        self._deltas: list[ParsedDelta] = []
        self._calls = 0
        self._ids: set[str] = set()
        self._written: list[str] | None = None  # a call that is being told: name, arguments

    def add_text(self, text: str) -> None:
        """Append text of the answer."""
        if text := self._text.take(text):
            self._deltas.append(TextDelta(text=text))

    def add_reasoning(self, text: str) -> None:
        """Append reasoning."""
        if text := self._reasoning.take(text):
            self._deltas.append(ReasoningDelta(text=text))

    def add_call(self, name: str, arguments: str, call_id: str = "") -> None:
        """Append a whole call; an id that was there before is left out.

        Of one that was told while it was written, what is left to tell.
        """
        if self._written is not None:
            rest = arguments.removeprefix("".join(self._written[1:]))
            is_same = name == self._written[0] and rest != arguments
            if rest and is_same:
                self._deltas.append(CallDelta(index=self._calls, arguments=rest))
            self.leave_call()
            return
        self.part()
        if call_id in self._ids:
            call_id = ""
        self._ids.add(call_id)
        self._deltas.append(
            CallDelta(index=self._calls, id=call_id, name=name, arguments=arguments)
        )
        self._calls += 1

    def write_call(self, name: str, arguments: str) -> None:
        """Tell more of the arguments of the call that is being written; its name comes first."""
        if self.drafts:
            self._deltas.append(ToolDraft(index=self._calls, tool=name, text=arguments))
            return
        if self._written is None:
            self.part()
            self._written = [name]
            self._deltas.append(CallDelta(index=self._calls, name=name))
        self._written.append(arguments)
        self._deltas.append(CallDelta(index=self._calls, arguments=arguments))

    def leave_call(self) -> bool:
        """End the call that is being written, as far as it came; return whether there was one."""
        was_written, self._written = self._written is not None, None
        self._calls += was_written
        return was_written

    @property
    def has_calls(self) -> bool:
        """Whether a call was told."""
        return self._calls > 0

    def part(self) -> None:
        """End the part of text or reasoning that is being written."""
        self._text.part()
        self._reasoning.part()

    def take(self) -> list[ParsedDelta]:
        """Return the deltas since the last time."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self) -> list[ParsedDelta]:
        """Return the last deltas: blanks at the end of text are text."""
        if text := self._text.rest():
            self._deltas.append(TextDelta(text=text))
        return self.take()


class Source:
    """A text on its way, and what of it a reader has consumed without claiming it.

    `out` takes each whole call, and what readers find of reasoning.

    Args:
        out: takes what is found.
        told: the tools whose calls are told while they are written.
    """

    def __init__(self, out: AnswerDeltas, told: frozenset[str] = frozenset()) -> None:
        self.out = out
        self._told = told
        self._is_cut = False
        self._text = ""
        self._at = 0
        self._has_ended = False
        self._raw: list[str] = []

    def push(self, text: str) -> None:
        """Append the next piece."""
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self, *, is_cut: bool = False) -> None:
        """Tell that nothing follows, because the text is over or because it was cut."""
        self._has_ended = True
        self._is_cut = is_cut

    def deliver(self, name: str, arguments: str, call_id: str = "") -> None:
        """Hand over a whole call and claim what it was read from."""
        self.claim()
        self.out.add_call(name, arguments, call_id)

    def teller(self, name: str) -> Callable[[str], None] | None:
        """Return what tells the arguments of a call while they are written; None: nothing does."""
        return partial(self.out.write_call, name) if name in self._told else None

    def claim(self) -> None:
        """Take what was consumed for good: it does not become text."""
        self._raw.clear()

    def unclaimed(self) -> str:
        """Claim what was consumed and return it."""
        raw = "".join(self._raw)
        self._raw.clear()
        return raw

    def unclaimed_so_far(self) -> str:
        """Return what was consumed and not claimed."""
        return "".join(self._raw)

    def is_at_end(self) -> bool:
        """Return whether all is consumed and nothing follows."""
        return self._has_ended and self._at == len(self._text)

    def ends_within(self, count: int) -> bool:
        """Return whether nothing follows but at most so many characters."""
        return self._has_ended and len(self._text) - self._at <= count

    def rest(self) -> str:
        """Return what was not consumed yet."""
        return self._text[self._at :]

    def drop_rest(self) -> None:
        """Take what was consumed, and all that follows, for good: none of it becomes text."""
        self._at = len(self._text)
        self._raw.clear()

    def drop_cut(self, *openings: str) -> None:
        """Take all that is left for good where it is the beginning of a call that was cut.

        It begins with one of these, or is itself the beginning of one and hardly anything else.
        """
        left = (self.unclaimed_so_far() + self.rest()).lstrip()
        is_begun = left.startswith(openings) or any(
            text.startswith(left) and len(left) >= min(SURELY_MARKER, len(text) - 1)
            for text in openings
        )
        if is_begun and self._is_cut and self.ends_within(_KEY_CHARS):
            self.drop_rest()

    def ends_in(self, markers: Markers) -> bool:
        """Consume the rest, empty or the cut beginning of a marker; False if it is more."""
        rest = self._text[self._at : self._at + markers.longest]
        if not self._has_ended or not markers.may_begin(rest):
            return False
        self._eat(len(self._text))
        return True

    def pour(self, markers: Markers, take: Callable[[str], None]) -> Reading[str]:
        """Pass text on as it comes, up to a marker, which is consumed and returned ("": the end).

        What is passed on is claimed; the marker is not.
        """
        while True:
            found = markers.find(self._text, self._at)
            end = found.start() if found else markers.held_from(self._text, self._at)
            is_marker = self._is_cut and len(self._text) - end >= SURELY_MARKER
            if not found and self._has_ended and not is_marker:
                end = len(self._text)
            if end > self._at:
                take(self._text[self._at : end])
                self._at = end
            if found:
                return self._eat(found.end())
            if self._has_ended:
                self._at = len(self._text)
                return ""
            yield

    def thought(
        self, closing: Markers, calls: Markers, take: Callable[[str], None]
    ) -> Reading[str]:
        """Pass reasoning on up to what closes it, which is consumed and returned.

        A call within is reasoning as well, unless the reasoning is never closed: then the marker
        of that call is returned, and what stands behind it comes next. What may still be one waits.
        """
        marker = yield from self.pour(Markers(*closing.texts, *calls.texts), take)
        while marker in calls.texts:
            held, end = yield from self.until(closing)
            self._raw.clear()
            if not end and not self._is_cut:
                self._raw.append(marker)
                self._text, self._at = held, 0
                return marker
            take(marker + held)
            marker = end
        return marker

    def until(
        self, markers: Markers, tell: Callable[[str], None] | None = None
    ) -> Reading[tuple[str, str]]:
        """Consume up to and with a marker; return what was before it, and the marker or "".

        `tell` is given what is before it as it comes.
        """
        pieces: list[str] = []

        def keep(piece: str) -> None:
            pieces.append(piece)
            self._raw.append(piece)
            if tell is not None:
                tell(piece)

        marker = yield from self.pour(markers, keep)
        return "".join(pieces), marker

    def peek(self, markers: Markers) -> Reading[str]:
        """Return the marker that comes next, without consuming it; "" when none does."""
        while True:
            for marker in markers.texts:
                if self._text.startswith(marker, self._at):
                    return marker
            rest = self._text[self._at : self._at + markers.longest]
            if self._has_ended or not markers.may_begin(rest):
                return ""
            yield

    def one_of(self, markers: Markers) -> Reading[str]:
        """Consume and return the marker that comes next; "" when none does."""
        marker = yield from self.peek(markers)
        return self._eat(self._at + len(marker))

    def span(self, pattern: re.Pattern[str]) -> Reading[str]:
        """Consume what a pattern of the kind `[…]*` matches."""
        pieces: list[str] = []
        while True:
            found = pattern.match(self._text, self._at)
            if found:
                pieces.append(self._eat(found.end()))
            if self._has_ended or self._at < len(self._text):
                return "".join(pieces)
            yield

    def blanks(self) -> Reading[str]:
        """Consume blanks."""
        return (yield from self.span(_BLANKS))

    def char(self) -> Reading[str]:
        """Consume one character; "" at the end."""
        while self._at == len(self._text) and not self._has_ended:
            yield
        return self._eat(min(self._at + 1, len(self._text)))

    def json(self, begun: str, call: str | None = None) -> Reading[str]:
        """Read on to the end of an object or array that begins with `begun`; "" if it has none.

        Args:
            begun: what was consumed of it.
            call: where it is of a call: the name of one whose arguments it is, "" for the whole.
        """
        scanner = ObjectScanner()
        scanner.scan(begun)
        watch = CallWatch(call) if call is not None and self._told else None
        self._tell(watch, begun)
        pieces = [begun]
        while True:
            while self._at < len(self._text):
                window = self._text[self._at : self._at + _SCAN_CHARS]
                end = scanner.scan(window)
                pieces.append(self._eat(self._at + (len(window) if end < 0 else end)))
                self._tell(watch, pieces[-1])
                if end >= 0:
                    return "".join(pieces)
            if self._has_ended:
                return ""
            yield

    def scan(self, scanner: BodyScanner, begun: str) -> Reading[str]:
        """Read a body that `begun` is the beginning of, to its end, the text's, or a misfit."""
        scanner.scan(begun)
        watch = CallWatch() if self._told and isinstance(scanner, JsonBody) else None
        self._tell(watch, begun)
        pieces = [begun]
        while not scanner.is_rejected:
            while self._at < len(self._text):
                window = self._text[self._at : self._at + _SCAN_CHARS]
                end = scanner.scan(window)
                pieces.append(self._eat(self._at + (len(window) if end < 0 else end)))
                if not scanner.is_rejected:
                    self._tell(watch, pieces[-1])
                if end >= 0:
                    return "".join(pieces)
            if self._has_ended:
                break
            yield
        return "".join(pieces)

    def _tell(self, watch: CallWatch | None, piece: str) -> None:
        """Tell what a piece of JSON adds to the arguments of a call that is being written."""
        arguments = watch.feed(piece) if watch is not None else ""
        if watch is not None and arguments and watch.name in self._told:
            self.out.write_call(watch.name, arguments)

    def _eat(self, end: int) -> str:
        piece = self._text[self._at : end]
        self._at = end
        if piece:
            self._raw.append(piece)
        return piece


class CallDialect(NamedTuple):
    """How a family writes.

    Attributes:
        markers: what opens a call, anywhere in the text.
        read: reads what follows such a marker. It delivers each call as soon as that is whole;
            what it consumed and did not claim becomes text.
        starts: what opens a call as the first thing of the answer only.
        ends: end-of-turn tokens, which do not belong to the answer when they are its end.
        thoughts: pairs that open and close reasoning at the start of the answer.
        always: markers that count without tools as well.
        calls: those of them that open a call.
        begins: an answer is read as a call from its first character on.
        inner: what opens a call within what another opened.
        inner_thought: a marker that opens reasoning anywhere, which `read` reads.
    """

    markers: tuple[str, ...]
    read: Callable[[Source, str], Reading[None]]
    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    thoughts: tuple[tuple[str, str], ...] = (THINK,)
    always: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    begins: bool = False
    inner: tuple[str, ...] = ()
    inner_thought: str = ""


class PullParser:
    """Streams reasoning, text and whole calls.

    Reasoning is recognised at the start of the answer only, unless the family's reader takes it
    anywhere; what is not closed stays reasoning, up to a call. Blanks around a call become one line
    break between texts.
    """

    def __init__(self, options: ParserOptions, dialect: CallDialect) -> None:
        self._dialect = dialect
        self._starts_in_reasoning = options.starts_in_reasoning
        self._has_begun = options.has_begun
        markers = dialect.markers if options.calls else ()
        self._markers = Markers(*markers, *dialect.always)
        self._starts = Markers(*(dialect.starts if options.calls else ()))
        calls = (*dialect.markers, *dialect.calls) if options.calls else ()
        self._calls = Markers(*calls)
        self._out = AnswerDeltas(drafts=not options.streams, goes_on=options.has_begun)
        self._end_tokens = _EndTokens(dialect.ends)
        is_told = options.calls and (options.streams or options.drafts)
        told = frozenset(options.schemas) if is_told else frozenset()
        self._source = Source(self._out, told)
        self._names = frozenset(options.schemas)
        self._is_cut = False
        self._is_open = False
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
            # Reasoning without an end ends with a call that can be read only.
            is_thought = self._is_open and not self._out.has_calls
            take = self._out.add_reasoning if is_thought else self._out.add_text
            take(source.unclaimed())
            marker = yield from source.pour(self._markers, take)
            if not marker:
                return

    def _is_cut_call(self) -> bool:
        """Return whether what was read and not claimed is the beginning of a call that was cut."""
        if not self._is_cut or not self._source.ends_within(_KEY_CHARS):
            return False
        raw = self._source.unclaimed_so_far().lstrip()
        opens = (*self._markers.texts, *self._dialect.inner)
        if raw.startswith(opens) and not raw.startswith("```"):
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
        call = yield from self._think()
        if call:
            return call
        if self._dialect.begins:
            return ""
        yield from self._source.blanks()
        return (yield from self._source.one_of(self._starts)) or None

    def _think(self) -> Reading[str]:
        """Split reasoning off; the blanks around it belong to neither.

        Returns:
            The marker of a call that stands in reasoning without an end; "" otherwise.
        """
        source, pairs = self._source, dict(self._dialect.thoughts)
        if self._has_begun and self._starts_in_reasoning:
            opening = ""
        else:
            yield from source.blanks()
            opening = yield from source.one_of(Markers(*pairs))
        if not opening and not self._starts_in_reasoning:
            return ""
        source.claim()
        closing = Markers(pairs[opening]) if opening else Markers(*pairs.values())
        marker = yield from source.thought(closing, self._calls, self._out.add_reasoning)
        if marker in self._calls.texts:
            self._out.part()
            self._is_open = True
            return marker
        yield from source.blanks()
        source.claim()
        return ""


class _EndTokens:
    """Holds end-of-turn tokens back: text when text follows, nothing when they are the end."""

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self._tokens = Markers(*tokens)
        self._passed: list[str] = []
        self._source = Source(AnswerDeltas())
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


class _Stream:
    def __init__(self, *, is_apart: bool) -> None:
        self._is_apart = is_apart
        self._has_any = False
        self._blanks: list[str] = []

    def take(self, text: str) -> str:
        """Return what can be told of it; blanks wait until something follows them."""
        if self._is_apart:
            text = text.lstrip()
        body = text.rstrip()
        told = ""
        if body:
            if self._is_apart and self._has_any:
                self._blanks.append("\n")
            told = "".join((*self._blanks, body))
            self._blanks.clear()
            self._is_apart = False
            self._has_any = True
        if not self._is_apart and len(body) < len(text):
            self._blanks.append(text[len(body) :])
        return told

    def part(self) -> None:
        self._blanks.clear()
        self._is_apart = True

    def rest(self) -> str:
        return "".join(self._blanks)


_BRACE = Markers("{")


class JsonCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call written as an object; unknown keys are passed over."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()
    id: str | int | None = None

    def argument_text(self) -> str:
        """Return the arguments as the model wrote them, "" when they are no object."""
        return object_text(bytes(self.arguments or self.parameters).decode("utf-8") or "{}")


def decode_calls(text: str) -> list[JsonCall]:
    """Decode an object or an array of objects; empty when any of them is no call."""
    try:
        if text.startswith("["):
            calls = msgspec.json.decode(text, type=list[JsonCall])
        else:
            calls = [msgspec.json.decode(text, type=JsonCall)]
        is_whole = all(call.name and call.argument_text() for call in calls)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return []
    return calls if is_whole else []


def object_text(text: str) -> str:
    """Return the text of a JSON object; one inside a string is unpacked, null is an empty one."""
    value = decode(text)
    if isinstance(value, str):
        text, value = value, decode(value)
    if value is None:
        return "{}" if text == "null" else ""
    return text if isinstance(value, dict) else ""


def decode(text: str) -> Any:
    """Decode JSON; None when it is not well formed (and for null)."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def is_name(text: str) -> bool:
    """Return whether this can be the name of a tool."""
    return _NAME.fullmatch(text) is not None


def read_object(source: Source) -> Reading[str]:
    """Read an object after blanks; "" when none comes, or one that is not well formed."""
    yield from source.blanks()
    begun = yield from source.one_of(_BRACE)
    if not begun:
        return ""
    return object_text((yield from source.json(begun)))
