"""Calls as models write them when they do not keep to the schema, and what must come of each.

A row is the tool's name as called, the arguments as written, and what must have happened: `says`
(the result has it, nothing is changed), `holds` (this file, and no other, has this content now) or
`REFUSED` (nothing is changed, and the example in the answer works when it is copied).
"""

import json
from typing import Any, Final

import msgspec

FILES: Final = {
    "notes.txt": "alpha\nbeta\nold words\n",
    "src/a.py": "import os\nprint(1)\n",
    "src/b.py": "x = 12\n",
    "12": "a file named by a number\n",
    "my file.txt": "blank\n",
}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What must have come of a call; neither `says` nor `path` means refused."""

    says: str = ""
    path: str = ""
    text: str = ""


REFUSED = Outcome()


def says(text: str) -> Outcome:
    return Outcome(says=text)


def holds(path: str, text: str) -> Outcome:
    return Outcome(path=path, text=text)


def _json(**arguments: Any) -> str:
    return json.dumps(arguments)


READ = says("1|alpha")
SECOND = says("2|beta")
HI = holds("new.txt", "hi")
EDITED = holds("notes.txt", "alpha\nbeta\nnew words\n")
PY = says("src/a.py")

Row = tuple[str, str, Outcome]

NAMES: list[Row] = [
    ("datetime", "{}", says("utc: ")),
    ("now", "", says("utc: ")),
    ("get_current_time", _json(timezone="Asia/Tokyo"), REFUSED),
    ("calc", _json(expression="12*7"), says("84")),
    ("read_file", _json(path="notes.txt"), READ),
    ("FileRead", _json(path="notes.txt"), READ),
    ("fileRead", _json(path="notes.txt"), READ),
    ("file-read", _json(path="notes.txt"), READ),
    ("FILE_READ", _json(path="notes.txt"), READ),
    ("file read", _json(path="notes.txt"), READ),
    ("file_reed", _json(path="notes.txt"), READ),
    ("file_raed", _json(path="notes.txt"), READ),
    ("functions.file_read", _json(path="notes.txt"), READ),
    ("functions.file_read:0", _json(path="notes.txt"), READ),
    ("file_read()", _json(path="notes.txt"), READ),
    ("`file_read`", _json(path="notes.txt"), READ),
    ("file_read<|channel|>commentary", _json(path="notes.txt"), READ),
    ("cat", _json(file="notes.txt"), READ),
    ("cat", _json(path="notes.txt", into="new.txt"), REFUSED),
    ("ls", _json(dir="src"), says("a.py")),
    ("ls", _json(command="ls /etc"), REFUSED),
    ("list_directory", _json(path="src"), says("a.py")),
    ("pwd", "{}", says("/")),
    ("write_file", _json(path="new.txt", content="hi"), HI),
    ("create_file", _json(file_path="new.txt", file_text="hi"), HI),
    ("file_wrte", _json(path="new.txt", content="hi"), HI),
    ("file_rite", _json(path="new.txt", content="hi"), REFUSED),
    ("str_replace", _json(path="notes.txt", old_str="old words", new_str="new words"), EDITED),
    ("append_to_file", _json(path="new.txt", text="hi"), HI),
    ("find_files", _json(pattern="*.py"), PY),
    ("rg", _json(regex="import"), says("src/a.py:1:import os")),
    ("search_files", _json(query="import"), says("src/a.py:1:import os")),
    ("search_files", _json(pattern="*.py"), REFUSED),
    ("file_exists", _json(path="notes.txt"), says("21 bytes")),
    ("file_delete", _json(path="notes.txt"), REFUSED),
    ("delete_file", _json(path="notes.txt"), REFUSED),
    ("move_file", _json(source="notes.txt", destination="new.txt"), REFUSED),
    ("mkdir", _json(path="new"), REFUSED),
    ("open_browser", _json(url="https://example.org/"), REFUSED),
    ("", "{}", REFUSED),
    ("timer", _json(seconds=5), REFUSED),
    ("unread_file", _json(path="notes.txt"), REFUSED),
    ("tool_lookup", _json(tool="file_read"), says("example: file_read")),
    ("help", "{}", says("file_read: ")),
    ("tool_lookup", _json(name="file_reader"), REFUSED),
]

FACADES: list[Row] = [
    ("fs", _json(action="read", path="notes.txt"), READ),
    ("fs", _json(action="READ", path="notes.txt"), READ),
    ("fs", _json(action="file_read", path="notes.txt"), READ),
    ("fs", _json(action="cat", path="notes.txt"), READ),
    ("fs", _json(operation="read", path="notes.txt"), READ),
    ("fs", _json(read={"path": "notes.txt"}), READ),
    ("fs", _json(action="read", arguments={"path": "notes.txt"}), READ),
    ("fs", _json(action="read", params='{"path": "notes.txt"}'), READ),
    ("fs_read", _json(path="notes.txt"), READ),
    ("fs.read", _json(path="notes.txt"), READ),
    ("FS", _json(action="list", path="src"), says("a.py")),
    ("fs", _json(action="create", path="new.txt", content="hi"), HI),
    ("fs", _json(action="save", file="new.txt", text="hi"), HI),
    ("fs", _json(path="notes.txt", old_text="old words", new_text="new words"), EDITED),
    ("fs", _json(file="notes.txt", old_str="old words", new_str="new words"), EDITED),
    ("fs", _json(path="notes.txt", start_line="2", max_lines="1"), SECOND),
    ("fs", _json(pattern="import", ignore_case=True), says("src/a.py:1:import os")),
    ("fs", _json(path="new.txt", content="hi"), REFUSED),
    ("fs", _json(path="notes.txt"), REFUSED),
    ("fs", "{}", REFUSED),
    ("fs", _json(action="delete", path="notes.txt"), REFUSED),
    ("fs", _json(action="rename", path="notes.txt"), REFUSED),
    ("fs", _json(action="unwrite", path="notes.txt", content=""), REFUSED),
    ("fs", _json(action="read", path="notes.txt", content="hi"), REFUSED),
    ("fs_read", _json(action="write", path="new.txt", content="hi"), REFUSED),
    ("fs", '{"action": "write", "path": "new.txt", "content": "hi', REFUSED),
]

VALUES: list[Row] = [
    ("file_read", _json(path="notes.txt", start_line="2", max_lines="1"), SECOND),
    ("file_read", _json(path="notes.txt", start_line=2.0, max_lines=[1]), SECOND),
    ("file_read", _json(path="notes.txt", startLine=" 2 "), SECOND),
    ("file_read", _json(path="notes.txt", start_line="null"), READ),
    ("file_read", _json(path="notes.txt", start_line=None), READ),
    ("file_read", _json(path=["notes.txt"]), READ),
    ("file_read", _json(path='"notes.txt"'), READ),
    ("file_read", _json(path=" notes.txt\n"), READ),
    ("file_read", _json(PATH="notes.txt"), READ),
    ("file_read", _json(filename="notes.txt"), READ),
    ("file_read", _json(pth="notes.txt", start_lines=2, max_line=1), SECOND),
    ("file_read", _json(path="notes.txt", encoding="utf-8"), READ),
    ("file_read", _json(path=12), says("named by a number")),
    ("file_read", _json(path=["notes.txt", "src/a.py"]), REFUSED),
    ("file_read", _json(path={"name": "notes.txt"}), REFUSED),
    ("file_read", _json(path="notes.txt", file="src/a.py"), REFUSED),
    ("file_read", _json(path="notes.txt", start_line="two"), REFUSED),
    ("file_read", _json(path="notes.txt", start_line=1.5), REFUSED),
    ("file_read", _json(path="notes.txt", start_line=True), REFUSED),
    ("file_list", _json(recursive="yes"), says("src/a.py")),
    ("file_list", _json(path="", recursive="True"), says("src/a.py")),
    ("file_list", _json(recursive="perhaps"), REFUSED),
    ("grep", _json(pattern="IMPORT", ignore_case="true", max_results="5"), says("src/a.py:1")),
    ("file_write", _json(path="new.txt", content={"a": 1}), holds("new.txt", '{"a": 1}')),
    ("file_write", _json(path="new.txt", content=12), holds("new.txt", "12")),
    ("file_write", _json(path="new.txt", content="hi", append=False, mode=None), HI),
    ("file_write", _json(path="new.txt", content="hi", explanation="as asked"), HI),
    ("file_write", _json(path="notes.txt", content="hi", append=True), REFUSED),
    ("file_write", _json(path="notes.txt", content="hi", mode="a"), REFUSED),
    ("file_write", _json(path="notes.txt", content="hi", text="ho"), REFUSED),
    ("file_write", _json(path="notes.txt", content=["one", "two"]), REFUSED),
    ("file_write", _json(path="notes.txt"), REFUSED),
    ("file_write", _json(content="hi"), REFUSED),
    ("file_write", _json(path=True, content="hi"), REFUSED),
    ("file_edit", _json(path="notes.txt", find="old words", replacement="new words"), EDITED),
    ("file_edit", _json(path="notes.txt", line="3", new_text="new words"), EDITED),
]

TEXTS: list[Row] = [
    ("file_read", '{"path": "notes.txt"} Let me know!', READ),
    ("file_read", '{"path": "notes.txt"}}', READ),
    ("file_read", '```json\n{"path": "notes.txt"}\n```', READ),
    ("file_read", 'Arguments: {"path": "notes.txt"}', READ),
    ("file_read", '{"path": "notes.txt"}</tool_call>', READ),
    ("file_read", '"{\\"path\\": \\"notes.txt\\"}"', READ),
    ("file_read", "{'path': 'notes.txt', 'start_line': None}", READ),
    ("file_read", "{path: 'notes.txt'}", READ),
    ("file_read", '{"path": "notes.txt",}', READ),
    ("file_read", '["notes.txt"]', READ),
    ("file_read", '"notes.txt"', READ),
    ("file_read", '[{"path": "notes.txt"}]', READ),
    ("file_read", 'path="notes.txt", start_line=1', READ),
    ("file_read", 'file_read(path="notes.txt")', READ),
    ("file_read", '{"arguments": {"path": "notes.txt"}}', READ),
    ("file_read", '{"name": "file_read", "parameters": {"path": "notes.txt"}}', READ),
    ("file_read", '{"name": "file_read", "arguments": "{\\"path\\": \\"notes.txt\\"}"}', READ),
    ("file_read", '{"name": "file_write", "arguments": {"path": "notes.txt"}}', REFUSED),
    ("file_read", '{"path": "notes.txt"} {"path": "src/a.py"}', REFUSED),
    ("file_read", '{"path": "notes.txt"}, "start_line": 2}', REFUSED),
    ("file_read", '{"path": "notes.txt", "path": "src/a.py"}', REFUSED),
    ("file_read", '{"path": "notes.txt"', REFUSED),
    ("file_read", "notes.txt", REFUSED),
    ("file_read", "", REFUSED),
    ("file_read", "null", REFUSED),
    ("grep", r'{"pattern": "print\(\d\)"}', says("src/a.py:2:print(1)")),
    ("file_write", '{"path": "new.txt", "content": "a\nb"}', holds("new.txt", "a\nb")),
    ("file_write", "{'path': 'new.txt', 'content': 'say \"hi\"'}", holds("new.txt", 'say "hi"')),
    ("file_write", "{'path': 'new.txt', 'content': \"it's\"}", holds("new.txt", "it's")),
    ("file_write", "{'path': 'new.txt', 'content': 'it's'}", REFUSED),
    ("file_write", '["new.txt", "hi"]', HI),
    ("file_write", '["new.txt"]', REFUSED),
    ("file_write", '["new.txt", "hi", "w"]', REFUSED),
    ("file_write", '{"path": "notes.txt", "content": "half of', REFUSED),
    ("file_write", '{"path": "notes.txt", "content": "half of"', REFUSED),
    ("file_write", "{'path': 'notes.txt', 'content': 'half of", REFUSED),
    ("file_write", '{"path": "notes.txt", "content": "a"} "mode": "append"}', REFUSED),
]

# Two things said at once: what a name says is not changed by an empty action beside it.
TWICE: list[Row] = [
    ("fs_read", _json(action=None, path="notes.txt", max_lines=1), READ),
    ("fs_read", _json(action="", path="notes.txt", max_lines=1), READ),
    ("fs_read", _json(action=["read"], path="notes.txt"), READ),
    ("fs_read", _json(action=[], path="notes.txt"), REFUSED),
    ("fs_read", _json(action={}, path="notes.txt"), REFUSED),
    ("fs_read", _json(action=None, path="notes.txt", old_text="a", new_text="b"), REFUSED),
    ("fs_list", _json(action=None, steps=1), REFUSED),
    ("fs", _json(read={"action": "write", "path": "notes.txt", "content": "x"}), REFUSED),
    ("fs", _json(read={"action": ["read"], "path": "notes.txt"}), REFUSED),
    ("fs", _json(read={"action": None, "path": "notes.txt"}), READ),
    ("file_write", '{"path": "new.txt", "path ": "notes.txt", "content": "hi"}', REFUSED),
    ("file_write", '{"path": "new.txt", " path": "new.txt", "content": "hi"}', HI),
    ("file_write", _json(path="new.txt", content="", text="hi"), REFUSED),
    ("file_write", _json(path="new.txt", content=None, text="hi"), HI),
    ("file_write", _json(path="", file="new.txt", content="hi"), HI),
    ("file_write", _json(path="new.txt", content="hi", text=""), HI),
]

ROWS: list[Row] = [*NAMES, *FACADES, *VALUES, *TEXTS, *TWICE]
