"""Hooks on the real daemon: a formatter, a guard of generated files, a kill in the middle."""

import stat
import time
from pathlib import Path
from typing import Any

import pytest

from clawctl.client import connect
from clawd.receipts.verify import verify
from clawd.wire.turns import SendMessage
from tests.support.home import DEADLINE_S, Home

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox]

FULL = '[security]\nautonomy = "full"\n'
GUARD = """#!/usr/bin/env python3
import json, sys
told = json.load(sys.stdin)
if told["arguments"].get("path", "").startswith("generated"):
    print(json.dumps({"decision": "deny", "reason": "change generated.yaml"}))
"""


def script(home: Home, name: str, text: str) -> Path:
    """Write a program beside the workspace."""
    path = home.workspace.parent / "programs" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def write(path: str) -> dict[str, Any]:
    arguments = {"path": path, "content": "B\nA\n"}
    return {"when": path, "tool_calls": [{"name": "file_write", "arguments": arguments}]}


def test_a_formatter_runs_after_edits_and_generated_files_are_not_written(home: Home) -> None:
    guard = script(home, "guard", GUARD)
    hooks = (
        f'[[hooks.before_tool]]\ncommand = ["{guard}"]\ntools = ["file_*"]\ntimeout_s = 60\n'
        '[[hooks.after_tool]]\ncommand = ["sort", "-o", "names.txt", "names.txt"]\n'
        'tools = ["file_write"]\nmay = ["write"]\ntimeout_s = 60\n'
    )
    replies: list[dict[str, Any]] = [
        write("generated.py"),
        write("names.txt"),
        {"after": "tool", "text": "told"},
    ]
    home.configure(*replies, tables=FULL + hooks)
    home.start()
    for path in ("generated.py", "names.txt"):
        done = home.ctl("agent", "-m", f"write {path}")
        assert done.returncode == 0, done.stderr
    assert not (home.workspace / "generated.py").exists()
    assert (home.workspace / "names.txt").read_text() == "A\nB\n"
    lines = [(line["tool"], line["status"]) for line in home.receipt_lines() if "id" in line]
    guarded = [("hook", "allowed"), ("file_write", "denied")]
    assert lines == [*guarded, ("hook", "allowed"), ("file_write", "allowed"), ("hook", "allowed")]
    assert home.ctl("receipt", "verify").returncode == 0

    found = home.json("policy", "explain", "file_write", '{"path": "a", "content": "b"}')
    assert found["hooks"] == ["before_tool: guard (sandbox)", "after_tool: sort (sandbox)"]
    assert "before_tool: guard (sandbox)" in home.ctl("doctor").stdout
    guard.unlink()
    assert f"no program is there for before_tool: {guard}" in home.ctl("doctor").stdout


def test_a_daemon_that_is_killed_in_a_hook_leaves_a_chain_that_holds(home: Home) -> None:
    begun = home.workspace / "begun"
    command = '["sh", "-c", "touch begun; sleep 600"]'
    hooks = (
        f'[[hooks.before_tool]]\ncommand = {command}\nmay = ["write"]\ntimeout_s = 600\n'
        'tools = ["file_write"]\n'
    )
    home.configure(write("names.txt"), {"after": "tool", "text": "told"}, tables=FULL + hooks)
    home.start()
    with connect(home.path / "run" / "clawd.sock") as client:
        client.stream(SendMessage(text="write names.txt"))
        deadline = time.monotonic() + DEADLINE_S
        while not begun.exists():
            assert time.monotonic() < deadline, home.log()
            time.sleep(0.01)
        home.kill()
    home.start()
    found = verify(home.receipts)
    assert found.ok, found.message
    (cut,) = [line for line in home.receipt_lines() if line.get("tool") == "hook"]
    assert (cut["status"], cut["reason"]) == ("failed", "interrupted")
    assert not (home.workspace / "names.txt").exists()
