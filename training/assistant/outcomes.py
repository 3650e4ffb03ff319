"""What tools answer, in the words of clawd's own tools, and the true sentence that sums it up.

Every sentence can be copied from the result: its first line, its names, its value. What failed or
was denied is reported as such, with the reason and never as done.
"""

import calendar
import math
import random
import re
import shlex
import statistics
import tomllib
from collections.abc import Callable, Iterable
from datetime import date
from functools import cache
from typing import Any, NamedTuple

from clawd.tools.builtin.calculator import ArithmeticFailure, evaluate
from training.assistant.printed import GERMAN_DAYS, Printer
from training.assistant.values import Values
from training.data.lists import WEEKDAYS, WORDS

LISTED_NAMES = 6
_HOMES = ["anna", "tom", "user", "lena"]
_MORE_OF_IT = "give more of the text around it, or start_line and end_line"
_NO_REPOSITORY = "fatal: not a git repository (or any parent up to mount point"
_BOUNDARY = "Stopping at filesystem boundary (GIT_DISCOVERY_ACROSS_FILESYSTEM not set)."
_TRACEBACK = "Traceback (most recent call last):"
MAX_HITS = 4  # lines of a search that the answer repeats
MAX_WHOLE = 6  # lines of the beginning of a file of which mostly all are there
TOLD_WHOLE = 240  # characters of a file that the answer repeats
_MAX_LINE = 90
_FOUND_SHARE = 0.85  # of the searches for a number find it
_DENIALS = [
    "denied by the user",
    "the user said no",
    "{tool} is not allowed here",
    "autonomy is readonly",
    "{path} is a forbidden path",
    "{path} is outside the workspace",
    "nobody could be asked",
    "the command is high risk",
    "no approval in time",
    "a rule of the policy denies {tool}",
    "the emergency stop is set",
    "emergency stop is set",
    "its arguments were edited",
    "no answer within 300 s",
    "16 approvals are already waiting",
    "readonly runs low risk only, this is medium",
    "supervised refuses high risk",
    "rule 3 refuses it: {tool} *",
    "a hook refused it: {path} is generated",
    "untrusted text from web_fetch is in this conversation",
    "this machine offers no sandbox",
]
_STATUSES = {
    "done": ("[x]", "is done", "ist erledigt"),
    "working": ("[~]", "is in progress", "ist in Arbeit"),
    "pending": ("[ ]", "is open again", "ist wieder offen"),
    "error": ("[!]", "is marked as failed", "ist als gescheitert markiert"),
}
_CHANGING = {"file_write", "file_append", "file_edit", "undo", "shell", "knowledge_save"}
_CHANGING |= {"knowledge_append", "knowledge_delete", "plan", "http", "fs_ops", "render"}


class Outcome(NamedTuple):
    """A tool's result, the sentence that reports it, what a next call can take from it.

    `reason` says why nothing was done.
    """

    result: str
    answer: str
    value: str = ""
    first: str = ""
    failed: bool = False
    reason: str = ""


@cache
def _found() -> dict[str, dict[str, Any]]:
    words = tomllib.loads((WORDS / "assistant_documents.toml").read_text("utf-8"))
    found: dict[str, dict[str, Any]] = words["found"]
    return found


def enumerated(items: list[str], language: str) -> str:
    """Return names as a list in a sentence."""
    if len(items) == 1:
        return items[0]
    return ", ".join(items[:-1]) + (" und " if language == "de" else " and ") + items[-1]


