"""Files of everyday life, and a change of one of them as people ask for it in its own words.

What is asked for, and what becomes of the file, stands in assistant_edits.toml: there a line that
goes begins with `-|`, one that comes with `+|`, and `<name>` is a value of the sort `name`.
"""

import random
import re
import tomllib
from collections.abc import Callable
from functools import cache
from typing import Any

from training.data.lists import WORDS

_PAGE = "td|ul|li|svg|title|header|footer|circle"  # marks of pages, no values
_PLACE = re.compile(rf"<(?!(?:{_PAGE})>)([a-z_]+\d?)>")
_FREE = "ABCFGHJKOQSUXYZ"  # slots of values, AA to AZ: the others are those of what changes
_MINUTES = ["00", "00", "00", "15", "20", "30", "30", "40", "45", "50"]
_TRIES = 60
_DIGITS = "0123456789"


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads((WORDS / "assistant_edits.toml").read_text("utf-8"))


@cache
def misspelt(language: str) -> list[list[str]]:
    """Return words as they are written wrongly, and rightly."""
    return [pair.split() for pair in _words()["misspelt"][language]]


def _sort_of(text: str) -> str:
    """Return which sort of change a text with its marks has."""
    marks = [line[:2] for line in text.split("\n")]
    gone, come = marks.count("-|"), marks.count("+|")
    if gone > 1:
        return "twice"
    return "edit" if gone and come else "cut" if gone else "add"


@cache
def _entries(sort: str, language: str) -> list[tuple[list[str], str, list[str]]]:
    """Return files, texts and requests of a sort that can be asked for in a language."""
    found: list[tuple[list[str], str, list[str]]] = []
    for each in _words()["edit"]:
        text = each.get(f"text_{language}", each.get("text", "")).strip("\n")
        if each.get(language) and _sort_of(text) == sort:
            files = each.get(f"files_{language}", each.get("files", []))
            found.append((files, text, each[language]))
    return found


def _filled(text: str, values: dict[str, str]) -> str:
    return _PLACE.sub(lambda each: values[each[1]], text)


def _form(line: str) -> str:
    """Return a line without marks, and without what tells its values from those of others."""
    old = line.partition("\0")[0].removeprefix("-|").removeprefix("+|")
    return _PLACE.sub(lambda each: f"<{each[1].rstrip(_DIGITS)}>", old)


def _weight(entry: tuple[list[str], str, list[str]]) -> float:
    return 2.0 + len(entry[2])


class Edits:
    """A factory of such files.

    Args:
        rng: the source of all chance.
        person: returns somebody's name.
        word: returns a word.
    """

    def __init__(
        self, rng: random.Random, person: Callable[[], str], word: Callable[[], str]
    ) -> None:
        self._rng, self._person, self._word = rng, person, word

    def draw(self, sort: str, language: str) -> tuple[list[str], dict[str, str], str]:
        """Return names of a file, what fills the slots, and how it is asked for, with slots.

        Args:
            sort: `edit`, `cut`, `add` or `twice`.
            language: of the request.
        """
        rng = self._rng
        entries = _entries(sort, language)
        while True:
            [(files, text, requests)] = rng.choices(entries, [_weight(each) for each in entries])
            asked, text = rng.choice(requests), self._mixed(text, sort)
            values = self._values(text + asked, language)
            lines = _filled(text, values).split("\n")
            old = [line[2:] for line in lines if line.startswith("-|")]
            new = [line[2:] for line in lines if line.startswith("+|")]
            if sort == "edit":  # several lines may come instead of one
                new = ["\n".join(new)]
            before = [line.removeprefix("-|") for line in lines if not line.startswith("+|")]
            whole = "\n".join(before)
            if all(whole.count(each.strip()) == 1 for each in old) and old != new:
                break
        slots = {"AT": whole}
        for letter, line in zip("LV", old, strict=False):
            slots["A" + letter] = line.strip()
            slots["AI"] = str(before.index(line) + 1)
        for letter, line in zip("MW", new, strict=False):
            slots["A" + letter] = line.strip() if old else line
        names = {"f": "AP"}
        for letter, name in zip(_FREE, dict.fromkeys(_PLACE.findall(asked)), strict=False):
            if name != "f":
                names[name] = "A" + letter
                slots["A" + letter] = values[name]
        shown = {name: "{" + slot + "}" for name, slot in names.items()}
        return files, slots, _filled(asked, shown)

    def _mixed(self, text: str, sort: str) -> str:
        """Return a text in which what changes stands anywhere among lines of its form."""
        if sort == "twice":
            return text
        rng = self._rng
        units = text.replace("\n+|", "\0+|").split("\n")  # a line stays with what comes instead
        if sort == "add":
            *units, added = text.split("\n")
        else:
            added = next(each for each in units if each.startswith("-|"))
        form = _form(added)
        alike = [index for index, each in enumerate(units) if _form(each) == form]
        if sort != "add":
            order = rng.sample(alike, len(alike))
            units = [
                units[order[alike.index(index)]] if index in alike else each
                for index, each in enumerate(units)
            ]
        more = rng.choice([0, 0, 1, 1, 2, 3]) if len(alike) > 1 else 0
        for number in range(6, 6 + more):
            other = _PLACE.sub(rf"<\g<1>{number}>", form)
            units.insert(rng.choice(alike) + (sort == "add"), other)
        if sort == "add":
            units.append(added)
        return "\n".join(units).replace("\0", "\n")

    def _values(self, text: str, language: str) -> dict[str, str]:
        """Return a value for each that a text names; no two are the same."""
        values: dict[str, str] = {"f": ""}
        standing = _PLACE.sub("", text)
        for name in _PLACE.findall(text):
            tries = 0
            while name not in values and tries < _TRIES:
                tries += 1
                value = self._value(name.rstrip(_DIGITS), language)
                is_new = value not in values.values() and (len(value) < 4 or value not in standing)
                if is_new or tries == _TRIES:
                    values[name] = value
        return values

    def _value(self, sort: str, language: str) -> str:
        rng = self._rng
        known = _words()["values"]
        listed = known.get(f"{sort}_{language}", known.get(sort, []))
        if listed:
            return re.sub("@", lambda _: str(rng.randint(0, 9)), rng.choice(listed))
        cents = rng.choice(["00", "20", "50", "90", "40", "80", "95", "75"])
        makers: dict[str, Callable[[], str]] = {
            "p": self._person,
            "w": self._word,
            "n": lambda: str(rng.randint(2, 60)),
            "big": lambda: str(rng.choice([rng.randint(100, 999), rng.randint(10, 99) * 100])),
            "id": lambda: str(rng.randint(101, 6999)),
            "port": lambda: str(rng.choice([rng.randint(1024, 9999), rng.randint(80, 99) * 100])),
            "t": lambda: f"{rng.randint(7, 21)}:{rng.choice(_MINUTES)}",
            "late": lambda: f"{rng.randint(12, 22)}:{rng.choice(_MINUTES)}",
            "price": lambda: f"{rng.randint(1, 60)}{',' if language == 'de' else '.'}{cents}",
            "amount": lambda: f"{rng.randint(12, 2400)}.{cents}",
            "hex": lambda: f"#{rng.getrandbits(24):06x}",
            "px": lambda: f"{rng.randint(4, 64)}px",
            "iso": lambda: (
                f"{rng.randint(2025, 2028)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
            ),
            "ver": lambda: f"{rng.randint(0, 4)}.{rng.randint(0, 19)}.{rng.randint(0, 9)}",
        }
        return makers[sort]()
