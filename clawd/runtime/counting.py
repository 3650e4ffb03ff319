"""How many tokens a request takes: as its model said of the last one, as it counts, or about.

What a model reports of its last prompt is the truth; only what came since is counted beside it.
"""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from clawd.providers.base import ChatRequest, Message, Provider
from clawd.providers.ledger import ContextTeller, PartTokens, TokenCounter, estimated
from clawd.runtime.compression import TEMPLATE_TOKENS

PATIENCE_S = 5.0
MAX_MODELS = 256
MAX_SCALE = 4.0
MIN_SCALE = 0.01
# A report below that share of what was counted says that the template leaves things out.
WHOLE = 0.75

_T = TypeVar("_T")


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """How counts of parts become tokens of a prompt: times `scale`, and `extra` for the whole.

    A template adds to what it is given, or leaves parts of it out.
    """

    scale: float = 1.0
    extra: int = 0


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a request.

    Attributes:
        fixed: of the system prompt and the tools.
        each: of every message.
        measure: how they were made to agree with the model's report; None where there was none.
    """

    fixed: int = 0
    each: tuple[int, ...] = ()
    measure: Measure | None = None

    @property
    def total(self) -> int:
        """All of it."""
        return self.fixed + sum(self.each)

    @property
    def scale(self) -> float:
        """What the counts were multiplied with."""
        return self.measure.scale if self.measure is not None else 1.0


class ModelBook:
    """What models have said of their contexts and prompts, by provider and model."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str], int] = {}
        self._measures: dict[tuple[str, str], Measure] = {}

    def size(self, provider: Provider, model: str) -> int:
        """Return the size of a model's context as far as it is known, 0 for unknown."""
        told = provider.context_size_of(model) if isinstance(provider, ContextTeller) else 0
        noted = self._sizes.get((provider.name(), model), 0)
        return told or noted or provider.capabilities().context_size

    def note_size(self, provider: Provider, model: str, size: int) -> None:
        """Remember how large a model said that its context is."""
        _remember(self._sizes, (provider.name(), model), size)

    async def count(self, provider: Provider, request: ChatRequest, known_tokens: int) -> Count:
        """Return the tokens of a request; what a model reports of one helps to count the next."""
        key = (provider.name(), request.model)
        count = await count_request(
            provider, request, known_tokens=known_tokens, measure=self._measures.get(key)
        )
        if count.measure is not None:
            _remember(self._measures, key, count.measure)
        return count


async def count_request(
    provider: Provider,
    request: ChatRequest,
    *,
    known_tokens: int,
    measure: Measure | None = None,
) -> Count:
    """Return the tokens of a request.

    Args:
        provider: who will answer it.
        request: what will be sent.
        known_tokens: of the last prompt and its answer, where this request goes on from there; 0
            for unknown.
        measure: of an earlier request to the model, for when they are unknown.
    """
    counted = await count_parts(provider, request)
    fixed, each = _sorted(counted, len(request.messages))
    if known_tokens and fixed + sum(each):
        measure = _measure(request, counted, known_tokens)
    if measure is None:
        return Count(fixed=fixed, each=tuple(each))
    return Count(
        fixed=round(fixed * measure.scale) + measure.extra,
        each=tuple(round(count * measure.scale) for count in each),
        measure=measure,
    )


def _measure(request: ChatRequest, counted: PartTokens, known_tokens: int) -> Measure:
    """Return how the counts of a request agree with what the model said of its beginning."""
    fixed, each = _sorted(counted, len(request.messages))
    total = fixed + sum(each)
    place = since_answer(request.messages)
    wanted = known_tokens + sum(each[place:])
    before = fixed + sum(each[: max(place - 1, 0)])
    if not counted.is_estimate and known_tokens >= WHOLE * before:
        wanted = max(wanted, total)  # what was known may lack the last answer
    scale = min(max(wanted / total, MIN_SCALE), MAX_SCALE)
    # What cannot be the messages' is the template's, and stays whatever is left out.
    return Measure(scale=scale, extra=max(wanted - round(total * scale), 0))


async def count_messages(
    provider: Provider, messages: Sequence[Message], *, model: str, scale: float
) -> list[int]:
    """Return the tokens of messages, each by itself."""
    request = ChatRequest(messages=tuple(messages), model=model)
    _, each = _sorted(await count_parts(provider, request), len(messages))
    return [round(count * scale) for count in each]


async def count_parts(
    provider: Provider, request: ChatRequest, *, patience_s: float = PATIENCE_S
) -> PartTokens:
    """Return the tokens of the parts of a request; an estimate where nobody counts in time."""
    if not isinstance(provider, TokenCounter):
        return estimated(request)
    try:
        async with asyncio.timeout(patience_s):
            return await provider.count_parts(request)
    except TimeoutError:
        return estimated(request)


def surely_fits(request: ChatRequest, known_tokens: int, limit: int) -> bool:
    """Tell whether a request has at most so many tokens even if each new byte were one.

    Most requests do: then nobody has to count before the model may begin. The last answer counts
    as new, because what was known may not have it.
    """
    if not known_tokens:
        return False
    new = request.messages[max(since_answer(request.messages) - 1, 0) :]
    return known_tokens + sum(len(msgspec.json.encode(each)) for each in new) <= limit


def since_answer(messages: Sequence[Message]) -> int:
    """Return where the messages begin that came after the last answer."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "assistant":
            return index + 1
    return 0


def _sorted(counted: PartTokens, messages: int) -> tuple[int, list[int]]:
    """Return the tokens of system prompt and tools, and those of each message."""
    fixed, each = 0, [TEMPLATE_TOKENS] * messages
    for part, count in zip(counted.parts, counted.counts, strict=True):
        if part.kind in {"system", "tools"}:
            fixed += count
        else:
            number = int(part.name.split()[1])  # `message 7 (tool result of file_read)`
            each[number - 1] += count
    return fixed, each


def _remember(book: dict[tuple[str, str], _T], key: tuple[str, str], value: _T) -> None:
    if key in book or len(book) < MAX_MODELS:
        book[key] = value
