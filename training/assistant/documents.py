"""Small documents as people keep them, and what is asked of them.

What a document looks like and what can be asked stands in training/words/assistant_documents.toml.
Every answer is made of the values that stand in the document, so it is true.
"""

import random
import re
import string
import tomllib
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from training.assistant.values import Value, Values
from training.data.lists import WORDS

LONGEST = 330
_KINDS_OF_ROWS = {"*": "", "+": "~"}
_MARKED = re.compile(r"<([a-z]+(?:_[a-z]+)?[#~]?|(?:list|most|least|first)[:~][a-z_]+|count~?)>")
_FEW = 10  # values of smaller pools may be met twice in one document
_TRIES = 40
_CALLED = {
    "README.md": "the readme",
    "Dockerfile": "the dockerfile",
    "Makefile": "the makefile",
    "CHANGELOG.md": "the changelog",
    "docker-compose.yml": "the docker compose file",
}
_OF_PROJECTS = re.compile(
    r"(?i)readme|changelog|changes|history|news|releases|dockerfile|makefile|compose|package|"
    r"pyproject|requirements|constraints|crontab|env$|env\."
)


class Asked(NamedTuple):
    """A question, what fills its slots, and the answer."""

    phrasing: str
    slots: dict[str, Value]
    answer: str


class _Parts(NamedTuple):
    """How a fact is asked for, its answer, and what stands in the slots of both."""

    question: list[str]
    thing: list[str]
    clause: list[str]
    answer: str
    values: dict[str, str]


class _TooAlikeError(Exception):
    """A pool has no further value."""


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads((WORDS / "assistant_documents.toml").read_text("utf-8"))


@cache
def families() -> dict[str, dict[str, Any]]:
    """Return what documents there are, by name."""
    return {name: table for name, table in _words().items() if "fact" in table}


@dataclass
class Document:
    """One file.

    Attributes:
        family: what sort of document it is.
        path: where it lies.
        shown: how a request names it.
        lines: what stands in it.
        values: what stands in its slots.
    """

    family: str
    path: str
    shown: str
    lines: list[str]
    values: dict[str, str]
    rows: dict[str, list[dict[str, str]]] = field(default_factory=dict)


