"""Tools for files: file_list, file_read, check_path, cwd and workspace look, three others write.

These are file_write, file_append and file_edit, which replaces a text or lines.
"""

import mimetypes
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from typing_extensions import override

from clawd.errors import NotFoundError
from clawd.security.file_content import FileState
from clawd.security.risk import Assessment
from clawd.security.workspace import FolderEntry, Workspace
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.builtin import file_text
from clawd.tools.builtin.deps import PATH, object_schema
from clawd.tools.builtin.file_tools import (
    FileTool,
    LookingTool,
    Watch,
    WritingTool,
    append_to,
    list_of,
    pictured,
    read_from,
    reads_lines,
    write_to,
)
from clawd.tools.preview import Preview
from clawd.tools.session_files import SessionFolder
from clawd.wire.pictures import MAX_PICTURE_BYTES, looks_like_picture
from clawd.wire.references import looks_like_reference
from clawd.wire.safe_text import shown_name

LIST_LIMIT = 1000
EMPTY = "(empty)"


class FileListTool(LookingTool):
    """Lists a folder."""

    name: ClassVar[str] = "file_list"
    short: ClassVar[str] = "List the files of a folder, one name a line."
    description: ClassVar[str] = (
        "Answers one name a line, sorted; folders end with a slash. `path` is a folder, by default "
        "the workspace. With `recursive` everything below is listed, as paths from that folder, "
        f"but not inside .git. At most {LIST_LIMIT} names; a last line says when there are more. "
        "The path file+session:// lists the files of the conversation."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "path": {"type": "string", "default": ".", "description": "Folder."},
            "recursive": {"type": "boolean", "description": "Also list what is below."},
        }
    )

    takes_session_files: ClassVar[bool] = True

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._assess(arguments.get("path", "."), context, "low", "lists a folder")

    @override
    async def act_on_session(self, arguments: Arguments, files: SessionFolder) -> ToolResult:
        return await list_of(arguments, files)

    @override
    def act(self, arguments: Arguments, workspace: Workspace, watch: Watch) -> ToolResult:
        path, recursive = arguments.get("path") or ".", bool(arguments.get("recursive"))
        names = _names(path, workspace, recursive=recursive)
        if not names:
            return succeeded(EMPTY, count=0)
        if len(names) > LIST_LIMIT:
            more = "[more: the list ends here; list a folder below, or use glob]"
            return succeeded("\n".join([*names[:LIST_LIMIT], more]), truncated=True)
        return succeeded("\n".join(names), count=len(names))


class FileReadTool(LookingTool):
    """Reads a text file."""

    name: ClassVar[str] = "file_read"
    short: ClassVar[str] = "Read a text file; each line is prefixed with its number."
    description: ClassVar[str] = (
        "Answers lines as `number|text`. With `start_line` or `max_lines` it reads lines from "
        f"there (by default from the first, {file_text.LINES_DEFAULT} of them, at most "
        f"{file_text.LINES_LIMIT}); without, it reads bytes from `offset` on (`max_bytes`, by "
        f"default {file_text.BYTES_DEFAULT}, at most {file_text.BYTES_LIMIT}). "
        "A last line says what was left out. A picture is shown as one; of any other binary "
        "file its type and size are told. "
        "It reads files of the conversation as well: file+session://notes.txt."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "path": PATH,
            "start_line": {"type": "integer", "description": "First line, from 1."},
            "max_lines": {"type": "integer", "description": "How many lines."},
            "offset": {"type": "integer", "description": "First byte, from 0."},
            "max_bytes": {"type": "integer", "description": "How many bytes."},
        },
        "path",
    )

    takes_session_files: ClassVar[bool] = True
    shows: ClassVar[bool] = True

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._assess(arguments["path"], context, "low", "reads a file")

    @override
    async def act_on_session(self, arguments: Arguments, files: SessionFolder) -> ToolResult:
        return await read_from(arguments, files)

    @override
    def act(self, arguments: Arguments, workspace: Workspace, watch: Watch) -> ToolResult:
        return _read(arguments, workspace)


