"""Tool calls of Mistral, Ministral, Magistral and Devstral, old and new.

    [TOOL_CALLS][{"name": "file_list", "arguments": {"path": "src"}, "id": "a1b2c3d4e"}]
    [TOOL_CALLS]file_list[CALL_ID]a1b2c3d4e[ARGS]{"path": "src"}
    [THINK]I should look.[/THINK][TOOL_CALLS]file_list[ARGS]{"path": "src"}

Old arrays are taken whole or not at all.
"""

import re

from clawd.engine.call_frame import CallFrame, json_list
from clawd.providers.toolcalls.base import THINK, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.json_calls import decode_calls, is_name, object_text
from clawd.providers.toolcalls.pull import Markers, Reading, Source
from clawd.providers.toolcalls.pull_parser import Dialect, PullParser

_NAME = re.compile(r"[\w.:/-]*")
_ARGS = "[ARGS]"
_CALL_ID = "[CALL_ID]"
_JSON = Markers("[", "{")
_AFTER_NAME = Markers(_CALL_ID, _ARGS, "{")
_ID_END = Markers(_ARGS, "\n")
_BRACE = Markers("{")

THOUGHTS = (("[THINK]", "[/THINK]"), THINK)
OPENINGS = ("[TOOL_CALLS]",)

_LISTED = json_list(OPENINGS[0], "")
_NAMED, _WITH_ID = (
    CallFrame(
        call=f"{OPENINGS[0]}%name%{call_id}{_ARGS}%arguments%",
        separator="",
        marker=OPENINGS[0],
    )
    for call_id in ("", f"{_CALL_ID}%id%")
)


def matches(template: str) -> bool:
    """Say whether a chat template asks for one of these formats."""
    return "[TOOL_CALLS]" in template


def frames(template: str) -> tuple[CallFrame, ...]:
    """Return how calls are written: a list in the old format, one by one in the new ones."""
    if _ARGS not in template:
        return (_LISTED,)
    return (_WITH_ID, _NAMED) if _CALL_ID in template else (_NAMED, _WITH_ID)


def make(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        Dialect(
            markers=OPENINGS,
            read=_read,
            ends=("</s>",),
            thoughts=THOUGHTS,
        ),
    )


def _read(source: Source, _marker: str) -> Reading[None]:
    yield from source.blanks()
    begun = yield from source.one_of(_JSON)
    if not begun:
        yield from _read_named(source)
        return
    for call in decode_calls((yield from source.json(begun, ""))):
        call_id = call.id if isinstance(call.id, str) else ""
        source.deliver(call.name, call.argument_text(), call_id)


def _read_named(source: Source) -> Reading[None]:
    name = yield from source.span(_NAME)
    begun = yield from source.one_of(_AFTER_NAME)
    call_id = ""
    if begun == _CALL_ID:
        call_id, begun = yield from source.until(_ID_END)
    if begun == _ARGS:
        yield from source.blanks()
        begun = yield from source.one_of(_BRACE)
    if begun != "{":
        return
    arguments = object_text((yield from source.json(begun, name)))
    if arguments and is_name(name):
        source.deliver(name, arguments, call_id.strip())
