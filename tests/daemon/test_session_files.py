"""Session files for real: a long command, clawctl, a killed daemon, and what leads nowhere else."""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.wire.conversations import WriteSessionFile
from clawd.wire.tools import RunTool
from clawd.wire.turns import SendMessage
from tests.support.home import DEADLINE_S, Home
from tests.support.inprocess import daemon_in
from tests.support.lent_home import LentHome
from tests.support.rows import thorough
from tests.support.terminal import code_of, spawn_clawctl

pytestmark = pytest.mark.daemon

FULL = '[security]\nautonomy = "full"'


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}


def conversation_of(home: Home) -> str:
    identity: str = home.json("memory", "list")[0]["id"]
    return identity


def results_of(home: Home, conversation: str) -> list[str]:
    messages = home.json("memory", "show", conversation)["messages"]
    return [each["content"] for each in messages if each["role"] == "tool"]


@pytest.mark.sandbox
def test_the_rest_of_long_output_is_read_by_reference(home: Home) -> None:
    path = "file+session://shell-1.txt"
    home.configure(
        call("shell", command="seq 1 60000"),
        call("file_read", path=path, start_line=59_999, max_lines=5),
        call("grep", path=path, pattern="^4321$"),
        call("file_write", path="file+session://found.txt", content="4321\n"),
        call("file_list", path="file+session://"),
        {"text": "done"},
        tables=FULL,
    )
    assert home.ctl("agent", "-m", "count").returncode == 0
    conversation = conversation_of(home)
    told = results_of(home, conversation)
    assert told[0].startswith("1\n2\n3\n")
    whole = int(told[0].partition("[cut: the whole, ")[2].partition(" bytes")[0])
    assert whole > 300 * 1024
    assert told[0].endswith(f"is {path}; file_read with offset=65536 shows more of it]")
    assert told[1].startswith("59999|59999\n60000|60000")
    assert told[2] == f"{path}:4321:4321"
    assert "found.txt (text/plain, 5 bytes): 1 line: 4321" in told[4]
    listed = home.json("files", "list", "--conversation", conversation)
    assert {each["name"]: each["is_kept"] for each in listed} == {
        "found.txt": False,
        "shell-1.txt": True,
    }
    shown = home.ctl("files", "show", "shell-1.txt", "-c", conversation)
    assert len(shown.stdout.rstrip("\n")) in {whole, whole - 1}
    assert "59998\n59999\n60000\n" in shown.stdout
    assert [p.name for p in home.workspace.iterdir()] == []
    risks = [(r["tool"], r["status"], r["risk"]) for r in home.receipt_lines()]
    assert risks[1:] == [
        ("file_read", "allowed", "low"),
        ("grep", "allowed", "low"),
        ("file_write", "allowed", "low"),
        ("file_list", "allowed", "low"),
    ]
    assert home.ctl("receipt", "verify").returncode == 0


def test_a_person_adds_shows_saves_and_deletes_files(home: Home) -> None:
    home.configure(call("file_read", path="file+session://data.bin"), {"text": "done"})
    home.ctl("agent", "-m", "hello")
    conversation = conversation_of(home)
    content = bytes(range(256)) * 40_000  # more than two pieces of a transfer
    content = content[: 8 << 20]
    source = home.workspace / "data.bin"
    source.write_bytes(content)
    asked = ("-c", conversation)
    added = home.ctl("files", "add", str(source), *asked)
    assert (added.returncode, added.stderr) == (0, "")
    assert f"{len(content)} B" in added.stdout
    copy = home.workspace / "copy.bin"
    assert home.ctl("files", "save", "data.bin", str(copy), *asked).returncode == 0
    assert copy.read_bytes() == content
    again = home.ctl("files", "save", "data.bin", str(copy), *asked)
    assert (again.returncode, "cannot be written" in again.stderr) == (1, True)
    typed = home.ctl("files", "add", "-", "--name", "n.txt", *asked, stdin="héllo\x1b[31m\n")
    assert typed.returncode == 0
    assert home.ctl("files", "show", "n.txt", *asked).stdout == "héllo‹U+001B›[31m\n"
    assert home.json("files", "show", "n.txt", *asked)["text"] == "héllo\x1b[31m\n"
    assert home.ctl("files", "delete", "n.txt", *asked).stdout == "deleted n.txt\n"
    assert home.ctl("files", "show", "n.txt", *asked).returncode == 1
    assert "data.bin" in home.ctl("files", "list", *asked).stdout
    source.write_bytes(b"x" * (8 << 20) + b"y")
    assert home.ctl("files", "add", str(source), *asked).returncode == 1
    for name in ("../x", "a/b", "", ".x", "file+session://x"):
        refused = home.ctl("files", "add", "-", "--name", name, *asked, stdin="x")
        assert (refused.returncode, "no name of a session file" in refused.stderr) == (1, True)
    assert home.ctl("files", "list", "-c", "conv-nothing").returncode == 1


