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
_MAX_COMPARED = 16
# After so many wrong guesses in a row the place is given up.
_MAX_MISSES = 2
# Places that have agreed for this many tokens more are told apart, up to so many levels.
_LEVEL_TOKENS = 4
_LEVELS = 17
# What is supposed before anything was seen, and how many guesses that is worth; right behind a
# token that was not the one expected, and elsewhere.
_SUPPOSED_BEHIND_MISS = 0.5
_SUPPOSED = 0.75
_SUPPOSED_WEIGHT = 8.0
# A guess weighs less the older it is.
_FORGET = 0.99


class _Share:
    """How often guesses held, of late."""

    __slots__ = ("_held", "_made")

    def __init__(self) -> None:
        self._made = 0.0
        self._held = 0.0

    def count(self, *, held: bool) -> None:
        self._made = self._made * _FORGET + 1
        self._held = self._held * _FORGET + held

    def given(self, supposed: float) -> float:
        """Return the share, going by what was supposed as long as little was seen."""
        return (self._held + supposed * _SUPPOSED_WEIGHT) / (self._made + _SUPPOSED_WEIGHT)


class _Chances:
    """How likely a guess holds, by how long two places have agreed.

    Changes tend to come after as many tokens as before: one in every row of a table, or a name
    wherever it stands. What is known of one level stands in for what is not of another.
    """

    def __init__(self) -> None:
        self._behind_miss = _Share()
        self._all = _Share()
        self._levels = [_Share() for _ in range(_LEVELS)]

    def count(self, agreed: int, *, held: bool) -> None:
        if not agreed:
            self._behind_miss.count(held=held)
            return
        self._all.count(held=held)
        self._levels[_level(agreed)].count(held=held)

    def at(self, agreed: int) -> float:
        if not agreed:
            return self._behind_miss.given(_SUPPOSED_BEHIND_MISS)
        return self._levels[_level(agreed)].given(self._all.given(_SUPPOSED))


class Drafter:
    """Guesses for one sequence; `push` must be told every token that joins it."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        self._place = -1
        self._agreed = 0
        self._misses = 0
        self._chances = _Chances()
        self._remember(tokens[-_INDEXED_TOKENS:])

    @property
    def agreed(self) -> int:
        """Return for how many tokens the guesses have held without a break."""
        return self._agreed

    def push(self, token: int) -> None:
        """Take the token that came next."""
        place = self._place
        self._tokens.append(token)
        if place >= 0:
            holds = self._tokens[place] == token
            self._chances.count(self._agreed, held=holds)
            self._place += 1
            self._agreed = self._agreed + 1 if holds else 0
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
        if min(found) < 0:
            return []  # a picture follows there
        # What repeats at the end of the sequence goes on repeating.
        repeats = -(-limit // len(found))
        return (found * repeats)[:limit]

    def chances(self, count: int) -> list[float]:
        """Return for each of the next guessed tokens how likely it is reached and right."""
        chances: list[float] = []
        chance = 1.0
        for ahead in range(count):
            chance *= self._chances.at(self._agreed + ahead)
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
            agreed < _MAX_COMPARED
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
    return min(agreed // _LEVEL_TOKENS, _LEVELS - 1)