class Outcomes:
    """Invents results of calls."""

    def __init__(self, rng: random.Random, values: Values) -> None:
        self._rng = rng
        self._values = values
        self._make = values.make
        self._printer = Printer(rng, values)
        self.steps: dict[int, tuple[str, str]] = {}  # of the plan: mark and text, by number
        self._notes: dict[str, str] = {}  # what was said of them so far, by name

    def begin(self) -> None:
        """Forget the plan and the notes; another conversation begins."""
        self.steps.clear()
        self._notes.clear()

    def of(self, tool: str, arguments: dict[str, Any], language: str) -> Outcome:
        """Return the outcome of one call; one in six is a denial or an error."""
        chance = self._rng.random()
        if chance < (0.09 if tool in _CHANGING else 0.04):
            return self._denied(tool, arguments, language)
        if chance < 0.16:
            failed = self._failed(tool, arguments, language)
            if failed:
                return failed
        make: Callable[[dict[str, Any], str], Outcome] = getattr(self, "_" + tool)
        return make(arguments, language)

    def counted(self, path: str, count: int, language: str) -> Outcome:
        """Return what counting the lines of a file gives."""
        ending = _either(language, "line" if count == 1 else "lines", "Zeile" + "n" * (count > 1))
        said = f"{path} {_either(language, 'has', 'hat')} {count} {ending}."
        return Outcome(f"{count} {path}", said, f"{count} {path}", str(count))

    def diff(self, path: str, old: str, new: str, language: str) -> Outcome:
        """Return what `git diff` tells of a change of one line."""
        line = self._rng.randint(1, 200)
        told = f"--- a/{path}\n+++ b/{path}\n@@ -{line} +{line} @@\n-{old}\n+{new}"
        english = f"In {path}, {old} became {new}."
        said = _either(language, english, f"In {path} wurde aus {old} jetzt {new}.")
        return Outcome(told, said, told)

    def printed(self, text: str, language: str) -> Outcome:
        """Return what a command gives that prints this."""
        said = _either(language, f"The command printed: {text}", f"Der Befehl ergab: {text}")
        return Outcome(text, said, text)

    # what goes wrong

    def _denied(self, tool: str, arguments: dict[str, Any], language: str) -> Outcome:
        rng = self._rng
        path = str(arguments.get("path", "that"))
        wanted = [each for each in _DENIALS if "{path}" not in each or "path" in arguments]
        reason = rng.choice(wanted).format(tool=tool, path=path)
        if rng.random() < 0.25:
            reason = self._make.fragment(3, 7)
        more = rng.choice(["", "", "", " (To allow it: see the config.)", "."])
        answer = f"I did not do that. It was denied: {reason}."
        if language == "de":
            answer = f"Das habe ich nicht gemacht. Es wurde abgelehnt: {reason}."
        return Outcome(f"denied: {reason}{more}", answer, failed=True, reason=reason)

    def _failed(self, tool: str, arguments: dict[str, Any], language: str) -> Outcome | None:
        reasons = self._reasons(tool, arguments)
        if not reasons:
            return None
        reason = self._rng.choice(reasons)
        head, _, why = reason.partition("\n")
        lines = why.rstrip(".").split("\n")
        told = lines[-1 if "<evaluate>" in why else 0]
        said = re.split("; |[.] ", head)[0].rstrip(".") + (f": {told}" if told else "")
        answer = f"That did not work: {said}."
        if language == "de":
            answer = f"Das hat nicht geklappt: {said}."
        return Outcome(f"error: {reason}", answer, failed=True, reason=said)

    def _reasons(self, tool: str, arguments: dict[str, Any]) -> list[str]:
        match tool:
            case "file_read" | "file_list" | "grep" | "file_edit" | "file_write" | "file_append":
                return self._file_reasons(tool, arguments)
            case "pdf_extract":
                return [f"{arguments['source']} does not exist; file_list shows what is there"]
            case "shell":
                return self._shell_reasons(arguments["command"])
            case "http" | "web_fetch" | "open_url":
                return self._host_reasons(arguments["url"])
            case "web_search":
                offline = "none of their names can be resolved, so there seems to be no network"
                return ["no search engine answered", f"no search engine answered: {offline}"]
            case "calculator":
                expression = arguments["expression"]
                why = _why(expression)
                return [f"cannot compute '{expression}': {why}"] if why else []
            case "evaluate":
                head, code = "The code exited with code 1\n", arguments["code"].split("\n")[-1]
                at = 'File "<evaluate>", line 1'
                name = f"NameError: name '{self._make.word()}' is not defined"
                return [
                    f"{head}{_TRACEBACK}\n  {at}, in <module>\n    {code}\n{name}",
                    f"{head}  {at}\n    {code}\n       ^\nSyntaxError: invalid syntax",
                ]
            case "undo" if "redo" in arguments:
                return ["No undo can be taken back in this conversation"]
            case "undo":
                return ["there is nothing to undo"]
            case "job":
                return ["there is no job in this conversation; jobs end with the daemon"]
            case "knowledge_load":
                others = "knowledge_search finds entries by any of the keywords"
                return [f'there is no entry with all of "{arguments["keywords"]}". {others}']
            case "knowledge_delete":
                name = _note(arguments["keywords"])
                return [f'there is no entry "{name}", so nothing was deleted.']
            case "plan" if arguments["action"] in {"update", "delete"}:
                gone = "the plan is empty"
                if arguments["id"] != "all":
                    gone = f"there is no item '{arguments['id']}'"
                return [] if self.steps else [gone]
            case "ask_user":
                return ["there is nobody to ask"]
            case _:
                return []

    def _file_reasons(self, tool: str, arguments: dict[str, Any]) -> list[str]:
        """Why a file or a folder cannot be read, searched or changed."""
        path = arguments.get("path", "")
        gone = f"{path} does not exist; file_list shows what is there"
        match tool:
            case "file_edit" if "old_text" in arguments:
                return [
                    gone,
                    f"old_text does not stand in {path}",
                    f"old_text stands {self._rng.randint(2, 9)} times in {path}; {_MORE_OF_IT}",
                ]
            case "file_edit":
                return [self._no_lines(arguments)]
            case "file_write" | "file_append":
                return [
                    f"{path} is a folder; file_list lists it",
                    f"{path} cannot be written: no space left on device",
                    f"{path} cannot be written: permission denied",
                ]
            case _ if path and path != ".":
                return [
                    gone,
                    gone,
                    self._wrong_kind(tool, path),
                    f"{path} cannot be read: permission denied",
                ]
            case _:
                return []

    def _wrong_kind(self, tool: str, path: str) -> str:
        """Why what is at a path is no folder, or no text."""
        if tool == "file_list":
            return f"{path} is no folder, or leads through a file"
        kind = self._rng.choice(["application/octet-stream", "application/zip", "image/x-icon"])
        return f"{path} is a binary file, not text: {kind}, {self._rng.randint(90, 99_999)} bytes"

    def _no_lines(self, arguments: dict[str, Any]) -> str:
        """Why lines cannot be changed that a file does not have."""
        first = arguments["start_line"]
        last, count = arguments.get("end_line", first), self._rng.randint(1, max(1, first - 1))
        return f"lines {first} to {last} are not there: the file has {count} lines"

    def _host_reasons(self, url: str) -> list[str]:
        """Why a server gives nothing."""
        host = url.split("/")[2:3]
        if not host:
            return []
        return [
            f"the name {host[0]} cannot be resolved: Name or service not known",
            f"{host[0]} did not answer in {self._rng.randint(5, 60)} s",
            f"{host[0]} refused the connection",
        ]

    def _shell_reasons(self, command: str) -> list[str]:
        """Why a command fails; what says something by failing fails only where it is missing."""
        failure = self._shell_failure(command)
        if _words(command)[0] in _TELLING:
            return [failure] if "(there is no such command)" in failure else []
        return [_exited(self._rng.choice([1, 1, 2])), failure]

    def _shell_failure(self, command: str) -> str:
        """What a command says that fails, below the line that has its code."""
        rng = self._rng
        program, *rest = _words(command)
        last = rest[-1] if rest else program
        unknown = f"bash: line 1: {program}: command not found"
        gone = f"{program}: {last}: No such file or directory"
        says: dict[str, list[tuple[int, str]]] = {
            "git": [
                (128, "fatal: not a git repository (or any of the parent directories): .git"),
                (128, f"{_NO_REPOSITORY} /home/{rng.choice(_HOMES)})\n{_BOUNDARY}"),
            ],
            "npm": [(1, "npm error enoent Could not read package.json")],
            "make": [(2, "make: *** No targets specified and no makefile found.  Stop.")],
            "cargo": [(101, "error: could not find `Cargo.toml` in this folder")],
            "docker": [(1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock")],
            "systemctl": [(4, f"Unit {last}.service could not be found.")],
            "ping": [(2, f"ping: {last}: Name or service not known")],
            "python3": [(2, f"python3: can't open file '{last}': No such file or directory")],
            "sudo": [(1, "sudo: a password is required")],
            "kill": [(1, f"kill: ({last}) - No such process")],
            "rm": [(1, f"rm: cannot remove '{last}': No such file or directory")],
            "mv": [
                (1, f"mv: cannot stat '{rest[0] if rest else last}': No such file or directory")
            ],
            "cp": [
                (1, f"cp: cannot stat '{rest[0] if rest else last}': No such file or directory")
            ],
            "mkdir": [(1, f"mkdir: cannot create directory '{last}': Permission denied")],
            "curl": [(6, "curl: (6) Could not resolve host")],
            "unzip": [(9, f"unzip:  cannot find or open {last}")],
        }
        for name in ("wc", "cat", "sort", "ls", "du", "tail", "head", "chmod", "sh", "tar"):
            if last[:1] != "-" and "|" not in rest:
                says[name] = [(1, gone)]
        if program == "pip" and "install" in rest:
            why = f"No matching distribution found for {last}"
            if "-r" in rest:
                why = f"Could not open requirements file: {last}"
            says["pip"] = [(1, f"ERROR: {why}")]
        if program == "git" and rest[:1] in (["init"], ["clone"], ["--version"]):
            del says["git"]
        known = says.get(program, [(1, f"error: {self._make.fragment(2, 6)}")])
        if program not in _ALWAYS_THERE:
            known = [*known, (127, unknown)]
        code, why = rng.choice(known)
        return f"{_exited(code)}\n{why}"

    # files

    def _file_list(self, arguments: dict[str, Any], language: str) -> Outcome:
        rng, make = self._rng, self._make
        path = arguments.get("path", ".")
        if rng.random() < 0.05:
            said = {"en": "The folder is empty.", "de": "Der Ordner ist leer."}[language]
            if path != ".":
                said = _either(language, f"{path} is empty.", f"{path} ist leer.")
            return Outcome("(empty)", said)
        names = [
            make.file_name() if rng.random() < 0.75 else make.name() + "/"
            for _ in range(rng.choice([1, 2, 2, 3, 3, 4, 5, 6, 9, 12]))
        ]
        if arguments.get("recursive"):
            below = [name + make.file_name() for name in names if name.endswith("/")]
            names = [*names, *below[:3]]
        return self.listing(path, sorted(dict.fromkeys(names)), language)

    def listing(self, path: str, names: list[str], language: str) -> Outcome:
        """Return what listing a folder with these names gives."""
        files = [name for name in names if not name.endswith("/")]
        start = {"en": "This folder has", "de": "Hier liegen"}[language]
        if path != ".":
            start = f"{path} enthält" if language == "de" else f"{path} has"
        first = files[0] if files else ""
        return Outcome(
            "\n".join(names), f"{start} {self._listed(names, language)}.", "\n".join(names), first
        )

    def _listed(self, names: list[str], language: str) -> str:
        if len(names) <= LISTED_NAMES:
            return enumerated(names, language)
        more = "und mehr" if language == "de" else "and more"
        return f"{', '.join(names[:LISTED_NAMES])} {more}"

    def _file_read(self, arguments: dict[str, Any], language: str) -> Outcome:
        rng = self._rng
        path = arguments["path"]
        if rng.random() < 0.04:
            return Outcome(
                "(empty)", f"{path} ist leer." if language == "de" else f"{path} is empty."
            )
        first, wanted = arguments.get("start_line", 1), arguments.get("max_lines", 0)
        if wanted > 1 or (wanted == 0 and "start_line" in arguments):
            return self._several_lines(first, wanted or 5, language)
        count = min(rng.choice([1, 1, 2, 3, 3, 4, 5, 6]), arguments.get("max_lines", 9))
        lines = [self._values.text(language) for _ in range(count)]
        result = "\n".join(f"{index + first}|{line}" for index, line in enumerate(lines))
        if "start_line" in arguments or "max_lines" in arguments:
            result += self._excerpt(first, lines)
        if "start_line" in arguments:
            said = _either(
                language,
                f"Line {first} of {path}: {lines[0]}",
                f"Zeile {first} in {path}: {lines[0]}",
            )
            return Outcome(result, said, "\n".join(lines), lines[0])
        outcome = self.reading(path, lines, language)._replace(result=result)
        if wanted == 1:
            said = _either(
                language,
                f"The first line of {path}: {lines[0]}",
                f"Die erste Zeile von {path}: {lines[0]}",
            )
            outcome = outcome._replace(answer=said)
        return outcome

    def _several_lines(self, first: int, wanted: int, language: str) -> Outcome:
        """Return some lines of a file, said as they stand."""
        rng = self._rng
        is_whole = wanted <= MAX_WHOLE and rng.random() < 0.75
        count = wanted if is_whole else min(wanted, rng.choice([2, 3, 3, 4, 5]))
        make = self._values.short if count > 2 or rng.random() < 0.5 else self._values.text
        lines = [make(language) for _ in range(count)]
        result = "\n".join(f"{index + first}|{line}" for index, line in enumerate(lines))
        if first > 1 or count == wanted:
            result += self._excerpt(first, lines)
        text = "\n".join(lines)
        return Outcome(result, text, text, lines[0])

    def past_end(self, path: str, lines: list[str], language: str) -> Outcome:
        """Return what reading beyond the last line gives."""
        count, size = len(lines), sum(len(line.encode()) + 1 for line in lines)
        why = f"{path} has nothing there; it has {count} lines"
        said = _either(language, f"That did not work: {why}.", f"Das hat nicht geklappt: {why}.")
        return Outcome(f"error: {why} and {size} bytes", said, failed=True)

    def no_line(self, arguments: dict[str, Any], language: str) -> Outcome:
        """Return what changing a line beyond the last one gives."""
        why = self._no_lines(arguments)
        said = _either(language, f"That did not work: {why}.", f"Das hat nicht geklappt: {why}.")
        return Outcome(f"error: {why}", said, failed=True)

    def part(self, path: str, lines: list[str], first: int, count: int, language: str) -> Outcome:
        """Return what reading a part of a file of these lines gives."""
        part = lines[first - 1 : first - 1 + count]
        result = "\n".join(f"{index + first}|{line}" for index, line in enumerate(part))
        size = sum(len(line.encode()) + 1 for line in lines)
        result += f"\n(lines {first} to {first + len(part) - 1} of {len(lines)}; {size} bytes)"
        text = "\n".join(part)
        said = text
        if len(part) == 1:
            said = _either(
                language,
                f"Line {first} of {path}: {text}",
                f"Zeile {first} in {path}: {text}",
            )
        return Outcome(result, said, text, part[0])

    def _excerpt(self, first: int, lines: list[str]) -> str:
        """Return the line that says which part of a file was read."""
        last = first + len(lines) - 1
        total, size = last + self._rng.randint(1, 90), self._rng.randint(120, 9000)
        return f"\n(lines {first} to {last} of {total}; {size} bytes)"

    def reading(self, path: str, lines: list[str], language: str) -> Outcome:
        """Return what reading a file of these lines gives."""
        if len(lines) == 1:
            said = _either(language, f"{path} says: {lines[0]}", f"In {path} steht: {lines[0]}")
        else:
            text = "\n".join(lines)
            if len(text) <= TOLD_WHOLE:
                said = _either(language, f"{path} says:\n{text}", f"In {path} steht:\n{text}")
            else:
                text = "\n".join(lines[:3])
                said = _either(language, f"{path} begins:\n{text}", f"{path} beginnt mit:\n{text}")
        result = "\n".join(f"{index + 1}|{line}" for index, line in enumerate(lines))
        return Outcome(result, said, "\n".join(lines), lines[0])

    def _file_write(self, arguments: dict[str, Any], language: str) -> Outcome:
        path, size = arguments["path"], len(arguments["content"].encode())
        verb = self._rng.choice(["created", "created", "updated"])
        said = (
            f"{size} Bytes in {path} geschrieben."
            if language == "de"
            else f"Wrote {size} bytes to {path}."
        )
        return Outcome(f"{verb} {path} ({size} B)", said)

    def _file_append(self, arguments: dict[str, Any], language: str) -> Outcome:
        path, size = arguments["path"], len(arguments["content"].encode())
        said = (
            f"{size} Bytes an {path} angehängt."
            if language == "de"
            else f"Added {size} bytes to {path}."
        )
        return Outcome(f"added {size} bytes to {path}", said)

    def _file_edit(self, arguments: dict[str, Any], language: str) -> Outcome:
        path, size = arguments["path"], self._rng.randint(3, 9000)
        said = f"Changed {path}; it now has {size} bytes."
        if language == "de":
            said = f"{path} geändert; die Datei hat jetzt {size} Bytes."
        return Outcome(f"updated {path} ({size} B)", said)

    def _fs_ops(self, arguments: dict[str, Any], _language: str) -> Outcome:
        operations = arguments["operations"]
        lines, said = [], []
        for index, operation in enumerate(operations):
            line = self._make.text()
            lines.append(f"{index + 1}. read {operation['path']}:\n1|{line}")
            said.append(f"{operation['path']}: {line}")
        head = (
            f"batch: {len(operations)} ops across {len(operations)} files ({len(operations)} done)"
        )
        return Outcome("\n".join([head, *lines]), "; ".join(said))

    def _glob(self, arguments: dict[str, Any], language: str) -> Outcome:
        rng, make = self._rng, self._make
        if rng.random() < 0.12:
            said = f"Nothing matches {arguments['pattern']}."
            return Outcome(
                "no matches",
                f"Nichts passt auf {arguments['pattern']}." if language == "de" else said,
            )
        pattern = arguments["pattern"].rsplit("/", 1)[-1]
        start = arguments.get("path", "")
        paths = []
        for _ in range(rng.choice([1, 1, 2, 2, 3, 4, 8])):
            folder = start or (make.directory().strip("./~") if rng.random() < 0.6 else "")
            name = self._fitting(pattern)
            paths.append(f"{folder.strip('/')}/{name}".lstrip("/"))
        paths = sorted(dict.fromkeys(paths))
        said = (
            f"Ich habe {self._listed(paths, language)} gefunden."
            if language == "de"
            else (f"I found {self._listed(paths, language)}.")
        )
        return Outcome("\n".join(paths), said, "\n".join(paths), paths[0])

    def _fitting(self, pattern: str) -> str:
        """Return a name of a file that fits a pattern."""
        rng, word = self._rng, self._make.word()
        part = re.fullmatch(r"\*([^*.?\[]+)\*(\.\w+)?", pattern)
        if not part:
            return pattern.replace("*", word)
        middle, year = part[1], str(rng.randint(2015, 2029))
        parts = rng.choice([[middle], [middle, word], [word, middle], [middle, year]])
        ending = part[2] or rng.choice([".txt", ".md", ".csv", ".log", ".json"])
        return rng.choice("-_").join(parts) + ending

    def _grep(self, arguments: dict[str, Any], language: str) -> Outcome:
        rng, make = self._rng, self._make
        pattern = arguments["pattern"]
        if rng.random() < 0.15:
            said = f"Nothing contains {pattern}.", f"{pattern} kommt nirgends vor."
            if arguments.get("path", ".") != ".":
                path = arguments["path"]
                said = f"{path} does not have {pattern}.", f"In {path} kommt {pattern} nicht vor."
            return Outcome("no matches", _either(language, *said))
        hits = []
        where = arguments.get("path", "")
        for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 3, 4, 6])):
            line = f"{make.words(0, 2)} {pattern} {make.words(0, 2)}".strip()
            found = make.file_name() if where else make.path()
            if where and where != ".":
                found = where if _is_file(where) else f"{where.rstrip('/')}/{found}"
            wanted = arguments.get("glob", "")
            if wanted.startswith("*."):
                found = f"{found.rpartition('.')[0] or found}{wanted[1:]}"
            hits.append((found, rng.randint(1, 400), line))
        path, number, line = hits[0]
        said = f"I found it in {path}, line {number}: {line}"
        if language == "de":
            said = f"Gefunden in {path}, Zeile {number}: {line}"
        lines = [f"{a}:{b}:{c}" for a, b, c in hits]
        listed = "\n".join(lines)
        if len(hits) > 1:
            more = ["…"] if len(hits) > MAX_HITS else []
            found = _either(language, "I found it here:", "Ich habe es hier gefunden:")
            said = "\n".join([found, *lines[:MAX_HITS], *more])
        return Outcome(listed, said, listed, path)

    def _check_path(self, arguments: dict[str, Any], language: str) -> Outcome:
        rng, path = self._rng, arguments["path"]
        where = (
            path
            if path.startswith(("/", "~"))
            else "/home/" + rng.choice(["anna", "tom", "user"]) + "/" + path
        )
        chance = rng.random()
        if chance > 0.5 and path.islower() and "." not in path:
            chance = 0.4  # a name without an ending is mostly a folder
        if chance < 0.35:
            said = f"{path} gibt es nicht." if language == "de" else f"{path} does not exist."
            return Outcome(f"{where}: there is nothing", said)
        if chance < 0.5:
            said = f"{path} ist ein Ordner." if language == "de" else f"{path} is a folder."
            return Outcome(f"{where}: a folder", said)
        size, day = rng.randint(0, 99999), self._date()
        said = f"{path} is a file of {size} bytes, changed {day}."
        if language == "de":
            said = f"{path} ist eine Datei mit {size} Bytes, geändert {day}."
        return Outcome(f"{where}: a file of {size} bytes, text/plain, changed {day}", said)

    def _cwd(self, _arguments: dict[str, Any], language: str) -> Outcome:
        path = "/" + self._make.directory().strip("./~")
        return Outcome(
            path, f"Wir sind in {path}." if language == "de" else f"We are in {path}.", path
        )

    def _workspace(self, _arguments: dict[str, Any], language: str) -> Outcome:
        path = "/" + self._make.directory().strip("./~")
        said = (
            f"Der Arbeitsbereich ist {path}." if language == "de" else f"The workspace is {path}."
        )
        return Outcome(f"workspace: {path}\noutside of it: nothing", said)

    def _undo(self, arguments: dict[str, Any], language: str) -> Outcome:
        rng = self._rng
        paths = [self._values.path() for _ in range(min(arguments.get("steps", 1), 3))]
        again = bool(arguments.get("redo"))
        word = "redone" if again else "undone"
        lines = [f"{word}: {path} restored ({rng.randint(1, 999)} B)" for path in paths]
        listed = self._listed(paths, language)
        english, german = f"Undone: {listed} restored.", f"Rückgängig gemacht: {listed}."
        if again:
            english, german = f"Redone: {listed} restored.", f"Wiederhergestellt: {listed}."
        return Outcome("\n".join(lines), _either(language, english, german))

    # commands and sums

    def _time(self, _arguments: dict[str, Any], language: str) -> Outcome:
        rng = self._rng
        day, clock = self._date(), f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
        weekday = WEEKDAYS[date.fromisoformat(day).weekday()]
        seconds = f"{rng.randint(0, 59):02d}"
        result = (
            f"local: {weekday} {day} {clock}:{seconds}+00:00\nutc: {day}T{clock}:{seconds}Z\n"
            f"zone: {rng.choice(['UTC', 'CET', 'Europe/Berlin'])}"
        )
        said = f"It is {weekday} {day}, {clock}."
        if language == "de":
            german = dict(zip(WEEKDAYS, GERMAN_DAYS, strict=True))[weekday]
            said = f"Es ist {german}, {day}, {clock} Uhr."
        return Outcome(result, said, f"{day} {clock}:{seconds}")

    def _date(self) -> str:
        rng = self._rng
        return f"{rng.randint(2020, 2035)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"

    def _calculator(self, arguments: dict[str, Any], language: str) -> Outcome:
        value = computed(arguments["expression"])
        refused = None if value else self._failed("calculator", arguments, language)
        if refused:
            return refused
        return Outcome(value, f"{arguments['expression']} = {value}.", value)

    def _shell(self, arguments: dict[str, Any], language: str) -> Outcome:
        program, *rest = _words(arguments["command"])
        if program == "tar" and rest[:1] == ["-xzf"] and len(rest) == 2:
            said = _either(language, f"Unpacked {rest[1]}.", f"{rest[1]} ist entpackt.")
            return Outcome("(no output)", said)
        done = self._silent(program, rest, language)
        if done:
            return Outcome("(no output)", done)
        known = self._printer.of([program, *rest], language)
        if known:
            result, english, german, first, code = known
            value = "" if result == "(no output)" else result
            if code:
                result = f"error: {_exited(code)}" + (f"\n{value}" if value else "")
            return Outcome(result, _either(language, english, german), value, first)
        printed = self._printed(program, rest, language)
        if printed:
            return printed
        if self._rng.random() < 0.12:
            said = "The command finished without output."
            if language == "de":
                said = "Der Befehl lief ohne Ausgabe."
            return Outcome("(no output)", said)
        lines = [self._make.text() for _ in range(self._rng.choice([1, 1, 2, 3]))]
        text = "\n".join(lines)
        told = f" {text}" if len(lines) == 1 else f"\n{text}"
        said = _either(language, f"The command printed:{told}", f"Der Befehl ergab:{told}")
        return Outcome(text, said, text)

    def _silent(self, program: str, rest: list[str], language: str) -> str:
        """Return what a command did that prints nothing; "" for any other."""
        if program == "cat" and rest[-2:-1] == [">"] and len(rest) == 4:
            joined = enumerated(rest[:2], language)
            return _either(
                language, f"Joined {joined} in {rest[3]}.", f"{joined} stehen jetzt in {rest[3]}."
            )
        if program not in _SILENT or not rest:
            return ""
        if program in {"rm", "mv", "cp", "mkdir"}:
            rest = [word for word in rest if not word.startswith("-")]
        count, english, german = _SILENT[program]
        made = enumerated(rest, language)
        if program == "rm" and len(rest) > 1:
            return _either(language, f"Deleted {made}.", f"{made} sind gelöscht.")
        if program in {"mv", "cp"} and len(rest) > 2 and rest[-1].endswith("/"):
            several = enumerated(rest[:-1], language)
            done = "Moved" if program == "mv" else "Copied"
            return _either(
                language,
                f"{done} {several} to {rest[-1]}.",
                f"{several} liegen jetzt in {rest[-1]}.",
            )
        if program == "mkdir" and len(rest) > 1 and "&&" not in rest:
            return _either(
                language, f"Created the folders {made}.", f"Die Ordner {made} sind angelegt."
            )
        if program == "touch" and len(rest) > 1 and "&&" not in rest:
            return _either(
                language,
                f"Created the empty files {made}.",
                f"Die leeren Dateien {made} sind angelegt.",
            )
        if len(rest) != count:
            return ""
        if program == "mv" and rest[1].endswith("/"):
            german = "{} liegt jetzt in {}."
        if program in {"mv", "cp"} and rest[1] == ".":
            english, german = english.replace("to {}", "here"), "{} liegt jetzt hier."
        return _either(language, english, german).format(*rest)

    def _printed(self, program: str, rest: list[str], language: str) -> Outcome | None:
        """Return what a well-known command prints, and what that means; None for others."""
        rng, last = self._rng, rest[-1] if rest else ""
        word, message = self._make.word(), self._values.of("GM", language).sent
        match [program, *rest[:1]]:
            case ["python3" | "python", "--version"]:
                result = f"Python 3.{rng.randint(8, 15)}.{rng.randint(0, 12)}"
                english, german = f"It is {result}.", f"Es ist {result}."
            case [_, "--version"]:
                result = f"{program} {rng.randint(0, 9)}.{rng.randint(0, 30)}.{rng.randint(0, 9)}"
                english, german = f"It is {result}.", f"Es ist {result}."
            case ["whoami"]:
                result, english, german = word, f"You are {word}.", f"Du bist {word}."
            case ["git", "merge"]:
                result = f"Merge made by the 'ort' strategy.\n {rng.randint(2, 30)} files changed"
                english, german = f"Merged {last}.", f"{last} ist gemergt."
            case ["git", "checkout"] if rest[1:2] != ["-"]:
                is_new = "-b" in rest
                result = f"Switched to {'a new ' if is_new else ''}branch '{last}'"
                english = f"You are now on {'the new branch ' if is_new else ''}{last}."
                german = f"Du bist jetzt auf {'dem neuen Branch ' if is_new else ''}{last}."
            case ["git", "stash"] if rest == ["stash"]:
                result = f"Saved working directory and index state WIP on {word}: {message}"
                english, german = "Your changes are stashed.", "Deine Änderungen sind im Stash."
            case ["git", "stash"] if rest == ["stash", "pop"]:
                path = self._values.path()
                result = f"On branch {word}\n  modified: {path}\nDropped refs/stash@{{0}}"
                english = f"The stash is back; {path} is modified."
                german = f"Der Stash ist zurück; {path} ist geändert."
            case ["git", "commit"]:
                message = last if last[:1] != "-" else message
                result = (
                    f"[{word} {rng.getrandbits(28):07x}] {message}\n "
                    f"{rng.randint(2, 9)} files changed"
                )
                english, german = f"Committed: {message}", f"Commit gemacht: {message}"
                if "--amend" in rest:
                    english = f"The last commit is now called: {message}"
                    german = f"Der letzte Commit heißt jetzt: {message}"
            case ["pip", "install"]:
                version = f"{rng.randint(0, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}"
                result = f"Successfully installed {last}-{version}"
                english, german = (
                    f"Installed {last} {version}.",
                    f"{last} {version} ist installiert.",
                )
            case _:
                return None
        return Outcome(result, _either(language, english, german), result)

    def _job(self, arguments: dict[str, Any], language: str) -> Outcome:
        rng, line = self._rng, self._make.text()
        job = arguments.get("id") or f"job-{rng.randint(1, 9)}"  # without one it is the newest
        if arguments["action"] == "stop":
            news = f"{line}\n" if rng.random() < 0.5 else ""
            return Outcome(
                f"{news}[{job} was ended by the model]",
                f"{job} wurde beendet." if language == "de" else f"{job} was stopped.",
            )
        if rng.random() < (0.6 if arguments["action"] == "output" else 0.15):
            seconds = rng.randint(5, 900)
            said = f"{job} still runs, for {seconds} s now. It printed: {line}"
            if language == "de":
                said = f"{job} läuft noch, seit {seconds} s. Ausgegeben hat er: {line}"
            goes_on = (
                f"it runs since {seconds} s and goes on as {job}, at most 3600 s in all; "
                f'job(action="wait", id="{job}") waits for it, action="stop" ends it'
            )
            return Outcome(f"{line}\n[{goes_on}]", said)
        said = f"{job} has ended without an error. It printed: {line}"
        if language == "de":
            said = f"{job} ist ohne Fehler durch. Ausgegeben hat er: {line}"
        return Outcome(f"{line}\n[{job} has ended with exit code 0]", said)

    def _evaluate(self, arguments: dict[str, Any], language: str) -> Outcome:
        value = self._by_chance(arguments["code"]) or _evaluated(arguments["code"])
        return Outcome(
            value,
            f"Das Ergebnis ist {value}." if language == "de" else f"The result is {value}.",
            value,
        )

    def _by_chance(self, code: str) -> str:
        """Return what code gives that draws lots or asks for the day; "" for other code."""
        rng = self._rng
        between = re.search(r"randint\((\d+), (\d+)\)", code)
        if between:
            return str(rng.randint(int(between[1]), int(between[2])))
        if "choice(" in code:
            return repr(rng.choice(["heads", "tails"]))
        return str(rng.randint(2, 900)) if "today" in code else ""

    # the web

    def _http(self, arguments: dict[str, Any], language: str) -> Outcome:
        status = self._rng.choice([200, 200, 200, 200, 201, 301, 404, 403, 500])
        line = self._make.text()
        if arguments.get("method") == "HEAD":
            return Outcome(
                f"HTTP {status}\ncontent-type: text/html",
                _either(language, f"The status is {status}.", f"Der Status ist {status}."),
            )
        said = _either(
            language, f"The answer was {status}: {line}", f"Die Antwort war {status}: {line}"
        )
        return Outcome(f"HTTP {status}\ncontent-type: text/plain\n\n{line}", said, line)

    def _web_fetch(self, arguments: dict[str, Any], language: str) -> Outcome:
        title, line = self._make.fragment(2, 5), self._make.text()
        said = _either(
            language, f"The page {title} says: {line}", f"Auf der Seite {title} steht: {line}"
        )
        return Outcome(f"title: {title}\nurl: {arguments['url']}\n\n{line}", said, line, title)

    def _open_url(self, arguments: dict[str, Any], language: str) -> Outcome:
        url = arguments["url"]
        return Outcome(
            "the page was opened in the user's browser",
            _either(
                language, f"I opened {url} in your browser.", f"Ich habe {url} im Browser geöffnet."
            ),
        )

    def _web_search(self, arguments: dict[str, Any], language: str) -> Outcome:
        rng, make = self._rng, self._make
        if rng.random() < 0.08:
            return Outcome(
                "no results",
                _either(language, "The search found nothing.", "Die Suche fand nichts."),
            )
        for found in _found().values():
            asked = re.fullmatch(found[language]["query"], arguments["query"])
            if asked and rng.random() < _FOUND_SHARE:
                subject = next(each for each in asked.groups() if each)
                return self._found_number(found, found[language], subject)
        titles = [make.fragment(2, 6) for _ in range(rng.choice([1, 1, 2]))]
        urls = [make.url() for _ in titles]
        lines = [self._values.text(language).split("\n")[0][:_MAX_LINE] for _ in titles]
        said = _either(
            language,
            f"The first result, {titles[0]}, says: {lines[0]} ({urls[0]})",
            f"Das erste Ergebnis, {titles[0]}, sagt: {lines[0]} ({urls[0]})",
        )
        shown = [
            f"{index + 1}. {title}\n   {url}\n   {line}"
            for index, (title, url, line) in enumerate(zip(titles, urls, lines, strict=True))
        ]
        return Outcome("\n".join(shown), said, titles[0], urls[0])

    def _found_number(self, found: dict[str, Any], words: dict[str, Any], subject: str) -> Outcome:
        """Return results of which one tells the number that was looked for."""
        rng = self._rng
        value, other = (
            re.sub("#", lambda _: str(rng.randint(1, 9)), each)
            for each in rng.sample(found["value"], 2)
        )
        lines = [rng.choice(words["lines"])]
        if rng.random() < 0.6:
            lines.insert(rng.choice([0, 1]), rng.choice(words["others"]))
        titles = rng.sample(words["titles"], len(lines))
        urls = [self._make.url() for _ in lines]
        filled = [
            text.replace("{x}", subject).replace("{v}", value).replace("{o}", other)
            for text in (*titles, *lines, rng.choice(words["answers"]))
        ]
        titles, lines, said = filled[: len(lines)], filled[len(lines) : -1], filled[-1]
        shown = [
            f"{index + 1}. {title}\n   {url}\n   {line}"
            for index, (title, url, line) in enumerate(zip(titles, urls, lines, strict=True))
        ]
        return Outcome("\n".join(shown), said, titles[0], urls[0])

    def _pdf_extract(self, arguments: dict[str, Any], language: str) -> Outcome:
        line, source = self._make.text(), arguments["source"]
        page = str(arguments.get("pages", "1")).split("-")[0]
        count = int(page) + self._rng.randint(0, 40)
        said = _either(
            language,
            f"Page {page} of {source} begins: {line}",
            f"Seite {page} von {source} beginnt: {line}",
        )
        return Outcome(
            f"pages: {count}\n\n--- page {page} ---\n{line}\n{self._make.text()}",
            said,
            line,
            str(count),
        )

    # notes, memory, plan

    def _memory_search(self, arguments: dict[str, Any], language: str) -> Outcome:
        if self._rng.random() < 0.25:
            query = arguments["query"]
            said = _either(
                language,
                f"I remember nothing about {query}.",
                f"Ich erinnere mich an nichts zu {query}.",
            )
            return Outcome(f"Nothing found for '{query}'.", said)
        line = self._values.text(language)
        said = _either(language, f"I remember: {line}", f"Ich erinnere mich: {line}")
        return Outcome(f"c{self._rng.randint(1, 99)} {self._date()} user: {line}", said, line)

    def _knowledge_search(self, arguments: dict[str, Any], language: str) -> Outcome:
        keywords = arguments["keywords"]
        name = _note(keywords)
        if name not in self._notes and self._rng.random() < 0.2:
            said = _either(
                language,
                f"Your notes have nothing about {keywords}.",
                f"Zu {keywords} steht nichts in den Notizen.",
            )
            return Outcome(f'Nothing found for "{keywords}".', said)
        line = self._notes.setdefault(name, self._values.text(language))
        said = _either(language, f"Your notes say: {line}", f"In den Notizen steht: {line}")
        return Outcome(f"{name}: {line}", said, line)

    def _knowledge_save(self, arguments: dict[str, Any], language: str) -> Outcome:
        size = len(arguments["content"].encode())
        self._notes[_note(arguments["keywords"])] = arguments["content"]
        said = _either(
            language,
            f"Saved under {arguments['keywords']}.",
            f"Gespeichert unter {arguments['keywords']}.",
        )
        return Outcome(f'created "{_note(arguments["keywords"])}" ({size} B)', said)

    def _knowledge_append(self, arguments: dict[str, Any], language: str) -> Outcome:
        size, keywords = len(arguments["content"].encode()), arguments["keywords"]
        self._notes.pop(_note(keywords), None)
        said = _either(
            language, f"Added to the note {keywords}.", f"Zur Notiz {keywords} hinzugefügt."
        )
        return Outcome(
            f'updated "{_note(keywords)}" (+{size} B → {size + self._rng.randint(9, 300)} B total)',
            said,
        )

    def _knowledge_load(self, arguments: dict[str, Any], language: str) -> Outcome:
        keywords = arguments["keywords"]
        line = self._notes.setdefault(_note(keywords), self._values.text(language))
        said = _either(
            language, f"The note {keywords} says: {line}", f"In der Notiz {keywords} steht: {line}"
        )
        return Outcome(
            f"# {_note(keywords)} ({len(line)} B, changed {self._date()})\n{line}", said, line
        )

    def _knowledge_delete(self, arguments: dict[str, Any], language: str) -> Outcome:
        keywords = arguments["keywords"]
        self._notes.pop(_note(keywords), None)
        said = _either(
            language, f"Deleted the note {keywords}.", f"Die Notiz {keywords} ist gelöscht."
        )
        return Outcome(f'deleted "{_note(keywords)}"; its text is kept in the trash', said)

    def _knowledge_list(self, _arguments: dict[str, Any], language: str) -> Outcome:
        names = sorted(
            {
                *self._notes,
                *(
                    f"{self._make.noun()}_{self._make.noun()}.md"
                    for _ in range(self._rng.randint(1, 4))
                ),
            }
        )
        said = _either(
            language,
            f"Your notes are {enumerated(names, language)}.",
            f"Deine Notizen: {enumerated(names, language)}.",
        )
        return Outcome(
            "\n".join(f"{name}  ({self._rng.randint(5, 400)} B, {self._date()})" for name in names),
            said,
        )

    def _knowledge_keywords(self, _arguments: dict[str, Any], language: str) -> Outcome:
        words = list(dict.fromkeys(self._make.noun() for _ in range(self._rng.randint(1, 5))))
        said = _either(
            language,
            f"The keywords are {enumerated(words, language)}.",
            f"Die Schlagwörter sind {enumerated(words, language)}.",
        )
        return Outcome("\n".join(f"{word} ({self._rng.randint(1, 9)})" for word in words), said)

    def _plan(self, arguments: dict[str, Any], language: str) -> Outcome:
        rng, steps, action = self._rng, self.steps, arguments["action"]
        if action == "add":
            items = arguments.get("items") or [arguments["text"]]
            if not steps and rng.random() < 0.3:
                self._invented(range(1, rng.randint(2, 5)), language)
            new = range(max(steps, default=0) + 1, max(steps, default=0) + 1 + len(items))
            steps |= {number: ("[ ]", item) for number, item in zip(new, items, strict=True)}
            said = _either(
                language,
                f"Added to the plan: {enumerated(items, language)}.",
                f"Zum Plan hinzugefügt: {enumerated(items, language)}.",
            )
            return Outcome(self._shown_plan(new), said)
        if action == "list":
            if not steps and rng.random() < 0.12:
                return Outcome(
                    "the plan is empty",
                    _either(language, "The plan is empty.", "Der Plan ist leer."),
                )
            if not steps:
                self._invented(range(1, rng.randint(2, 5)), language)
            items = [item for _, item in steps.values()]
            said = _either(
                language,
                f"The plan has {enumerated(items, language)}.",
                f"Auf dem Plan: {enumerated(items, language)}.",
            )
            return Outcome(self._shown_plan(steps), said)
        if arguments["id"] == "all":
            return self._all_steps(arguments, language)
        return self._one_step(arguments, self._step(arguments["id"], language), language)

    def _all_steps(self, arguments: dict[str, Any], language: str) -> Outcome:
        steps = self.steps
        if not steps:
            self._invented(range(1, self._rng.randint(3, 5)), language)
        mark = "[-]" if arguments["action"] == "delete" else "[x]"
        steps |= {number: (mark, item) for number, (_, item) in steps.items()}
        result = self._shown_plan(steps)
        if arguments["action"] == "delete":
            steps.clear()
            said = _either(language, "The plan is empty now.", "Der Plan ist jetzt leer.")
        else:
            said = _either(language, "All steps are done.", "Alle Schritte sind erledigt.")
        return Outcome(result, said)

    def _one_step(self, arguments: dict[str, Any], number: int, language: str) -> Outcome:
        steps, item = self.steps, self.steps[number][1]
        if arguments["action"] == "delete":
            del steps[number]
            said = _either(
                language, f"Removed step {number}: {item}.", f"Schritt {number} entfernt: {item}."
            )
            return Outcome(f"- [-] {number}. {item}", said)
        if "status" not in arguments:
            steps[number] = (steps[number][0], arguments["text"])
            now = arguments["text"]
            said = _either(
                language, f"Step {number} is now: {now}.", f"Schritt {number} heißt jetzt: {now}."
            )
            return Outcome(self._shown_plan(steps), said)
        mark, english, german = _STATUSES[arguments["status"]]
        steps[number] = (mark, item)
        said = _either(
            language, f"Step {number} {english}: {item}.", f"Schritt {number} {german}: {item}."
        )
        return Outcome(self._shown_plan(steps), said)

    def _step(self, wanted: str, language: str) -> int:
        """Return the number of the step that is meant, by number or by text."""
        rng, steps = self._rng, self.steps
        if wanted.isdigit():
            number = int(wanted)
            if number not in steps:
                low = max(1, number - rng.randint(0, 3))
                self._invented(
                    [each for each in range(low, number + rng.randint(1, 3)) if each not in steps],
                    language,
                )
            return number
        for number, (_, item) in steps.items():
            if item == wanted:
                return number
        if not steps:
            self._invented(range(1, rng.randint(2, 5)), language)
        number = rng.choice([*steps, max(steps) + 1])
        steps[number] = ("[ ]", wanted)
        return number

    def _invented(self, numbers: Iterable[int], language: str) -> None:
        """Put steps on the plan that nobody spoke of."""
        for number in numbers:
            self.steps[number] = (f"[{self._rng.choice('   x~')}]", self._values.short(language))

    def _shown_plan(self, numbers: Iterable[int]) -> str:
        steps = self.steps
        return "\n".join(f"- {steps[each][0]} {each}. {steps[each][1]}" for each in sorted(numbers))

    # the rest

    def _render(self, arguments: dict[str, Any], language: str) -> Outcome:
        name = arguments.get("name", "page") + ".html"
        return Outcome(
            f"rendered to file+session://{name} (text/html, {self._rng.randint(300, 9000)} B)",
            _either(language, f"The page is kept as {name}.", f"Die Seite liegt in {name}."),
        )

    def _tool_lookup(self, _arguments: dict[str, Any], language: str) -> Outcome:
        lines = [
            "ask_user: Ask the user a question and wait for the answer.",
            "calculator: Compute an arithmetic expression.",
        ]
        said = _either(
            language,
            "I can use ask_user, calculator and more.",
            "Ich habe ask_user, calculator und mehr.",
        )
        return Outcome("\n".join(lines) + "\ncheck_path: Tell whether a path exists.", said)

    def _ask_user(self, _arguments: dict[str, Any], language: str) -> Outcome:
        line = self._make.words(1, 3)
        return Outcome(
            line, _either(language, f"You answered: {line}.", f"Du hast geantwortet: {line}."), line
        )


