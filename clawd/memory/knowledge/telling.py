"""What the knowledge tools say: to the model as lines, to programs as entries. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from clawd.memory.knowledge.index import Card
from clawd.memory.knowledge.shelf import Hit, Written
from clawd.wire.knowledge_reports import KnowledgeEntry
from clawd.wire.safe_text import paragraph, single_line

TOLD_BYTES = 48 * 1024

_SHOWN_SOURCES = 3


def saved(written: Written, *, keeps_old: bool) -> str:
    """Return the answer to a save; `keeps_old` says whether there is a trash."""
    name = told_name(written.file)
    if written.before is None:
        return f'created "{name}" ({written.after} B)' + _beside(written)
    if written.is_same:
        return f'"{name}" says that already ({written.after} B); nothing changed'
    marked = "; it is marked as untrusted text" if written.untrusted else ""
    old = "the old text is kept in the trash" if keeps_old else "the old text is gone"
    return (
        f'replaced "{name}" ({written.before} B → {written.after} B); {old}{marked}. '
        "To add to an entry use knowledge_append"
    )


def deleted(file: str, *, keeps_old: bool) -> str:
    """Return the answer to a delete."""
    kept = "; its text is kept in the trash" if keeps_old else " for good"
    return f'deleted "{told_name(file)}"{kept}'


def appended(written: Written) -> str:
    """Return the answer to an append."""
    name = told_name(written.file)
    if written.before is None:
        return f'created "{name}" ({written.after} B)' + _beside(written)
    return f'updated "{name}" (+{written.after - written.before} B → {written.after} B total)'


def found_line(hit: Hit) -> str:
    """Return a line of a search: the name to load it by, and the beginning of its text."""
    return f"{told_name(hit.card.file)}: {hit.text}{_mark(hit.card)}"


def loaded(hits: tuple[Hit, ...], *, offset: int = 0) -> str:
    """Return entries whole, or so much of each that all of them fit, from a byte on."""
    share = TOLD_BYTES // max(len(hits), 1)
    return "\n\n".join(_whole(hit, share, offset) for hit in hits)


def absent(problem: str, others: str) -> str:
    """Return the answer to a delete of what is not there: nothing had to be done."""
    return f"{problem}, so nothing was deleted. {others}".strip()


def listed_line(card: Card) -> str:
    """Return a line of a list."""
    about = [f"{card.size} B", when(card)[:10]]
    if card.fixed:
        about.append("fixed")
    if not card.keywords:
        about.append("no keywords header: not searched")
    return f"{told_name(card.file)}  ({', '.join(about)}){_mark(card)}"


def told_name(file: str) -> str:
    """Return a file name as one line; a hand may have given it any."""
    return single_line(file)


def when(card: Card) -> str:
    """Return when the file was changed last, UTC."""
    at = datetime.fromtimestamp(card.modified_ns // 1_000_000_000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def sources_of(cards: Iterable[Card]) -> tuple[str, ...]:
    """Return where untrusted text of the entries came from, the entries themselves first."""
    found = [
        source
        for card in cards
        if card.untrusted
        for source in (f"knowledge {told_name(card.file)}", *card.untrusted)
    ]
    return tuple(dict.fromkeys(found))


def entries(hits: Iterable[Hit]) -> list[dict[str, Any]]:
    """Return entries for programs, as plain data."""
    return [
        msgspec.to_builtins(
            KnowledgeEntry(
                name=hit.card.file,
                keywords=hit.card.keywords,
                is_fixed=hit.card.fixed,
                size=hit.card.size,
                modified_at=when(hit.card),
                created=hit.card.created,
                updated=hit.card.updated,
                untrusted_sources=hit.card.untrusted,
                text=hit.text,
            )
        )
        for hit in hits
    ]


def _beside(written: Written) -> str:
    name = written.fixed_beside
    return f'; the fixed entry "{told_name(name)}" stands beside it' if name else ""


def _whole(hit: Hit, share: int, offset: int) -> str:
    card, data = hit.card, paragraph(hit.text).encode(errors="replace")
    name = told_name(card.file)
    about = f"{len(data)} B, changed {when(card)[:10]}"
    about += f", created {card.created}" if card.created else ""
    head = f"# {name} ({single_line(about)}){_mark(card)}"
    if offset and offset >= len(data):
        return f"{head}\n[there is nothing at offset {offset}: the text has {len(data)} bytes]"
    end = min(offset + share, len(data))
    while end < len(data) and _goes_on(data[end]):
        end -= 1
    body = data[offset:end].decode(errors="ignore")
    shown = f"bytes {offset} to {end} of {len(data)} are shown"
    if end < len(data):
        call = msgspec.json.encode({"keywords": name, "offset": end}).decode()
        body += f"\n[cut: {shown}; knowledge_load with {call} reads on]"
    elif offset:
        body += f"\n[the end: {shown}]"
    return f"{head}\n{body}"


def _goes_on(byte: int) -> bool:
    """Tell whether a byte goes on with a character of UTF-8."""
    return byte & 0xC0 == 0x80


def _mark(card: Card) -> str:
    if not card.untrusted:
        return ""
    shown = ", ".join(card.untrusted[:_SHOWN_SOURCES])
    more = len(card.untrusted) - _SHOWN_SOURCES
    return f" [untrusted text from {shown}{f' and {more} more' if more > 0 else ''}]"
