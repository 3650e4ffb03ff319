"""One person's entries: what is known of them, and the acts on them. Blocks; used by one thread."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from clawd.config.sections import KnowledgeSection
from clawd.errors import BusyError, ForbiddenError, InvalidRequestError, NotFoundError
from clawd.memory.knowledge.files import (
    HEADER_LIMIT_BYTES,
    SEPARATOR,
    EntryFiles,
    EntryHeader,
    Identity,
    Parsed,
    SeenFile,
    clean_body,
    parse,
    render,
    snippet,
)
from clawd.memory.knowledge.keywords import FIXED, EntryName, WantedEntries, is_plain_word

# What is known of all entries of one person, and what can be told from it. Pure.

_MAX_SUGGESTIONS = 8
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

    @property
    def state(self) -> tuple[int, int]:
        """By what its file is told from itself, changed."""
        return self.size, self.modified_ns


class KeywordUse(msgspec.Struct, frozen=True, kw_only=True):
    """A keyword, in how many entries it stands, and by which files it is untrusted.

    A keyword that a trusted entry has is trusted.
    """

    keyword: str
    count: int
    untrusted: tuple[str, ...] = ()


def _ranked(cards: Iterable[Card], keywords: tuple[str, ...]) -> list[Card]:
    """Return the entries with any of the keywords: most of them first, then the newest."""
    looked_for = frozenset(keywords)
    scored = [(len(looked_for.intersection(card.keywords)), card) for card in cards]
    found = [pair for pair in scored if pair[0]]
    found.sort(key=lambda pair: (-pair[0], -pair[1].modified_ns, pair[1].file))
    return [card for _, card in found]


def _having(cards: Iterable[Card], wanted: WantedEntries) -> list[Card]:
    """Return the entries with all of the keywords: the exact ones first, then the newest."""
    needed = frozenset(wanted.keywords)
    found = [
        card
        for card in cards
        if needed.issubset(card.keywords) and (card.fixed or not wanted.fixed)
    ]
    found.sort(key=lambda card: (len(card.keywords), card.fixed, -card.modified_ns, card.file))
    return found


def _exact(cards: Iterable[Card], keywords: tuple[str, ...], *, fixed: bool) -> Card | None:
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


def _harmless(found: Iterable[KeywordUse]) -> list[str]:
    """Return the keywords that may be told where nobody asked for untrusted text.

    Words of an untrusted entry could be chosen so that together they say something; single short
    words in the order of counts and names hardly can.
    """
    return [use.keyword for use in found if not use.untrusted or is_plain_word(use.keyword)]


def _similar(known: Iterable[str], keywords: tuple[str, ...]) -> list[str]:
    """Return known keywords that begin or end like those that found nothing."""
    found: list[str] = []
    for keyword in known:
        if any(_alike(keyword, word) for word in keywords):
            found.append(keyword)
            if len(found) == _MAX_SUGGESTIONS:
                break
    return found


def _alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= _SHORTEST_PART and (long.startswith(short) or long.endswith(short))


def by_name(cards: Mapping[str, Card], prefix: str) -> list[Card]:
    """Return the entries whose file names begin so, by name."""
    return [cards[name] for name in sorted(cards) if name.startswith(prefix)]


_MAX_LOADED = 4
_VOCABULARY_SIZE = 40
_SNIPPET_LIMIT = 200

_TRIES = 3
_SNIPPET_BYTES = HEADER_LIMIT_BYTES + 4 * _SNIPPET_LIMIT


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes: a person outside of conversations, or a model in one with these sources."""

    uid: int
    conversation_id: str = ""
    untrusted: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The author as a header names him."""
        return f"a model in {self.conversation_id}" if self.conversation_id else f"uid {self.uid}"


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a change.

    Attributes:
        before: bytes of the body as it was; None for a new entry.
        after: as it is now.
        is_same: whether nothing had to be changed.
        fixed_beside: names a fixed entry of the same keywords.
        untrusted: what the entry that was replaced is marked with now.
    """

    file: str
    before: int | None
    after: int
    is_same: bool = False
    fixed_beside: str = ""
    untrusted: tuple[str, ...] = ()


