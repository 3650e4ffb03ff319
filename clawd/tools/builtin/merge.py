"""The tool helper_merge: puts in place what a helper changed in its copy of the workspace.

`delegate` calls it, in the conversation that the helper works for, and it is judged there as the
file tools are: by the mode, by rules about files, by what runs later, by untrusted text. The person
who is asked sees the diff, and the call makes just that. It does all of it or nothing, and one step
of undo takes all of it back.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import ClawError
from clawd.security.approval_rules import file_need
from clawd.security.copies import CopyChanges, conflict_error, content_of
from clawd.security.file_content import FileChange
from clawd.security.paths import PathRules, classify
from clawd.security.risk import Assessment, worst
from clawd.security.snapshot import Tree, TreeStep
from clawd.security.workspace import Workspace
from clawd.tools.base import (
    Arguments,
    ToolContext,
    ToolResult,
    Touched,
    Traits,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.builtin.file_tools import ChangingTool
from clawd.tools.changes import ChangeKeeper, ChangeLog
from clawd.tools.outcome import HELPER_MERGE
from clawd.tools.preview import Preview
from clawd.wire.events import FileDiff
from clawd.wire.safe_text import shown_name

_TOLD = 20
_LIMIT_S = 300.0


class MergeTool(ChangingTool):
    """Merges a helper's copy into the workspace.

    Attributes:
        pending: what became of copies that are to be merged: the conversation that each helper
            works for, and its changes, by the helper's conversation.
    """

    name: ClassVar[str] = HELPER_MERGE
    reads: ClassVar[bool] = False
    writes: ClassVar[bool] = True
    short: ClassVar[str] = "Put in place what a helper changed in its copy of the workspace."
    description: ClassVar[str] = (
        "delegate calls this when a helper that works in a copy of the workspace has ended; nobody "
        "else can."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {"helper": {"type": "string", "description": "The helper's conversation."}}, "helper"
    )
    traits: ClassVar[Traits | None] = Traits(effect="changes", example={"helper": "conv-01"})
    is_hidden: ClassVar[bool] = True

    def __init__(self, deps: BuiltinDeps, pending: dict[str, tuple[str, CopyChanges]]) -> None:
        super().__init__(deps)
        self.pending = pending
        self.timeout_s = _LIMIT_S

    def _found(self, arguments: Arguments, context: ToolContext) -> CopyChanges | None:
        parent, found = self.pending.get(arguments["helper"], ("", None))
        is_its = bool(parent) and parent == context.conversation_id
        if found is None or not is_its or found.copy.original != context.workspace:
            return None
        return found

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        found = self._found(arguments, context)
        if found is None or not found.changes:
            return Assessment(risk="low", reason="finds nothing to merge", outward=False)
        rules = self._rules(context)
        each = [self._assess_change(change, rules, context) for change in found.changes]
        decisive = worst(each)
        reasons = dict.fromkeys(one.reason for one in each)
        what = f"{len(each)} files and folders" if len(each) > 1 else "a file"
        filled = {str(Path(change.name).parent) for change in found.changes}
        return Assessment(
            risk=decisive.risk,
            reason=f"merges {what} of a helper: {'; '.join(reasons)}",
            blocked=decisive.blocked,
            outward=any(one.outward for one in each),
            edits=all(one.edits for one in each),
            needs=tuple(
                need
                for change, one in zip(found.changes, each, strict=True)
                # A rule about the files in a new folder is one about the folder.
                if one.outward or change.name not in filled or not _is_new_folder(change)
                for need in one.needs
            ),
        )

    def _assess_change(
        self, change: FileChange, rules: PathRules, context: ToolContext
    ) -> Assessment:
        """Assess a change by its name: it is made just there, and no link is followed."""
        place = context.workspace / change.name
        above, held, blocked = place.parent, context.held, ""
        try:
            found = classify(above, rules) if held is None else held.locate(above, rules)
            if found.path != above:
                blocked = f"{shown_name(change.path)} leads to another place by now"
            elif folder := rules.forbids(place):
                blocked = f"{shown_name(change.path)}: {folder} is a forbidden path"
        except ClawError as error:
            blocked = error.message
        if blocked:
            return Assessment(risk="high", reason=_word(change), blocked=blocked)
        judged = self._assess_inside(place, context, "medium", _word(change))
        if change.after is None or change.after.kind != "link":
            return judged
        # What it leads to is for whoever follows it: no rule about files allows that.
        need = file_need(place.relative_to(context.workspace), risk="medium", is_guarded=True)
        return msgspec.structs.replace(
            judged, reason=f"{judged.reason}, a link", outward=True, edits=False, needs=(need,)
        )

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        found = self._found(arguments, context)
        changes = found.changes if found is not None else ()
        return Touched(writes=tuple(context.workspace / each.name for each in changes))

    @override
    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        found, copies = self._found(arguments, context), self._copies
        if found is None or copies is None:
            return None

        def rehearse() -> Preview:
            with (
                self._rehearsal(context) as workspace,
                copies.workspace(found.copy) as tree,
                Tree(found.copy.tree) as copied,
            ):
                steps, conflicts = copies.plan(found, tree)
                if conflicts:
                    raise conflict_error(conflicts)
                for step in steps:
                    workspace.suppose(step, tree, lambda each: content_of(copied, each))
                preview = workspace.preview()
            return msgspec.structs.replace(
                preview,
                diffs=_with_renames(preview.diffs),
                losses=(*preview.losses, *_removals(steps)),
            )

        return await in_thread(rehearse)

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        found, copies, log = self._found(arguments, context), self._copies, self._changes
        if found is None or copies is None:
            return failed("there is no helper's copy of that name to merge here")

        def act(_workspace: Workspace, keeper: ChangeKeeper) -> list[TreeStep]:
            notes = _Notes(copies.workspace(found.copy), log, keeper)
            return copies.merge(found, notes, keeper.is_cancelled)

        steps = await self._change(context, act)
        told = [f"merged: {line}" for line in told_of(steps)]
        return succeeded(
            "\n".join(told) or "merged: nothing had to be changed",
            merged=[each.path for each in steps],
            removed=[each.path for each in steps if each.target is None],
        )


class _Notes:
    """Keeps for undo what a merge does, which must be what was shown.

    Args:
        tree: the workspace, to be entered.
        log: keeps it; None keeps nothing.
        keeper: of the call.
    """

    def __init__(self, tree: Tree, log: ChangeLog | None, keeper: ChangeKeeper) -> None:
        self._tree = tree
        self._log = log
        self._keeper = keeper

    def note(self, steps: Sequence[TreeStep]) -> Sequence[int]:
        """Keep what is about to be replaced."""
        changes = [FileChange.of(each.path, each.now, each.target) for each in steps]
        for change in changes:
            self._keeper.check_shown(change)
        if self._log is None or not changes:
            return ()
        with self._tree as tree:
            for each in changes:
                if each.before is not None:
                    tree.state(each.name, self._log.keep_content)
        return self._log.keep_all(self._keeper.call, changes, is_whole=True)

    def forget(self, numbers: Sequence[int]) -> None:
        """Drop it."""
        if self._log is not None and numbers:
            self._log.drop(*numbers)


def told_of(steps: Sequence[TreeStep]) -> list[str]:
    """Return what a merge does, a line each, for people and models."""
    lines = [
        f"{shown_name(each.path)} {_became(each)}"
        for each in steps
        if each.now is None or each.target is None or each.target.kind != "folder"
    ]
    more = len(lines) - _TOLD
    return [*lines[:_TOLD], *([f"{more} more files and folders"] if more > 0 else [])]


def _became(step: TreeStep) -> str:
    if step.target is None:
        return "removed"
    if step.now is None:
        return "created"
    if step.now.holds(step.target):
        return f"has mode {step.target.mode:04o}"
    return "changed"


def _is_new_folder(change: FileChange) -> bool:
    """Whether a folder comes, which a rule about the files in it stands for."""
    return change.before is None and change.after is not None and change.after.kind == "folder"


def _word(change: FileChange) -> str:
    if change.after is None:
        return "removes a file"
    return "writes a file" if change.before is None else "changes a file"


def _removals(steps: Sequence[TreeStep]) -> tuple[str, ...]:
    """Return why a person is asked where files go."""
    gone = [each.path for each in steps if each.target is None and each.now is not None]
    if not gone:
        return ()
    more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
    return (f"removes {shown_name(gone[0])}{more}",)


def _with_renames(diffs: tuple[FileDiff, ...]) -> tuple[FileDiff, ...]:
    """Return the diffs, those of files that came by another's going with a note that says so."""
    gone = {each.old_sha256: each.path for each in diffs if each.is_removed and each.old_size}
    return tuple(
        msgspec.structs.replace(
            each, note="; ".join(filter(None, (each.note, f"was {gone[each.new_sha256]}")))
        )
        if each.is_new and each.new_sha256 in gone
        else each
        for each in diffs
    )
