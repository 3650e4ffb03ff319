"""What a call of a file tool would change, as lines of a diff, for a person who looks at it.

The old content is read here, where that may be done: then lines have their numbers. A file that
cannot be read here (another user's, another machine's view) leaves what the arguments tell.
"""

import contextlib
import difflib
import json
import os
import stat
from typing import Any, Literal

import msgspec

MAX_OLD_BYTES = 1 << 20
MAX_DIFF_LINES = 4_000
CONTEXT_LINES = 2

Mark = Literal["+", "-", " ", "@"]


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line; `number` is that of the new file, of the old one for a removed line, 0 unknown.

    `@` stands where lines were left out.
    """

    mark: Mark
    text: str = ""
    number: int = 0


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one file; `is_new` when there was none."""

    path: str
    lines: tuple[DiffLine, ...]
    is_new: bool = False

    @property
    def added(self) -> int:
        """How many lines come."""
        return sum(line.mark == "+" for line in self.lines)

    @property
    def removed(self) -> int:
        """How many lines go."""
        return sum(line.mark == "-" for line in self.lines)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One change that arguments ask for."""

    verb: Literal["write", "append", "edit"]
    path: str
    new: str
    old: str = ""
    first: int = 0
    last: int = 0


def diffs_of(tool: str, arguments: str, workspace: str) -> list[FileDiff]:
    """Return what a call changes; nothing for tools and arguments that say nothing of it."""
    texts: dict[str, str | None] = {}
    found = []
    for step in steps_of(tool, arguments):
        if step.path not in texts:
            texts[step.path] = _old_text(workspace, step.path)
        old = texts[step.path]
        new = _applied(step, old)
        if new is None:
            found.append(_of_arguments(step))
            texts[step.path] = None
        else:
            is_new = old == "" and not _exists(workspace, step.path)
            found.append(_between(step.path, old or "", new, is_new=is_new))
            texts[step.path] = new
    return [each for each in found if each.lines]


def steps_of(tool: str, arguments: str) -> list[Step]:
    """Return the changes that the arguments of a file tool name."""
    try:
        values = json.loads(arguments)
    except ValueError:
        return []
    if not isinstance(values, dict):
        return []
    verbs = {"file_write": "write", "file_append": "append", "file_edit": "edit"}
    if tool in verbs:
        given: list[Any] = [values | {"op": verbs[tool]}]
    else:
        operations: Any = values.get("operations") if tool == "fs_ops" else None
        given = operations if isinstance(operations, list) else []
    steps = [_step(each) for each in given if isinstance(each, dict)]
    return [step for step in steps if step is not None]


def _step(values: dict[str, Any]) -> Step | None:
    path, verb = values.get("path"), values.get("op")
    first, last = values.get("start_line", 0), values.get("end_line", values.get("start_line", 0))
    new = values.get("new_text") if verb == "edit" else values.get("content")
    old = values.get("old_text") or ""
    if verb not in {"write", "append", "edit"} or not all(
        isinstance(text, str) for text in (path, new, old)
    ):
        return None
    if not (isinstance(first, int) and isinstance(last, int)):
        return None
    return Step(verb=verb, path=str(path), new=str(new), old=old, first=first, last=last)


def _applied(step: Step, text: str | None) -> str | None:
    """Return the file's text after the step; None when that cannot be known here."""
    if step.verb == "write":
        return step.new if text is not None else None
    if text is None:
        return None
    if step.verb == "append":
        return text + step.new
    if step.old:
        return text.replace(step.old, step.new) if text.count(step.old) == 1 else None
    if not 0 < step.first <= step.last + 1:
        return None
    lines = text.split("\n")
    return "\n".join([*lines[: step.first - 1], *step.new.split("\n"), *lines[step.last :]])


def _of_arguments(step: Step) -> FileDiff:
    old = [DiffLine(mark="-", text=line) for line in _lines(step.old)]
    new = [DiffLine(mark="+", text=line) for line in _lines(step.new)]
    return FileDiff(path=step.path, lines=tuple((old + new)[:MAX_DIFF_LINES]))


def _between(path: str, old: str, new: str, *, is_new: bool) -> FileDiff:
    before, after = _lines(old), _lines(new)
    if len(before) + len(after) > MAX_DIFF_LINES:
        start = [DiffLine(mark="+", text=line) for line in after[:MAX_DIFF_LINES]]
        return FileDiff(path=path, lines=tuple(start), is_new=is_new)
    lines: list[DiffLine] = []
    groups = difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(
        CONTEXT_LINES
    )
    for group in groups:
        if lines:
            lines.append(DiffLine(mark="@"))
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                lines += _numbered(" ", after[new_from:new_to], new_from)
                continue
            lines += _numbered("-", before[old_from:old_to], old_from)
            lines += _numbered("+", after[new_from:new_to], new_from)
    return FileDiff(path=path, lines=tuple(lines), is_new=is_new)


def _numbered(mark: Mark, lines: list[str], before: int) -> list[DiffLine]:
    return [
        DiffLine(mark=mark, text=line, number=number)
        for number, line in enumerate(lines, before + 1)
    ]


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _place(workspace: str, path: str) -> str:
    """Return the real path, or "" when it is not beneath the workspace."""
    if not workspace or "\0" in path or "://" in path:
        return ""
    root = os.path.realpath(workspace)
    place = os.path.realpath(os.path.join(root, path))  # noqa: PTH118 - a model's text, not a Path
    return place if os.path.commonpath([root, place]) == root else ""


def _exists(workspace: str, path: str) -> bool:
    place = _place(workspace, path)
    return bool(place) and os.path.lexists(place)


def _old_text(workspace: str, path: str) -> str | None:
    """Return what a file holds: "" when there is none, None when it cannot be read here."""
    try:
        place = _place(workspace, path)
        if not place:
            return None
        # Neither a pipe nor a device may hold us up, and no link may lead away meanwhile.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(place, flags)
    except FileNotFoundError:
        return "" if os.path.isdir(workspace) else None  # noqa: PTH112
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        # Before a file is made of it: for a folder that fails and leaves it open.
        os.close(descriptor)
        return None
    with (
        open(descriptor, "rb") as file,  # noqa: PTH123 - a descriptor
        contextlib.suppress(OSError, UnicodeDecodeError),
    ):
        data = file.read(MAX_OLD_BYTES + 1)
        return data.decode() if len(data) <= MAX_OLD_BYTES else None
    return None
