"""A provider's deltas folded into a whole answer."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec

from clawd.engine.protocol import TokenLogprob
from clawd.errors import ProviderError
from clawd.providers.base import (
    CallAssembler,
    CallDelta,
    Delta,
    Failed,
    Finished,
    StopReason,
    ToolCall,
)
from clawd.wire.events import HopUsage, ReasoningDelta, TextDelta


class ChatResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    final_text: str
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: HopUsage = HopUsage()
    stop_reason: StopReason = "stop"
    provider: str = ""
    model: str = ""
    raw: dict[str, Any] | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


async def collect(deltas: AsyncIterator[Delta]) -> ChatResponse:
    """Fold a stream into a whole response.

    Raises:
        Exception: the error of a `Failed` delta.
        ProviderError: the stream ended without `Finished` or `Failed`.
    """
    text: list[str] = []
    reasoning: list[str] = []
    calls = CallAssembler()
    async for delta in deltas:
        match delta:
            case TextDelta():
                text.append(delta.text)
            case ReasoningDelta():
                reasoning.append(delta.text)
            case CallDelta():
                calls.add(delta)
            case Failed():
                raise delta.error
            case Finished():
                return ChatResponse(
                    final_text="".join(text),
                    tool_calls=calls.calls(),
                    reasoning="".join(reasoning),
                    usage=delta.usage,
                    stop_reason=delta.reason,
                    provider=delta.provider,
                    model=delta.model,
                    raw=delta.raw,
                    logprobs=delta.logprobs,
                )
            case _:
                continue
    raise ProviderError("the stream ended before the answer was complete", kind="network")


def text_of(deltas: Iterable[Delta]) -> str:
    """Return the text of an answer."""
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def end_of(deltas: Sequence[Delta]) -> Finished:
    """Return how an answer ended, which did not fail."""
    assert isinstance(deltas[-1], Finished), deltas[-1]
    return deltas[-1]
