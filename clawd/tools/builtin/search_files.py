"""The tools that search: grep in the contents of files, glob in their names, in linear time."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
import re2
from typing_extensions import override

from clawd.errors import ClawError, InvalidRequestError
from clawd.security.risk import Assessment
from clawd.security.workspace import Workspace
from clawd.tools.base import Arguments, ToolContext, ToolResult, in_thread, succeeded
from clawd.tools.builtin.deps import object_schema
from clawd.tools.builtin.file_text import SKIPPED, is_text
from clawd.tools.builtin.file_tools import LookingTool, Watch, has_text
from clawd.tools.session_files import SessionFolder
from clawd.wire.references import looks_like_reference, no_path
from clawd.wire.safe_text import shown_name

RESULTS_DEFAULT, RESULTS_LIMIT = 100, 1000
OTHER_CASE = "[in other upper or lower case than asked for]"
NOTHING = "no matches"
_MAX_FILE_BYTES = 8 << 20
_MAX_LINE = 300
_FOLDER = {"type": "string", "default": ".", "description": "Folder to search."}
MAX_PATTERN = 1000


class GrepTool(LookingTool):
    """Searches text."""

    name: ClassVar[str] = "grep"
    short: ClassVar[str] = "Search files for a regular expression."
    description: ClassVar[str] = (
        "Answers `path:line:text` for each line that matches the RE2 pattern (no look-around, no "
        "back references). `path` is a folder or a file; `glob` chooses files (`*.py`, "
        f"`src/**/*.js`). At most `max_results` lines, by default {RESULTS_DEFAULT}. Binary files, "
        "files over 8 MiB and .git are left out. What stands there in upper or lower case only is "
        "found as well where nothing else is, unless `ignore_case` is false."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "pattern": {"type": "string", "description": "Regular expression."},
            "path": {"type": "string", "default": ".", "description": "Folder or file."},
            "glob": {"type": "string", "description": "Only files like this, e.g. *.py."},
            "ignore_case": {"type": "boolean", "description": "Upper case equals lower case."},
            "max_results": {"type": "integer", "description": "How many lines at most."},
        },
        "pattern",
    )

    takes_session_files: ClassVar[bool] = True

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._assess(arguments.get("path") or ".", context, "low", "searches files")

    @override
    async def act_on_session(self, arguments: Arguments, files: SessionFolder) -> ToolResult:
        file, data = await files.read(arguments["path"])
        data = data if has_text(file, data) else b""
        watch = Watch()
        try:
            return await in_thread(lambda: _grep_one(arguments, data, watch).result())
        finally:
            watch.cancelled.set()

    @override
    def act(self, arguments: Arguments, workspace: Workspace, watch: Watch) -> ToolResult:
        return _grep(arguments, workspace, _limit(arguments), watch).result()


class GlobTool(LookingTool):
    """Finds files."""

    name: ClassVar[str] = "glob"
    short: ClassVar[str] = "Find files by name, such as src/**/*.js."
    description: ClassVar[str] = (
        "Answers the paths that match, one a line, from the workspace; folders end with a slash. "
        "`*` and `?` stay within a name, `**` crosses folders, `[ab]` and `{a,b}` are choices. A "
        "pattern without a slash finds names in every folder. .git is left out."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {"pattern": {"type": "string", "description": "Glob pattern."}, "path": _FOLDER}, "pattern"
    )

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._assess(arguments.get("path") or ".", context, "low", "searches names")

    @override
    def act(self, arguments: Arguments, workspace: Workspace, watch: Watch) -> ToolResult:
        return _glob(arguments, workspace, watch).result()


class _Matcher(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object:
        """Return a match, or None."""


class _Found(msgspec.Struct, kw_only=True):
    lines: list[str] = []
    stopped: str = ""
    limit: int = RESULTS_LIMIT
    note: str = ""

    def take(
        self, shown: str, lines: Iterator[tuple[int, str]], pattern: _Matcher, watch: Watch
    ) -> bool:
        """Take the lines of a file that match; return whether there is room for more."""
        for number, line in lines:
            if number % 1000 == 0 and watch.is_over():
                break
            if pattern.search(line):
                if len(self.lines) == self.limit:
                    self.stopped = f"only {self.limit} lines are shown"
                    return False
                self.lines.append(f"{shown_name(shown)}:{number}:{line[:_MAX_LINE]}")
        return True

    def ended(self, watch: Watch) -> "_Found":
        """Say so when time ended it."""
        if watch.is_over() and not self.stopped:
            self.stopped = f"the search was ended after {watch.limit_s:g} s"
        return self

    def result(self) -> ToolResult:
        lines = self.lines or ([] if self.stopped else [NOTHING])
        shown = [*lines, f"[more: {self.stopped}]"] if self.stopped else lines
        shown = [*shown, self.note] if self.note and self.lines else shown
        return succeeded("\n".join(shown), count=len(self.lines), truncated=bool(self.stopped))


def _limit(arguments: Arguments) -> int:
    wanted: int = arguments.get("max_results", RESULTS_DEFAULT)
    return max(1, min(wanted, RESULTS_LIMIT))


def _grep(arguments: Arguments, workspace: Workspace, limit: int, watch: Watch) -> _Found:
    found = _Found(lines=[], limit=limit)
    for pattern, found.note in _patterns(arguments):
        for shown, path in _files(workspace, arguments, watch):
            if not found.take(shown, _lines(workspace, path), pattern, watch):
                break
        if found.lines:
            break
    return found.ended(watch)


def _grep_one(arguments: Arguments, data: bytes, watch: Watch) -> _Found:
    """Search the content of one session file."""
    found = _Found(lines=[], limit=_limit(arguments))
    for pattern, found.note in _patterns(arguments):
        lines = enumerate((_valid_text(line) for line in io.BytesIO(data)), 1)
        found.take(arguments["path"].strip(), lines, pattern, watch)
        if found.lines:
            break
    return found.ended(watch)


def _valid_text(line: bytes) -> str:
    return line.rstrip(b"\n").decode("utf-8", "replace")


def _patterns(arguments: Arguments) -> Iterator[tuple[_Matcher, str]]:
    """Yield what to search for until something is found, each with what is said of that."""
    ignores = arguments.get("ignore_case")
    yield _compile_pattern(arguments["pattern"], ignore_case=bool(ignores)), ""
    if ignores is None:
        yield _compile_pattern(arguments["pattern"], ignore_case=True), OTHER_CASE


def _glob(arguments: Arguments, workspace: Workspace, watch: Watch) -> _Found:
    if looks_like_reference(arguments["pattern"]):
        raise no_path(arguments["pattern"])
    matcher = glob_matcher(arguments["pattern"])
    folder = arguments.get("path") or "."
    only_folders = arguments["pattern"].rstrip().endswith("/")
    found = _Found(lines=[])
    for name, entry in workspace.walk(folder, skip=SKIPPED):
        if watch.is_over():
            found.stopped = f"the search was ended after {watch.limit_s:g} s"
            break
        if (only_folders and entry.kind != "folder") or not matcher.search(_valid(name)):
            continue
        if len(found.lines) == RESULTS_LIMIT:
            found.stopped = f"only {RESULTS_LIMIT} paths are shown"
            break
        shown = shown_name(_joined(folder, name))
        found.lines.append(shown + "/" if entry.kind == "folder" else shown)
    return found


def _files(workspace: Workspace, arguments: Arguments, watch: Watch) -> Iterator[tuple[str, Path]]:
    """Yield the files to look into: what to call each, and where it is."""
    path = arguments.get("path") or "."
    real = workspace.place_of(path)
    if workspace.stat(path).kind != "folder":
        yield path, real
        return
    matcher = glob_matcher(arguments["glob"]) if arguments.get("glob") else None
    for name, entry in workspace.walk(path, skip=SKIPPED):
        if watch.is_over():
            return
        is_small_file = entry.kind == "file" and entry.size <= _MAX_FILE_BYTES
        if is_small_file and (matcher is None or matcher.search(_valid(name))):
            yield _joined(path, name), real / name


def _lines(workspace: Workspace, path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a text file; nothing of any other."""
    try:
        with workspace.open_read(path) as file:
            data = file.read(_MAX_FILE_BYTES)
    except ClawError:
        return  # gone, unreadable or forbidden meanwhile
    if is_text(data[:8192]):
        yield from enumerate(data.decode("utf-8", "replace").split("\n"), 1)


def _valid(name: str) -> str:
    """Return a name as RE2 takes it: bytes that are no UTF-8 as U+FFFD."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _joined(folder: str, name: str) -> str:
    prefix = folder.strip().rstrip("/").removeprefix("./")
    return name if prefix in {"", "."} else f"{prefix}/{name}"


def glob_matcher(pattern: str) -> _Matcher:
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
    return _compile_pattern(f"(?s)\\A{body}\\z", shown=pattern)


def _compile_pattern(pattern: str, *, ignore_case: bool = False, shown: str = "") -> _Matcher:
    """Compile a regular expression of RE2.

    Raises:
        InvalidRequestError: it is none; look-around and back references do not exist.
    """
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    options.max_mem = 16 << 20
    try:
        compiled: _Matcher = re2.compile(pattern, options)
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