class EntryHit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry and text of it: the beginning on one line, or all of the body."""

    card: Card
    text: str


class FoundPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a search: how many entries there are in all, and keywords to try instead."""

    hits: tuple[EntryHit, ...]
    total: int
    suggestions: tuple[str, ...] = ()


class Unseen(msgspec.Struct, frozen=True, kw_only=True):
    """What an index of entries does not know: entries with their texts, and names that are gone."""

    hits: tuple[EntryHit, ...]
    gone: tuple[str, ...]


class Shelf:
    """The entries of one person.

    Args:
        files: where they lie.
        settings: the limits.
    """

    def __init__(self, files: EntryFiles, settings: KnowledgeSection) -> None:
        self.files = files
        self._settings = settings
        self._seen: dict[str, SeenFile] = {}
        self._cards: dict[str, Card] = {}
        self._vocabulary: tuple[int, str] | None = None

    def cards(self) -> dict[str, Card]:
        """Return what is there now, by file name; changes by hand are seen."""
        seen = self.files.seen(self._seen)
        if seen != self._seen:
            self._cards = {
                file: self._cards[file]
                if self._seen.get(file) is each and file in self._cards
                else _card(file, each)
                for file, each in seen.items()
            }
            # The card has all that is needed: heads of thousands of files would fill the memory.
            self._seen = {
                file: msgspec.structs.replace(each, head=b"") if each.head else each
                for file, each in seen.items()
            }
            self._vocabulary = None
        return self._cards

    def vocabulary(self) -> str:
        """Return the most used keywords; looks at the folder alone while nothing changed there."""
        at, is_settled = self.files.changed_at()
        if self._vocabulary is not None and self._vocabulary[0] == at:
            return self._vocabulary[1]
        told = ", ".join(_harmless(uses(self.cards().values()))[:_VOCABULARY_SIZE])
        if is_settled:
            self._vocabulary = (at, told)
        return told

    def save(self, name: EntryName, content: str, author: Author) -> Written:
        """Make an entry, or replace the body of the one that is there.

        Raises:
            ForbiddenError: it is fixed.
            InvalidRequestError: the content is none, or too long, or there are too many entries.
            BusyError: somebody else changes it again and again.
        """
        body = self._body(content)
        card = _exact(self.cards().values(), name.keywords, fixed=name.fixed)
        if card is not None and name.fixed:
            raise _fixed(card.file)
        header = _header(name, author)
        if card is None:
            return self._create(name, header, body)
        parsed, before, _ = self._current(card.file)
        old = len(parsed.body.encode())
        was_untrusted = parsed.header.untrusted if parsed.header is not None else ()
        if not author.conversation_id:
            # A person edits what is there: a word mended does not vouch for the rest.
            header = msgspec.structs.replace(header, untrusted=was_untrusted)
        if parsed.body == body and was_untrusted == header.untrusted:
            return Written(file=card.file, before=old, after=old, is_same=True)
        if parsed.header is not None and parsed.header.created:
            header = msgspec.structs.replace(header, created=parsed.header.created)
        self.files.replace(card.file, render(header, body), before=before)
        return Written(
            file=card.file, before=old, after=len(body.encode()), untrusted=header.untrusted
        )

    def append(self, name: EntryName, content: str, author: Author) -> Written:
        """Add to the end of an entry, or make it.

        Raises:
            InvalidRequestError: the content is none, or the whole would be too long.
            BusyError: somebody else changes it again and again.
        """
        added = self._body(content)
        for _ in range(_TRIES):
            card = _exact(self.cards().values(), name.keywords, fixed=False)
            if card is None:
                return self._create(name, _header(name, author), added)
            parsed, before, data = self._current(card.file)
            written = _joined(parsed, added, name, author)
            body = self._body(written[1], beginning=f'"{card.file}" would be')
            # What a hand wrote may hold more than is read of it: other lines of a header, bytes
            # that are no UTF-8. That is not in the new file.
            has_more = parsed.header is None or render(parsed.header, parsed.body) != data
            try:
                self.files.replace(
                    card.file, render(written[0], body), before=before, keeps_old=has_more
                )
            except BusyError:
                continue
            return Written(
                file=card.file, before=len(parsed.body.encode()), after=len(body.encode())
            )
        raise BusyError(
            f'"{name.file}" is being changed by somebody else; nothing was added',
            retry_after_s=1.0,
            hint="Try again.",
        )

    def search(
        self,
        keywords: tuple[str, ...],
        *,
        page: int,
        size: int,
        near: Mapping[str, tuple[int, int]] | None = None,
    ) -> FoundPage:
        """Return a page of the entries with any of the keywords, best first.

        Args:
            keywords: what is looked for.
            page: which one, from 1.
            size: entries on a page.
            near: entries that mean what is looked for, nearest first: as they were by file name;
                one that has changed since does not count.
        """
        cards = self.cards()
        found = _ranked(cards.values(), keywords)
        if near:
            found = _with_near(found, cards, near)
        if not found:
            known = _harmless(uses(cards.values()))
            return FoundPage(hits=(), total=0, suggestions=tuple(_similar(known, keywords)))
        shown = found[(page - 1) * size : page * size]
        hits = (self._hit(card, _SNIPPET_BYTES) for card in shown)
        return FoundPage(
            hits=tuple(
                EntryHit(card=h.card, text=snippet(h.text, _SNIPPET_LIMIT)) for h in hits if h
            ),
            total=len(found),
        )

    def unseen(self, known: Mapping[str, tuple[int, int]], limit: int, room_bytes: int) -> Unseen:
        """Return what an index does not know, by the entries that it knows as they were.

        Args:
            known: their sizes and times of change by file name.
            limit: how many entries.
            room_bytes: how much of each text.
        """
        cards = {file: card for file, card in self.cards().items() if card.keywords}
        new = [card for file, card in cards.items() if known.get(file) != card.state]
        new.sort(key=lambda card: -card.modified_ns)
        hits = (self._hit(card, HEADER_LIMIT_BYTES + room_bytes) for card in new[:limit])
        return Unseen(
            hits=tuple(hit for hit in hits if hit),
            gone=tuple(file for file in known if file not in cards),
        )

    def load(self, wanted: WantedEntries) -> FoundPage:
        """Return the entries with all of the keywords, whole, at most four of them."""
        cards = self.cards()
        found = _having(cards.values(), wanted)
        if not found:
            near = [card.file for card in _ranked(cards.values(), wanted.keywords)]
            safe = [file for file in near if not cards[file].untrusted]
            return FoundPage(hits=(), total=0, suggestions=tuple(safe[:_MAX_LOADED]))
        limit = self._settings.max_entry_bytes + HEADER_LIMIT_BYTES
        hits = (self._hit(card, limit) for card in found[:_MAX_LOADED])
        return FoundPage(hits=tuple(hit for hit in hits if hit), total=len(found))

    def delete(self, wanted: WantedEntries, *, may_be_fixed: bool) -> str:
        """Move the entry of just these keywords to the trash; return its file name.

        Raises:
            NotFoundError: there is none; the message names those that have these keywords.
            ForbiddenError: it is fixed.
        """
        cards = self.cards()
        card = _exact(cards.values(), wanted.keywords, fixed=wanted.fixed)
        if card is None:
            near = _having(cards.values(), wanted)[:_MAX_LOADED]
            others = ", ".join(f'"{each.file}"' for each in near if not each.untrusted)
            stem = EntryName(keywords=wanted.keywords, fixed=wanted.fixed).file
            raise NotFoundError(
                f'there is no entry "{stem}"',
                hint=f"With these keywords there is {others}." if others else "",
            )
        if card.fixed and not may_be_fixed:
            raise _fixed(card.file)
        _, before, _ = self._current(card.file)
        self.files.remove(card.file, before=before)
        return card.file

    def _create(self, name: EntryName, header: EntryHeader, body: str) -> Written:
        cards = self.cards()
        if len(cards) >= self._settings.max_entries:
            raise InvalidRequestError(
                f"there are {len(cards)} entries, and {self._settings.max_entries} is the most",
                hint="Append to one that is there, or delete one that is not needed any more.",
            )
        if name.file in cards:
            raise InvalidRequestError(
                f'there is a file "{name.file}" whose header does not say so; it is left alone',
                hint="Give it the line `keywords: ` and its keywords by hand, or use others.",
            )
        self.files.replace(name.file, render(header, body), before=None)
        fixed = _exact(cards.values(), name.keywords, fixed=True)
        return Written(
            file=name.file,
            before=None,
            after=len(body.encode()),
            fixed_beside=fixed.file if fixed is not None else "",
        )

    def _current(self, file: str) -> tuple[Parsed, Identity, bytes]:
        """Return an entry that is there: as it is read, what file it is, and all of the file.

        Raises:
            BusyError: it has gone meanwhile.
            InvalidRequestError: somebody made it longer than an entry can be.
        """
        limit = self._settings.max_entry_bytes + HEADER_LIMIT_BYTES
        found = self.files.read(file, limit + 1)
        if found is None:
            raise BusyError(f'"{file}" has just gone', retry_after_s=0.1, hint="Try again.")
        if len(found[0]) > limit:
            raise InvalidRequestError(
                f'"{file}" is longer than the {self._settings.max_entry_bytes} bytes that an entry '
                "can have; it is left alone",
                hint="Make it shorter by hand, or write an entry with other keywords.",
            )
        return parse(found[0]), found[1], found[0]

    def _hit(self, card: Card, limit_bytes: int) -> EntryHit | None:
        found = self.files.read(card.file, limit_bytes)
        if found is None:
            return None
        parsed = parse(found[0])
        # What is told is what was read now: a hand may have changed the header meanwhile.
        sources = parsed.header.untrusted if parsed.header is not None else card.untrusted
        card = msgspec.structs.replace(card, untrusted=sources)
        return EntryHit(card=card, text=parsed.body)

    def _body(self, content: str, *, beginning: str = "the content is") -> str:
        body = clean_body(content)
        if not body:
            raise InvalidRequestError(
                "there is no content to keep; write it: "
                '{"keywords": "backup server", "content": "The backup server is nas2."}'
            )
        size, limit = len(body.encode(errors="replace")), self._settings.max_entry_bytes
        if size > limit:
            raise InvalidRequestError(
                f"{beginning} {size} bytes, and {limit} is the most",
                hint="Write the rest to an entry with other keywords.",
            )
        return body


