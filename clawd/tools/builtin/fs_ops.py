"""The tool fs_ops: up to fifty operations on files as one call, one approval and one undo.

Each operation is judged and done by the flat tool of its kind. They are done in their order, each
after those before it: a read after a write sees what was written. The edits of one file are one
step, made together where the first of them stands, each against the file as it is then, so that
line numbers are those of the file before the batch. Only a `write` of the file parts them: edits
after it are of what it wrote.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import msgspec
from typing_extensions import override

from clawd.errors import CancelledByUserError, ClawError, InvalidRequestError
from clawd.security.risk import Assessment, Need, worst
from clawd.security.workspace import Workspace
from clawd.tools.arguments import decode_arguments
from clawd.tools.base import (
    Arguments,
    ToolContext,
    ToolResult,
    Touched,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.builtin.file_text import Edit, EditError, edit_of, overlapping_lines
from clawd.tools.builtin.file_tools import SEARCH_LIMIT_S, ActingTool, ChangingTool, Watch
from clawd.tools.builtin.files import (
    CheckPathTool,
    FileAppendTool,
    FileEditTool,
    FileListTool,
    FileReadTool,
    FileWriteTool,
    edit_file,
    overlap_in,
)
from clawd.tools.builtin.search_files import GlobTool, GrepTool
from clawd.tools.naming import NO_CHOICE, choice_of
from clawd.tools.preview import Preview
from clawd.wire.references import looks_like_reference, no_path

# What is left of the call's time when no further operation is begun.
_RESERVE = 0.25
_Verb = Literal["read", "write", "edit", "append", "list", "glob", "grep", "check"]
_TOOLS: dict[_Verb, type[ActingTool]] = {
    "read": FileReadTool,
    "write": FileWriteTool,
    "edit": FileEditTool,
    "append": FileAppendTool,
    "list": FileListTool,
    "glob": GlobTool,
    "grep": GrepTool,
    "check": CheckPathTool,
}
MAX_OPERATIONS = 50
_MAX_FILES = 20
EXAMPLE = (
    '{"operations": [{"op": "read", "path": "a.txt"}, {"op": "edit", "path": "b.txt", '
    '"start_line": 2, "end_line": 3, "new_text": "new lines"}]}'
)
# Other names of the argument `op`, and what models call the operations elsewhere.
_VERB_NAMES = ("op", "operation", "action", "verb", "type", "tool", "name")
_PATH_NAMES = (
    "path", "file", "filename", "file_path", "filepath", "dir", "directory", "folder",
)  # fmt: skip
_WORDS: dict[str, _Verb] = {
    "cat": "read", "open": "read", "view": "read", "show": "read", "get": "read",
    "create": "write", "overwrite": "write", "save": "write", "put": "write",
    "replace": "edit", "modify": "edit", "patch": "edit", "change": "edit",
    "add": "append", "ls": "list", "dir": "list", "find": "glob", "search": "grep",
    "exists": "check", "stat": "check",
}  # fmt: skip
_OF_FILES = frozenset({"read", "write", "edit", "append", "check"})
_CHANGING = frozenset({"write", "append", "edit"})
_SHOWING = frozenset({"read", "write"})
_CLIP_BYTES = 2048


def _operation_schema() -> dict[str, Any]:
    verbs = ", ".join(_TOOLS)
    properties: dict[str, Any] = {"op": {"type": "string", "description": f"One of: {verbs}."}}
    for tool in _TOOLS.values():
        for name, rule in tool.parameters["properties"].items():
            properties.setdefault(name, {"type": rule["type"]})
    # What is missing or no operation is refused by its number, in the batch.
    return {"type": "object", "properties": properties}


class _Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation.

    Attributes:
        number: its place in the batch, from 1.
        arguments: as its flat tool takes them.
        place: the resolved path of what it works on.
    """

    number: int
    verb: _Verb
    arguments: dict[str, Any]
    place: str

    @property
    def title(self) -> str:
        """The operation for people and models: `edit a.py`."""
        subject = self.arguments.get("pattern") or self.arguments.get("path", ".")
        return f"{self.verb} {subject}"


