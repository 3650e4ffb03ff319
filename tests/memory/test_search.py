"""Search: words, parts of words, one and two letters; ranked; only one's own."""

import asyncio

import pytest

from clawd.errors import InvalidRequestError, StorageError
from clawd.memory.search import (
    PER_CONVERSATION,
    Search,
    _Hits,
    _Watch,
    _Whose,
    snippet,
    split_query,
)
from clawd.memory.store import Memory
from tests.memory.samples import ANNA, BEN, begun
from tests.support.rows import each_row


async def _snippets(memory: Memory, query: str) -> list[str]:
    return [hit.snippet for hit in await memory.search.find(query, owner=ANNA)]


@each_row(
    "query",
    [
        "aardvark", "AARDVARK", "dvar", "DVAR", "ad", "aD", "k", "aardvark adapter",
        "adapter aardvark", "dvar dapt", "aard ad", "where is the aardvark", " aardvark ",
        "aardvark\0adapter", "aardvark aardvark",
    ],
 fresh=["memory"])  # fmt: skip
async def test_words_and_parts_and_letters_are_found_in_any_case(
    memory: Memory, query: str
) -> None:
    await begun(memory, "Aardvark adapter")
    await begun(memory, "zzz")
    assert await _snippets(memory, query) == ["Aardvark adapter"]


@each_row("query", ["zebra", "aardvarks", "dvr", "zz", "q", "ardv zq"], fresh=["memory"])
async def test_what_is_not_there_is_not_found(memory: Memory, query: str) -> None:
    await begun(memory, "Aardvark adapter")
    assert await _snippets(memory, query) == []


@each_row("query", ["", "   ", "\0", "\ud800"], fresh=["memory"])
async def test_an_empty_query_finds_nothing(memory: Memory, query: str) -> None:
    await begun(memory, "Aardvark adapter")
    assert await _snippets(memory, query) == []


@each_row(
    "query",
    ['"', '""', "*", "NEAR(", "a AND", "OR", "NOT x", "content:x", "^x", "'", "x'--", "(", "{x}"],
    fresh=["memory"],
)
async def test_operators_are_only_text(memory: Memory, query: str) -> None:
    await begun(memory, f"before {query} after")
    assert await _snippets(memory, query) == [f"before {query} after"]


@each_row(
    ("text", "query"),
    [
        ("C++ and x->y", "c++"), ("C++ and x->y", "->"), ("100% sure", "0%"), ("a_b", "_b"),
        ("back\\slash", "k\\"), ("Überraschung", "überr"), ("Überraschung", "ü"),
        ("Éclair", "é"), ("Éclair", "eclair"), ("日本語のテキスト", "本語の"), ("日本語", "本語"),
        ("Straße", "straße"), ("ЖУК", "жу"),
    ],
 fresh=["memory"])  # fmt: skip
async def test_signs_and_other_alphabets_are_found(memory: Memory, text: str, query: str) -> None:
    await begun(memory, text)
    await begun(memory, "nothing of it here")
    assert await _snippets(memory, query) == [text]


async def test_like_wildcards_are_only_text(memory: Memory) -> None:
    await begun(memory, "plain")
    for query in ("%", "_", "p%", "_l", "\\"):
        assert await _snippets(memory, query) == []


async def test_whole_words_come_before_parts_and_all_terms_before_some(memory: Memory) -> None:
    await begun(memory, "only the red one")
    await begun(memory, "the redness of the bluebird")
    await begun(memory, "red and blue")
    assert await _snippets(memory, "red blue") == [
        "red and blue",
        "the redness of the bluebird",
        "only the red one",
    ]


async def test_better_matches_come_first_and_then_newer_ones(memory: Memory) -> None:
    await begun(memory, "a walrus was seen among very many other animals of the sea")
    await begun(memory, "walrus one")
    await begun(memory, "walrus two")
    found = await _snippets(memory, "walrus")
    assert found[:2] == ["walrus two", "walrus one"]
    assert len(found) == 3


