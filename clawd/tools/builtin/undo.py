"""The tool undo: takes back what calls changed in files, newest call first.

All files of a call are looked at before one is changed: a file that is not what the call left (a
person changed it since) stops the whole call, unless `force` says otherwise. What undo replaces is
kept like any change: `redo` brings back what the newest undo took away.

What a command changed is taken back all at once, links, folders and permissions as well, by paths
on which no link is followed (`security.snapshot`); what a file tool changed, file by file.
"""

import contextlib
import posixpath
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError
from clawd.security.file_content import CHUNK_BYTES, FileChange, FileState, ReplacementRules
from clawd.security.paths import acts_later
from clawd.security.risk import Assessment
from clawd.security.snapshot import Tree, TreeStep
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
from clawd.tools.builtin.deps import object_schema
from clawd.tools.builtin.file_tools import ChangingTool
from clawd.tools.changes import NEWEST, Change, ChangeKeeper, ChangeLog, ChangeScope, Undoing, Which
from clawd.tools.preview import Preview, RehearsedWorkspace
from clawd.wire.safe_text import shown_name

MAX_STEPS = 100
# How many files and folders are named, of one command.
MAX_TOLD = 20


# The rest is for people, who go by receipts and messages.
_OFFERED: dict[str, object] = {
    "steps": {"type": "integer", "description": "How many calls to take back."},
    "force": {"type": "boolean", "description": "Also where a file was changed since."},
    "redo": {"type": "boolean", "description": "Bring back what undo took away."},
}


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not what a change left, and why it is left alone."""

    path: str
    reason: str


class UndoStep(msgspec.Struct, frozen=True, kw_only=True):
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
        "Takes back what file tools and commands of shell changed, moved and deleted in the "
        "workspace: in this conversation, or (outside of one) whoever asked for it; the newest "
        "call first, `steps` calls (1 by default). "
        "A file that was changed since by somebody else is left alone, unless `force` is true. "
        "`redo` brings back what the newest undo took away. `call` names one call by its receipt, "
        "`turn` means all of the newest turn, `since` all after a message; `preview` only tells."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            **_OFFERED,
            "call": {"type": "string", "description": "Only the call with this receipt."},
            "turn": {"type": "boolean", "description": "All calls of the newest turn."},
            "since": {"type": "integer", "description": "All calls after this message."},
            "preview": {"type": "boolean", "description": "Only tell what would be done."},
        }
    )
    offered_parameters: ClassVar[dict[str, Any] | None] = object_schema(_OFFERED)

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        here, calls = context.workspace, self._wanted(arguments, context)
        if not any(calls):
            return Assessment(risk="low", reason="finds nothing to change back", outward=False)
        if arguments.get("preview"):
            return Assessment(risk="low", reason="tells what could be changed back", outward=False)
        inside = [Path(change.file.name) for change in _of_many(calls)]
        for path in self._paths(calls):
            found = self._located(here / path, context)
            inside += [found.path.relative_to(here)] if found.place == "inside" else []
        later = any(acts_later(path, workspace=here) for path in inside)
        is_beyond = len(inside) < sum(map(len, calls))
        reason = "changes files back"
        if later:
            reason += ", also such as programs outside the sandbox run or obey later"
        is_outward = later or is_beyond
        return Assessment(risk="medium", reason=reason, outward=is_outward, edits=not is_outward)

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        calls = self._wanted(arguments, context)
        files = tuple(
            self._located(context.workspace / path, context).path for path in self._paths(calls)
        )
        if _of_many(calls):
            files = (context.workspace, *files)
        return Touched(reads=files, writes=() if arguments.get("preview") else files)

    def _paths(self, calls: list[list[Change]]) -> list[str]:
        """Return what file tools changed: relative paths, absolute ones outside.

        What commands changed is opened by its name alone, so it needs not be held.
        """
        return [each.file.path for call in calls for each in call if not each.is_of_many]

    def _wanted(self, arguments: Arguments, context: ToolContext) -> list[list[Change]]:
        """Return what the call would take back now; nothing where it would be refused."""
        if self._changes is None:
            return []
        with contextlib.suppress(InvalidRequestError):
            return self._changes.peek(
                _scope(context),
                calls=min(max(arguments.get("steps", 1), 1), MAX_STEPS),
                reverting=bool(arguments.get("redo")),
                which=_which(arguments),
            )
        return []

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        steps, log = arguments.get("steps", 1), self._changes
        if not 1 <= steps <= MAX_STEPS:
            return failed(f"steps is {steps}; it must be 1 to {MAX_STEPS}")
        if log is None:
            return failed("nothing is kept for undo here")
        scope, redo = _scope(context), bool(arguments.get("redo"))
        which = _which(arguments)
        calls = await in_thread(lambda: log.newest(scope, calls=steps, reverting=redo, which=which))
        if not calls:
            return _none(scope, which, redo=redo)
        if arguments.get("preview"):
            return succeeded(_told_ahead(await self._rehearsed(arguments, context, calls)))
        done: list[str] = []
        for call in calls:
            try:
                self._check_places(call)
                done += await self._change(context, _Undoing(log, call, calls, arguments))
            except ClawError as error:
                return _broken_off(error, done)
        missing = steps - len(calls)
        if missing > 0 and which == NEWEST:
            done.append(f"(there was nothing more: {len(calls)} of {steps} steps)")
        return succeeded("\n".join(done), calls=len(calls))

    @override
    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        if self._changes is None or arguments.get("preview"):
            return None
        return await self._rehearsed(arguments, context, self._wanted(arguments, context))

    async def _rehearsed(
        self, arguments: Arguments, context: ToolContext, calls: list[list[Change]]
    ) -> Preview:
        assert self._changes is not None
        log = _KeptLog(self._changes)

        def rehearse() -> Preview:
            with self._rehearsal(context) as workspace:
                with contextlib.suppress(ClawError):  # the call is broken off there as well
                    for call in calls:
                        self._check_places(call)
                        keeper = ChangeKeeper(None, call[0].call)
                        _Undoing(log, call, calls, arguments)(workspace, keeper)
                # What stood there before is no loss, and it can be had back in the same way.
                return msgspec.structs.replace(workspace.preview(), losses=())

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
        # All are looked at before the first is changed, whatever made them.
        for is_of_many, changes in groupby(self._call, lambda each: each.is_of_many):
            part = list(changes)
            if is_of_many:
                undoing = Undoing(calls=self._calls)
                many = _Many(self._log, part, undoing, redo=self._redo, force=self._force)
                told += many(workspace, keeper)
                continue
            for step in self._planned(workspace, part):
                change = step.change
                if step.now is not None or change.file.before is not None:
                    keeper.reverts = 0 if self._redo else change.number
                    keeper.undoing = Undoing(number=change.number, calls=self._calls)
                    told.append(self._take_back(workspace, step))
                self._log.drop(change.number)
        return told or [f"{_word(redo=self._redo)}: nothing had to be changed"]

    def _planned(self, workspace: Workspace, changes: list[Change]) -> list[UndoStep]:
        """Return what to do, or raise because of the files that are not what they should be."""
        steps: list[UndoStep] = []
        conflicts: list[Conflict] = []
        expected: dict[str, FileState | None] = {}
        for change in changes:
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
                steps.append(UndoStep(change=change, now=now))
            elif now is None or not _same(now, before):
                # Else a crash came between the note and the act.
                conflicts.append(Conflict(path=path, reason=_since(now)))
            else:
                self._log.drop(change.number)
            expected[path] = before
        if conflicts:
            raise _refusal(conflicts, redo=self._redo)
        return steps

    def _take_back(self, workspace: Workspace, step: UndoStep) -> str:
        change, word = step.change, _word(redo=self._redo)
        path, before = change.file.path, change.file.before
        if before is None:
            workspace.remove(_place(workspace, change), step.now, change.file.folders)
            return f"{word}: {shown_name(path)} removed"
        plan = ReplacementRules(
            mode=before.mode, result=before, replaces=step.now, must_be_new=step.now is None
        )
        with self._log.content(change) as file:
            workspace.restore(_place(workspace, change), _chunks(file), plan)
        return f"{word}: {shown_name(path)} restored ({before.size} B)"


class _Many:
    """Takes back what a command changed: files, links, folders and permissions, all at once.

    Args:
        log: where the changes are kept, and what undo replaces will be.
        changes: those of one command, or of one undo of commands; the newest first.
        undoing: ids of all calls that are taken back.
        redo: bring back what undo took away.
        force: also what was changed since.
    """

    def __init__(
        self,
        log: "ChangeLog | _KeptLog",
        changes: list[Change],
        undoing: Undoing,
        *,
        redo: bool,
        force: bool,
    ) -> None:
        self._log = log
        self._changes = changes
        self._undoing = undoing
        self._redo = redo
        self._force = force
        self._by_path: dict[str, Change] = {}

    def __call__(self, workspace: Workspace, keeper: ChangeKeeper) -> list[str]:
        rules, log = workspace.rules, self._log
        hidden = {str(each) for each in (*rules.forbidden, *filter(None, [rules.home]))}
        with Tree(rules.workspace, left_out=frozenset(hidden)) as tree:
            if isinstance(workspace, RehearsedWorkspace):
                steps, _lost = self._planned(lambda path: workspace.supposed(path, tree))
                for step in steps:
                    workspace.suppose(step, tree, self._content)
                return []
            assert not isinstance(log, _KeptLog)
            steps, lost = self._planned(lambda path: tree.state(path, log.keep_content))
            changes = [FileChange.of(each.path, each.now, each.target) for each in steps]
            for change in changes:
                keeper.check_shown(change)
            number = 0 if self._redo else self._changes[0].number
            numbers = log.keep_all(keeper.call, changes, reverts=number, undoing=self._undoing)
            problems = tree.restore(steps, self._content)
        failures = {each.path for each in steps if each.path in problems}
        undone = [each.number for each in self._changes if each.file.name not in failures]
        pairs = zip(numbers, steps, strict=True)
        log.drop(*undone, *(number for number, step in pairs if step.path in failures))
        return self._told(steps, lost, problems)

    def _planned(
        self, state: Callable[[str], FileState | None]
    ) -> tuple[list[TreeStep], list[str]]:
        """Return what to do, and of what nothing was kept; raise because of what was changed."""
        steps: dict[str, TreeStep] = {}
        conflicts: list[Conflict] = []
        lost: list[str] = []
        for change in self._changes:
            path, before = change.file.name, change.file.before
            try:
                now = steps[path].target if path in steps else state(path)
                log = self._log_beside(now, path)
                is_refreshed = log is not None and _is_left(state(log.file.name), log.file)
            except ClawError as error:
                conflicts.append(Conflict(path=change.file.path, reason=error.message))
                continue
            if _is_lost(change):
                lost.append(change.file.path)
            elif self._force or _is_left(now, change.file) or is_refreshed:
                first = steps[path].now if path in steps else now
                steps[path] = TreeStep(path=path, now=first, target=before)
                self._by_path[path] = change
            elif not _is_back(now, change.file):
                conflicts.append(Conflict(path=change.file.path, reason=_since(now)))
        if conflicts:
            raise _refusal(conflicts, redo=self._redo)
        return list(steps.values()), lost

    def _log_beside(self, now: FileState | None, path: str) -> Change | None:
        """Return what became of the log of HEAD, of git's index; None for any other file.

        Where the command moved HEAD and nobody since, the index is another by a `git status` only.
        """
        folder, _, name = path.rpartition("/")
        if name != "index" or now is None or now.kind != "file":
            return None
        log = f"{folder}/logs/HEAD"
        return next((each for each in self._changes if each.file.name == log), None)

    def _content(self, step: TreeStep) -> BinaryIO:
        return self._log.content(self._by_path[step.path])

    def _told(self, steps: list[TreeStep], lost: list[str], problems: dict[str, str]) -> list[str]:
        word = _word(redo=self._redo)
        done = [each for each in steps if each.path not in problems and each.now != each.target]
        told = [f"{word}: {_outcome(each)}" for each in done[:MAX_TOLD]]
        if len(done) > MAX_TOLD:
            told.append(f"{word}: {len(done) - MAX_TOLD} more files and folders")
        told += [f"not kept, so left as it is: {shown_name(path)}" for path in lost[:MAX_TOLD]]
        if not problems:
            return told
        shown = [f"{shown_name(path)}: {why}" for path, why in list(problems.items())[:MAX_TOLD]]
        raise InvalidRequestError(
            f"{len(done)} files and folders are {word}, but {len(problems)} could not be. "
            + "; ".join(shown),
            hint="Undo again when that is mended; it goes on with these.",
        )


class _KeptLog:
    """A log of which nothing is dropped, for a look at what undo would do."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log

    def drop(self, *numbers: int) -> None:
        """Do nothing."""

    def content(self, change: Change) -> BinaryIO:
        """Open the content that a change replaced."""
        return self._log.content(change)


