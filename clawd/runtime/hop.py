"""One hop: a request to a provider, its deltas as events, and what came of it."""

from collections.abc import AsyncIterator, Callable
from typing import assert_never

import msgspec

from clawd.errors import ProviderError
from clawd.providers.base import (
    CallAssembler,
    CallDelta,
    ChatRequest,
    Delta,
    Evaluated,
    Failed,
    Finished,
    Progress,
    Provider,
    Reasoning,
    Text,
    ToolCall,
)
from clawd.wire.events import Event, PromptEvaluated, PromptProgress, ReasoningDelta, TextDelta

Emit = Callable[[Event], None]


class HopResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a hop.

    Attributes:
        failure: why it broke off; text before it is in `text`.
        overlong: the answer was cut at the limit of bytes.
        evaluated: the prompt's evaluation, where the provider reports it.
    """

    text: str
    calls: tuple[ToolCall, ...]
    finished: Finished | None = None
    failure: Exception | None = None
    overlong: bool = False
    evaluated: Evaluated | None = None


async def run_hop(
    provider: Provider, request: ChatRequest, emit: Emit, *, limit_bytes: int
) -> HopResult:
    """Stream one answer. Failures of the provider are in the result, never raised."""
    collected = _Collected(emit, limit_bytes)
    deltas = provider.chat(request)
    try:
        return await collected.drain(deltas)
    finally:
        close = getattr(deltas, "aclose", None)
        if close is not None:
            await close()


class _Collected:
    def __init__(self, emit: Emit, limit_bytes: int) -> None:
        self._emit = emit
        self._room = limit_bytes
        self._text: list[str] = []
        self._calls = CallAssembler()
        self._evaluated: Evaluated | None = None

    async def drain(self, deltas: AsyncIterator[Delta]) -> HopResult:
        async for delta in deltas:
            result = self._take(delta)
            if result is not None:
                return result
        lost = ProviderError("the answer broke off without an end", kind="network")
        return self._result(failure=lost)

    def _take(self, delta: Delta) -> HopResult | None:
        match delta:
            case Text():
                text = self._within_limit(delta.text)
                self._text.append(text)
                self._emit(TextDelta(text=text))
            case Reasoning():
                self._emit(ReasoningDelta(text=self._within_limit(delta.text)))
            case CallDelta():
                self._calls.add(delta)
                self._within_limit(delta.arguments)
            case Progress():
                self._emit(
                    PromptProgress(
                        processed=delta.processed, cached=delta.cached, total=delta.total
                    )
                )
            case Evaluated():
                self._evaluated = delta
                self._emit(
                    PromptEvaluated(
                        tokens=delta.tokens,
                        cached=delta.cached,
                        elapsed_ms=delta.elapsed_ms,
                        context_used=delta.context_used,
                        context_size=delta.context_size,
                    )
                )
            case Failed():
                return self._result(failure=delta.error)
            case Finished():
                return self._result(finished=delta)
            case _:
                assert_never(delta)
        return self._result(overlong=True) if self._room < 0 else None

    def _within_limit(self, text: str) -> str:
        """Return what of the text still fits into the answer; less than all of it ends the hop."""
        data = text.encode(errors="replace")
        room, self._room = self._room, self._room - len(data)
        return text if self._room >= 0 else data[:room].decode(errors="ignore")

    def _result(
        self,
        *,
        finished: Finished | None = None,
        failure: Exception | None = None,
        overlong: bool = False,
    ) -> HopResult:
        return HopResult(
            text="".join(self._text),
            calls=() if failure or overlong else self._calls.calls(),
            finished=finished,
            failure=failure,
            overlong=overlong,
            evaluated=self._evaluated,
        )
