"""The tools that write: file_write, file_append and file_edit, which replaces a text or lines."""

from collections.abc import Sequence
from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.file_content import FileState
from clawd.security.risk import Assessment
from clawd.security.workspace import Workspace
from clawd.tools.base import Arguments, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import PATH, object_schema
from clawd.tools.builtin.file_text import Edit, EditError, edit_of, edited, is_text, nearest_names
from clawd.tools.builtin.file_tools import Watch, WritingTool, append_to, write_to
from clawd.tools.session_files import SessionFolder

_MAX_WRITE_BYTES = 8 << 20
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
        if len(data) > _MAX_WRITE_BYTES:
            return failed(
                f"the content has {len(data)} bytes; at most {_MAX_WRITE_BYTES} are written"
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
        if len(data) > _MAX_WRITE_BYTES:
            return failed(
                f"the content has {len(data)} bytes; at most {_MAX_WRITE_BYTES} are added"
            )
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


class FileEditTool(WritingTool):
    """Changes a part of a file."""

    name: ClassVar[str] = "file_edit"
    short: ClassVar[str] = "Replace one exact text, or a range of lines, in a file."
    description: ClassVar[str] = (
        "Either give `old_text`, which must stand in the file exactly once (give more of what is "
        "around it when it does not), or `start_line` and `end_line` from 1, both included "
        "(`end_line` is `start_line` by default; one less than it inserts before that line). "
        "`new_text` takes its place; empty removes it. Do not copy the `number|` of file_read."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "path": PATH,
            "new_text": {"type": "string", "description": "What takes its place."},
            "old_text": {"type": "string", "description": "The exact text to replace."},
            "start_line": {"type": "integer", "description": "First line to replace."},
            "end_line": {"type": "integer", "description": "Last line to replace."},
        },
        "path",
        "new_text",
    )
    writes: ClassVar[bool] = True

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._assess(arguments["path"], context, "medium", "changes a file")

    @override
    def act(self, arguments: Arguments, workspace: Workspace, watch: Watch) -> ToolResult:
        try:
            return edit_file(arguments["path"], [edit_of(arguments)], workspace)
        except EditError as error:
            facts: dict[str, Any] = {} if error.matches is None else {"matches": error.matches}
            return failed(error.message, **facts)


def edit_file(path: str, edits: Sequence[Edit], workspace: Workspace) -> ToolResult:
    """Make all of the edits in a file, at once.

    Raises:
        EditError: one of them cannot be made; the file is left as it is.
        ClawError: the file cannot be written.
    """
    text = _content(workspace, path)
    if isinstance(text, ToolResult):
        return text
    changed = edited(text, edits, path)
    if changed == text:
        return failed(f"{path} would stay as it is: new_text is what stands there")
    data = changed.encode("utf-8", "replace")
    if len(data) > _MAX_WRITE_BYTES:
        return failed(
            f"{path} would have {len(data)} bytes; at most {_MAX_WRITE_BYTES} are written"
        )
    workspace.write(path, data, was=FileState.of(text.encode()))
    return succeeded(f"updated {path} ({len(data)} B)", bytes=len(data))


def overlap_in(path: str, edits: Sequence[Edit], workspace: Workspace) -> EditError | None:
    """Return why edits of a file overlap; None when they do not, or fail for another reason.

    Raises:
        ClawError: the file cannot be read.
    """
    text = _content(workspace, path)
    try:
        if isinstance(text, str):
            edited(text, edits, path)
    except EditError as error:
        return error if error.overlaps >= 0 else None
    return None


def _content(workspace: Workspace, path: str) -> str | ToolResult:
    if near := _missing(workspace, path):
        return failed(near)
    with workspace.open_read(path) as file:
        data = file.read(_MAX_WRITE_BYTES + 1)
    if len(data) > _MAX_WRITE_BYTES:
        return failed(f"{path} is larger than {_MAX_WRITE_BYTES} bytes and cannot be edited")
    if not is_text(data):
        return failed(f"{path} is a binary file, not text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return failed(f"{path} ends in the middle of a character and cannot be edited")


def _missing(workspace: Workspace, path: str) -> str:
    if workspace.exists(path):
        return ""
    near = nearest_names(workspace, path)
    return f"{path} does not exist{near or '; file_write creates a file'}"