class CheckPathTool(LookingTool):
    """Says what a path is."""

    name: ClassVar[str] = "check_path"
    short: ClassVar[str] = "Tell whether a path exists and what it is."
    description: ClassVar[str] = (
        "Answers what is at a path: a file with its size, type and time of change, a folder, or "
        "that there is nothing; and the path in full."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema({"path": PATH}, "path")

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._assess(arguments["path"], context, "low", "looks at a path")

    @override
    def act(self, arguments: Arguments, workspace: Workspace, watch: Watch) -> ToolResult:
        return succeeded(_described(arguments["path"], workspace))


class CwdTool(Tool):
    """Says where relative paths start."""

    name: ClassVar[str] = "cwd"
    short: ClassVar[str] = "Tell the folder that relative paths start from."
    parameters: ClassVar[dict[str, Any]] = object_schema({})

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="tells the folder")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        return succeeded(str(context.workspace))


class WorkspaceTool(FileTool):
    """Says what may be touched."""

    name: ClassVar[str] = "workspace"
    short: ClassVar[str] = "Tell the workspace folder and what may be touched outside of it."
    parameters: ClassVar[dict[str, Any]] = object_schema({})
    reads: ClassVar[bool] = False

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="tells the workspace")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        only = self._policy.workspace_only
        beyond = (
            "nothing"
            if only
            else "files, but not these: " + ", ".join(self._policy.forbidden_paths)
        )
        return succeeded(f"workspace: {context.workspace}\noutside of it: {beyond}")


def _names(path: str, workspace: Workspace, *, recursive: bool) -> list[str]:
    """Return up to one more name than may be shown."""
    if not recursive:
        return [_listed(entry.name, entry) for entry in workspace.entries(path)]
    names = []
    for name, entry in workspace.walk(path, skip=file_text.SKIPPED):
        names.append(_listed(name, entry))
        if len(names) > LIST_LIMIT:
            break
    return names


def _listed(name: str, entry: FolderEntry) -> str:
    return shown_name(name) + "/" if entry.kind == "folder" else shown_name(name)


def _read(arguments: Arguments, workspace: Workspace) -> ToolResult:
    path = arguments["path"]
    with workspace.open_read(path) as file:
        size = workspace.stat(path).size
        try:
            if reads_lines(arguments):
                lines = arguments.get("max_lines", file_text.LINES_DEFAULT)
                excerpt = file_text.read_lines(file, arguments.get("start_line", 1), lines)
            else:
                count = arguments.get("max_bytes", file_text.BYTES_DEFAULT)
                excerpt = file_text.read_bytes(file, arguments.get("offset", 0), count)
        except file_text.BinaryFileError:
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
            file.seek(0)
            data = file.read(MAX_PICTURE_BYTES + 1)
            if looks_like_picture(data):
                return pictured(path, data)
            told = f"{path} is a binary file, not text: {kind}, {size} bytes"
            return failed(told, mime=kind, size=size)
    return _shown(path, excerpt, size)


def _shown(path: str, excerpt: file_text.Excerpt, size: int) -> ToolResult:
    facts: dict[str, Any] = {
        "size": size,
        "total_lines": excerpt.total_lines,
        "truncated": excerpt.is_partial,
    }
    if not size:
        return succeeded(EMPTY, **facts)
    if not excerpt.lines:
        known = f"it has {excerpt.total_lines} lines and {size} bytes"
        return failed(f"{path} has nothing there; {known}", **facts)
    numbered = [f"{excerpt.first_line + i}|{line}" for i, line in enumerate(excerpt.lines)]
    if excerpt.is_partial:
        last = excerpt.first_line + len(excerpt.lines) - 1
        total = excerpt.total_lines or "more than can be counted"
        numbered.append(f"(lines {excerpt.first_line} to {last} of {total}; {size} bytes)")
    return succeeded("\n".join(numbered), **facts)


