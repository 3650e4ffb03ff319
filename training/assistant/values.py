"""Makes what fills the slots of phrasings: as a person writes it, and as the call carries it.

The texts, names, paths, commands and sums are those of the toy's generator, with what it lacks:
blanks and umlauts in paths, names of real projects, German, several lines, code, patterns, page
ranges, numbers in words. Hardly any of it can be guessed, it must be copied.
"""

import base64
import random
import re
import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Any

from typing_extensions import override

from training.assistant.changes import GROUPED, Changes
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
_NO_LINES = {"pdf", "docx", "xlsx", "pptx", "mp3", "mp4", "zip", "png", "epub"}
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
_TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
}
_ROUND_NUMBERS = {
    "en": {
        "a hundred": 100, "two hundred": 200, "five hundred": 500, "a thousand": 1000,
        "two thousand": 2000, "ten thousand": 10000, "a million": 1000000, "2 million": 2000000,
        "nineteen": 19, "thirteen": 13, "one hundred and fifty": 150, "a dozen": 12,
        "fifteen": 15, "sixteen": 16, "eighteen": 18,
    },
    "de": {
        "hundert": 100, "zweihundert": 200, "fünfhundert": 500, "tausend": 1000,
        "zweitausend": 2000, "zehntausend": 10000, "eine Million": 1000000, "dreizehn": 13,
        "neunzehn": 19, "fünfzehn": 15, "sechzehn": 16, "achtzehn": 18, "hundertfünfzig": 150,
    },
}  # fmt: skip
_HALVES = {
    "en": {
        "one and a half": "1.5", "two and a half": "2.5", "three and a half": "3.5",
        "four and a half": "4.5", "1 1/2": "1.5", "2 1/2": "2.5", "1½": "1.5", "2½": "2.5",
    },
    "de": {
        "anderthalb": "1.5", "eineinhalb": "1.5", "zweieinhalb": "2.5", "dreieinhalb": "3.5",
        "viereinhalb": "4.5", "fünfeinhalb": "5.5", "1 1/2": "1.5", "2½": "2.5",
    },
}  # fmt: skip
_CURRENCIES = {
    "en": [
        "{}", "{}", "${}", "${}", "€{}", "{} euros", "{} dollars", "{}€", "£{}", "{} bucks",
        "{} EUR", "{} USD", "{} pounds", "{} francs", "CHF {}",
    ],
    "de": ["{}", "{} Euro", "{} Euro", "{} €", "{}€", "{} Franken", "{} EUR", "CHF {}"],
}  # fmt: skip
_SIGNS_IN_WORDS = {
    "en": ["times", "divided by", "plus", "minus"],
    "de": ["mal", "geteilt durch", "plus", "minus"],
}  # of * / + -
_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
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
_DIFFERENT = [
    ("N2", "NO2"),
    ("N", "NO"), ("W", "W2"), ("P", "P2"), ("PD", "PD2"), ("G", "G2"), ("PN", "PN2"), ("UN", "UN2"),
    ("I", "I2"), ("JL", "JL2"), ("P2", "P3"), ("P", "P3"), ("SK", "SK2"),
    ("H", "H2"), ("R", "R2"), ("W3", "W4"), ("W", "W3"), ("XB", "XB2"), ("PY", "P"), ("XV", "XV2"),
    ("U", "U2"), ("H", "D"), ("H2", "D"), ("T", "T2"), ("F", "F2"), ("FN", "FN2"),
]  # fmt: skip
_PERCENTS_IN_WORDS = {
    "en": {
        "five": 5, "ten": 10, "twelve": 12, "fifteen": 15, "twenty": 20, "twenty-five": 25,
        "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy-five": 75, "eighty": 80,
    },
    "de": {
        "fünf": 5, "zehn": 10, "zwölf": 12, "fünfzehn": 15, "zwanzig": 20, "neunzehn": 19,
        "dreißig": 30, "vierzig": 40, "fünfzig": 50, "sechzig": 60, "achtzig": 80,
    },
}  # fmt: skip
_PERCENTS = [5, 7, 10, 12, 15, 19, 20, 21, 25, 30, 40, 50, 60, 75, 80, 90]
_ORDINALS = {"en": "first second third fourth fifth", "de": "erste zweite dritte vierte fünfte"}
_MONTH_NAMES = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
]  # fmt: skip
_LANGUAGES = [
    ("Python", "py"), ("python", "py"), ("JavaScript", "js"), ("TypeScript", "ts"), ("Rust", "rs"),
    ("Go", "go"), ("Java", "java"), ("Ruby", "rb"), ("PHP", "php"), ("C", "c"), ("Kotlin", "kt"),
    ("Swift", "swift"), ("Lua", "lua"), ("SQL", "sql"), ("CSS", "css"), ("HTML", "html"),
]  # fmt: skip
_SWITCHES = [
    "debug", "verbose", "cache", "logging", "dark_mode", "autosave", "notifications", "ssl",
    "telemetry", "wrap_lines", "strict", "auto_update", "maintenance", "compression", "sound",
    "spellcheck", "use_proxy", "backups", "DEBUG", "hot_reload", "minify", "read_only", "tracing",
    "colors",
]  # fmt: skip
_SWITCHED = [("true", "false"), ("true", "false"), ("on", "off"), ("yes", "no"), ("True", "False")]
_SETTINGS = [
    "port", "timeout", "retries", "version", "max_size", "workers", "threads", "level", "limit",
    "batch_size", "interval", "depth", "width", "height", "margin", "max_users", "ttl", "seed",
    "page_size", "quota", "delay", "volume", "zoom", "font_size", "year", "price", "budget",
]  # fmt: skip


_ADDED_UP = frozenset(
    {
        "price",
        "stock",
        "population",
        "quantity",
        "salary",
        "kilos",
        "points",
        "Preis",
        "Menge",
        "Gehalt",
        "Einwohner",
        "Miete",
        "Strom",
        "Punkte",
        "Tore",
        "Kilo",
    }
)  # columns of tables


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


