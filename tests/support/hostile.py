"""Text that attacks a terminal, in every string field of everything that crosses the wire."""

import types
import typing
from typing import Any, Literal

import msgspec

from clawd.errors import ClawError
from clawd.receipts.record import Receipt
from clawd.wire import events
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    Event,
    QuestionAsked,
    ToolFinished,
    TurnFinished,
)
from clawd.wire.method import result_type
from clawd.wire.methods import METHODS
from tests.support.fake_daemon import Call, FakeDaemon

LONG = "L" * 5_000
ATTACKS = {
    "hyperlink": "\x1b]8;;http://evil.example\x07click\x1b]8;;\x07",
    "clipboard": "\x1b]52;c;ZXZpbA==\x1b\\",
    "title": "\x1b]0;owned\x07",
    "request status": '\x1bP$q"p\x1b\\',
    "application command": "\x1b_x\x1b\\\x1b^x\x1b\\",
    "clear screen": "\x1b[2J\x1b[H\x1b[8m",
    "colour": "\x1b[31mred\x1b[0m",
    "eight bits": "\x9b2J\x9d0;x\x9c\x90q\x9c",
    "bidi": "\u202etxt.exe\u202c\u2066a\u2069\u061c\u200e\u200f",
    "zero width": "a\u200bb\u200cc\u200dd\u2060e\ufeff\u00ad",
    "return": "gone\rFAKE",
    "backspace": "gone\x08\x08\x08\x08FAKE",
    "bell": "\x07\x00\x7f\x05",
    "other line ends": "a\x85b\u2028c\u2029d\x0b\x0c",
    "tags": "\U000e0001\U000e0041\U000e007f",
    "fillers": "\u3164\u115f\u1160\uffa0\u180e",
    "selectors": "x\ufe0f\ufe0e\ufe00\U000e0100",
    "marks": "z" + "\u0301" * 200 + "\u0489" * 50,
    "lines": "\n\n✓ file_write allowed\nApprove? [y/N] y\n",
    "long": LONG,
}
HOSTILE = "<" + "|".join(ATTACKS.values()) + ">"
# Numbers, ids that a protocol needs and words of the grammar stay what they are.
NO_CURSOR = {"cursor": ""}


def instance(kind: Any, name: str = "") -> Any:
    """Return a value of the annotation with hostile text wherever text may stand."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if name in NO_CURSOR:
        return NO_CURSOR[name]
    if name == "receipt":
        return msgspec.to_builtins(instance(Receipt)) | {HOSTILE: HOSTILE}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = typing.get_type_hints(kind)
        return kind(
            **{
                field: instance(fields[field], field)
                for field in kind.__struct_fields__
                if fields[field] is not Any or field != "value"
            }
        )
    if origin is Literal:
        return arguments[-1]
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(instance(each) for each in arguments)
    if origin in {tuple, list}:
        return origin((instance(arguments[0]),))
    if origin is dict and arguments[1] is not Any:
        return {HOSTILE: instance(arguments[1])}
    if origin is dict or kind is dict:
        return {HOSTILE: HOSTILE, "nested": {"list": [HOSTILE, 1, None]}}
    if origin in {types.UnionType, typing.Union}:
        return instance(next(each for each in arguments if each is not type(None)))
    plain = {str: HOSTILE, int: 7, float: 7.5, bool: True, bytes: b"x"}
    if kind in plain:
        return plain[kind]
    if kind is Any:
        return HOSTILE
    raise TypeError(f"{name}: no hostile value for {kind}; teach this function")


def hostile_events() -> list[Event]:
    """Return every event there is; questions are followed by what ends them."""
    kinds = [each for each in typing.get_args(Event) if each is not events.Unknown]
    made: list[Event] = []
    for kind in kinds:
        if kind in {TurnFinished, events.TurnFailed}:
            continue
        event = instance(kind)
        made.append(event)
        if kind is ApprovalRequested:
            made.append(ApprovalResolved(approval_id=HOSTILE, answer="deny", by=HOSTILE))
        if kind is QuestionAsked:
            made.append(instance(ToolFinished))
    return made


def hostile_daemon(daemon: FakeDaemon, *, fails: bool) -> None:
    """Let a daemon answer every method with hostile values, or with hostile errors."""

    def handler(name: str) -> Any:
        method = METHODS[name]

        def answer(call: Call) -> Any:
            if method.streams:
                call.emit(*hostile_events())
            if fails:
                raise ClawError(HOSTILE, hint=HOSTILE, data={HOSTILE: HOSTILE})
            return instance(result_type(method))

        return answer

    daemon.handlers = {name: handler(name) for name in METHODS}
