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
        call("file_read", path="notes.txt"),
        call("file_write", path="notes.txt", content="the model's\n"),
        {"text": "done"},
        tables=FULL,
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
        call("file_read", path="notes.txt"),
        call("file_write", path="notes.txt", content="the model's"),
        call("undo"),
        {"text": "{{last_tool_result}}"},
        tables=FULL,
    )
    done = home.ctl("agent", "-m", "change it and think again")
    assert "undone: notes.txt restored (4 B)" in done.stdout
    assert (home.workspace / "notes.txt").read_text() == "mine"


def test_a_turn_replaces_no_file_that_its_model_has_not_read_and_a_person_does(home: Home) -> None:
    notes = home.workspace / "notes.txt"
    notes.write_text("mine")
    write = call("file_write", path="notes.txt", content="new")
    home.configure(write, {"text": "{{last_tool_result}}"}, tables=FULL)
    refused = home.ctl("agent", "-m", "write")
    assert "notes.txt is there already and was not read" in refused.stdout
    assert notes.read_text() == "mine"
    arguments = json.dumps({"path": "notes.txt", "content": "new"})
    assert home.ctl("tool", "run", "file_write", "--json", arguments).returncode == 0
    assert notes.read_text() == "new"


def test_what_a_command_destroyed_comes_back_by_call_and_by_turn(home: Home) -> None:
    src = home.workspace / "src"
    (src / "deep").mkdir(parents=True)
    (src / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (src / "deep" / "run.sh").chmod(0o750)
    (src / "link").symlink_to("deep/run.sh")
    notes = home.workspace / "notes.txt"
    notes.write_text("mine\n")
    destroy = 'import os, shutil; shutil.rmtree("src/deep"); os.unlink("src/link")'
    home.configure(
        call("shell", command=f"python3 -c '{destroy}' && echo gone > notes.txt && mkdir made"),
        {"text": "done"},
        tables=FULL,
    )
    assert home.ctl("agent", "-m", "clear up").returncode == 0
    assert list(src.iterdir()) == []
    listed = {each["path"]: each for each in home.json("undo", "--list")}
    assert {path: each["action"] for path, each in listed.items()} == {
        "notes.txt": "changed",
        "made": "created",
        "src/deep": "removed",
        "src/deep/run.sh": "removed",
        "src/link": "removed",
    }
    receipt = listed["made"]["receipt_id"]
    told = home.ctl("undo", "--preview", receipt)
    assert "would restore notes.txt  +1 -1" in told.stdout
    assert notes.read_text() == "gone\n"
    done = home.ctl("undo", receipt)
    assert done.returncode == 0, done.stderr
    assert "undone: src/deep/run.sh restored (10 B)" in done.stdout
    assert (src / "deep" / "run.sh").stat().st_mode & 0o777 == 0o750
    assert str((src / "link").readlink()) == "deep/run.sh"
    assert (notes.read_text(), (home.workspace / "made").exists()) == ("mine\n", False)
    home.configure(
        call("file_read", path="notes.txt"),
        call("file_write", path="notes.txt", content="the model's\n"),
        call("shell", command="sed -i s/model/command/ notes.txt"),
        call("shell", command="cat notes.txt; mv notes.txt moved.txt"),
        {"text": "done"},
        tables=FULL,
    )
    assert home.ctl("agent", "-m", "change things").returncode == 0
    assert (home.workspace / "moved.txt").read_text() == "the command's\n"
    done = home.ctl("undo", "--turn")
    assert done.returncode == 0, done.stderr
    assert notes.read_text() == "mine\n"
    assert not (home.workspace / "moved.txt").exists()
    # Over a restart, and where a person changed something since.
    home.configure(
        call("shell", command="python3 -c 'import os; os.unlink(\"notes.txt\")'"),
        {"text": "done"},
        tables=FULL,
    )
    assert home.ctl("agent", "-m", "remove it").returncode == 0
    home.kill()
    notes.write_text("a person's\n")
    refused = home.ctl("undo")
    assert refused.returncode == 1
    assert "notes.txt: it was changed since by somebody else" in refused.stderr
    assert home.ctl("undo", "--force").returncode == 0
    assert notes.read_text() == "mine\n"
    assert home.ctl("undo", "--redo").returncode == 0
    assert notes.read_text() == "a person's\n"
    assert home.ctl("receipt", "verify").returncode == 0


def test_files_and_conversation_go_back_to_before_a_message(home: Home) -> None:
    notes = home.workspace / "notes.txt"
    notes.write_text("mine\n")
    home.configure(
        call("file_read", path="notes.txt"),
        call("file_write", path="notes.txt", content="first\n"),
        {"text": "one"},
        call("shell", command="mv notes.txt moved.txt; echo x > made"),
        {"text": "two"},
        call("file_read", path="moved.txt"),
        call("file_write", path="moved.txt", content="third\n"),
        {"text": "three"},
        tables=FULL,
    )
    assert home.ctl("agent", "-m", "begin").returncode == 0
    (first,) = home.json("memory", "list")
    for text in ("move it", "change it"):
        assert home.ctl("agent", "--conversation", first["id"], "-m", text).returncode == 0
    shown = home.json("conversation", "show", first["id"])["messages"]
    asked = {each["content"]: str(each["id"]) for each in shown if each["role"] == "user"}
    back = ("conversation", "rewind", first["id"], "--to", asked["move it"])
    told = home.ctl(*back, "--preview")
    assert "would restore notes.txt" in told.stdout
    assert (home.workspace / "made").exists()
    done = home.ctl(*back)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in home.workspace.iterdir()) == ["notes.txt"]
    assert notes.read_text() == "first\n"
    (made,) = [each for each in home.json("memory", "list") if each["id"] != first["id"]]
    kept = home.json("conversation", "show", made["id"])["messages"]
    assert [each["content"] for each in kept if each["role"] == "user"] == ["begin"]
    # The copy has the past of the old one, which stays.
    start = str(kept[0]["id"])
    assert home.ctl("conversation", "rewind", made["id"], "--to", start).returncode == 0
    assert notes.read_text() == "mine\n"
    assert len(home.json("conversation", "show", first["id"])["messages"]) == len(shown)
    assert home.ctl("receipt", "verify").returncode == 0
