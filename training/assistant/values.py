"""Makes what fills the slots of phrasings: as a person writes it, and as the call carries it.

The texts, names, paths, commands and sums are those of the toy's generator, with what it lacks:
blanks and umlauts in paths, names of real projects, German, several lines, code, patterns, page
ranges, numbers in words. Hardly any of it can be guessed, it must be copied.
"""

import random
import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from training.data.arguments import Arguments
from training.data.lists import (
    COMMANDS,
    DAYS,
    DIRECTORIES,
    EXTENSIONS,
    FILE_STEMS,
    PEOPLE,
    WORDS,
    side,
)
from training.data.phrasings import request_words

_KNOWN_COMMANDS = [
    "git push", "git pull", "git fetch", "git stash", "git diff", "git branch -a", "git add .",
    "npm test", "npm start", "npm run build", "pytest -x", "cargo build", "cargo test", "make test",
    "make install", "docker ps", "docker images", "docker compose up", "pip list", "pip freeze",
    "ls -lh", "ps aux", "df -h", "du -sh .", "free -m", "uname -r", "crontab -l", "ip addr",
    "systemctl --failed", "journalctl -n 20", "ping -c 3 localhost", "go build ./...",
    "pytest -q", "pytest", "make build", "make", "git status", "git tag", "docker ps -a", "ls -la",
]  # fmt: skip
_NO_TEXTS = ["pdf", "png", "jpg", "zip", "docx", "tar.gz", "mp3", "bak", "tmp", "db", "xlsx", "old"]
QUOTES = "\"'`"
_QUOTE_MARKS = ['""', "''", "``", "„“", "“”", "»«", "‘’"]
_NUMBER_WORDS = {
    "en": "one two three four five six seven eight nine ten eleven twelve",
    "de": "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
}
_LINE_COUNTS = {
    "en": {
        "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, "ten": 10, "twelve": 12,
        "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "hundred": 100,
    },
    "de": {
        "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "acht": 8, "zehn": 10, "zwölf": 12,
        "fünfzehn": 15, "zwanzig": 20, "dreißig": 30, "vierzig": 40, "fünfzig": 50, "hundert": 100,
    },
}  # fmt: skip
_CURRENCIES = {
    "en": ["{}", "{}", "${}", "€{}", "{} euros", "{} dollars", "{}€", "£{}", "{} bucks"],
    "de": ["{}", "{} Euro", "{} €", "{}€"],
}
_WELL_KNOWN = [
    ("readme", "README.md"), ("README", "README.md"), ("readme file", "README.md"),
    ("makefile", "Makefile"), ("Makefile", "Makefile"), ("dockerfile", "Dockerfile"),
    ("changelog", "CHANGELOG.md"), ("license", "LICENSE"), ("license file", "LICENSE"),
    ("gitignore", ".gitignore"), ("package json", "package.json"), ("cargo toml", "Cargo.toml"),
    ("pyproject", "pyproject.toml"), ("docker compose file", "docker-compose.yml"),
]  # fmt: skip
_WELL_KNOWN_FOLDERS = {
    "en": [
        ("my home folder", "~"), ("my home directory", "~"), ("my home dir", "~"),
        ("the parent folder", ".."), ("the parent directory", ".."), ("the folder above", ".."),
        ("the root directory", "/"), ("the tmp directory", "/tmp"),
    ],
    "de": [
        ("meinem Home-Verzeichnis", "~"), ("meinem Home-Ordner", "~"),
        ("dem übergeordneten Ordner", ".."), ("dem Ordner darüber", ".."),
        ("dem Wurzelverzeichnis", "/"), ("dem tmp-Verzeichnis", "/tmp"),
    ],
}  # fmt: skip
_PERCENTS = [5, 7, 10, 12, 15, 19, 20, 21, 25, 30, 40, 50, 60, 75, 80, 90]
_ORDINALS = {"en": "first second third fourth fifth", "de": "erste zweite dritte vierte fünfte"}
_SETTINGS = [
    "port", "timeout", "retries", "version", "max_size", "workers", "threads", "level", "limit",
    "batch_size", "interval", "depth", "width", "height", "margin", "max_users", "ttl", "seed",
    "page_size", "quota", "delay", "volume", "zoom", "font_size", "year", "price", "budget",
]  # fmt: skip


@dataclass(frozen=True)
class Value:
    """What stands in a slot.

    Attributes:
        shown: as the request has it.
        sent: as the call has it.
        open_end: it may hold anything, so nothing can follow it without quotes.
    """

    shown: str
    sent: Any
    open_end: bool = False


@cache
def german() -> dict[str, list[str]]:
    """Return the German word lists."""
    return tomllib.loads((WORDS / "assistant_german.toml").read_text("utf-8"))


@cache
def real(held_out: bool) -> dict[str, list[Any]]:
    """Return one side of what real projects have: names, edits, lines."""
    lists = tomllib.loads((WORDS / "assistant_values.toml").read_text("utf-8"))
    return {name: side(items, held_out=held_out) for name, items in lists.items()}