class Documents:
    """Invents documents and questions."""

    def __init__(self, rng: random.Random, values: Values, *, held_out: bool) -> None:
        self._rng = rng
        self._values = values
        self._held_out = held_out
        self._language = "en"
        self._used: set[str] = set()

    def draw(self, language: str, count: int) -> tuple[Document, list[Asked]]:
        """Return a document and so many questions, each of another fact."""
        rng, self._language = self._rng, language
        while True:
            name = rng.choice(list(families()))
            try:
                document = self._document(name)
                facts = rng.sample(families()[name]["fact"], count)
                asked = [
                    self._asked(document, fact, again=bool(index))
                    for index, fact in enumerate(facts)
                ]
            except _TooAlikeError:
                continue
            if sum(len(line) + 3 for line in document.lines) <= LONGEST:
                return document, asked

    # documents

    def _document(self, name: str) -> Document:
        family, language = families()[name], self._language
        self._used = set()
        names = family.get("names_" + language, family["names"])
        path = self._path(self._digits(self._rng.choice(self._side(names))))
        document = Document(name, path, self._shown(path), [], {"path": path})
        text = family.get("text_" + language, family["text"]).strip("\n")
        blocks: list[tuple[str, list[str]]] = []
        for line in text.split("\n"):
            mark = line[:1] if line[:2] in {"* ", "+ "} else ""
            if mark and blocks and blocks[-1][0] == mark:
                blocks[-1][1].append(line[2:])
            else:
                blocks.append((mark, [line[2:] if mark else line]))
        loose: list[str] = []
        for mark, templates in blocks:
            made = self._rows(document, family, mark, templates) if mark else []
            if mark and family.get("mixed"):
                loose += made
            document.lines += made or [] if mark else [self._filled(document, templates[0])]
        if loose:
            kept = [line for line in document.lines if line not in loose]
            self._rng.shuffle(loose)
            document.lines = kept + loose
        return document

    def _rows(
        self, document: Document, family: dict[str, Any], mark: str, templates: list[str]
    ) -> list[str]:
        """Return the lines of rows, each of the same templates with other values."""
        count = self._rng.choice(family["rows" if mark == "*" else "rows_more"])
        slots = list(dict.fromkeys(_MARKED.findall("\n".join(templates))))
        rows = [{slot: self._value(slot) for slot in slots} for _ in range(count)]
        if "ordered" in family:
            versions = sorted((row[family["ordered"]] for row in rows), key=_version, reverse=True)
            days = sorted((row["isodate"] for row in rows), reverse=True)
            for row, version, day in zip(rows, versions, days, strict=True):
                row |= {"version": version, "isodate": day}
        document.rows[mark] = rows
        return [_with(template, row) for row in rows for template in templates]

    def _filled(self, document: Document, line: str) -> str:
        for slot in _MARKED.findall(line):
            if slot not in document.values:
                document.values[slot] = self._value(slot)
        return _with(line, document.values)

    def _value(self, slot: str) -> str:
        """Return a value that does not stand in the document yet."""
        pools, name = _words()["pools"], slot.partition("_")[0]
        pool = pools[name]
        if self._language == "de":
            pool = pools["de"].get(name, pool)
        value = ""
        for _ in range(_TRIES):
            value = self._digits(self._rng.choice(self._side(pool)))
            if value not in self._used:
                self._used.add(value)
                return value
        if len(pool) >= _FEW:
            raise _TooAlikeError
        return value

    def _side(self, items: list[str]) -> list[str]:
        """Return what is for learning, or what is held out; short lists are for both."""
        cut = len(items) * 3 // 4
        if len(items) < 2 * _FEW:
            return items
        return items[cut:] if self._held_out else items[:cut]

    def _digits(self, text: str) -> str:
        return re.sub("#", lambda _: str(self._rng.randint(1, 9)), text)

    # paths

    def _path(self, path: str) -> str:
        """Return a path like this one, often in another folder or under another name."""
        rng = self._rng
        folder, _, name = path.rpartition("/")
        stem, dot, ending = name.rpartition(".")
        chance = rng.random()
        if chance < 0.3:
            other = self._values.folder().strip("/")
            folder = other if " " not in other else folder
        elif chance < 0.55 and stem and not _OF_PROJECTS.search(name):
            make = self._values.make
            stem = rng.choice([make.noun(), make.word(), f"{stem}-{make.word()}"])
            name = stem + dot + ending
        elif chance < 0.6 and stem and not _OF_PROJECTS.search(name):
            name = f"{stem} {rng.randint(2, 30)}{dot}{ending}"
        return f"{folder}/{name}" if folder else name

    def _shown(self, path: str) -> str:
        rng = self._rng
        folder, _, name = path.rpartition("/")
        if self._language == "en" and path in _CALLED and rng.random() < 0.4:
            return _CALLED[path]
        is_plain = re.fullmatch(r"[\w-]+", folder)
        if is_plain and " " not in name and rng.random() < 0.1:
            if self._language == "de":
                return f"{name} im Ordner {folder}"
            return rng.choice([f"{name} in the {folder} folder", f"{name} in {folder}"])
        if " " in path or rng.random() < 0.06:
            quote = rng.choice("\"'`")
            return quote + path + quote
        return path

    # questions

    def two(self, language: str) -> tuple[Document, Asked]:
        """Return a document and a question for two things that stand in it, or might."""
        rng, self._language = self._rng, language
        while True:
            name = rng.choice(list(families()))
            try:
                document = self._document(name)
                facts = rng.sample(families()[name]["fact"], 2)
                of_rows = [each for each in facts if "#>" in each[language][0]]
                if of_rows and rng.random() < 0.4:
                    facts = [of_rows[0], of_rows[0]]
                parts = [self._parts(document, fact) for fact in facts]
            except _TooAlikeError:
                continue
            if parts[0].answer == parts[1].answer:
                continue
            if sum(len(line) + 3 for line in document.lines) <= LONGEST:
                return document, self._both(document, parts)

    def _both(self, document: Document, parts: list[_Parts]) -> Asked:
        """Return one question for two things."""
        rng, letters = self._rng, iter(string.ascii_uppercase)
        is_bare = any(_MARKED.fullmatch(each.thing[0]) for each in parts)
        frames = _words()["frames"][self._language]["two"]
        phrasing = rng.choice([each for each in frames if not (is_bare and "<n>" in each)])
        slots = {"P": Value(document.shown, document.path)}
        for number, part in zip(("", "2"), parts, strict=True):
            for sort, forms in (("q", part.question), ("n", part.thing), ("i", part.clause)):
                form = rng.choice(forms)
                for slot in dict.fromkeys(_MARKED.findall(form)):
                    name = "D" + next(letters)
                    slots[name] = Value(part.values[slot], part.values[slot])
                    form = form.replace(f"<{slot}>", "{" + name + "}")
                phrasing = phrasing.replace(f"<{sort}{number}>", form)
        if phrasing.endswith("<q2>") and rng.random() < 0.6:
            phrasing += "?"
        return Asked(phrasing, slots, " ".join(each.answer for each in parts))

    def _asked(self, document: Document, fact: dict[str, Any], *, again: bool) -> Asked:
        rng, language = self._rng, self._language
        frames = _words()["frames"][language]
        question, thing, clause, answer, values = self._parts(document, fact)
        full = fact.get("full_" + language, [])
        is_bare = bool(_MARKED.fullmatch(thing[0]))  # a name alone is no question
        if again:
            phrasing = rng.choice(
                [each for each in frames["again"] if not (is_bare and "<n>" in each)]
            )
        elif full and rng.random() < 0.3:
            phrasing = rng.choice(full)
        else:
            shares = [0.5, 0.0 if is_bare else 0.2, 0.3]
            sort = rng.choices(["question", "thing", "clause"], shares)[0]
            phrasing = rng.choice(frames[sort])
        is_question = phrasing.endswith("<q>")
        for mark, forms in (("<q>", question), ("<n>", thing), ("<i>", clause)):
            phrasing = phrasing.replace(mark, rng.choice(forms))
        letters = iter(string.ascii_uppercase)
        slots = {"P": Value(document.shown, document.path)}
        for slot in dict.fromkeys(_MARKED.findall(phrasing)):
            name = "D" + next(letters)
            slots[name] = Value(values[slot], values[slot])
            phrasing = phrasing.replace(f"<{slot}>", "{" + name + "}")
        if is_question and rng.random() < 0.6:
            phrasing += "?"
        return Asked(phrasing, slots, answer)

    def _parts(self, document: Document, fact: dict[str, Any]) -> _Parts:
        """Return how a fact is asked for, its answer, and what fills both."""
        language = self._language
        question, thing, clause = (
            [each.strip() for each in part.split(" / ")] for part in fact[language][:3]
        )
        values = {
            **document.values,
            **self._of_rows(document),
            **self._missing(str(fact[language])),
        }
        if len(fact[language]) > 3:
            answer = fact[language][3]
        else:
            gone = self._rng.choice(_words()["frames"][language]["gone"])
            answer = gone.replace("<n>", thing[0]).replace("{P}", "<path>")
        return _Parts(question, thing, clause, _with(answer, values), values)

    def _missing(self, texts: str) -> dict[str, str]:
        """Return values for slots that do not stand in the document: those ending in `_x`."""
        return {
            slot: self._value(slot)
            for slot in dict.fromkeys(_MARKED.findall(texts))
            if slot.endswith("_x")
        }

    def _of_rows(self, document: Document) -> dict[str, str]:
        """Return what is known of the rows: one of them, their number, the first, the greatest."""
        known: dict[str, str] = {}
        rank = families()[document.family].get("rank", "")
        for mark, rows in document.rows.items():
            other = _KINDS_OF_ROWS[mark]
            row = self._rng.choice(rows)
            known |= {slot + (other or "#"): value for slot, value in row.items()}
            if "person" in row:
                known["last" + (other or "#")] = row["person"].split()[-1]
            known["count" + other] = str(len(rows))
            ranked = sorted(rows, key=lambda each: _number(each[rank])) if rank else rows
            for slot in row:
                sign = other or ":"
                known[f"list{sign}{slot}"] = self._enumerated([each[slot] for each in rows])
                known[f"first{sign}{slot}"] = rows[0][slot]
                known[f"most{sign}{slot}"] = ranked[-1][slot]
                known[f"least{sign}{slot}"] = ranked[0][slot]
        return known

    def _enumerated(self, items: list[str]) -> str:
        if len(items) == 1:
            return items[0]
        last = " und " if self._language == "de" else " and "
        return ", ".join(items[:-1]) + last + items[-1]


def _with(text: str, values: dict[str, str]) -> str:
    return _MARKED.sub(lambda match: values[match.group(1)], text)


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def _version(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]
