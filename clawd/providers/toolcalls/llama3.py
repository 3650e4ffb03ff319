"""Tool calls of Llama 3.1 to 3.3: an object at the start of the answer, or after a tag.

    {"name": "file_list", "parameters": {"path": "src"}}
    <|python_tag|>{"name": "file_list", "parameters": {}}; {"name": "time", "parameters": {}}
    <|python_tag|>brave_search.call(query="clawd")

An object without the tag is a call only with both keys, and when its name is that of a tool.
"""

import re
from collections.abc import Callable
from typing import Any

from clawd.engine.call_frame import CallFrame, json_call
from clawd.providers.toolcalls.bare_values import Arguments
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.json_calls import JsonCall, decode, decode_calls
from clawd.providers.toolcalls.pull import Markers, Reading, Source
from clawd.providers.toolcalls.pull_parser import Dialect, PullParser

_TAG = "<|python_tag|>"
_BRACE = Markers("{")
_KEYS = Markers('"name"', '"parameters"', '"arguments"', '"type"')
_SEMICOLON = Markers(";")
_NEXT = Markers("{", _TAG)
_WORD = re.compile(r"[\w.-]*")
_SCALAR = re.compile(r"[\w.+-]*")
_PARENTHESIS = Markers("(")
_EQUALS = Markers("=")
_VALUE = Markers('"', "{", "[")
_STRING = Markers('"', "\\")
_AFTER_VALUE = Markers(",", ")")
_END = Markers(")")
_WORDS = frozenset({"null", "None", "True", "False"})

OPENINGS = (_TAG,)

_FRAME = json_call("name", "parameters")
_TYPED = json_call("name", "parameters", before='"type":%ws%"function",%ws%')
FRAMES = (
    CallFrame(call=_FRAME, separator="; ", marker='{"name": %"name"%', at_start=True),
    CallFrame(
        call=_TYPED,
        separator="; ",
        marker='{"type": "function", "name": %"name"%',
        at_start=True,
    ),
    CallFrame(call=_FRAME, opening=_TAG, separator="; ", marker=f"{_TAG}{{"),
)
"""What stands behind the tag and is no object, a built-in tool's call, is left free."""


def matches(template: str) -> bool:
    """Say whether a chat template asks for this format and for no other one."""
    others = ("<tool_call>", "<function=", "<TOOLCALL>", ">>>", "<｜tool▁calls▁begin｜>")
    return any(mark in template for mark in (_TAG, "Environment: ipython")) and not any(
        mark in template for mark in others
    )


def make(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        Dialect(
            markers=OPENINGS,
            read=_reader(options.schemas),
            starts=_BRACE.texts,
            ends=("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>", "<|eom|>", "<|eot|>"),
        ),
    )


def _reader(schemas: dict[str, dict[str, Any]]) -> Callable[[Source, str], Reading[None]]:
    def read(source: Source, marker: str) -> Reading[None]:
        """Read calls as long as one follows the other."""
        is_tagged = False
        while marker:
            if marker == _TAG:
                is_tagged = True
                yield from source.blanks()
                if not (yield from source.one_of(_BRACE)):
                    yield from _read_builtin(source, schemas)
                    return
            call = yield from _read_object(source)
            if call is None or not (is_tagged or _is_offered(call, schemas)):
                return
            source.deliver(call.name, call.argument_text())
            yield from source.blanks()
            yield from source.one_of(_SEMICOLON)
            yield from source.blanks()
            marker = yield from source.one_of(_NEXT)
            if source.is_at_end():
                source.claim()

    return read


def _is_offered(call: JsonCall, schemas: dict[str, dict[str, Any]]) -> bool:
    has_arguments = bool(call.arguments or call.parameters)
    return has_arguments and (not schemas or call.name in schemas)


def _read_object(source: Source) -> Reading[JsonCall | None]:
    """Read an object whose bracket is consumed, unless its first key is not one of a call."""
    blanks = yield from source.blanks()
    key = yield from source.one_of(_KEYS)
    if not key:
        return None
    calls = decode_calls((yield from source.json("{" + blanks + key, "")))
    return calls[0] if calls else None


def _read_builtin(source: Source, schemas: dict[str, dict[str, Any]]) -> Reading[None]:
    """Read `name.call(key="value", …)`."""
    method = yield from source.span(_WORD)
    opening = yield from source.one_of(_PARENTHESIS)
    name = method.removesuffix(".call")
    if not opening or name == method:
        return
    arguments = Arguments(schemas.get(name))
    yield from source.blanks()
    closing = yield from source.one_of(_END)
    while closing != ")":
        is_whole = yield from _read_keyword(source, arguments)
        yield from source.blanks()
        closing = yield from source.one_of(_AFTER_VALUE)
        if not is_whole or not closing:
            return
    source.deliver(name, arguments.text())


def _read_keyword(source: Source, arguments: Arguments) -> Reading[bool]:
    """Read `key=value`; say whether it is whole."""
    yield from source.blanks()
    key = yield from source.span(_WORD)
    equals = yield from source.one_of(_EQUALS)
    begun = yield from source.one_of(_VALUE)
    if begun:
        value = yield from (_read_string(source) if begun == '"' else source.json(begun))
        arguments.add_json(key, value)
    else:
        value = yield from source.span(_SCALAR)
        arguments.add(key, value)
    is_value = decode(value) is not None or (not begun and value in _WORDS)
    return bool(key and equals and is_value)


def _read_string(source: Source) -> Reading[str]:
    pieces = ['"']
    while True:
        piece, end = yield from source.until(_STRING)
        pieces += (piece, end)
        if end != "\\":
            return "".join(pieces)
        pieces.append((yield from source.char()))