@cache
def vocabulary(held_out: bool) -> dict[str, list[str]]:
    """Return one side of the everyday words of both languages, and of names."""
    lists = tomllib.loads((WORDS / "assistant_vocabulary.toml").read_text("utf-8"))
    return {name: side(items, held_out=held_out) for name, items in lists.items()}


class _Everyday(Arguments):
    """The factory of the toy, with words enough that none is known by heart."""

    def __init__(self, rng: random.Random, *, held_out: bool) -> None:
        super().__init__(rng, request_words(), held_out=held_out)
        self._known = vocabulary(held_out)
        self.verbs = self.verbs + self._known["verbs"]
        self.adjectives = self.adjectives + self._known["adjectives"]
        self.places = self.places + self._known["places"]

    @override
    def noun(self) -> str:
        if self._rng.random() < 0.7:
            return self._rng.choice(self._known["nouns"])
        return super().noun()

    @override
    def word(self) -> str:
        if self._rng.random() < 0.25:
            return self._rng.choice(self._known[self._rng.choice(["nouns", "nouns", "products"])])
        return super().word()

    @override
    def name(self) -> str:
        chance = self._rng.random()
        if chance < 0.5:
            return super().name()
        if chance < 0.75:
            return self._rng.choice(self._known["stems" if chance < 0.64 else "stems_de"])
        if chance < 0.88:
            return self._rng.choice(self._known["nouns"])
        noun = self._rng.choice(self._known["nouns_de"])
        return noun if chance > 0.97 else noun.lower()

    def german(self, key: str) -> str:
        """Return a German word: one of the nouns, verbs, adjectives, days, or places."""
        known = self._known.get(f"{key}_de", [])
        few = german()[key]
        return self._rng.choice(known if known and self._rng.random() < 0.8 else few)

    def person(self) -> str:
        """Return a name of somebody, the first, the family's, or both."""
        rng, known = self._rng, self._known
        if rng.random() < 0.3:
            return rng.choice(PEOPLE)
        first = rng.choice(known["names"])
        return f"{first} {rng.choice(known['names'])}" if rng.random() < 0.2 else first


@cache
def growing_files() -> frozenset[str]:
    """Return the names of lists, logs and notes, to which one adds."""
    lists = tomllib.loads((WORDS / "assistant_values.toml").read_text("utf-8"))
    paths = (path for key in ("lists", "logs") for entry in lists[key] for path in entry[2])
    return frozenset(path.rpartition("/")[2] for path in paths)


