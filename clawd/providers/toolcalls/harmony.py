"""Tool calls of gpt-oss: the harmony format, messages on channels.

    <|channel|>analysis<|message|>I should look.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.file_list <|constrain|>json
    <|message|>{"path": "src"}<|call|>
    <|start|>assistant<|channel|>final<|message|>There it is.<|return|>

What is on the analysis channel is reasoning, what is sent to a recipient is a call, all else is
text. The recipient stands behind the role or behind the channel. A prompt ends with the role, so
the answer begins within a header.
"""

import re
from enum import Enum, auto

from clawd.engine.protocol import CallFrame
from clawd.providers.toolcalls.base import (
    ParsedDelta,
    ParserOptions,
    object_arguments,
    split_at_marker,
)
from clawd.providers.toolcalls.pull_parser import SURELY_MARKER, AnswerDeltas
from clawd.providers.toolcalls.scanners import GOES_ON, JsonBody

CHANNEL = "<|channel|>"

_START = "<|start|>"
_CONSTRAIN = "<|constrain|>"
_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_IN_HEADER = (CHANNEL, _CONSTRAIN, _MESSAGE, _START, *_ENDS)
_IN_MESSAGE = (_START, *_ENDS)
_AFTER_CALL = (_START, CHANNEL, *_ENDS)

_ROLE = "assistant"
_REASONING = "analysis"
_NOBODY = frozenset({"assistant", "user", "all"})
_NAMESPACE = "functions."
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_WORD = re.compile(r"\w+")

THOUGHTS = ((f"{CHANNEL}{_REASONING}{_MESSAGE}", "<|end|>"),)

_FORMAT = f"%? %%?{_CONSTRAIN}json%%? json%{_MESSAGE}%arguments%"
_TO = f"to={_NAMESPACE}"
_BY_ROLE = f"{_TO}%name%{CHANNEL}commentary{_FORMAT}"
FRAMES = (
    CallFrame(
        call=f"{CHANNEL}commentary {_TO}%name%{_FORMAT}", marker=f"{CHANNEL}commentary {_TO}"
    ),
    CallFrame(call=f"{_START}assistant {_BY_ROLE}", marker=f"{_START}assistant {_TO}"),
    CallFrame(call=_BY_ROLE, marker=_TO, at_start=True),
)
"""The token that ends a call ends the answer as well, so it is no part of the text."""

_MAX_HEADER = 512
_PART = 2048


class _Place(Enum):
    HEADER = auto()
    MESSAGE = auto()
    CALL = auto()
    OBJECT = auto()
    CLOSING = auto()