def _of_many(calls: list[list[Change]]) -> list[Change]:
    return [each for call in calls for each in call if each.is_of_many]


def _which(arguments: Arguments) -> Which:
    return Which(
        call=arguments.get("call", ""),
        is_turn=bool(arguments.get("turn")),
        since=arguments.get("since", 0),
    )


def _is_lost(change: Change) -> bool:
    """Whether something was there that cannot be brought back, beyond its permissions."""
    before, after = change.file.before, change.file.after
    if before is None or before.kind in {"folder", "fifo"}:
        return False
    is_only_mode = after is not None and bool(before.sha256) and before.holds(after)
    return not change.kept and not is_only_mode


def _is_left(now: FileState | None, change: FileChange) -> bool:
    """Whether something is what a command left there."""
    before, after = change.before, change.after
    if now is None or after is None:
        return now is after
    if before is not None and before.holds(after):
        return now == after  # it changed the permissions
    if after.kind == "file" and not after.sha256:
        return (now.kind, now.size) == (after.kind, after.size)  # it was too large to be read
    return now.holds(after)


def _is_back(now: FileState | None, change: FileChange) -> bool:
    """Whether something is what it was before, as when undo was broken off by a crash."""
    before, after = change.before, change.after
    if before is not None and after is not None and before.holds(after):
        return now == before
    return _same(now, before)


def _outcome(step: TreeStep) -> str:
    """Return what became of a path, in words."""
    name, target = shown_name(step.path), step.target
    if target is None:
        return f"{name} removed"
    if step.now is not None and step.now.holds(target):
        return f"{name} has mode {target.mode:04o} again"
    if target.kind == "file":
        return f"{name} restored ({target.size} B)"
    return f"{name} restored ({target.kind})"


def _told_ahead(preview: Preview) -> str:
    """Return what undo would do, in words."""
    lines: list[str] = []
    for diff in preview.diffs:
        word = "remove" if diff.is_removed else "restore"
        note = f", {diff.note}" if diff.note else ""
        lines.append(f"would {word} {shown_name(diff.path)}  +{diff.added} -{diff.removed}{note}")
        lines += [f"    {each.mark}{each.text}".rstrip() for each in diff.lines]
    return "\n".join(lines) or "nothing can be taken back as it is; files were changed since"


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


def _none(scope: ChangeScope, which: Which, *, redo: bool) -> ToolResult:
    """Return that there is nothing to do: after a message that may well be, else it is told."""
    if which.since:
        return succeeded("No file was changed after that message.")
    return failed(_nothing(scope, redo=redo))


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
