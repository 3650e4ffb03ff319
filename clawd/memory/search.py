"""Searching messages: by words, by parts of words, by one or two letters; by meaning beside them.

Three ways, best first:

1. every term is a word of the message (`messages_fts`): the better match (bm25), then the newer;
2. every term is a part of it (`messages_trigrams` for terms of three letters and more; shorter
   ones are looked for in the text itself): the newer first;
3. some term is a word of it (for questions in whole sentences), as in 1.

A way is taken only while the ones before found too little. Each asks its index for the ids of the
best and reads these messages alone: what an index finds is not read as a whole.

Where a model of embeddings is named, what is near in meaning is found as well (vectors.py), and the
two rankings are fused; a message of which only some terms are known counts half there. Without the
model, or where it is late, words alone decide.
"""

import logging
import re
import sqlite3
import time
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec

from clawd.errors import InvalidRequestError
from clawd.memory.rows import MADE_BY, MAX_PAGE, TAINT
from clawd.memory.writer import Database

if TYPE_CHECKING:
    from clawd.memory.vectors import Meaning, QuestionVector

MAX_TERMS = 16
MAX_QUERY_CHARS = 1000
SNIPPET_CHARS = 160
PER_CONVERSATION = 3
LIMIT_S = 15.0

_STEPS_BETWEEN_LOOKS = 10_000
_TRIGRAM = 3
_SPARE = 40
_MORE = 8
_READ_AT_ONCE = 24
_COMMON = 2000  # a word in so many messages tells little, and ranking them all takes long

_BY_WORDS = (
    "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rank, rowid DESC LIMIT ?"
)
_NEWEST = "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rowid DESC LIMIT ?"
_UP_TO_COMMON = "SELECT 1 FROM messages_fts WHERE messages_fts MATCH ? LIMIT ?"
_IDS_BY_TRIGRAMS = "SELECT rowid FROM messages_trigrams WHERE messages_trigrams MATCH ?"
_LAST_QUESTION = "SELECT max(id) FROM messages WHERE conversation_id = ? AND role = 'user'"
_BY_TRIGRAMS = f"{_IDS_BY_TRIGRAMS} ORDER BY rowid DESC LIMIT ?"

_SOME = 0.5  # what a message counts that has some of the terms, beside one that means the same

_log = logging.getLogger(__name__)
_facts: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class MessageHit(msgspec.Struct, frozen=True, kw_only=True):
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


class _Whose(msgspec.Struct, frozen=True, kw_only=True):
    """Whose messages are searched; an owner of None, and an empty key, are anybody's."""

    owner: int | None
    made_by: str


class _Watch:
    """Ends a search that takes too long, or that nobody waits for: there are few reading threads.

    Attributes:
        is_unwanted: set when nobody waits for it any more.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._deadline = 0.0
        self.is_unwanted = False

    def over(
        self,
        connection: sqlite3.Connection,
        hits: "_Hits",
        asked: "QuestionVector | None" = None,
    ) -> list[MessageHit]:
        """Search under the watch, by words or by the meaning that is asked for.

        Raises:
            InvalidRequestError: it took too long.
        """
        self._deadline = time.monotonic() + self._limit_s
        connection.set_progress_handler(self._is_over, _STEPS_BETWEEN_LOOKS)
        try:
            if asked is not None:
                return _find_near(connection, hits, asked)
            return _find(connection, hits)
        except sqlite3.OperationalError as error:
            if not self._is_over():
                raise
            raise InvalidRequestError(
                f"the search took over {self._limit_s:g} s and was ended",
                hint="Look for fewer and longer words.",
            ) from error
        finally:
            connection.set_progress_handler(None, 0)

    def _is_over(self) -> bool:
        return self.is_unwanted or time.monotonic() >= self._deadline


class Search:
    """Search over the messages in memory.

    Attributes:
        meaning: finds out what a query means; None searches by words only.
    """

    def __init__(self, database: Database, *, limit_s: float = LIMIT_S) -> None:
        self._database = database
        self._limit_s = limit_s
        self.meaning: Meaning | None = None

    async def find(
        self,
        query: str,
        *,
        owner: int | None,
        made_by: str = "",
        limit: int = 20,
        asked_in: str = "",
    ) -> list[MessageHit]:
        """Return the best matches, at most three of one conversation; [] for an empty query.

        Args:
            query: words or parts of words, case-insensitive; no operators.
            owner: whose messages to search; None for everybody's.
            made_by: of conversations made with this key of the HTTP gateway; empty for all.
            limit: how many hits, 1 to 1000.
            asked_in: the conversation whose running turn asks: what was said in this turn is not
                found, or a question would find itself.

        Raises:
            InvalidRequestError: the limit is out of range, or the search took too long.
            StorageError: memory cannot be read.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidRequestError(f"limit is {limit}; it must be 1 to {MAX_PAGE}")
        terms = split_query(query)
        if not terms:
            return []
        watch, whose = _Watch(self._limit_s), _Whose(owner=owner, made_by=made_by)
        asked = await self.meaning.asked(query) if self.meaning is not None else None

        def act(connection: sqlite3.Connection) -> list[MessageHit]:
            def empty() -> _Hits:
                return _Hits(terms, whose, limit, _turn_of(connection, asked_in))

            words = empty()
            found = watch.over(connection, words)
            if asked is None:
                return found
            try:
                near = watch.over(connection, empty(), asked)
            except InvalidRequestError as error:
                _log.debug("a search goes by words only: %s", error.message)
                return found
            return _fused(found, words.with_all_terms, near)[:limit]

        try:
            return await self._database.read(act)
        finally:
            watch.is_unwanted = True


