"""`allowed-tools` of a skill: what it names is judged as before, everything else is asked about."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.security.policy import PolicySettings
from clawd.security.risk import Action, Assessment, Need
from clawd.tools.narrowing import INWARD, Narrowing, outside
from clawd.wire.turns import SendMessage
from tests.security.fakes import ADA
from tests.support.dispatching import Bench, Probe, request
from tests.support.inprocess import OWNER, daemon_in
from tests.support.rows import each_row

WORK = Path("/srv/project")
GIT = Need(kind="words", text="git log -1", words=("git", "log", "-1"), risk="low")
CAT = Need(kind="words", text="cat a", words=("cat", "a"), risk="low")
OTHER = Need(kind="other", text="it sets LD_PRELOAD")


def action(tool: str, *needs: Need, places: tuple[str, ...] = ()) -> Action:
    return Action(
        tool=tool,
        arguments=b"{}",
        assessment=Assessment(risk="low", needs=needs),
        conversation_id="c",
        call_id="1",
        principal=ADA,
        workspace=WORK,
        places=places,
    )


NAMED: dict[str, tuple[str, Action]] = {
    "its own name": ("file_read", action("file_read")),
    "a star": ("*", action("shell")),
    "a pattern of names": ("knowledge_*", action("knowledge_load")),
    "Read": ("Read", action("grep")),
    "Edit": ("Edit", action("file_append")),
    "Write": ("Write", action("file_write")),
    "Bash": ("Bash", action("shell", OTHER)),
    "WebFetch": ("WebFetch", action("web_fetch")),
    "WebSearch": ("WebSearch", action("web_search")),
    "a server": ("mcp__github", action("github__get_issue")),
    "a server's tool": ("mcp__github__get_issue", action("github__get_issue")),
    "words": ("Bash(git log *)", action("shell", GIT)),
    "words with a colon": ("Bash(git:*)", action("shell", GIT, GIT)),
    "a star of words": ("Bash(*)", action("shell", OTHER)),
    "a path": ("Edit(docs/**)", action("file_write", places=("/srv/project/docs/.a/b.md",))),
    "a path from here": ("Read(./a.md)", action("file_read", places=("/srv/project/a.md",))),
}
OUTSIDE: dict[str, tuple[str, Action]] = {
    "another tool": ("file_read", action("shell")),
    "Read does not write": ("Read", action("file_write")),
    "Edit does not run": ("Edit", action("fs_ops")),
    "another server": ("mcp__github", action("gitlab__get_issue")),
    "a server of a like name": ("mcp__git", action("github__get_issue")),
    "other words": ("Bash(git commit *)", action("shell", GIT)),
    "one of two commands": ("Bash(git *)", action("shell", GIT, CAT)),
    "what is no words": ("Bash(git *)", action("shell", GIT, OTHER)),
    "what cannot be told": ("Bash(git *)", action("shell")),
    "another path": ("Edit(docs/*)", action("file_write", places=("/srv/project/docs/a/b.md",))),
    "one of two paths": (
        "Read(a)",
        action("file_read", places=("/srv/project/a", "/srv/project/b")),
    ),
    "a path outside": ("Read(**)", action("file_read", places=("/etc/passwd",))),
    "a path of a tool without": ("Read(**)", action("grep")),
    "an unclosed pattern": ("Bash(git commit *", action("shell", GIT)),
    "a domain": ("WebFetch(domain:example.org)", action("web_fetch")),
    "nothing": ("", action("file_read")),
}


@each_row("name", NAMED)
def test_what_is_named_is_not_asked_about(name: str) -> None:
    entry, call = NAMED[name]
    assert outside((Narrowing(by="the skill s", tools=("nothing", entry)),), call) == ""


@each_row("name", OUTSIDE)
def test_what_is_not_named_is(name: str) -> None:
    entry, call = OUTSIDE[name]
    said = outside((Narrowing(by="the skill s", tools=(entry,)),), call)
    assert said == f"the skill s allows itself only: {entry}"


def test_each_of_two_narrows_and_none_narrows_nothing() -> None:
    one, two = (Narrowing(by=name, tools=(name,)) for name in ("shell", "grep"))
    assert outside((), action("shell")) == ""
    assert outside((one, two), action("shell")).startswith("grep")
    assert outside((one, two), action("grep")).startswith("shell")
    assert all(outside((one, two), action(tool)) == "" for tool in INWARD)


NARROWED = (Narrowing(by="the skill notes", tools=("Read",)),)


async def called(bench: Bench, tool: Probe, **policy: Any) -> str:
    dispatcher = bench.dispatcher([tool], policy=PolicySettings(**policy))
    scope = msgspec.structs.replace(bench.scope(), narrowed=NARROWED)
    assert not dispatcher.may_run_beside(request(tool.name), scope)
    return (await dispatcher.call(request(tool.name), scope)).status


@pytest.mark.asyncio
@each_row("mode", ["supervised", "edits", "full"])
@each_row("word", ["once", "deny"], fresh=["bench"])
async def test_a_call_outside_asks_in_every_mode(bench: Bench, mode: str, word: Any) -> None:
    tool = Probe()
    async with asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(called(bench, tool, autonomy=mode))
        pending = await bench.answer(word)
    assert pending.question.reason == "the skill notes allows itself only: Read"
    assert (calling.result(), tool.calls) == (("allowed", 1) if word == "once" else ("denied", 0))


@pytest.mark.asyncio
@each_row("mode", ["supervised", "full"], fresh=["bench"])
async def test_where_nobody_is_there_it_is_refused(bench: Bench, mode: str) -> None:
    bench.is_reachable = False
    tool = Probe()
    assert (await called(bench, tool, autonomy=mode), tool.calls) == ("denied", 0)


@pytest.mark.asyncio
async def test_what_is_named_gets_nothing_by_it(bench: Bench) -> None:
    tool = Probe("file_read", risk="high")
    assert await called(bench, tool, autonomy="supervised") == "denied"
    tool = Probe("file_read", risk="medium")
    bench.is_reachable = False
    assert await called(bench, tool, autonomy="supervised") == "denied"
    assert tool.calls == 0


@pytest.mark.asyncio
async def test_a_message_may_narrow_its_turn(tmp_path: Path) -> None:
    calls = [{"name": "evaluate", "arguments": {"code": "1"}}, {"name": "file_list"}]
    script = tmp_path / "script.json"
    script.write_text(
        msgspec.json.encode({"replies": [{"tool_calls": calls}, {"text": "."}] * 2}).decode()
    )
    async with daemon_in(tmp_path, f'script = "{script}"\n') as inside:
        for allowed in (("Read",), ()):
            await inside.ask(SendMessage(text="go", allowed_tools=allowed), OWNER)
        statuses = [(each.tool, each.status) for each in inside.receipts()]
        narrowed, free = statuses[:2], statuses[2:]  # what only looks runs side by side
        assert narrowed == [("evaluate", "denied"), ("file_list", "allowed")]
        assert sorted(free) == [("evaluate", "allowed"), ("file_list", "allowed")]