def _described(path: str, workspace: Workspace) -> str:
    shown = shown_name(str(workspace.place_of(path)))
    try:
        entry = workspace.stat(path)
    except NotFoundError:
        return f"{shown}: there is nothing{file_text.nearest_names(workspace, path)}"
    changed = datetime.fromtimestamp(entry.modified_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if entry.kind == "folder":
        return f"{shown}: a folder, changed {changed}"
    if entry.kind == "file":
        kind = mimetypes.guess_type(path)[0] or "unknown type"
        return f"{shown}: a file of {entry.size} bytes, {kind}, changed {changed}"
    return f"{shown}: neither a file nor a folder"


_MAX_WRITE_BYTES = 8 << 20
_END_BYTES = 4096  # of a file, by which its line breaks are known
_CONTENT = {"type": "string", "description": "The text."}


class FileWriteTool(WritingTool):
    """Creates or replaces a file."""

    name: ClassVar[str] = "file_write"
    short: ClassVar[str] = "Create a file or replace its whole content."
    description: ClassVar[str] = (
        "Writes the text at once and whole: readers see the old file or the new one. Missing "
        "folders are made. Read a file before you replace it; to change a part of it use "
        "file_edit. The path "
        "file+session://notes.txt writes a file of the conversation, outside of the workspace."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {"path": PATH, "content": _CONTENT}, "path", "content"
    )
    reads: ClassVar[bool] = False
    writes: ClassVar[bool] = True
    takes_session_files: ClassVar[bool] = True
    shows: ClassVar[bool] = True

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._assess(arguments["path"], context, "medium", "writes a file")

    @override
    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        path = arguments["path"]
        if not looks_like_reference(path):
            await in_thread(lambda: self.check_seen(path, context))
        return await super().preview(arguments, context)

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
        "Adds the text below the last line of the file, on a line of its own; give further line "
        "breaks where they are wanted. Missing folders are made. It adds to files of the "
        "conversation as well: file+session://notes.txt."
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
        data = file_text.on_own_line(data, _end_of(path, workspace))
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


def _end_of(path: str, workspace: Workspace) -> bytes:
    """Return the last bytes of a file; none where it is not there."""
    if not workspace.exists(path):
        return b""
    with workspace.open_read(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END_BYTES))
        return file.read(_END_BYTES)


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
            # An answer that is held to this schema has the same order: what goes, then what comes.
            "old_text": {"type": "string", "description": "The exact text to replace."},
            "start_line": {"type": "integer", "description": "First line to replace."},
            "end_line": {"type": "integer", "description": "Last line to replace."},
            "new_text": {"type": "string", "description": "What takes its place."},
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
            return edit_file(arguments["path"], [file_text.edit_of(arguments)], workspace)
        except file_text.EditError as error:
            facts: dict[str, Any] = {} if error.matches is None else {"matches": error.matches}
            return failed(error.message, **facts)


def edit_file(path: str, edits: Sequence[file_text.Edit], workspace: Workspace) -> ToolResult:
    """Make all of the edits in a file, at once.

    Raises:
        EditError: one of them cannot be made; the file is left as it is.
        ClawError: the file cannot be written.
    """
    text = _content(workspace, path)
    if isinstance(text, ToolResult):
        return text
    changed = file_text.edited(text, edits, path)
    if changed == text:
        return failed(as_it_is(path))
    data = changed.encode("utf-8", "replace")
    if len(data) > _MAX_WRITE_BYTES:
        return failed(
            f"{path} would have {len(data)} bytes; at most {_MAX_WRITE_BYTES} are written"
        )
    workspace.write(path, data, was=FileState.of(text.encode()))
    return succeeded(f"updated {path} ({len(data)} B)", bytes=len(data))


def as_it_is(path: str) -> str:
    """Return what is said of an edit that changes nothing."""
    return f"{path} would stay as it is: new_text is what stands there"


def overlap_in(
    path: str, edits: Sequence[file_text.Edit], workspace: Workspace
) -> file_text.EditError | None:
    """Return why edits of a file overlap; None when they do not, or fail for another reason.

    Raises:
        ClawError: the file cannot be read.
    """
    text = _content(workspace, path)
    try:
        if isinstance(text, str):
            file_text.edited(text, edits, path)
    except file_text.EditError as error:
        return error if error.overlaps >= 0 else None
    return None


def _content(workspace: Workspace, path: str) -> str | ToolResult:
    if near := _missing(workspace, path):
        return failed(near)
    with workspace.open_read(path) as file:
        data = file.read(_MAX_WRITE_BYTES + 1)
    if len(data) > _MAX_WRITE_BYTES:
        return failed(f"{path} is larger than {_MAX_WRITE_BYTES} bytes and cannot be edited")
    if not file_text.is_text(data):
        return failed(f"{path} is a binary file, not text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return failed(f"{path} ends in the middle of a character and cannot be edited")


def _missing(workspace: Workspace, path: str) -> str:
    if workspace.exists(path):
        return ""
    near = file_text.nearest_names(workspace, path)
    return f"{path} does not exist{near or '; file_write creates a file'}"
