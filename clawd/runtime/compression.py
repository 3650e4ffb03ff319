"""When a conversation is compressed, what of it stays, and how many tokens its requests take.

A conversation is a list of messages. What stays is its newest end, which begins with a user
message wherever one fits. Where it has to begin inside an exchange, that exchange's user message
stays as well (the anchor), so that no model reads on without the words that it works for. A cut
never falls between a call and its results.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence

import msgspec

from clawd.config.sections import CompressionSection
from clawd.memory.checkpoints import Checkpoint, ModelView
from clawd.providers.base import ChatRequest, Message, Provider
from clawd.providers.ledger import PartTokens, TokenCounter, estimated

TEMPLATE_TOKENS = 8  # what a chat template puts around a message, about
LARGEST_PERCENT = 95
MIN_ROOM_TOKENS = 512
MIN_SHOWN_TOKENS = 128  # of a message that is cut, at least
CUT_RESULT_TOKENS = 64  # a shortened result keeps that much, at least
ROOM_TO_GROW = 0.7


class RequestLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a request would be sent with.

    Attributes:
        messages: how many there are, those included that are not stored yet.
        tokens: of all of it.
        fixed_tokens: of these, the system prompt and the tools.
        pending_tokens: of these, what is not stored yet.
        context_tokens: the size of the context, 0 for unknown.
    """

    messages: int
    tokens: int
    fixed_tokens: int = 0
    pending_tokens: int = 0
    context_tokens: int = 0


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """How much may stay: messages (`least` where they fit, `most` at most) and tokens.

    `room_tokens` is None where nobody knows the context's size.
    """

    least: int
    most: int
    room_tokens: int | None = None
    has_pending: bool = False


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What stays: the messages from `start` on, the anchor's, and results cut to so many tokens.

    `anchor` is the index of a user message before `start`, None for none.
    """

    start: int
    anchor: int | None = None
    cuts: dict[int, int] = {}

    @property
    def replaced(self) -> int:
        """How many messages do not stay."""
        return self.start - (self.anchor is not None)


def budget_tokens(settings: CompressionSection, load: RequestLoad) -> int | None:
    """Return how many tokens a request may have; None where the context's size is unknown.

    It is the configured share, or more where the system prompt and the tools fill most of that.
    """
    size = load.context_tokens
    if not size:
        return None
    wanted = load.fixed_tokens + load.pending_tokens + MIN_ROOM_TOKENS
    return max(
        size * settings.at_context_percent // 100, min(wanted, size * LARGEST_PERCENT // 100)
    )


def is_too_long(settings: CompressionSection, load: RequestLoad) -> bool:
    """Return whether a request would have more tokens than it may."""
    budget = budget_tokens(settings, load)
    return budget is not None and load.tokens > budget


def can_never_fit(load: RequestLoad) -> bool:
    """Return whether what cannot be left out is larger than the context by itself."""
    return 0 < load.context_tokens < load.fixed_tokens + load.pending_tokens


def is_due(settings: CompressionSection, load: RequestLoad, *, uncompressed: int = 0) -> bool:
    """Return whether a conversation is to be compressed before a request is sent.

    `uncompressed` messages came back by undoing: they do not count.
    """
    too_many = load.messages >= settings.at_messages + uncompressed
    return too_many or is_too_long(settings, load)


def room_for_kept(
    settings: CompressionSection, load: RequestLoad, *, summary_tokens: int
) -> int | None:
    """Return how many tokens may stay beside the summary, with room to grow."""
    budget = budget_tokens(settings, load)
    if budget is None:
        return None
    around = load.fixed_tokens + load.pending_tokens + summary_tokens + 4 * TEMPLATE_TOKENS
    return max(int((budget - around) * ROOM_TO_GROW), 0)


class MessageRoom(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens a message may have: at most, and of one that is cut."""

    largest: int
    wanted: int