def split_query(query: str) -> list[str]:
    """Return the query's terms without repetitions, at most 16."""
    text = re.sub("[\0\ud800-\udfff]", " ", query[:MAX_QUERY_CHARS])
    return list(dict.fromkeys(text.lower().split()))[:MAX_TERMS]


def snippet(content: str, terms: list[str]) -> str:
    """Return one line of about 160 characters around the first place where a term stands."""
    return _around(content, _any_of(terms))


def _any_of(terms: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, terms)), re.IGNORECASE)


def _around(content: str, pattern: re.Pattern[str]) -> str:
    match = pattern.search(content)
    middle = (match.start() + match.end()) // 2 if match else 0
    start = max(0, min(middle - SNIPPET_CHARS // 2, len(content) - SNIPPET_CHARS))
    end = min(len(content), start + SNIPPET_CHARS)
    text = " ".join(content[start:end].split())
    return f"{'…' if start else ''}{text}{'…' if end < len(content) else ''}"


class _Hits:
    """The hits of one search so far, with the bounds that they keep.

    Attributes:
        with_all_terms: how many of them, the first ones, have every term.
    """

    def __init__(
        self, terms: list[str], whose: _Whose, limit: int, running: tuple[str, int]
    ) -> None:
        self.found: list[MessageHit] = []
        self.with_all_terms = 0
        self.terms = terms
        self.whose = whose
        self.limit = limit
        self._running = running
        self._pattern = _any_of(terms)
        self._seen: set[int] = set()
        self._of_conversation: dict[str, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether no more are wanted."""
        return len(self.found) >= self.limit

    def take(self, connection: sqlite3.Connection, ids: list[int]) -> None:
        """Take those of the messages, in this order, that the owner may see."""
        fresh = [identity for identity in ids if identity not in self._seen]
        self._seen.update(fresh)
        for start in range(0, len(fresh), _READ_AT_ONCE):
            if self.is_full:
                return
            some = fresh[start : start + _READ_AT_ONCE]
            rows = {row[0]: row for row in _rows(connection, some, self.whose)}
            for identity in some:
                if identity in rows and not self.is_full:
                    self._add(rows[identity])

    def _add(self, row: tuple[Any, ...]) -> None:
        identity, conversation_id, title, timestamp, role, content, facts = row
        running, since = self._running
        if conversation_id == running and identity >= since:
            return
        count = self._of_conversation.get(conversation_id, 0)
        if count >= PER_CONVERSATION:
            return
        self._of_conversation[conversation_id] = count + 1
        self.found.append(
            MessageHit(
                conversation_id=conversation_id,
                title=title,
                message_id=identity,
                timestamp=timestamp,
                role=role,
                snippet=_around(content, self._pattern),
                untrusted_sources=tuple(_facts.decode(facts).get(TAINT, ())),
            )
        )


def _turn_of(connection: sqlite3.Connection, conversation_id: str) -> tuple[str, int]:
    """Return a conversation, and the message with which its last turn began."""
    row = connection.execute(_LAST_QUESTION, [conversation_id]).fetchone()
    return conversation_id, row[0] or 0


def _find(connection: sqlite3.Connection, hits: _Hits) -> list[MessageHit]:
    for has_all, sql, values in _queries(connection, hits.terms, hits.whose.owner):
        # The index knows no owners and no conversations: so more is asked for, while it has more.
        count = hits.limit + _SPARE
        while True:
            ids = [identity for (identity,) in connection.execute(sql, [*values, count])]
            hits.take(connection, ids)
            if has_all:
                hits.with_all_terms = len(hits.found)
            if hits.is_full:
                return hits.found
            if len(ids) < count:
                break
            count *= _MORE
    return hits.found


def _find_near(
    connection: sqlite3.Connection, hits: _Hits, asked: "QuestionVector"
) -> list[MessageHit]:
    from clawd.memory.vectors import near_messages

    hits.take(connection, near_messages(connection, asked, hits.whose.owner))
    return hits.found


def _fused(
    words: list[MessageHit], with_all_terms: int, near: list[MessageHit]
) -> list[MessageHit]:
    """Return the hits of both rankings, best first, at most three of one conversation."""
    from clawd.memory.vectors import fused

    by_words = {
        hit.message_id: 1.0 if place < with_all_terms else _SOME for place, hit in enumerate(words)
    }
    by_meaning = {hit.message_id: 1.0 for hit in near}
    hits = {hit.message_id: hit for hit in (*near, *words)}
    of_conversation: dict[str, int] = {}
    kept: list[MessageHit] = []
    for identity in fused([by_words, by_meaning]):
        hit = hits[identity]
        count = of_conversation.get(hit.conversation_id, 0)
        of_conversation[hit.conversation_id] = count + 1
        if count < PER_CONVERSATION:
            kept.append(hit)
    return kept


def _rows(
    connection: sqlite3.Connection, ids: list[int], whose: _Whose
) -> Iterator[tuple[Any, ...]]:
    marks = ",".join("?" * len(ids))
    return connection.execute(
        "SELECT m.id, m.conversation_id, c.title, m.timestamp, m.role, m.content, "  # noqa: S608
        "c.metadata FROM messages m JOIN conversations c ON c.id = m.conversation_id "
        f"WHERE m.id IN ({marks}) AND (? IS NULL OR m.owner = ?) "
        f"AND (? = '' OR json_extract(c.metadata, '$.{MADE_BY}') = ?)",
        [*ids, whose.owner, whose.owner, whose.made_by, whose.made_by],
    )


def _queries(
    connection: sqlite3.Connection, terms: list[str], owner: int | None
) -> Iterator[tuple[bool, str, list[Any]]]:
    """Yield queries for ids, best first, each with whether what it finds has every term.

    The last parameter, how many, is the caller's.
    """
    phrases = [_phrase(term) for term in terms]
    yield True, _BY_WORDS, [" AND ".join(phrases)]
    long = [_phrase(term) for term in terms if len(term) >= _TRIGRAM]
    short = [term for term in terms if len(term) < _TRIGRAM]
    yield True, *_by_parts(" AND ".join(long), short, owner)
    if len(terms) > 1:
        yield False, *_by_some(connection, phrases)


def _by_parts(match: str, parts: list[str], owner: int | None) -> tuple[str, list[Any]]:
    """Return a query for the messages that the index finds and that contain all the parts."""
    if match and not parts:
        return _BY_TRIGRAMS, [match]
    where: list[str] = []
    values: list[Any] = []
    if match:
        where.append(f"m.id IN ({_IDS_BY_TRIGRAMS})")
        values.append(match)
    for part in parts:
        patterns = _patterns(part)
        alternatives = " OR ".join("m.content LIKE ? ESCAPE '\\'" for _ in patterns)
        where.append(f"({alternatives})")
        values += patterns
    if owner is not None:
        where.append("m.owner = ?")
        values.append(owner)
    found = f"SELECT m.id FROM messages m WHERE {' AND '.join(where)}"  # noqa: S608
    return f"{found} ORDER BY m.id DESC LIMIT ?", values


def _by_some(connection: sqlite3.Connection, phrases: list[str]) -> tuple[str, list[Any]]:
    """Return a query for the messages with any of the rare words; with no rare ones the newest."""
    rare = [
        phrase
        for phrase in phrases
        if len(connection.execute(_UP_TO_COMMON, [phrase, _COMMON]).fetchall()) < _COMMON
    ]
    return (_BY_WORDS, [" OR ".join(rare)]) if rare else (_NEWEST, [" OR ".join(phrases)])


def _phrase(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _patterns(part: str) -> list[str]:
    """Return LIKE patterns for the part in every case; LIKE itself folds ASCII letters only."""
    cases = [{letter} if letter.isascii() else {letter, letter.upper()} for letter in part]
    return [
        "%" + re.sub(r"([\\%_])", r"\\\1", "".join(letters)) + "%"
        for letters in sorted(product(*cases))
    ]
