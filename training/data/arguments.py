"""Makes what tools take beside texts: paths, URLs, commands, sums."""

import random
import string

from training.data.lists import (
    COMMAND_FORMS,
    COMMANDS,
    DIRECTORIES,
    EXTENSIONS,
    FILE_STEMS,
    URL_SEGMENTS,
    WELL_KNOWN_FILES,
)
from training.data.texts import Texts

_OPERATORS = (
    ("+", "plus"),
    ("-", "minus"),
    ("*", "times"),
    ("/", "divided by"),
    ("*", "multiplied by"),
    ("*", "x"),
    ("/", "over"),
)

_ENDINGS = ("s", "er", "ing", "d", "y", "do", "day", "al", "2", "ly", "x", "-list", "_old")


class Arguments(Texts):
    """A factory of all arguments. Some names begin like `tricky_words`, words of the requests."""

    def __init__(self, rng: random.Random, tricky_words: list[str], *, held_out: bool) -> None:
        super().__init__(rng, held_out=held_out)
        self._tricky_words = tricky_words

    def name(self) -> str:
        """Returns a file or folder name without extension."""
        rng = self._rng
        chance = rng.random()
        if chance < 0.28:
            return rng.choice(FILE_STEMS)
        if chance < 0.40:
            return self._tricky_name()
        if chance < 0.46:
            form = rng.choice(["%d-%02d-%02d", "%d-%02d-%02d", "%d_%02d_%02d"])
            return form % (rng.randint(2019, 2031), rng.randint(1, 12), rng.randint(1, 28))
        if chance < 0.50:
            return rng.choice(FILE_STEMS) + rng.choice("-_") + str(rng.randint(1, 2030))
        if chance < 0.56:
            return self.noun() + rng.choice(["", "s", "_list", "-plan"])
        if chance < 0.78:
            return self._cased(self.word())
        if chance < 0.88:
            return self.word() + rng.choice("_-") + self.word()
        if chance < 0.95:
            return self.word() + str(rng.randint(0, 999))
        return self.word() + rng.choice("_-") + str(rng.randint(0, 9999))

    def file_name(self) -> str:
        chance = self._rng.random()
        if chance < 0.84:
            return self.name() + "." + self._rng.choice(EXTENSIONS)
        if chance < 0.97:
            return self._rng.choice(WELL_KNOWN_FILES)
        return "." + self.word()

    def directory(self) -> str:
        rng = self._rng
        chance = rng.random()
        depth = rng.choice([1, 1, 1, 1, 2, 2, 3])
        path = "/".join(
            self.name() if rng.random() < 0.5 else rng.choice(DIRECTORIES) for _ in range(depth)
        )
        for limit, prefix in ((0.6, ""), (0.78, "/"), (0.85, "./"), (0.93, "~/"), (1.0, "../")):
            if chance < limit:
                path = prefix + path
                break
        return path + "/" if rng.random() < 0.13 else path

    def path(self) -> str:
        if self._rng.random() < 0.5:
            return self.file_name()
        return self.directory().rstrip("/") + "/" + self.file_name()

    def url(self) -> str:
        rng, word = self._rng, self.word
        host = word() + (rng.choice("-.") + word() if rng.random() < 0.3 else "")
        host += "." + rng.choice(["com", "org", "net", "io", "dev", "local", "de"])
        chance = rng.random()
        if chance < 0.25:
            local = f"10.0.0.{rng.randint(1, 254)}"
            known = ["localhost", "127.0.0.1", "example.com", "example.org", local]
            host = rng.choice([*known, *(prefix + host for prefix in ("www.", "api.", "docs."))])
        elif chance < 0.4:
            host = rng.choice(["www.", "api.", "docs.", "m."]) + host
        if rng.random() < 0.25:
            host += f":{rng.randint(80, 9999)}"
        url = rng.choice(["https://", "https://", "http://"]) + host
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            url += "/" + (self.name() if rng.random() < 0.7 else rng.choice(URL_SEGMENTS))
        if rng.random() < 0.12:
            url += "." + rng.choice(["html", "json", "txt"])
        elif rng.random() < 0.12:
            url += "/"
        if rng.random() < 0.13:
            url += f"?{word()}=" + (word() if rng.random() < 0.5 else str(rng.randint(0, 999)))
        return url

    def command(self) -> str:
        rng = self._rng
        if rng.random() < 0.15:
            return rng.choice(COMMANDS)
        makers = {
            "{P}": self.path,
            "{P2}": self.path,
            "{D}": self.directory,
            "{W}": self.word,
            "{W2}": self.word,
            "{X}": lambda: self.words(2, 3),
            "{N}": lambda: str(rng.randint(1, 99)),
            "{Q}": self._quoted_words,
            "{C}": lambda: rng.choice(string.ascii_lowercase),
        }
        command = rng.choice(COMMAND_FORMS)
        for slot, make in makers.items():
            if slot in command:
                command = command.replace(slot, make())
        return command

    def _quoted_words(self) -> str:
        form = self._rng.choice(['"%s"', '"%s"', "'%s'"])
        return form % (self.fragment(1, 4) if self._rng.random() < 0.6 else self.words(1, 3))

    def expression(self) -> tuple[str, str]:
        """Returns a sum as somebody asks it, and as it is sent to the calculator."""
        rng, number = self._rng, self._number
        chance = rng.random()
        if chance < 0.3:
            sign, spoken = rng.choice(_OPERATORS)
            left, right = number(), number()
            return f"{left} {spoken} {right}", f"{left} {sign} {right}"
        gap = rng.choice([" ", " ", ""])
        text = number()
        for _ in range(rng.choice([2, 2, 2, 3, 3, 4]) - 1):
            text += gap + rng.choice("+-*/+*-") + gap + number()
        if chance > 0.6:
            text = rng.choice(
                [
                    f"({text}){gap}*{gap}{number()}",
                    f"{number()}{gap}*{gap}({text})",
                    f"{number()}^{rng.randint(2, 12)}",
                    f"{number()} ** {rng.randint(2, 9)}",
                    f"sqrt({number()})",
                    f"({text}){gap}/{gap}({number()}{gap}+{gap}{number()})",
                    f"{number()} % {number()}",
                    text,
                ]
            )
        return text, text

    def _number(self) -> str:
        rng = self._rng
        return rng.choice(
            [
                str(rng.randint(0, 9)),
                str(rng.randint(0, 99)),
                str(rng.randint(100, 9999)),
                f"{rng.randint(0, 99)}.{rng.randint(0, 99)}",
            ]
        )

    def _cased(self, word: str) -> str:
        chance = self._rng.random()
        if chance < 0.86:
            return word
        return word.capitalize() if chance < 0.95 else word.upper()

    def _tricky_name(self) -> str:
        """Returns a name that begins like a word of the requests, as todo does like `to`."""
        rng = self._rng
        word = rng.choice(self._tricky_words)
        chance = rng.random()
        if chance < 0.35:
            return word + rng.choice(_ENDINGS)
        if chance < 0.6:
            return word + rng.choice(["-", "_", ""]) + self.noun()
        if chance < 0.8:
            return word
        return rng.choice(["re", "un", "my", "to", "in", "a", "the"]) + word