def _with_near(
    found: list[Card], cards: Mapping[str, Card], near: Mapping[str, tuple[int, int]]
) -> list[Card]:
    from clawd.memory.vectors import fused

    by_meaning = {
        file: 1.0 for file, state in near.items() if file in cards and cards[file].state == state
    }
    return [cards[file] for file in fused([{card.file: 1.0 for card in found}, by_meaning])]


def _card(file: str, seen: SeenFile) -> Card:
    parsed = parse(seen.head)
    header = parsed.header
    if header is None:
        return Card(
            file=file,
            keywords=(),
            fixed=file.startswith(FIXED),
            size=seen.size,
            modified_ns=seen.modified_ns,
        )
    return Card(
        file=file,
        keywords=header.keywords,
        fixed=file.startswith(FIXED),
        size=max(seen.size - parsed.offset - 1, 0),
        modified_ns=seen.modified_ns,
        created=header.created,
        updated=header.updated,
        untrusted=header.untrusted,
    )


def _header(name: EntryName, author: Author) -> EntryHeader:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} by {author.line}"
    return EntryHeader(keywords=name.keywords, created=now, updated=now, untrusted=author.untrusted)


def _joined(parsed: Parsed, added: str, name: EntryName, author: Author) -> tuple[EntryHeader, str]:
    """Return header and body of an entry to which something is added; its sources stay."""
    new, old = _header(name, author), parsed.header or EntryHeader(keywords=name.keywords)
    header = msgspec.structs.replace(
        new,
        created=old.created or new.created,
        untrusted=tuple(dict.fromkeys((*old.untrusted, *new.untrusted))),
    )
    return header, parsed.body + SEPARATOR + added if parsed.body else added


def _fixed(file: str) -> ForbiddenError:
    return ForbiddenError(
        f'"{file}" is fixed: it can be read, but not changed or deleted',
        hint="Save what is new under other keywords, without fix.",
    )