class HarmonyParser:
    """Streams text and reasoning; a call is delivered when its object is whole and closed."""

    def __init__(self, options: ParserOptions) -> None:
        self._options = options
        self._out = AnswerDeltas(goes_on=options.has_begun)
        self._held = ""
        self._place = _Place.MESSAGE if options.starts_in_reasoning else _Place.HEADER
        self._raw: list[str] = []
        self._kind = ""
        self._section = ""
        self._channel = ""
        self._recipient = ""
        self._has_role = False
        self._is_reasoning = options.starts_in_reasoning
        self._arguments = ""
        self._object: list[str] = []
        self._scanner = JsonBody("{")

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        for at in range(0, len(text), _PART):
            self._take(text[at : at + _PART])
        return self._out.take()

    def finish(self, *, is_cut: bool = False) -> list[ParsedDelta]:
        """Take the end of the text; a call whose object is whole is taken."""
        match self._place:
            case _Place.HEADER:
                self._finish_header(is_cut=is_cut)
            case _Place.MESSAGE:
                self._add(self._held)
            case _Place.CLOSING:
                self._deliver()
            case _Place.CALL | _Place.OBJECT if is_cut:
                pass
            case _Place.CALL | _Place.OBJECT:
                self._raw.append(self._held)
                self._give_up()
        return self._out.finish()

    def _take(self, text: str) -> None:
        text = self._held + text
        self._held = ""
        while text:
            match self._place:
                case _Place.HEADER:
                    text = self._take_header(text)
                case _Place.MESSAGE:
                    text = self._take_message(text)
                case _Place.CALL:
                    text = self._take_call(text)
                case _Place.OBJECT:
                    text = self._take_object(text)
                case _Place.CLOSING:
                    text = self._take_closing(text)

    def _take_header(self, text: str) -> str:
        before, marker, after = split_at_marker(text, _IN_HEADER)
        self._raw.append(before)
        self._section += before
        if self._is_plain():
            self._is_reasoning = False
            self._place = _Place.MESSAGE
            self._give_up()
            return marker + after
        if not marker:
            self._held = after
            return ""
        self._end_section()
        if marker in _IN_MESSAGE:
            self._begin_header()
        self._raw.append(marker)
        self._has_role = marker not in _ENDS and (marker == _START or self._has_role)
        if marker == _MESSAGE:
            self._begin_message()
        elif marker in {CHANNEL, _CONSTRAIN}:
            self._kind = marker
        return after

    def _take_message(self, text: str) -> str:
        before, marker, after = split_at_marker(text, _IN_MESSAGE)
        self._add(before)
        if not marker:
            self._held = after
            return ""
        self._begin_header()
        return self._resume(marker, after)

    def _take_call(self, text: str) -> str:
        """Skip blanks; a message that ends at once is a call without arguments."""
        body = text.lstrip()
        self._raw.append(text[: len(text) - len(body)])
        if not body:
            return ""
        if any(marker.startswith(body) and marker != body for marker in _ENDS):
            self._held = body
            return ""
        if body.startswith(_ENDS):
            self._arguments = "{}"
            self._place = _Place.CLOSING
        else:
            self._scanner = JsonBody("{")
            self._object = []
            self._place = _Place.OBJECT
        return body

    def _take_object(self, text: str) -> str:
        end = self._scanner.scan(text)
        piece = text if end == GOES_ON else text[:end]
        self._raw.append(piece)
        self._object.append(piece)
        if end == GOES_ON:
            return ""
        data = "".join(self._object).encode("utf-8", "surrogatepass")
        arguments = None if self._scanner.is_rejected else object_arguments(data)
        if arguments is None:
            self._give_up()
        else:
            self._arguments = arguments
            self._place = _Place.CLOSING
        return text[end:]

    def _take_closing(self, text: str) -> str:
        body = text.lstrip()
        self._raw.append(text[: len(text) - len(body)])
        for marker in _AFTER_CALL:
            if body.startswith(marker):
                self._deliver()
                return self._resume(marker, body[len(marker) :])
        if any(marker.startswith(body) for marker in _AFTER_CALL):
            self._held = body
            return ""
        self._give_up()
        return body

    def _resume(self, marker: str, after: str) -> str:
        """Return what a new header reads: the marker that ended a message may be its first."""
        return after if marker in _ENDS else marker + after

    def _begin_header(self) -> None:
        self._place = _Place.HEADER
        self._raw = []
        self._kind = self._section = ""
        self._channel = self._recipient = ""
        self._has_role = False

    def _end_section(self) -> None:
        """Read what stands between two markers of a header."""
        if self._kind == CHANNEL:
            word = _WORD.search(self._section)
            self._channel = word[0] if word else ""
        found = _RECIPIENT.search(self._section)
        if found and found[1] not in _NOBODY:
            self._recipient = found[1].removeprefix(_NAMESPACE)
        self._section = ""

    def _is_plain(self) -> bool:
        """Return whether this is no header but text, from a model that forgot its format."""
        if len(self._section) > _MAX_HEADER:
            return True
        rest = self._section.strip()
        if self._kind or _ROLE.startswith(rest):
            return False
        rest = rest.removeprefix(_ROLE).lstrip()
        return not "to=".startswith(rest[:3]) or len(rest.split()) > 1

    def _begin_message(self) -> None:
        self._out.part()
        self._is_reasoning = self._channel == _REASONING and not self._recipient
        self._place = _Place.MESSAGE
        if self._recipient:
            self._is_reasoning = False
            if self._options.calls:
                self._place = _Place.CALL
            else:
                self._give_up()

    def _deliver(self) -> None:
        self._held = ""
        self._out.add_call(self._recipient, self._arguments)
        self._begin_header()

    def _give_up(self) -> None:
        """Turn what was read of this message back into text; what follows is text as well."""
        self._place = _Place.MESSAGE
        raw, self._raw = "".join(self._raw), []
        self._add(raw)

    def _finish_header(self, *, is_cut: bool) -> None:
        """A header that was cut is no text, unless it was none or had begun a call."""
        if is_cut and len(self._held) >= SURELY_MARKER:
            self._held = ""
        self._section += self._held
        if is_cut and self._section.strip().removeprefix(_ROLE).lstrip().startswith("to="):
            return
        self._end_section()
        if (self._recipient and not is_cut) or not (self._kind or self._has_role):
            self._out.add_text("".join((*self._raw, self._held)))

    def _add(self, text: str) -> None:
        if self._is_reasoning:
            self._out.add_reasoning(text)
        else:
            self._out.add_text(text)


def make(options: ParserOptions) -> HarmonyParser:
    """Return the parser of one answer."""
    return HarmonyParser(options)
