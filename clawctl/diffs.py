"""Words and lines for the diffs that the daemon computed: what a call makes of files. Pure."""

from clawd.wire.changes import DiffLine, FileDiff
from clawd.wire.safe_text import visible_line

NO_END = " (no newline at the end)"
# What is shown of a call's changes; more is folded.
DIFF_LINES = 40


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
    """Whether every whole line of a file that is shown ends with CR LF."""
    lines = [line for line in diff.lines if line.mark != "@" and line.has_end]
    return bool(lines) and all(line.text.endswith("\r") for line in lines)


def text_of(line: DiffLine, *, returns: bool) -> str:
    """Return a line's text; with `returns` the CR that all of them end with is left out."""
    text = line.text.removesuffix("\r") if returns and line.has_end else line.text
    return text if line.has_end else text + NO_END


def mark_of(line: DiffLine) -> str:
    """Return the sign before a line, as wide as it is for each."""
    return "−" if line.mark == "-" else line.mark


def summary_of(diffs: tuple[FileDiff, ...], limit: int = 3) -> str:
    """Return the files of a call on one line, with lines and bytes, for the end of a long text."""
    named = [each.path for each in diffs[:limit]]
    more = f" and {len(diffs) - limit} more" if len(diffs) > limit else ""
    added, removed = (sum(getattr(each, name) for each in diffs) for name in ("added", "removed"))
    size = sum(each.new_size for each in diffs)
    return f"{', '.join(named)}{more}  +{added} -{removed} lines, {size} B"
