"""Files with something to be changed or taken over, and what is said of it.

A request names what is meant as people call it (`the port`); the file has a line of its own for it
(`  listen 8080;`), which is read before it is changed. Words stand in assistant_values.toml.
"""

import random
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from training.assistant.edits import Edits, misspelt

if TYPE_CHECKING:
    from training.assistant.values import Values

Pair = tuple[str, Any]  # a value as the request has it, and as the call has it

# Of which slots one group consists: they belong together, and are drawn at once.
GROUPS = {
    "changes": frozenset(
        {"CP", "CT", "CK", "CD", "CE", "CO", "CN", "CL", "CM", "CI", "CX", "CS", "CG", "CH", "CA"}
    ),
    "blanks": frozenset({"BP", "BT", "BK", "BD", "BE", "BN", "BL", "BM", "BG"}),
    "statuses": frozenset({"KP", "KT", "KK", "KO", "KN", "KL", "KM", "KI", "KS", "KU", "KC"}),
    "versions": frozenset({"VP", "VB", "VL", "VM", "VN", "VO", "VK", "VU", "VR"}),
    "tasks": frozenset({"UP", "UT", "UO", "UD"}),
    "headings": frozenset({"HT", "HL"}),
    "slips": frozenset({"QW", "QR"}),
    "amounts": frozenset(
        {"EP", "ET", "EK", "ES", "EM", "EI", "EJ", "EN", "EA", "EB", "EL", "EG", "EH", "EC", "ED"}
    ),
    "looked_up": frozenset({"QA", "QE", "QS", "QL", "QV"}),
    "rates": frozenset({"RK", "RL", "RV"}),
    "translated": frozenset({"XE", "XD"}),
    "hits": frozenset({"YP", "YW", "YH", "YN", "YL", "YT"}),
    "edits": frozenset({"AP", "AT", "AR", "AL", "AM", "AV", "AW", "AI"}),
    "typos": frozenset({"ZA", "ZB", "ZC", "ZD"}),
}
GROUPED = frozenset[str]().union(*GROUPS.values())
_MEANT = "§"  # in a text: what is to be changed
_NO_FOLDER = 0.65  # of the files lie right here
_COMMENTED = (".py", ".sh", ".toml", ".yml", ".yaml", ".conf", ".env", "file", "_config")
_RENAMED = 0.3  # of the notes and tables have names that tell nothing
_INVENTED = 0.35  # of the changed files have settings with invented names
_STARTS = [
    "max", "min", "default", "initial", "allowed", "total", "front", "back", "user", "admin",
    "cache", "mail", "image",
]  # fmt: skip
_ENDS = [
    "size", "limit", "delay", "count", "name", "level", "interval", "host", "color", "ratio",
    "title", "depth",
]  # fmt: skip
_SPECS = ["int:1-99", "int:10-9000", "int:2-50", "word", "word", "hex", "time", "host", "name"]
_SYNTAXES = [
    ("toml", "K = V", "_"), ("py", "K = V", "upper"), ("py", "K = V", "_"), ("sh", "K=V", "upper"),
    ("json", '  "K": V,', "camel"), ("json", '  "K": V,', "_"), ("yml", "K: V", "_"),
    ("yaml", "K: V", "-"), ("ini", "K = V", "_"), ("cfg", "K = V", "-"), ("env", "K=V", "upper"),
    ("js", "const K = V;", "camel"), ("css", "  --K: V;", "-"), ("properties", "K=V", "."),
    ("ts", "  K: V,", "camel"), ("conf", "K V", "_"),
]  # fmt: skip
_ARTICLES = {"m": ("der", "den"), "f": ("die", "die"), "n": ("das", "das")}
_PARTS = {
    "en": [
        ["major version", "major number", "first number of the version"],
        ["minor version", "minor number", "middle number of the version"],
        ["patch version", "patch level", "patch number", "last number of the version"],
    ],
    "de": [
        ["Major-Version", "erste Stelle der Version", "Hauptversion"],
        ["Minor-Version", "mittlere Stelle der Version", "Nebenversion"],
        ["Patch-Version", "letzte Stelle der Version", "Patch-Nummer"],
    ],
}
_DAYS = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
}
_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
}


def _same(text: str) -> Pair:
    return text, text


