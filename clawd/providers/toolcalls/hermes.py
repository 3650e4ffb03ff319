"""Tool calls of the Hermes family (Hermes, Qwen, Granite 4, clawd's embedded model).

    Let me look.
    <tool_call>
    {"name": "file_list", "arguments": {"path": "src"}}
    </tool_call>

Any number of calls, text before, between and after. The closing tag may be missing at the end of
the text and before the next call. A call that does not parse stays in the text as it was written.
"""

from enum import Enum, auto

import msgspec

from clawd.providers.base import CallDelta, Text
from clawd.providers.toolcalls.base import (
    ParsedDelta,
    ParserOptions,
    ToolCallParser,
    split_at_marker,
)
from clawd.providers.toolcalls.json_scan import ObjectScanner
from clawd.providers.toolcalls.plain import PlainParser

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


class _Place(Enum):
    TEXT = auto()
    OPENED = auto()
    OBJECT = auto()
    CLOSING = auto()


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


class HermesParser:
    """Streams text and whole calls. Blanks around a call become one line break between texts."""

    def __init__(self, options: ParserOptions) -> None:
        self._reasoning = PlainParser(options)
        self._place = _Place.TEXT
        self._held = ""
        self._blanks: list[str] = []
        self._after_call = False
        self._has_text = False
        self._raw: list[str] = []
        self._object: list[str] = []
        self._call: tuple[str, str] | None = None
        self._scanner = ObjectScanner()
        self._calls = 0

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        return self._sort(self._reasoning.feed(text))

    def finish(self) -> list[ParsedDelta]:
        """Take the end of the text; a call that is whole but not closed is taken."""
        deltas = self._sort(self._reasoning.finish())
        if self._place is _Place.CLOSING:
            self._deliver(deltas)
        else:
            self._give_up(deltas)
            self._add_text(self._held, deltas)
        if self._blanks and not self._after_call:
            deltas.append(Text(text="".join(self._blanks)))
        return deltas

    def _sort(self, incoming: list[ParsedDelta]) -> list[ParsedDelta]:
        deltas: list[ParsedDelta] = []
        for delta in incoming:
            if isinstance(delta, Text):
                self._take(delta.text, deltas)
            else:
                deltas.append(delta)
        return deltas

    def _take(self, text: str, deltas: list[ParsedDelta]) -> None:
        text = self._held + text
        self._held = ""
        while text:
            match self._place:
                case _Place.TEXT:
                    text = self._take_text(text, deltas)
                case _Place.OPENED:
                    text = self._take_opened(text, deltas)
                case _Place.OBJECT:
                    text = self._take_object(text, deltas)
                case _Place.CLOSING:
                    text = self._take_closing(text, deltas)

    def _take_text(self, text: str, deltas: list[ParsedDelta]) -> str:
        before, marker, after = split_at_marker(text, (OPEN,))
        self._add_text(before, deltas)
        if not marker:
            self._held = after
            return ""
        self._open()
        return after

    def _take_opened(self, text: str, deltas: list[ParsedDelta]) -> str:
        """Skip blanks up to the object's first bracket."""
        body = text.lstrip()
        self._raw.append(text[: len(text) - len(body)])
        if not body:
            return ""
        if body[0] == "{":
            self._place = _Place.OBJECT
        else:
            self._give_up(deltas)
        return body

    def _take_object(self, text: str, deltas: list[ParsedDelta]) -> str:
        end = self._scanner.scan(text)
        piece = text if end < 0 else text[:end]
        self._raw.append(piece)
        self._object.append(piece)
        if end < 0:
            return ""
        self._call = _decode("".join(self._object))
        if self._call is None:
            self._give_up(deltas)
        else:
            self._place = _Place.CLOSING
        return text[end:]

    def _take_closing(self, text: str, deltas: list[ParsedDelta]) -> str:
        """Wait for the closing tag, or for the next call's opening one."""
        body = text.lstrip()
        self._raw.append(text[: len(text) - len(body)])
        for marker in (CLOSE, OPEN):
            if body.startswith(marker):
                self._deliver(deltas)
                if marker == OPEN:
                    self._open()
                return body[len(marker) :]
        if CLOSE.startswith(body) or OPEN.startswith(body):
            self._held = body
            return ""
        self._give_up(deltas)
        return body

    def _open(self) -> None:
        self._place = _Place.OPENED
        self._raw = [OPEN]
        self._object = []
        self._scanner = ObjectScanner()

    def _deliver(self, deltas: list[ParsedDelta]) -> None:
        call, self._call = self._call, None
        self._place = _Place.TEXT
        self._raw = []
        self._blanks.clear()
        self._after_call = True
        self._held = ""
        if call is not None:
            name, arguments = call
            deltas.append(CallDelta(index=self._calls, name=name, arguments=arguments))
            self._calls += 1

    def _give_up(self, deltas: list[ParsedDelta]) -> None:
        """Turn what was read since the marker back into text."""
        self._place = _Place.TEXT
        raw, self._raw = "".join(self._raw), []
        self._add_text(raw, deltas)

    def _add_text(self, text: str, deltas: list[ParsedDelta]) -> None:
        """Emit text; blanks wait, for those around a call go."""
        if self._after_call:
            text = text.lstrip()
        body = text.rstrip()
        if body:
            if self._after_call and self._has_text:
                self._blanks.append("\n")
            deltas.append(Text(text="".join((*self._blanks, body))))
            self._blanks.clear()
            self._after_call = False
            self._has_text = True
        if not self._after_call and len(body) < len(text):
            self._blanks.append(text[len(body) :])


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return HermesParser(options) if options.calls else PlainParser(options)


def _decode(text: str) -> tuple[str, str] | None:
    """Return name and arguments of a call, the arguments as the model wrote them."""
    try:
        call = msgspec.json.decode(text, type=_Call)
        arguments = bytes(call.arguments or call.parameters).decode("utf-8")
        if arguments.startswith('"'):
            arguments = msgspec.json.decode(arguments, type=str)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not call.name:
        return None
    return call.name, "{}" if arguments in {"", "null"} else arguments