def room_for_message(
    settings: CompressionSection, context_tokens: int, *, fixed_tokens: int
) -> MessageRoom:
    """Return how long a new message may be where nothing but the system prompt stands before it.

    A message that is cut leaves room to read on in the rest of it.
    """
    largest = context_tokens * LARGEST_PERCENT // 100 - fixed_tokens - MIN_ROOM_TOKENS
    free = context_tokens * settings.at_context_percent // 100 - fixed_tokens
    return MessageRoom(
        largest=max(largest, 0), wanted=max(min(free // 2, largest), MIN_SHOWN_TOKENS)
    )


def summary_room(settings: CompressionSection, load: RequestLoad) -> int:
    """Return how long a summary may be, in tokens: a quarter of what is not fixed, at most."""
    budget = budget_tokens(settings, load)
    if budget is None:
        return settings.summary_tokens
    free = budget - load.fixed_tokens - load.pending_tokens
    return max(min(settings.summary_tokens, free // 4), 48)


def choose(messages: Sequence[Message], tokens: Sequence[int], wish: Wish) -> Selection | None:
    """Return what stays of the stored messages; None where nothing can go.

    Args:
        messages: the stored ones, oldest first; a result whose call is gone may be among them.
        tokens: of each message.
        wish: how much may stay. With `has_pending` the user's newest words come after them, and
            all of them may go.
    """
    if not messages:
        return None
    board = _Board(messages, tokens, wish)
    choice = board.whole() or board.squeezed()
    return choice if choice.replaced or choice.cuts else None


class _Board:
    """The places where what stays may begin, and what that costs."""

    def __init__(self, messages: Sequence[Message], tokens: Sequence[int], wish: Wish) -> None:
        self._messages, self._tokens, self._wish = messages, tokens, wish
        self._count = len(messages)
        self._sums = [0, *itertools.accumulate(tokens)]
        users = [index if m.role == "user" else -1 for index, m in enumerate(messages)]
        self._users = list(itertools.accumulate(users, max))
        self._current = self._users[-1] if messages and not wish.has_pending else self._count
        room = wish.room_tokens
        self._room = float("inf") if room is None else room

    def whole(self) -> Selection | None:
        """Return the best choice that shortens nothing; None where none fits."""
        least = self._wish.least
        clean = next(filter(self._fits, self._from_users()), None)
        if clean is not None and self._kept(clean) >= least:
            return clean
        inside = next(filter(self._fits, self._inside()), None)
        if inside is not None and self._kept(inside) >= least:
            return inside
        if clean is not None and clean.start < self._count:
            return clean
        return inside if self._wish.has_pending and inside is not None else clean

    def squeezed(self) -> Selection:
        """Return a choice for an exchange that does not fit as a whole: old results are cut."""
        from_start = Selection(start=max(self._current, 0))
        places = [from_start] if self._kept(from_start) <= self._wish.most else []
        places += self._within(self._current)
        places.append(self._last_round())
        tried = ((place, self._cuts(place)) for place in places)
        for place, cuts in tried:
            if self._size(place, cuts) <= self._room:
                break
        return msgspec.structs.replace(place, cuts=cuts)

    def _from_users(self) -> list[Selection]:
        """Return the choices that begin with a user message, those that keep most first."""
        first = max(self._count - self._wish.most, 0)
        starts = [i for i in range(first, self._count) if self._messages[i].role == "user"]
        return [Selection(start=i) for i in starts] + [Selection(start=self._count)] * (
            self._wish.has_pending
        )

    def _inside(self) -> list[Selection]:
        """Return the choices that begin inside an exchange, those that keep most first.

        The exchange that runs is not among them when all of it may stay: it is shortened first.
        """
        runs_over = self._count - self._current > self._wish.most
        found = self._within(-1)
        return [c for c in found if c.start < self._current or runs_over]

    def _within(self, after: int) -> list[Selection]:
        starts = range(max(after + 1, self._count - self._wish.most), self._count)
        places = [self._anchored(i) for i in starts if self._messages[i].role == "assistant"]
        return [place for place in places if self._kept(place) <= self._wish.most]

    def _last_round(self) -> Selection:
        start = self._count - 1
        while start > 0 and self._messages[start].role == "tool":
            start -= 1
        return self._anchored(start)

    def _anchored(self, start: int) -> Selection:
        anchor = self._users[start]
        return Selection(start=start, anchor=anchor if 0 <= anchor < start else None)

    def _kept(self, choice: Selection) -> int:
        return self._count - choice.start + (choice.anchor is not None)

    def _fits(self, choice: Selection) -> bool:
        return self._size(choice, {}) <= self._room

    def _size(self, choice: Selection, cuts: Mapping[int, int]) -> int:
        anchor = self._tokens[choice.anchor] if choice.anchor is not None else 0
        saved = sum(self._tokens[index] - cut for index, cut in cuts.items())
        return self._sums[-1] - self._sums[choice.start] + anchor - saved

    def _cuts(self, choice: Selection) -> dict[int, int]:
        """Return how far results are cut: those of earlier rounds first, the newest if need be."""
        last = self._last_round().start
        indexes = range(choice.start, self._count)
        results = [i for i in indexes if self._messages[i].role == "tool"]
        cuts: dict[int, int] = {}
        for group in ([i for i in results if i < last], [i for i in results if i > last]):
            excess = self._size(choice, cuts) - self._room
            if excess > 0:
                sizes = {i: self._tokens[i] for i in group}
                cuts |= levelled(sizes, sum(sizes.values()) - int(excess))
        return cuts


def levelled(sizes: Mapping[int, int], room: int) -> dict[int, int]:
    """Return the level for those that have to be cut to it so that all fit into the room.

    Nothing is cut below `CUT_RESULT_TOKENS`, so that they may not fit all the same.
    """
    low, high = CUT_RESULT_TOKENS, max(sizes.values(), default=0)
    while low < high:
        level = (low + high + 1) // 2
        if sum(min(size, level) for size in sizes.values()) <= room:
            low = level
        else:
            high = level - 1
    return {index: low for index, size in sizes.items() if size > low}


# A cut through a conversation: which of its stored messages go, and the checkpoint that is left.
#
# Pure. Places are indexes into the stored messages that are shown; a checkpoint has their ids.


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """What of the stored messages goes and what stays."""

    found: ModelView
    kept: Sequence[Message]
    tokens: Sequence[int]
    choice: Selection

    @property
    def earlier(self) -> str:
        """The checkpoint message in force so far, "" for none."""
        return self.found.checkpoint.text if self.found.checkpoint is not None else ""

    @property
    def gone(self) -> list[Message]:
        """The messages that go."""
        choice = self.choice
        return [self.kept[i] for i in range(choice.start) if i != choice.anchor]

    @property
    def replaced(self) -> int:
        """How many messages the checkpoint will stand for."""
        before = self.found.checkpoint.replaced if self.found.checkpoint is not None else 0
        return before + len(self.gone)

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint, without its text."""
        rows, choice, before = self.found.messages, self.choice, self.found.checkpoint
        upto = before.upto if before is not None else 0
        anchor = rows[choice.anchor].id if choice.anchor is not None else 0
        if choice.start:
            upto = max(upto, rows[choice.start - 1].id)
        elif before is not None:
            anchor = before.anchor  # nothing goes, so what was kept of the replaced stays as well
        kept = {stored.id for stored in rows[choice.start :]}
        earlier = before.cuts if before is not None else {}
        cuts = {key: cut for key, cut in earlier.items() if key in kept}
        for index, limit in choice.cuts.items():
            length = len(self.kept[index].content or "")
            cuts[rows[index].id] = length * limit // max(self.tokens[index], 1)
        return Checkpoint(
            text="", upto=upto, anchor=anchor, seen=rows[-1].id, replaced=self.replaced, cuts=cuts
        )


# How many tokens a request takes: as its model said of the last one, as it counts, or about.
#
# What a model reports of its last prompt is the truth; only what came since is counted beside it.

PATIENCE_S = 5.0
MAX_SCALE = 4.0
MIN_SCALE = 0.01
# A report below that share of what was counted says that the template leaves things out.
WHOLE = 0.75


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


async def count_request(
    provider: Provider, request: ChatRequest, *, known_tokens: int, measure: Measure | None = None
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
    """Return whether a request has at most so many tokens even if each new byte were one.

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
