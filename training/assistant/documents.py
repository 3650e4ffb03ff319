"""Small documents as people keep them, and what is asked of them.

What a document looks like and what can be asked stands in training/words/assistant_documents.toml.
Every answer is made of the values that stand in the document, or is the line that says it, so it
is true.
"""

import random
import re
import string
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from training.assistant.values import Value, Values
from training.data.lists import WORDS

LONGEST = 330
_KINDS_OF_ROWS = {"*": "", "+": "~"}
_MARKED = re.compile(
    r"<([a-z]+(?:_[a-z]+)?[#~]?|(?:list|most|least|first|sum)[:~][a-z_]+|count~?)>"
)
_FEW = 10  # values of smaller pools may be met twice in one document
_TRIES = 40
ABSENT_SHARE = 0.06  # of the questions ask for what does not stand there
FOREIGN_SHARE = 0.15  # of the documents are in the other language
_MOST_QUOTED = 3  # lines
_SAME_ABROAD = {"person", "first", "last", "phone", "city", "street", "price"}
_OF_FILES = re.compile(
    r"(?i)\b(file|line|open|öffne|grep|put|wrote|written|saved|arrived|sent|Datei|Zeile)\b|"
    r"kam heute|geschickt|geschrieben|gelegt|notiert"
)
_ON_PAGES = {"in": "on", "into": "at", "In": "Auf", "aus": "von"}
_ARGUMENTS = {"file_read": "path", "pdf_extract": "source", "web_fetch": "url"}
_CALLED = {
    "README.md": "the readme",
    "Dockerfile": "the dockerfile",
    "Makefile": "the makefile",
    "CHANGELOG.md": "the changelog",
    "docker-compose.yml": "the docker compose file",
}
PAGE_SHARE = 0.2  # of the PDFs are asked about by the page
LISTED_SHARE = 0.12  # of the files that lie in a folder are named without their ending
ADDED_SHARE = 0.7  # of what is asked of tables whose numbers can be added up asks for their sum
_OF_PROJECTS = re.compile(
    r"(?i)readme|changelog|changes|history|news|releases|dockerfile|makefile|compose|package|"
    r"pyproject|requirements|constraints|crontab|env$|env\."
)


class Asked(NamedTuple):
    """A question, what fills its slots, and the answer, for which `expression` is worked out."""

    phrasing: str
    slots: dict[str, Value]
    answer: str
    expression: str = ""


class Folder(NamedTuple):
    """A folder whose files are looked through.

    Attributes:
        path: where it lies.
        names: what it has.
        read: the paths and lines of those that answer.
        asked: what is asked about it.
    """

    path: str
    names: list[str]
    read: list[tuple[str, list[str]]]
    asked: Asked


class _Parts(NamedTuple):
    """How a fact is asked for, its answer, and what stands in the slots of both."""

    question: list[str]
    thing: list[str]
    clause: list[str]
    answer: str
    values: dict[str, str]
    quoted: list[str]
    expression: str = ""


class _Line(NamedTuple):
    """A line, what it was made of, and which row it belongs to."""

    text: str
    template: str
    mark: str = ""
    row: int = -1