def _key(words: list[str], style: str) -> str:
    """Return words as a key is written: in camel case, capitals, or joined by a sign."""
    joined = [part for word in words for part in word.split()]
    if style == "camel":
        return joined[0].lower() + "".join(part.capitalize() for part in joined[1:])
    return "_".join(joined).upper() if style == "upper" else style.join(joined)


class Changes:
    """A factory of such files.

    Args:
        rng: the source of all chance.
        values: the factory of values, which names files and has words.
        real: what real projects have.
    """

    def __init__(self, rng: random.Random, values: "Values", real: dict[str, list[Any]]) -> None:
        self._rng, self._values, self._real = rng, values, real
        self._everyday = Edits(rng, values.make.person, values.make.word)

    def all(self, slots: Collection[str], language: str) -> dict[str, Pair]:
        """Return the values of every group of which a slot is wanted."""
        filled: dict[str, Pair] = {}
        for name, group in GROUPS.items():
            if group & set(slots):
                filled |= getattr(self, "_" + name)(set(slots), language)
        return filled

    def _said(self, text: str) -> Pair:
        """Return a value as it is said, now and then in quotes."""
        quote = self._rng.choice("\"'`")
        if self._rng.random() < 0.12 and not set(text) & set("\"'`"):
            return quote + text + quote, text
        return text, text

    def _path(self, names: list[str]) -> Pair:
        path = self._filled(self._rng.choice(names))
        folder, _, name = path.rpartition("/")
        ending = name.rpartition(".")[2]
        if ending in {"txt", "md", "csv"} and name != "README.md" and self._rng.random() < _RENAMED:
            path = f"{folder}/{self._values.make.name()}.{ending}".removeprefix("/")
        if "/" not in path and self._rng.random() > _NO_FOLDER:
            path = f"{self._values.folder().rstrip('/')}/{path}"
        named = self._values.named(path)
        return named.shown, named.sent

    def _filled(self, text: str) -> str:
        """Return a text with its words, numbers and names."""
        make, rng = self._values.make, self._rng
        text = text.replace("{w}", make.word()).replace("{p}", make.person())
        return text.replace("{n}", str(rng.randint(1, 99)))

    def _standing(self, spec: str | list[str], language: str) -> str:
        """Return what may stand where something is to be changed."""
        rng, make = self._rng, self._values.make
        if isinstance(spec, list):
            return self._filled(rng.choice(spec))
        if spec.startswith("int:"):
            low, _, high = spec[4:].partition("-")
            number = rng.randint(int(low), int(high))
            rounded = number // 10 * 10
            return str(rounded if rounded >= int(low) and rng.random() < 0.5 else number)
        month = rng.choice(_MONTHS[language].split())
        day, point = rng.randint(1, 28), "." if language == "de" else ""
        return {
            "hex": f"#{rng.getrandbits(24):06x}" if rng.random() < 0.6 else f"#{day * 9:03x}",
            "time": f"{rng.randint(6, 22)}:{rng.choice(['00', '15', '30', '45'])}",
            "price": f"{rng.randint(1, 480)}.{rng.choice(['00', '50', '90', '25', '40'])}",
            "name": make.person(),
            "word": make.word(),
            "host": rng.choice(
                [f"10.0.{rng.randint(0, 99)}.{rng.randint(2, 99)}", f"{make.word()}.example.org"]
            ),
            "year": str(rng.randint(1620, 2012)),
            "big": f"{rng.randint(2, 980)},{rng.randint(100, 999)}"
            if language == "en"
            else f"{rng.randint(2, 980)}.{rng.randint(100, 999)}",
            "day": rng.choice(
                [f"{day}{point} {month}", f"2027-{rng.randint(1, 12):02d}-{day:02d}"]
            ),
        }[spec]

    def _changed(
        self, prefix: str, entry: list[Any], language: str, old: str = ""
    ) -> dict[str, Pair]:
        """Return a file with one thing in it that is another afterwards."""
        rng = self._rng
        names, labels, spec, text = entry
        new = self._standing(spec, language)
        is_gap = prefix == "B"
        while not is_gap and old in {"", new}:
            old = self._standing(spec, language)
        text = self._filled(text)
        before = [line.replace(_MEANT, old).rstrip() for line in text.split("\n")]
        at = next(index for index, line in enumerate(text.split("\n")) if _MEANT in line)
        line = text.split("\n")[at].strip()
        label = rng.choice(labels)
        subject = object_ = f"the {label}"
        if language == "de":
            gender, _, label = label.partition(" ")
            subject, object_ = (f"{article} {label}" for article in _ARTICLES[gender])
            object_ = re.sub(r"\b(\w*[Nn]ame)\b", r"\1n", object_, count=1)
        known = {
            "T": "\n".join(before),
            "K": label,
            "D": subject,
            "E": object_,
            "O": old,
            "L": line.replace(_MEANT, old).rstrip(),
            "M": line.replace(_MEANT, new),
            "G": line.partition(_MEANT)[0],
            "H": line.partition(_MEANT)[2],
            "X": "# " + line.replace(_MEANT, old),
        }
        filled = {prefix + letter: _same(each) for letter, each in known.items()}
        number = str(at + 1), at + 1
        filled |= {prefix + "N": self._said(new), prefix + "I": number}
        return filled | {prefix + "P": self._path(names)}

    def _changes(self, slots: set[str], language: str) -> dict[str, Pair]:
        """Return a setting or a fact: C with P path, T text, K its name, O and N values."""
        rng, german = self._rng, language == "de"
        settings = [
            [names, de if german else en, spec, text]
            for names, en, de, spec, text in self._real["changes"]
        ]
        notes = self._real["changes_notes_de" if german else "changes_notes"]
        entries = settings if rng.random() < 0.6 else notes
        if {"CS", "CG", "CA"} & slots:  # it is reckoned with
            entries = [each for each in settings + notes if str(each[2]).startswith("int:")]
        if "CX" in slots:
            entries = [each for each in settings if each[0][0].endswith(_COMMENTED)]
        entry = rng.choice(entries)
        if "CX" not in slots and rng.random() < _INVENTED:
            entry = self._invented(language, "int:2-900" if {"CS", "CG", "CA"} & slots else "")
        filled = self._changed("C", entry, language)
        steps = [1, 2, 5, 10, 20, 50, 100, rng.randint(2, 60)]
        if "CS" in slots:
            steps = [each for each in steps if each < int(filled["CO"][1])] or [1]
        return filled | {"CS": _same(str(rng.choice(steps))), "CA": filled["CO"]}

    def _invented(self, language: str, spec: str) -> list[Any]:
        """Return a file of settings with names that nobody has heard of."""
        rng, make = self._rng, self._values.make
        keys: list[list[str]] = []
        for _ in range(rng.choice([2, 3, 3])):
            start = rng.choice([rng.choice(_STARTS), rng.choice(make.adjectives), make.noun()])
            ends = rng.sample(_ENDS, 2)
            if rng.random() < 0.4:
                ends[0] = make.noun()
            keys.append([start, *ends[: rng.choice([1, 1, 2])]])
        ending, form, style = rng.choice(_SYNTAXES)
        values = [spec or rng.choice(_SPECS) for _ in keys]
        at = rng.randrange(len(keys))
        lines: list[str] = []
        for index, (words, each) in enumerate(zip(keys, values, strict=True)):
            standing = _MEANT if index == at else self._standing(each, language)
            bare = each.startswith("int") or ending in {
                "sh",
                "env",
                "ini",
                "yml",
                "properties",
                "css",
            }
            line = form.replace("V", standing if bare else f'"{standing}"', 1)
            lines.append(line.replace("K", _key(words, style), 1))
        if ending == "json":
            lines = ["{", *lines[:-1], lines[-1].removesuffix(","), "}"]
        text = "\n".join(lines)
        label = rng.choice([" ".join(keys[at]), " ".join(keys[at]), _key(keys[at], style)])
        name = rng.choice(["config", "settings", make.word(), make.noun(), "app", "defaults"])
        german = [f"m Wert für {label}", f"m Wert von {label}", f"f Einstellung {label}"]
        names = [".env" if ending == "env" and rng.random() < 0.5 else f"{name}.{ending}"]
        return [names, german if language == "de" else [label], values[at], text]

    def _blanks(self, slots: set[str], language: str) -> dict[str, Pair]:
        """Return a form with a gap: B as C, and N what fills it."""
        entries = self._real["blanks_de" if language == "de" else "blanks"]
        dated = [each for each in entries if {"date", "n Datum"} & set(each[1])]
        entry = self._rng.choice(dated if "BG" in slots and dated else entries)
        return self._changed("B", entry, language, self._rng.choice(self._real["gaps"]))

    def _statuses(self, _slots: set[str], language: str) -> dict[str, Pair]:
        """Return a list with a status each: K with P path, T text, K item, O and N status."""
        rng = self._rng
        key = "statuses_de" if language == "de" and rng.random() < 0.85 else "statuses"
        names, form, items, known = rng.choice(self._real[key])
        items = rng.sample(items, rng.choice([3, 3, 4]))
        states = [rng.choice(known) for _ in items]
        at = rng.randrange(len(items))
        new = rng.choice([each for each in known if each != states[at]])
        lines = [
            form.replace("{}", item, 1).replace("{}", state, 1)
            for item, state in zip(items, states, strict=True)
        ]
        changed = form.replace("{}", items[at], 1).replace("{}", new, 1)
        texts = {"KT": "\n".join(lines), "KL": lines[at], "KM": changed, "KO": states[at]}
        texts["KS"] = "\n".join(
            line for line, state in zip(lines, states, strict=True) if state == states[at]
        )
        alike = [item for item, state in zip(items, states, strict=True) if state == states[at]]
        texts |= {"KU": "\n".join(alike), "KC": str(len(alike))}
        filled = {name: _same(text) for name, text in texts.items()}
        number = str(at + 1), at + 1
        said = {"KK": self._said(items[at]), "KN": self._said(new)}
        return filled | said | {"KI": number, "KP": self._path(names)}

    def _versions(self, _slots: set[str], language: str) -> dict[str, Pair]:
        """Return a file with a version O: V with N another, K a part of it, U raised there."""
        rng, make = self._rng, self._values.make
        form, *names = rng.choice(self._real["versions"])
        parts = [rng.choice([0, 1, 2, rng.randint(3, 12)]), rng.randint(0, 24), rng.randint(0, 20)]
        which = rng.choice([0, 1, 1, 2, 2, 2])
        raised = [*parts[:which], parts[which] + 1, *[0] * (2 - which)]
        other = [parts[0], parts[1] + rng.randint(1, 9), rng.randint(0, 20)]
        if rng.random() < 0.4:
            other = [parts[0] + rng.choice([1, 1, 2]), rng.randint(0, 9), rng.randint(0, 9)]
        old, bumped, new = (".".join(str(part) for part in each) for each in (parts, raised, other))
        around = {
            "pyproject.toml": (f'name = "{make.word()}"', 'license = "MIT"'),
            "package.json": ("{", f'  "name": "{make.word()}"'),
        }.get(names[0], ())
        lines = [*around[:1], form.replace("{}", old), *around[1:]]
        if names[0] == "package.json":
            lines.append("}")
        form = form.strip()
        known = {
            "VB": "\n".join(lines) if len(lines) > 1 else lines[0],
            "VL": form.replace("{}", old),
            "VM": form.replace("{}", new),
            "VR": form.replace("{}", bumped),
            "VO": old,
            "VU": bumped,
            "VN": new,
            "VK": rng.choice(_PARTS[language][which]),
        }
        filled = {name: _same(text) for name, text in known.items()}
        return filled | {"VP": self._path(names)}

    def _tasks(self, _slots: set[str], language: str) -> dict[str, Pair]:
        """Return a list of tasks of which some are done: U with P path, T text, O open, D done."""
        rng = self._rng
        items: list[str] = []
        while len(items) < 4:
            items = list(dict.fromkeys([*items, self._values.short(language)]))
        marks = ["[ ]", "[x]", *rng.choices(["[ ]", "[x]"], k=rng.choice([1, 2]))]
        rng.shuffle(marks)
        lines = [f"- {mark} {item}" for mark, item in zip(marks, items, strict=False)]
        names = {
            "en": ["todo.md", "tasks.md", "TODO.md", "chores.md", "plan.md", "checklist.md"],
            "de": ["todo.md", "aufgaben.md", "erledigen.md", "plan.md", "checkliste.md"],
        }
        texts = {
            "UT": "\n".join(lines),
            "UO": "\n".join(line for line in lines if "[ ]" in line),
            "UD": "\n".join(line for line in lines if "[x]" in line),
        }
        filled = {name: _same(text) for name, text in texts.items()}
        return filled | {"UP": self._path(names[language])}

    def _headings(self, _slots: set[str], language: str) -> dict[str, Pair]:
        """Return a text under headings, HT, and its headings, HL."""
        short = self._values.short
        lines = [f"# {short(language)}"]
        for _ in range(self._rng.choice([1, 2, 2])):
            lines += [short(language), f"## {short(language)}"]
        lines.append(short(language))
        found = [line for line in lines if line.startswith("#")]
        return {"HT": _same("\n".join(lines)), "HL": _same("\n".join(found))}

    def _amounts(self, _slots: set[str], language: str) -> dict[str, Pair]:
        """Return a list of numbers: E with P path, T text, K what they are, S what adds them up.

        EI is one of them with its number EN, as a sum has it EA, and its line EL, EJ another with
        EB; EG has the largest, EH; EC is how many there are, EM their mean, ED the two together.
        """
        rng = self._rng
        key = "amounts_de" if language == "de" else "amounts"
        told, names, spec, items = rng.choice(self._real[key])
        items = rng.sample(items, rng.choice([2, 3, 3, 4]))
        numbers: list[str] = []
        while len(set(numbers)) < len(items):
            numbers = [self._standing(spec, language) for _ in items]
        reckoned = [*numbers]
        if spec == "price" and language == "de":
            numbers = [number.replace(".", ",") for number in numbers]
        form = rng.choice(["{}: {}", "{}: {}", "{} {}", "- {}: {}", "{} = {}", "{};{}"])
        lines = [
            form.replace("{}", item, 1).replace("{}", number, 1)
            for item, number in zip(items, numbers, strict=True)
        ]
        one, other = rng.sample(range(len(items)), 2)
        largest = max(range(len(items)), key=lambda index: float(reckoned[index]))
        total = " + ".join(reckoned)
        texts = {
            "ET": "\n".join(lines),
            "EK": told,
            "ES": total,
            "EM": f"({total}) / {len(items)}",
            "EN": numbers[one],
            "EA": reckoned[one],
            "EB": reckoned[other],
            "EL": lines[one],
            "EG": items[largest],
            "EH": numbers[largest],
            "EC": str(len(items)),
            "ED": f"{reckoned[one]} + {reckoned[other]}",
        }
        filled = {name: _same(text) for name, text in texts.items()}
        said = {"EI": self._said(items[one]), "EJ": self._said(items[other])}
        return filled | said | {"EP": self._path(names)}

    def _looked_up(self, _slots: set[str], language: str) -> dict[str, Pair]:
        """Return what is looked up: QA as it is told, QS what is searched, QV the answer in QL."""
        key = "looked_up_de" if language == "de" else "looked_up"
        told, searched, text, spec = self._rng.choice(self._real[key])
        name, place = self._values.make.word().capitalize(), self._filled("{p}")
        told, searched, text = (
            each.replace("{N}", name).replace("{P}", place) for each in (told, searched, text)
        )
        answer = self._standing(spec, language)
        object_ = re.sub("^der ", "den ", told) if language == "de" else told
        known = {
            "QA": told,
            "QE": object_,
            "QS": searched,
            "QL": text.replace(_MEANT, answer),
            "QV": answer,
        }
        return {name: _same(text) for name, text in known.items()}

    def _rates(self, _slots: set[str], language: str) -> dict[str, Pair]:
        """Return a number that a page has: RK what it is, RL its line, RV the number."""
        rng = self._rng
        told, text, low, high = rng.choice(self._real["rates_de" if language == "de" else "rates"])
        number = f"{rng.uniform(low, high):.{rng.choice([1, 2, 2, 3])}f}"
        if high > 90:
            number = str(rng.randint(int(low), int(high)))
        text = self._filled(text).replace(_MEANT, number)
        return {name: _same(each) for name, each in (("RK", told), ("RL", text), ("RV", number))}

    def _translated(self, _slots: set[str], _language: str) -> dict[str, Pair]:
        """Return two sentences in English, XE, and in German, XD."""
        pairs = self._rng.sample(self._real["translations"], 2)
        english, german = ("\n".join(each) for each in zip(*pairs, strict=True))
        return {"XE": _same(english), "XD": _same(german)}

    def _hits(self, _slots: set[str], _language: str) -> dict[str, Pair]:
        """Return what a search for YW in a log YP finds, YH: YN lines, YL; YT is the text."""
        rng, make = self._rng, self._values.make
        words = ["ERROR", "WARN", "WARNING", "FATAL", "failed", "timeout", "denied", "404", "retry"]
        if rng.random() < 0.35:
            words = [make.word()]
        word, count = rng.choice(words), rng.choice([1, 2, 2, 3, 3, 4])
        day = f"2027-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        minutes = sorted(rng.sample(range(1, 1440), count + rng.choice([1, 1, 2])))
        fitting = set(rng.sample(range(len(minutes)), count))
        lines = []
        form = rng.choice(["{d} {t} {w} {s}", "[{t}] {w} {s}", "{t} {w}: {s}", "{d} {s} {w}"])
        for index, minute in enumerate(minutes):
            mark = word if index in fitting else rng.choice(["INFO", "ok", "DEBUG"])
            line = form.replace("{d}", day).replace("{t}", f"{minute // 60:02d}:{minute % 60:02d}")
            lines.append(line.replace("{w}", mark).replace("{s}", f"{make.word()} {make.noun()}"))
        names = ["app.log", "error.log", "server.log", "logs/{w}.log", "{w}.log", "access.log"]
        path = self._path([*names, "build.txt", "/var/log/{w}.log", "sync.log", "out/run.log"])
        found = [(index + 1, lines[index]) for index in sorted(fitting)]
        texts = {
            "YH": "\n".join(f"{path[1]}:{number}:{line}" for number, line in found),
            "YN": str(count),
            "YL": "\n".join(line for _, line in found),
            "YT": "\n".join(lines),
        }
        filled = {name: _same(text) for name, text in texts.items()}
        return filled | {"YP": path, "YW": self._said(word)}

    def _slips(self, _slots: set[str], language: str) -> dict[str, Pair]:
        """Return what is wrong and what is right in its stead: a day, a name, a number."""
        rng, make = self._rng, self._values.make
        hour = rng.randint(7, 20)
        pair = rng.choice(
            [
                rng.sample(_DAYS[language].split(), 2),
                rng.sample(_DAYS[language].split(), 2),
                rng.sample(_MONTHS[language].split(), 2),
                [make.person(), make.person()],
                [make.person(), make.person()],
                [make.word(), make.word()],
                [rng.choice(make.places), rng.choice(make.places)],
                [f"{hour}:00", f"{hour}:30"],
                [f"{hour}:15", f"{hour + 1}:15"],
                [str(rng.randint(2, 90)), str(rng.randint(91, 900))],
                [str(rng.randint(1950, 1999)), str(rng.randint(2000, 2035))],
                [f"{rng.randint(1, 28)}.{rng.randint(1, 12)}.", f"{rng.randint(1, 28)}.12.2027"],
            ]
        )
        if pair[0] == pair[1]:
            return self._slips(_slots, language)
        if rng.random() < 0.3:
            pair.reverse()
        return {"QW": self._said(pair[0]), "QR": self._said(pair[1])}

    def _edits(self, slots: set[str], language: str) -> dict[str, Pair]:
        """Return a file of everyday life and a change: A with P path, T text, R how it is asked.

        L and M are the line before and after, V and W those of a second one, I its number.
        """
        sort = "twice" if "AV" in slots else "cut" if "AI" in slots else "edit"
        if sort == "edit" and "AL" not in slots:
            sort = "add"
        names, drawn, asked = self._everyday.draw(sort, language)
        filled = {name: _same(text) for name, text in drawn.items()}
        if "AI" in drawn:
            filled["AI"] = drawn["AI"], int(drawn["AI"])
        return filled | {"AR": _same(asked), "AP": self._path(names)}

    def _typos(self, _slots: set[str], language: str) -> dict[str, Pair]:
        """Return two misspelt words, ZA and ZC, and the right ones, ZB and ZD."""
        (one, right), (two, other) = self._rng.sample(misspelt(language), 2)
        said = self._said if self._rng.random() < 0.3 else _same
        return {"ZA": said(one), "ZB": _same(right), "ZC": said(two), "ZD": _same(other)}