class FsOpsTool(ChangingTool):
    """Does several operations on files."""

    name: ClassVar[str] = "fs_ops"
    short: ClassVar[str] = "Do several file operations at once: read, write, edit, append, list, …"
    description: ClassVar[str] = (
        f"Does up to {MAX_OPERATIONS} operations on up to {_MAX_FILES} files, in their order. Each "
        "has `op` and the arguments of the tool that does it alone: read (file_read), write "
        "(file_write), edit (file_edit), append (file_append), list (file_list), glob, grep, "
        "check (check_path). All edits of one file are made together, all or none, and line "
        "numbers are those before the batch: do not count what the others add or remove. A read "
        f"sees what was written before it; it shows at most {_CLIP_BYTES} bytes. The batch stops "
        "at the first failure, unless `continue_on_error` is true, and says what was not done; "
        "undo takes all of it back as one step."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "operations": {
                "type": "array",
                "items": _operation_schema(),
                "description": "What to do, in order.",
                "examples": [
                    [
                        {"op": "read", "path": "a.txt"},
                        {"op": "edit", "path": "b.txt", "old_text": "old", "new_text": "new"},
                    ]
                ],
            },
            "continue_on_error": {"type": "boolean", "description": "Go on after a failure."},
        },
        "operations",
    )
    reads: ClassVar[bool] = True
    writes: ClassVar[bool] = True

    def __init__(self, deps: BuiltinDeps) -> None:
        super().__init__(deps)
        self._tools: dict[_Verb, ActingTool] = {verb: kind(deps) for verb, kind in _TOOLS.items()}

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        try:
            operations = self._operations(arguments, context)
        except InvalidRequestError:
            return Assessment(risk="low", reason="a batch that is refused as a whole")
        # One that its paths make impossible now may be possible when it runs: links can be moved.
        found = [self._tools[each.verb].risk(each.arguments, context) for each in operations]
        decisive = worst(found)
        blocked = decisive.blocked
        if blocked:
            operation = operations[found.index(decisive)]
            blocked = f"operation {operation.number} ({operation.title}): {blocked}"
        reasons = "; ".join(dict.fromkeys(each.reason for each in found))
        return Assessment(
            risk=decisive.risk,
            reason=f"batch of {len(found)}: {reasons}",
            blocked=blocked,
            allow_hint=decisive.allow_hint,
            outward=any(each.outward for each in found),
            edits=all(each.edits or each.risk == "low" for each in found),
            preapproved=_preapproved(found),
            needs=_needs(found) if decisive.risk == "medium" and not blocked else (),
        )

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        try:
            operations = self._operations(arguments, context)
        except InvalidRequestError:
            return Touched()
        each = [self._tools[one.verb].touches(one.arguments, context) for one in operations]
        return Touched(
            reads=tuple(dict.fromkeys(path for one in each for path in one.reads)),
            writes=tuple(dict.fromkeys(path for one in each for path in one.writes)),
        )

    @override
    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        try:
            operations = self._operations(arguments, context)
            batch = _batch_of(arguments, operations)
        except InvalidRequestError:
            return None  # it is refused as a whole
        if not any(each.verb in _CHANGING for each in operations):
            return None
        watch = Watch(self.timeout_s * (1 - _RESERVE))

        def rehearse() -> Preview:
            for each in operations:  # a read beside it was not seen when it was written
                if each.verb == "write":
                    self.check_seen(each.arguments["path"], context)
            with self._rehearsal(context) as workspace:
                with contextlib.suppress(InvalidRequestError):  # two edits overlap
                    _run_batch(batch, self._tools, workspace, watch)
                return workspace.preview()

        try:
            return await in_thread(rehearse)
        finally:
            watch.cancelled.set()

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        limit_s = self.timeout_s * (1 - _RESERVE)
        try:
            batch = _batch_of(arguments, self._operations(arguments, context))
            result = await self._change(
                context,
                lambda workspace, keeper: _run_batch(
                    batch, self._tools, workspace, Watch(limit_s, keeper.is_cancelled)
                ),
            )
        except InvalidRequestError as error:
            return failed(f"{error.message} {error.hint}")
        if context.seen is not None and result.success:
            known = (each.place for each in batch.operations if each.verb in _SHOWING)
            context.seen.update(map(Path, known))
        return result

    def _operations(self, arguments: Arguments, context: ToolContext) -> tuple[_Operation, ...]:
        def place_of(path: str) -> str:
            try:
                return str(self._located(path, context).path)
            except InvalidRequestError:
                return path  # the flat tool says why it is none

        schemas = {verb: tool.parameters for verb, tool in self._tools.items()}
        operations = _operations_of(arguments, schemas, place_of)
        for each in operations:
            if looks_like_reference(path := str(each.arguments.get("path", ""))):
                raise _refusal(f"operation {each.number}: {no_path(path).message}")
        return operations


