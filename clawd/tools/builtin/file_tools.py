"""What the tools on files share: how they are judged, look and change, and use session files.

A tool does its whole act on an open workspace, in a thread, by itself or in a batch; what changes a
file has it kept first. What is shown of a session file always fits into what the model may be given
at once, and says where to go on; else the rest of long output would be cut again, and kept again.
"""

import asyncio
import contextlib
import io
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, InvalidRequestError, NotFoundError
from clawd.security.approval_rules import file_need
from clawd.security.file_content import Keeper
from clawd.security.paths import Location, PathRules, acts_later, classify, path_rules
from clawd.security.risk import Assessment, Risk, raised
from clawd.security.workspace import Workspace
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Touched,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.builtin import file_text
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.changes import ChangeKeeper, call_facts
from clawd.tools.preview import Preview, RehearsedWorkspace, UnseenFileError
from clawd.tools.session_files import SessionFile, SessionFolder, line_of
from clawd.wire.pictures import looks_like_picture
from clawd.wire.references import SCHEME, looks_like_reference, name_in, no_path, reference

SEARCH_LIMIT_S = 10.0
# A thread that hangs in the file system must not hold a cancelled call for ever.
_END_S = 5.0
_T = TypeVar("_T")
IN_A_COPY = "it changes a copy, and what comes of that is asked about when it is merged"
NONE = "(no session files)"
EMPTY = "(empty)"
# The last line, which says what was left out, and what a clip marks.
_TAIL_BYTES = 256
_SNIFFED_BYTES = 8192


