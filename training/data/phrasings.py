"""Loads the phrasings of requests and turns one into a sentence."""

import random
import re
import tomllib
from dataclasses import dataclass
from functools import cache

from training.data.lists import WORDS

OPENINGS = [""] * 10 + [
    "please ",
    "can you ",
    "could you ",
    "hey, ",
    "I want you to ",
    "I need you to ",
    "would you ",
    "now ",
    "ok, ",
    "hi! ",
    "please can you ",
    "go ahead and ",
    "quickly ",
    "for me, ",
    "next, ",
]
CLOSINGS = [""] * 9 + [" please", ", please", " for me", " now", ", thanks", " thank you"]


@dataclass(frozen=True)
class Phrasings:
    """The ways to ask for one kind of thing, and how often it is asked."""

    known: list[str]
    unseen: list[str]
    share: float
    training_share: float


@dataclass(frozen=True)
class Topic:
    """Small talk and off-topic requests that get one fixed answer."""

    known: list[str]
    unseen: list[str]
    share: float
    answer: str


@cache
def request_kinds() -> dict[str, Phrasings]:
    """Returns the kinds of tool requests in the order of words/phrasings.toml."""
    tables = tomllib.loads((WORDS / "phrasings.toml").read_text("utf-8"))
    kinds = {}
    for name, table in tables.items():
        source = tables[table.get("like", name)]
        kinds[name] = Phrasings(
            known=source["known"],
            unseen=source["unseen"],
            share=table["share"],
            training_share=table["training_share"],
        )
    return kinds


@cache
def topics() -> list[Topic]:
    """Returns what can be said without a tool."""
    tables = tomllib.loads((WORDS / "smalltalk.toml").read_text("utf-8"))
    return [Topic(**table) for table in tables["topic"]]


@cache
def request_words() -> list[str]:
    """Returns the lower-case words of the known phrasings, for names that are easily confused."""
    texts = (text for kind in request_kinds().values() for text in kind.known)
    return sorted({word for text in texts for word in re.findall(r"\b[a-z]{2,9}\b", text)})


def expand(rng: random.Random, text: str) -> str:
    """Replaces each `[a|b]`, innermost first, by one of its choices."""
    while "[" in text:
        end = text.index("]")
        start = text.rindex("[", 0, end)
        text = text[:start] + rng.choice(text[start + 1 : end].split("|")) + text[end + 1 :]
    return text


def disturb(rng: random.Random, text: str, words: list[str]) -> str:
    """Now and then adds, swaps, drops or misspells a word that holds no slot."""
    if rng.random() >= 0.14:
        return text
    parts = text.split(" ")
    free = [index for index, part in enumerate(parts) if "{" not in part]
    if not free:
        return text
    index = rng.choice(free)
    chance = rng.random()
    if chance < 0.35:
        parts.insert(index, rng.choice(words))
    elif chance < 0.6 and len(free) > 2:
        parts[index] = rng.choice(words)
    elif chance < 0.75 and len(free) > 3:
        parts.pop(index)
    elif len(parts[index]) > 3:
        part = parts[index]
        at = rng.randrange(len(part) - 1)
        parts[index] = part[:at] + part[at + 1] + part[at] + part[at + 2 :]
    return " ".join(parts)
