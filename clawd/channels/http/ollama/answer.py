"""An answer in the words of Ollama's /api/chat and /api/generate: whole, or a JSON value a line.

    {"model": "…", "created_at": "…", "message": {"role": "assistant", "content": "He"},
     "done": false}
    {"model": "…", "created_at": "…", "message": {…}, "done": true, "done_reason": "stop",
     "total_duration": 1, "load_duration": 1, "prompt_eval_count": 1, "prompt_eval_duration": 1,
     "eval_count": 1, "eval_duration": 1}

Durations are nanoseconds. /api/generate has `response` (and `thinking`) where /api/chat has
`message`. Calls come whole, in one line.
"""

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

from clawd.channels.http.arguments import object_of
from clawd.channels.http.errors import body_of, status_of
from clawd.channels.http.exchange import Answered, GatewayEvent, Generation
from clawd.channels.http.plain_json import on_one_line
from clawd.providers.base import (
    CallAssembler,
    CallDelta,
    Evaluated,
    Failed,
    Finished,
    Reasoning,
    Text,
    ToolCall,
)

Form = Literal["chat", "generate"]

_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000


class OllamaAnswer:
    """Writes one answer; its clock starts when it is made."""

    content_type = "application/x-ndjson"
    # Clients of this dialect read every line as a piece of the answer.
    ping = b""

    def __init__(self, form: Form, *, shows_thoughts: bool = True) -> None:
        self._form = form
        self._shows_thoughts = shows_thoughts
        self._started = time.monotonic()
        self._model = ""
        self._calls = CallAssembler()
        self._evaluated: Evaluated | None = None

    def begin(self, generation: Generation) -> Iterable[bytes]:
        """Return nothing: a stream begins with its first piece."""
        self._model = generation.model
        return ()

    def take(self, event: GatewayEvent) -> Iterable[bytes]:
        """Return what an event becomes."""
        match event:
            case Text():
                return self._piece(text=event.text)
            case Reasoning():
                return self._piece(thoughts=event.text) if self._shows_thoughts else ()
            case CallDelta():
                self._calls.add(event)
            case Evaluated():
                self._evaluated = self._evaluated or event
            case Finished():
                calls = self._calls.calls()
                told = self._piece(calls=calls) if calls else []
                return [*told, _line(self._value() | self._end(event))]
            case Failed():
                return self.broken(event.error)
            case _:
                pass
        return ()

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return the line of an error; nothing follows it."""
        return [_line(body_of("ollama", error, status_of(error)))]

    def whole(self, generation: Generation, answered: Answered) -> Any:
        """Return the value of a whole answer."""
        self._model = generation.model
        self._evaluated = answered.evaluated
        thoughts = answered.reasoning if self._shows_thoughts else ""
        value = self._value(answered.text, thoughts, answered.calls)
        return value | self._end(answered.finished)

    def loaded(self, model: str, reason: Literal["load", "unload"]) -> dict[str, Any]:
        """Return the value that tells of a model that was loaded or unloaded, without an answer."""
        self._model = model
        return self._value() | {"done": True, "done_reason": reason}

    def _piece(
        self, text: str = "", thoughts: str = "", calls: tuple[ToolCall, ...] = ()
    ) -> list[bytes]:
        return [_line(self._value(text, thoughts, calls))]

    def _value(
        self, text: str = "", thoughts: str = "", calls: tuple[ToolCall, ...] = ()
    ) -> dict[str, Any]:
        head = {"model": self._model, "created_at": _now()}
        thinking = {"thinking": thoughts} if thoughts else {}
        if self._form == "generate":
            made = {"tool_calls": _told(calls)} if calls else {}
            return head | {"response": text} | thinking | made | {"done": False}
        message: dict[str, Any] = {"role": "assistant", "content": text} | thinking
        if calls:
            message["tool_calls"] = _told(calls)
        return head | {"message": message, "done": False}

    def _end(self, finished: Finished) -> dict[str, Any]:
        usage, before = finished.usage, self._evaluated
        total = int((time.monotonic() - self._started) * _NS_PER_S)
        prompt = int(before.elapsed_ms * _NS_PER_MS) if before else 0
        speed = finished.tokens_per_s
        generating = int(usage.completion_tokens / speed * _NS_PER_S) if speed > 0 else 0
        prompt_tokens = usage.prompt_tokens or (before.tokens if before else 0)
        return {
            "done": True,
            "done_reason": "length" if finished.reason == "length" else "stop",
            "total_duration": total,
            # What is left: waiting for a place, and for the model to be loaded.
            "load_duration": max(0, total - prompt - generating),
            "prompt_eval_count": prompt_tokens,
            "prompt_eval_duration": prompt,
            "eval_count": usage.completion_tokens,
            "eval_duration": generating,
        }


def _told(calls: tuple[ToolCall, ...]) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "function": {
                "index": number,
                "name": call.name,
                "arguments": object_of(call.arguments),
            },
        }
        for number, call in enumerate(calls)
    ]


def _line(value: dict[str, Any]) -> bytes:
    return on_one_line(value) + b"\n"


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