class Values:
    """A factory of values for one stream of conversations."""

    def __init__(self, rng: random.Random, *, held_out: bool) -> None:
        self._rng = rng
        self._real = real(held_out)
        self._currency = {"en": "{}", "de": "{}"}
        self.make = _Everyday(rng, held_out=held_out)
        self._changes = Changes(rng, self, self._real)

    def all(self, slots: Iterable[str], language: str) -> dict[str, Value]:
        """Return values for slots; what must differ or belong together does."""
        rng = self._rng
        self._currency = {key: rng.choice(marks) for key, marks in _CURRENCIES.items()}
        wanted = sorted(set(slots))
        filled = {name: self.of(name, language) for name in wanted if name not in GROUPED}
        grouped = self._changes.all(wanted, language)
        filled |= {name: Value(*pair) for name, pair in grouped.items()}
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
            is_changed = bool({"TA", "TU"} & set(filled))  # by a number, or reckoned with
            filled |= self._table(language, adds_up="TS" in filled or is_changed)
            while is_changed and not re.fullmatch(r"\d{2,}", filled["TU"].sent):
                filled |= self._table(language, adds_up=True)
        if "OL" in filled:
            filled |= self._items(language)
        if {"DT", "DU"} & set(filled):
            filled |= self._days(language, to_come="DT" not in filled)
        if "TP" in filled:
            place, zone = rng.choice(self._real["zones_de" if language == "de" else "zones"])
            filled |= {"TP": Value(zone, zone), "HC": Value(place, place)}
        if {"YA", "YB"} <= set(filled):
            later = filled["YA"].sent + rng.randint(2, 70)
            filled["YB"] = Value(str(later), later)
        if "LF" in filled:
            filled |= self._noted("lists", language)
        if "GF" in filled:
            filled |= self._noted("logs", language)
        for name, line, key in (("MK", "ML", "told"), ("MX", "MY", "told_asked")):
            if {name, line} & set(filled):
                filled |= dict(zip((name, line), self._told_once(key, language), strict=True))
        if "IG" in filled:
            filled |= self._ignored()
        if "VT" in filled:
            on, off = rng.choice(_SWITCHED)
            filled |= {"VT": Value(on, on), "VF": Value(off, off)}
        if {"FT", "FT2"} <= set(filled) and "FT3" not in filled:
            larger = sorted((filled["FT"], filled["FT2"]), key=lambda each: -float(each.sent))
            filled |= dict(zip(("FT", "FT2"), larger, strict=True))
        if {"GN", "GR"} & set(filled):
            filled |= self._noted_thing(language)
        for name, other in _DIFFERENT:
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
        name = rng.choice([make.noun, lambda: rng.choice(FILE_STEMS), make.word, make.name])()
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
        return self.named(self.path())

    def _pd(self, _language: str) -> Value:
        """A file of any sort, also one that is no text."""
        path = self.path()
        if self._rng.random() < 0.45:
            stem = path.rpartition(".")[0]
            stem = path if stem[-1:] in {"", "/"} else stem
            path = f"{stem}.{self._rng.choice(_NO_TEXTS)}"
        return self.named(path)

    def _d(self, _language: str) -> Value:
        return self.named(self.folder())

    def _f(self, _language: str) -> Value:
        return self.named(
            self._rng.choice(
                [
                    self._plain_file,
                    self.make.file_name,
                    lambda: self._rng.choice(self._real["names"]),
                ]
            )()
        )

    def _fn(self, _language: str) -> Value:
        """A file that is told without its ending."""
        stem = self._rng.choice([self.make.name, self.make.noun, self.make.word])()
        name = f"{stem}.{self._rng.choice(['md', 'txt', 'md', 'csv', 'json', 'yml', 'log', 'py'])}"
        return Value(stem, name)

    def _h(self, _language: str) -> Value:
        """A plain folder, as `the src folder`."""
        rng = self._rng
        name = rng.choice(
            [rng.choice(DIRECTORIES), self.make.name(), rng.choice(self._real["folders"])]
        )
        return Value(name, name)

    def _ending_in(self, extension: str) -> Value:
        rng = self._rng
        stem = rng.choice([rng.choice(FILE_STEMS), self.make.name(), self.make.noun()])
        folder = self.folder().rstrip("/") + "/" if rng.random() < 0.25 else ""
        return self.named(f"{folder}{stem}.{extension}")

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

    def named(self, name: str) -> Value:
        """Return the name of a file as it is said: in quotes where it needs them."""
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
        if rng.random() < 0.05:
            more = self.german_sentence() if language == "de" else self.everyday()
            text = f"{text.rstrip('.')}. {more[0].upper()}{more[1:]}."
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
        verb, person, day = rng.choice(make.verbs), make.person(), rng.choice(DAYS)
        return rng.choice(
            [
                f"don't forget to {verb} the {noun}",
                f"we meet at {rng.randint(7, 22)}:{rng.randint(0, 59):02d} in the {noun}",
                f"{person}'s birthday is on {day}",
                f"the {noun} costs {rng.randint(1, 999)} euros",
                f"the code for the {noun} is {rng.randint(0, 9999):04d}",
                f"my favourite {noun} is the {word} one",
                f"{person} and {make.person()} {verb} the {noun}",
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
        rng, pick = self._rng, self.make.german
        noun, other = pick("nouns"), pick("nouns")
        return rng.choice(
            [
                f"{pick('articles')} {noun} ist {pick('adjectives')}",
                f"{noun} und {other}",
                f"{noun} {pick('verbs')}",
                f"{noun} für {self.make.person()} {pick('verbs')}",
                f"{self.make.person()} mag {noun}",
                f"{noun}, {other} und {pick('nouns')}",
                f"am {pick('days')} {noun} {pick('verbs')}",
                f"{noun}: {self.make.word()} {rng.randint(1, 999)}",
                f"die Nummer von {self.make.person()} ist {rng.randint(100, 99999)}",
                f"{self.make.person()} kommt um {rng.randint(7, 22)} Uhr",
                f"{self.make.person()} wohnt in {pick('places')}",
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
            return f"{self.make.german('nouns')} {self.make.german('verbs')}"
        return self._rng.choice([self.make.goal, lambda: self.make.words(1, 3)])()

    def subject(self, language: str) -> str:
        """Return what somebody works on: a thing or a person."""
        rng, noun = self._rng, self.make.noun()
        if language == "de":
            noun = self.make.german("nouns")
            return str(rng.choice([noun, self.make.person()]))
        return str(rng.choice([f"the {noun}", f"my {noun}", f"our {noun}", self.make.person()]))

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
        rng, pick = self._rng, self.make.german
        noun = pick("nouns")
        return rng.choice(
            [
                noun,
                f"{noun} {pick('nouns')}",
                f"{noun} in {pick('places')}",
                f"{self.make.person()} {noun}",
                f"{noun} {self.make.word()}",
            ]
        )

    def _k(self, language: str) -> Value:
        """Keywords that the request gives."""
        rng = self._rng
        words = [
            self.make.german("nouns")
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
        name = self._rng.choice([self.make.person(), self.make.word().capitalize()])
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
        if self._rng.random() < 0.3:
            digit = self._rng.randint
            url = re.sub("@", lambda _: str(digit(1, 9)), self._rng.choice(self._real["urls"]))
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
        if asked == sent:
            asked, sent = self._as_people_write(asked, language)
        return Value(asked, sent, open_end=True)

    def _as_people_write(self, text: str, language: str) -> tuple[str, str]:
        """Return a sum with other signs, with words or German marks, and the one that is sent."""
        rng, chance = self._rng, self._rng.random()
        shown, plain = text, not set("()^%s") & set(text) and "**" not in text
        words = _SIGNS_IN_WORDS[language]
        if " " in text and "**" not in text and chance < 0.12:
            shown = shown.replace(" * ", rng.choice([" x ", " × "]))
            shown = shown.replace(
                " / ", rng.choice([" : ", " ÷ "] if language == "de" else [" ÷ "])
            )
        elif " " in text and plain and chance < 0.24:
            for sign, word in zip("*/+-", words, strict=True):
                shown = shown.replace(f" {sign} ", f" {word} ")
        if language == "de" and rng.random() < 0.6:
            shown = re.sub(r"(?<=\d)\.(?=\d)", ",", shown)
        elif rng.random() < 0.06 and (language == "en" or "." not in text):
            mark = "," if language == "en" else "."
            shown = re.sub(
                r"(?<![\d.,])\d{4,}(?![\d.,])",
                lambda each: f"{int(each[0]):,}".replace(",", mark),
                shown,
            )
        return shown, text

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
        if chance < 0.32:
            return self._told_number(language)
        number = rng.choice(
            [rng.randint(2, 12), rng.randint(2, 99), rng.randint(2, 600), rng.randint(10, 2500)]
        )
        return Value(str(number), number)

    def _told_number(self, language: str) -> Value:
        """Return a number above twelve in words, or with a mark that other people use."""
        rng, chance = self._rng, self._rng.random()
        if chance < 0.3:
            text = rng.choice(list(_ROUND_NUMBERS[language]))
            return Value(text, _ROUND_NUMBERS[language][text])
        if chance < 0.42:
            hundreds, tens = rng.randint(2, 9), rng.randint(2, 9)
            one = _NUMBER_WORDS[language].split()[hundreds - 1]
            ten = _TENS[language].split()[tens - 2]
            joined = f"{one}hundert{ten}" if language == "de" else f"{one} hundred and {ten}"
            return Value(joined, hundreds * 100 + tens * 10)
        if chance < 0.75:
            tens, ones = rng.randint(2, 9), rng.choice([0, 0, rng.randint(1, 9)])
            text = _TENS[language].split()[tens - 2]
            one = _NUMBER_WORDS[language].split()[ones - 1] if ones else ""
            if ones:
                joined = f"{'ein' if one == 'eins' else one}und{text}"
                text = joined if language == "de" else f"{text}-{one}"
            return Value(text, tens * 10 + ones)
        if chance < 0.9:
            number = rng.randint(1000, 99999)
            mark = rng.choice(["'", " "])
            return Value(f"{number:,}".replace(",", mark), number)
        number = rng.randint(2, 90)
        return Value(f"{number}k", number * 1000)

    def _mo(self, language: str) -> Value:
        """A price, or another number with a fraction."""
        rng = self._rng
        if rng.random() < 0.07:
            whole, cents = rng.randint(1000, 24999), rng.choice(["", "", ".00", ".50", ".90"])
            told = f"{whole:,}{cents}"
            if language == "de":
                told = told.translate(str.maketrans(",.", ".,"))
            sent = f"{whole}{cents}".removesuffix(".00")
            return Value(self._currency[language].format(told), sent)
        cents = rng.choice(["99", "50", "95", "49", "25", f"{rng.randint(1, 99):02d}"])
        sent = (
            f"{rng.choice([rng.randint(0, 9), rng.randint(1, 99), rng.randint(10, 999)])}.{cents}"
        )
        if rng.random() < 0.2:
            sent = str(rng.randint(2, 990))
        told = sent.replace(".", ",") if language == "de" and rng.random() < 0.85 else sent
        if "." not in sent and rng.random() < 0.3:  # `1,00`
            told += ",00" if language == "de" else ".00"
        return Value(self._currency[language].format(told), sent)

    def _mu(self, language: str) -> Value:
        """The result, in the currency of the prices."""
        return Value("", self._currency[language].format("{result}"))

    def _fw(self, language: str) -> Value:
        """A number with a half, in words."""
        text = self._rng.choice(list(_HALVES[language]))
        return Value(text, _HALVES[language][text])

    def _un(self, language: str) -> Value:
        """What is counted, such as bottles."""
        text = self._rng.choice(self._real["things_de" if language == "de" else "things"])
        return Value(text, text)

    def _uc(self, language: str) -> Value:
        """What holds several of them, such as crates."""
        text = self._rng.choice(self._real["containers_de" if language == "de" else "containers"])
        return Value(text, text)

    def _clock(self) -> Value:
        """A time of day; a sum has its minutes since midnight."""
        hour, minute = self._rng.randint(0, 23), self._rng.choice([0, 15, 30, 45, 10, 20, 5, 50])
        return Value(f"{hour}:{minute:02d}", f"{hour} * 60 + {minute}")

    def _ha(self, _language: str) -> Value:
        return self._clock()

    def _hb(self, _language: str) -> Value:
        return self._clock()

    def _tp(self, language: str) -> Value:
        """The time zone of the place `HC`."""
        return self._n(language)

    def _hc(self, language: str) -> Value:
        return self._n(language)

    def _bw(self, _language: str) -> Value:
        """How much somebody weighs."""
        number = self._rng.randint(42, 130)
        return Value(str(number), number)

    def _bh(self, language: str) -> Value:
        """How tall somebody is, in meters."""
        sent = f"1.{self._rng.randint(45, 99)}"
        return Value(sent.replace(".", ",") if language == "de" else sent, sent)

    def _ya(self, _language: str) -> Value:
        """A year that is past; `YB` is a later one."""
        year = self._rng.randint(1930, 2012)
        return Value(str(year), year)

    def _yb(self, language: str) -> Value:
        return self._ya(language)

    def _dt(self, language: str) -> Value:
        return self._n(language)

    def _du(self, language: str) -> Value:
        return self._n(language)

    def _dx(self, language: str) -> Value:
        return self._n(language)

    def _dy(self, language: str) -> Value:
        return self._n(language)

    def _days(self, language: str, *, to_come: bool) -> dict[str, Value]:
        """Return two days, and each once more as Python has it."""
        rng = self._rng
        year = rng.randint(2027, 2038)
        if not to_come and rng.random() < 0.5:
            year = rng.randint(1950, 2026)
        first = date(year, rng.randint(1, 12), rng.randint(1, 28))
        second = first + timedelta(days=rng.choice([rng.randint(2, 99), rng.randint(20, 2000)]))
        form = rng.randrange(4)
        days: dict[str, Value] = {}
        for name, code, day in (("DT", "DX", first), ("DU", "DY", second)):
            month = _MONTHS[language].split()[day.month - 1]
            forms = [
                f"{day:%Y-%m-%d}",
                f"{month} {day.day}, {day.year}",
                f"{day.day} {month} {day.year}",
                f"{day.year}-{day.month}-{day.day}",
            ]
            if language == "de":
                forms = [
                    f"{day.day}.{day.month}.{day.year}",
                    f"{day:%d.%m.%Y}",
                    f"{day.day}. {month} {day.year}",
                    f"{day:%Y-%m-%d}",
                ]
            days[name] = Value(forms[form], f"{day:%Y-%m-%d}")
            days[code] = Value("", f"date({day.year}, {day.month}, {day.day})")
        return days

    def _ft(self, language: str) -> Value:
        """A number that may have a fraction, without a unit."""
        rng = self._rng
        if rng.random() < 0.08:
            value = rng.choice([self._nc, self._fw])(language)
            return Value(value.shown, str(value.sent))
        sent = rng.choice([str(rng.randint(1, 300)), f"{rng.randint(0, 90)}.{rng.randint(1, 9)}"])
        return Value(sent.replace(".", ",") if language == "de" else sent, sent)

    def _nl(self, language: str) -> Value:
        """A number of lines, in digits or in words."""
        rng = self._rng
        if rng.random() < 0.35:
            words = _LINE_COUNTS[language]
            text = rng.choice(list(words))
            return Value(text, words[text])
        few, some = rng.randint(2, 5), rng.randint(2, 12)
        number = rng.choice([few, few, some, 10, 20, 50, 100, rng.randint(2, 60)])
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
        if rng.random() < 0.08:
            text = rng.choice(list(_PERCENTS_IN_WORDS[language]))
            return Value(text, str(_PERCENTS_IN_WORDS[language][text]))
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

    def _table(self, language: str, *, adds_up: bool = False) -> dict[str, Value]:
        """Return a table, the name of one of its rows, of a column, and what stands there."""
        rng = self._rng
        key = "tables_de" if language == "de" and rng.random() < 0.75 else "tables"
        tables = self._real[key]
        if adds_up:  # the few of the held-out side may have no numbers
            known = real(held_out=False)[key]
            fit = [[each for each in some if _ADDED_UP & set(each[0])] for some in (tables, known)]
            tables = fit[0] or fit[1]
        head, names, *columns = rng.choice(tables)
        rows = rng.sample(names, rng.choice([2, 3, 3, 4]))
        cells = [rng.sample(column, len(rows)) for column in columns]
        row, column = rng.randrange(len(rows)), rng.randrange(len(columns))
        if adds_up:
            column = rng.choice([i for i, name in enumerate(head[1:]) if name in _ADDED_UP])
        lines = [
            head,
            *([name, *(each[index] for each in cells)] for index, name in enumerate(rows)),
        ]
        has_comma = any("," in cell for column in cells for cell in column)
        mark = rng.choice(
            [";", ";", ";", "\t", " | "] if has_comma else [",", ",", ";", "\t", " | "]
        )
        texts = [mark.join(line) for line in lines]
        if mark == " | ":
            texts = [f"| {text} |" for text in texts]
            texts.insert(1, "|---" * len(head) + "|")
        at = row + len(texts) - len(rows)
        fresh = rng.choice([each for each in columns[column] if each != cells[column][row]])
        changed = [*lines[row + 1]]
        changed[column + 1] = fresh
        line = mark.join(changed)
        changed[column + 1] = "§"
        gap = mark.join(changed).partition("§")
        start, end = ("| ", " |") if mark == " | " else ("", "")
        other_row, other_column = (row + 1) % len(rows), (column + 1) % len(columns)
        known = {
            "TR": rows[row],
            "TC": head[column + 1],
            "TV": cells[column][row],
            "TL": texts[at],  # the row as it stands, and with another value
            "TM": f"| {line} |" if mark == " | " else line,
            "TF": fresh,
            "TA": start + gap[0],  # what stands in the row before the value, and after it
            "TD": gap[2] + end,
            "TU": cells[column][row].replace(",", "."),
            "TQ": head[other_column + 1],  # another column, another row, and their values
            "TE": cells[other_column][row],
            "TO": rows[other_row],
            "TG": cells[column][other_row],
            "TJ": "\n".join(cells[column]),  # the whole column, and what adds it up
            "TS": " + ".join(cell.replace(",", ".") for cell in cells[column]),
        }
        shown = {name: Value(text, text) for name, text in known.items()}
        shown |= self._further_row(
            head, [each for each in names if each not in rows], columns, mark
        )
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
            "OW": Value("", mark + items[at]),
        }

    def _further_row(
        self, head: list[str], names: list[str], columns: list[list[str]], mark: str
    ) -> dict[str, Value]:
        """Return a row that a table does not have: as it is told, with the heads, and as a line."""
        rng = self._rng
        name = rng.choice(names) if names else self.make.word().capitalize()
        cells = [name, *(rng.choice(column) for column in columns)]
        line = mark.join(cells)
        labelled = ", ".join(f"{key} {cell}" for key, cell in zip(head, cells, strict=True))
        told = rng.choice([", ".join(cells), ", ".join(cells), " / ".join(cells)])
        return {
            "RT": Value(told, told),
            "RH": Value(labelled, labelled),
            "RN": Value("", f"| {line} |" if mark == " | " else line),
        }

    def _rt(self, language: str) -> Value:
        """Cells of a row that is added; `RH` with the heads, `RN` as the table's lines are."""
        return self._x(language)

    _rh = _rn = _rt

    def _told_once(self, key: str, language: str) -> tuple[Value, Value]:
        """Return what somebody once told, as it is asked and looked for, and as it was said."""
        asked, query, line = self._rng.choice(self._real[key + "_de" * (language == "de")])
        line = re.sub("#", lambda _: str(self._rng.randint(1, 9)), line)
        line = line.replace("@", self.make.person())
        return Value(asked, query), Value("", line)

    def _mk(self, language: str) -> Value:
        return self._w(language)

    _ml = _mx = _my = _mk

    def _ignored(self) -> dict[str, Value]:
        """Return a file of one entry a line, and several entries for it."""
        rng = self._rng
        files, entries = rng.choice(self._real["entered"])
        path = rng.choice(files)
        if rng.random() < 0.25:
            path = f"{self.folder().strip('/')}/{path}"
        chosen = rng.sample(entries, min(len(entries), rng.choice([2, 2, 3, 3, 4])))
        between = rng.choice([", ", ", ", ", ", " "])
        last = rng.choice([" and ", " and ", " + ", between])
        told = between.join(chosen[:-1]) + last + chosen[-1]
        told_de = told.replace(" and ", " und ")
        return {
            "IG": self.named(path),
            "IL": Value(told, "\n".join(chosen)),
            "IM": Value(told_de, "\n".join(chosen)),
        }

    def _ig(self, language: str) -> Value:
        return self._p(language)

    def _il(self, language: str) -> Value:
        return self._x(language)

    def _im(self, language: str) -> Value:
        return self._x(language)

    def _wq(self, language: str) -> Value:
        """A question for the web, as it is typed into a search."""
        return self._of_web("questions", language)

    def _wy(self, language: str) -> Value:
        """What a small script says."""
        text = self._rng.choice(self._real["says_de" if language == "de" else "says"])
        return self._quoted(text, 0.4)

    def _wc(self, language: str) -> Value:
        """What may be so or not, as it follows `whether`."""
        return self._of_web("clauses", language)

    def _wn(self, language: str) -> Value:
        """What is looked for on the web, with its article."""
        return self._of_web("nouns", language)

    def _of_web(self, sort: str, language: str) -> Value:
        text = self._rng.choice(self._real[f"web_{sort}_de" if language == "de" else f"web_{sort}"])
        article = r"(the|an?|der|die|das|den|eine?n?) " if sort == "nouns" else "$"
        return Value(text, re.sub("^" + article, "", text))

    def _oi(self, language: str) -> Value:
        return self._w(language)

    def _ov(self, language: str) -> Value:
        return self._w(language)

    def _on(self, language: str) -> Value:
        return self._n(language)

    _ow = _on

    def _tn(self, language: str) -> Value:
        return self._w(language)

    _tl = _tm = _tf = _tq = _te = _to = _tg = _ti = _tj = _ts = _ta = _td = _tu = _tn

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

    def _noted(self, key: str, language: str) -> dict[str, Value]:
        """Return a file to which entries are added, an entry, and what the list is called."""
        rng = self._rng
        names, german_names, files, entries, german_entries = rng.choice(self._real[key])
        called = rng.choice(names)
        if language == "de":
            called = rng.choice(german_names)
            entries = german_entries if rng.random() < 0.85 else entries
        entry = rng.choice(entries)
        if rng.random() < 0.3:  # what nobody can know by heart
            entry = self._any_entry(language)
        path = rng.choice(files)
        if rng.random() < 0.2:
            path = f"{self.folder().rstrip('/')}/{path}"
        listed = {"LF": self.named(path), "LK": Value(called, called)}
        if key == "logs":
            must = entry[-1] in ".!?" or entry[:1] in "#-"
            entered = self._quoted(entry, 1.0 if must else 0.45)
            return {"GF": listed["LF"], "GI": entered, "GK": listed["LK"]}
        mark = rng.choice(["- ", "* ", "", "", "- [ ] "])
        others = [each for each in entries if each[:1] != "-" and each != entry]
        held = rng.sample(others, min(len(others), rng.choice([2, 3, 3, 4])))
        last = " und " if language == "de" else " and "
        return {
            **listed,
            "LI": self._quoted(entry, 1.0 if entry[-1] in ".!?" else 0.3),
            "LM": Value("", mark + entry),
            "LR": Value("", "\n".join(mark + each for each in held)),
            "LS": Value("", ", ".join(held[:-1]) + last + held[-1]),
        }

    def _any_entry(self, language: str) -> str:
        """Return what might stand on any list."""
        rng, make, noun = self._rng, self.make, self.make.noun()
        count, person = rng.randint(2, 48), make.person()
        if language == "de":
            noun = make.german("nouns")
            return rng.choice(
                [
                    noun,
                    f"{count} x {noun}",
                    f"{noun} für {person}",
                    f"{noun} ({person})",
                    f"{person}, {count}",
                ]
            )
        return rng.choice(
            [
                f"{rng.choice(make.adjectives)} {noun}",
                f"{count} {noun}" + "s" * (not noun.endswith("s")),
                f"{noun} for {person}",
                f"{noun} ({person})",
                f"{person}, {count}",
                f"{make.word()} {noun}, {count} pcs",
            ]
        )

    def _lf(self, language: str) -> Value:
        return self._p(language)

    def _li(self, language: str) -> Value:
        return self._x(language)

    def _lr(self, language: str) -> Value:
        return self._x(language)

    def _ls(self, language: str) -> Value:
        return self._x(language)

    def _lm(self, language: str) -> Value:
        """The item as a line of the list."""
        return self._x(language)

    def _lk(self, language: str) -> Value:
        return self._w(language)

    def _gf(self, language: str) -> Value:
        return self._p(language)

    def _gk(self, language: str) -> Value:
        return self._w(language)

    def _gi(self, language: str) -> Value:
        return self._x(language)

    def _xl(self, language: str) -> Value:
        """A line of text as it stands, whatever it ends with: it has a line of its own."""
        text = self.text(language).split("\n")[0]
        return Value(text, text, open_end=True)

    def _sb(self, _language: str) -> Value:
        """The name of something that is on or off."""
        name = self.make.word() if self._rng.random() < 0.25 else self._rng.choice(_SWITCHES)
        return Value(name, name)

    def _vt(self, language: str) -> Value:
        return self._w(language)

    def _vf(self, language: str) -> Value:
        return self._w(language)

    def _df(self, _language: str) -> Value:
        """The name of a file that is mostly empty or begins with a dot."""
        return self.named(str(self._rng.choice(self._real["dotted"])))

    def _lb(self, language: str) -> Value:
        return self._n(language)

    def _ty(self, language: str) -> Value:
        return self._a(language)

    def _tz(self, language: str) -> Value:
        return self._a(language)

    def _ns(self, _language: str) -> Value:
        number = self._rng.randint(2, 9)
        return Value(str(number), number)

    def _i(self, language: str) -> Value:
        return self.step(self._rng.randint(1, 12), language)

    def step(self, number: int, language: str) -> Value:
        """Return the number of a step, in digits or in words."""
        chance, words = self._rng.random(), _NUMBER_WORDS[language].split()
        if chance < 0.12 and number <= len(words):
            return Value(words[number - 1], str(number))
        return Value(f"#{number}" if chance > 0.97 else str(number), str(number))

    def _io(self, language: str) -> Value:
        """Which step, as in `the second step`."""
        number = self._rng.randint(1, 5)
        return Value(_ORDINALS[language].split()[number - 1], str(number))

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
        return self.named(text) if rng.random() < 0.5 else Value(text, text)

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
                f"[x for x in range({low}) if x % {rng.randint(2, 9)} == 0]",
                f"{{x: x ** 2 for x in range({rng.randint(2, 7)})}}",
                f"divmod({high}, {low})",
                f"'-'.join(['{word()}', '{word()}'])",
                f"'{word()}'.count('{rng.choice('aeiou')}')",
                f"'{word()}'.replace('{rng.choice('aeiou')}', '{rng.choice('xyz')}')",
                f"int('{rng.getrandbits(16):x}', 16)",
                f"bin({low})",
                f"ord('{rng.choice('abcXYZ')}')",
                f"chr({rng.randint(65, 122)})",
                f"sorted([{high}, {low}, {rng.randint(1, 99)}])",
                f"list(range({low}, {low + rng.randint(2, 6)}))",
                f"'{rng.choice('aeiou')}' in '{word()}'",
                f"import math; round(math.pi * {low}, 3)",
                f"import math; math.factorial({rng.randint(3, 15)})",
                f"f'{{{high} / {low}:.2f}}'",
                f"str({low}).zfill({rng.randint(3, 8)})",
                f"pow({low}, {rng.randint(2, 9)}, {high})",
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
        name = self._pdf_name()
        return self.named(name if rng.random() < 0.6 else self.folder().rstrip("/") + "/" + name)

    def _zf(self, _language: str) -> Value:
        """The name of a document, without a folder."""
        return self.named(self._pdf_name())

    def _pdf_name(self) -> str:
        rng = self._rng
        if rng.random() < 0.35:
            digit = rng.randint
            return re.sub("#", lambda _: str(digit(1, 9)), rng.choice(self._real["pdfs"]))
        return (self._blank_name() if rng.random() < 0.1 else self.make.name()) + ".pdf"

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
            noun, word = self.make.german("nouns"), self.make.german("adjectives")
            told, asked = rng.choice(
                [
                    (f"ob {noun} {word} ist", f"Ist {noun} {word}?"),
                    (f"wo {noun} ist", f"Wo ist {noun}?"),
                    (f"ob ich {noun} mag", f"Magst du {noun}?"),
                    (f"welche Farbe {noun} hat", f"Welche Farbe hat {noun}?"),
                ]
            )
            return Value(told, asked, open_end=True)
        noun, word, person = make.noun(), rng.choice(make.adjectives), make.person()
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

    # what machines and the web have names for

    def _listed(self, key: str) -> Value:
        name = str(self._rng.choice(self._real[key]))
        return Value(name, name)

    def _dn(self, language: str) -> Value:
        """A document by what it is, and the word for it that is in its file's name."""
        rng = self._rng
        if language == "de":
            shown, sent = rng.choice(self._real["papers_de"])
        else:
            sent = str(rng.choice(self._real["papers"]))
            shown = f"{rng.choice(['my', 'my', 'the'])} {sent}"
        if rng.random() < 0.3:
            shown, sent = shown.lower(), sent.lower()
        return Value(shown, sent)

    def _dm(self, language: str) -> Value:
        """The same as a subject: `der Mietvertrag`, not `den Mietvertrag`."""
        document = self._dn(language)
        if language == "en":
            return document
        shown = re.sub("^meinen ", "mein ", re.sub("^den ", "der ", document.shown))
        return Value(shown, document.sent)

    def _fk(self, language: str) -> Value:
        """Files by what they are called, and their ending."""
        return Value(
            *self._rng.choice(self._real["kinds_of_files" + ("_de" if language == "de" else "")])
        )

    def _fx(self, language: str) -> Value:
        """Files of text by what they are called, and their ending."""
        found = self._fk(language)
        while found.sent in _NO_LINES:
            found = self._fk(language)
        return found

    def _tw(self, language: str) -> Value:
        """What a text is about, in one word."""
        noun = self.make.german("nouns") if language == "de" else self.make.noun()
        return self._quoted(noun, 0.08)

    def _mp(self, _language: str) -> Value:
        """Where a disk is mounted."""
        return self._listed("mounts")

    def _dw(self, language: str) -> Value:
        """A day of the week."""
        days = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
        if language == "de":
            days = "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag"
        day = self._rng.choice(days.split())
        return Value(day, day)

    def _tk(self, _language: str) -> Value:
        """Marks in code that something is to be done, in the plural."""
        mark = self._rng.choice(["TODO", "TODO", "FIXME", "XXX", "HACK"])
        return Value(f"{mark}s", mark)

    def _gn(self, language: str) -> Value:
        return self._noted_thing(language)["GN"]

    def _gr(self, language: str) -> Value:
        return self._noted_thing(language)["GR"]

    def _noted_thing(self, language: str) -> dict[str, Value]:
        """Return what somebody has written down somewhere, and what it is."""
        rng, make = self._rng, self.make
        digits = str(rng.randint(1000, 999999))
        is_german = language == "de"
        called, thing = rng.choice(
            [
                (("phone number", "die Telefonnummer"), f"0{rng.randint(151, 896)} {digits}"),
                (("mobile number", "die Handynummer"), f"01{rng.randint(50, 79)}-{digits}"),
                (("number", "die Nummer"), digits),
                (
                    ("invoice number", "die Rechnungsnummer"),
                    f"RE-{rng.randint(2024, 2037)}-{digits[:4]}",
                ),
                (("order number", "die Bestellnummer"), f"{make.word()[:2].upper()}-{digits}"),
                (("customer number", "die Kundennummer"), f"K{digits}"),
                (("email address", "die Mailadresse"), f"{make.word()}@{make.word()}.org"),
                (("name", "der Name"), f"{self.make.person()}"),
                (("street", "die Straße"), f"{make.word().capitalize()} Road {rng.randint(1, 99)}"),
                (
                    ("date", "das Datum"),
                    f"{rng.randint(2024, 2037)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
                ),
                (("amount", "der Betrag"), f"{rng.randint(2, 900)},{rng.randint(10, 99)}"),
                (("word", "das Wort"), make.word()),
                (("ticket", "das Ticket"), f"{make.word()[:4].upper()}-{rng.randint(10, 4999)}"),
            ]
        )
        if is_german and called[0] == "street":
            thing = f"{make.word().capitalize()}weg {rng.randint(1, 99)}"
        return {
            "GN": Value(called[is_german], called[is_german]),
            "GR": self._quoted(thing, 0.15),
        }

    def _jv(self, _language: str) -> Value:
        """A program that tells its version and has a manual."""
        return self._listed("programs")

    def _ju(self, _language: str) -> Value:
        """A Python package."""
        return self._listed("packages")

    def _ja(self, _language: str) -> Value:
        """A package of the system."""
        return self._listed("system_packages")

    def _jx(self, _language: str) -> Value:
        """A variable of the environment, in capitals."""
        return self._listed("variables")

    def _jn(self, _language: str) -> Value:
        """A script of package.json."""
        return self._listed("npm_scripts")

    def _jy(self, _language: str) -> Value:
        """Software that has releases."""
        return self._listed("software")

    def _ji(self, _language: str) -> Value:
        """A site that many use."""
        return self._listed("sites")

    def _jm(self, _language: str) -> Value:
        """What is traded."""
        return self._listed("traded")

    def _jl(self, language: str) -> Value:
        """A place."""
        name = str(self._one_of("places", language))
        return Value(name, name)

    def _jq(self, language: str) -> Value:
        """A team."""
        name = str(self._one_of("teams", language))
        return Value(name, name)

    def _jh(self, language: str) -> Value:
        """An office that somebody holds."""
        name = str(self._one_of("offices", language))
        return Value(name, name)

    def _jc(self, language: str) -> Value:
        """Two currencies."""
        pair = str(self._one_of("currencies", language))
        return Value(pair, pair)

    def _jo(self, _language: str) -> Value:
        """A port."""
        rng = self._rng
        known = [80, 443, 3000, 3306, 5000, 5173, 5432, 6379, 8000, 8080, 8443, 8888, 9000]
        port = str(rng.choice(known) if rng.random() < 0.5 else rng.randint(1024, 49151))
        return Value(port, port)

    def _jp(self, _language: str) -> Value:
        """The number of a process."""
        number = str(self._rng.randint(300, 99999))
        return Value(number, number)

    def _jt(self, _language: str) -> Value:
        """A language, and how the names of its files end."""
        return Value(*self._rng.choice(_LANGUAGES))

    def _jr(self, _language: str) -> Value:
        """The mode of a file."""
        mode = self._rng.choice(["600", "644", "755", "700", "640", "664", "400", "444", "777"])
        return Value(mode, mode)

    def _jk(self, _language: str) -> Value:
        """A tag of a version."""
        rng = self._rng
        tag = rng.choice(["v", "v", "v", ""]) + f"{rng.randint(0, 9)}.{rng.randint(0, 30)}"
        tag += f".{rng.randint(0, 20)}" if rng.random() < 0.8 else ""
        return Value(tag, tag)

    def _jz(self, language: str) -> Value:
        """A day, sent as 2027-03-14."""
        rng = self._rng
        year, month, day = rng.randint(1950, 2035), rng.randint(1, 12), rng.randint(1, 28)
        sent = f"{year}-{month:02d}-{day:02d}"
        if language == "de" and rng.random() < 0.55:
            dotted = rng.choice([f"{day}.{month}.{year}", f"{day:02d}.{month:02d}.{year}"])
            return Value(dotted, sent)
        if language == "en" and rng.random() < 0.3:
            name = _MONTH_NAMES[month - 1]
            return Value(rng.choice([f"{name} {day}, {year}", f"{day} {name} {year}"]), sent)
        return Value(sent, sent)

    def _jj(self, _language: str) -> Value:
        """A host by its name."""
        rng, make = self._rng, self.make
        start = rng.choice(["", "", "www.", "api.", "mail.", "docs."])
        ending = rng.choice(["com", "org", "de", "net", "io", "dev"])
        host = rng.choice([f"{make.word()}.{ending}", f"{make.word()}-{make.word()}.{ending}"])
        return Value(start + host, start + host)

    def _jb(self, _language: str) -> Value:
        """A commit by the beginning of its name."""
        code = f"{self._rng.getrandbits(28):07x}"
        return Value(code, code)

    def _jd(self, _language: str) -> Value:
        """An image of Docker."""
        rng = self._rng
        name = rng.choice(["postgres", "redis", "nginx", "node", "python", "alpine", "mysql"])
        if rng.random() < 0.3:
            name = f"{self.make.word()}/{self.make.word()}"
        if rng.random() < 0.6:
            name += f":{rng.choice(['latest', str(rng.randint(3, 26)), 'alpine'])}"
        return Value(name, name)

    def _jw(self, _language: str) -> Value:
        """Seconds since 1970."""
        seconds = str(self._rng.randint(1_000_000_000, 1_999_999_999))
        return Value(seconds, seconds)

    def _jg(self, _language: str) -> Value:
        """A word in base64."""
        code = base64.b64encode(self.make.word().encode()).decode()
        return Value(code, code)

    def _jf(self, _language: str) -> Value:
        """The address of a file that is no page."""
        host, name = re.split("[?#]", self.make.url())[0].rstrip("/"), self.make.word()
        ending = self._rng.choice(["zip", "tar.gz", "iso", "deb", "csv", "mp4", "AppImage", "gz"])
        url = f"{host}/{name}.{ending}"
        return Value(url, url)
