"""The tool undo: takes back what calls changed in files, newest call first.

All files of a call are looked at before one is changed: a file that is not what the call left (a
person or a command changed it since) stops the whole call, unless `force` says otherwise. What
undo replaces is kept like any change: `redo` brings back what the newest undo took away.
"""

import contextlib
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError
from clawd.security.file_content import CHUNK_BYTES, FileState, Plan
from clawd.security.paths import acts_later
from clawd.security.risk import Assessment
from clawd.security.workspace import Workspace
from clawd.tools.base import (
    Arguments,
    ToolContext,
    ToolResult,
    Touched,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.builtin.changing import ChangingTool
from clawd.tools.builtin.deps import object_schema
from clawd.tools.builtin.file_text import shown_name
from clawd.tools.changes import Change, ChangeKeeper, ChangeLog, ChangeScope, Undoing
from clawd.tools.preview import Preview

MAX_STEPS = 100


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not what a change left, and why it is left alone."""

    path: str
    reason: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One change to take back, and what the file holds now."""

    change: Change
    now: FileState | None


class UndoTool(ChangingTool):
    """Takes changes of files back."""

    name: ClassVar[str] = "undo"
    reads: ClassVar[bool] = True
    writes: ClassVar[bool] = True
    short: ClassVar[str] = "Take back the last change that a tool made to files."
    description: ClassVar[str] = (
        "Takes back what file_write, file_edit, file_append and fs_ops changed: in this "
        "conversation, or (outside of one) in this workspace; the newest call first, `steps` "
        "calls (1 by default). "
        "A file that was changed since by somebody else is left alone, unless `force` is true. "
        "`redo` brings back what the newest undo took away. Commands of shell cannot be undone."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "steps": {"type": "integer", "description": "How many calls to take back."},
            "force": {"type": "boolean", "description": "Also where a file was changed since."},
            "redo": {"type": "boolean", "description": "Bring back what undo took away."},
        }
    )

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        here = context.workspace
        found = [self._located(here / path, context) for path in self._paths(arguments, context)]
        if not found:
            return Assessment(risk="low", reason="finds nothing to change back", outward=False)
        inside = [each.path.relative_to(here) for each in found if each.place == "inside"]
        later = any(acts_later(path, workspace=here) for path in inside)
        is_beyond = len(inside) < len(found)
        reason = "changes files back"
        if later:
            reason += ", also such as programs outside the sandbox run or obey later"
        is_outward = later or is_beyond
        return Assessment(risk="medium", reason=reason, outward=is_outward)

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        files = tuple(
            self._located(context.workspace / path, context).path
            for path in self._paths(arguments, context)
        )
        return Touched(reads=files, writes=files)

    def _paths(self, arguments: Arguments, context: ToolContext) -> list[str]:
        """Return what the call would take back now: relative paths, absolute ones outside."""
        calls = self._newest(arguments, context)
        return [change.file.path for call in calls for change in call]

    def _newest(self, arguments: Arguments, context: ToolContext) -> list[list[Change]]:
        if self._changes is None:
            return []
        return self._changes.peek(
            _scope(context),
            calls=min(max(arguments.get("steps", 1), 1), MAX_STEPS),
            reverting=bool(arguments.get("redo")),
        )

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        steps, log = arguments.get("steps", 1), self._changes
        if not 1 <= steps <= MAX_STEPS:
            return failed(f"steps is {steps}; it must be 1 to {MAX_STEPS}")
        if log is None:
            return failed("nothing is kept for undo here")
        scope, redo = _scope(context), bool(arguments.get("redo"))
        calls = await in_thread(lambda: log.newest(scope, calls=steps, reverting=redo))
        if not calls:
            return failed(_nothing(scope, redo=redo))
        done: list[str] = []
        for call in calls:
            try:
                self._check_places(call)
                done += await self._change(context, _Undoing(log, call, calls, arguments))
            except ClawError as error:
                return _broken_off(error, done)
        missing = steps - len(calls)
        if missing:
            done.append(f"(there was nothing more: {len(calls)} of {steps} steps)")
        return succeeded("\n".join(done), calls=len(calls))

    @override
    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        if self._changes is None:
            return None
        calls, log = self._newest(arguments, context), _KeptLog(self._changes)

        def rehearse() -> Preview:
            with self._rehearsal(context) as workspace:
                with contextlib.suppress(ClawError):  # the call is broken off there as well
                    for call in calls:
                        self._check_places(call)
                        keeper = ChangeKeeper(None, call[0].call)
                        _Undoing(log, call, calls, arguments)(workspace, keeper)
                return workspace.preview()

        return await in_thread(rehearse)

    def _check_places(self, call: list[Change]) -> None:
        """Refuse what lies outside the workspace where a person would be asked or it is denied."""
        if self._policy.autonomy == "full":
            return
        for change in call:
            if posixpath.isabs(change.file.path):
                raise InvalidRequestError(
                    f"{change.file.path} lies outside the workspace and is left as it is",
                    hint="Undo it where autonomy is full, as the change was made.",
                )