def _preapproved(found: list[Assessment]) -> str:
    """Return why no operation of a batch needs a person; "" where one may."""
    reasons = [each.preapproved for each in found if each.risk != "low"]
    return reasons[0] if reasons and all(reasons) else ""


def _needs(found: list[Assessment]) -> tuple[Need, ...]:
    """Return what the operations of a batch ask for."""
    needs: list[Need] = []
    for each in found:
        if each.risk != "low":
            needs += each.needs or (Need(kind="other", text=each.reason, risk=each.risk),)
    return tuple(needs)


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is done at once: one operation, or the edits of one file.

    Attributes:
        edits: the edits that the operations mean, none for others.
        is_as_found: whether nothing of the batch changes the file before it.
    """

    operations: tuple[_Operation, ...]
    edits: tuple[Edit, ...] = ()
    is_as_found: bool = True


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that can be meant.

    Attributes:
        steps: in the order in which they are done.
        files: how many files it names.
        continues: whether it goes on after a failure.
    """

    operations: tuple[_Operation, ...]
    steps: tuple[_Step, ...]
    files: int
    continues: bool


def _operations_of(
    arguments: Arguments, schemas: Mapping[_Verb, Mapping[str, Any]], place_of: Callable[[str], str]
) -> tuple[_Operation, ...]:
    """Return the operations that the arguments name, by the arguments alone.

    What is refused here is refused whenever it is asked, wherever its paths lead by then.

    Args:
        arguments: of the tool.
        schemas: the parameters of each operation's flat tool.
        place_of: resolves a path.

    Raises:
        InvalidRequestError: they cannot be meant, and nothing may be done.
    """
    given = arguments["operations"]
    if not 1 <= len(given) <= MAX_OPERATIONS:
        raise _refusal(f"a batch has 1 to {MAX_OPERATIONS} operations, this one has {len(given)}")
    return tuple(
        _operation(number, each, schemas, place_of) for number, each in enumerate(given, 1)
    )


def _batch_of(arguments: Arguments, operations: tuple[_Operation, ...]) -> _Batch:
    """Return what the operations mean together, by where their paths lead now.

    Raises:
        InvalidRequestError: it cannot be meant, and nothing of it may be done.
    """
    files = {each.place for each in operations if each.verb in _OF_FILES}
    if len(files) > _MAX_FILES:
        raise _refusal(f"a batch names at most {_MAX_FILES} files, this one names {len(files)}")
    return _Batch(
        operations=operations,
        steps=tuple(map(_step, _grouped(operations))),
        files=len(files),
        continues=bool(arguments.get("continue_on_error")),
    )


def _refusal(message: str) -> InvalidRequestError:
    """Return the refusal of a whole batch."""
    return InvalidRequestError(
        f"{message}; nothing was done.", hint=f"Correct arguments look like this: {EXAMPLE}"
    )


def _operation(
    number: int,
    given: dict[str, Any],
    schemas: Mapping[_Verb, Mapping[str, Any]],
    place_of: Callable[[str], str],
) -> _Operation:
    _check_one_meaning(number, given)
    said = next((name for name in _VERB_NAMES if given.get(name)), "")
    rest = {name: value for name, value in given.items() if name != said}
    verb = _verb(str(given[said])) if said else _inferred(rest)
    if verb is None:
        what = f"has op {str(given[said])[:40]!r}" if said else "has no op"
        raise _refusal(f"operation {number} {what}; it must be one of {', '.join(schemas)}")
    try:
        decoded = decode_arguments(rest, schemas[verb])
    except InvalidRequestError as error:
        raise _refusal(f"operation {number} ({verb}): {error.message}") from error
    if verb == "edit":
        _check_edit(number, decoded)
    place = place_of(decoded.get("path") or ".")
    return _Operation(number=number, verb=verb, arguments=decoded, place=place)


def _check_edit(number: int, arguments: Arguments) -> None:
    try:
        edit_of(arguments)
    except EditError as error:
        raise _refusal(f"operation {number} (edit): {error.message}") from error


def _check_one_meaning(number: int, given: Mapping[str, Any]) -> None:
    """Refuse an operation that says two things: a person who is asked may read the wrong one."""
    verbs = {_verb(str(given[name])) for name in _VERB_NAMES if given.get(name)} - {None}
    paths = {str(given[name]).strip() for name in _PATH_NAMES if given.get(name)}
    if len(verbs) > 1 or len(paths) > 1:
        raise _refusal(
            f"operation {number} names two {'paths' if len(paths) > 1 else 'operations'}"
        )


