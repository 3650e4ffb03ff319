"""How long a search of 100,000 messages takes, against the bare query of its full-text index."""

import asyncio
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from clawd.memory.rows import Conversation, NewMessage
from clawd.memory.store import Memory
from clawd.providers.base import Message
from tests.bench.report import quantile

OWNER = 1000
PER_CONVERSATION = 50
LIMIT = 20

Samples = list[tuple[float, float]]

_SYLLABLES = ("ka", "lo", "mi", "ren", "tu", "sol", "ve", "dar", "ni", "pos", "gra", "el")


def words(count: int, seed: int = 11) -> list[str]:
    """Return invented words, the likeliest first: a few common ones, and many rare ones."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4)))] = None
    return list(found)


async def search_pairs(folder: Path, messages: int, queries: int) -> Samples:
    """Return milliseconds of our search and of the bare query, for each of the queries."""
    path = folder / "memory.sqlite"
    memory = await Memory.open(path)
    try:
        await _fill(memory, messages)
        bare = sqlite3.connect(path)
        try:
            return await _measured(memory, bare, queries)
        finally:
            bare.close()
    finally:
        await memory.close()


def percentiles(samples: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p95."""
    return quantile(samples, 0.5), quantile(samples, 0.95)


async def _fill(memory: Memory, count: int) -> None:
    vocabulary = words(5000)
    weights = [1 / (rank + 3) for rank in range(len(vocabulary))]
    rng = random.Random(7)
    left = count
    while left > 0:
        here = min(left, PER_CONVERSATION)
        record = await memory.conversations.create(
            Conversation(owner=OWNER, workspace="/tmp", provider="bench")
        )
        rows = [
            NewMessage(
                message=Message(
                    role="user" if number % 2 == 0 else "assistant",
                    content=" ".join(rng.choices(vocabulary, weights, k=rng.randint(8, 60))),
                )
            )
            for number in range(here)
        ]
        await memory.messages.append(record.id, rows, owner=OWNER, turn_id="turn-x")
        left -= here


async def _measured(memory: Memory, bare: sqlite3.Connection, queries: int) -> Samples:
    samples: Samples = []
    for query in _queries(queries):
        began = time.perf_counter()
        await memory.search.find(query, owner=OWNER, limit=LIMIT)
        ours = time.perf_counter() - began
        await asyncio.sleep(0)
        began = time.perf_counter()
        _bare(bare, query)
        samples.append((1000 * ours, 1000 * (time.perf_counter() - began)))
    return samples


def _queries(count: int) -> Iterator[str]:
    """Yield queries of one to three words, common and rare ones."""
    vocabulary = words(5000)
    rng = random.Random(5)
    for _ in range(count):
        picked = [vocabulary[int(rng.random() ** 2 * 2000)] for _ in range(rng.randint(1, 3))]
        yield " ".join(picked)


def _bare(connection: sqlite3.Connection, query: str) -> list[tuple[int, str]]:
    """Return what the index alone gives: the best ids and texts by bm25, no owner, no snippet."""
    match = " AND ".join(f'"{word}"' for word in query.split())
    return connection.execute(
        "SELECT m.id, m.content FROM messages_fts f JOIN messages m ON m.id = f.rowid "
        "WHERE messages_fts MATCH ? ORDER BY rank LIMIT ?",
        (match, LIMIT),
    ).fetchall()
