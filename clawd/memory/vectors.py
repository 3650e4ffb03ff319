"""Vectors of what was said and noted: kept, compared, and put beside what words find.

A model of embeddings turns a text into numbers that are near those of texts of the same meaning.
They lie in memory.sqlite, those of one model only, as two do not compare. All of an owner's
are compared for every question, a block at a time. So each is kept as a scale (float32) and bytes
(int8): of a hundred thousand with 384 numbers that takes a fifth of what float16 does, and cosines
are off by less than a hundredth.

How near is near differs from model to model: some find everything alike. So each is asked, before
its first vector is kept, for sentences that have nothing to do with each other, and only what is
clearly nearer than these is a hit. A question without meaning has none.
"""

import asyncio
import hashlib
import logging
import sqlite3
from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from clawd.errors import ClawError
from clawd.memory.writer import Database

ASK_LIMIT_S = 2.0
TEXT_LIMIT = 2_000  # characters of a text that count: about what small models take
AT_ONCE = 500  # rows deleted in one write, so that turns are stored in between
# Of ranks that are fused (Cormack, Clarke, Büttcher 2009): how little the first is better.
RANK_BASE = 60
UNRELATED = (
    "The train to the coast leaves at nine.", "Knead the dough and let it rise for an hour.",
    "The judge adjourned the hearing until Monday.", "Photosynthesis turns light into sugar.",
    "Our striker scored twice in the second half.", "The compiler reports a missing semicolon.",
    "She tuned the cello before the concert.", "Interest rates rose by a quarter of a percent.",
    "The nurse changed the bandage on his knee.", "Glaciers carved this valley long ago.",
)  # fmt: skip
CLEARLY = 0.23  # of the way from unrelated to the same

_BLOCK = 1_024
_ROLES = "('user', 'assistant')"  # what tools answered is found by its words

T = TypeVar("T", bound=Hashable)
_log = logging.getLogger(__name__)


class Embedder(Protocol):
    """A model of embeddings."""

    @property
    def named(self) -> str:
        """How the config names it."""
        ...

    async def identity(self) -> str:
        """Return what tells its vectors from those of any other model.

        Raises:
            ClawError: it is not there.
        """
        ...

    async def vectors(self, texts: Sequence[str]) -> list[bytes]:
        """Return a vector of each text, or of its beginning: little-endian float32, of length 1.

        Raises:
            ClawError: it is not there, may not be used now, or failed.
        """
        ...


class VectorModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as memory knows it.

    Attributes:
        id: of its row.
        size: numbers in a vector.
        least: the cosine of what is clearly nearer than texts that are unrelated.
    """

    id: int
    size: int
    least: float


class QuestionVector(msgspec.Struct, frozen=True, kw_only=True):
    """A question as a vector of a model: little-endian float32."""

    model: VectorModel
    vector: bytes


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of knowledge, as its vector knows it.

    Attributes:
        size: of its body; with `modified_ns` it tells whether the file is still the same.
    """

    file: str
    size: int
    modified_ns: int
    text: str = ""

    @property
    def state(self) -> tuple[int, int]:
        """By what a file is told from itself, changed."""
        return self.size, self.modified_ns

    @property
    def hash(self) -> str:
        """By what a text is known again in another file."""
        return hashlib.blake2b(self.text.encode(errors="replace"), digest_size=16).hexdigest()


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages have a vector, of how many that are to have one."""

    indexed: int
    wanted: int


class Meaning:
    """What questions mean, by a model of embeddings.

    Args:
        database: memory's.
        embedder: the model.
        limit_s: how long a question waits for its vector; after that its words must do.
    """

    def __init__(
        self, database: Database, embedder: Embedder, *, limit_s: float = ASK_LIMIT_S
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._limit_s = limit_s

    async def asked(self, question: str) -> QuestionVector | None:
        """Return the question's vector; None where it cannot be had in time: the log says why."""
        try:
            async with asyncio.timeout(self._limit_s):
                identity = await self._embedder.identity()
                model = await self._database.read(lambda c: model_of(c, identity))
                if model is None:
                    _log.debug("a search goes by words only: nothing is indexed yet")
                    return None
                (vector,) = await self._embedder.vectors([question[:TEXT_LIMIT]])
        except TimeoutError:
            _log.debug(
                "a search goes by words only: the embedding model took over %g s", self._limit_s
            )
            return None
        except ClawError as error:
            _log.debug("a search goes by words only: %s", error.message)
            return None
        return QuestionVector(model=model, vector=vector) if len(vector) == 4 * model.size else None

    async def notes(self, question: str, uid: int) -> dict[str, Note]:
        """Return the notes of a person that are near a question, nearest first, by file name."""
        asked = await self.asked(question)
        if asked is None:
            return {}
        rows = await self._database.read(lambda c: _near_notes(c, asked, uid))
        return {note.file: note for note in rows}


