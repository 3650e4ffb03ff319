"""Servers that others wrote, in the sandbox of a real daemon, used through chat and clawctl."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawd.errors import ClawError
from clawd.wire.events import ToolProgress
from tests.mcp_real.chats import (
    chat,
    client_of,
    lines,
    planned,
    receipts,
    send,
    until_link,
)
from tests.mcp_real.servers import (
    STDIO,
    everything_over_http,
    npm,
    real_servers,
    repository_in,
    table,
)
from tests.support.home import Home

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.sandbox,
    pytest.mark.mcp_servers,
    pytest.mark.timeout(400),
]

Calls = list[tuple[str, dict[str, Any]]]

THOUGHT = {"thought": "first", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
ADA = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
TIME = {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo", "time": "01:30"}

NAMES = (
    ("everything", "echo"),
    ("files", "edit_file"),
    ("memory", "read_graph"),
    ("thinking", "sequentialthinking"),
    ("clock", "get_current_time"),
    ("git", "git_diff"),
)


@pytest.fixture
def url() -> Iterator[str]:
    with everything_over_http() as found:
        yield found


def useful(workspace: Path) -> list[tuple[str, dict[str, Any], str]]:
    """Return calls that succeed: tool, arguments, what the result holds."""
    there = {"repo_path": str(workspace)}
    note = str(workspace / "note.txt")
    return [
        ("everything__echo", {"message": "hello"}, "Echo: hello"),
        ("everything__get-sum", {"a": 2, "b": 40}, "is 42"),
        ("everything__get-structured-content", {"location": "Chicago"}, '"temperature"'),
        ("everyhttp__echo", {"message": "hello"}, "Echo: hello"),
        ("everyhttp__get-sum", {"a": 2, "b": 40}, "is 42"),
        ("files__write_file", {"path": note, "content": "words"}, "note.txt"),
        ("files__read_text_file", {"path": note}, "words"),
        ("files__list_directory", {"path": str(workspace)}, "[FILE] a.txt"),
        ("memory__create_entities", {"entities": [ADA]}, "Ada"),
        ("memory__search_nodes", {"query": "Ada"}, "counts"),
        ("thinking__sequentialthinking", THOUGHT, '"thoughtHistoryLength": 1'),
        ("clock__convert_time", TIME, "10:30:00+09:00"),
        ("git__git_log", {**there, "max_count": 1}, "First"),
        ("git__git_status", there, "note.txt"),
    ]


def wrong(workspace: Path) -> list[tuple[str, dict[str, Any], str]]:
    """Return calls that fail: tool, arguments, what the model can read of why."""
    there = {"repo_path": str(workspace)}
    zone = TIME | {"source_timezone": "Mars/Base"}
    lost = {"observations": [{"entityName": "Nobody", "contents": ["x"]}]}
    return [
        ("everything__get-sum", {"a": "two", "b": 40}, "`a` is"),
        ("everyhttp__get-sum", {"a": 1}, "`b`"),
        ("files__read_text_file", {"path": "/etc/passwd"}, "Access denied"),
        ("files__read_text_file", {"path": str(workspace / "none")}, "ENOENT"),
        ("memory__add_observations", lost, "Nobody"),
        ("thinking__sequentialthinking", THOUGHT | {"thoughtNumber": 0}, "thoughtNumber"),
        ("clock__convert_time", zone, "Mars/Base"),
        ("git__git_show", {**there, "revision": "no-such"}, "no-such"),
        ("everything__no-such-tool", {}, "everything__no-such-tool"),
    ]


def test_every_server_is_of_use_and_says_what_is_wrong(home: Home, url: str) -> None:
    repository_in(home.workspace)
    good, bad = useful(home.workspace), wrong(home.workspace)
    calls: dict[str, Calls] = {
        f"call {number}.": [(tool, arguments)]
        for number, (tool, arguments, _) in enumerate(good + bad)
    }
    tables = real_servers(home.workspace, "none") + table("everyhttp", url=url)
    home.configure(*planned(calls), tables=tables)
    home.start()
    until_link(home, *STDIO, "everyhttp")
    for number, (tool, _, words) in enumerate(good + bad):
        heard = chat(home, f"call {number}.")
        status = "allowed" if number < len(good) else "failed"
        assert [each.status for each in heard.results] == [status], (tool, heard.said)
        assert words in heard.said, tool
    assert (home.workspace / "note.txt").read_text() == "words"
    assert "Ada" in (home.workspace / "memory.jsonl").read_text()
    found = receipts(home)
    assert [tool for tool, _, _ in found] == [tool for tool, _, _ in good + bad]
    assert all(approval == "user" for _, _, approval in found[: len(good)])
    assert home.ctl("receipt", "verify").returncode == 0


def everything(**keys: Any) -> str:
    return npm("everything", "mcp-server-everything", workspace_access="none", **keys)


FULL = '[security]\nautonomy = "full"\n'
TEXT, BLOB = ({"resourceType": kind, "resourceId": 1} for kind in ("Text", "Blob"))
ZIP = {"name": "z.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resource"}
PICTURES: Calls = [
    ("everything__get-tiny-image", {}),
    ("everything__get-resource-reference", TEXT),
    ("everything__get-resource-reference", BLOB),
    ("everything__gzip-file-as-resource", ZIP),
    ("everything__get-resource-links", {"count": 3}),
]


def test_pictures_and_resources_are_kept_beside_the_conversation(home: Home) -> None:
    home.configure(*planned({"show": PICTURES}), tables=everything() + FULL)
    home.start()
    until_link(home, "everything")
    heard = chat(home, "show")
    assert [each.status for each in heard.results] == ["allowed"] * len(PICTURES), heard.said
    kept = home.json("files", "list", "-c", heard.conversation)
    names = {each["name"] for each in kept if each["is_kept"]}
    assert names == {
        "everything__get-tiny-image-1.png",
        "everything__get-resource-reference-2.txt",
        "everything__get-resource-reference-3.txt",
        "everything__gzip-file-as-resource-4.gz",
    }
    assert all(f"kept as file+session://{name}]" in heard.said for name in names)
    assert heard.said.count("[link to demo://") == 3
    contents = {name: saved(home, name, heard.conversation) for name in names}
    assert contents["everything__get-tiny-image-1.png"].startswith(b"\x89PNG")
    assert gzip.decompress(contents["everything__gzip-file-as-resource-4.gz"]) == b"hello"
    assert b"Resource 1" in contents["everything__get-resource-reference-3.txt"]


def saved(home: Home, name: str, conversation: str) -> bytes:
    copy = home.workspace / f"copy-{name}"
    assert home.ctl("files", "save", name, str(copy), "-c", conversation).returncode == 0
    return copy.read_bytes()


LONG = {"duration": 600, "steps": 6_000}
SHORT = {"duration": 1, "steps": 3}


def test_a_long_call_tells_its_progress_and_can_be_cancelled(home: Home, url: str) -> None:
    tool = "trigger-long-running-operation"
    plan: dict[str, Calls] = {
        "long on stdio": [(f"everything__{tool}", LONG)],
        "long over http": [(f"everyhttp__{tool}", LONG)],
        "short": [(f"everything__{tool}", SHORT), (f"everyhttp__{tool}", SHORT)],
    }
    home.configure(*planned(plan), tables=everything() + table("everyhttp", url=url) + FULL)
    home.start()
    until_link(home, "everything", "everyhttp")
    for word in ("long on stdio", "long over http"):
        with client_of(home) as client:
            stream = send(client, word)
            told = next(each.text for each in stream if isinstance(each, ToolProgress))
            assert "1/6000" in told
            stream.cancel()
            with pytest.raises(ClawError) as raised:
                list(stream)
        assert raised.value.code == "cancelled"
    heard = chat(home, "short")
    assert [each.status for each in heard.results] == ["allowed", "allowed"]
    assert "3/3" in "".join(heard.progress)
    found = [(each["status"], each["reason"]) for each in home.receipt_lines()]
    assert found[:2] == [("failed", "cancelled")] * 2
    assert {each.connects for each in lines(home).values()} == {1}


def test_what_needs_a_person_and_what_taints(home: Home, url: str) -> None:
    plan: dict[str, Calls] = {
        "sum": [("everything__get-sum", {"a": 1, "b": 2})],
        "echo": [("everything__echo", {"message": "hi"})],
        "web": [("everyhttp__echo", {"message": "out"})],
    }
    approve = '[mcp.auto_approve]\ntools = ["everything__echo", "everyhttp__*"]\n'
    tables = everything() + table("everyhttp", url=url) + approve
    home.configure(*planned(plan), tables=tables)
    home.start()
    until_link(home, "everything", "everyhttp")
    denied = chat(home, "sum", answer="deny")
    assert "denied" in denied.said and denied.results[0].status == "denied"
    approved = chat(home, "sum")
    assert (approved.asked[0].risk, "everything" in approved.asked[0].reason) == ("medium", True)
    fresh = chat(home, "web")
    assert (fresh.asked, "Echo: out" in fresh.said) == ((), True)
    clean = chat(home, "echo")
    assert clean.asked == ()
    tainted = chat(home, "web", clean.conversation, answer="deny")
    assert tainted.results[0].status == "denied"
    assert "mcp everything" in tainted.asked[0].reason
    assert receipts(home) == [
        ("everything__get-sum", "denied", "none"),
        ("everything__get-sum", "allowed", "user"),
        ("everyhttp__echo", "allowed", "auto"),
        ("everything__echo", "allowed", "auto"),
        ("everyhttp__echo", "denied", "none"),
    ]


def test_clawctl_lists_calls_disconnects_and_connects_them(home: Home) -> None:
    repository_in(home.workspace)
    home.configure({"text": "ok"}, tables=real_servers(home.workspace, "none") + FULL)
    home.start()
    until_link(home, *STDIO)
    listed = home.ctl("mcp", "list")
    assert all(alias in listed.stdout for alias in STDIO)
    tools = {each["name"] for each in home.json("mcp", "tools")["items"]}
    for alias, tool in NAMES:
        assert f"{alias}__{tool}" in tools
        shown = home.ctl("mcp", "tool", alias, tool)
        assert (shown.returncode, "example: clawctl mcp tool" in shown.stderr) == (0, True)
    ran = home.ctl("mcp", "tool", "clock", "convert_time", "--json", json.dumps(TIME))
    assert (ran.returncode, "10:30:00+09:00" in ran.stdout) == (0, True)
    assert home.ctl("mcp", "disconnect", "clock").returncode == 0
    assert home.ctl("mcp", "tool", "clock", "convert_time", "--json", "{}").returncode == 1
    assert not any(name.startswith("clock__") for name in offered(home))
    assert home.ctl("mcp", "connect", "clock").returncode == 0
    again = home.ctl("mcp", "tool", "clock", "convert_time", "--json", json.dumps(TIME))
    assert again.returncode == 0, again.stderr
    assert lines(home)["clock"].connects == 2


def offered(home: Home) -> set[str]:
    return {each["name"] for each in home.json("tool", "list")}
