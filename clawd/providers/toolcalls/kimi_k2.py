"""Tool calls of Kimi K2. A call's id is part of the text, and the model expects it back.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.file_list:0
    <|tool_call_argument_begin|>{"path": "src"}<|tool_call_end|><|tool_calls_section_end|>

(in one line). The section's tags may be missing, and what follows the last object.
"""

import re

from clawd.engine.call_frame import CallFrame
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.json_calls import is_name, read_object
from clawd.providers.toolcalls.pull import Markers, Reading, Source
from clawd.providers.toolcalls.pull_parser import Dialect, PullParser

_SECTIONS = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
_SECTION_ENDS = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_CALL = "<|tool_call_begin|>"
_CALL_END = "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_HEADER_END = Markers(_ARGUMENTS, _CALL_END, *_SECTION_ENDS)
_OPENING = Markers(_CALL, *_SECTION_ENDS)
_CLOSING = Markers(_CALL_END, _CALL, *_SECTION_ENDS)
_INDEX = re.compile(r":\d+\Z")

OPENINGS = (*_SECTIONS, _CALL)

_FRAME = f"{_CALL}functions.%name%:%digits%{_ARGUMENTS}%arguments%{_CALL_END}"
FRAMES = (
    CallFrame(
        call=_FRAME,
        opening=_SECTIONS[0],
        separator="",
        closing=_SECTION_ENDS[0],
        marker=_SECTIONS[0],
    ),
    CallFrame(call=_FRAME, separator="", marker=_CALL),
)


def matches(template: str) -> bool:
    """Say whether a chat template asks for this format."""
    return "<|tool_calls_section_begin|>" in template or "<|im_middle|>" in template


def make(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        Dialect(markers=OPENINGS, read=_read_section, ends=("<|im_end|>", "[EOS]", "[EOT]")),
    )


def _read_section(source: Source, marker: str) -> Reading[None]:
    if marker != _CALL:
        yield from source.blanks()
        marker = yield from source.one_of(_OPENING)
    while marker == _CALL:
        marker = yield from _read_call(source)
    if marker in _SECTION_ENDS:
        source.claim()


def _read_call(source: Source) -> Reading[str]:
    """Read a call and what closes it; return the marker after that, "" for another text."""
    header, end = yield from source.until(_HEADER_END)
    call_id = header.strip()
    name = _INDEX.sub("", call_id.removeprefix("functions."))
    if end != _ARGUMENTS or not is_name(name):
        return ""
    arguments = yield from read_object(source)
    yield from source.blanks()
    closing = yield from source.one_of(_CLOSING)
    if not arguments or not (closing or source.ends_in(_CLOSING)):
        return ""
    source.deliver(name, arguments, call_id)
    if closing != _CALL_END:
        return closing
    yield from source.blanks()
    closing = yield from source.one_of(_OPENING)
    if not closing and source.ends_in(_OPENING):
        source.claim()
    return closing
