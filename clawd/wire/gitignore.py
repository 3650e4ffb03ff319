"""What a tree of files leaves out: the patterns of its `.gitignore` files, see gitignore(5)."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

MAX_BYTES = 256 * 1024
MAX_PATTERNS = 2_000


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a `.gitignore`.

    Attributes:
        base: the folder that the file is in, relative to the tree, "" for its top.
        expression: matches a path relative to `base`.
    """

    base: str
    expression: re.Pattern[str]
    is_negated: bool
    only_folders: bool


def patterns_of(folder: Path, base: str) -> list[Pattern]:
    """Return the patterns of the `.gitignore` of a folder; none when it has none to read."""
    try:
        with (folder / ".gitignore").open("rb") as file:
            return patterns_in(file.read(MAX_BYTES), base)
    except OSError:
        return []


def patterns_in(data: bytes, base: str) -> list[Pattern]:
    """Return the patterns of a `.gitignore` that holds this, in the folder `base` of the tree."""
    lines = data.decode(errors="replace").split("\n")[:MAX_PATTERNS]
    found = (pattern_of(line, base) for line in lines)
    return [pattern for pattern in found if pattern is not None]


def pattern_of(line: str, base: str = "") -> Pattern | None:
    """Return what a line of a `.gitignore` says; None for a comment, or what cannot match."""
    text = re.sub(r"(?<!\\) +$", "", line.rstrip("\r"))
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    text = text[1:] if is_negated else text
    only_folders = text.endswith("/")
    text = text.rstrip("/")
    is_anchored = "/" in text
    text = text.lstrip("/")
    if not text:
        return None
    before = "" if is_anchored else "(?:.*/)?"
    try:
        expression = re.compile(before + _expression(text), re.DOTALL)
    except re.error:
        return None
    return Pattern(
        base=base, expression=expression, is_negated=is_negated, only_folders=only_folders
    )


def is_ignored(path: str, patterns: Sequence[Pattern], *, is_folder: bool) -> bool:
    """Return whether a path, relative to the tree, is left out; the last pattern that fits says."""
    for pattern in reversed(patterns):
        if pattern.only_folders and not is_folder:
            continue
        beginning = f"{pattern.base}/" if pattern.base else ""
        if path.startswith(beginning) and pattern.expression.fullmatch(path[len(beginning) :]):
            return not pattern.is_negated
    return False


def _expression(text: str) -> str:
    """Return a regular expression for a pattern; `**` between slashes is any number of folders."""
    parts = text.split("/")
    out: list[str] = []
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            out.append(".*" if is_last else "(?:.*/)?")
        else:
            out.append(_part(part) + ("" if is_last else "/"))
    return "".join(out)


def _part(part: str) -> str:
    """Return an expression for a name. It takes the first place that fits between two stars.

    No other could do better, and trying them all would take for ever for `*a*a*a*a*a*a*b`.
    """
    pieces, at = [""], 0
    while at < len(part):
        char = part[at]
        close = part.find("]", at + 2) if char == "[" else -1
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "[^/]"
        elif close > 0:
            inner = part[at + 1 : close].replace("\\", "\\\\").replace("[", "\\[")
            pieces[-1] += f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]"
            at = close
        elif char == "\\" and at + 1 < len(part):
            at += 1
            pieces[-1] += re.escape(part[at])
        else:
            pieces[-1] += re.escape(char)
        at += 1
    first, *others = pieces
    if not others:
        return first
    between = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1] if piece)
    return f"{first}{between}[^/]*{others[-1]}"
