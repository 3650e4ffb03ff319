"""An answer in the words of /v1/messages: whole, or as a stream of blocks.

    event: message_start        the message without content, the tokens of the prompt
    event: content_block_start  {"index": 0, "content_block": {"type": "text", "text": ""}}
    event: content_block_delta  {"index": 0, "delta": {"type": "text_delta", "text": "…"}}
    event: content_block_stop   {"index": 0}
    event: message_delta        stop_reason, all counts
    event: message_stop

One block is open at a time. What comes for another call before the open one's arguments are whole
is held back until they are.
"""

import secrets
from collections.abc import Iterable
from typing import Any

from clawd.channels.http.arguments import is_whole, object_of
from clawd.channels.http.clawd_events import shown
from clawd.channels.http.errors import body_of, status_of
from clawd.channels.http.exchange import Answered, GatewayEvent, Generation
from clawd.channels.http.plain_json import on_one_line
from clawd.providers.base import (
    CallDelta,
    Evaluated,
    Failed,
    Finished,
    Reasoning,
    Text,
    Usage,
)

_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}
_Content = Text | Reasoning | CallDelta
_STARTS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class AnthropicAnswer:
    """Writes one answer. `estimate` stands for the prompt's tokens where nobody counts them."""

    content_type = "text/event-stream"
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(
        self, *, shows_thoughts: bool = True, shows_events: bool = False, estimate: int = 0
    ) -> None:
        self._id = f"msg_{secrets.token_hex(12)}"
        self._shows_thoughts = shows_thoughts
        self._shows_events = shows_events
        self._estimate = estimate
        self._model = ""
        self._evaluated: Evaluated | None = None
        self._is_started = False
        self._blocks = _Blocks()

    def begin(self, generation: Generation) -> Iterable[bytes]:
        """Return nothing yet: the first event tells the prompt's tokens, and they come later."""
        self._model = generation.model
        return ()

    def take(self, event: GatewayEvent) -> Iterable[bytes]:
        """Return what an event becomes."""
        match event:
            case Evaluated():
                self._evaluated = self._evaluated or event
                return [*self._started(), *self._told(event)]
            case Text() | Reasoning() | CallDelta():
                is_hidden = isinstance(event, Reasoning) and not self._shows_thoughts
                return [*self._started(), *([] if is_hidden else self._blocks.take(event))]
            case Finished():
                return [*self._started(), *self._blocks.end(), *self._ended(event)]
            case Failed():
                return self.broken(event.error)
            case _:
                return self._told(event)

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return the event of an error; nothing follows it."""
        return [event_bytes("error", body_of("anthropic", error, status_of(error)))]

    def whole(self, generation: Generation, answered: Answered) -> Any:
        """Return the message."""
        content: list[dict[str, Any]] = []
        if answered.reasoning and self._shows_thoughts:
            content.append(_STARTS["thinking"] | {"thinking": answered.reasoning})
        if answered.text:
            content.append({"type": "text", "text": answered.text})
        content += [
            {
                "type": "tool_use",
                "id": call.id,
                "name": call.name,
                "input": object_of(call.arguments),
            }
            for call in answered.calls
        ]
        self._model = generation.model
        self._evaluated = answered.evaluated
        reason = reason_of(answered.finished, has_calls=bool(answered.calls))
        return self._message(content, self._usage(answered.usage)) | reason

    def _started(self) -> list[bytes]:
        if self._is_started:
            return []
        self._is_started = True
        before = self._evaluated
        tokens, cached = (before.tokens, before.cached) if before else (self._estimate, 0)
        usage = _counts(tokens, cached, 0)
        return [event_bytes("message_start", {"message": self._message([], usage)})]

    def _ended(self, finished: Finished) -> list[bytes]:
        reason = reason_of(finished, has_calls=self._blocks.has_calls)
        usage = self._usage(finished.usage)
        return [
            event_bytes("message_delta", {"delta": reason, "usage": usage}),
            event_bytes("message_stop", {}),
        ]

    def _told(self, event: GatewayEvent) -> list[bytes]:
        if not self._shows_events:
            return []
        named = shown(event)
        return [event_bytes(*named)] if named else []

    def _message(self, content: list[Any], usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def _usage(self, usage: Usage) -> dict[str, int]:
        if usage.prompt_tokens:
            return _counts(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        before = self._evaluated
        tokens, cached = (before.tokens, before.cached) if before else (self._estimate, 0)
        return _counts(tokens, cached, usage.completion_tokens)


class _Blocks:
    """The blocks of a stream: which is open, and what waits for it to close."""

    def __init__(self) -> None:
        self.has_calls = False
        self._index = -1
        self._kind = ""
        self._call = -1
        self._arguments: list[str] = []
        self._closed_calls: set[int] = set()
        self._held: list[_Content] = []

    def take(self, event: _Content) -> list[bytes]:
        """Return the events of a piece of content."""
        if isinstance(event, CallDelta):
            if event.index in self._closed_calls:
                return []
        elif not event.text:
            return []
        if self._is_open(event):
            told = self._append(event)
        elif self._is_in_call():
            self._held.append(event)
            return []
        else:
            told = [*self._close(), *self._open(event), *self._append(event)]
        if self._held and not self._is_in_call():
            told += self._release()
        return told

    def end(self) -> list[bytes]:
        """Return what is left, and the end of the open block."""
        told = self._close()
        while self._held:
            told += [*self._release(), *self._close()]
        return told

    def _release(self) -> list[bytes]:
        held, self._held = self._held, []
        return [data for event in held for data in self.take(event)]

    def _is_in_call(self) -> bool:
        return self._kind == "tool_use" and not is_whole("".join(self._arguments))

    def _is_open(self, event: _Content) -> bool:
        match event:
            case Text():
                return self._kind == "text"
            case Reasoning():
                return self._kind == "thinking"
            case CallDelta():
                return self._kind == "tool_use" and self._call == event.index

    def _open(self, event: _Content) -> list[bytes]:
        self._index += 1
        if isinstance(event, CallDelta):
            self._kind, self._call, self._arguments = "tool_use", event.index, []
            self.has_calls = True
            call_id = event.id or f"toolu_{secrets.token_hex(12)}"
            start = {"type": "tool_use", "id": call_id, "name": event.name, "input": {}}
        else:
            self._kind = "text" if isinstance(event, Text) else "thinking"
            start = _STARTS[self._kind]
        return [self._event("content_block_start", content_block=start)]

    def _append(self, event: _Content) -> list[bytes]:
        match event:
            case Text():
                return [self._delta("text_delta", text=event.text)]
            case Reasoning():
                return [self._delta("thinking_delta", thinking=event.text)]
            case CallDelta():
                if not event.arguments:
                    return []
                self._arguments.append(event.arguments)
                return [self._delta("input_json_delta", partial_json=event.arguments)]

    def _close(self) -> list[bytes]:
        if not self._kind:
            return []
        told: list[bytes] = []
        if self._kind == "thinking":
            told.append(self._delta("signature_delta", signature=""))
        if self._kind == "tool_use":
            self._closed_calls.add(self._call)
            if not self._arguments:
                told.append(self._delta("input_json_delta", partial_json="{}"))
        self._kind = ""
        return [*told, self._event("content_block_stop")]

    def _delta(self, kind: str, **fields: str) -> bytes:
        return self._event("content_block_delta", delta={"type": kind} | fields)

    def _event(self, name: str, **fields: Any) -> bytes:
        return event_bytes(name, {"index": self._index} | fields)


def reason_of(finished: Finished, *, has_calls: bool) -> dict[str, Any]:
    """Return why an answer ended, in the words of the dialect."""
    reason = _REASONS.get(finished.reason, "end_turn")
    if has_calls and reason == "end_turn":
        reason = "tool_use"
    if reason == "end_turn" and finished.stopped_by:
        return {"stop_reason": "stop_sequence", "stop_sequence": finished.stopped_by}
    return {"stop_reason": reason, "stop_sequence": None}


def event_bytes(name: str, value: dict[str, Any]) -> bytes:
    """Return one event; its data has the name as its type."""
    data = on_one_line({"type": name} | value)
    return b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), data)


def _counts(tokens: int, cached: int, generated: int) -> dict[str, int]:
    return {
        "input_tokens": max(0, tokens - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": generated,
    }
