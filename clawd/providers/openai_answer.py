"""OpenAI's chunks, or one whole completion, to deltas. Tolerant of what servers do. Pure."""

import logging
import secrets
import time
from typing import Any

import msgspec

from clawd.errors import ProviderError
from clawd.providers.base import (
    CallDelta,
    Delta,
    Finished,
    Reasoning,
    StopReason,
    Text,
    Usage,
)

DONE = "[DONE]"
_SHOWN_CHARS = 400

_log = logging.getLogger(__name__)


class _Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallPiece(msgspec.Struct, frozen=True, kw_only=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    content: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, frozen=True, kw_only=True):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    model: str | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


class _OpenCall:
    """A call whose pieces come in; it is opened for the reader once its name is known."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.waiting: list[str] = []
        self.is_open = False


class OpenAIAnswer:
    """One answer on its way.

    `has_content` says whether text, reasoning or a call came, `has_reason` whether the server said
    why it ended, `is_done` whether it said that nothing follows.
    """

    def __init__(self, provider: str, model: str) -> None:
        self.has_content = False
        self.has_reason = False
        self.is_done = False
        self.missed_index = False
        self._provider = provider
        self._model = model
        self._calls: dict[int, _OpenCall] = {}
        self._unindexed = 0
        self._reason = ""
        self._usage = Usage()
        self._last = ""
        self._first_at = 0.0

    def take(self, data: str) -> list[Delta]:
        """Take the data of one event, or a whole completion.

        Raises:
            ProviderError: it is not JSON of this kind, or reports an error.
        """
        if data.strip() == DONE:
            self.is_done = True
            return []
        chunk = self._decode(data)
        if chunk.error is not None:
            raise _reported(chunk.error)
        self._last = data
        self._model = chunk.model or self._model
        self._usage = _usage(chunk.usage) if chunk.usage else self._usage
        deltas: list[Delta] = []
        for choice in (chunk.choices or [])[:1]:
            if message := choice.delta or choice.message:
                deltas += self._take_message(message)
            elif choice.text:
                deltas.append(Text(text=choice.text))  # of a raw prompt
            if choice.finish_reason:
                self.has_reason = True
                self._reason = choice.finish_reason
        if deltas and not self.has_content:
            self.has_content = True
            self._first_at = time.monotonic()
        return deltas

    def finish(self) -> list[Delta]:
        """Take the end of the answer.

        Raises:
            ProviderError: the server ended it without saying that it is complete.
        """
        if not (self.has_reason or self.is_done):
            raise ProviderError(
                "the connection ended before the answer was complete", kind="network"
            )
        deltas: list[Delta] = []
        for index, call in self._calls.items():
            deltas += self._open(index, call, is_last=True)
        elapsed_s = time.monotonic() - self._first_at if self.has_content else 0.0
        speed = self._usage.completion_tokens / elapsed_s if elapsed_s > 0 else 0.0
        finished = Finished(
            reason=self._stop_reason(),
            usage=self._usage,
            provider=self._provider,
            model=self._model,
            tokens_per_s=speed,
            raw=msgspec.json.decode(self._last) if self._last else None,
        )
        return [*deltas, finished]

    def _decode(self, data: str) -> _Chunk:
        try:
            return _decoder.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise ProviderError(
                f"the server sent what is no chat completion ({error}): {data[:_SHOWN_CHARS]}",
                kind="invalid",
                hint="Check base_url: it usually ends with /v1.",
            ) from error

    def _take_message(self, message: _Message) -> list[Delta]:
        deltas: list[Delta] = []
        if reasoning := message.reasoning_content or message.reasoning:
            deltas.append(Reasoning(text=reasoning))
        if text := _text(message.content):
            deltas.append(Text(text=text))
        for piece in message.tool_calls or []:
            deltas += self._take_piece(piece)
        return deltas

    def _take_piece(self, piece: _CallPiece) -> list[Delta]:
        index = self._index(piece)
        call = self._calls.setdefault(index, _OpenCall())
        function = piece.function or _Function()
        call.id = call.id or piece.id or ""
        call.name = call.name or function.name or ""
        arguments = function.arguments
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode("utf-8")
        if arguments:
            call.waiting.append(arguments)
        return self._open(index, call) if call.name else []

    def _index(self, piece: _CallPiece) -> int:
        """Return the call's index; a missing one is 0, or the next for another whole call."""
        if piece.index is not None:
            return piece.index
        if not self.missed_index:
            self.missed_index = True
            _log.info("provider %s sends tool calls without index", self._provider)
        known = self._calls.get(self._unindexed)
        if known is not None and piece.id and known.id and piece.id != known.id:
            self._unindexed = max(self._calls) + 1
        return self._unindexed

    def _open(self, index: int, call: _OpenCall, *, is_last: bool = False) -> list[Delta]:
        """Emit what waits of a call; id and name once."""
        arguments = "".join(call.waiting)
        call.waiting.clear()
        if call.is_open:
            return [CallDelta(index=index, arguments=arguments)] if arguments else []
        call.is_open = bool(call.name) or is_last
        call.id = call.id or f"call_{secrets.token_hex(6)}"
        return [CallDelta(index=index, id=call.id, name=call.name, arguments=arguments)]

    def _stop_reason(self) -> StopReason:
        if self._reason == "length":
            return "length"
        return "tool_calls" if self._calls else "stop"


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        texts = [part.get("text") for part in content if part.get("type") == "text"]
        return "".join(text for text in texts if isinstance(text, str))
    return content or ""


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(cached),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _reported(error: object) -> ProviderError:
    """Make an error of `{"error": …}`, which comes with status 200 once a stream has begun."""
    message, code = str(error), None
    if isinstance(error, dict):
        message, code = str(error.get("message") or error), error.get("code")
    return ProviderError(
        f"the server reported: {message[:_SHOWN_CHARS]}",
        kind="http",
        status=code if isinstance(code, int) else 0,
    )
