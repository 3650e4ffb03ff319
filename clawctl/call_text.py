"""Words for tool calls and plans: what a call is about, what it changed, how it ended. Pure."""

import json
import re
from collections.abc import Sequence
from typing import Any

from clawctl.render import Palette, duration, without_status
from clawd.wire.events import DiffLine, FileDiff, ToolFinished
from clawd.wire.safe_text import NAME_LIMIT, terminal_safe, visible_line

ARGUMENT_LIMIT = 400
SUBJECTS = ("command", "path", "url", "query", "pattern")
_FILE_TOOLS = frozenset({"file_append", "file_edit", "file_list", "file_read", "file_write"})
REASON_LINES = 6
LONGEST_NESTED = 40
_SHORT_MS = 95
_SECOND_MS = 1_000
_MINUTE_MS = 60_000


def call_name(tool: str) -> str:
    """Return what a tool is called where its path stands beside it: `edit` for `file_edit`."""
    if tool in _FILE_TOOLS:
        return tool.removeprefix("file_")
    return visible_line(tool, NAME_LIMIT)


def values_of(arguments: str) -> dict[str, Any] | None:
    """Return the values of a call's arguments; None where they are not a JSON object."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def short_arguments(arguments: str) -> str:
    """Return arguments on one line: what the call is about, then `name=value` of the others."""
    values = values_of(arguments)
    if values is None:
        return visible_line(arguments, ARGUMENT_LIMIT)
    shown = {name: value for name, value in values.items() if value not in (None, "")}
    first = next((name for name in SUBJECTS if name in shown), "")
    words = [_value(shown.pop(first))] if first else []
    if not words and len(shown) == 1:
        return _value(next(iter(shown.values())))
    words += [f"{name}={_value(value)}" for name, value in shown.items()]
    return visible_line(" ".join(words), ARGUMENT_LIMIT)


def subject_of(arguments: str, diffs: Sequence[FileDiff] = ()) -> str:
    """Return what a call is about; the files that it changes say it better than its arguments."""
    if len(diffs) == 1:
        return visible_line(diffs[0].path)
    return f"{len(diffs)} files" if diffs else short_arguments(arguments)


def counts_of(diffs: Sequence[FileDiff]) -> tuple[str, str]:
    """Return the lines that came and went, as `+3` and `−1`."""
    added = sum(diff.added for diff in diffs)
    removed = sum(diff.removed for diff in diffs)
    return f"+{added}", f"−{removed}"


def ending(event: ToolFinished, duration_ms: int | None = None) -> str:
    """Return how a call ended and how long it took, as `exit 1 · 2.1 s`, or that it runs on.

    Args:
        event: says that it ended.
        duration_ms: of the call alone, where a person was asked in between.
    """
    if event.status == "denied":
        return "denied"
    took = lasted(event.duration_ms if duration_ms is None else duration_ms)
    if event.status == "allowed":
        return f"runs on as {event.job} · {took}" if event.job else took
    return f"{f'exit {event.exit_code}' if event.exit_code else 'failed'} · {took}"


def reasons(event: ToolFinished) -> list[str]:
    """Return why a call did not act, in the first lines of what the model is told of it.

    The exit code of a program says it for what it printed.
    """
    if event.status == "allowed" or event.exit_code:
        return []
    lines = terminal_safe(without_status(event.output)).rstrip("\n").split("\n")
    return [line for line in lines if line.strip()][:REASON_LINES]


def lasted(milliseconds: int) -> str:
    """Return a duration as a row of a call shows it: `7 ms`, `0.2 s`, `2 min 5 s`."""
    if milliseconds < _SHORT_MS:
        return f"{milliseconds} ms"
    seconds = milliseconds / _SECOND_MS
    return f"{seconds:.1f} s" if milliseconds < _MINUTE_MS else duration(seconds)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | dict) and len(text) > LONGEST_NESTED:
        return f"{text[0]}…{text[-1]}"
    return visible_line(text.split("\n", 1)[0] + (" …" if "\n" in text else ""), ARGUMENT_LIMIT)


NO_END = " (no newline at the end)"
# What is shown of a call's changes; more is folded.
DIFF_LINES = 40
NAMED_FILES = 3


def kind_of(diff: FileDiff) -> str:
    """Return what happens to the file, in a word or two."""
    if diff.is_removed:
        return "removes"
    return "new file" if diff.is_new else "changes"


def remarks_on(diff: FileDiff) -> str:
    """Return what the lines alone do not say; "" for nothing."""
    remarks = ["CR LF line ends"] if has_returns(diff) else []
    if diff.note:
        remarks.append(visible_line(diff.note))
    if diff.is_binary:
        remarks.append("not text")
    if diff.is_cut:
        shown = sum(line.mark in "+-" for line in diff.lines)
        remarks.append(f"cut: {diff.added + diff.removed - shown} lines are not here")
    return ", ".join(remarks)


def has_returns(diff: FileDiff) -> bool:
    """Return whether every whole line of a file that is shown ends with CR LF."""
    lines = [line for line in diff.lines if line.mark != "@" and line.has_end]
    return bool(lines) and all(line.text.endswith("\r") for line in lines)


def text_of(line: DiffLine, *, returns: bool) -> str:
    """Return a line's text; with `returns` the CR that all of them end with is left out."""
    text = line.text.removesuffix("\r") if returns and line.has_end else line.text
    return text if line.has_end else text + NO_END


def mark_of(line: DiffLine) -> str:
    """Return the sign before a line, as wide as it is for each."""
    return "−" if line.mark == "-" else line.mark


def summary_of(diffs: tuple[FileDiff, ...]) -> str:
    """Return the files of a call on one line, with lines and bytes, for the end of a long text."""
    named = [each.path for each in diffs[:NAMED_FILES]]
    more = f" and {len(diffs) - NAMED_FILES} more" if len(diffs) > NAMED_FILES else ""
    added, removed = (sum(getattr(each, name) for each in diffs) for name in ("added", "removed"))
    size = sum(each.new_size for each in diffs)
    return f"{', '.join(named)}{more}  +{added} -{removed} lines, {size} B"


_ITEM = re.compile(r"- (\[[ ~x!-]\]) (\d{1,9})\. (.*)")


def plan_text(markdown: str, palette: Palette) -> str:
    """Return the lines of a plan, safe to show; what is no item stays as it is."""
    return "\n".join(_line(line, palette) for line in terminal_safe(markdown).split("\n"))


def parts_of(line: str) -> tuple[str, str, str] | None:
    """Return mark, number and text of an item's line; None for another line."""
    item = _ITEM.fullmatch(line)
    return None if item is None else (item[1], item[2], item[3])


def _line(line: str, palette: Palette) -> str:
    item = parts_of(line)
    if item is None:
        return line
    mark, number, text = item
    shown = f"{mark} {number}. {visible_line(text)}"
    match mark[1]:
        case "~":
            return palette.yellow(shown)
        case "x":
            return f"{palette.green(mark)} {number}. {palette.dim(visible_line(text))}"
        case "!":
            return palette.red(shown)
        case "-":
            return palette.dim(shown)
        case _:
            return shown