class _TooAlikeError(Exception):
    """A pool has no further value, or nothing in a document fits."""


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
        rows: what stands in the slots of its rows.
        made: its lines and what they were made of.
        tool: what reads it.
        page: the page of it that is asked about; "" for all of it.
        listed: the folder that has to be listed first, as the request names no ending.
    """

    family: str
    path: str
    shown: str
    lines: list[str]
    values: dict[str, str]
    rows: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    made: list[_Line] = field(default_factory=list)
    tool: str = "file_read"
    page: str = ""
    listed: str = ""

    @property
    def arguments(self) -> dict[str, str]:
        """What is given to the tool."""
        return {_ARGUMENTS[self.tool]: self.path} | ({"pages": self.page} if self.page else {})


class Documents:
    """Invents documents and questions."""

    def __init__(self, rng: random.Random, values: Values, *, held_out: bool) -> None:
        self._rng = rng
        self._values = values
        self._held_out = held_out
        self._language = self._written = "en"
        self._used: set[str] = set()

    def draw(
        self, language: str, count: int, tools: Collection[str] = tuple(_ARGUMENTS)
    ) -> tuple[Document, list[Asked]]:
        """Return a document that one of the tools reads and so many questions, of other facts."""
        self._language = language
        for family in self._families(tools):
            try:
                document = self._document(family)
                facts = self._facts(document.family, count, adds="calculator" in tools)
                asked = [
                    self._asked(document, fact, again=bool(index))
                    for index, fact in enumerate(facts)
                ]
            except _TooAlikeError:
                continue
            if sum(len(line) + 3 for line in document.lines) <= LONGEST:
                return document, asked
        raise AssertionError

    def folder(self, language: str) -> Folder:
        """Return a folder of small files that are alike, and what is asked of them, or of one."""
        rng, self._language, self._written = self._rng, language, language
        sort = rng.choice(list(_words()["folders"].values()))
        ending = "_de" if language == "de" else ""
        while True:
            self._used = set()
            days = sort.get("days" + ending, [])
            path = rng.choice(self._side(sort["folders" + ending]))
            texts = [sort["text" + ending]] * (len(days) or rng.choice([2, 2, 3]))
            slots = list(dict.fromkeys(_MARKED.findall(texts[0] + ("" if days else sort["file"]))))
            again = [sort.get("where", "").partition(" ")[0], "system"]
            try:
                rows = [
                    {slot: self._value(slot, is_new=slot not in again) for slot in slots}
                    for _ in texts[: 1 if days else None]
                ]
                break
            except _TooAlikeError:
                continue
        phrasing = rng.choice(sort[language]) + rng.choice(["", "", "?"])
        if phrasing.endswith("??"):
            phrasing = phrasing[:-1]
        named = {"H": Value(path, path)}
        if days:
            [row], day = rows, rng.choice(days)
            lines = _with(texts[0], row).split("\n")
            name = day if language == "en" else day.capitalize()
            named["D"] = Value(name.capitalize() if rng.random() < 0.7 else name, day)
            read = [(f"{path}/{day}.md", lines)]
            names = sorted(f"{each}.md" for each in days)
            return Folder(path, names, read, Asked(phrasing, named, "\n".join(lines)))
        rows.sort(key=lambda each: _with(sort["file"], each))
        names = [_with(sort["file"], row) for row in rows]
        fits = fitting_rows(rows, sort["where"], rng)
        told = [f"- {path}/{names[index]}: {_with(sort['told'], rows[index])}" for index in fits]
        answer = "\n".join([sort["some" + ending], *told]) if told else sort["none" + ending]
        read = [
            (f"{path}/{name}", _with(texts[0], row).split("\n"))
            for name, row in zip(names, rows, strict=True)
        ]
        return Folder(path, names, read, Asked(phrasing, named, answer))

    def _families(self, tools: Collection[str]) -> Iterator[str]:
        """Yield families to be tried, each several times, so that picky ones are not rare."""
        names = [
            name for name, family in families().items() if family.get("reads", "file_read") in tools
        ]
        while True:
            yield from [self._rng.choice(names)] * _TRIES

    def _facts(self, family: str, count: int, *, adds: bool = False) -> list[dict[str, Any]]:
        """Return so many facts, seldom one that does not stand in the document.

        The first may be a sum that has to be worked out, where that can be done.
        """
        rng, facts = self._rng, families()[family]["fact"]
        sums = [each for each in facts if "adds" in each]
        facts = [each for each in facts if "adds" not in each]
        absent = [each for each in facts if _is_absent(each)]
        there = rng.sample([each for each in facts if not _is_absent(each)], count)
        if absent and rng.random() < ABSENT_SHARE * count:
            there[rng.randrange(count)] = rng.choice(absent)
        if sums and adds and rng.random() < ADDED_SHARE:
            there[0] = rng.choice(sums)
        return there

    # documents

    def _document(self, name: str) -> Document:
        family, language = families()[name], self._language
        if "text_de" in family and self._rng.random() < FOREIGN_SHARE:
            language = "en" if language == "de" else "de"
        self._written = language
        self._used = set()
        names = family.get("names_" + language, family["names"])
        path = self._digits(self._rng.choice(self._side(names)))
        tool = family.get("reads", "file_read")
        if tool == "web_fetch":
            path = shown = path if self._rng.random() < 0.5 else self._values.make.url()
        else:
            path = self._path(path)
            shown = self._shown(path)
        kind = {"web_fetch": "the page", "pdf_extract": "the pdf"}.get(tool)
        page = listed = ""
        folder, _, file = path.rpartition("/")
        if tool == "pdf_extract" and self._rng.random() < PAGE_SHARE:
            page = str(self._rng.randint(2, 19))
            shown = f"{'Seite' if self._language == 'de' else 'page'} {page} "
            shown += f"{'von' if self._language == 'de' else 'of'} {path}"
        elif (
            tool == "file_read"
            and re.fullmatch(r"[\w-]+", folder)
            and re.fullmatch(r"[\w-]+\.[a-z]{2,4}", file)
            and not _OF_PROJECTS.search(file)
            and self._rng.random() < LISTED_SHARE
        ):
            stem, listed = file.partition(".")[0], folder
            shown = f"{stem} in the {folder} folder"
            if self._language == "de":
                shown = f"{stem} im Ordner {folder}"
        elif kind and self._language == "en" and self._rng.random() < 0.15:
            shown = f"{kind} {shown}"
        document = Document(
            name, path, shown, [], {"path": path}, tool=tool, page=page, listed=listed
        )
        text = family.get("text_" + language, family["text"]).strip("\n")
        blocks: list[tuple[str, list[str]]] = []
        for line in text.split("\n"):
            mark = line[:1] if line[:2] in {"* ", "+ "} else ""
            if mark and blocks and blocks[-1][0] == mark:
                blocks[-1][1].append(line[2:])
            else:
                blocks.append((mark, [line[2:] if mark else line]))
        loose: list[_Line] = []
        for mark, templates in blocks:
            if not mark:
                made = [_Line(self._filled(document, templates[0]), templates[0])]
            else:
                made = self._rows(document, family, mark, templates)
            if mark and family.get("mixed"):
                loose += made
            document.made += made
        if loose:
            kept = [line for line in document.made if line not in loose]
            self._rng.shuffle(loose)
            document.made = kept + loose
        document.lines = [line.text for line in document.made]
        return document

    def _rows(
        self, document: Document, family: dict[str, Any], mark: str, templates: list[str]
    ) -> list[_Line]:
        """Return the lines of rows, each of the same templates with other values."""
        count = self._rng.choice(family["rows" if mark == "*" else "rows_more"])
        slots = list(dict.fromkeys(_MARKED.findall("\n".join(templates))))
        again = family.get("again", [])
        rows = [
            {slot: self._value(slot, is_new=slot not in again) for slot in slots}
            for _ in range(count)
        ]
        for slot in set(family.get("blank", [])) & set(slots):
            for row in self._rng.sample(rows, self._rng.choice([1, 1, 2])):
                row[slot] = ""
        if "sorted" in family:
            rows.sort(key=lambda row: row[family["sorted"]])
        if "ordered" in family:
            versions = sorted((row[family["ordered"]] for row in rows), key=_version, reverse=True)
            days = sorted((row["isodate"] for row in rows), reverse=True)
            for row, version, day in zip(rows, versions, days, strict=True):
                row |= {"version": version, "isodate": day}
        document.rows[mark] = rows
        return [
            _Line(_with(template, row), template, mark, index)
            for index, row in enumerate(rows)
            for template in templates
        ]

    def _filled(self, document: Document, line: str) -> str:
        for slot in _MARKED.findall(line):
            if slot.startswith("sum:"):
                document.values[slot] = self._sum(document, slot[4:])
            if slot not in document.values:
                document.values[slot] = self._value(slot)
        return _with(line, document.values)

    def _sum(self, document: Document, slot: str) -> str:
        """Return the sum of what the rows have in a slot."""
        texts = [row[slot] for row in document.rows["*"]]
        digits = max(len(re.sub(r"^\d+[.,]?", "", text)) for text in texts)
        total = f"{sum(map(_number, texts)):.{digits}f}"
        return total.replace(".", ",") if "," in texts[0] else total

    def _value(self, slot: str, *, is_new: bool = True) -> str:
        """Return a value that does not stand in the document yet, if it must be new."""
        pools, name = _words()["pools"], slot.partition("_")[0]
        pool = pools[name]
        if self._written == "de":
            pool = pools["de"].get(name, pool)
        value = ""
        for _ in range(_TRIES):
            value = self._digits(self._rng.choice(self._side(pool)))
            if value not in self._used or not is_new:
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

    def two(
        self, language: str, tools: Collection[str] = tuple(_ARGUMENTS)
    ) -> tuple[Document, Asked]:
        """Return a document and a question for two things that stand in it, or might."""
        rng, self._language = self._rng, language
        for family in self._families(tools):
            try:
                document = self._document(family)
                facts = self._facts(document.family, 2)
                of_rows = [each for each in facts if "#>" in each[language][0]]
                if of_rows and rng.random() < 0.4:
                    facts = [of_rows[0], of_rows[0]]
                parts = [self._parts(document, fact) for fact in facts]
            except _TooAlikeError:
                continue
            if parts[0].answer == parts[1].answer or parts[0].quoted == parts[1].quoted != []:
                continue
            if document.listed:
                continue
            if sum(len(line) + 3 for line in document.lines) <= LONGEST:
                return document, self._both(document, parts)
        raise AssertionError

    def _both(self, document: Document, parts: list[_Parts]) -> Asked:
        """Return one question for two things."""
        rng, letters = self._rng, iter(string.ascii_uppercase)
        is_bare = any(_MARKED.fullmatch(each.thing[0]) for each in parts)
        frames = self._frames(document, "two")
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
        if all(each.quoted for each in parts):
            lines = dict.fromkeys(line for each in parts for line in each.quoted)
            return Asked(phrasing, slots, self._quote(document, list(lines)))
        answers = [each.answer or "\n".join(each.quoted) for each in parts]
        has_lines = not all(each.answer for each in parts)
        return Asked(phrasing, slots, ("\n" if has_lines else " ").join(answers))

    def _asked(self, document: Document, fact: dict[str, Any], *, again: bool) -> Asked:
        rng, language = self._rng, self._language
        question, thing, clause, answer, values, quoted, sum_of = self._parts(document, fact)
        if quoted:  # so small a model copies a line better than it tells one
            answer = self._quote(document, quoted)
        full = self._sayable(fact.get("full_" + language, []))
        is_bare = bool(_MARKED.fullmatch(thing[0]))  # a name alone is no question
        if again:
            phrasing = rng.choice(
                [
                    each
                    for each in self._frames(document, "again")
                    if not (is_bare and "<n>" in each)
                ]
            )
        elif full and rng.random() < 0.3:
            phrasing = rng.choice(full)
        else:
            shares = [0.5, 0.0 if is_bare else 0.2, 0.3]
            sort = rng.choices(["question", "thing", "clause"], shares)[0]
            phrasing = rng.choice(self._frames(document, sort))
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
        return Asked(phrasing, slots, answer, sum_of)

    def _quote(self, document: Document, lines: list[str]) -> str:
        """Return lines that answer a question, word for word."""
        frames = _words()["frames"][self._language]
        of_table = re.search(r"\S[,;|]\S| \| ", lines[0]) and document.rows
        sort = "quote" if len(lines) == 1 else "quotes"
        said: str = frames[sort + ("_rows" if of_table else "")]
        return said.replace("<l>", "\n".join(lines))

    def _about(self, document: Document, phrasing: str) -> str:
        """Return a phrasing as it is said of a page of the web, if that is what is asked about."""
        if document.tool != "web_fetch" and not document.page:
            return phrasing
        words = _ON_PAGES | ({"in": "auf"} if self._language == "de" else {})
        return re.sub(r"\b(in|into|In|aus) (?=\{P\})", lambda said: words[said[1]] + " ", phrasing)

    def _frames(self, document: Document, sort: str) -> list[str]:
        frames: list[str] = _words()["frames"][self._language][sort]
        if document.tool != "web_fetch" and not document.page:
            return frames
        return [self._about(document, each) for each in frames if not _OF_FILES.search(each)]

    def _sayable(self, forms: list[str]) -> list[str]:
        """Return the forms whose values are the same in the language of the document."""
        if self._written == self._language:
            return forms
        translated = _words()["pools"]["de"].keys() - _SAME_ABROAD
        return [
            each
            for each in forms
            if not any(
                re.split("[_#~]", slot.rpartition(":")[2])[0] in translated
                for slot in _MARKED.findall(each)
            )
        ]

    def _parts(self, document: Document, fact: dict[str, Any]) -> _Parts:
        """Return how a fact is asked for, its answer, and what fills both."""
        language = self._language
        question, thing, clause = (
            self._sayable([each.strip() for each in part.split(" / ")])
            for part in fact[language][:3]
        )
        if not (question and thing and clause):
            raise _TooAlikeError
        texts = str(fact[language]) + fact.get("by", "")
        known, fitting = self._of_rows(document, fact, texts)
        values = {**document.values, **known, **self._missing(texts)}
        answer = fact[language][3] if len(fact[language]) > 3 else ""
        told = fact.get("by") or answer
        quoted = [] if fact.get("quote") is False else self._lines(document, told, fitting)
        if "adds" in fact:
            sum_of = self._sum_of(document, fact, values)
            return _Parts(question, thing, clause, _with(answer, values), values, [], sum_of)
        if "line" in fact:
            quoted = [document.lines[fact["line"]]]
        if len(quoted) > _MOST_QUOTED:
            raise _TooAlikeError
        if len(fitting.get("where", [])) > 1:
            answer = ""
        elif not answer and not quoted:
            if not _is_absent(fact):
                raise _TooAlikeError
            gone: str = _words()["frames"][language]["gone"]
            answer = gone.replace("<n>", thing[0]).replace("{P}", "<path>")
        return _Parts(question, thing, clause, _with(answer, values), values, quoted)

    def _lines(self, document: Document, told: str, fitting: dict[str, list[int]]) -> list[str]:
        """Return the lines that say what an answer tells; none where they would not do."""
        slots = [slot for slot in _MARKED.findall(told) if slot != "path"]
        if "where" in fitting:
            rows = fitting["where"]
            needed = [_bare(slot) for slot in slots]
            return [
                line.text.strip()
                for line in document.made
                if line.mark == "*"
                and line.row in rows
                and (not needed or set(needed) & set(_MARKED.findall(line.template)))
            ]
        if not slots or any(re.fullmatch("list[:~].*|count~?|last[#~]", slot) for slot in slots):
            return []
        saying: list[set[_Line]] = []
        for slot in slots:
            mark, rows = "", [-1]
            for key in (slot[:5], slot[:6], slot[-1:]):
                if key in fitting and (key in "#~" or slot.startswith(key)):
                    mark, rows = "+" if "~" in key else "*", fitting[key]
            saying.append(
                {
                    line
                    for line in document.made
                    if line.mark == mark
                    and line.row in rows
                    and (slot if not mark else _bare(slot)) in _MARKED.findall(line.template)
                }
            )
        in_all = set.intersection(*saying)
        lines = in_all or set.union(*saying)
        if not all(saying) or len(lines) > (1 if in_all else 2):
            return []
        return [line.text.strip() for line in document.made if line in lines]

    def _sum_of(self, document: Document, fact: dict[str, Any], values: dict[str, str]) -> str:
        """Return what adds up the numbers of all rows, or of those that are alike in a slot."""
        alike, rows = fact.get("of", ""), document.rows["*"]
        if alike:
            rows = [row for row in rows if row[alike] == values[alike + "#"]]
        if "where" in fact:
            rows = [rows[index] for index in fitting_rows(rows, fact["where"], self._rng)]
        if len(rows) < 2:
            raise _TooAlikeError
        return " + ".join(row[fact["adds"]].replace(",", ".") for row in rows)

    def _missing(self, texts: str) -> dict[str, str]:
        """Return values for slots that do not stand in the document: those ending in `_x`."""
        return {
            slot: self._value(slot)
            for slot in dict.fromkeys(_MARKED.findall(texts))
            if slot.endswith("_x")
        }

    def _of_rows(
        self, document: Document, fact: dict[str, Any], texts: str
    ) -> tuple[dict[str, str], dict[str, list[int]]]:
        """Return what is known of the rows: one of them, their number, the first, the greatest.

        Which rows that is comes with it; `where` are those that a fact asks for.
        """
        known: dict[str, str] = {}
        fitting: dict[str, list[int]] = {}
        rank = families()[document.family].get("rank", "")
        where = fact.get("where_" + self._written, fact.get("where", ""))
        for mark, rows in document.rows.items():
            other = _KINDS_OF_ROWS[mark]
            asked = [_bare(slot) for slot in _MARKED.findall(texts) if slot[-1] == (other or "#")]
            full = [row for row in rows if all(row.get(slot, "x") for slot in asked)]
            if where and mark == "*":
                fits = fitting_rows(rows, where, self._rng)
                if not fits or len(fits) > _MOST_QUOTED:
                    raise _TooAlikeError
                fitting["where"], full = fits, [rows[fits[0]]]
            if not full:
                raise _TooAlikeError
            row = self._rng.choice(full)
            known |= {slot + (other or "#"): value for slot, value in row.items()}
            if "person" in row:
                known["last" + (other or "#")] = row["person"].split()[-1]
            known["count" + other] = str(len(rows))
            ranked = sorted(rows, key=lambda each: _number(each[rank])) if rank else rows
            sign = other or ":"
            fitting |= {
                other or "#": [rows.index(row)],
                "first" + sign: [0],
                "most" + sign: [rows.index(ranked[-1])],
                "least" + sign: [rows.index(ranked[0])],
            }
            for slot in row:
                known[f"list{sign}{slot}"] = self._enumerated([each[slot] for each in rows])
                known[f"first{sign}{slot}"] = rows[0][slot]
                known[f"most{sign}{slot}"] = ranked[-1][slot]
                known[f"least{sign}{slot}"] = ranked[0][slot]
        return known, fitting

    def _enumerated(self, items: list[str]) -> str:
        if len(items) == 1:
            return items[0]
        last = " und " if self._language == "de" else " and "
        return ", ".join(items[:-1]) + last + items[-1]


def _with(text: str, values: dict[str, str]) -> str:
    return _MARKED.sub(lambda match: values[match.group(1)], text)


def _is_absent(fact: dict[str, Any]) -> bool:
    """Return whether what is asked for does not stand in the document."""
    return len(fact["en"]) < 4 and not {"by", "where", "where_en", "line"} & set(fact)


def _bare(slot: str) -> str:
    """Return the slot of a row without what tells which row."""
    return slot.rstrip("#~").rpartition(":")[2].rpartition("~")[2]


def fitting_rows(rows: list[dict[str, str]], where: str, rng: random.Random) -> list[int]:
    """Return which rows fit, such as `last`, `mail empty`, `price max`, `status is open|late`."""
    slot, _, how = where.partition(" ")
    how, _, given = how.partition(" ")
    texts = [row.get(slot, "") for row in rows]
    if where in {"first", "last"}:
        return [0 if slot == "first" else len(rows) - 1]
    if how in {"max", "min", "over", "under"}:
        numbers = [_number(text) if text else None for text in texts]
        there = [number for number in numbers if number is not None]
        limit = float(given) if given else (max if how == "max" else min)(there)
        signs = {"over": 1, "under": -1}
        return [
            index
            for index, number in enumerate(numbers)
            if number is not None
            and (number - limit) * signs.get(how, 0) >= 0
            and (how in signs) == (number != limit)
        ]
    if how == "same":
        given = rng.choice([text for text in texts if text] or [""])
    wanted = set(given.split("|"))
    return [index for index, text in enumerate(texts) if (text in wanted) != (how == "not")]


def _number(text: str) -> float:
    found = re.search(r"-?\d+(?:[.,]\d+)?", text)
    return float(found.group().replace(",", ".")) if found else 0.0


def _version(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]
