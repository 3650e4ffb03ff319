"""Tools that write whole texts: file_write and file_append."""

from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.security.workspace import Workspace
from clawd.tools.base import Arguments, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.acting import Watch
from clawd.tools.builtin.changing import WritingTool
from clawd.tools.builtin.deps import PATH, object_schema
from clawd.tools.builtin.session_acts import append_to, write_to
from clawd.tools.session_files import SessionFolder

MAX_WRITE_BYTES = 8 << 20

_CONTENT = {"type": "string", "description": "The text."}


class FileWriteTool(WritingTool):
    """Creates or replaces a file."""

    name: ClassVar[str] = "file_write"
    short: ClassVar[str] = "Create a file or replace its whole content."
    description: ClassVar[str] = (
        "Writes the text at once and whole: readers see the old file or the new one. Missing "
        "folders are made. To change a part of a file use file_edit. The path "
        "file+session://notes.txt writes a file of the conversation, outside of the workspace."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {"path": PATH, "content": _CONTENT}, "path", "content"
    )
    reads: ClassVar[bool] = False
    writes: ClassVar[bool] = True
    takes_session_files: ClassVar[bool] = True

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._assess(arguments["path"], context, "medium", "writes a file")

    @override
    def act(self, arguments: Arguments, workspace: Workspace, watch: Watch) -> ToolResult:
        path, data = arguments["path"], arguments["content"].encode("utf-8", "replace")
        if len(data) > MAX_WRITE_BYTES:
            return failed(
                f"the content has {len(data)} bytes; at most {MAX_WRITE_BYTES} are written"
            )
        created = workspace.write(path, data)
        return succeeded(_wrote(path, len(data), created=created), bytes=len(data), created=created)

    @override
    async def act_on_session(self, arguments: Arguments, files: SessionFolder) -> ToolResult:
        return await write_to(arguments, files)


class FileAppendTool(WritingTool):
    """Adds to a file."""

    name: ClassVar[str] = "file_append"
    short: ClassVar[str] = "Add text to the end of a file; creates it when missing."
    description: ClassVar[str] = (
        "Adds the text as it is: give line breaks where they are wanted. Missing folders are "
        "made. It adds to files of the conversation as well: file+session://notes.txt."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {"path": PATH, "content": _CONTENT}, "path", "content"
    )
    reads: ClassVar[bool] = True
    writes: ClassVar[bool] = True
    takes_session_files: ClassVar[bool] = True

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._assess(arguments["path"], context, "medium", "adds to a file")

    @override
    def act(self, arguments: Arguments, workspace: Workspace, watch: Watch) -> ToolResult:
        path, data = arguments["path"], arguments["content"].encode("utf-8", "replace")
        if len(data) > MAX_WRITE_BYTES:
            return failed(f"the content has {len(data)} bytes; at most {MAX_WRITE_BYTES} are added")
        created = workspace.append(path, data)
        text = (
            _wrote(path, len(data), created=True)
            if created
            else f"added {len(data)} bytes to {path}"
        )
        return succeeded(text, bytes=len(data), created=created)

    @override
    async def act_on_session(self, arguments: Arguments, files: SessionFolder) -> ToolResult:
        return await append_to(arguments, files)


def _wrote(path: str, size: int, *, created: bool) -> str:
    return f"{'created' if created else 'updated'} {path} ({size} B)"