def computed(expression: str) -> str:
    """Return what the calculator gives for a sum; "" for what it refuses."""
    try:
        return evaluate(expression)
    except ArithmeticFailure:
        return ""


# What prints nothing: how many words follow it (options of rm, mv, cp and mkdir not counted), and
# what it then did.
_SILENT = {
    "rm": (1, "Deleted {}.", "{} ist gelöscht."),
    "mv": (2, "Moved {} to {}.", "{} heißt jetzt {}."),
    "cp": (2, "Copied {} to {}.", "{} ist nach {} kopiert."),
    "mkdir": (1, "Created the folder {}.", "Der Ordner {} ist angelegt."),
    "tar": (3, "Packed {2} into {1}.", "{2} ist in {1} gepackt."),
    "touch": (1, "Created the empty file {}.", "Die leere Datei {} ist angelegt."),
    "gzip": (1, "Compressed {0} to {0}.gz.", "{0} ist jetzt als {0}.gz komprimiert."),
    "scp": (2, "Copied {} to {}", "{} ist kopiert nach {}"),
    "pkill": (1, "Ended {}.", "{} ist beendet."),
    "ln": (3, "Linked {2} to {1}.", "{2} zeigt jetzt auf {1}."),
    "zip": (3, "Packed {2} into {1}.", "{2} ist in {1} gepackt."),
    "rsync": (3, "{2} now has everything of {1}.", "{2} hat jetzt alles aus {1}."),
    "convert": (2, "Converted {} to {}.", "{} ist nach {} umgewandelt."),
    "chmod": (2, "Changed the mode of {1} to {0}.", "{1} hat jetzt die Rechte {0}."),
}


