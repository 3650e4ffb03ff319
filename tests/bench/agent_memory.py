"""How long a search of memory takes: by words against the bare query of their index, by both ways
against by words.
"""

import asyncio
import importlib
import random
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from clawd.memory.rows import Conversation, NewMessage
from clawd.memory.store import Memory
from clawd.memory.vectors import UNRELATED, Embedder
from clawd.providers.base import Message
from tests.bench.report import quantile

OWNER = 1000
PER_CONVERSATION = 50
EMBEDDED = 256
LIMIT = 20

Samples = list[tuple[float, float]]


def text_words() -> list[str]:
    """Return the words of some hundred thousand characters of English: Python's own help."""
    topics = importlib.import_module("pydoc_data.topics").topics
    return re.findall(r"[A-Za-z][A-Za-z'-]*[.,;]?", " ".join(topics.values()))


def fragment(text: Sequence[str], rng: random.Random) -> str:
    """Return 8 to 60 words of the text as they stand."""
    length = rng.randint(8, 60)
    start = rng.randrange(len(text) - length)
    return " ".join(text[start : start + length])


async def search_pairs(folder: Path, messages: int, count: int) -> Samples:
    """Return milliseconds of our search and of the bare query, for so many queries."""
    path = folder / "memory.sqlite"
    memory = await Memory.open(path)
    try:
        await _fill(memory, messages)
        bare = sqlite3.connect(path)
        try:
            return await _measured(memory, bare, count)
        finally:
            bare.close()
    finally:
        await memory.close()


def percentiles(samples: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p95."""
    return quantile(samples, 0.5), quantile(samples, 0.95)


async def hybrid_pairs(folder: Path, messages: int, count: int, embedder: Embedder) -> Samples:
    """Return milliseconds of a search by words and meaning, and by words, for so many queries.

    A few hundred texts are embedded, and all messages share their vectors: what is compared is
    as much as if each had its own.
    """
    memory = await Memory.open(folder / "hybrid.sqlite")
    try:
        await _fill(memory, messages)
        vectors = memory.search_by_meaning(embedder)
        meaning = memory.search.meaning
        model = await vectors.adopt(await embedder.identity(), await embedder.vectors(UNRELATED))
        text, rng = text_words(), random.Random(11)
        shared: list[bytes] = []
        while len(shared) < min(EMBEDDED, messages):
            shared += await embedder.vectors([fragment(text, rng) for _ in range(16)])
        for start in range(1, messages + 1, 1000):
            some = range(start, min(start + 1000, messages + 1))
            await vectors.keep(model, {number: rng.choice(shared) for number in some})
        samples: Samples = []
        for query in queries(count):
            taken = []
            for way in (meaning, None):
                memory.search.meaning = way
                began = time.perf_counter()
                await memory.search.find(query, owner=OWNER, limit=LIMIT)
                taken.append(1000 * (time.perf_counter() - began))
            samples.append((taken[0], taken[1]))
        return samples
    finally:
        await memory.close()


async def _fill(memory: Memory, count: int) -> None:
    text, rng = text_words(), random.Random(7)
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
                    content=fragment(text, rng),
                )
            )
            for number in range(here)
        ]
        await memory.messages.append(record.id, rows, owner=OWNER, turn_id="turn-x")
        left -= here


async def _measured(memory: Memory, bare: sqlite3.Connection, count: int) -> Samples:
    samples: Samples = []
    for query in queries(count):
        began = time.perf_counter()
        await memory.search.find(query, owner=OWNER, limit=LIMIT)
        ours = time.perf_counter() - began
        await asyncio.sleep(0)
        began = time.perf_counter()
        _bare(bare, query)
        samples.append((1000 * ours, 1000 * (time.perf_counter() - began)))
    return samples


def queries(count: int) -> Iterator[str]:
    """Yield queries: one to three words of a place in the text, of five letters and more."""
    text, rng = text_words(), random.Random(5)
    while count:
        found = {word.strip(".,;").lower() for word in fragment(text, rng).split()}
        long = sorted(word for word in found if len(word) > 4 and word.isalpha())
        if long:
            count -= 1
            yield " ".join(rng.sample(long, min(len(long), rng.randint(1, 3))))


def _bare(connection: sqlite3.Connection, query: str) -> list[tuple[int, str]]:
    """Return what the index alone gives: the best ids and texts by bm25, no owner, no snippet."""
    match = " AND ".join(f'"{word}"' for word in query.split())
    return connection.execute(
        "SELECT m.id, m.content FROM messages_fts f JOIN messages m ON m.id = f.rowid "
        "WHERE messages_fts MATCH ? ORDER BY rank LIMIT ?",
        (match, LIMIT),
    ).fetchall()
