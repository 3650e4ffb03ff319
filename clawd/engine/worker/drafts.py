"""Guesses the next tokens of a sequence from what stands in it already (prompt lookup).

A model that edits a file, quotes or writes the same call again repeats its input. The guess goes
on from the last place where the newest tokens stood before; after a token that was not the one
expected it goes on behind it as well, for an edit often replaces one token by another.

Every token that comes is compared with the guess for it, whether anything was decoded on the
guess or not. So it costs nothing to know how often guesses hold, and when they begin to.
"""

from collections.abc import Sequence

MAX_DRAFT = 32
# Tokens that must stand in both places before a guess is made.
_NGRAM = 3
# What is remembered of a long prompt: its end.
_INDEXED_TOKENS = 16_384
# How far back two places are compared to say how long they have agreed.
_MAX_AGREED = 16
# After so many wrong guesses in a row the place is given up.
_MAX_MISSES = 2
# Places that have agreed for so long are alike; one guess weighs less the older it is.
_LEVELS = (1, 4, 8, _MAX_AGREED)
_FORGET = 0.95
# What is supposed before anything was seen, by level, and how many guesses that is worth.
_SUPPOSED = (0.5, 0.4, 0.65, 0.8, 0.9)
_SUPPOSED_WEIGHT = 4.0


class _Share:
    """How often guesses of one level held, of late."""

    __slots__ = ("_held", "_made")

    def __init__(self, supposed: float) -> None:
        self._made = _SUPPOSED_WEIGHT
        self._held = supposed * _SUPPOSED_WEIGHT

    def count(self, *, held: bool) -> None:
        self._made = self._made * _FORGET + 1
        self._held = self._held * _FORGET + held

    @property
    def value(self) -> float:
        return self._held / self._made


class Drafter:
    """Guesses for one sequence; `push` must be told every token that joins it."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        self._place = -1
        self._agreed = 0
        self._misses = 0
        self._shares = [_Share(supposed) for supposed in _SUPPOSED]
        self._remember(tokens[-_INDEXED_TOKENS:])

    def push(self, token: int) -> None:
        """Take the token that came next."""
        place = self._place
        self._tokens.append(token)
        if place >= 0:
            holds = self._tokens[place] == token
            self._shares[_level(self._agreed)].count(held=holds)
            self._place += 1
            self._agreed = min(self._agreed + 1, _MAX_AGREED) if holds else 0
            self._misses = 0 if holds else self._misses + 1
        end = len(self._tokens) - 1
        if end >= _NGRAM:
            self._places[tuple(self._tokens[end - _NGRAM : end])] = end
        if not self._agreed:
            self._look_up()

    def guess(self, limit: int) -> list[int]:
        """Return at most `limit` tokens that may come next."""
        if self._place < 0 or limit <= 0:
            return []
        limit = min(limit, MAX_DRAFT)
        found = self._tokens[self._place : self._place + limit]
        # What repeats at the end of the sequence goes on repeating.
        repeats = -(-limit // len(found))
        return (found * repeats)[:limit]

    def chances(self, count: int) -> list[float]:
        """Return for each of the next guessed tokens how likely it is reached and right."""
        chances: list[float] = []
        chance = 1.0
        for ahead in range(count):
            chance *= self._shares[_level(self._agreed + ahead)].value
            chances.append(chance)
        return chances

    def _look_up(self) -> None:
        """Find where the newest tokens stood before; else stay behind an edit, for a while."""
        found = self._places.get(tuple(self._tokens[-_NGRAM:]), -1)
        if found >= 0:
            self._place = found
            self._agreed = self._agreed_before(found)
            self._misses = 0
        elif self._misses >= _MAX_MISSES:
            self._place = -1

    def _agreed_before(self, place: int) -> int:
        tokens, end = self._tokens, len(self._tokens)
        agreed = _NGRAM
        while (
            agreed < _MAX_AGREED
            and place > agreed
            and tokens[place - agreed - 1] == tokens[end - agreed - 1]
        ):
            agreed += 1
        return agreed

    def _remember(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)
        # The newest n-gram has no token behind it yet.
        before = self._tokens[:-1]
        ngrams = zip(*(before[at:] for at in range(_NGRAM)), strict=False)
        self._places = {ngram: at + _NGRAM for at, ngram in enumerate(ngrams)}
        self._look_up()


def _level(agreed: int) -> int:
    for level, least in enumerate(_LEVELS):
        if agreed < least:
            return level
    return len(_LEVELS)
