"""The tool fs_ops: up to fifty operations on files as one call, one approval and one undo.

`fs_ops_batch` says what they mean together, `fs_ops_run` does them; each is judged and done by the
flat tool of its kind.
"""

import contextlib
from typing import Any, ClassVar

from typing_extensions import override

from clawd.errors import InvalidRequestError
from clawd.security.risk import Assessment, worst
from clawd.tools.base import Arguments, ToolContext, ToolResult, Touched, failed, in_thread
from clawd.tools.builtin.acting import ActingTool, Watch
from clawd.tools.builtin.changing import ChangingTool
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.builtin.file_edit import FileEditTool
from clawd.tools.builtin.file_write import FileAppendTool, FileWriteTool
from clawd.tools.builtin.files import CheckPathTool, FileListTool, FileReadTool
from clawd.tools.builtin.fs_ops_batch import (
    CHANGING,
    MAX_FILES,
    MAX_OPERATIONS,
    Operation,
    Verb,
    batch_of,
    operations_of,
    refusal,
)
from clawd.tools.builtin.fs_ops_run import CLIP_BYTES, run_batch
from clawd.tools.builtin.search_files import GlobTool, GrepTool
from clawd.tools.preview import Preview
from clawd.wire.references import looks_like_reference, no_path

# What is left of the call's time when no further operation is begun.
_RESERVE = 0.25

_TOOLS: dict[Verb, type[ActingTool]] = {
    "read": FileReadTool,
    "write": FileWriteTool,
    "edit": FileEditTool,
    "append": FileAppendTool,
    "list": FileListTool,
    "glob": GlobTool,
    "grep": GrepTool,
    "check": CheckPathTool,
}


def _operation_schema() -> dict[str, Any]:
    verbs = ", ".join(_TOOLS)
    properties: dict[str, Any] = {"op": {"type": "string", "description": f"One of: {verbs}."}}
    for tool in _TOOLS.values():
        for name, rule in tool.parameters["properties"].items():
            properties.setdefault(name, {"type": rule["type"]})
    # What is missing or no operation is refused by its number, in the batch.
    return {"type": "object", "properties": properties}


class FsOpsTool(ChangingTool):
    """Does several operations on files."""

    name: ClassVar[str] = "fs_ops"
    short: ClassVar[str] = "Do several file operations at once: read, write, edit, append, list, …"
    description: ClassVar[str] = (
        f"Does up to {MAX_OPERATIONS} operations on up to {MAX_FILES} files, in their order. Each "
        "has `op` and the arguments of the tool that does it alone: read (file_read), write "
        "(file_write), edit (file_edit), append (file_append), list (file_list), glob, grep, "
        "check (check_path). All edits of one file are made together, all or none, and line "
        "numbers are those before the batch: do not count what the others add or remove. A read "
        f"sees what was written before it; it shows at most {CLIP_BYTES} bytes. The batch stops "
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
            "continue_on_error": {
                "type": "boolean",
                "description": "Go on after a failure.",
            },
        },
        "operations",
    )
    reads: ClassVar[bool] = True
    writes: ClassVar[bool] = True

    def __init__(self, deps: BuiltinDeps) -> None:
        super().__init__(deps)
        self._tools: dict[Verb, ActingTool] = {verb: kind(deps) for verb, kind in _TOOLS.items()}

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
            batch = batch_of(arguments, operations)
        except InvalidRequestError:
            return None  # it is refused as a whole
        if not any(each.verb in CHANGING for each in operations):
            return None
        watch = Watch(self.timeout_s * (1 - _RESERVE))

        def rehearse() -> Preview:
            with self._rehearsal(context) as workspace:
                with contextlib.suppress(InvalidRequestError):  # two edits overlap
                    run_batch(batch, self._tools, workspace, watch)
                return workspace.preview()

        try:
            return await in_thread(rehearse)
        finally:
            watch.cancelled.set()

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        limit_s = self.timeout_s * (1 - _RESERVE)
        try:
            batch = batch_of(arguments, self._operations(arguments, context))
            return await self._change(
                context,
                lambda workspace, keeper: run_batch(
                    batch, self._tools, workspace, Watch(limit_s, keeper.is_cancelled)
                ),
            )
        except InvalidRequestError as error:
            return failed(f"{error.message} {error.hint}")

    def _operations(self, arguments: Arguments, context: ToolContext) -> tuple[Operation, ...]:
        def place_of(path: str) -> str:
            try:
                return str(self._located(path, context).path)
            except InvalidRequestError:
                return path  # the flat tool says why it is none

        schemas = {verb: tool.parameters for verb, tool in self._tools.items()}
        operations = operations_of(arguments, schemas, place_of)
        for each in operations:
            if looks_like_reference(path := str(each.arguments.get("path", ""))):
                raise refusal(f"operation {each.number}: {no_path(path).message}")
        return operations