class Values:
    """A factory of values for one stream of conversations."""

    def __init__(self, rng: random.Random, *, held_out: bool) -> None:
        self._rng = rng
        self._real = real(held_out)
        self._currency = {"en": "{}", "de": "{}"}
        self.make = Arguments(rng, request_words(), held_out=held_out)

    def all(self, slots: Iterable[str], language: str) -> dict[str, Value]:
        """Return values for slots; what must differ or belong together does."""
        rng = self._rng
        self._currency = {key: rng.choice(marks) for key, marks in _CURRENCIES.items()}
        filled = {name: self.of(name, language) for name in sorted(set(slots))}
        if {"A", "A2"} <= set(filled):
            pairs = self._real["edits"] + self._real["typos"]
            old, new = rng.choice(pairs) if rng.random() < 0.5 else ("", "")
            while old == new:
                old, new = self._a(language).sent, self._a(language).sent
            filled |= {"A": self._edited(old), "A2": self._edited(new)}
        if "LB" in filled:
            last = filled["LA"].sent + rng.choice([1, 1, 2, 3, 5, rng.randint(2, 40)])
            filled["LB"] = Value(str(last), last)
        if "TZ" in filled:
            wrong, right = rng.choice(self._real["typos"])
            filled |= {"TY": self._edited(wrong), "TZ": Value(right, right)}
        if {"LB", "LC"} <= set(filled):
            count = filled["LB"].sent - filled["LA"].sent + 1
            filled["LC"] = Value(str(count), count)
        if "TB" in filled or "TN" in filled:
            filled |= self._table(language)
        if "OL" in filled:
            filled |= self._items(language)
        for name, other in (
            ("N", "NO"), ("W", "W2"), ("P", "P2"), ("PD", "PD2"), ("G", "G2"),
            ("P2", "P3"), ("P", "P3"), ("SK", "SK2"), ("H", "H2"), ("R", "R2"), ("I", "I2"),
            ("W3", "W4"), ("W", "W3"), ("XB", "XB2"), ("PY", "P"), ("XV", "XV2"), ("U", "U2"),
            ("H", "D"), ("H2", "D"),
        ):  # fmt: skip
            while {name, other} <= set(filled) and filled[name].sent == filled[other].sent:
                filled[other] = self.of(other, language)
        return filled

    def _edited(self, text: str) -> Value:
        return self._quoted(text, 0.35 if text.isalnum() else 0.85)

    def _one_of(self, key: str, language: str) -> Any:
        """Return an entry of a real list, mostly of the German one where German is spoken."""
        if language == "de" and self._rng.random() < 0.75:
            key += "_de"
        return self._rng.choice(self._real[key])

    def of(self, slot: str, language: str) -> Value:
        """Return a value for a slot such as `P` or `P2`: its letters say of which sort."""
        return getattr(self, "_" + slot.rstrip("0123456789").lower())(language)

    # files

    def path(self) -> str:
        """Return a path, now and then with blanks or umlauts."""
        rng = self._rng
        chance = rng.random()
        if chance < 0.2:
            return self._plain_file()
        if chance < 0.4:
            return rng.choice(self._real["names"])
        if chance < 0.5:
            return str(rng.choice(self._real["paths"]))
        if chance < 0.65:
            return f"{self.folder().rstrip('/')}/{rng.choice(self._real['names'])}"
        if chance < 0.88:
            return self.make.path()
        stem = self._blank_name() if chance < 0.95 else rng.choice(german()["umlaut_names"])
        name = stem + "." + rng.choice(EXTENSIONS)
        return name if rng.random() < 0.6 else self.folder().rstrip("/") + "/" + name

    def _plain_file(self) -> str:
        """Return a short name as people give them."""
        rng, make = self._rng, self.make
        name = rng.choice([make.noun, lambda: rng.choice(FILE_STEMS), make.word])()
        return f"{name}.{rng.choice(EXTENSIONS)}"

    def _blank_name(self) -> str:
        rng, make = self._rng, self.make
        return rng.choice(
            [
                f"{make.word()} {make.word()}",
                f"{make.noun()} {rng.randint(1, 2030)}",
                f"My {make.noun()}",
                f"{make.word()} {make.word()} {make.noun()}",
                f"{make.noun().capitalize()} {make.noun().capitalize()}",
                f"{make.word()} ({rng.randint(1, 9)})",
            ]
        )

    def folder(self) -> str:
        rng = self._rng
        chance = rng.random()
        if chance < 0.25:
            return rng.choice([self.make.noun, lambda: rng.choice(DIRECTORIES)])()
        if chance < 0.4:
            return str(rng.choice(self._real["folders"]))
        if chance < 0.5:
            return f"{rng.choice(self._real['folders'])}/{rng.choice(self._real['folders'])}"
        if chance < 0.93:
            return self.make.directory()
        return self._blank_name() if chance < 0.97 else rng.choice(german()["umlaut_names"])

    def _p(self, _language: str) -> Value:
        return self._named(self.path())

    def _pd(self, _language: str) -> Value:
        """A file of any sort, also one that is no text."""
        path = self.path()
        if self._rng.random() < 0.45:
            stem = path.rpartition(".")[0] or path
            path = f"{stem}.{self._rng.choice(_NO_TEXTS)}"
        return self._named(path)

    def _d(self, _language: str) -> Value:
        return self._named(self.folder())

    def _f(self, _language: str) -> Value:
        return self._named(
            self._rng.choice(
                [
                    self._plain_file,
                    self.make.file_name,
                    lambda: self._rng.choice(self._real["names"]),
                ]
            )()
        )

    def _h(self, _language: str) -> Value:
        """A plain folder, as `the src folder`."""
        rng = self._rng
        name = rng.choice(
            [rng.choice(DIRECTORIES), self.make.name(), rng.choice(self._real["folders"])]
        )
        return Value(name, name)

    def _ending_in(self, extension: str) -> Value:
        rng = self._rng
        stem = rng.choice([rng.choice(FILE_STEMS), self.make.word(), self.make.noun()])
        folder = self.folder().rstrip("/") + "/" if rng.random() < 0.25 else ""
        return self._named(f"{folder}{stem}.{extension}")

    def _wf(self, _language: str) -> Value:
        """A file that is called by what it is, as the readme."""
        return Value(*self._rng.choice(_WELL_KNOWN))

    def _wd(self, language: str) -> Value:
        """A folder that is called by where it is, as the parent folder."""
        return Value(*self._rng.choice(_WELL_KNOWN_FOLDERS[language]))

    def _cv(self, _language: str) -> Value:
        """A file with a table."""
        return self._ending_in(self._rng.choice(["csv", "csv", "csv", "md", "txt", "tsv"]))

    def _tx(self, _language: str) -> Value:
        """A file with a list."""
        return self._ending_in(self._rng.choice(["txt", "txt", "md", "md", "list"]))

    def _py(self, _language: str) -> Value:
        return self._ending_in("py")

    def _sh(self, _language: str) -> Value:
        return self._ending_in("sh")

    def _js(self, _language: str) -> Value:
        return self._ending_in("json")

    def _md(self, _language: str) -> Value:
        return self._ending_in("md")

    def _named(self, name: str) -> Value:
        rng = self._rng
        must = " " in name
        free = [quote for quote in QUOTES if quote not in name]
        if free and (must or rng.random() < 0.15):
            quote = rng.choice(free)
            return Value(quote + name + quote, name)
        return Value(name, name)

    # texts

    def text(self, language: str) -> str:
        """Return one line of content."""
        rng = self._rng
        chance = rng.random()
        if rng.random() < 0.25:
            return str(self._one_of("lines", language))
        if language == "de" and chance < 0.7:
            text = self.german_sentence()
        elif chance < 0.45:
            text = self.everyday()
        else:
            text = self.make.text(may_be_code=True)
        if rng.random() < 0.06:
            text += rng.choice([" ", " ", ": ", ", "]) + self.precise()
        if rng.random() < 0.02:
            text = f"{text}. {self.everyday().capitalize()}."
        return text

    def precise(self) -> str:
        """Return something of which every character counts."""
        rng, make = self._rng, self.make
        day = f"{rng.randint(2020, 2035)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        return rng.choice(
            [
                f"{make.word()}@{make.word()}.{rng.choice(['com', 'org', 'de'])}",
                day,
                f"{rng.randint(1, 28)}.{rng.randint(1, 12)}.{rng.randint(2020, 2035)}",
                f"{rng.randint(0, 23)}:{rng.randint(0, 59):02d}",
                f"{rng.randint(1, 999)},{rng.randint(0, 99):02d} €",
                f"${rng.randint(1, 9999)}.{rng.randint(0, 99):02d}",
                f"v{rng.randint(0, 9)}.{rng.randint(0, 30)}.{rng.randint(0, 99)}",
                f"192.168.{rng.randint(0, 255)}.{rng.randint(1, 254)}",
                f"{make.word()[:3].upper()}-{rng.randint(2020, 2035)}-{rng.randint(0, 9999):04d}",
                f"{rng.getrandbits(32):08x}",
                f"+49 {rng.randint(30, 9999)} {rng.randint(10000, 9999999)}",
                f"{rng.randint(1, 100)} %",
                f"({make.word()})",
                f"#{make.word()}",
                f"{make.word()}_{make.word()}={rng.randint(0, 99)}",
                f"C:\\{make.word()}\\{make.word()}",
                make.url(),
                f"{make.word().capitalize()}{make.word().capitalize()}",
            ]
        )

    def everyday(self) -> str:
        """Return what people write down."""
        rng, make = self._rng, self.make
        noun, other, word = make.noun(), make.noun(), rng.choice(make.adjectives)
        verb, person, day = rng.choice(make.verbs), rng.choice(PEOPLE), rng.choice(DAYS)
        return rng.choice(
            [
                f"don't forget to {verb} the {noun}",
                f"we meet at {rng.randint(7, 22)}:{rng.randint(0, 59):02d} in the {noun}",
                f"{person}'s birthday is on {day}",
                f"the {noun} costs {rng.randint(1, 999)} euros",
                f"the code for the {noun} is {rng.randint(0, 9999):04d}",
                f"my favourite {noun} is the {word} one",
                f"{person} and {rng.choice(PEOPLE)} {verb} the {noun}",
                f"{noun}, {other}, {make.noun()}, {make.noun()}",
                f"- {noun}\n- {other}" if rng.random() < 0.2 else f"{noun} and {other}",
                f"I parked the car near the {noun}",
                f"the {noun} closes at {rng.randint(1, 12)} pm",
                f"the wifi password is {make.word()}-{make.word()}{rng.randint(1, 99)}",
                f"{verb} the {noun} before {day}",
                f"Dear {person}, thank you for the {noun}",
                f"{person} is allergic to {noun}",
                f"our {noun} broke on {day}",
                f"meeting with {person} on {day} at {rng.randint(8, 18)}:30",
                f"the {word} {noun} belongs to {person}",
                f"{rng.randint(2, 12)} {noun}s, {rng.randint(2, 12)} {other}s",
                f"Hello {make.word().capitalize()}!",
                f"this is a {word} test",
                f"call {person}: {rng.randint(100, 999)} {rng.randint(1000, 9999)}",
                f"the {noun} in {rng.choice(make.places)} is {word}",
                f"no {noun} without {other}",
            ]
        )

    def german_sentence(self) -> str:
        rng, lists = self._rng, german()

        def pick(key: str) -> str:
            return rng.choice(lists[key])

        noun, other = pick("nouns"), pick("nouns")
        return rng.choice(
            [
                f"{pick('articles')} {noun} ist {pick('adjectives')}",
                f"{noun} und {other}",
                f"{noun} {pick('verbs')}",
                f"{noun} für {rng.choice(PEOPLE)} {pick('verbs')}",
                f"{rng.choice(PEOPLE)} mag {noun}",
                f"{noun}, {other} und {pick('nouns')}",
                f"am {pick('days')} {noun} {pick('verbs')}",
                f"{noun}: {self.make.word()} {rng.randint(1, 999)}",
                f"die Nummer von {rng.choice(PEOPLE)} ist {rng.randint(100, 99999)}",
                f"{rng.choice(PEOPLE)} kommt um {rng.randint(7, 22)} Uhr",
                f"{rng.choice(PEOPLE)} wohnt in {pick('places')}",
                f"das Passwort lautet {self.make.word()}{rng.randint(1, 99)}",
            ]
        )

    def _x(self, language: str) -> Value:
        text = self.text(language)
        must = text[-1] in ".!?" or text[:1] in "#-<{" or "\n" in text
        return self._quoted(text, 1.0 if must else 0.55)

    def _quoted(self, text: str, chance: float) -> Value:
        rng = self._rng
        free = [marks for marks in _QUOTE_MARKS if not set(marks) & set(text)]
        if free and rng.random() < chance:
            marks = rng.choice([each for each in free if each in {'""', "''"}] * 4 + free)
            return Value(marks[0] + text + marks[-1], text)
        return Value(text, text, open_end=True)

    def _m(self, language: str) -> Value:
        """Several lines, as they stand or in a fence."""
        rng = self._rng
        count = rng.choice([2, 2, 2, 3, 3, 4])
        chance = rng.random()
        if chance < 0.4:
            mark = rng.choice(["- ", "* ", "1. ", ""])
            lines = [
                (f"{index + 1}. " if mark == "1. " else mark) + self.short(language)
                for index in range(count)
            ]
        elif chance < 0.7:
            lines = [self.make.code() for _ in range(count)]
        else:
            word = self.make.word
            lines = rng.choice(
                [
                    [f"def {word()}({word()}):", f"    return {word()} + {rng.randint(1, 99)}"],
                    [f"for {word()} in {word()}:", f"    print({word()})"],
                    [f"# {self.short(language)}", "", self.text(language)],
                    ["#!/bin/sh", f"echo {word()}", f"{word()} --{word()}"],
                    [f"{word()}:", f"  - {word()}", f"  - {word()}"],
                    [f"[{word()}]", f"{word()} = {rng.randint(1, 999)}"],
                    [f"{word()},{word()}", f"{word()},{rng.randint(1, 99)}"],
                    ["{", f'  "{word()}": "{word()}"', "}"],
                ]
            )
        text = "\n".join(lines)
        if rng.random() < 0.35:
            return Value(f"```{rng.choice(['', '', 'python', 'text'])}\n{text}\n```", text)
        return Value(text, text, open_end=True)

    def short(self, language: str) -> str:
        """Return two to four words."""
        if self._rng.random() < 0.25:
            return str(self._one_of("steps", language))
        if language == "de" and self._rng.random() < 0.7:
            return f"{self._rng.choice(german()['nouns'])} {self._rng.choice(german()['verbs'])}"
        return self._rng.choice([self.make.goal, lambda: self.make.words(1, 3)])()

    def subject(self, language: str) -> str:
        """Return what somebody works on: a thing or a person."""
        rng, noun = self._rng, self.make.noun()
        if language == "de":
            noun = rng.choice(german()["nouns"])
            return str(rng.choice([noun, rng.choice(PEOPLE)]))
        return str(rng.choice([f"the {noun}", f"my {noun}", f"our {noun}", rng.choice(PEOPLE)]))

    def _a(self, language: str) -> Value:
        """What an edit replaces, or puts in its place."""
        rng, make = self._rng, self.make
        chance = rng.random()
        if chance < 0.4:
            text = make.word()
        elif chance < 0.55:
            text = f"{make.word()} {rng.choice(['=', ':', '=='])} {rng.randint(0, 9999)}"
        elif chance < 0.7:
            text = make.fragment(2, 4)
        elif chance < 0.8:
            text = make.code()
        elif chance < 0.9:
            text = self.short(language)
        else:
            text = str(rng.randint(0, 9999))
        return self._edited(text)

    def _w(self, _language: str) -> Value:
        word = self.make.word()
        return Value(word, word)

    def _q(self, language: str) -> Value:
        if self._rng.random() < 0.25:
            text = str(self._one_of("queries", language))
        elif language == "de" and self._rng.random() < 0.7:
            text = self._german_query()
        else:
            text = self.make.query()
        return self._quoted(text, 0.12)

    def _german_query(self) -> str:
        rng, lists = self._rng, german()
        noun = rng.choice(lists["nouns"])
        return rng.choice(
            [
                noun,
                f"{noun} {rng.choice(lists['nouns'])}",
                f"{noun} in {rng.choice(lists['places'])}",
                f"{rng.choice(PEOPLE)} {noun}",
                f"{noun} {self.make.word()}",
            ]
        )

    def _k(self, language: str) -> Value:
        """Keywords that the request gives."""
        rng = self._rng
        words = [
            rng.choice(german()["nouns"])
            if language == "de" and rng.random() < 0.6
            else self.make.noun()
            for _ in range(rng.choice([1, 2, 2]))
        ]
        text = " ".join(dict.fromkeys(words))
        return self._quoted(text, 0.15)

    def _g(self, language: str) -> Value:
        """A step of a plan."""
        text = self.short(language)
        return self._quoted(text, 0.15)

    def _gm(self, language: str) -> Value:
        """The message of a commit."""
        chance = self._rng.random()
        text = self.short(language) if chance < 0.4 else self._rng.choice(self._real["messages"])
        return self._quoted(text, 0.5)

    def _pn(self, _language: str) -> Value:
        name = self._rng.choice([*PEOPLE, self.make.word().capitalize()])
        return Value(name, name)

    def _sk(self, _language: str) -> Value:
        """The name of a setting."""
        name = self._rng.choice(_SETTINGS) if self._rng.random() < 0.6 else self.make.word()
        return Value(name, name)

    def _se(self, _language: str) -> Value:
        """What stands between a setting and its value."""
        text = self._rng.choice([" = ", ": ", "="])
        return Value(text, text)

    # commands and numbers

    def _c(self, _language: str) -> Value:
        rng, make = self._rng, self.make
        chance = rng.random()
        if rng.random() < 0.35:
            text = str(rng.choice(self._real["commands"]))
        elif chance < 0.55:
            text = make.command()
        elif chance < 0.7:
            text = self._quoting_command()
        elif chance < 0.8:
            text = (
                f"{make.command()} | {rng.choice(['head', 'sort', 'wc -l', 'grep ' + make.word()])}"
            )
        elif chance < 0.9:
            program = rng.choice(["find", "rg", "du", "tar", "sed", "awk"])
            text = f"{program} -{make.word()} {make.path()}"
        else:
            text = f"{make.command()} && {make.command()}"
        if rng.random() < 0.3 and "`" not in text:
            return Value(f"`{text}`", text)
        return Value(text, text, open_end=True)

    def _cc(self, _language: str) -> Value:
        """A command that prints a file."""
        text = f"cat {shlex.quote(self.path())}"
        if self._rng.random() < 0.2:
            return Value(f"`{text}`", text)
        return Value(text, text, open_end=True)

    def _quoting_command(self) -> str:
        """Return a command with quotes, dollars and other signs that are easily lost."""
        rng, make = self._rng, self.make
        word, path, number = make.word(), make.path(), rng.randint(1, 9)
        return rng.choice(
            [
                f"awk '{{print ${number}}}' {path}",
                f'grep -E "^{word}|{make.word()}$" {path}',
                f"sed 's/{word}/{make.word()}/g' {path}",
                f'echo "{word} {make.word()}" >> {path}',
                f'find . -name "*.{rng.choice(EXTENSIONS)}" | xargs grep {word}',
                f"for f in *.{rng.choice(EXTENSIONS)}; do {word} $f; done",
                f"curl -s {make.url()} | jq .{word}",
                f"{word.upper()}={number} python3 {path}",
                f"cut -d: -f{number} {path} | sort -u",
                f"ls *.{rng.choice(EXTENSIONS)} 2>/dev/null",
                f"test -f {path} && echo {word}",
                f'printf "%s\\n" {word} {make.word()}',
                f"tar -czf {word}.tar.gz {make.directory()}",
                f"du -h --max-depth={number} | sort -h",
                f"echo $HOME/{word}",
                f"python3 -c 'print({number} * {rng.randint(2, 99)})'",
            ]
        )

    def _b(self, _language: str) -> Value:
        """A command that everybody knows for one, without a word that says so."""
        rng, make = self._rng, self.make
        text = rng.choice(
            [
                rng.choice([name for name in COMMANDS if " " in name]),
                rng.choice(_KNOWN_COMMANDS),
                rng.choice(_KNOWN_COMMANDS),
                rng.choice(_KNOWN_COMMANDS),
                f"git {rng.choice(['commit -m', 'stash push -m'])} '{make.words(1, 3)}'",
                f"git {rng.choice(['checkout', 'show', 'push origin', 'merge'])} {make.word()}",
                f"npm {rng.choice(['install', 'run'])} {make.word()}",
                f"pip install {make.word()}",
                f"python3 {make.path()}",
                f"mkdir -p {make.directory()}",
                f"docker run {make.word()}",
                f"make {make.word()}",
                f"grep -rn {make.word()} {make.directory()}",
                f"ls -la {make.directory()}",
                f"wc -l {make.path()}",
                f"tail -n {rng.randint(1, 99)} {make.path()}",
                f"chmod +x {make.path()}",
                f"echo {make.word()}",
                f"systemctl status {make.word()}",
            ]
        )
        return Value(text, text, open_end=True)

    def _u(self, _language: str) -> Value:
        url = self.make.url()
        return Value(url, url)

    def _e(self, language: str) -> Value:
        asked, sent = self.make.expression()
        if language == "de":
            for english, translated in (
                ("plus", "plus"),
                ("minus", "minus"),
                ("multiplied by", "mal"),
                ("times", "mal"),
                ("divided by", "geteilt durch"),
                ("over", "durch"),
            ):
                asked = asked.replace(f" {english} ", f" {translated} ")
        return Value(asked, sent, open_end=True)

    def _n(self, _language: str) -> Value:
        number = self._rng.choice(
            [self._rng.randint(1, 9), self._rng.randint(2, 60), self._rng.randint(10, 900)]
        )
        return Value(str(number), number)

    def _no(self, language: str) -> Value:
        return self._n(language)

    def _nm(self, language: str) -> Value:
        """A number in digits, in words, or with a mark between the thousands."""
        rng, chance = self._rng, self._rng.random()
        if chance < 0.22:
            number = rng.randint(2, 12)
            return Value(_NUMBER_WORDS[language].split()[number - 1], number)
        if chance < 0.27:
            number = rng.randint(1000, 99999)
            text = f"{number:,}"
            return Value(text.replace(",", ".") if language == "de" else text, number)
        number = rng.choice(
            [rng.randint(2, 12), rng.randint(2, 99), rng.randint(2, 600), rng.randint(10, 2500)]
        )
        return Value(str(number), number)

    def _mo(self, language: str) -> Value:
        """A price, or another number with a fraction."""
        rng = self._rng
        cents = rng.choice(["99", "50", "95", "49", "25", f"{rng.randint(1, 99):02d}"])
        sent = (
            f"{rng.choice([rng.randint(0, 9), rng.randint(1, 99), rng.randint(10, 999)])}.{cents}"
        )
        if rng.random() < 0.2:
            sent = str(rng.randint(2, 990))
        told = sent.replace(".", ",") if language == "de" and rng.random() < 0.85 else sent
        return Value(self._currency[language].format(told), sent)

    def _ft(self, language: str) -> Value:
        """A number that may have a fraction, without a unit."""
        rng = self._rng
        sent = rng.choice([str(rng.randint(1, 300)), f"{rng.randint(0, 90)}.{rng.randint(1, 9)}"])
        return Value(sent.replace(".", ",") if language == "de" else sent, sent)

    def _nl(self, language: str) -> Value:
        """A number of lines, in digits or in words."""
        rng = self._rng
        if rng.random() < 0.35:
            words = _LINE_COUNTS[language]
            text = rng.choice(list(words))
            return Value(text, words[text])
        number = rng.choice([rng.randint(2, 12), 10, 20, 50, 100, rng.randint(2, 60)])
        return Value(str(number), number)

    def _nc(self, language: str) -> Value:
        """A small number, in digits or in words."""
        number = self._rng.randint(2, 9)
        word = _NUMBER_WORDS[language].split()[number - 1]
        return Value(word if self._rng.random() < 0.4 else str(number), number)

    def _pc(self, language: str) -> Value:
        """How many percent: mostly a common share, seldom with a fraction."""
        rng = self._rng
        sent = str(rng.choice([rng.choice(_PERCENTS), rng.randint(1, 99), rng.randint(1, 130)]))
        if rng.random() < 0.12:
            sent = f"{rng.randint(0, 19)}.{rng.choice(['5', '25', '75'])}"
        return Value(sent.replace(".", ",") if language == "de" else sent, sent)

    def _la(self, _language: str) -> Value:
        number = self._rng.choice(
            [self._rng.randint(1, 9), self._rng.randint(2, 90), self._rng.randint(10, 900)]
        )
        return Value(str(number), number)

    def _lc(self, language: str) -> Value:
        return self._n(language)

    # what a file holds, and what is asked of it

    def _tb(self, language: str) -> Value:
        return self._x(language)

    def _ol(self, language: str) -> Value:
        return self._x(language)

    def _table(self, language: str) -> dict[str, Value]:
        """Return a table, the name of one of its rows, of a column, and what stands there."""
        rng = self._rng
        key = "tables_de" if language == "de" and rng.random() < 0.75 else "tables"
        head, names, *columns = rng.choice(self._real[key])
        rows = rng.sample(names, rng.choice([2, 3, 3, 4]))
        cells = [rng.sample(column, len(rows)) for column in columns]
        row, column = rng.randrange(len(rows)), rng.randrange(len(columns))
        lines = [
            head,
            *([name, *(each[index] for each in cells)] for index, name in enumerate(rows)),
        ]
        mark = rng.choice([",", ",", ";", "\t", " | "])
        texts = [mark.join(line) for line in lines]
        if mark == " | ":
            texts = [f"| {text} |" for text in texts]
            texts.insert(1, "|---" * len(head) + "|")
        at = row + len(texts) - len(rows)
        fresh = rng.choice([each for each in columns[column] if each != cells[column][row]])
        changed = [*lines[row + 1]]
        changed[column + 1] = fresh
        line = mark.join(changed)
        other_row, other_column = (row + 1) % len(rows), (column + 1) % len(columns)
        known = {
            "TR": rows[row],
            "TC": head[column + 1],
            "TV": cells[column][row],
            "TL": texts[at],  # the row as it stands, and with another value
            "TM": f"| {line} |" if mark == " | " else line,
            "TF": fresh,
            "TQ": head[other_column + 1],  # another column, another row, and their values
            "TE": cells[other_column][row],
            "TO": rows[other_row],
            "TG": cells[column][other_row],
        }
        shown = {name: Value(text, text) for name, text in known.items()}
        without = [text for index, text in enumerate(texts) if index != at]
        return {
            **shown,
            "TB": Value("", "\n".join(texts)),
            "TN": Value("", "\n".join(without)),
            "TI": Value(str(at + 1), at + 1),
        }

    def _tr(self, language: str) -> Value:
        return self._w(language)

    def _tc(self, language: str) -> Value:
        return self._w(language)

    def _tv(self, language: str) -> Value:
        return self._w(language)

    def _items(self, language: str) -> dict[str, Value]:
        """Return a list of lines, which of them is meant, and that one."""
        rng = self._rng
        items: list[str] = []
        while len(items) < 3 or (rng.random() < 0.3 and len(items) < 5):
            items = list(dict.fromkeys([*items, self.short(language)]))
        mark = rng.choice(["- ", "* ", "", "- [ ] "])
        at = rng.randrange(len(items))
        place = _ORDINALS[language].split()[at]
        if rng.random() < 0.25:
            at, place = len(items) - 1, {"en": "last", "de": "letzte"}[language]
        return {
            "OL": Value("", "\n".join(mark + item for item in items)),
            "OI": Value(place, place),
            "OV": Value(items[at], items[at]),
            "ON": Value(str(at + 1), at + 1),
        }

    def _oi(self, language: str) -> Value:
        return self._w(language)

    def _ov(self, language: str) -> Value:
        return self._w(language)

    def _on(self, language: str) -> Value:
        return self._n(language)

    def _tn(self, language: str) -> Value:
        return self._w(language)

    _tl = _tm = _tf = _tq = _te = _to = _tg = _ti = _tn

    def _xv(self, _language: str) -> Value:
        """A version."""
        rng = self._rng
        version = f"{rng.choice([0, 1, 2, rng.randint(3, 12)])}.{rng.randint(0, 30)}"
        if rng.random() < 0.8:
            version += f".{rng.randint(0, 20)}"
        if rng.random() < 0.15:
            version += rng.choice(["-rc1", "a1", "-beta", ".dev0"])
        return Value(version, version)

    def _dl(self, language: str) -> Value:
        """Some items, told in a row and written one to a line."""
        rng = self._rng
        count = rng.choice([2, 3, 3, 3, 4, 4, 5])
        items: list[str] = []
        while len(items) < count:
            item = self.make.noun() if rng.random() < 0.15 and language == "en" else ""
            item = item or self._one_of("items", language)
            items = list(dict.fromkeys([*items, item]))
        last = {"en": rng.choice([" and ", " and ", " and ", ", and ", ", "]), "de": " und "}
        end = last[language] if rng.random() < 0.85 else ", "
        told = ", ".join(items[:-1]) + end + items[-1]
        return Value(told, "\n".join(items))

    def _df(self, _language: str) -> Value:
        """The name of a file that is mostly empty or begins with a dot."""
        return self._named(str(self._rng.choice(self._real["dotted"])))

    def _lb(self, language: str) -> Value:
        return self._n(language)

    def _ty(self, language: str) -> Value:
        return self._a(language)

    def _tz(self, language: str) -> Value:
        return self._a(language)

    def _ns(self, _language: str) -> Value:
        number = self._rng.randint(2, 9)
        return Value(str(number), number)

    def _i(self, _language: str) -> Value:
        number = str(self._rng.randint(1, 12))
        return Value(number, number)

    def _j(self, _language: str) -> Value:
        name = f"job-{self._rng.randint(1, 40)}"
        return Value(name, name)

    # patterns

    def _l(self, _language: str) -> Value:
        """A pattern of names."""
        rng, make = self._rng, self.make
        extension = rng.choice(EXTENSIONS)
        text = rng.choice(
            [
                f"*.{extension}",
                f"*.{extension}",
                f"{make.word()}*.{extension}",
                f"*{make.word()}*",
                f"{make.directory().rstrip('/')}/**/*.{extension}",
                f"**/{make.word()}.{extension}",
                f"test_*.{extension}",
                f"*_{make.word()}.{extension}",
            ]
        )
        return self._named(text) if rng.random() < 0.5 else Value(text, text)

    def _t(self, _language: str) -> Value:
        """An ending of names."""
        extension = self._rng.choice([*EXTENSIONS, self.make.word()[:4]])
        return Value(extension, extension)

    def _r(self, _language: str) -> Value:
        """A text to be searched in files."""
        rng, make = self._rng, self.make
        chance = rng.random()
        if rng.random() < 0.3:
            text = str(rng.choice(self._real["patterns"]))
        elif chance < 0.35:
            text = make.word()
        elif chance < 0.5:
            text = f"{make.word()}_{make.word()}"
        elif chance < 0.6:
            text = rng.choice(
                [
                    "TODO",
                    "FIXME",
                    "XXX",
                    "import " + make.word(),
                    "class " + make.word().capitalize(),
                ]
            )
        elif chance < 0.7:
            text = f"def {make.word()}"
        elif chance < 0.85:
            text = make.words(2, 3)
        else:
            text = make.fragment(2, 4)
        return self._quoted(text, 0.45 if " " not in text else 0.75)

    def _o(self, _language: str) -> Value:
        """A piece of Python."""
        rng, word = self._rng, self.make.word
        low, high = rng.randint(1, 50), rng.randint(60, 9999)
        text = rng.choice(
            [
                f"sum(range({low}, {high}))",
                f"len('{word()}')",
                f"'{word()}'.upper()",
                f"sorted('{word()}')",
                f"[x * {low} for x in range({rng.randint(3, 30)})]",
                f"print({low} ** {rng.randint(2, 9)})",
                f"max({low}, {high}, {rng.randint(1, 99)})",
                f"'{word()}'[::-1]",
                f"sum(x * x for x in range({high}))",
                f"print('{word()}' * {rng.randint(2, 9)})",
                f"import math; math.sqrt({high})",
                f"hex({high})",
                f"round({high} / {low}, {rng.randint(1, 4)})",
                f"'{word()} {word()}'.split()",
            ]
        )
        if rng.random() < 0.25:
            return Value(f"`{text}`", text)
        return Value(text, text, open_end=True)

    # documents

    def _z(self, _language: str) -> Value:
        rng = self._rng
        if rng.random() < 0.3:
            host = f"{self.make.word()}.{rng.choice(['com', 'org', 'de'])}"
            url = f"https://{host}/{self.make.name()}.pdf"
            return Value(url, url)
        stem = self._blank_name() if rng.random() < 0.1 else self.make.name()
        name = stem + ".pdf"
        return self._named(name if rng.random() < 0.6 else self.folder().rstrip("/") + "/" + name)

    def _y(self, _language: str) -> Value:
        """Pages of a document."""
        first = self._rng.randint(1, 60)
        text = (
            str(first)
            if self._rng.random() < 0.4
            else f"{first}-{first + self._rng.randint(1, 20)}"
        )
        return Value(text, text)

    def _s(self, language: str) -> Value:
        """Markdown that is to be a page."""
        text = f"# {self.short(language)}"
        if self._rng.random() < 0.6:
            text += "\n\n" + self.text(language)
        return Value(text, text, open_end=True)

    def _mm(self, _language: str) -> Value:
        """A small diagram."""
        word = self.make.word
        kind = self._rng.choice(["graph TD", "graph LR", "flowchart LR"])
        text = f"{kind}; {word()}-->{word()}"
        return Value(text, text, open_end=True)

    def _v(self, language: str) -> Value:
        """What the user is to be asked: told of in the request, asked in the call."""
        rng, make = self._rng, self.make
        if rng.random() < 0.4:
            told, asked = rng.choice(
                self._real["questions_de" if language == "de" else "questions"]
            )
            return Value(told, asked, open_end=True)
        if language == "de":
            noun, word = rng.choice(german()["nouns"]), rng.choice(german()["adjectives"])
            told, asked = rng.choice(
                [
                    (f"ob {noun} {word} ist", f"Ist {noun} {word}?"),
                    (f"wo {noun} ist", f"Wo ist {noun}?"),
                    (f"ob ich {noun} mag", f"Magst du {noun}?"),
                    (f"welche Farbe {noun} hat", f"Welche Farbe hat {noun}?"),
                ]
            )
            return Value(told, asked, open_end=True)
        noun, word, person = make.noun(), rng.choice(make.adjectives), rng.choice(PEOPLE)
        told, asked = rng.choice(
            [
                (f"which {noun} I want", f"Which {noun} do you want?"),
                (f"whether the {noun} is {word}", f"Is the {noun} {word}?"),
                (f"when {person} comes", f"When does {person} come?"),
                (f"what my {noun} is called", f"What is your {noun} called?"),
                (f"how many {noun}s I need", f"How many {noun}s do you need?"),
                (f"if I like {noun}", f"Do you like {noun}?"),
                (f"what colour the {noun} should be", f"What colour should the {noun} be?"),
                (f"where the {noun} is", f"Where is the {noun}?"),
            ]
        )
        return Value(told, asked, open_end=True)

    def _vd(self, language: str) -> Value:
        """A question as it is to be asked."""
        asked = self._v(language).sent
        return Value(asked, asked, open_end=True)

    # machines and branches

    def _xh(self, _language: str) -> Value:
        """A host, by name or by address."""
        rng, make = self._rng, self.make
        host = rng.choice(
            [
                f"192.168.{rng.randint(0, 254)}.{rng.randint(1, 254)}",
                f"10.0.{rng.randint(0, 9)}.{rng.randint(1, 254)}",
                f"{rng.choice([1, 8, 9])}.{rng.randint(0, 9)}.{rng.randint(0, 9)}.1",
                f"{make.word()}.{rng.choice(['com', 'org', 'de', 'local', 'net'])}",
                f"www.{make.word()}.{rng.choice(['com', 'org', 'de'])}",
                "localhost",
            ]
        )
        return Value(host, host)

    def _xb(self, _language: str) -> Value:
        """A branch as projects have them."""
        rng, make = self._rng, self.make
        kind = rng.choice(["feature", "feature", "fix", "bugfix", "release", "docs", "hotfix"])
        name = rng.choice(
            [
                f"{kind}/{make.word()}",
                f"{kind}/{make.word()}-{make.word()}",
                f"{make.word()}-{rng.randint(1, 400)}",
                make.word(),
                rng.choice(["main", "develop", "master"]),
            ]
        )
        return Value(name, name)

    def _xc(self, _language: str) -> Value:
        """A container."""
        rng, make = self._rng, self.make
        service = rng.choice(["db", "web", "api", "cache", "worker", "proxy"])
        name = rng.choice([f"{make.word()}-{service}-1", f"{make.word()}-{service}"])
        return Value(name, name)

    def _xp(self, _language: str) -> Value:
        """A program that runs."""
        known = ["firefox", "chrome", "node", "ffmpeg", "java", "nginx", "postgres", "vlc", "slack"]
        name = self.make.word() if self._rng.random() < 0.35 else self._rng.choice(known)
        return Value(name, name)

    def _xs(self, _language: str) -> Value:
        """A service of the machine."""
        known = ["nginx", "postgresql", "ssh", "docker", "cron", "mysql", "redis", "apache2"]
        name = self.make.word() if self._rng.random() < 0.35 else self._rng.choice(known)
        return Value(name, name)

    def _xa(self, _language: str) -> Value:
        """An archive by its name without an ending."""
        stem = self.make.word()
        ends = ["-backup", "-old", "_archive", "", f"-{self._rng.randint(2020, 2035)}"]
        name = stem + self._rng.choice(ends)
        return Value(name, name)
