"""The attempts of one hop: which answers are none, how they are asked for again, and how often.

    only thoughts         reasoning, no text, no calls        asked again twice; then the reasoning
                                                              of the last attempt is the answer
    empty, or broken off  nothing came; the end never came    asked again twice, where wanted
    unreadable            text that was to be a call          asked once to write it again

A discarded attempt leaves nothing: `HopReset` voids what was shown of it, and the same request goes
out again. A request for repair extends the one before by the text and a remark; the hop after it
begins again at what both extend.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from clawd.errors import ProviderError
from clawd.providers.base import ChatRequest
from clawd.runtime.hop import Emit, HopResult
from clawd.runtime.meter import TurnMeter
from clawd.runtime.unreadable import asking_to_repair, was_to_be_a_call
from clawd.wire.events import HopReset, Notice, TextDelta

Flaw = Literal["only thoughts", "incomplete", "unreadable"]

RETRIES: dict[Flaw, int] = {"only thoughts": 2, "incomplete": 2, "unreadable": 1}

_REASONS: dict[Flaw, str] = {
    "only thoughts": "the model only thought and said nothing",
    "incomplete": "the answer was empty or broke off",
    "unreadable": "a tool call could not be read",
}

Ask = Callable[[ChatRequest], Awaitable[HopResult]]


class Attempts:
    """Asks until an answer is one, or the attempts are used up.

    Args:
        ask: makes one attempt; failures of the provider are in its result.
        emit: takes events.
        meter: learns which answers are in no later prompt.
        retries_incomplete: whether empty and broken-off answers are asked for again.

    Attributes:
        broken_off: the newest text of an attempt that broke off; nothing of it is shown any more.
    """

    def __init__(
        self, ask: Ask, emit: Emit, meter: TurnMeter, *, retries_incomplete: bool = True
    ) -> None:
        self._ask = ask
        self._emit = emit
        self._meter = meter
        self._retries_incomplete = retries_incomplete
        self._spent: Counter[Flaw] = Counter()
        self._repaired = ""
        self.broken_off = ""

    async def run(self, request: ChatRequest) -> HopResult:
        """Return the answer to a request, or the last attempt at one."""
        asked, known = request, 0
        while True:
            result = await self._ask(asked)
            flaw = flaw_of(result, request)
            if flaw is None or not self._may_retry(flaw, result):
                break
            self._spent[flaw] += 1
            self._emit(HopReset(reason=_REASONS[flaw]))
            if flaw == "incomplete" and not was_to_be_a_call(result.text, request):
                self.broken_off = result.text if result.text.strip() else self.broken_off
            if flaw == "unreadable":
                self._repaired = result.text
                known = self._meter.last_hop.prompt_tokens
                asked = asking_to_repair(request, result.text)
            else:
                self._meter.forget_answer()
        if asked is not request:
            self._meter.known_tokens = known
        settled = self._settled(result, flaw, request)
        return msgspec.structs.replace(settled, repaired=self._repaired)

    def _may_retry(self, flaw: Flaw, result: HopResult) -> bool:
        if result.is_cut and (flaw == "only thoughts" or result.overlong):
            return False  # the next attempt would run into the same limit
        if flaw == "incomplete" and not self._retries_incomplete:
            return False
        return self._spent[flaw] < RETRIES[flaw]

    def _settled(self, result: HopResult, flaw: Flaw | None, request: ChatRequest) -> HopResult:
        """Return what is to be made of the last attempt."""
        if result.failure is not None:
            return self._failed(result, request)
        if flaw == "unreadable":
            self._emit(HopReset(reason=_REASONS[flaw]))
            return msgspec.structs.replace(result, text="", unreadable=result.text)
        if flaw == "only thoughts":
            self._emit(
                Notice(level="warning", text="the model only thought; its thoughts are the answer")
            )
            thoughts = self._saying(result, result.reasoning.strip())
            return msgspec.structs.replace(thoughts, is_promoted=True)
        if flaw == "incomplete":
            self._emit(Notice(level="warning", text="the model gave an empty answer"))
        return result

    def _failed(self, result: HopResult, request: ChatRequest) -> HopResult:
        """Return a failure with the newest text that came before one, but never half a call."""
        if result.text.strip() and not was_to_be_a_call(result.text, request):
            return result
        if not self.broken_off:
            return msgspec.structs.replace(result, text="")
        if result.text:
            self._emit(HopReset(reason=_REASONS["incomplete"]))
        return self._saying(result, self.broken_off)

    def _saying(self, result: HopResult, text: str) -> HopResult:
        self._emit(TextDelta(text=text))
        return msgspec.structs.replace(result, text=text)


def flaw_of(result: HopResult, request: ChatRequest) -> Flaw | None:
    """Return why an attempt is no answer; None where it is one, or is a failure of another kind."""
    if result.failure is not None:
        return "incomplete" if _is_broken_off(result) else None
    if result.calls or _is_cancelled(result):
        return None
    if was_to_be_a_call(result.text, request):
        return "unreadable"
    if result.text.strip():
        return None
    if result.reasoning.strip():
        return "only thoughts"
    return None if result.is_cut else "incomplete"


def _is_broken_off(result: HopResult) -> bool:
    """Say whether the connection was lost in mid-answer; before it, providers try again."""
    is_lost = isinstance(result.failure, ProviderError) and result.failure.kind == "network"
    return is_lost and result.has_begun


def _is_cancelled(result: HopResult) -> bool:
    return result.finished is not None and result.finished.reason == "cancelled"
