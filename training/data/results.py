"""What tools answer, in the forms clawd gives, and the sentence the model should then say."""

import random
from typing import NamedTuple

from training.data.arguments import Arguments
from training.data.lists import WEEKDAYS

LISTED_NAMES = 10
READ_CHARS = 400  # of a result, as in template.jinja
_REASONS = [
    "denied by the user",
    "the user said no",
    "shell is not allowed here",
    "path is outside the workspace",
    "no approval in time",
    "the command is high risk",
    "nobody could be asked",
    "forbidden path",
    "blocked by policy",
    "rule readonly",
    "the address is private",
    "this needs approval",
    "not in the allow-list",
    "the destructive pattern is blocked",
    "autonomy is readonly",
]
_UNSEEN_REASONS = ["the operator refused", "outside the allowed folder", "the answer was no"]
_NOTHING_FOUND = ["", "no results", "nothing found", "0 results", "no matches"]
EMPTY_FOLDER = ["", "(empty)", "empty"]


class Outcome(NamedTuple):
    """A tool's result, the sentence that reports it, and whether it ends the conversation."""

    result: str
    answer: str
    failed: bool = False


def enumerated(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


class Results:
    """Invents results for calls."""

    def __init__(self, rng: random.Random, arguments: Arguments, *, unseen: bool) -> None:
        self._rng = rng
        self._arguments = arguments
        self._reasons = _UNSEEN_REASONS if unseen else _REASONS

    def of(self, tool: str, args: dict, *, long: bool = False) -> Outcome:
        """Returns an outcome of one call; in one of seven it is a denial or an error."""
        refusal = self._refusal()
        if refusal:
            return refusal
        if tool == "file_list":
            return self._file_list(args, long=long)
        return getattr(self, "_" + tool)(args)

    def _refusal(self) -> Outcome | None:
        rng, make = self._rng, self._arguments
        chance = rng.random()
        if chance < 0.025:
            result = "denied: emergency stop is set" + rng.choice(["", "", ".", "\n" + make.text()])
            return Outcome(result, "I did not do that. The emergency stop is set.", failed=True)
        if chance < 0.08:
            reason = self._explained(
                rng.choice(self._reasons) if rng.random() < 0.5 else make.text()
            )
            result = rng.choice(["denied: ", "denied: ", "denied: ", "Denied: "]) + reason
            if rng.random() < 0.2:
                result += "\n" + make.text()
            return Outcome(result, f"I did not do that. It was denied: {reason}.", failed=True)
        if chance < 0.135:
            reason = self._explained(self._error())
            result = "error: " + reason + ("\n" + make.text() if rng.random() < 0.15 else "")
            return Outcome(result, f"That did not work: {reason}.", failed=True)
        return None

    def _explained(self, reason: str) -> str:
        """Now and then adds what clawd's messages add: the value, or what to do next."""
        rng, make = self._rng, self._arguments
        if rng.random() >= 0.2:
            return reason
        return (
            reason
            + rng.choice(["; ", ": ", ". ", ", "])
            + rng.choice([make.fragment(3, 8), make.path()])
        )

    def _error(self) -> str:
        rng, make = self._rng, self._arguments
        return rng.choice(
            [
                make.text(),
                make.fragment(2, 7),
                "file not found",
                f"no such file: {make.path()}",
                "no such file or directory",
                f"timeout after {rng.randint(1, 99)} s",
                "connection refused",
                "not found",
                f"is a directory: {make.directory()}",
                "division by zero",
                f"unknown {make.word()}",
                "path is outside the workspace",
                "binary file",
                f"http status {rng.choice([404, 500, 403])}",
            ]
        )

    def _lines(self, low: int, high: int) -> list[str]:
        return [self._arguments.text() for _ in range(self._rng.randint(low, high))]

    def _time(self, _args: dict) -> Outcome:
        rng = self._rng
        date = f"{rng.randint(2020, 2035):04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"
        zone = rng.choice(["UTC", "CET", "CEST", "Europe/Berlin", "EST", "+02:00"])
        moment = date + rng.choice(["T", " "]) + clock
        if rng.random() < 0.35:
            moment += rng.choice(["Z", "", "+00:00", "+02:00", " " + zone])
            return Outcome(moment, f"It is {moment}.")
        day = rng.choice([rng.choice(WEEKDAYS) + " ", ""])
        moment = day + moment + rng.choice(["", " " + zone, "+01:00"])
        rest = rng.choice(["\nutc: %sT%sZ\nzone: %s", "\nUTC: %s %s\nzone: %s", "\nutc %s %s\n%s"])
        label = rng.choice(["local: ", "local ", "local time: "])
        return Outcome(label + moment + rest % (date, clock, zone), f"It is {moment}.")

    def _file_list(self, args: dict, *, long: bool) -> Outcome:
        rng, make = self._rng, self._arguments
        folder = "This folder" if args["path"] == "." else args["path"]
        if rng.random() < 0.06:
            return Outcome(rng.choice(EMPTY_FOLDER), f"{folder} is empty.")
        count = rng.randint(7, 22) if long else rng.choice([1, 2, 2, 3, 3, 4, 5, 6])
        names = [
            make.file_name() if rng.random() < 0.75 else make.name() + rng.choice(["/", "/", ""])
            for _ in range(count)
        ]
        if long and rng.random() < 0.5:
            names = sorted(set(names))
        result = "\n".join(names)
        whole = names if len(result) <= READ_CHARS else result[:READ_CHARS].split("\n")[:-1]
        listed = whole[:LISTED_NAMES]
        if len(listed) == len(names):
            return Outcome(result, f"{folder} contains {enumerated(names)}.")
        return Outcome(result, f"{folder} contains {', '.join(listed)} and more.")

    def _file_read(self, args: dict) -> Outcome:
        rng, make = self._rng, self._arguments
        path = args["path"]
        if rng.random() < 0.04:
            return Outcome(rng.choice(["", "(empty)"]), f"{path} is empty.")
        lines = [make.text(may_be_code=True) for _ in range(rng.choice([1, 1, 2, 3]))]
        first = rng.randint(2, 300) if rng.random() < 0.06 else 1
        result = "\n".join(f"{index + first}|{line}" for index, line in enumerate(lines))
        if rng.random() < 0.2:
            result += rng.choice(["\n(%d lines)", "\nlines: %d", "\ntotal: %d lines"]) % len(lines)
        verb = "says" if len(lines) == 1 else "begins"
        return Outcome(result, f"{path} {verb}: {lines[0]}")

    def _file_write(self, args: dict) -> Outcome:
        path, size = args["path"], self._rng.randint(1, 999)
        result = self._rng.choice(
            [
                "ok",
                f"wrote {size} bytes to {path}",
                f"wrote {size} bytes",
                f"created {path} ({size} B)",
                f"written {path}",
                f"updated {path} ({size} B)",
            ]
        )
        return Outcome(result, f"Done, I wrote {path}.")

    def _shell(self, _args: dict) -> Outcome:
        rng = self._rng
        chance = rng.random()
        lines = self._lines(1, 2)
        if chance < 0.08:
            result = rng.choice(["", "(no output)", "exit code: 0", "[exit 0]", "exit 0"])
            return Outcome(result, "The command finished without output.")
        if chance < 0.16:
            code = rng.choice([1, 2, 126, 127, 128])
            form = rng.choice(["exit code: %d\n%s", "exit %d\n%s", "[exit %d]\n%s"])
            answer = f"The command failed with exit code {code}: {lines[0]}"
            return Outcome(form % (code, lines[0]), answer, failed=True)
        result = "\n".join(lines)
        chance = rng.random()
        if chance < 0.25:
            result = rng.choice(["exit code: 0\n", "[exit 0]\n", "exit 0\n"]) + result
        elif chance < 0.4:
            result += rng.choice(
                ["\nexit code: 0", f"\n[exit 0, {rng.randint(1, 900)} ms]", "\nexit 0"]
            )
        return Outcome(result, f"The command printed: {lines[0]}")

    def _http(self, _args: dict) -> Outcome:
        rng = self._rng
        status = rng.choice([200, 200, 200, 200, 404, 500, 301, 403])
        lines = self._lines(1, 2)
        form = rng.choice(
            [
                "HTTP %d\n%s",
                "%d\n%s",
                "status: %d\n%s",
                "%d OK\n%s",
                "HTTP %d\ncontent-type: text/html\n\n%s",
                "status %d\n\n%s",
            ]
        )
        return Outcome(form % (status, "\n".join(lines)), f"The answer was {status}: {lines[0]}")

    def _search(self, wanted: str, *, with_addresses: bool) -> Outcome:
        rng = self._rng
        if rng.random() < 0.1:
            return Outcome(rng.choice(_NOTHING_FOUND), f"I found nothing about {wanted}.")
        lines = self._lines(1, 3)
        mark = rng.choice(["", "- ", "1. ", "1. "])
        shown = []
        for index, line in enumerate(lines):
            entry = (f"{index + 1}. " if mark == "1. " else mark) + line
            if with_addresses and rng.random() < 0.4:
                entry += "\n   " + self._arguments.url()
            shown.append(entry)
        return Outcome("\n".join(shown), f"I found: {lines[0]}")

    def _memory_search(self, args: dict) -> Outcome:
        return self._search(args["query"], with_addresses=False)

    def _web_search(self, args: dict) -> Outcome:
        return self._search(args["query"], with_addresses=True)

    def _knowledge_search(self, args: dict) -> Outcome:
        return self._search(args["keywords"], with_addresses=False)

    def _knowledge_save(self, args: dict) -> Outcome:
        file = "_".join(sorted(args["keywords"].split()))
        size = self._rng.randint(9, 99)
        result = self._rng.choice(
            ["saved", "ok", f'created "{file}.md" ({size} B)', f"saved {file}.md"]
        )
        return Outcome(result, f"Saved: {args['content']}")

    def _calculator(self, args: dict) -> Outcome:
        rng = self._rng
        value = rng.choice(
            [
                str(rng.randint(-99, 99)),
                str(rng.randint(0, 99999)),
                f"{rng.randint(0, 999)}.{rng.randint(0, 9999)}",
            ]
        )
        equation = f"{args['expression']} = {value}"
        return Outcome(value if rng.random() < 0.8 else equation, equation + ".")

    def _plan(self, args: dict) -> Outcome:
        rng = self._rng
        adding = args["action"] == "add"
        if not adding and rng.random() < 0.15:
            return Outcome(
                rng.choice(["", "(empty)", "no tasks", "the plan is empty"]), "The plan is empty."
            )
        if adding:
            items = [item["text"] for item in args.get("items", [])] or [args["text"]]
        else:
            items = [self._arguments.goal() for _ in range(rng.randint(1, 4))]
        first = rng.randint(1, 4) if adding and rng.random() < 0.3 else 1
        form = rng.choice(["%s %d %s", "- %s %d. %s", "%s %d: %s"])
        marks = ["[ ]"] if adding else ["[ ]", "[ ]", "[x]", "[~]", "[!]"]
        result = "\n".join(
            form % (rng.choice(marks), n + first, item) for n, item in enumerate(items)
        )
        verb = "Added to the plan" if adding else "The plan has"
        return Outcome(result, f"{verb}: {enumerated(items)}.")
