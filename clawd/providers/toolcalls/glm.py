"""Tool calls of GLM 4.5 to 4.7, with line breaks between the tags or without.

<tool_call>file_list
<arg_key>path</arg_key>
<arg_value>src</arg_value>
</tool_call>
"""

import re
from collections.abc import Callable
from typing import Any

from clawd.engine.call_frame import CallFrame, ParameterForm, StringForm
from clawd.providers.toolcalls.bare_values import Arguments
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.json_calls import is_name
from clawd.providers.toolcalls.pull import Markers, Reading, Source
from clawd.providers.toolcalls.pull_parser import Dialect, PullParser

_CALL = "<tool_call>"
_KEY = "<arg_key>"
_NAME = re.compile(r"[\w.:/-]*")
_FOLLOWING = Markers(_KEY, "</tool_call>", _CALL)
_KEY_END = Markers("</arg_key>", "\n")
_VALUE = Markers("<arg_value>")
_VALUE_END = Markers("</arg_value>")

OPENINGS = (_CALL,)

_PAIR = f"{_KEY}%key%</arg_key>%ws%<arg_value>"
FRAME = CallFrame(
    call=f"{_CALL}%name%%ws%%arguments%%ws%</tool_call>",
    separator="%ws%",
    marker=_CALL,
    parameters=ParameterForm(
        key=_PAIR, end="</arg_value>", strings=(StringForm(key=_PAIR, stop="</arg_value>"),)
    ),
)


def matches(template: str) -> bool:
    """Say whether a chat template asks for this format."""
    return "<arg_key>" in template and "<tool_call>" in template


def make(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        Dialect(
            markers=OPENINGS,
            read=_reader(options.schemas),
            ends=("<|observation|>", "<|user|>", "<|endoftext|>"),
        ),
    )


def _reader(schemas: dict[str, dict[str, Any]]) -> Callable[[Source, str], Reading[None]]:
    def read(source: Source, marker: str) -> Reading[None]:
        """Read a call, and those that follow one whose closing tag is missing."""
        while marker == _CALL:
            yield from source.blanks()
            name = yield from source.span(_NAME)
            if not is_name(name):
                return
            yield from source.blanks()
            marker = yield from source.one_of(_FOLLOWING)
            arguments = Arguments(schemas.get(name))
            while marker == _KEY:
                marker = yield from _read_argument(source, arguments)
            if marker:
                source.deliver(name, arguments.text())

    return read


def _read_argument(source: Source, arguments: Arguments) -> Reading[str]:
    """Read a key and its value; return the tag that follows, "" when the call is malformed."""
    key, end = yield from source.until(_KEY_END)
    yield from source.blanks()
    opening = yield from source.one_of(_VALUE)
    if not key.strip() or end == "\n" or not opening:
        return ""
    pieces: list[str] = []
    while True:
        piece, end = yield from source.until(_VALUE_END)
        pieces.append(piece)
        if not end:
            return ""
        blanks = yield from source.blanks()
        marker = yield from source.one_of(_FOLLOWING)
        if marker:
            arguments.add(key.strip(), "".join(pieces))
            return marker
        if source.is_at_end():
            return ""
        pieces += (end, blanks)