class VectorStore:
    """The vectors that memory keeps."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def model(self, identity: str) -> VectorModel | None:
        """Return what is known of a model, None for one whose vectors are not here."""
        return await self._database.read(lambda c: model_of(c, identity))

    async def adopt(self, identity: str, unrelated: Sequence[bytes]) -> VectorModel:
        """Begin with a model, by its vectors of `UNRELATED`; those of every other one go."""
        await self.forget()
        size, least = len(unrelated[0]) // 4, least_of(unrelated)

        def act(connection: sqlite3.Connection) -> VectorModel:
            number = connection.execute(
                "INSERT INTO embedding_models (identity, size, least) VALUES (?, ?, ?)",
                (identity, size, least),
            ).lastrowid
            assert number is not None
            return VectorModel(id=number, size=size, least=least)

        return await self._database.write(act, durable=False)

    async def forget(self) -> bool:
        """Delete every vector; return whether there was anything to delete."""
        known = "SELECT 1 FROM embedding_models LIMIT 1"
        if await self._database.read(lambda c: c.execute(known).fetchone()) is None:
            return False

        def some(connection: sqlite3.Connection) -> int:
            return sum(
                connection.execute(
                    f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} LIMIT ?)",  # noqa: S608
                    (AT_ONCE,),
                ).rowcount
                for table in ("message_vectors", "note_vectors")
            )

        while await self._database.write(some, durable=False):
            pass
        await self._database.write(lambda c: c.execute("DELETE FROM embedding_models").rowcount)
        return True

    async def newest_id(self) -> int:
        """Return the id of the message that came last, 0 without one."""
        row = await self._database.read(
            lambda c: c.execute("SELECT max(id) FROM messages").fetchone()
        )
        return int(row[0] or 0)

    async def missing(
        self, model: VectorModel, *, above: int, below: int, limit: int
    ) -> list[tuple[int, str]]:
        """Return ids and texts of messages between two ids without a vector, newest first."""
        query = (
            "SELECT m.id, substr(m.content, 1, ?) FROM messages m "  # noqa: S608
            "LEFT JOIN message_vectors v ON v.message_id = m.id AND v.model = ? "
            "WHERE m.id > ? AND m.id < ? AND v.message_id IS NULL "
            f"AND m.role IN {_ROLES} AND m.content <> '' ORDER BY m.id DESC LIMIT ?"
        )
        values = (TEXT_LIMIT, model.id, above, below, limit)
        return await self._database.read(lambda c: c.execute(query, values).fetchall())

    async def keep(self, model: VectorModel, found: Mapping[int, bytes]) -> None:
        """Keep vectors of messages; those of messages that are gone meanwhile are dropped."""
        rows = [(model.id, packed(vector), identity) for identity, vector in found.items()]

        def act(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "REPLACE INTO message_vectors (message_id, owner, model, vector) "
                "SELECT id, owner, ?, ? FROM messages WHERE id = ?",
                rows,
            )

        await self._database.write(act, durable=False)

    async def known_notes(self, model: VectorModel, uid: int) -> dict[str, tuple[int, int]]:
        """Return the notes of a person that have a vector: as they were then, by file name."""
        query = "SELECT file, size, modified_ns FROM note_vectors WHERE owner = ? AND model = ?"
        rows = await self._database.read(lambda c: c.execute(query, (uid, model.id)).fetchall())
        return {file: (size, modified_ns) for file, size, modified_ns in rows}

    async def noted(self) -> dict[int, dict[str, tuple[int, int]]]:
        """Return what `known_notes` does of every person, whatever the model."""
        query = "SELECT owner, file, size, modified_ns FROM note_vectors"
        found: dict[int, dict[str, tuple[int, int]]] = {}
        for owner, file, size, modified_ns in await self._database.read(
            lambda c: c.execute(query).fetchall()
        ):
            found.setdefault(owner, {})[file] = (size, modified_ns)
        return found

    async def forget_notes(self, uid: int, files: Sequence[str]) -> None:
        """Delete the vectors of notes that are gone."""
        rows = [(uid, file) for file in files]
        query = "DELETE FROM note_vectors WHERE owner = ? AND file = ?"
        await self._database.write(lambda c: c.executemany(query, rows).rowcount)

    async def keep_known_note(self, model: VectorModel, uid: int, note: Note) -> bool:
        """Give a note the vector that the same text has already; return whether there is one."""
        row = (uid, note.file, note.size, note.modified_ns, note.hash, model.id)
        query = (
            "REPLACE INTO note_vectors (owner, file, hash, size, modified_ns, model, vector) "
            "SELECT ?, ?, hash, ?, ?, model, vector FROM note_vectors "
            "WHERE hash = ? AND model = ? LIMIT 1"
        )
        return bool(await self._database.write(lambda c: c.execute(query, row).rowcount))

    async def keep_note(self, model: VectorModel, uid: int, note: Note, vector: bytes) -> None:
        """Keep the vector of a note in place of the one it had."""
        row = (uid, note.file, note.hash, note.size, note.modified_ns, model.id, packed(vector))
        query = (
            "REPLACE INTO note_vectors (owner, file, hash, size, modified_ns, model, vector) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)"
        )
        await self._database.write(lambda c: c.execute(query, row).rowcount, durable=False)

    async def counts(self, *, owner: int | None) -> Counted:
        """Return how far it is; an owner of None counts everybody's."""
        mine = "(:owner IS NULL OR owner = :owner)"

        def act(connection: sqlite3.Connection) -> Counted:
            indexed, wanted = (
                int(connection.execute(query, {"owner": owner}).fetchone()[0])
                for query in (
                    f"SELECT count(*) FROM message_vectors WHERE {mine}",  # noqa: S608
                    f"SELECT count(*) FROM messages WHERE {mine} "  # noqa: S608
                    f"AND role IN {_ROLES} AND content <> ''",
                )
            )
            return Counted(indexed=indexed, wanted=wanted)

        return await self._database.read(act)