class _Undoing:
    """Takes one call back of those that shall be; runs in a thread."""

    def __init__(
        self,
        log: "ChangeLog | _KeptLog",
        call: list[Change],
        calls: list[list[Change]],
        arguments: Arguments,
    ) -> None:
        self._log = log
        self._call = call
        self._calls = tuple(each[0].call.call_id for each in calls)
        self._force = bool(arguments.get("force"))
        self._redo = bool(arguments.get("redo"))

    def __call__(self, workspace: Workspace, keeper: ChangeKeeper) -> list[str]:
        told: list[str] = []
        for step in self._planned(workspace):
            change = step.change
            if step.now is not None or change.file.before is not None:
                keeper.reverts = 0 if self._redo else change.number
                keeper.undoing = Undoing(number=change.number, calls=self._calls)
                told.append(self._take_back(workspace, step))
            self._log.drop(change.number)
        return told or [f"{_word(redo=self._redo)}: nothing had to be changed"]

    def _planned(self, workspace: Workspace) -> list[Step]:
        """Return what to do, or raise because of the files that are not what they should be."""
        steps: list[Step] = []
        conflicts: list[Conflict] = []
        expected: dict[str, FileState | None] = {}
        for change in self._call:
            path, before, after = change.file.path, change.file.before, change.file.after
            try:
                place = _place(workspace, change)
                now = expected[path] if path in expected else workspace.state(place)
            except ForbiddenError:
                raise  # not even by force
            except ClawError as error:
                conflicts.append(Conflict(path=path, reason=error.message))
                continue
            if _same(now, after) or self._force:
                steps.append(Step(change=change, now=now))
            elif now is None or not _same(now, before):
                # Else a crash came between the note and the act.
                conflicts.append(Conflict(path=path, reason=_since(now)))
            else:
                self._log.drop(change.number)
            expected[path] = before
        if conflicts:
            raise _refusal(conflicts, redo=self._redo)
        return steps

    def _take_back(self, workspace: Workspace, step: Step) -> str:
        change, word = step.change, _word(redo=self._redo)
        path, before = change.file.path, change.file.before
        if before is None:
            workspace.remove(_place(workspace, change), step.now, change.file.folders)
            return f"{word}: {shown_name(path)} removed"
        plan = Plan(
            mode=before.mode, result=before, replaces=step.now, must_be_new=step.now is None
        )
        with self._log.content(change) as file:
            workspace.restore(_place(workspace, change), _chunks(file), plan)
        return f"{word}: {shown_name(path)} restored ({before.size} B)"


class _KeptLog:
    """A log of which nothing is dropped, for a look at what undo would do."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log

    def drop(self, number: int) -> None:
        """Do nothing."""

    def content(self, change: Change) -> BinaryIO:
        """Open the content that a change replaced."""
        return self._log.content(change)


def _scope(context: ToolContext) -> ChangeScope:
    return ChangeScope(
        owner=context.principal.uid,
        workspace=str(context.workspace),
        conversation_id=context.conversation_id,
    )


def _place(workspace: Workspace, change: Change) -> Path:
    """Return where the file was changed; it is no text of a model any more."""
    return workspace.rules.workspace / change.file.path


def _same(one: FileState | None, other: FileState | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.holds(other)


def _since(now: FileState | None) -> str:
    if now is None:
        return "it is gone, moved or removed since"
    return "it was changed since by somebody else"


def _word(*, redo: bool) -> str:
    return "redone" if redo else "undone"


def _nothing(scope: ChangeScope, *, redo: bool) -> str:
    where = "this conversation" if scope.conversation_id else f"the workspace {scope.workspace}"
    what = "No undo can be taken back" if redo else "No change of a tool can be undone"
    return f"{what} in {where}; [limits] undo_mb and undo_days say how much is kept"


def _refusal(conflicts: list[Conflict], *, redo: bool) -> InvalidRequestError:
    shown = "; ".join(f"{shown_name(each.path)}: {each.reason}" for each in conflicts)
    flag = " --redo" if redo else ""
    return InvalidRequestError(
        f"nothing of this call is {_word(redo=redo)}. {shown}.",
        hint=f"`clawctl undo{flag} --force` does it all the same; what is there now is kept.",
    )


def _broken_off(error: ClawError, done: list[str]) -> ToolResult:
    hint = f" {error.hint}" if error.hint else ""
    return failed(error.message + hint, output="\n".join(done), calls=len(done))


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk
