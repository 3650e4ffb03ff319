"""Rules for calls as a family of models writes them, from the family's frames."""

import re
from collections.abc import Sequence
from typing import Any

from clawd.engine.protocol import CallFrame
from clawd.engine.worker.lark import Rules, as_json, quote
from clawd.engine.worker.parameters import arguments_rule, frame_text

_NAME = re.compile(r'%(?:name|"name")%')

Tools = Sequence[tuple[str, Any]]


def calls_rule(rules: Rules, frame: CallFrame, tools: Tools, *, parallel: bool) -> str:
    """Return the rule of what an answer's calls are in a frame.

    Args:
        rules: the grammar.
        frame: how they are written.
        tools: names and schemas of those that may be called.
        parallel: several calls may stand in a row, where the frame has that.

    Raises:
        SchemaError: no grammar can be made of it.
    """
    call = _call(rules, frame, tools)
    row = call
    if parallel and frame.separator is not None:
        row = f"{call} ({frame_text(frame.separator)} {call})*"
    return rules.add(f"{frame_text(frame.opening)} {row} {frame_text(frame.closing)}".strip())


def markers(frame: CallFrame, names: Sequence[str]) -> list[bytes]:
    """Return what tells that a call of one of these tools has begun; nothing where it cannot."""
    if not _NAME.search(frame.marker):
        return [frame.marker.encode()] if frame.marker else []
    return [
        frame.marker.replace("%name%", name).replace('%"name"%', as_json(name)).encode()
        for name in names
    ]


def _call(rules: Rules, frame: CallFrame, tools: Tools) -> str:
    before, hole, rest = _split(frame.call)
    between, _, after = rest.partition("%arguments%")
    is_json = hole == '%"name"%'
    found = []
    for name, schema in tools:
        written = quote(as_json(name) if is_json else name)
        arguments = arguments_rule(rules, frame.parameters, schema)
        found.append(rules.add(f"{written} {frame_text(between)} {arguments}"))
    return rules.add(f"{frame_text(before)} {rules.choice(found)} {frame_text(after)}".strip())


def _split(call: str) -> tuple[str, str, str]:
    found = _NAME.search(call)
    assert found is not None, f"a frame without a name: {call!r}"
    return call[: found.start()], found[0], call[found.end() :]