def fused(rankings: Sequence[Mapping[T, float]]) -> list[T]:
    """Return what stands in any of the rankings, best first, by reciprocal ranks.

    Args:
        rankings: each best first, with what a place in it counts: 1.0 as a rule. Of two that
            are equally good the one of the earlier ranking comes first.
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for place, (each, counts) in enumerate(ranking.items()):
            scores[each] = scores.get(each, 0.0) + counts / (RANK_BASE + 1 + place)
    return sorted(scores, key=lambda each: -scores[each])


def near_messages(
    connection: sqlite3.Connection, asked: QuestionVector, owner: int | None
) -> list[int]:
    """Return the ids of the messages that are near a question, nearest first, then newest."""
    scored: list[tuple[float, int]] = []
    rows = connection.execute(
        "SELECT message_id, vector FROM message_vectors "
        "WHERE model = ? AND (? IS NULL OR owner = ?) AND length(vector) = ?",
        (asked.model.id, owner, owner, _kept(asked.model.size).itemsize),
    )
    while block := rows.fetchmany(_BLOCK):
        scores = _likeness(asked, [vector for _, vector in block])
        near = np.flatnonzero(scores >= asked.model.least)
        scored += [(float(scores[at]), block[at][0]) for at in near]
    return [identity for _, identity in sorted(scored, reverse=True)]


def model_of(connection: sqlite3.Connection, identity: str) -> VectorModel | None:
    """Return what is known of a model; None for one whose vectors are not here."""
    query = "SELECT id, size, least FROM embedding_models WHERE identity = ?"
    row = connection.execute(query, (identity,)).fetchone()
    return None if row is None else VectorModel(id=row[0], size=row[1], least=row[2])


def least_of(unrelated: Sequence[bytes]) -> float:
    """Return the cosine from which texts count as near, by vectors of texts that are not."""
    vectors = np.array([np.frombuffer(each, "<f4") for each in unrelated])
    likeness = vectors @ vectors.T
    pairs = likeness[np.triu_indices(len(vectors), k=1)]
    usual = float(pairs.mean()) if len(pairs) else 0.0
    return usual + CLEARLY * (1.0 - usual)


def packed(vector: bytes) -> bytes:
    """Return a float32 vector as it is kept; an empty one stays empty."""
    values = np.frombuffer(vector, "<f4")
    most = float(np.abs(values).max(initial=0.0))
    if not len(values) or not most:
        return b""
    steps = np.rint(values * (127.0 / most)).astype(np.int8)
    scale = 1.0 / np.linalg.norm(steps.astype(np.float32))
    return np.array([scale], "<f4").tobytes() + steps.tobytes()


def _kept(size: int) -> np.dtype[np.void]:
    """Return the form in which a vector of so many numbers is kept."""
    return np.dtype([("scale", "<f4"), ("steps", "i1", (size,))])


def _near_notes(connection: sqlite3.Connection, asked: QuestionVector, uid: int) -> list[Note]:
    rows = connection.execute(
        "SELECT file, size, modified_ns, vector FROM note_vectors "
        "WHERE model = ? AND owner = ? AND length(vector) = ?",
        (asked.model.id, uid, _kept(asked.model.size).itemsize),
    ).fetchall()
    if not rows:
        return []
    scores = _likeness(asked, [row[3] for row in rows])
    order = [at for at in np.argsort(-scores, kind="stable") if scores[at] >= asked.model.least]
    return [Note(file=rows[at][0], size=rows[at][1], modified_ns=rows[at][2]) for at in order]


def _likeness(asked: QuestionVector, vectors: Sequence[bytes]) -> npt.NDArray[np.float32]:
    rows = np.frombuffer(b"".join(vectors), _kept(asked.model.size))
    scores = rows["steps"].astype(np.float32) @ np.frombuffer(asked.vector, "<f4")
    return np.asarray(scores * rows["scale"], np.float32)
