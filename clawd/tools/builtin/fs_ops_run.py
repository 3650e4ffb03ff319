"""Doing the steps of a batch on an open workspace, and telling what came of each operation."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from clawd.errors import CancelledByUserError, ClawError
from clawd.security.workspace import Workspace
from clawd.tools.base import ToolResult, failed, succeeded
from clawd.tools.builtin.acting import SEARCH_LIMIT_S, ActingTool, Watch
from clawd.tools.builtin.editing import EditError
from clawd.tools.builtin.file_edit import edit_file, overlap_in
from clawd.tools.builtin.fs_ops_batch import Batch, Operation, Step, Verb, overlap

CLIP_BYTES = 2048


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an operation, and what is told of it."""

    kind: Literal["done", "failed", "not done"]
    text: str


def run_batch(
    batch: Batch, tools: Mapping[Verb, ActingTool], workspace: Workspace, watch: Watch
) -> ToolResult:
    """Do the steps in their order; stop at the first that fails, unless the batch continues.

    Raises:
        InvalidRequestError: two edits overlap; nothing was done.
        CancelledByUserError: nobody wants it any more; what was done by then stays.
    """
    _check_overlaps(batch, workspace)
    outcomes: dict[int, Outcome] = {}
    has_failed = False
    for step in batch.steps:
        if watch.cancelled.is_set():
            raise CancelledByUserError("the call was cancelled")
        if has_failed and not batch.continues:
            found = _all(step, "not done", "an operation before it failed")
        elif watch.is_over():
            found = _all(step, "not done", f"the batch took longer than {watch.limit_s:g} s")
        else:
            found = _done(step, tools, workspace, watch)
        has_failed = has_failed or any(each.kind == "failed" for each in found.values())
        outcomes |= found
    return _told(batch, outcomes)


def _check_overlaps(batch: Batch, workspace: Workspace) -> None:
    """Refuse what only the files can tell to overlap, before anything is done."""
    for step in batch.steps:
        if len(step.edits) < 2 or not step.is_as_found:
            continue
        try:
            error = overlap_in(step.operations[0].arguments["path"], step.edits, workspace)
        except ClawError:
            continue  # it is told when its turn comes
        if error is not None:
            raise overlap(step.operations[error.overlaps], step.operations[error.number])


def _done(
    step: Step, tools: Mapping[Verb, ActingTool], workspace: Workspace, watch: Watch
) -> dict[int, Outcome]:
    first = step.operations[0]
    try:
        if step.edits:
            result = edit_file(first.arguments["path"], step.edits, workspace)
        else:
            own = Watch(min(SEARCH_LIMIT_S, watch.left_s), watch.cancelled)
            result = tools[first.verb].act(first.arguments, workspace, own)
    except EditError as error:
        return _refused(step, error.number, error.message)
    except CancelledByUserError:
        raise
    except ClawError as error:
        return _refused(step, 0, error.message + (f" {error.hint}" if error.hint else ""))
    except OSError as error:  # of a disk that fails while a file is read
        return _refused(step, 0, f"the system refused: {error.strerror or error}")
    if not result.success:
        return _refused(step, 0, result.error)
    outcomes = _all(step, "done", f"made together with operation {first.number}")
    return outcomes | {first.number: Outcome(kind="done", text=_clipped(result.output))}


def _refused(step: Step, number: int, why: str) -> dict[int, Outcome]:
    """Return what came of a step of which one operation failed: nothing of it was done."""
    blamed = step.operations[number]
    others = f"operation {blamed.number}, an edit of the same file, failed"
    failure = Outcome(kind="failed", text=why)
    return _all(step, "not done", others) | {blamed.number: failure}


def _all(step: Step, kind: Literal["done", "not done"], text: str) -> dict[int, Outcome]:
    return {each.number: Outcome(kind=kind, text=text) for each in step.operations}


def _clipped(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= CLIP_BYTES:
        return text
    kept = data[:CLIP_BYTES].decode(errors="ignore")
    more = f"{len(data) - CLIP_BYTES} of {len(data)} bytes left out"
    return f"{kept}\n[cut: {more}; do it alone to see all of it]"


def _told(batch: Batch, outcomes: Mapping[int, Outcome]) -> ToolResult:
    """Return the result: failures first and whole, so that no limit of the output cuts them."""
    pairs = [(each, outcomes[each.number]) for each in batch.operations]
    counts = {
        kind: sum(outcome.kind == kind for _, outcome in pairs)
        for kind in ("done", "failed", "not done")
    }
    summed = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    size, files = len(pairs), batch.files
    header = (
        f"batch: {size} op{'' if size == 1 else 's'} across "
        f"{files} file{'' if files == 1 else 's'} ({summed})"
    )
    done = [_line(each, outcome.text) for each, outcome in pairs if outcome.kind == "done"]
    facts = {
        "operations": size,
        "files": files,
        **{k.replace(" ", "_"): c for k, c in counts.items()},
    }
    if counts["done"] == size:
        return succeeded("\n".join([header, *done]), **facts)
    missing = [
        f"{each.number}. {each.title}: {outcome.kind.upper()}: {outcome.text}"
        for kind in ("failed", "not done")
        for each, outcome in pairs
        if outcome.kind == kind
    ]
    return failed("\n".join([header, *missing]), output="\n".join(done), **facts)


def _line(operation: Operation, text: str) -> str:
    """Return what is told of an operation; texts of files begin on a line of their own."""
    gap = "\n" if operation.verb in {"read", "list", "glob", "grep"} else " "
    return f"{operation.number}. {operation.title}:{gap}{text}"
