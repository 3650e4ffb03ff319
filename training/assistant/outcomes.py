"""What tools answer, in the words of clawd's own tools, and the true sentence that sums it up.

Every sentence can be copied from the result: its first line, its names, its value. What failed or
was denied is reported as such, with the reason and never as done.
"""

import random
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from training.assistant.printed import Printer
from training.assistant.values import Values
from training.data.lists import WEEKDAYS

LISTED_NAMES = 6
_MAX_LINE = 90
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
]
_CHANGING = {"file_write", "file_append", "file_edit", "undo", "shell", "knowledge_save"}
_CHANGING |= {"knowledge_append", "knowledge_delete", "plan", "http", "fs_ops", "render"}


class Outcome(NamedTuple):
    """A tool's result, the sentence that reports it, what a next call can take from it."""

    result: str
    answer: str
    value: str = ""
    first: str = ""
    failed: bool = False


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
        return Outcome(f"denied: {reason}{more}", answer, failed=True)

    def _failed(self, tool: str, arguments: dict[str, Any], language: str) -> Outcome | None:
        reasons = self._reasons(tool, arguments)
        if not reasons:
            return None
        reason = self._rng.choice(reasons)
        said = reason.split("\n")[0].split("; ")[0]
        answer = f"That did not work: {said}."
        if language == "de":
            answer = f"Das hat nicht geklappt: {said}."
        return Outcome(f"error: {reason}", answer, failed=True)

    def _reasons(self, tool: str, arguments: dict[str, Any]) -> list[str]:
        rng, make = self._rng, self._make
        path = arguments.get("path", "")
        host = str(arguments.get("url", "")).split("/")[2:3]
        match tool:
            case "file_read" | "file_list" | "grep" if path and path != ".":
                gone = f"{path} does not exist; file_list shows what is there"
                return [
                    gone,
                    gone,
                    f"{path} is not {'a folder' if tool == 'file_list' else 'text'}",
                    f"{path} cannot be read: permission denied",
                ]
            case "file_edit":
                return (
                    [
                        f"{path} does not exist; file_list shows what is there",
                        f"old_text does not stand in {path}",
                        f"old_text stands {rng.randint(2, 9)} times in {path}",
                    ]
                    if "old_text" in arguments
                    else [f"{path} has no line {arguments['start_line']}"]
                )
            case "file_write" | "file_append":
                return [
                    f"{path} is a folder",
                    f"{path} cannot be written: no space left on device",
                    f"{path} cannot be written: permission denied",
                ]
            case "shell":
                code = rng.choice([1, 1, 2, 126, 127])
                why = self._shell_failure(code, _words(arguments["command"]))
                return [f"The command exited with code {code}", why]
            case "http" | "web_fetch" | "open_url" if host:
                return [
                    f"the name {host[0]} cannot be resolved",
                    f"{host[0]} did not answer in {rng.randint(5, 60)} s",
                    f"{host[0]} refused the connection",
                ]
            case "web_search":
                return ["no search engine answered"]
            case "pdf_extract":
                return [f"{arguments['source']} does not exist; file_list shows what is there"]
            case "calculator":
                expression = arguments["expression"]
                is_zero = "/" in expression and not computed(expression)
                return [f"cannot compute '{expression}': division by zero"] if is_zero else []
            case "evaluate":
                return [
                    f"NameError: name '{make.word()}' is not defined",
                    "SyntaxError: invalid syntax",
                ]
            case "undo":
                return ["there is nothing to undo"]
            case "job":
                return ["there is no job in this conversation; jobs end with the daemon"]
            case "knowledge_load" | "knowledge_delete" | "knowledge_append":
                return [f'there is no entry "{_note(arguments["keywords"])}"']
            case "plan" if arguments["action"] in {"update", "delete"}:
                return [f"the plan has no step {arguments['id']}"]
            case "ask_user":
                return ["there is nobody to ask"]
            case _:
                return []

    def _shell_failure(self, code: int, words: list[str]) -> str:
        word = self._make.word()
        reasons = [
            f"sh: {word}: not found",
            f"{word}: No such file or directory",
            f"{word}: permission denied",
            f"error: {self._make.fragment(2, 6)}",
        ]
        if words[0] == "git":
            reasons = ["fatal: not a git repository", f"error: {self._make.fragment(2, 6)}"]
        elif words[0] in {"rm", "mv", "cp", "mkdir", "chmod", "touch"} and len(words) > 1:
            reasons = [f"{words[0]}: {words[-1]}: Permission denied"]
        why = self._rng.choice(reasons)
        return f"The command exited with code {code}: {why}"

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
        if wanted > 1:
            return self._several_lines(first, wanted, language)
        count = min(rng.choice([1, 1, 2, 2, 3, 4]), arguments.get("max_lines", 9))
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
        return self.reading(path, lines, language)._replace(result=result)

    def _several_lines(self, first: int, wanted: int, language: str) -> Outcome:
        """Return some lines of a file, said as they stand."""
        rng = self._rng
        count = min(wanted, rng.choice([2, 3, 3, 4, 5]))
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
        why = f"{arguments['path']} has no line {arguments['start_line']}"
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
            said = _either(
                language, f"{path} begins: {lines[0]}", f"{path} beginnt mit: {lines[0]}"
            )
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
            name = pattern.replace("*", make.word())
            paths.append(f"{folder.strip('/')}/{name}".lstrip("/"))
        paths = sorted(dict.fromkeys(paths))
        said = (
            f"Ich habe {self._listed(paths, language)} gefunden."
            if language == "de"
            else (f"I found {self._listed(paths, language)}.")
        )
        return Outcome("\n".join(paths), said, "\n".join(paths), paths[0])

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
        for _ in range(rng.choice([1, 1, 2, 3])):
            line = f"{make.words(0, 2)} {pattern} {make.words(0, 2)}".strip()
            found = make.file_name() if where else make.path()
            if where and where != ".":
                is_file = "." in where.rsplit("/", 1)[-1]
                found = where if is_file else f"{where.rstrip('/')}/{found}"
            hits.append((found, rng.randint(1, 400), line))
        path, number, line = hits[0]
        said = f"I found it in {path}, line {number}: {line}"
        if language == "de":
            said = f"Gefunden in {path}, Zeile {number}: {line}"
        if len(hits) > 1:
            places = [_either(language, f"{a} (line {b})", f"{a} (Zeile {b})") for a, b, _ in hits]
            found = _either(language, "I found it in", "Gefunden in")
            said = f"{found} {enumerated(places, language)}."
        listed = "\n".join(f"{a}:{b}:{c}" for a, b, c in hits)
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
        lines = [f"undone: {path} restored ({rng.randint(1, 999)} B)" for path in paths]
        listed = self._listed(paths, language)
        said = (
            f"Rückgängig gemacht: {listed}." if language == "de" else f"Undone: {listed} restored."
        )
        return Outcome("\n".join(lines), said)

    # commands and sums

    def _time(self, _arguments: dict[str, Any], language: str) -> Outcome:
        rng = self._rng
        day, clock = self._date(), f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
        weekday, seconds = rng.choice(WEEKDAYS), f"{rng.randint(0, 59):02d}"
        result = (
            f"local: {weekday} {day} {clock}:{seconds}+00:00\nutc: {day}T{clock}:{seconds}Z\n"
            f"zone: {rng.choice(['UTC', 'CET', 'Europe/Berlin'])}"
        )
        said = f"It is {weekday} {day}, {clock}."
        if language == "de":
            german = dict(zip(WEEKDAYS, _GERMAN_DAYS, strict=True))[weekday]
            said = f"Es ist {german}, {day}, {clock} Uhr."
        return Outcome(result, said, f"{day} {clock}:{seconds}")

    def _date(self) -> str:
        rng = self._rng
        return f"{rng.randint(2020, 2035)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"

    def _calculator(self, arguments: dict[str, Any], _language: str) -> Outcome:
        value = computed(arguments["expression"]) or str(self._rng.randint(0, 9999))
        return Outcome(value, f"{arguments['expression']} = {value}.", value)

    def _shell(self, arguments: dict[str, Any], language: str) -> Outcome:
        program, *rest = _words(arguments["command"])
        if program == "tar" and rest[:1] == ["-xzf"] and len(rest) == 2:
            said = _either(language, f"Unpacked {rest[1]}.", f"{rest[1]} ist entpackt.")
            return Outcome("(no output)", said)
        if program in {"mv", "cp"} and len(rest) == 2 and rest[1].endswith("/"):
            verb, getan = {"mv": ("Moved", "verschoben"), "cp": ("Copied", "kopiert")}[program]
            german = f"{rest[0]} ist nach {rest[1]} {getan}."
            said = _either(language, f"{verb} {rest[0]} to {rest[1]}.", german)
            return Outcome("(no output)", said)
        if program == "rm" and len(rest) > 1 and rest[0] != "-r":
            names = enumerated(rest, language)
            german = f"{names} sind gelöscht."
            return Outcome("(no output)", _either(language, f"Deleted {names}.", german))
        if program == "rm" and rest[:1] == ["-r"]:
            german = f"Der Ordner {rest[-1]} ist gelöscht."
            said = _either(language, f"Deleted the folder {rest[-1]}.", german)
            return Outcome("(no output)", said)
        if program == "mkdir" and len(rest) > 2:
            names = enumerated(rest[1:], language)
            german = f"Die Ordner {names} sind angelegt."
            said = _either(language, f"Created the folders {names}.", german)
            return Outcome("(no output)", said)
        if program in _SILENT and len(rest) == _SILENT[program][0]:
            _, english, german = _SILENT[program]
            said = _either(language, english, german).format(
                *(word for word in rest if word != "-p")
            )
            return Outcome("(no output)", said)
        known = self._printer.of([program, *rest], language)
        if known:
            result, english, german, first = known
            value = "" if result == "(no output)" else result
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
        printed = "\n".join(lines)
        told = f" {printed}" if len(lines) == 1 else f"\n{printed}"
        said = _either(language, f"The command printed:{told}", f"Der Befehl ergab:{told}")
        return Outcome(printed, said, printed)

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
            case ["git", "checkout"]:
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
        line, job = self._make.text(), arguments["id"]
        if arguments["action"] == "stop":
            return Outcome(
                f"{job} was stopped",
                f"{job} wurde beendet." if language == "de" else f"{job} was stopped.",
            )
        said = f"{job} printed: {line}"
        return Outcome(
            f"{job} ended with code 0\n{line}",
            f"{job} hat ausgegeben: {line}" if language == "de" else said,
        )

    def _evaluate(self, _arguments: dict[str, Any], language: str) -> Outcome:
        value = self._rng.choice(
            [str(self._rng.randint(0, 99999)), f"'{self._make.word()}'", self._make.word()]
        )
        return Outcome(
            value,
            f"Das Ergebnis ist {value}." if language == "de" else f"The result is {value}.",
            value,
        )

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

    def _web_search(self, _arguments: dict[str, Any], language: str) -> Outcome:
        rng, make = self._rng, self._make
        if rng.random() < 0.08:
            return Outcome(
                "no results",
                _either(language, "The search found nothing.", "Die Suche fand nichts."),
            )
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
        if self._rng.random() < 0.2:
            said = _either(
                language,
                f"Your notes have nothing about {keywords}.",
                f"Zu {keywords} steht nichts in den Notizen.",
            )
            return Outcome(f'Nothing found for "{keywords}".', said)
        line = self._values.text(language)
        said = _either(language, f"Your notes say: {line}", f"In den Notizen steht: {line}")
        return Outcome(f"{_note(keywords)}: {line}", said, line)

    def _knowledge_save(self, arguments: dict[str, Any], language: str) -> Outcome:
        size = len(arguments["content"].encode())
        said = _either(
            language,
            f"Saved under {arguments['keywords']}.",
            f"Gespeichert unter {arguments['keywords']}.",
        )
        return Outcome(f'created "{_note(arguments["keywords"])}" ({size} B)', said)

    def _knowledge_append(self, arguments: dict[str, Any], language: str) -> Outcome:
        size, keywords = len(arguments["content"].encode()), arguments["keywords"]
        said = _either(
            language, f"Added to the note {keywords}.", f"Zur Notiz {keywords} hinzugefügt."
        )
        return Outcome(
            f'updated "{_note(keywords)}" (+{size} B → {size + self._rng.randint(9, 300)} B total)',
            said,
        )

    def _knowledge_load(self, arguments: dict[str, Any], language: str) -> Outcome:
        line, keywords = self._values.text(language), arguments["keywords"]
        said = _either(
            language, f"The note {keywords} says: {line}", f"In der Notiz {keywords} steht: {line}"
        )
        return Outcome(
            f"# {_note(keywords)} ({len(line)} B, changed {self._date()})\n{line}", said, line
        )

    def _knowledge_delete(self, arguments: dict[str, Any], language: str) -> Outcome:
        keywords = arguments["keywords"]
        said = _either(
            language, f"Deleted the note {keywords}.", f"Die Notiz {keywords} ist gelöscht."
        )
        return Outcome(f'deleted "{_note(keywords)}"; its text is kept in the trash', said)

    def _knowledge_list(self, _arguments: dict[str, Any], language: str) -> Outcome:
        names = sorted(
            {f"{self._make.noun()}_{self._make.noun()}.md" for _ in range(self._rng.randint(1, 4))}
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
        rng = self._rng
        action = arguments["action"]
        if action == "add":
            items = arguments.get("items") or [arguments["text"]]
            said = _either(
                language,
                f"Added to the plan: {enumerated(items, language)}.",
                f"Zum Plan hinzugefügt: {enumerated(items, language)}.",
            )
            return Outcome(
                "\n".join(f"- [ ] {index + 1}. {item}" for index, item in enumerate(items)), said
            )
        if action == "list":
            if rng.random() < 0.12:
                return Outcome(
                    "the plan is empty",
                    _either(language, "The plan is empty.", "Der Plan ist leer."),
                )
            items = [self._values.short(language) for _ in range(rng.randint(1, 4))]
            return self.plan([(rng.choice("  x~"), item) for item in items], language)
        number, item = arguments["id"], self._values.short(language)
        if action == "delete":
            said = _either(
                language, f"Removed step {number}: {item}.", f"Schritt {number} entfernt: {item}."
            )
            return Outcome(f"- [-] {number}. {item}", said)
        if arguments["status"] == "done":
            return Outcome(
                f"- [x] {number}. {item}",
                _either(
                    language,
                    f"Step {number} is done: {item}.",
                    f"Schritt {number} ist erledigt: {item}.",
                ),
            )
        return Outcome(
            f"- [~] {number}. {item}",
            _either(
                language,
                f"Step {number} is in progress: {item}.",
                f"Schritt {number} ist in Arbeit: {item}.",
            ),
        )

    def plan(self, items: list[tuple[str, str]], language: str) -> Outcome:
        """Return the list of a plan with these items, each with its mark."""
        told = enumerated([item for _, item in items], language)
        said = _either(language, f"The plan has {told}.", f"Auf dem Plan: {told}.")
        rows = [f"- [{mark}] {index + 1}. {item}" for index, (mark, item) in enumerate(items)]
        return Outcome("\n".join(rows), said)

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


_GERMAN_DAYS = ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"]


def computed(expression: str) -> str:
    """Return what the calculator gives for a sum of the generator; "" for what it refuses."""
    plain = expression.replace("^", "**")
    if not set(plain) <= set("0123456789.+-*/%() sqrt"):
        return ""
    try:
        value = eval(plain, {"__builtins__": {}, "sqrt": lambda number: number**0.5})
    except (ArithmeticError, SyntaxError, TypeError):
        return ""
    if isinstance(value, complex) or abs(value) > (1e15 if isinstance(value, float) else 1e40):
        return ""
    if isinstance(value, float):
        return f"{value:.15g}"
    return str(value)


# What prints nothing: how many words follow it, and what it then did.
_SILENT = {
    "rm": (1, "Deleted {}.", "{} ist gelöscht."),
    "mv": (2, "Moved {} to {}.", "{} heißt jetzt {}."),
    "cp": (2, "Copied {} to {}.", "{} ist nach {} kopiert."),
    "mkdir": (2, "Created the folder {}.", "Der Ordner {} ist angelegt."),
    "tar": (3, "Packed {2} into {1}.", "{2} ist in {1} gepackt."),
    "touch": (1, "Created the empty file {}.", "Die leere Datei {} ist angelegt."),
    "pkill": (1, "Ended {}.", "{} ist beendet."),
    "ln": (3, "Linked {2} to {1}.", "{2} zeigt jetzt auf {1}."),
    "zip": (3, "Packed {2} into {1}.", "{2} ist in {1} gepackt."),
    "chmod": (2, "Changed the mode of {1} to {0}.", "{1} hat jetzt die Rechte {0}."),
}


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command) or [""]
    except ValueError:
        return [""]


def _note(keywords: str) -> str:
    return "_".join(sorted(keywords.split())) + ".md"


def _either(language: str, english: str, german: str) -> str:
    return german if language == "de" else english