def _evaluated(code: str) -> str:
    """Return what a piece of Python of the generator gives."""
    text = re.sub(r"^(import|from) [^;]*; ", "", code)
    printed = re.fullmatch(r"print\((.*)\)", text)
    names = {"math": math, "date": date, "calendar": calendar, "statistics": statistics}
    value = eval(printed[1] if printed else text, names)
    return str(value) if printed else repr(value)


def _why(expression: str) -> str:
    """Return why the calculator refuses a sum."""
    try:
        evaluate(expression)
    except ArithmeticFailure as failure:
        return str(failure)
    return ""


# What every Linux has, so that no shell says that it is not found.
_ALWAYS_THERE = {
    "rm", "mv", "cp", "mkdir", "wc", "cat", "sort", "ls", "du", "tail", "head", "chmod", "sh",
    "tar", "kill", "df", "free", "ps", "uname", "whoami", "date", "echo", "touch", "ln", "env",
    "who", "nproc", "uptime", "hostname", "sha256sum", "md5sum", "cut", "which", "printenv", "diff",
}  # fmt: skip


# What says something by exiting with 1: `printed.py` knows what.
_TELLING = {"printenv", "which", "pgrep", "lsof", "diff", "crontab", "nc"}


def _exited(code: int) -> str:
    meaning = " (there is no such command)" if code == 127 else ""
    return f"The command exited with code {code}{meaning}"


# Names with a dot in front that are folders, and names without any that are files.
_DOT_FOLDERS = {".github", ".git", ".venv", ".config", ".cache", ".ssh", ".vscode"}
_PLAIN_FILES = {
    "Makefile", "LICENSE", "Dockerfile", "Gemfile", "Jenkinsfile", "Procfile", "Vagrantfile",
    "justfile", "artisan", "VERSION", "AUTHORS", "NOTICE", "CODEOWNERS", "CHANGES", "HISTORY",
    "hosts", "crontab", "todo", "fstab", "syslog", "sshd_config",
}  # fmt: skip


def _is_file(path: str) -> bool:
    """Return whether something is a file, by its name."""
    name = path.rsplit("/", 1)[-1]
    return ("." in name and name not in _DOT_FOLDERS) or name in _PLAIN_FILES


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command) or [""]
    except ValueError:
        return [""]


def _note(keywords: str) -> str:
    return "_".join(sorted(keywords.split())) + ".md"


def _either(language: str, english: str, german: str) -> str:
    return german if language == "de" else english
