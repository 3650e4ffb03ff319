"""Searching messages: by words, by parts of words, by one or two letters.

Three ways, best first; within each the better match (bm25), then the newer message:

1. every term is a word of the message (`messages_fts`);
2. every term is a part of it (`messages_trigrams` for terms of three letters and more; shorter
   ones are looked for in the text itself);
3. some term is a word of it (for questions in whole sentences).
"""

import re
import sqlite3
from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec

from clawd.errors import InvalidRequestError
from clawd.memory.rows import MAX_PAGE, TAINT
from clawd.memory.writer import Database

MAX_TERMS = 16
MAX_QUERY_CHARS = 1000
SNIPPET_CHARS = 160
PER_CONVERSATION = 3

_TRIGRAM = 3

_facts: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was found, and the part of its text around the first term.

    `untrusted_sources` are those of its whole conversation.
    """

    conversation_id: str
    title: str
    message_id: int
    timestamp: str
    role: str
    snippet: str
    untrusted_sources: tuple[str, ...] = ()


class Search:
    """Search over the messages in memory."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, query: str, *, owner: int | None, limit: int = 20) -> list[Hit]:
        """Return the best matches, at most three of one conversation; [] for an empty query.

        Args:
            query: words or parts of words, case-insensitive; no operators.
            owner: whose messages to search; None for everybody's.
            limit: how many hits, 1 to 1000.

        Raises:
            InvalidRequestError: the limit is out of range.
            StorageError: memory cannot be read.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidRequestError(f"limit is {limit}; it must be 1 to {MAX_PAGE}")
        terms = split_query(query)
        if not terms:
            return []
        return await self._database.read(lambda c: _find(c, terms, owner, limit))


def split_query(query: str) -> list[str]:
    """Return the query's terms without repetitions, at most 16."""
    text = re.sub("[\0\ud800-\udfff]", " ", query[:MAX_QUERY_CHARS])
    return list(dict.fromkeys(text.lower().split()))[:MAX_TERMS]


def snippet(content: str, terms: list[str]) -> str:
    """Return one line of about 160 characters around the first place where a term stands."""
    pattern = re.compile("|".join(map(re.escape, terms)), re.IGNORECASE)
    match = pattern.search(content)
    middle = (match.start() + match.end()) // 2 if match else 0
    start = max(0, min(middle - SNIPPET_CHARS // 2, len(content) - SNIPPET_CHARS))
    end = min(len(content), start + SNIPPET_CHARS)
    text = " ".join(content[start:end].split())
    return f"{'…' if start else ''}{text}{'…' if end < len(content) else ''}"


def _find(
    connection: sqlite3.Connection, terms: list[str], owner: int | None, limit: int
) -> list[Hit]:
    hits: list[Hit] = []
    seen: set[int] = set()
    of_conversation: dict[str, int] = {}
    for sql, values in _queries(terms, owner):
        for row in connection.execute(sql, values):
            identity, conversation_id, title, timestamp, role, content, facts = row
            count = of_conversation.get(conversation_id, 0)
            if identity in seen or count >= PER_CONVERSATION:
                continue
            seen.add(identity)
            of_conversation[conversation_id] = count + 1
            hits.append(
                Hit(
                    conversation_id=conversation_id,
                    title=title,
                    message_id=identity,
                    timestamp=timestamp,
                    role=role,
                    snippet=snippet(content, terms),
                    untrusted_sources=tuple(_facts.decode(facts).get(TAINT, ())),
                )
            )
            if len(hits) == limit:
                return hits
    return hits


def _queries(terms: list[str], owner: int | None) -> Iterator[tuple[str, list[Any]]]:
    phrases = [_phrase(term) for term in terms]
    yield _select("messages_fts", " AND ".join(phrases), [], owner)
    long = [_phrase(term) for term in terms if len(term) >= _TRIGRAM]
    short = [term for term in terms if len(term) < _TRIGRAM]
    yield _select("messages_trigrams", " AND ".join(long), short, owner)
    if len(terms) > 1:
        yield _select("messages_fts", " OR ".join(phrases), [], owner)


def _select(index: str, match: str, parts: list[str], owner: int | None) -> tuple[str, list[Any]]:
    """Return a query for the messages that the index finds and that contain all the parts."""
    where: list[str] = []
    values: list[Any] = []
    if match:
        where.append(f"{index} MATCH ?")
        values.append(match)
    for part in parts:
        patterns = _patterns(part)
        alternatives = " OR ".join("m.content LIKE ? ESCAPE '\\'" for _ in patterns)
        where.append(f"({alternatives})")
        values += patterns
    if owner is not None:
        where.append("m.owner = ?")
        values.append(owner)
    source = f"{index} JOIN messages m ON m.id = {index}.rowid" if match else "messages m"
    order = f"{index}.rank, m.id DESC" if match else "m.id DESC"
    sql = (
        "SELECT m.id, m.conversation_id, c.title, m.timestamp, m.role, m.content, "  # noqa: S608
        "c.metadata "
        f"FROM {source} JOIN conversations c ON c.id = m.conversation_id "
        f"WHERE {' AND '.join(where)} ORDER BY {order}"
    )
    return sql, values


def _phrase(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _patterns(part: str) -> list[str]:
    """Return LIKE patterns for the part in every case; LIKE itself folds ASCII letters only."""
    cases = [{letter} if letter.isascii() else {letter, letter.upper()} for letter in part]
    return [
        "%" + re.sub(r"([\\%_])", r"\\\1", "".join(letters)) + "%"
        for letters in sorted(product(*cases))
    ]
