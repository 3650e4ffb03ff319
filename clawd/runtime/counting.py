"""How many tokens a request takes: as its model said of the last one, as it counts, or about.

What a model reports of its last prompt is the truth; only what came since is counted beside it.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from clawd.providers.base import ChatRequest, Message, Provider
from clawd.providers.ledger import PartTokens, TokenCounter, estimated
from clawd.runtime.compression import TEMPLATE_TOKENS

PATIENCE_S = 5.0
MAX_SCALE = 4.0
MIN_SCALE = 0.5


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a request.

    Attributes:
        fixed: of the system prompt and the tools.
        each: of every message.
        scale: what the counts were multiplied with, so that they agree with the model's report.
    """

    fixed: int
    each: tuple[int, ...]
    scale: float = 1.0

    @property
    def total(self) -> int:
        """All of it."""
        return self.fixed + sum(self.each)


async def count_request(provider: Provider, request: ChatRequest, *, known_tokens: int) -> Count:
    """Return the tokens of a request.

    Args:
        provider: who will answer it.
        request: what will be sent.
        known_tokens: of the last prompt and its answer, where this request goes on from there; 0
            for unknown.
    """
    counted = await count_parts(provider, request)
    fixed, each = _sorted(counted, len(request.messages))
    total = fixed + sum(each)
    if not known_tokens or not total:
        return Count(fixed=fixed, each=tuple(each))
    reported = known_tokens + sum(each[since_answer(request.messages) :])
    wanted = reported if counted.is_estimate else max(reported, total)
    scale = min(max(wanted / total, MIN_SCALE), MAX_SCALE)
    scaled = tuple(round(count * scale) for count in each)
    # What cannot be the messages' is the template's, and stays whatever is left out.
    return Count(fixed=max(round(fixed * scale), wanted - sum(scaled)), each=scaled, scale=scale)


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