def _verb(word: str) -> _Verb | None:
    """Return the operation that a word means: `file_read` and `reads` are `read`."""
    plain = re.sub(r"[^a-z]+", "_", word.lower()).strip("_")
    plain = re.sub(r"^(file|fs)_|_(file|files|path)$", "", plain)
    if plain in _WORDS:
        return _WORDS[plain]
    verbs = {str(each): each for each in get_args(_Verb)}
    meant = choice_of(plain, verbs)
    return None if meant is NO_CHOICE else verbs[meant]


def _inferred(given: Mapping[str, Any]) -> _Verb | None:
    """Return the only operation that takes these arguments, or None."""
    if "new_text" in given:
        return "edit"
    if given.keys() & {"max_lines", "offset", "max_bytes"}:
        return "read"
    return "grep" if given.keys() & {"ignore_case", "max_results"} else None


def _grouped(operations: tuple[_Operation, ...]) -> list[tuple[list[_Operation], bool]]:
    """Return what goes together, and whether its file is then as the batch found it."""
    groups: list[tuple[list[_Operation], bool]] = []
    edits: dict[str, list[_Operation]] = {}
    changed: set[str] = set()
    for each in operations:
        if each.verb == "edit" and each.place in edits:
            edits[each.place].append(each)
            continue
        groups.append(([each], each.place not in changed))
        if each.verb == "edit":
            edits[each.place] = groups[-1][0]
        elif each.verb == "write":
            edits.pop(each.place, None)
        if each.verb in _CHANGING:
            changed.add(each.place)
    return groups


def _step(group: tuple[list[_Operation], bool]) -> _Step:
    operations, is_as_found = group
    if operations[0].verb != "edit":
        return _Step(operations=tuple(operations), is_as_found=is_as_found)
    edits = [edit_of(each.arguments) for each in operations]
    if (both := overlapping_lines(edits)) is not None:
        raise _overlap(operations[both[0]], operations[both[1]])
    return _Step(operations=tuple(operations), edits=tuple(edits), is_as_found=is_as_found)


def _overlap(one: _Operation, other: _Operation) -> InvalidRequestError:
    """Return the refusal of a batch in which two edits overlap."""
    return _refusal(
        f"operations {one.number} and {other.number} change the same part of "
        f"{other.arguments['path']}; line numbers are those of the file before the batch"
    )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an operation, and what is told of it."""

    kind: Literal["done", "failed", "not done"]
    text: str


def _run_batch(
    batch: _Batch, tools: Mapping[_Verb, ActingTool], workspace: Workspace, watch: Watch
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


def _check_overlaps(batch: _Batch, workspace: Workspace) -> None:
    """Refuse what only the files can tell to overlap, before anything is done."""
    for step in batch.steps:
        if len(step.edits) < 2 or not step.is_as_found:
            continue
        try:
            error = overlap_in(step.operations[0].arguments["path"], step.edits, workspace)
        except ClawError:
            continue  # it is told when its turn comes
        if error is not None:
            raise _overlap(step.operations[error.overlaps], step.operations[error.number])


def _done(
    step: _Step, tools: Mapping[_Verb, ActingTool], workspace: Workspace, watch: Watch
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


def _refused(step: _Step, number: int, why: str) -> dict[int, Outcome]:
    """Return what came of a step of which one operation failed: nothing of it was done."""
    blamed = step.operations[number]
    others = f"operation {blamed.number}, an edit of the same file, failed"
    failure = Outcome(kind="failed", text=why)
    return _all(step, "not done", others) | {blamed.number: failure}


def _all(step: _Step, kind: Literal["done", "not done"], text: str) -> dict[int, Outcome]:
    return {each.number: Outcome(kind=kind, text=text) for each in step.operations}


def _clipped(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= _CLIP_BYTES:
        return text
    kept = data[:_CLIP_BYTES].decode(errors="ignore")
    more = f"{len(data) - _CLIP_BYTES} of {len(data)} bytes left out"
    return f"{kept}\n[cut: {more}; do it alone to see all of it]"


def _told(batch: _Batch, outcomes: Mapping[int, Outcome]) -> ToolResult:
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


def _line(operation: _Operation, text: str) -> str:
    """Return what is told of an operation; texts of files begin on a line of their own."""
    gap = "\n" if operation.verb in {"read", "list", "glob", "grep"} else " "
    return f"{operation.number}. {operation.title}:{gap}{text}"
