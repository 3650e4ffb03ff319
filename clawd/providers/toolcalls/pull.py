"""Text that comes in pieces, read forward by generators that pause where it runs out.

A reader is a plain function in the order of its format, so that no state machine is kept by hand:

    name, stop = yield from source.until(Markers("<sep>"))
    yield from source.blanks()
    arguments = yield from read_object(source)

What it does depends on the text alone, never on how the text was cut. Every character is read
once; none is read again, and nothing recurses.
"""

import re
from collections.abc import Callable, Generator
from typing import TypeVar

from clawd.providers.toolcalls.json_scan import CallWatch, ObjectScanner
from clawd.providers.toolcalls.output import Output
from clawd.providers.toolcalls.scanners import BodyScanner, JsonBody

_T = TypeVar("_T")

Reading = Generator[None, None, _T]

_BLANKS = re.compile(r"\s*")
_NEVER = "(?!)"
_SCAN_CHARS = 4096
_SURELY_MARKER = 4  # so much of a marker at the end of a cut text was to be one


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
        """Say whether a marker begins with this text."""
        return any(marker.startswith(text) for marker in self.texts)


class Source:
    """A text on its way, and what of it a reader has consumed without claiming it.

    `out` takes each whole call, and what readers find of reasoning.

    Args:
        out: takes what is found.
        told: the tools whose calls are told while they are written.
    """

    def __init__(self, out: Output, told: frozenset[str] = frozenset()) -> None:
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
        """Say whether all is consumed and nothing follows."""
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
            is_marker = self._is_cut and len(self._text) - end >= _SURELY_MARKER
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

    def until(self, markers: Markers) -> Reading[tuple[str, str]]:
        """Consume up to and with a marker; return what was before it, and the marker or ""."""
        pieces: list[str] = []

        def keep(piece: str) -> None:
            pieces.append(piece)
            self._raw.append(piece)

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
