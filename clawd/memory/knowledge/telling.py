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


def loaded(hits: tuple[Hit, ...]) -> str:
    """Return entries whole, or so much of each that all of them fit."""
    share = TOLD_BYTES // max(len(hits), 1)
    return "\n\n".join(_whole(hit, share) for hit in hits)


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


def _whole(hit: Hit, share: int) -> str:
    card, body = hit.card, paragraph(hit.text)
    data = body.encode(errors="replace")
    about = f"{len(data)} B, changed {when(card)[:10]}"
    about += f", created {card.created}" if card.created else ""
    lines = [f"# {told_name(card.file)} ({single_line(about)}){_mark(card)}"]
    if len(data) > share:
        body = data[:share].decode(errors="ignore")
        body += f"\n[cut: {len(data) - share} of {len(data)} bytes left out]"
    return "\n".join([*lines, body])


def _mark(card: Card) -> str:
    if not card.untrusted:
        return ""
    shown = ", ".join(card.untrusted[:_SHOWN_SOURCES])
    more = len(card.untrusted) - _SHOWN_SOURCES
    return f" [untrusted text from {shown}{f' and {more} more' if more > 0 else ''}]"
