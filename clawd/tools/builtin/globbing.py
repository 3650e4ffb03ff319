"""Glob patterns as regular expressions that take linear time."""

from typing import Protocol

import re2

from clawd.errors import InvalidRequestError

MAX_PATTERN = 1000


class Matcher(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object:
        """Return a match, or None."""


def glob_matcher(pattern: str) -> Matcher:
    r"""Compile a glob that is matched against paths relative to the folder searched.

    `*` and `?` stay within a name, `**` crosses folders, `[ab]`, `[!ab]` and `{a,b}` are choices.
    A pattern without a slash matches names in every folder.

    Raises:
        InvalidRequestError: it is no glob.
    """
    text = pattern.strip().removeprefix("./")
    if not text or len(text) > MAX_PATTERN:
        raise InvalidRequestError(f"a glob has 1 to {MAX_PATTERN} characters")
    body = _translated(text.rstrip("/"))
    if "/" not in text.rstrip("/"):
        body = "(?:.*/)?" + body
    return compile_pattern(f"(?s)\\A{body}\\z", shown=pattern)


def compile_pattern(pattern: str, *, ignore_case: bool = False, shown: str = "") -> Matcher:
    """Compile a regular expression of RE2.

    Raises:
        InvalidRequestError: it is none; look-around and back references do not exist.
    """
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    options.max_mem = 16 << 20
    try:
        compiled: Matcher = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise InvalidRequestError(
            f"{shown or pattern!r} is no pattern: {reason}",
            hint="RE2 is used: no look-around, no back references.",
        ) from error
    return compiled


def _translated(glob: str) -> str:
    parts: list[str] = []
    at, braces = 0, 0
    while at < len(glob):
        rest = glob[at:]
        if rest.startswith("**/"):
            parts.append("(?:.*/)?")
            at += 3
            continue
        if rest.startswith("**"):
            parts.append(".*")
            at += 2
            continue
        end = glob.find("]", at + 2) if glob[at] == "[" else -1
        if end > 0:
            parts.append(_choice(glob[at + 1 : end]))
            at = end + 1
            continue
        if glob[at] in "{}":
            braces += 1 if glob[at] == "{" else -1
        parts.append(_sign(glob[at], in_braces=braces > 0))
        at += 1
    return "".join(parts)


def _sign(sign: str, *, in_braces: bool) -> str:
    signs = {"*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}
    if sign == "," and in_braces:
        return "|"
    return signs.get(sign) or re2.escape(sign)


def _choice(inside: str) -> str:
    negated = inside[:1] in {"!", "^"}
    body = inside[1:] if negated else inside
    safe = "".join(c if c == "-" or c.isalnum() else re2.escape(c) for c in body)
    return f"[{'^/' if negated else ''}{safe}]"
