"""Undo as a person meets it: a model changed files, and clawctl takes it back."""

import json
from typing import Any

import pytest

from tests.support.home import Home
from tests.support.lent_home import LentHome
from tests.support.terminal import code_of, spawn_clawctl

pytestmark = pytest.mark.daemon

FULL = '[security]\nautonomy = "full"\n'


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}


def test_what_a_turn_wrote_is_taken_back_after_a_restart_and_brought_back(home: Home) -> None:
    notes, made = home.workspace / "notes.txt", home.workspace / "deep" / "er" / "new.txt"
    notes.write_text("mine\n")
    notes.chmod(0o640)
    home.configure(
        call("file_edit", path="notes.txt", old_text="mine", new_text="the model's"),
        call("file_append", path="notes.txt", content="and more\n"),
        call("file_write", path="deep/er/new.txt", content="new\n"),
        {"text": "done"},
        tables=FULL,
    )
    done = home.ctl("agent", "-m", "change things")
    assert done.returncode == 0, done.stderr
    assert notes.read_text() == "the model's\nand more\n"
    listed = home.json("undo", "--list")
    assert [(c["path"], c["action"], c["size_before"], c["size_after"]) for c in listed] == [
        ("deep/er/new.txt", "created", 0, 4),
        ("notes.txt", "changed", 12, 21),
        ("notes.txt", "changed", 5, 12),
    ]
    receipts = {line["id"]: line for line in home.receipt_lines()}
    assert [receipts[c["receipt_id"]]["tool"] for c in listed] == [
        "file_write",
        "file_append",
        "file_edit",
    ]
    home.kill()
    one = home.ctl("undo")
    assert one.returncode == 0, one.stderr
    assert one.stdout == "undone: deep/er/new.txt removed\n"
    assert not (home.workspace / "deep").exists()
    assert home.ctl("undo", "2").returncode == 0
    assert (notes.read_text(), notes.stat().st_mode & 0o777) == ("mine\n", 0o640)
    nothing = home.ctl("undo")
    assert nothing.returncode == 1
    assert "No change of a tool can be undone" in nothing.stderr
    assert home.ctl("undo", "--redo").returncode == 0
    assert notes.read_text() == "the model's\nand more\n"
    assert home.ctl("undo", "--redo").returncode == 0
    assert made.read_text() == "new\n"
    tools = [(line["tool"], line["status"]) for line in home.receipt_lines()]
    assert tools[3:] == [
        ("undo", "allowed"),
        ("undo", "allowed"),
        ("undo", "failed"),
        ("undo", "allowed"),
        ("undo", "allowed"),
    ]
    assert home.ctl("receipt", "verify").returncode == 0
    kept = home.path / "undo"
    assert kept.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in kept.iterdir()} == {0o600}


def test_what_a_person_changed_since_is_left_alone_unless_forced(home: Home) -> None:
    notes = home.workspace / "notes.txt"
    notes.write_text("first\n")
    home.configure(
        call("file_write", path="notes.txt", content="the model's\n"), {"text": "done"}, tables=FULL
    )
    assert home.ctl("agent", "-m", "write").returncode == 0
    notes.write_text("the person's\n")
    refused = home.ctl("undo")
    assert refused.returncode == 1
    assert "notes.txt: it was changed since by somebody else" in refused.stderr
    assert "clawctl undo --force" in refused.stderr
    assert notes.read_text() == "the person's\n"
    assert home.ctl("undo", "--force").returncode == 0
    assert notes.read_text() == "first\n"
    assert home.ctl("undo", "--redo").returncode == 0
    assert notes.read_text() == "the person's\n"


def test_a_conversation_takes_back_its_own_changes_only(home: Home) -> None:
    home.configure(
        call("file_write", path="a.txt", content="a"),
        {"text": "done"},
        tables=FULL,
    )
    assert home.ctl("agent", "-m", "write").returncode == 0
    (first,) = home.json("memory", "list")
    arguments = json.dumps({"path": "b.txt", "content": "b"})
    assert home.ctl("tool", "run", "file_write", "--json", arguments).returncode == 0
    listed = home.json("undo", "--list", "--conversation", first["id"])
    assert [(c["path"], c["conversation_id"]) for c in listed] == [("a.txt", first["id"])]
    done = home.ctl("undo", "--conversation", first["id"])
    assert done.stdout == "undone: a.txt removed\n"
    assert (home.workspace / "b.txt").exists()
    assert home.receipt_lines()[-1]["conversation_id"] == first["id"]
    assert home.ctl("undo", "--conversation", "conv-nobody").returncode == 1


def test_undo_asks_like_any_call_of_medium_risk(home: Home) -> None:
    home.configure(call("file_write", path="a.txt", content="a"), {"text": "done"}, tables=FULL)
    assert home.ctl("agent", "-m", "write").returncode == 0
    home.configure()
    assert home.ctl("undo").returncode == 3
    assert (home.workspace / "a.txt").exists()
    child = spawn_clawctl({**home.environ, "TERM": "xterm"}, "undo")
    child.expect("changes files back")
    child.expect(r"Approve\? \[y/N\]")
    child.sendline("y")
    child.expect("undone: a.txt removed")
    assert code_of(child) == 0
    assert not (home.workspace / "a.txt").exists()


def test_a_model_takes_its_own_change_back(home: Home) -> None:
    (home.workspace / "notes.txt").write_text("mine")
    home.configure(
        call("file_write", path="notes.txt", content="the model's"),
        call("undo"),
        {"text": "{{last_tool_result}}"},
        tables=FULL,
    )
    done = home.ctl("agent", "-m", "change it and think again")
    assert "undone: notes.txt restored (4 B)" in done.stdout
    assert (home.workspace / "notes.txt").read_text() == "mine"
