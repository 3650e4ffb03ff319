"""A model with a context of its own size that counts what it is sent, and summarises."""

from collections.abc import AsyncIterator, Callable

import msgspec
from typing_extensions import override

from clawd.providers.base import CallDelta, Capabilities, ChatRequest, Delta, Finished, Message
from clawd.providers.ledger import PartTokens, parts_of
from clawd.runtime.transcript import SUMMARISER, TITLER
from clawd.wire.events import HopUsage, PromptEvaluated, TextDelta
from tests.runtime.models import Hop, PlannedModel

PER_MESSAGE = 5


class CountingModel(PlannedModel):
    """Answers by `answer`, its own summaries by `summaries` (the last one again and again).

    Attributes:
        asked: requests for answers, in order; `requests` has all of them.
        sizes: tokens of each of `asked`.
    """

    def __init__(
        self, context_size: int, answer: Callable[[ChatRequest], Hop], *summaries: Hop
    ) -> None:
        super().__init__([], name="mock")
        self.context_size = context_size
        self.answer = answer
        self.summaries = summaries
        self.asked: list[ChatRequest] = []
        self.sizes: list[int] = []
        self.side: list[ChatRequest] = []

    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(context_size=self.context_size)

    async def count_parts(self, request: ChatRequest) -> PartTokens:
        parts = parts_of(request)
        return PartTokens(parts=parts, counts=tuple(len(p.text.split()) for p in parts))

    @override
    async def chat(self, request: ChatRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        if request.system in {SUMMARISER, TITLER} or request.keeps_tools:
            hop = self.summaries[min(len(self.side), len(self.summaries) - 1)]
            self.side.append(request)
        else:
            self.asked.append(request)
            self.sizes.append(tokens_of(request))
            hop = self.answer(request)
        async for delta in self._play(request, hop):
            yield delta

    async def _play(self, request: ChatRequest, hop: Hop) -> AsyncIterator[Delta]:
        size = tokens_of(request)
        yield PromptEvaluated(
            tokens=size, cached=0, elapsed_ms=1, context_used=size, context_size=self.context_size
        )
        said = 0
        async for delta in self.steps(hop):
            said += len(delta.text.split()) if isinstance(delta, TextDelta) else 0
            said += len(delta.arguments.split()) if isinstance(delta, CallDelta) else 0
            if isinstance(delta, Finished):
                usage = HopUsage(prompt_tokens=size, completion_tokens=said + PER_MESSAGE)
                delta = msgspec.structs.replace(delta, usage=usage)
            yield delta


class LocalModel(CountingModel):
    """The same on this machine, where what was read stays in memory.

    `reads` says whether its prompts hold more of tools than names.
    """

    reads = True

    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(context_size=self.context_size, local=True)

    def reads_tools(self, model: str) -> bool:
        del model
        return True

    def reads_schemas(self, model: str) -> bool:
        del model
        return self.reads


def tokens_of(request: ChatRequest) -> int:
    """Return what the model counts: words, and what its template puts around each message."""
    words = sum(len(part.text.split()) for part in parts_of(request))
    return words + PER_MESSAGE * len(request.messages)


def is_whole(messages: tuple[Message, ...]) -> bool:
    """Return whether every call is followed by its results, and every result has its call."""
    waiting: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return False
            waiting.discard(message.tool_call_id)
        elif waiting:
            return False
        waiting |= {call.id for call in message.tool_calls}
    return not waiting
