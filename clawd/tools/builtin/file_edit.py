"""The tool file_edit: replaces one exact text, or a range of lines, in a file."""

from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.file_content import FileState
from clawd.security.risk import Assessment
from clawd.security.workspace import Workspace
from clawd.tools.base import Arguments, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.changing import ChangingTool
from clawd.tools.builtin.deps import PATH, object_schema
from clawd.tools.builtin.file_text import is_text
from clawd.tools.builtin.file_write import MAX_WRITE_BYTES
from clawd.tools.builtin.nearest import nearest_names, nearest_text

_SHOWN_MATCHES = 5


class FileEditTool(ChangingTool):
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
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        return await self._change(context, lambda workspace, _: _edit(arguments, workspace))


def _edit(arguments: Arguments, workspace: Workspace) -> ToolResult:
    path, new = arguments["path"], arguments["new_text"]
    by_text, by_line = bool(arguments.get("old_text")), "start_line" in arguments
    if by_text == by_line:
        return failed("give either old_text, or start_line and end_line")
    text = _content(workspace, path)
    if isinstance(text, ToolResult):
        return text
    if by_text:
        changed = _replaced_text(text, arguments["old_text"], new, path)
    else:
        start = arguments["start_line"]
        changed = _replaced_lines(text, start, arguments.get("end_line", start), new)
    if isinstance(changed, ToolResult):
        return changed
    if changed == text:
        return failed(f"{path} would stay as it is: new_text is what stands there")
    data = changed.encode("utf-8", "replace")
    if len(data) > MAX_WRITE_BYTES:
        return failed(f"{path} would have {len(data)} bytes; at most {MAX_WRITE_BYTES} are written")
    workspace.write(path, data, was=FileState.of(text.encode()))
    return succeeded(f"updated {path} ({len(data)} B)", bytes=len(data))


def _content(workspace: Workspace, path: str) -> str | ToolResult:
    if near := _missing(workspace, path):
        return failed(near)
    with workspace.open_read(path) as file:
        data = file.read(MAX_WRITE_BYTES + 1)
    if len(data) > MAX_WRITE_BYTES:
        return failed(f"{path} is larger than {MAX_WRITE_BYTES} bytes and cannot be edited")
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


def _replaced_text(text: str, old: str, new: str, path: str) -> str | ToolResult:
    # Models write \n; a file with \r\n is matched and kept in its own way.
    if "\r\n" in text and "\r\n" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    count = text.count(old)
    if count == 1:
        return text.replace(old, new)
    if count > 1:
        lines = ", ".join(map(str, _line_numbers(text, old)))
        more = ", …" if count > _SHOWN_MATCHES else ""
        return failed(
            f"old_text stands {count} times in {path} (lines {lines}{more}); "
            "give more of the text around it, or start_line and end_line",
            matches=count,
        )
    near = nearest_text(text, old)
    shown = f"; the nearest is\n{near}" if near else ""
    return failed(f"old_text does not stand in {path}{shown}", matches=0)


def _line_numbers(text: str, old: str) -> list[int]:
    numbers: list[int] = []
    at = text.find(old)
    while at >= 0 and len(numbers) < _SHOWN_MATCHES:
        numbers.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return numbers


def _replaced_lines(text: str, start: int, end: int, new: str) -> str | ToolResult:
    lines = text.split("\n")
    ends_whole = lines[-1] == ""
    if ends_whole:
        lines.pop()
    if not (1 <= start <= len(lines) + 1 and start - 1 <= end <= len(lines)):
        return failed(f"lines {start} to {end} are not there: the file has {len(lines)} lines")
    if "\r\n" in text:
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    fresh = new.removesuffix("\n").split("\n") if new else []
    if "\r\n" in text and fresh and (ends_whole or end < len(lines)):
        fresh[-1] = fresh[-1].removesuffix("\r") + "\r"
    lines[start - 1 : end] = fresh
    return "\n".join(lines) + ("\n" if ends_whole and lines else "")
