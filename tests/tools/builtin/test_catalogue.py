"""The built-in tools as a whole: names, schemas, sizes, and that every one assesses itself."""

from typing import Any

import pytest

from clawd.errors import ForbiddenError
from clawd.security.policy import PolicySettings
from clawd.tools.offer import specs
from clawd.tools.registry import Registry
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench

_ARGUMENTS: dict[str, tuple[list[str], list[str]]] = {
    "time": ([], []),
    "calculator": (["expression"], []),
    "ask_user": (["question"], ["options"]),
    "open_url": (["url"], []),
    "file_list": ([], ["path", "recursive"]),
    "file_read": (["path"], ["start_line", "max_lines", "offset", "max_bytes"]),
    "file_write": (["path", "content"], []),
    "file_edit": (["path", "new_text"], ["old_text", "start_line", "end_line"]),
    "file_append": (["path", "content"], []),
    "fs_ops": (["operations"], ["continue_on_error"]),
    "undo": ([], ["steps", "force", "redo", "call", "turn", "since", "preview"]),
    "glob": (["pattern"], ["path"]),
    "grep": (["pattern"], ["path", "glob", "ignore_case", "max_results"]),
    "check_path": (["path"], []),
    "cwd": ([], []),
    "workspace": ([], []),
    "shell": (["command"], ["timeout_s"]),
    "job": ([], ["action", "id", "wait_s"]),
    "evaluate": (["code"], []),
    "http": (["url"], ["method", "headers", "body"]),
    "web_search": (["query"], ["max_results"]),
    "web_fetch": (["url"], ["max_bytes"]),
    "pdf_extract": (["source"], ["pages"]),
    "plan": (["action"], ["text", "id", "status", "items"]),
    "render": (["source"], ["name", "format"]),
}

_STARTS_PROCESS = {"shell", "evaluate", "web_search", "web_fetch", "pdf_extract"}


@each_row("name", list(_ARGUMENTS), fresh=["bench"])
def test_a_tool_has_the_agreed_arguments_and_a_short_line(bench: Bench, name: str) -> None:
    tool = bench.tool(name)
    required, optional = _ARGUMENTS[name]
    assert tool.parameters["required"] == required
    assert sorted(tool.parameters["properties"]) == sorted(required + optional)
    assert 10 < len(tool.short) <= 120
    assert tool.starts_process is (name in _STARTS_PROCESS)


def test_an_answer_that_is_held_to_the_schema_can_name_the_old_text_before_the_new(
    bench: Bench,
) -> None:
    names = list(bench.tool("file_edit").parameters["properties"])
    assert names == ["path", "old_text", "start_line", "end_line", "new_text"]


def test_all_of_them_fit_one_registry(bench: Bench) -> None:
    registry = Registry(bench.tool(name) for name in _ARGUMENTS)
    assert {spec.name for spec in specs(registry.all())} == set(_ARGUMENTS)
    assert registry.get("datetime").name == "time"


@each_row(
    ("name", "arguments", "risk"),
    [
        ("time", {}, "low"),
        ("calculator", {"expression": "1"}, "low"),
        ("ask_user", {"question": "?"}, "low"),
        ("cwd", {}, "low"),
        ("workspace", {}, "low"),
        ("file_list", {}, "low"),
        ("file_read", {"path": "a"}, "low"),
        ("glob", {"pattern": "*"}, "low"),
        ("grep", {"pattern": "x"}, "low"),
        ("check_path", {"path": "a"}, "low"),
        ("file_write", {"path": "a", "content": ""}, "medium"),
        ("undo", {}, "low"),  # there is nothing to take back
        ("file_edit", {"path": "a", "new_text": "", "old_text": "x"}, "medium"),
        ("file_append", {"path": "a", "content": ""}, "medium"),
        ("shell", {"command": "ls"}, "medium"),
        ("shell", {"command": "make install"}, "high"),
        ("job", {"action": "stop", "id": "job-1"}, "low"),
        ("http", {"url": "https://example.org/"}, "medium"),
        ("http", {"url": "https://example.org/", "method": "HEAD"}, "medium"),
        ("web_search", {"query": "x"}, "low"),
        ("web_fetch", {"url": "https://example.org/"}, "medium"),
        ("pdf_extract", {"source": "https://example.org/a.pdf"}, "medium"),
        ("pdf_extract", {"source": "a.pdf"}, "low"),
        ("http", {"url": "https://example.org/", "method": "POST"}, "high"),
        ("render", {"source": "# x", "name": "x.html"}, "low"),
    ],
    fresh=["bench"],
)
def test_the_risk_inside_the_workspace(
    bench: Bench, name: str, arguments: dict[str, Any], risk: str
) -> None:
    assessment = bench.risk(name, **arguments)
    assert (assessment.risk, assessment.blocked) == (risk, "")
    assert assessment.reason


@each_row("path", ["../x", "/usr/share/x", "/etc/passwd", "keys/id", "../home/key"])
@each_row(
    ("name", "more"),
    [
        ("file_list", {}),
        ("file_read", {}),
        ("check_path", {}),
        ("file_write", {"content": "x"}),
        ("file_edit", {"new_text": "x", "old_text": "y"}),
        ("file_append", {"content": "x"}),
        ("grep", {"pattern": "x"}),
        ("glob", {"pattern": "x"}),
    ],
    fresh=["bench"],
)
async def test_what_lies_outside_or_is_forbidden_is_blocked_and_does_not_open_either(
    bench: Bench, name: str, more: dict[str, Any], path: str
) -> None:
    assessment = bench.risk(name, path=path, **more)
    assert assessment.risk == "high"
    assert assessment.blocked
    with pytest.raises(ForbiddenError):
        await bench.call(name, path=path, **more)


def test_an_owner_who_opens_the_world_gets_one_level_higher(bench: Bench) -> None:
    bench.policy = PolicySettings(workspace_only=False, forbidden_paths=("/etc",))
    assert bench.risk("file_read", path="/usr/x").risk == "medium"
    assert bench.risk("file_write", path="/usr/x", content="").risk == "high"
    assert bench.risk("file_write", path="/usr/x", content="").blocked == ""
    assert bench.risk("file_read", path="/etc/passwd").blocked
    assert bench.risk("file_read", path="x").risk == "low"