def test_the_repl_lists_the_files_of_its_conversation(home: Home) -> None:
    home.configure(call("file_write", path="file+session://n.txt", content="hello"), {"text": "ok"})
    home.start()
    child = spawn_clawctl(dict(home.environ, TERM="xterm"), "agent")
    child.expect("/help lists the commands")
    child.sendline("/files")
    child.expect("it has no files yet")
    child.sendline("write it")
    child.expect("ok")
    child.sendline("/files")
    child.expect("n.txt +text/plain +5 +.* 1 line: hello")
    child.sendline("/clear")
    child.sendline("/files")
    child.expect("it has no files yet")
    child.sendline("/exit")
    assert code_of(child) == 0


def test_what_was_kept_survives_kill_9(home: Home) -> None:
    home.configure({"text": "done"})
    home.ctl("agent", "-m", "hello")
    conversation = conversation_of(home)
    for number in range(4 if thorough() else 2):
        name = f"f{number}.txt"
        add = ("files", "add", "-", "--name", name, "-c", conversation)
        assert home.ctl(*add, stdin=f"content {number}").returncode == 0
        home.kill()
        listed = home.json("files", "list", "-c", conversation)
        expected = {f"f{each}.txt" for each in range(number + 1)}
        assert {each["name"] for each in listed} == expected
        assert home.ctl("files", "show", name, "-c", conversation).stdout == f"content {number}\n"
    assert home.ctl("memory", "check").returncode == 0


def test_no_door_makes_a_folder_of_a_reference(home: Home) -> None:
    home.configure(tables=FULL)
    for path in (
        "file+session://x.txt",
        "file+session:/x.txt",
        "FILE+session:x",
        "a/file+session:/x",
    ):
        for tool, arguments in (
            ("file_write", {"path": path, "content": "x"}),
            ("file_append", {"path": path, "content": "x"}),
            ("fs_ops", {"operations": [{"op": "write", "path": path, "content": "x"}]}),
        ):
            done = home.ctl("tool", "run", tool, "--json", json.dumps(arguments), "--no-input")
            assert done.returncode != 0, (tool, path, done.stdout)
    assert list(home.workspace.iterdir()) == []


def test_a_deleted_file_is_overwritten_in_memory_and_its_log(home: Home) -> None:
    home.configure({"text": "done"})
    home.ctl("agent", "-m", "hello")
    asked = ("-c", conversation_of(home))
    home.ctl("files", "add", "-", "--name", "n.txt", *asked, stdin="zanzibar" * 5_000)
    logs = [home.path / f"memory.sqlite{end}" for end in ("", "-wal")]
    assert any(b"zanzibarzanzibar" in log.read_bytes() for log in logs)
    assert home.ctl("files", "delete", "n.txt", *asked).returncode == 0
    deadline = time.monotonic() + DEADLINE_S
    while any(b"zanzibarzanzibar" in log.read_bytes() for log in logs):
        assert time.monotonic() < deadline


async def test_a_call_of_a_conversation_has_its_files(tmp_path: Path) -> None:
    read = RunTool(name="file_read", arguments='{"path": "file+session://n.txt"}')
    async with daemon_in(tmp_path) as inside:
        identity = (await inside.ask(SendMessage(text="hello"))).conversation_id
        write = WriteSessionFile(conversation_id=identity[:12], name="n.txt", content=b"mine")
        await inside.ask(write)
        told = await inside.ask(msgspec.structs.replace(read, conversation_id=identity))
        assert (told.status, told.output) == ("allowed", "1|mine")
        outside = await inside.ask(read)
        assert outside.status == "failed"
        assert "this call is made outside of one" in outside.output


def test_files_go_with_their_conversation(home: Home) -> None:
    home.configure({"text": "done"})
    home.ctl("agent", "-m", "hello")
    conversation = conversation_of(home)
    mark = "zanzibar" * 500
    home.ctl("files", "add", "-", "--name", "n.txt", "-c", conversation, stdin=mark)
    assert home.ctl("memory", "clear", conversation, "--yes").returncode == 0
    assert home.ctl("files", "list", "-c", conversation).returncode == 1
    home.close()
    assert b"zanzibarzanzibar" not in (home.path / "memory.sqlite").read_bytes()
