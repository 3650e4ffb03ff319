"""The owner's patterns for untrusted paths: `downloads`, `*.eml`, `~/Downloads`, `/srv/*/inbox`.

A pattern with a leading `/` or `~` is of the whole path, any other of a part of it at any depth;
what lies under a match is meant too. `*` and `?` stay within a name, `**` crosses folders.
"""

import os
import re
from pathlib import Path

import re2

_TOKENS = re.compile(r"\*\*/?|\*|\?|[^*?]+")


class PathPatterns:
    """Patterns, ready to match; false when there are none."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        expressions = [_expression(each) for each in patterns if each.strip("/ ")]
        self._compiled = re2.compile("(?s)" + "|".join(expressions)) if expressions else None

    def __bool__(self) -> bool:
        return self._compiled is not None

    def match(self, path: str) -> bool:
        """Tell whether an absolute path is meant."""
        return self._compiled is not None and self._compiled.search(_valid(path)) is not None

    def first_below(self, folder: Path, *, limit: int) -> str | None:
        """Return a path in the folder that is meant, or None.

        The folder itself where it is meant, or where it holds more than `limit` things.
        """
        if self.match(str(folder)):
            return str(folder)
        waiting, walked = [str(folder)], 0
        while waiting:
            try:
                entries = list(os.scandir(waiting.pop()))
            except OSError:
                continue
            walked += len(entries)
            if walked > limit:
                return str(folder)
            for entry in entries:
                if self.match(entry.path):
                    return entry.path
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
        return None


def _expression(pattern: str) -> str:
    text = _valid(pattern.strip().rstrip("/"))
    if text.startswith("~"):
        text = os.path.expanduser(text)  # noqa: PTH111 - Path would fail for an unknown user
    start = "^" if text.startswith("/") else "(?:^|/)"
    return start + "".join(map(_translated, _TOKENS.findall(text))) + "(?:/|$)"


def _translated(token: str) -> str:
    known = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return known.get(token) or re2.escape(token)


def _valid(path: str) -> str:
    """Return a path as RE2 takes it: what is no UTF-8 as U+FFFD."""
    return path.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
