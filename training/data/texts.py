"""Makes what people say and write: words, queries, goals, statements, lines of content.

All are drawn so that the model must copy and cannot guess: real words, rare words, nonsense,
digits. All randomness comes from the generator handed in.
"""

import random
import re
import string

from training.data.corpus import corpus
from training.data.lists import (
    ADJECTIVES,
    DAYS,
    EXTENSIONS,
    FUNCTION_WORDS,
    NOUNS,
    PEOPLE,
    PLACES,
    STOP_WORDS,
    VERBS,
    side,
)


def keywords(text: str, limit: int = 2) -> str:
    """Returns the first words of a text that are not stop words, or `note` if all are."""
    found: list[str] = []
    for word in text.split():
        word = word.strip(".,:;!?'\"=()`")
        wanted = re.fullmatch(r"[A-Za-z0-9._+-]{1,32}", word) and word.lower() not in STOP_WORDS
        if wanted and word not in found:
            found.append(word)
    return " ".join(found[:limit]) or "note"


class Texts:
    """A factory of texts over one side of the word lists."""

    def __init__(self, rng: random.Random, *, held_out: bool) -> None:
        self._rng = rng
        self.words_list = corpus(held_out=held_out).words
        self._fragments = corpus(held_out=held_out).fragments
        self._nouns = side(NOUNS, held_out=held_out)
        self.verbs = side(VERBS, held_out=held_out)
        self.adjectives = side(ADJECTIVES, held_out=held_out)
        self._people = side(PEOPLE, held_out=held_out)
        self.places = side(PLACES, held_out=held_out)

    def word(self) -> str:
        """Returns a real word, a pronounceable invention, or plain letters."""
        rng = self._rng
        chance = rng.random()
        if chance < 0.80:
            return rng.choice(self.words_list)
        if chance < 0.93:
            return "".join(
                rng.choice("bcdfghklmnprstvz")
                + rng.choice("aeiou")
                + rng.choice(["", "n", "r", "s", "x", ""])
                for _ in range(rng.randint(1, 3))
            )
        return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(2, 6)))

    def noun(self) -> str:
        return self._rng.choice(self._nouns) if self._rng.random() < 0.8 else self.word()

    def words(self, low: int, high: int) -> str:
        rng = self._rng
        count = rng.randint(low, high)
        mixed = rng.random() < 0.5
        return " ".join(
            rng.choice(FUNCTION_WORDS)
            if mixed and index < count - 1 and rng.random() < 0.35
            else self.word()
            for index in range(count)
        )

    def fragment(self, low: int, high: int) -> str:
        """Returns some words in a row from a fragment of real English."""
        words = self._rng.choice(self._fragments).split(" ")
        count = min(len(words), self._rng.randint(low, high))
        start = self._rng.randint(0, len(words) - count)
        return " ".join(words[start : start + count]).strip(",")

    def query(self) -> str:
        """Returns what somebody would search for."""
        rng = self._rng
        chance = rng.random()
        if chance < 0.34:
            text = self._everyday_query()
        elif chance < 0.55:
            text = self.fragment(1, 5)
        else:
            text = self.words(1, 4)
        if rng.random() < 0.08:
            text += " " + str(rng.randint(1, 2030))
        return text[0].upper() + text[1:] if rng.random() < 0.08 else text

    def _everyday_query(self) -> str:
        rng, noun = self._rng, self.noun
        adjective, place, person = (
            rng.choice(self.adjectives),
            rng.choice(self.places),
            rng.choice(self._people),
        )
        return rng.choice(
            [
                f"the {noun()}",
                f"my {noun()}",
                f"our {noun()}",
                noun(),
                f"{noun()} {noun()}",
                f"{adjective} {noun()}",
                f"the {noun()} of my {noun()}",
                f"my {adjective} {noun()}",
                f"how to {rng.choice(self.verbs)} a {noun()}",
                f"best {noun()} in {place}",
                f"the best {noun()} for {noun()}",
                f"{noun()} in {place}",
                f"the {noun()} {noun()}",
                person,
                f"{person}'s {noun()}",
                f"{noun()} tutorial",
                f"the name of my {noun()}",
                f"cheap {noun()}s near {place}",
                f"python {noun()}",
                f"the weather in {place}",
                f"{self.word()}.{rng.choice(EXTENSIONS)} {noun()} {noun()}",
                f"{self.word()}.{rng.choice(EXTENSIONS)} {self.words(1, 2)}",
            ]
        )

    def goal(self) -> str:
        """Returns something to be done, as it would stand in a plan."""
        rng, noun = self._rng, self.noun
        chance = rng.random()
        if chance >= 0.6:
            return self.fragment(2, 5) if chance < 0.75 else self.words(1, 4)
        verb, adjective = rng.choice(self.verbs), rng.choice(self.adjectives)
        return rng.choice(
            [
                f"{verb} the {noun()}",
                f"{verb} my {noun()}",
                f"{verb} a {noun()} for {rng.choice(self._people)}",
                f"{verb} {noun()} and {noun()}",
                f"{verb} the {adjective} {noun()}",
                f"{verb} the {noun()} on {rng.choice(DAYS)}",
                f"{verb} {rng.choice(self._people)}",
                f"a {adjective} {noun()}",
                f"{verb} the {noun()}s",
            ]
        )

    def sentence(self) -> str:
        """Returns a small everyday statement without a full stop."""
        rng, noun = self._rng, self.noun
        adjective, person, day = (
            rng.choice(self.adjectives),
            rng.choice(self._people),
            rng.choice(DAYS),
        )
        verb, place = rng.choice(self.verbs), rng.choice(self.places)
        whose = rng.choice(["my", "the", "our", "your", "the"])
        return rng.choice(
            [
                f"{whose} {noun()} is {adjective}",
                f"{whose} {noun()} is called {person}",
                f"{whose} {noun()} is on {day} at {rng.randint(1, 12)}",
                f"{verb} the {noun()}",
                f"{verb} {noun()} and {noun()}",
                f"call {person} on {day}",
                f"{person} likes {noun()}",
                f"the {noun()} password is {self.word()}{rng.randint(1, 99)}",
                f"the {noun()} number is {self._digits()}",
                f"we need {rng.randint(2, 99)} {noun()}s",
                f"{whose} {noun()} has a {adjective} {noun()}",
                f"{person} lives in {place}",
                f"{noun()}, {noun()} and {noun()}",
                f"hello {noun()}",
                f"hello {person}",
                f"the {noun()} of {person} is {rng.randint(1, 2030)}",
                f"{whose} {noun()} is due on the {rng.randint(1, 28)} of {day}",
                f"dear {person}, the {noun()} is {adjective}",
                f"I {verb} the {noun()} in {place}",
                f"{noun()} to the {noun()}",
                f"a {noun()}, a {noun()} in the {noun()}",
                f"{verb} the {noun()}s",
            ]
        )

    def sentence_about(self, stem: str) -> str:
        """Returns a statement that shares a word with the name of the file it goes into."""
        rng = self._rng
        return rng.choice(
            [
                f"the {stem} is {rng.choice(self.adjectives)}",
                f"the {stem} of the {self.noun()} is {rng.choice(self.adjectives)}",
                f"my {stem}",
                f"{stem}: {self.sentence()}",
                f"{stem} for {self.noun()}",
                f"{self.sentence()} {stem}",
                f"this {stem} {self.fragment(2, 5)}",
                f"{stem} {self.words(1, 3)}",
            ]
        )

    def code(self) -> str:
        rng, word = self._rng, self.word
        return rng.choice(
            [
                f"print('{word()}')",
                f'print("{word()}")',
                f"{word()} = {rng.randint(0, 999)}",
                f"{word()}: {word()}",
                f"# {self.fragment(1, 4)}",
                f"- {self.sentence()}",
                f"import {word()}",
                f"{word().upper()}={word()}",
                f"{word()},{word()},{word()}",
                f"<h1>{word()}</h1>",
                f'{{"{word()}": {rng.randint(0, 99)}}}',
                str(rng.randint(0, 99999)),
                f"def {word()}(): pass",
            ]
        )

    def text(self, *, may_be_code: bool = False) -> str:
        """Returns one line of content: a statement, a fragment, or loose words."""
        rng = self._rng
        chance = rng.random()
        if may_be_code and chance < 0.12:
            return self.code()
        if chance < 0.42:
            text = self.sentence()
        elif chance < 0.68:
            text = self.fragment(2, 9)
        else:
            text = self._loose_words()
        if rng.random() < 0.25:
            text = text[0].upper() + text[1:]
        if may_be_code and rng.random() < 0.12:
            text += rng.choice("..!?")
        return text

    def _loose_words(self) -> str:
        rng = self._rng
        text = self.words(1, 7)
        chance = rng.random()
        if chance < 0.1:
            return f"{text} {self._digits()}"
        if chance < 0.18:
            words = text.split(" ")
            index = rng.randrange(len(words))
            words[index] += rng.choice([",", ":", " is", " ="])
            return " ".join(words) if index < len(words) - 1 else text
        if chance < 0.26:
            verb = rng.choice(["is", "=", "has", "was", "are", "needs", "likes"])
            return f"{self.word()} {verb} {text}"
        return text

    def _digits(self) -> str:
        """Returns a number of some length, at times with the repetitions that make copying loop."""
        rng = self._rng
        chance = rng.random()
        if chance < 0.6:
            return str(rng.randint(0, 99999))
        if chance < 0.85:
            return "".join(rng.choice(string.digits) for _ in range(rng.randint(5, 10)))
        return str(rng.randint(1, 99)) * rng.randint(2, 4)
