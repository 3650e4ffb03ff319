"""What a message brings back: the answer, the calls that were made, what it took. Pure."""

import json
from typing import Any, Literal

import msgspec
from typing_extensions import override

from clawd.wire.codec import mirror
from clawd.wire.events import Event, TextDelta, ToolFinished, ToolRequested, TurnFinished, TurnUsage

ApprovalWord = Literal["deny", "once", "conversation", "project", "always"]


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the model made.

    Attributes:
        name: the tool that was meant, as on its receipt.
        arguments: as the model gave them; under `raw` where they are no JSON object.
        status: allowed, denied or failed, as on its receipt.
        output: what the model was told.
        receipt_id: the receipt that proves it.
    """

    name: str
    arguments: dict[str, Any]
    status: Literal["allowed", "denied", "failed"]
    output: str
    receipt_id: str


class ChatResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn.

    Attributes:
        text: the answer.
        calls: what the model did on the way, in order.
        usage: tokens and speed.
        stop_reason: stop, length, cap (of rounds or of time), loop (no progress).
        denied: how many calls were denied.
        model: who answered; with `provider`.
    """

    text: str
    calls: tuple[ToolUse, ...]
    usage: TurnUsage
    stop_reason: Literal["stop", "length", "cap", "loop"]
    denied: int
    conversation_id: str
    turn_id: str
    provider: str
    model: str

    @override
    def __str__(self) -> str:
        return self.text


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation; `name` is the tool that a tool message comes from."""

    role: str
    content: str
    name: str = ""


class TurnRecord:
    """Takes the events of a turn and makes its result of them."""

    def __init__(self) -> None:
        self._requested: dict[str, ToolRequested] = {}
        self._calls: list[ToolUse] = []

    def take(self, event: Event) -> str:
        """Take an event; return the piece of the answer that it brings, or ""."""
        match event:
            case TextDelta():
                return event.text
            case ToolRequested():
                self._requested[event.call_id] = event
            case ToolFinished():
                self._calls.append(self._use(event))
            case _:
                pass
        return ""

    def result(self, finished: TurnFinished) -> ChatResult:
        """Return the result of a turn that has ended."""
        return mirror(ChatResult, finished, calls=tuple(self._calls))

    def _use(self, event: ToolFinished) -> ToolUse:
        requested = self._requested.get(event.call_id)
        return ToolUse(
            name=event.tool,
            arguments=_arguments(requested.arguments) if requested else {},
            status=event.status,
            output=event.output,
            receipt_id=event.receipt_id,
        )


def approval_word(answer: object) -> ApprovalWord:
    """Return the word for what an approval callback answered; only a clear yes is one."""
    words: tuple[ApprovalWord, ...] = ("once", "conversation", "project", "always")
    if answer is True:
        return "once"
    return next((word for word in words if word == answer), "deny")


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"raw": text}
    return value if isinstance(value, dict) else {"raw": text}
