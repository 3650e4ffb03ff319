"""Tools that look: file_list, file_read, check_path, cwd and workspace."""

import mimetypes
from datetime import UTC, datetime
from typing import Any, ClassVar

from typing_extensions import override

from clawd.errors import NotFoundError
from clawd.security.risk import Assessment
from clawd.security.workspace import FolderEntry, Workspace
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import PATH, object_schema
from clawd.tools.builtin.file_text import (
    BYTES_DEFAULT,
    BYTES_LIMIT,
    LINES_DEFAULT,
    LINES_LIMIT,
    BinaryFileError,
    Excerpt,
    nearest_names,
    read_bytes,
    read_lines,
)
from clawd.tools.builtin.file_tools import (
    FileTool,
    LookingTool,
    Watch,
    list_of,
    pictured,
    read_from,
)
from clawd.tools.session_files import SessionFolder
from clawd.wire.pictures import MAX_PICTURE_BYTES, looks_like_picture
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
        "Answers lines as `number|text`. With `start_line` it reads lines from there "
        f"(`max_lines`, by default {LINES_DEFAULT}, at most {LINES_LIMIT}); without, it reads "
        f"bytes from `offset` on (`max_bytes`, by default {BYTES_DEFAULT}, at most {BYTES_LIMIT}). "
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
    for name, entry in workspace.walk(path, skip=frozenset({".git"})):
        names.append(_listed(name, entry))
        if len(names) > LIST_LIMIT:
            break
    return names


def _listed(name: str, entry: FolderEntry) -> str:
    return shown_name(name) + "/" if entry.kind == "folder" else shown_name(name)


def _read(arguments: Arguments, workspace: Workspace) -> ToolResult:
    path = arguments["path"]
    try:
        file = workspace.open_read(path)
    except NotFoundError as error:
        near = nearest_names(workspace, path)
        return failed(f"{error.message}{near or '; file_list shows what is there'}")
    with file:
        size = workspace.stat(path).size
        try:
            if "start_line" in arguments:
                lines = arguments.get("max_lines", LINES_DEFAULT)
                excerpt = read_lines(file, arguments["start_line"], lines)
            else:
                count = arguments.get("max_bytes", BYTES_DEFAULT)
                excerpt = read_bytes(file, arguments.get("offset", 0), count)
        except BinaryFileError:
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
            file.seek(0)
            data = file.read(MAX_PICTURE_BYTES + 1)
            if looks_like_picture(data):
                return pictured(path, data)
            told = f"{path} is a binary file, not text: {kind}, {size} bytes"
            return failed(told, mime=kind, size=size)
    return _shown(path, excerpt, size)


def _shown(path: str, excerpt: Excerpt, size: int) -> ToolResult:
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
        return f"{shown}: there is nothing{nearest_names(workspace, path)}"
    changed = datetime.fromtimestamp(entry.modified_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if entry.kind == "folder":
        return f"{shown}: a folder, changed {changed}"
    if entry.kind == "file":
        kind = mimetypes.guess_type(path)[0] or "unknown type"
        return f"{shown}: a file of {entry.size} bytes, {kind}, changed {changed}"
    return f"{shown}: neither a file nor a folder"