@dataclass(eq=False)
class Watch:
    """Says when an act must end: its time is up, or nobody waits for it any more."""

    limit_s: float = SEARCH_LIMIT_S
    cancelled: threading.Event = field(default_factory=threading.Event)
    _began: float = field(default_factory=time.monotonic, init=False)

    @property
    def left_s(self) -> float:
        """How much of the time is left."""
        return max(self._began + self.limit_s - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        """Whether it must end."""
        return self.cancelled.is_set() or time.monotonic() > self._began + self.limit_s


class FileTool(Tool):
    """A tool that touches the file or folder `path` of the workspace.

    Attributes:
        reads: whether its result may hold text that stands there, or names of files.
        writes: whether it changes it.
        takes_session_files: whether `path` may be the reference of a session file as well.
        shows: whether a model knows the file after it, and may replace it.
    """

    outward: ClassVar[bool | None] = False
    reads: ClassVar[bool] = True
    writes: ClassVar[bool] = False
    takes_session_files: ClassVar[bool] = False
    shows: ClassVar[bool] = False

    def __init__(self, deps: BuiltinDeps) -> None:
        self._policy = deps.policy
        self._home = deps.home
        self._sessions = deps.sessions
        self._copies = deps.copies
        self._umask = deps.sandbox.umask
        self.timeout_s = deps.tool_timeout_s

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        given = arguments.get("path") or "."
        if looks_like_reference(given):
            return Touched()  # what a conversation holds stays in it
        path = (self._located(given, context).path,)
        return Touched(reads=path if self.reads else (), writes=path if self.writes else ())

    def note_seen(self, path: str, context: ToolContext, result: ToolResult) -> None:
        """Keep that the model knows a file now, where it does."""
        if context.seen is not None and self.shows and result.success:
            context.seen.add(self._located(path, context).path)

    def check_seen(self, path: str, context: ToolContext) -> None:
        """Refuse that a model replaces a file which holds something that it has not seen.

        Raises:
            UnseenFileError: it has not.
            ClawError: the file cannot be looked at.
        """
        if context.seen is None or self._located(path, context).path in context.seen:
            return
        with self._rehearsal(context) as workspace:
            if not workspace.exists(path):
                return
            entry = workspace.stat(path)
        if entry.kind == "file" and entry.size:
            append, read = context.tools.of("file_append"), context.tools.of("file_read")
            advice = f"{append} adds to it, {read} comes before replacing it"
            raise UnseenFileError(f"{path} is there already and was not read: {advice}")

    def _rules(self, context: ToolContext) -> PathRules:
        workspace, copies = context.workspace, self._copies
        original = copies.original(workspace) if copies and copies.originals else None
        return path_rules(self._policy, workspace=workspace, home=self._home, original=original)

    def _located(self, path: str | Path, context: ToolContext) -> Location:
        """Return where a path leads: as the call was first judged, if it is one that is run."""
        rules = self._rules(context)
        return classify(path, rules) if context.held is None else context.held.locate(path, rules)

    def _opened(self, context: ToolContext, keeper: Keeper | None = None) -> Workspace:
        """Return the workspace of a call, to be entered in the thread that acts."""
        return Workspace(self._rules(context), keeper, held=context.held, umask=self._umask)

    def _rehearsal(self, context: ToolContext) -> RehearsedWorkspace:
        """Return a workspace like that of the call, in which nothing is changed."""
        return RehearsedWorkspace(self._rules(context), held=context.held)

    def _assess(
        self, path: str | Path, context: ToolContext, risk: Risk, reason: str
    ) -> Assessment:
        """Assess an act on a path that has this risk inside of the workspace."""
        takes = self.takes_session_files and isinstance(path, str)
        if takes and looks_like_reference(str(path)):
            return Assessment(risk="low", reason=f"{reason} of the conversation", outward=False)
        try:
            location = self._located(path, context)
        except ClawError as error:
            return Assessment(risk="high", reason=reason, blocked=error.message)
        if location.place == "forbidden":
            return Assessment(risk="high", reason=reason, blocked=location.reason)
        if location.place == "inside":
            return self._assess_inside(location.path, context, risk, reason)
        rules = self._rules(context)
        if rules.workspace_only:
            leave = "workspace_only = false in [security] lets file tools leave it"
            return Assessment(
                risk="high",
                reason=reason,
                blocked="path is outside the workspace",
                allow_hint=leave if rules.original is None else "",
            )
        reason = f"{reason} outside the workspace"
        return Assessment(risk=raised(risk), reason=reason, outward=self.writes)

    def _assess_inside(
        self, path: Path, context: ToolContext, risk: Risk, reason: str
    ) -> Assessment:
        if not self.writes:
            return Assessment(risk=risk, reason=reason, outward=False)
        named, original = path.relative_to(context.workspace), self._rules(context).original
        later = acts_later(named, workspace=original or context.workspace)
        if later:
            reason += ", which programs outside the sandbox run or obey later"
        need = file_need(named, risk=risk, is_guarded=later)
        return Assessment(
            risk=risk,
            reason=reason,
            outward=later,
            edits=not later,
            needs=(need,),
            preapproved=IN_A_COPY if original is not None and not later else "",
        )


class ActingTool(FileTool):
    """A tool that does all it does in one act on an open workspace."""

    @abstractmethod
    def act(self, arguments: Arguments, workspace: Workspace, watch: Watch) -> ToolResult:
        """Do it; called in a thread. What takes long asks the watch whether to go on.

        Raises:
            ClawError: it cannot be done.
        """

    async def act_on_session(
        self,
        arguments: Arguments,
        files: SessionFolder,  # noqa: ARG002 - for those that take them
    ) -> ToolResult:
        """Do it on session files; a tool that does not take them refuses.

        Raises:
            ClawError: it cannot be done.
        """
        raise no_path(str(arguments["path"]))

    async def _on_session(self, arguments: Arguments, context: ToolContext) -> ToolResult | None:
        """Return what came of a call on session files; None when it is on others."""
        if self.takes_session_files and looks_like_reference(arguments.get("path") or ""):
            return await self.act_on_session(arguments, SessionFolder(self._sessions, context))
        return None


class LookingTool(ActingTool):
    """A tool that looks at files and changes none."""

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        if (found := await self._on_session(arguments, context)) is not None:
            return found
        watch = Watch()

        def look() -> ToolResult:
            with self._opened(context) as workspace:
                try:
                    result = self.act(arguments, workspace, watch)
                    self.note_seen(arguments.get("path") or ".", context, result)
                    return result
                except NotFoundError as error:
                    near = file_text.nearest_names(workspace, arguments.get("path") or ".")
                    return failed(f"{error.message}{near or '; file_list shows what is there'}")

        try:
            return await in_thread(look)
        finally:
            watch.cancelled.set()


class ChangingTool(FileTool):
    """A tool that changes files of the workspace."""

    def __init__(self, deps: BuiltinDeps) -> None:
        super().__init__(deps)
        self._changes = deps.changes

    async def _change(
        self, context: ToolContext, act: Callable[[Workspace, ChangeKeeper], _T]
    ) -> _T:
        """Run the act in a thread.

        On cancel nothing that has not begun is begun, and what has begun is waited for.
        """
        # A copy is gone with its helper, and nothing of it is taken back.
        log = self._changes if self._rules(context).original is None else None
        keeper = ChangeKeeper(log, call_facts(context, self.name), context.preview)

        def run() -> _T:
            with self._opened(context, keeper) as workspace:
                return act(workspace, keeper)

        work = asyncio.get_running_loop().run_in_executor(None, run)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            keeper.is_cancelled.set()
            await asyncio.wait([work], timeout=_END_S)
            if work.done() and not work.cancelled():
                work.exception()  # seen; the cancellation is what is told
            raise


class WritingTool(ChangingTool, ActingTool):
    """A tool that changes files in one act."""

    @override
    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        if looks_like_reference(arguments["path"]):
            return None  # what a conversation holds stays in it

        def rehearse() -> Preview:
            with self._rehearsal(context) as workspace:
                with contextlib.suppress(file_text.EditError):
                    self.act(arguments, workspace, Watch())
                return workspace.preview()

        return await in_thread(rehearse)

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        if (done := await self._on_session(arguments, context)) is not None:
            return done
        result = await self._change(
            context, lambda workspace, _: self.act(arguments, workspace, Watch())
        )
        self.note_seen(arguments["path"], context, result)
        return result


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Numbered lines, and how to go on after them; "" at the end of the file."""

    lines: list[str]
    what: str
    further: str = ""


async def list_of(arguments: Arguments, files: SessionFolder) -> ToolResult:
    """List the session files, the last changed first."""
    if name_in(arguments["path"]):
        raise InvalidRequestError(
            f'file_list lists all session files at once, as in {{"path": "{SCHEME}"}}'
        )
    found = await files.list()
    return succeeded("\n".join(map(line_of, found)) or NONE, count=len(found))


async def read_from(arguments: Arguments, files: SessionFolder) -> ToolResult:
    """Read lines or bytes of a session file, as file_read reads any file."""
    file, data = await files.read(arguments["path"])
    room = max(files.room_bytes - _TAIL_BYTES, _TAIL_BYTES)
    return await in_thread(lambda: _read(arguments, file, data, room))


async def write_to(arguments: Arguments, files: SessionFolder) -> ToolResult:
    """Create or replace a session file."""
    data = arguments["content"].encode("utf-8", "replace")
    file = await files.write(arguments["path"], data, adds=False)
    return succeeded(f"wrote {reference(file.name)} ({file.size} B)", bytes=file.size)


async def append_to(arguments: Arguments, files: SessionFolder) -> ToolResult:
    """Add to a session file, creating it when it is missing."""
    data = arguments["content"].encode("utf-8", "replace")
    with contextlib.suppress(NotFoundError):
        data = file_text.on_own_line(data, (await files.read(arguments["path"]))[1])
    file = await files.write(arguments["path"], data, adds=True)
    told = f"added {len(data)} bytes to {reference(file.name)} ({file.size} B in all)"
    return succeeded(told, bytes=len(data))


def reads_lines(arguments: Arguments) -> bool:
    """Return whether lines are asked for, not bytes."""
    asks_bytes = not {"offset", "max_bytes"}.isdisjoint(arguments)
    return "start_line" in arguments or ("max_lines" in arguments and not asks_bytes)


def pictured(path: str, data: bytes) -> ToolResult:
    """Return the result of reading a picture."""
    result = succeeded(f"{path} is a picture of {len(data)} bytes", size=len(data))
    return msgspec.structs.replace(result, images=(data,))


def has_text(file: SessionFile, data: bytes) -> bool:
    """Return whether the text of a session file can be displayed: what was kept is text."""
    return file.is_kept or file_text.is_text(data[:_SNIFFED_BYTES])


def _read(arguments: Arguments, file: SessionFile, data: bytes, room: int) -> ToolResult:
    path, size = reference(file.name), len(data)
    facts: dict[str, Any] = {"size": size, "mime": file.mime}
    if looks_like_picture(data):
        return pictured(path, data)
    if not has_text(file, data):
        return failed(f"{path} is no text: {file.mime}, {size} bytes", **facts)
    if not data:
        return succeeded(EMPTY, **facts)
    if reads_lines(arguments):
        shown = _lines(data, arguments.get("start_line", 1), arguments.get("max_lines"), room)
    else:
        shown = _bytes(data, arguments.get("offset", 0), arguments.get("max_bytes"), room)
    if not shown.lines:
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        return failed(f"{path} has nothing there; it has {lines} lines and {size} bytes", **facts)
    if not shown.what:
        return succeeded("\n".join(shown.lines), truncated=False, **facts)
    tail = f"({shown.what}{'; go on with ' if shown.further else ''}{shown.further})"
    return succeeded("\n".join([*shown.lines, tail]), truncated=True, **facts)


def _lines(data: bytes, start_line: int, max_lines: int | None, room: int) -> _Shown:
    """Return lines from one on, as many as were asked for and as there is room for."""
    excerpt = file_text.read_lines(
        io.BytesIO(data), start_line, max_lines or file_text.LINES_DEFAULT
    )
    first = excerpt.first_line
    lines: list[str] = []
    for number, line in enumerate(excerpt.lines, first):
        lines.append(f"{number}|{line}")
        room -= len(lines[-1].encode()) + 1
        if room < 0:
            lines.pop()
            break
    if excerpt.lines and not lines:
        offset = _offset_of(data, first)
        return _Shown(
            lines=[f"{first}|"],
            what=f"line {first} is too long to be shown whole",
            further=f"offset={offset}",
        )
    last = first + len(lines) - 1
    if not excerpt.is_partial and len(lines) == len(excerpt.lines):
        return _Shown(lines=lines, what="")
    more = not excerpt.total_lines or last < excerpt.total_lines
    return _Shown(
        lines=lines,
        what=f"lines {first} to {last} of {excerpt.total_lines}; {len(data)} bytes",
        further=f"start_line={last + 1}" if more else "",
    )


def _bytes(data: bytes, offset: int, max_bytes: int | None, room: int) -> _Shown:
    """Return bytes from one on, as numbered lines; no character is cut."""
    start, size = max(0, offset), len(data)
    count = min(max(1, max_bytes or file_text.BYTES_DEFAULT), file_text.BYTES_LIMIT, room)
    before = data.count(b"\n", 0, start)
    while True:
        end = _end_of_character(data, start, start + count)
        lines = _numbered(data[start:end], before + 1)
        told = sum(len(line.encode()) + 1 for line in lines)
        if told <= room or count == 1:
            break
        count = max(1, min(count - 1, count * room // told))
    if start == 0 and end == size:
        return _Shown(lines=lines, what="")
    return _Shown(
        lines=lines,
        what=f"bytes {start} to {end} of {size}",
        further=f"offset={end}" if end < size else "",
    )


def _numbered(chunk: bytes, first: int) -> list[str]:
    lines = chunk.decode("utf-8", "replace").split("\n")
    if not lines[-1]:
        lines.pop()
    return [f"{number}|{line.removesuffix(chr(13))}" for number, line in enumerate(lines, first)]


def _end_of_character(data: bytes, start: int, end: int) -> int:
    """Return the end, moved back to where a character begins, but for less than one."""
    end = at = min(end, len(data))
    while at < len(data) and at > start and data[at] & 0xC0 == 0x80:
        at -= 1
    return at if at > start else end


def _offset_of(data: bytes, line: int) -> int:
    offset = 0
    for _ in range(line - 1):
        offset = data.index(b"\n", offset) + 1
    return offset