async def test_letters_find_the_newest_first(memory: Memory) -> None:
    for number in range(4):
        await begun(memory, f"walrus {number}")
    assert await _snippets(memory, "wa") == [f"walrus {n}" for n in (3, 2, 1, 0)]


async def test_a_hit_tells_where_it_stands(memory: Memory) -> None:
    made = await begun(memory, "zero", "Aardvark adapter", title="Parts")
    (hit,) = await memory.search.find("dvar", owner=ANNA)
    stored = (await memory.messages.history(made.id, owner=ANNA))[1]
    assert (hit.conversation_id, hit.title, hit.role) == (made.id, "Parts", "user")
    assert (hit.message_id, hit.timestamp) == (stored.id, stored.timestamp)


async def test_one_conversation_does_not_push_out_the_others(memory: Memory) -> None:
    await begun(memory, "walrus in another place")
    chatty = await begun(memory, *(f"walrus {n}" for n in range(30)))
    hits = await memory.search.find("walrus", owner=ANNA, limit=20)
    assert len(hits) == PER_CONVERSATION + 1
    assert sum(hit.conversation_id == chatty.id for hit in hits) == PER_CONVERSATION


async def test_the_limit_is_kept_and_checked(memory: Memory) -> None:
    await asyncio.gather(*(begun(memory, f"walrus {n}") for n in range(5)))
    assert len(await memory.search.find("walrus", owner=ANNA, limit=2)) == 2
    for limit in (0, 1001):
        with pytest.raises(InvalidRequestError, match="1 to 1000"):
            await memory.search.find("walrus", owner=ANNA, limit=limit)


@each_row("query", ["aardvark", "dvar", "ad", "the aardvark then"], fresh=["memory"])
async def test_nobody_finds_what_belongs_to_somebody_else(memory: Memory, query: str) -> None:
    hers = await begun(memory, "Aardvark adapter")
    his = await begun(memory, "Aardvark adapter", owner=BEN)

    async def found_by(owner: int | None) -> set[str]:
        return {hit.conversation_id for hit in await memory.search.find(query, owner=owner)}

    assert await found_by(ANNA) == {hers.id}
    assert await found_by(BEN) == {his.id}
    assert await found_by(4711) == set()
    assert await found_by(None) == {hers.id, his.id}


async def test_a_search_ends_at_its_limit_and_when_nobody_waits_for_it(memory: Memory) -> None:
    """There are three reading threads: a few endless searches would hold up all of the daemon."""
    for _ in range(10):
        await begun(memory, *("some words of a message" for _ in range(300)))
    slow = Search(memory._database, limit_s=0.0)
    with pytest.raises(InvalidRequestError, match="took over 0 s") as caught:
        await slow.find("zz", owner=ANNA)
    assert caught.value.hint == "Look for fewer and longer words."
    unwanted = _Watch(1e9)
    unwanted.is_unwanted = True
    whose = _Whose(owner=ANNA, made_by="")
    with pytest.raises(InvalidRequestError):
        await memory._database.read(lambda c: unwanted.over(c, _Hits(["zz"], whose, 10, ("", 0))))
    assert len(await memory.search.find("so", owner=ANNA, limit=30)) == 30


async def test_too_many_waiting_searches_are_refused(memory: Memory) -> None:
    await begun(memory, *("word " * 50 for _ in range(50)))
    answers = await asyncio.gather(
        *(memory.search.find("wo", owner=ANNA) for _ in range(300)), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, StorageError)]
    assert len(refused) == 300 - 256
    assert len(await memory.search.find("wo", owner=ANNA)) == PER_CONVERSATION


def test_a_snippet_is_one_short_line_around_the_match() -> None:
    text = "x " * 200 + "the\nAardvark\tadapter " + "y " * 200
    made = snippet(text, ["dvar"])
    assert "the Aardvark adapter" in made
    assert made.startswith("…")
    assert made.endswith("…")
    assert len(made) <= 162
    assert snippet("short", ["absent"]) == "short"


def test_long_queries_are_bounded() -> None:
    assert len(split_query(" ".join(f"t{n}" for n in range(100_000)))) == 16
