"""What all of OpenAI's endpoints say alike: ids, server-sent events, usage, timings and so on."""

import secrets
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec

from clawd import __version__
from clawd.channels.http.errors import body_of, status_of
from clawd.channels.http.model_api import Answered
from clawd.engine.protocol import TokenLogprob, TopLogprob
from clawd.providers.base import Finished, ScoredText
from clawd.wire.events import (
    HopUsage,
    Notice,
    PromptEvaluated,
    PromptProgress,
    TextDelta,
    ToolFinished,
    ToolRequested,
)

STREAM_TYPE = "text/event-stream"
PING = b":\n\n"
DONE = b"data: [DONE]\n\n"
FINGERPRINT = f"clawd-{__version__}"

# Readers that split text into lines by Unicode's rules would end an event in its middle.
_LINE_ENDS = {b"\xc2\x85": b"\\u0085", b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029"}


def new_id(prefix: str) -> str:
    """Return an id that was never given before."""
    return prefix + secrets.token_hex(12)


def sse(value: Any, name: str = "") -> bytes:
    """Return one server-sent event with a JSON value; named where the dialect names them."""
    data = msgspec.json.encode(value)
    for raw, escaped in _LINE_ENDS.items():
        data = data.replace(raw, escaped)
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + data + b"\n\n"


def error_value(error: Exception) -> dict[str, Any]:
    """Return the envelope that tells an error in the middle of a stream."""
    return body_of("openai", error, status_of(error))


def beside(conversation_id: str, answered: Answered) -> dict[str, Any] | None:
    """Return what a whole answer says of clawd's own doing; None where it did nothing."""
    calls: dict[str, dict[str, Any]] = {}
    notices: list[str] = []
    for event in answered.side:
        match event:
            case ToolRequested():
                calls[event.call_id] = {
                    "id": event.call_id,
                    "name": event.tool,
                    "arguments": event.arguments,
                }
            case ToolFinished():
                calls.setdefault(event.call_id, {"id": event.call_id, "name": event.tool}).update(
                    status=event.status, receipt_id=event.receipt_id, duration_ms=event.duration_ms
                )
            case Notice():
                notices.append(event.text)
            case _:
                pass
    if not (calls or notices or conversation_id):
        return None
    told: dict[str, Any] = {"conversation_id": conversation_id or None}
    return told | {"tool_calls": list(calls.values()), "notices": notices}


def usage_value(usages: Sequence[HopUsage], *, choices: int) -> dict[str, Any]:
    """Return the tokens of a chat or completion, of all its choices together.

    Args:
        usages: of each choice, those of one prompt side by side.
        choices: how many each prompt has; it is counted once for all of them.
    """
    asked = usages[::choices]
    prompt = sum(usage.prompt_tokens for usage in asked)
    completion = sum(usage.completion_tokens for usage in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in asked)},
    }


def timings_value(evaluated: PromptEvaluated | None, finished: Finished) -> dict[str, Any] | None:
    """Return how long prompt and answer took, as llama.cpp tells it; None where nobody knows."""
    if evaluated is None and finished.usage.tokens_per_s <= 0:
        return None
    usage = finished.usage
    told: dict[str, Any] = {}
    if evaluated is not None:
        count = max(0, evaluated.tokens - evaluated.cached)
        told |= {"cache_n": evaluated.cached}
        told |= _pace("prompt", count, evaluated.elapsed_ms)
    if finished.usage.tokens_per_s > 0:
        elapsed_ms = usage.completion_tokens / finished.usage.tokens_per_s * 1000
        told |= _pace("predicted", usage.completion_tokens, elapsed_ms)
    if usage.drafted_tokens:
        told |= {"draft_n": usage.drafted_tokens, "draft_n_accepted": usage.accepted_tokens}
    return told


def logprobs_of(text: TextDelta) -> tuple[TokenLogprob, ...]:
    """Return the tokens that came with a text."""
    return text.logprobs if isinstance(text, ScoredText) else ()


def logprob_value(token: TokenLogprob) -> dict[str, Any]:
    """Return a token of a chat answer with its log probability and the likeliest instead."""
    return _likely(token) | {"top_logprobs": [_likely(one) for one in token.top]}


def of_content(tokens: tuple[TokenLogprob, ...], text: str) -> tuple[TokenLogprob, ...]:
    """Return the tokens that the text is made of; all of them where it cannot be found in them.

    The engine tells of every token it made: reasoning, markers of it and the end are among them.
    A text that a stop cut within a token ends with that token.
    """
    wanted = text.encode()
    if not wanted:
        return ()
    ends = list(accumulate(len(token.piece) for token in tokens))
    borders = {0, *ends}
    joined = b"".join(token.piece for token in tokens)
    at = last = joined.rfind(wanted)
    while at >= 0 and not {at, at + len(wanted)} <= borders:
        at = joined.rfind(wanted, 0, at + len(wanted) - 1)
    at = last if at < 0 else at
    if at < 0:
        return tokens
    return tuple(
        token
        for token, end in zip(tokens, ends, strict=True)
        if end > at and end - len(token.piece) < at + len(wanted)
    )


def _likely(token: TopLogprob) -> dict[str, Any]:
    # Certainty of nought is told as a number that JSON has.
    logprob = min(0.0, max(-1e4, token.logprob))
    return {"token": token.text, "logprob": logprob, "bytes": list(token.piece)}


def _pace(name: str, count: int, elapsed_ms: float) -> dict[str, Any]:
    return {
        f"{name}_n": count,
        f"{name}_ms": elapsed_ms,
        f"{name}_per_token_ms": elapsed_ms / count if count else 0.0,
        f"{name}_per_second": count / elapsed_ms * 1000 if elapsed_ms > 0 else 0.0,
    }


# How the evaluation of a prompt is told: from what is cached to the whole, never backward.


class ProgressTold:
    """What was told of the evaluation so far; an agent's later prompts are told anew."""

    def __init__(self) -> None:
        self._last: PromptProgress | None = None
        self._started = time.monotonic()

    def take(self, event: PromptProgress) -> list[PromptProgress]:
        """Return the steps up to an event; the first has what was cached, and no more."""
        told: list[PromptProgress] = []
        if self._last is None and event.processed > event.cached:
            told.append(
                PromptProgress(processed=event.cached, cached=event.cached, total=event.total)
            )
        if self._last is None or event.processed > self._last.processed:
            told.append(event)
        if told:
            self._last = told[-1]
        return told

    def finish(self, event: PromptEvaluated) -> list[PromptProgress]:
        """Return the steps that are missing up to the whole prompt; the next begins anew."""
        whole = PromptProgress(processed=event.tokens, cached=event.cached, total=event.tokens)
        told = self.take(whole)
        self._last = None
        return told

    def value(self, event: PromptProgress) -> dict[str, Any]:
        """Return a step in llama.cpp's words."""
        return {
            "total": event.total,
            "cache": event.cached,
            "processed": event.processed,
            "time_ms": round((time.monotonic() - self._started) * 1000, 3),
        }
