"""Rows for tool calls: what runs, how it ended, what it changed. Pure but for the clock's value."""

import json
from collections.abc import Sequence

import msgspec

from clawctl.diffs import has_returns, remarks_on, text_of
from clawctl.repl.cells import Span, fitted, rendered, safe, shortened_row
from clawctl.repl.theme import Look
from clawd.wire.changes import DiffLine, FileDiff
from clawd.wire.safe_text import NAME_LIMIT, terminal_safe, visible_line

PROGRESS_LINES = 3
OUTPUT_LINES = 6
DIFF_LINES = 24
ARGUMENT_LIMIT = 400
PROGRESS_LIMIT = 4_000
ID_LIMIT = 40
SUBJECTS = ("command", "path", "url", "query", "pattern")


class CallRow(msgspec.Struct, kw_only=True):
    """One call while it goes on.

    Attributes:
        started_at: on the monotonic clock, when it began to run; 0 while it waits.
        progress: the end of what it printed.
    """

    call_id: str
    tool: str
    arguments: str
    started_at: float = 0.0
    progress: str = ""
    has_progress: bool = False
    diffs: tuple[FileDiff, ...] = ()


def short_arguments(arguments: str) -> str:
    """Return arguments on one line: what the call is about, then `name=value` of the others."""
    try:
        values = json.loads(arguments)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return visible_line(arguments, ARGUMENT_LIMIT)
    shown = {name: value for name, value in values.items() if value not in (None, "")}
    first = next((name for name in SUBJECTS if name in shown), "")
    words = [_value(shown.pop(first))] if first else []
    if not words and len(shown) == 1:
        return _value(next(iter(shown.values())))
    words += [f"{name}={_value(value)}" for name, value in shown.items()]
    return visible_line(" ".join(words), ARGUMENT_LIMIT)


def live_call(call: CallRow, now: float, frame: str, columns: int, look: Look) -> list[str]:
    """Return the rows of a call that goes on."""
    theme = look.theme
    elapsed = f"  {now - call.started_at:.1f} s" if call.started_at else ""
    head = [
        Span(f"{frame} ", theme.accent),
        Span(visible_line(call.tool, NAME_LIMIT), theme.strong),
        Span(elapsed, theme.dim),
        Span(f"  {short_arguments(call.arguments)}", theme.dim),
    ]
    rows = [shortened_row(head, columns, look.marks.ellipsis)]
    for line in _last_lines(call.progress):
        row = [Span(f"  {look.marks.bar} {safe(line)}", theme.dim)]
        rows.append(shortened_row(row, columns, look.marks.ellipsis))
    return [rendered(row) for row in rows]


def finished_call(
    call: CallRow, *, status: str, duration_ms: int, receipt_id: str, columns: int, look: Look
) -> list[str]:
    """Return the row of a call that has its receipt."""
    theme, marks = look.theme, look.marks
    is_good = status == "allowed"
    head = [
        Span(f"{marks.done if is_good else marks.failed} ", theme.good if is_good else theme.bad),
        Span(visible_line(call.tool, NAME_LIMIT), theme.strong),
        Span("" if is_good else f" {status}", theme.bad),
    ]
    about = f"  {_duration(duration_ms)}  {visible_line(receipt_id, ID_LIMIT)}".rstrip()
    tail = [Span(about, theme.dim)]
    arguments = short_arguments(call.arguments)
    if arguments:
        room = max(columns - len(about) - sum(len(span.text) for span in head) - 2, 12)
        head += shortened_row([Span(f"  {arguments}", theme.dim)], room, marks.ellipsis)
    return [rendered(row) for row in fitted([*head, *tail], columns)]


def output_rows(output: str, columns: int, look: Look, *, is_bad: bool = False) -> list[str]:
    """Return the first lines of what a tool gave, and how many more there are."""
    lines = terminal_safe(output).rstrip("\n").split("\n")
    style = look.theme.bad if is_bad else look.theme.dim
    rows = [
        shortened_row(
            [Span(f"  {look.marks.bar} ", look.theme.dim), Span(safe(line), style)],
            columns,
            look.marks.ellipsis,
        )
        for line in lines[:OUTPUT_LINES]
    ]
    if len(lines) > OUTPUT_LINES:
        rows.append([Span(_more(len(lines) - OUTPUT_LINES, look), look.theme.dim)])
    return [rendered(row) for row in rows]


def diff_rows(diffs: Sequence[FileDiff], columns: int, look: Look) -> list[str]:
    """Return the changes of files, with line numbers where they are known."""
    rows: list[list[Span]] = []
    hidden = 0
    for diff in diffs:
        title = [Span(f"  {visible_line(diff.path)}", look.theme.strong)]
        about = [" new file"] if diff.is_new else [" removed"] if diff.is_removed else []
        about += [f" {remarks}"] if (remarks := remarks_on(diff)) else []
        title += [Span("".join(about), look.theme.dim)]
        title += [Span(f" +{diff.added}", look.theme.added)]
        title += [Span(f" -{diff.removed}", look.theme.removed)]
        rows += fitted(title, columns)
        room = max(DIFF_LINES - len(rows), 0)
        digits = len(str(max((line.number for line in diff.lines), default=0)))
        returns = has_returns(diff)
        for line in diff.lines[:room]:
            row = _diff_line(line, text_of(line, returns=returns), digits, look)
            rows.append(shortened_row(row, columns, look.marks.ellipsis))
        hidden += max(len(diff.lines) - room, 0)
    if hidden:
        rows.append([Span(_more(hidden, look), look.theme.dim)])
    return [rendered(row) for row in rows]


def _diff_line(line: DiffLine, text: str, digits: int, look: Look) -> list[Span]:
    if line.mark == "@":
        return [Span(f"  {' ' * digits} {look.marks.ellipsis}", look.theme.dim)]
    number = f"  {line.number or '':>{digits}} "
    style = {"+": look.theme.added, "-": look.theme.removed}.get(line.mark, "")
    return [Span(number, look.theme.dim), Span(f"{line.mark} {safe(text)}", style)]


def _more(count: int, look: Look) -> str:
    return f"  {look.marks.ellipsis} {count} more line{'s' if count > 1 else ''}"


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return visible_line(text.split("\n", 1)[0] + (" …" if "\n" in text else ""), ARGUMENT_LIMIT)


def _last_lines(text: str) -> list[str]:
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    return lines[-PROGRESS_LINES:]


def _duration(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"
