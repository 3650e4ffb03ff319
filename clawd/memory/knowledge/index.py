"""What is known of all entries of one person, and what can be told from it. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from clawd.memory.knowledge.keywords import Wanted, is_plain_word

MAX_SUGGESTIONS = 8
_SHORTEST_PART = 3


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """An entry without its body.

    Attributes:
        file: its name.
        keywords: sorted; empty for a file without a header, which is never found.
        fixed: whether it may not be changed.
        size: of its body, in bytes.
        modified_ns: when the file was changed last, in nanoseconds since 1970.
        untrusted: where untrusted text in it came from.
    """

    file: str
    keywords: tuple[str, ...]
    fixed: bool
    size: int
    modified_ns: int
    created: str = ""
    updated: str = ""
    untrusted: tuple[str, ...] = ()


class KeywordUse(msgspec.Struct, frozen=True, kw_only=True):
    """A keyword, in how many entries it stands, and by which files it is untrusted.

    A keyword that a trusted entry has is trusted.
    """

    keyword: str
    count: int
    untrusted: tuple[str, ...] = ()


def ranked(cards: Iterable[Card], keywords: tuple[str, ...]) -> list[Card]:
    """Return the entries with any of the keywords: most of them first, then the newest."""
    looked_for = frozenset(keywords)
    scored = [(len(looked_for.intersection(card.keywords)), card) for card in cards]
    found = [pair for pair in scored if pair[0]]
    found.sort(key=lambda pair: (-pair[0], -pair[1].modified_ns, pair[1].file))
    return [card for _, card in found]


def having(cards: Iterable[Card], wanted: Wanted) -> list[Card]:
    """Return the entries with all of the keywords: the exact ones first, then the newest."""
    needed = frozenset(wanted.keywords)
    found = [
        card
        for card in cards
        if needed.issubset(card.keywords) and (card.fixed or not wanted.fixed)
    ]
    found.sort(key=lambda card: (len(card.keywords), card.fixed, -card.modified_ns, card.file))
    return found


def exact(cards: Iterable[Card], keywords: tuple[str, ...], *, fixed: bool) -> Card | None:
    """Return the entry of just these keywords."""
    found = (card for card in cards if card.keywords == keywords and card.fixed == fixed)
    return min(found, key=lambda card: card.file, default=None)


def uses(cards: Iterable[Card]) -> list[KeywordUse]:
    """Return every keyword, the most used first, then by name."""
    counts: Counter[str] = Counter()
    trusted: set[str] = set()
    blamed: dict[str, list[str]] = {}
    for card in cards:
        counts.update(card.keywords)
        if not card.untrusted:
            trusted.update(card.keywords)
            continue
        for keyword in card.keywords:
            blamed.setdefault(keyword, []).append(card.file)
    return [
        KeywordUse(
            keyword=keyword,
            count=count,
            untrusted=() if keyword in trusted else tuple(blamed.get(keyword, ())),
        )
        for keyword, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def harmless(found: Iterable[KeywordUse]) -> list[str]:
    """Return the keywords that may be told where nobody asked for untrusted text.

    Words of an untrusted entry could be chosen so that together they say something; single short
    words in the order of counts and names hardly can.
    """
    return [use.keyword for use in found if not use.untrusted or is_plain_word(use.keyword)]


def similar(known: Iterable[str], keywords: tuple[str, ...]) -> list[str]:
    """Return known keywords that begin or end like those that found nothing."""
    found: list[str] = []
    for keyword in known:
        if any(_alike(keyword, word) for word in keywords):
            found.append(keyword)
            if len(found) == MAX_SUGGESTIONS:
                break
    return found


def _alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= _SHORTEST_PART and (long.startswith(short) or long.endswith(short))


def by_name(cards: Mapping[str, Card], prefix: str) -> list[Card]:
    """Return the entries whose file names begin so, by name."""
    return [cards[name] for name in sorted(cards) if name.startswith(prefix)]
