"""Anthropic's message events, or one whole message, to deltas. Tolerant of what servers do. Pure.

message_start       usage of the prompt
content_block_start {"index": 0, "content_block": {"type": "tool_use", "id": …, "name": …}}
content_block_delta {"index": 0, "delta": {"type": "input_json_delta", "partial_json": …}}
content_block_stop
message_delta       stop_reason, usage of the answer
message_stop
"""

import json
import logging
import secrets
import time
from typing import Any

import msgspec

from clawd.errors import ProviderError, ProviderErrorKind
from clawd.providers.base import (
    CallDelta,
    Delta,
    Finished,
    Reasoning,
    StopReason,
    Text,
    Usage,
)
from clawd.providers.sse import SseParser

_SHOWN_CHARS = 400
_REASONS: dict[str, StopReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_AUTH = frozenset({401, 403})
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

_log = logging.getLogger(__name__)


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    type: str = ""
    index: int | None = None
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    # of a whole message
    content: list[dict[str, Any]] | None = None
    model: str | None = None
    stop_reason: str | None = None


_decoder = msgspec.json.Decoder(_Event)


class _Block:
    """One block of the answer as it comes in; `call` is its number among the calls."""

    def __init__(self, kind: str, start: dict[str, Any], call: int) -> None:
        self.kind = kind
        self.start = start
        self.call = call
        self.id = _string(start.get("id")) or f"toolu_{secrets.token_hex(12)}"
        self.pieces: list[str] = []
        self.signature = _string(start.get("signature"))

    def raw(self) -> dict[str, Any] | None:
        """Return it as it goes back to the server; None for what cannot."""
        text = "".join(self.pieces)
        match self.kind:
            case "text":
                return {"type": "text", "text": text} if text.strip() else None
            case "thinking":
                return {"type": "thinking", "thinking": text, "signature": self.signature}
            case "tool_use" | "server_tool_use":
                return self.start | {"id": self.id, "input": _object(text)}
            case _:
                return self.start if self.kind else None


class AnthropicAnswer:
    """One answer on its way.

    Attributes:
        has_content: text, reasoning or a call came.
        has_reason: the server said why it ended.
        is_done: the server said that nothing follows.
        is_paused: the server wants to be asked to go on, with what it said so far.
    """

    def __init__(self, provider: str, model: str) -> None:
        self.has_content = False
        self.has_reason = False
        self.is_done = False
        self.is_paused = False
        self.missed_index = False
        self._provider = provider
        self._model = model
        self._blocks: dict[int, _Block] = {}
        self._newest = -1
        self._calls = 0
        self._reason = ""
        self._counts: dict[str, int] = {}
        self._before: list[dict[str, Any]] = []
        self._spent = Usage()
        self._first_at = 0.0

    def take(self, data: str) -> list[Delta]:
        """Take the data of one event, or a whole message.

        Raises:
            ProviderError: it is not JSON of this kind, or reports an error.
        """
        event = self._decode(data)
        if event.error is not None or event.type == "error":
            raise _reported(event.error)
        deltas = self._take(event)
        if deltas and not self.has_content:
            self.has_content = True
            self._first_at = time.monotonic()
        return deltas

    def finish(self) -> list[Delta]:
        """Take the end of the answer; no end is told of one that is paused.

        Raises:
            ProviderError: the server ended it without saying that it is complete, or refused.
        """
        if not (self.has_reason or self.is_done):
            raise ProviderError(
                "the connection ended before the answer was complete", kind="network"
            )
        if self._reason == "refusal":
            raise ProviderError(
                "the model refused to answer (stop reason refusal)",
                kind="invalid",
                hint="Ask in another way, or in a new conversation.",
            )
        self.is_paused = self._reason == "pause_turn"
        # A block that the server never ended may still hold the input of its call.
        late = [delta for index in sorted(self._blocks) for delta in self._stop(index)]
        return late if self.is_paused else [*late, self.ending()]

    def ending(self) -> Finished:
        """Return the end as it stands."""
        usage = self._usage()
        elapsed_s = time.monotonic() - self._first_at if self.has_content else 0.0
        return Finished(
            reason=_REASONS.get(self._reason) or ("tool_calls" if self._calls else "stop"),
            usage=usage,
            provider=self._provider,
            model=self._model,
            tokens_per_s=usage.completion_tokens / elapsed_s if elapsed_s > 0 else 0.0,
            raw={"stop_reason": self._reason, "model": self._model, "usage": dict(self._counts)},
        )

    def blocks(self) -> list[dict[str, Any]]:
        """Return the blocks of the answer, as they may go back to the server."""
        own = [self._blocks[index].raw() for index in sorted(self._blocks)]
        return [*self._before, *(block for block in own if block is not None)]

    def go_on(self) -> None:
        """Take what follows as the rest of the same answer."""
        self._before = self.blocks()
        self._spent, self._counts = self._usage(), {}
        self._blocks, self._newest, self._reason = {}, -1, ""
        self.has_reason = self.is_done = self.is_paused = False

    # --- events

    def _take(self, event: _Event) -> list[Delta]:
        match event.type:
            case "message_start":
                self._note(event.message or {})
            case "content_block_start":
                return self._start(self._index(event, is_new=True), event.content_block or {})
            case "content_block_delta":
                return self._piece(self._index(event, is_new=False), event.delta or {})
            case "content_block_stop":
                return self._stop(self._index(event, is_new=False))
            case "message_delta":
                self._note((event.delta or {}) | {"usage": event.usage})
            case "message_stop":
                self.is_done = True
            case "message":
                return self._whole(event)
            case _:  # ping, and what is newer
                pass
        return []

    def _whole(self, event: _Event) -> list[Delta]:
        deltas: list[Delta] = []
        for index, block in enumerate(event.content or []):
            deltas += [*self._start(index, block), *self._stop(index)]
        self._note({"model": event.model, "stop_reason": event.stop_reason, "usage": event.usage})
        return deltas

    def _index(self, event: _Event, *, is_new: bool) -> int:
        """Return the block's index; a missing one is the next, or the newest."""
        if event.index is None:
            if not self.missed_index:
                self.missed_index = True
                _log.info("provider %s sends blocks without index", self._provider)
            return self._newest + 1 if is_new else max(self._newest, 0)
        return event.index

    def _start(self, index: int, start: dict[str, Any]) -> list[Delta]:
        if index in self._blocks:
            return []
        kind = _string(start.get("type"))
        block = _Block(kind, start, self._calls)
        self._blocks[index] = block
        self._newest = index
        if kind == "tool_use":
            self._calls += 1
            name = _string(start.get("name"))
            return [CallDelta(index=block.call, id=block.id, name=name)]
        return self._add(block, _string(start.get("text")) or _string(start.get("thinking")))

    def _piece(self, index: int, delta: dict[str, Any]) -> list[Delta]:
        kind = _string(delta.get("type"))
        if index not in self._blocks:
            kinds = {"text_delta": "text", "thinking_delta": "thinking"}
            if kind not in kinds:
                return []  # arguments of a call that nobody named: there is none to make
            self._start(index, {"type": kinds[kind]})
        block = self._blocks[index]
        match kind:
            case "text_delta":
                return self._add(block, _string(delta.get("text")))
            case "thinking_delta":
                return self._add(block, _string(delta.get("thinking")))
            case "input_json_delta":
                return self._add(block, _string(delta.get("partial_json")))
            case "signature_delta":
                block.signature += _string(delta.get("signature"))
            case _:  # citations, and what is newer
                pass
        return []

    def _add(self, block: _Block, text: str) -> list[Delta]:
        if not text:
            return []
        block.pieces.append(text)
        match block.kind:
            case "text":
                return [Text(text=text)]
            case "thinking":
                return [Reasoning(text=text)]
            case "tool_use":
                return [CallDelta(index=block.call, arguments=text)]
            case _:
                return []

    def _stop(self, index: int) -> list[Delta]:
        """End a block; the input of a call may have come with its start."""
        block = self._blocks.get(index)
        if block is None or block.pieces or block.kind not in {"tool_use", "server_tool_use"}:
            return []
        given = block.start.get("input")
        return self._add(block, json.dumps(given, ensure_ascii=False)) if given else []

    def _note(self, facts: dict[str, Any]) -> None:
        self._model = _string(facts.get("model")) or self._model
        if reason := _string(facts.get("stop_reason")):
            self._reason, self.has_reason = reason, True
        usage = facts.get("usage")
        for name, value in (usage if isinstance(usage, dict) else {}).items():
            # Counts are sums so far; one side may say 0 for what the other counted.
            if type(value) is int and value > 0:
                self._counts[name] = max(value, self._counts.get(name, 0))

    def _usage(self) -> Usage:
        counts, before = self._counts, self._spent
        return Usage(
            prompt_tokens=before.prompt_tokens + sum(counts.get(name, 0) for name in _INPUTS),
            cached_tokens=before.cached_tokens + counts.get("cache_read_input_tokens", 0),
            completion_tokens=before.completion_tokens + counts.get("output_tokens", 0),
        )

    def _decode(self, data: str) -> _Event:
        try:
            return _decoder.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise ProviderError(
                f"the server sent what is no message event ({error}): {data[:_SHOWN_CHARS]}",
                kind="invalid",
                hint="Check base_url: it is the address before /v1/messages.",
            ) from error


def refusal_in(first: bytes) -> ProviderError | None:
    """Return the error that a stream begins with, as when the server is overloaded; else None."""
    if not first.startswith(b"event: error"):
        return None
    try:
        events = SseParser().feed(first)
        AnthropicAnswer("", "").take(events[0].data if events else "{}")
    except ProviderError as error:
        return error
    return None


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"unreadable": text}
    return value if isinstance(value, dict) else {"unreadable": text}


def _reported(error: object) -> ProviderError:
    """Make an error of an `error` event, which comes with status 200 once a stream has begun."""
    message, kind = str(error), ""
    if isinstance(error, dict):
        message, kind = str(error.get("message") or error), _string(error.get("type"))
    status = _STATUSES.get(kind, 0)
    what: ProviderErrorKind = "auth" if status in _AUTH else "http"
    told = f"{kind}: {message}" if kind else message
    return ProviderError(f"the server reported: {told[:_SHOWN_CHARS]}", kind=what, status=status)
