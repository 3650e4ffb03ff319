"""What a conversation has shown of the files so far, so that later results agree with it.

What was written is read again, what was added stands at the end, a listing has what was made.
"""

import re
import shlex
from typing import Any

from training.assistant.outcomes import Outcome, Outcomes
from training.assistant.values import Values

_TRIES = 12
_PRINTS = re.compile(r"print\('(\w+)'\)|echo (\w+)")
_LISTED_BESIDE = 4  # other names in a listing that has to show a certain one
_GONE = (
    "does not exist",
    "is a folder",
    "is no folder",
    "not text",
    "old_text",
    "are not there",
)


class Scene:
    """The files of one conversation."""

    def __init__(self, values: Values, outcomes: Outcomes, language: str) -> None:
        self._values, self._outcomes, self._language = values, outcomes, language
        self._texts: dict[str, list[str]] = {}
        self._partly: set[str] = set()  # of which there may be more than is known
        self._made: dict[str, list[str]] = {}
        self._there: dict[str, str] = {}
        self._alone: set[str] = set()  # folders that have nothing but what was shown or made
        self._changed: tuple[str, str, str] | None = None  # path, old and new text of an edit

    def outcome(self, tool: str, arguments: dict[str, Any]) -> Outcome:
        """Return what a call gives, in keeping with what the calls before gave."""
        outcome = self._drawn(tool, arguments)
        for _ in range(_TRIES):
            if self._agrees(tool, arguments, outcome):
                break
            outcome = self._drawn(tool, arguments)
        return outcome

    def found(self, path: str, lines: list[str]) -> Outcome:
        """Return what reading a file of these lines gives."""
        self._texts[path], self._there[path] = lines, ": a file"
        return self._outcomes.reading(path, lines, self._language)

    def show(self, path: str, *, alone: bool = False) -> None:
        """Let a file be there, so that its folder's listing has it, or nothing beside such."""
        self._make(path)
        if alone:
            self._alone.add(_parted(path)[0])

    def lines(self, path: str) -> list[str]:
        """Return the lines of a file, if all of them are known; else none."""
        return [] if path in self._partly else self._texts.get(path, [])

    def knows(self, path: str) -> bool:
        """Return whether a file was read or changed in this conversation."""
        return path in self._texts

    def note(self, tool: str, arguments: dict[str, Any], outcome: Outcome) -> None:
        """Keep what a call changed or showed."""
        path = arguments.get("path", "")
        if outcome.failed or tool == "check_path":
            return
        if tool == "shell":
            self._commanded(arguments["command"])
        elif tool == "undo":
            self._texts.clear()
        elif tool == "file_write":
            self._texts[path] = arguments["content"].split("\n")
            self._partly.discard(path)
            self._make(path)
        elif tool == "file_append":
            if path not in self._texts:
                self._partly.add(path)
            before = self._texts.get(path) or [self._values.short(self._language)]
            self._texts[path] = [*before, *arguments["content"].split("\n")]
        elif tool == "file_edit":
            self._edited(path, arguments)
        elif tool == "file_read" and set(arguments) == {"path"} and outcome.value:
            self._texts[path] = outcome.value.split("\n")
            self._partly.discard(path)
        if path and tool.startswith("file_") and tool != "file_list":
            self._there[path] = ": a file"

    def _drawn(self, tool: str, arguments: dict[str, Any]) -> Outcome:
        path, language = arguments.get("path", ""), self._language
        if tool == "file_read" and path in self._texts:
            known = self._read(path, arguments)
            if known:
                return known
        is_beyond = 0 < len(self.lines(path)) < arguments.get("start_line", 0)
        if tool == "file_edit" and is_beyond:
            return self._outcomes.no_line(arguments, language)
        outcome = self._outcomes.of(tool, arguments, language)
        if outcome.failed:
            return outcome
        if tool == "shell":
            return self._printed(arguments["command"]) or outcome
        made = self._made.get(path.rstrip("/"), [])
        if tool != "file_list" or not made or arguments.get("recursive"):
            return outcome
        others = outcome.value.split("\n")[:_LISTED_BESIDE] if outcome.value else []
        if path.rstrip("/") in self._alone:
            others = []
        return self._outcomes.listing(path, sorted({*others, *made}), language)

    def _printed(self, command: str) -> Outcome | None:
        """Return what a command prints that tells of what was done before; None for others."""
        if command == "git diff" and self._changed:
            return self._outcomes.diff(*self._changed, self._language)
        if said := self._script_says(command):
            return self._outcomes.printed(said, self._language)
        count = self._counted(command)
        return self._outcomes.counted(*count, self._language) if count else None

    def _counted(self, command: str) -> tuple[str, int] | None:
        """Return the file whose lines are counted and their number, if it is known."""
        try:
            words = shlex.split(command)
        except ValueError:
            return None
        path = words[-1] if words[:2] == ["wc", "-l"] and len(words) == 3 else ""
        return (path, len(self.lines(path))) if self.lines(path) else None

    def _script_says(self, command: str) -> str:
        """Return what a script of one line, written before, prints."""
        match command.split(" "):
            case ["python3" | "sh", path]:
                said = _PRINTS.fullmatch(self.lines(path)[-1]) if self.lines(path) else None
                return said[1] or said[2] if said and len(self.lines(path)) <= 2 else ""
            case _:
                return ""

    def _read(self, path: str, arguments: dict[str, Any]) -> Outcome | None:
        lines = self._texts[path]
        first, count = arguments.get("start_line", 1), arguments.get("max_lines", len(lines))
        if set(arguments) == {"path"} or (first == 1 and count >= len(lines)):
            return self._outcomes.reading(path, lines, self._language)
        if path in self._partly:
            return None
        if first > len(lines):
            return self._outcomes.past_end(path, lines, self._language)
        return self._outcomes.part(path, lines, first, count, self._language)

    def _agrees(self, tool: str, arguments: dict[str, Any], outcome: Outcome) -> bool:
        path = arguments.get("path", "")
        if path not in self._there:
            return True
        if tool == "check_path":
            return outcome.failed or self._there[path] in outcome.result
        if not outcome.failed or not outcome.result.startswith("error"):
            return True
        return not any(reason in outcome.result for reason in _GONE)

    def _edited(self, path: str, arguments: dict[str, Any]) -> None:
        lines, new = self._texts.get(path), arguments["new_text"]
        if "old_text" not in arguments:
            first = arguments["start_line"] - 1
            if lines and arguments["end_line"] <= len(lines):
                lines[first : arguments["end_line"]] = new.split("\n") if new else []
            else:
                self._texts.pop(path, None)
            return
        old = arguments["old_text"]
        is_line = new and "\n" not in old + new
        self._changed = (path, old, new) if is_line else None
        text = "\n".join(lines or [])
        if lines and old in text:
            text = text.replace(old, new, 1)
        else:
            self._partly.add(path)
            text = f"{new}\n{self._values.short(self._language)}" if new else ""
        if text.strip():
            self._texts[path] = text.split("\n")
        else:
            self._texts.pop(path, None)

    def _commanded(self, command: str) -> None:
        """Keep what a command did to files."""
        try:
            words = shlex.split(command)
        except ValueError:
            return
        match words:
            case ["mkdir", "-p", *folders]:
                for folder in folders:
                    self._make(folder + "/")
                    self._there[folder] = ": a folder"
            case ["touch", path]:
                self._make(path)
            case ["cp" | "mv" as verb, old, new]:
                target = new + old.rstrip("/").rsplit("/", 1)[-1] if new.endswith("/") else new
                if old in self._texts:
                    self._texts[target] = list(self._texts[old])
                if old in self._partly:
                    self._partly.add(target)
                self._make(target)
                if verb == "mv":
                    self._remove(old)
            case ["rm", *paths]:
                for path in paths:
                    self._remove(path)
            case ["tar", "-czf", path, _]:
                self._make(path)
            case _:
                pass

    def _make(self, path: str) -> None:
        folder, name = _parted(path)
        self._there[path] = ": a file"
        if name not in self._made.setdefault(folder, []):
            self._made[folder].append(name)

    def _remove(self, path: str) -> None:
        folder, name = _parted(path)
        self._texts.pop(path, None)
        self._there.pop(path, None)
        if name in self._made.get(folder, []):
            self._made[folder].remove(name)


def _parted(path: str) -> tuple[str, str]:
    """Return the folder of a path, and its name there; a folder's name ends in a slash."""
    end = "/" if path.endswith("/") else ""
    folder, _, name = path.rstrip("/").rpartition("/")
    return folder or ".", name + end
