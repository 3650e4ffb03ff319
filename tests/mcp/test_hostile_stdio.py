"""Servers on standard input and output that do what they must not: what the daemon makes of it.

In every case a well-behaved server beside it goes on, the call is answered in words, and nothing
is left when the servers are closed.
"""

import asyncio
import functools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from clawd.mcp.message_filter import _PROGRESS_EVERY_S
from clawd.security.sandbox.process import Level
from tests.mcp.world import PATIENT, World, told
from tests.security.test_sandbox_process import processes_with
from tests.support.rows import all_at_once

pytestmark = pytest.mark.sandbox

# What it does, how it stands afterwards, and what the call's answer says.
CASES = [
    ("good", "ready", "hi"),
    ("hang-at-connect", "waiting", "is not connected: "),
    ("dies-at-connect", "waiting", "cannot find its configuration"),
    ("silent", "waiting", "is not connected: "),
    ("absurd-revision", "waiting", "2099-99-99"),
    ("revision-is-no-text", "waiting", "handshake cannot be read"),
    ("bare-handshake", "ready", "hi"),
    ("ignores-unknown", "ready", "hi"),
    ("dies-of-unknown", "ready", "hi"),
    ("hang-at-list", "waiting", "is not connected: "),
    ("dies-at-list", "waiting", "is not connected: "),
    ("list-is-null", "ready", "hi"),
    ("list-is-an-error", "waiting", "no list today"),
    ("cursor-loop", "ready", "hi"),
    ("endless-pages", "ready", "hi"),
    ("many-tools", "ready", "hi"),
    ("bad-schemas", "ready", "hi"),
    ("absurd-names", "ready", "hi"),
    ("hang-in-call", "ready", "did not answer within 1 s"),
    ("stops-reading", "ready", "did not answer within 1 s"),
    ("dies-in-call", None, "ended with code 9"),
    ("null-is-error", "ready", "hi"),
    ("no-content", "ready", ""),
    ("unknown-content", "ready", "hologram"),
    ("huge-line", None, "a line has more than"),
    ("endless-line", None, "a line has more than"),
    ("large-result", "ready", "[cut: the result has more than"),
    ("call-error", "ready", "tool dispatch failed: no such tool"),
    ("wrong-answer", "ready", "hi"),
    ("answers-twice", "ready", "hi"),
    ("result-is-a-list", "ready", "is no valid message"),
    ("deep-result", "ready", "nests more than"),
    ("asks-for-everything", "ready", "hi"),
    ("junk", "ready", "hi"),
    ("stderr-flood", "ready", "hi"),
    ("junk-flood", None, "prints too much that nobody asked for"),
    ("notification-flood", None, "prints too much that nobody asked for"),
    ("list-changed-storm", None, "prints too much that nobody asked for"),
    ("ignores-the-end", "ready", "hi"),
    ("ignores-everything", "ready", "hi"),
    ("grandchildren", "ready", "hi"),
    ("slow-close", "ready", "hi"),
]
# Of these, one is asked for the newest revision in vain, and has to be connected all the same.
_HANGS_AT_CONNECT = {
    "hang-at-connect": 1.5,
    "silent": 1.5,
    "hang-at-list": 1.5,
    "ignores-unknown": 24.0,
}
_HANGS_IN_CALL = {"hang-in-call", "stops-reading"}


@asynccontextmanager
async def world_in(folder: Path, level: Level = "bwrap") -> AsyncIterator[World]:
    """Make a world of which nothing may be left when it is closed."""
    folder.mkdir(exist_ok=True)
    world = World(folder, level)
    try:
        yield world
    finally:
        await world.close()
    assert processes_with(world.tag) == []
    assert world.registry.held == set()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with world_in(tmp_path) as world:
        yield world


@pytest.mark.timeout(600)
async def test_a_server_that_misbehaves_harms_nobody_else(tmp_path: Path) -> None:
    await all_at_once(
        (how, functools.partial(_harms_nobody_else, tmp_path / how, how, link, words))
        for how, link, words in CASES
    )


async def _harms_nobody_else(folder: Path, how: str, link: str | None, words: str) -> None:
    async with world_in(folder) as world:
        bad = world.program(
            how,
            connect_timeout_s=_HANGS_AT_CONNECT.get(how, 60.0),
            call_timeout_s=1.0 if how in _HANGS_IN_CALL else 60.0,
        )
        if link != "waiting":
            world.timing = PATIENT
        beside = msgspec.structs.replace(world.program("good"), alias="beside")
        world.start(bad, beside)
        await world.ready("beside")
        async with asyncio.timeout(90):
            await world.servers.connect(how)
        if link is not None:
            await world.until(lambda: world.state(how).link in {link, "waiting"})
            assert world.state(how).link == link, world.state(how).problem
        await world.call_beside(how, words)


@pytest.mark.parametrize("level", [pytest.param("landlock", marks=pytest.mark.landlock), "none"])
async def test_at_the_other_levels_nothing_is_left_either(tmp_path: Path, level: Level) -> None:
    await all_at_once(
        (how, functools.partial(_leaves_nothing, tmp_path / how, level, how))
        for how in ("good", "ignores-everything", "grandchildren", "dies-in-call")
    )


async def _leaves_nothing(folder: Path, level: Level, how: str) -> None:
    async with world_in(folder, level) as world:
        world.start(world.program(how))
        await world.ready(how)
        assert told(await world.call(how))


async def test_one_that_dies_when_idle_is_noticed_and_comes_back(world: World) -> None:
    world.start(world.program("dies-when-idle"))
    await world.ready("dies-when-idle")
    await world.until(lambda: world.state("dies-when-idle").link == "waiting")
    assert world.state("dies-when-idle").problem == "the server ended with code 4"
    assert world.state("dies-when-idle").tools, "what it offered stays, so that prompts do"
    await world.ready("dies-when-idle", connects=2)


async def test_one_that_died_in_a_call_serves_the_next_call(world: World) -> None:
    world.timing = PATIENT
    world.start(world.program("good"))
    await world.ready("good")
    assert "was lost" in told(await world.call("good", tool="die"))
    assert told(await world.call("good", "again")) == "again"
    assert world.state("good").connects == 2


async def test_bad_tools_are_quarantine_and_the_others_offered(world: World) -> None:
    world.start(world.program("bad-schemas"), world.program("absurd-names"))
    schemas = await world.ready("bad-schemas")
    assert [tool.name for tool in schemas.tools] == ["none", "empty", "text", "array", "echo"]
    assert [tool.schema["type"] for tool in schemas.tools] == ["object"] * 5
    assert [tool.repaired for tool in schemas.tools] == [
        "it had no schema",
        "its schema was empty",
        "it had no schema",
        "its schema was not that of an object",
        "",
    ]
    reasons = {each.name: each.reason for each in schemas.quarantined}
    assert "nests more than" in reasons["deep"]
    assert "bytes" in reasons["huge"]
    assert "number that is none" in reasons["nan"]
    names = await world.ready("absurd-names")
    assert [tool.name for tool in names.tools] == ["dots.and/slashes and blanks", "echo"]
    assert names.tools[1].description == "says it again"


async def test_lists_without_an_end_are_cut(world: World) -> None:
    world.start(
        world.program("cursor-loop"),
        world.program("endless-pages", max_tools=50),
        world.program("many-tools", max_tools=50),
    )
    assert len((await world.ready("cursor-loop")).tools) == 1
    assert len((await world.ready("endless-pages")).tools) == 50
    many = await world.ready("many-tools")
    assert len(many.tools) == 50
    assert many.quarantined[-1].reason == "and 2850 more"


async def test_a_change_of_tools_is_told_and_read(world: World) -> None:
    world.start(world.program("changes-tools"))
    await world.ready("changes-tools")
    await world.call("changes-tools")
    await world.until(lambda: len(world.state("changes-tools").tools) == 2)
    assert world.state("changes-tools").connects == 1


async def test_who_called_what_changed_the_tools_finds_them_changed(world: World) -> None:
    how = "changes-tools-in-call"
    world.timing = msgspec.structs.replace(PATIENT, settle_s=60.0)
    world.start(world.program(how))
    await world.ready(how)
    for count in (2, 3):
        await world.call(how)
        assert len(world.state(how).tools) == count


async def test_a_call_that_is_cancelled_is_told_to_the_server(world: World) -> None:
    world.start(world.program("hang-in-call"))
    await world.ready("hang-in-call")
    task = asyncio.create_task(world.call("hang-in-call"))
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.state("hang-in-call").link == "ready"
    await world.printed("hang-in-call", "notifications/cancelled")
    await world.close()
    log = (world.folder / "hang-in-call.stderr.log").read_text()
    assert "notifications/cancelled" in log


async def test_what_a_server_asks_for_is_declined_politely(world: World) -> None:
    world.start(world.program("asks-for-everything"))
    await world.ready("asks-for-everything")
    assert told(await world.call("asks-for-everything")) == "hi"
    for word in ("s0 ", "e0 ", "r0 "):
        await world.printed("asks-for-everything", f"{word}{{")
    await world.close()
    log = (world.folder / "asks-for-everything.stderr.log").read_text()
    for word in ("s0 ", "e0 ", "r0 "):
        line = next(each for each in log.splitlines() if each.startswith(word))
        assert "code" in line, line


async def test_calls_run_side_by_side(world: World) -> None:
    world.start(world.program("slow"))
    await world.ready("slow")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(world.call("slow", str(i))) for i in range(40)]
    assert [told(task.result()) for task in tasks] == [str(i) for i in range(40)]


async def test_progress_is_handed_on(world: World) -> None:
    world.start(world.program("progress"))
    await world.ready("progress")
    seen: list[tuple[float, float | None, str]] = []
    result = await world.servers.call(
        "progress", "echo", {"text": "x"}, progress=lambda *words: seen.append(words)
    )
    assert (told(result), seen) == ("x", [(1.0, 2.0, "half")])


async def test_of_a_flood_of_progress_the_end_arrives_and_little_else(world: World) -> None:
    world.start(world.program("progress-flood"))
    await world.ready("progress-flood")
    for _ in range(2):
        began = time.monotonic()
        seen: list[float] = []
        await world.servers.call(
            "progress-flood",
            "echo",
            {"text": "x"},
            progress=lambda done, *_rest, seen=seen: seen.append(done),
        )
        assert 300.0 in seen
        assert len(seen) <= 2 + (time.monotonic() - began) / _PROGRESS_EVERY_S


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_revision_of_the_handshake_is_spoken(world: World, revision: str) -> None:
    world.start(world.program("good", revision))
    assert (await world.ready("good")).revision == revision
    assert told(await world.call("good")) == "hi"


async def test_a_server_sees_its_own_variables_and_nothing_of_the_daemon(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAEMONS_OWN", "private")
    world.start(world.program("good", env={"GIVEN": "yes"}))
    await world.ready("good")
    seen = json.loads(told(await world.call("good", tool="env")))
    assert seen["GIVEN"] == "yes"
    assert not {name for name in seen if name.startswith(("DAEMONS", "PYTHON", "CLAWD"))}


async def test_the_emergency_stop_ends_it_and_it_comes_back_only_when_that_is_cleared(
    world: World,
) -> None:
    world.start(world.program("good"))
    await world.ready("good")
    world.is_stopped = True
    world.registry.stop()
    await world.until(lambda: "emergency stop" in world.state("good").problem)
    assert processes_with(world.tag) == []
    assert "emergency stop" in told(await world.call("good"))
    world.is_stopped = world.registry.is_set = False
    await world.ready("good", connects=2)


async def test_the_last_words_are_kept_in_a_file_without_secrets(world: World) -> None:
    world.start(world.program("stderr-flood"), world.program("dies-at-connect"))
    await world.ready("stderr-flood")
    await world.until(lambda: "last words" in world.state("dies-at-connect").problem)
    await world.printed("stderr-flood", "complaint", at_least=50_001)
    await world.close()
    log = world.folder / "stderr-flood.stderr.log"
    assert log.stat().st_mode & 0o777 == 0o600
    assert 50_000 < log.stat().st_size <= 64 << 10  # cut at the end of a line of 10,001 bytes
    assert "configuration" in (world.folder / "dies-at-connect.stderr.log").read_text()


async def test_a_secret_of_the_settings_is_not_in_the_log(world: World) -> None:
    world.start(world.program("notes", env={"KEY": "notifications/initialized"}))
    await world.ready("notes")
    await world.call("notes")
    await world.printed("notes", "[secret:")
    await world.close()
    text = (world.folder / "notes.stderr.log").read_text()
    assert "[secret:" in text
    assert "notifications/initialized" not in text


async def test_disconnected_by_hand_it_stays_so_until_connected_by_hand(world: World) -> None:
    world.start(world.program("good"))
    await world.ready("good")
    assert (await world.servers.disconnect("good")).link == "off"
    assert (world.state("good").tools, processes_with(world.tag)) == ((), [])
    assert "is disconnected" in told(await world.call("good"))
    state = await world.servers.connect("good")
    assert (state.link, len(state.tools)) == ("ready", 1)


async def test_another_configuration_starts_ends_and_changes_what_it_names(world: World) -> None:
    one, two = world.program("good"), msgspec.structs.replace(world.program("good"), alias="two")
    world.start(one, two)
    await world.ready("good")
    await world.ready("two")
    three = msgspec.structs.replace(one, alias="three")
    changed = msgspec.structs.replace(two, env={"NEW": "1"})
    await world.servers.adopt((three, changed))
    await world.ready("two")
    await world.ready("three")
    assert [state.alias for state in world.servers.states()] == ["three", "two"]
    assert "there is no MCP server" in told(await world.call("good"))
    assert json.loads(told(await world.call("two", tool="env")))["NEW"] == "1"


async def test_p11_a_program_that_cannot_run_is_reported_with_what_to_do(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / ".local" / "bin" / "uvx"
    hidden.parent.mkdir(parents=True)
    hidden.write_text("#!/bin/sh\n")
    hidden.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    fetcher = tmp_path / "workspace" / "npx"
    fetcher.write_text("#!/bin/sh\necho fetching >&2\nexec sleep 60\n")
    fetcher.chmod(0o755)
    good = world.program("good")
    replace = msgspec.structs.replace
    world.start(
        replace(good, alias="nosuch", command=("no-such-program",)),
        replace(good, alias="hidden", command=("uvx", "mcp-server-time")),
        replace(good, alias="slow", command=(str(fetcher),), connect_timeout_s=10.0),
    )
    expected = {
        "nosuch": ["no program no-such-program on this machine's PATH", "[mcp.servers.nosuch]"],
        "hidden": [f"{hidden} is there, and the sandbox hides it", "readonly_paths"],
        "slow": [
            "did not answer within 10 s",
            "last words: fetching",
            "hosts in [mcp.servers.slow]",
        ],
    }
    await world.until(lambda: all((each, "waiting") in world.links for each in expected))
    for words in expected.values():
        assert [each for each in world.problems if all(word in each for word in words)], (
            words,
            world.problems,
        )


async def test_h8_one_that_is_slow_to_name_the_newest_revision_is_connected_in_it_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revisions = {"slow-newest": "2026-07-28", "slow-newest-always": "2025-11-25"}
    for how, revision in revisions.items():
        monkeypatch.setattr("clawd.mcp.connection._DISCOVER_SHARE", 0.01)
        async with world_in(tmp_path / how) as world:
            world.start(world.program(how, workspace_access="write"))
            await world.ready(how)
            if how == "slow-newest":  # it answers now, and is in time when it is asked again
                monkeypatch.setattr("clawd.mcp.connection._DISCOVER_SHARE", 0.9)
                (world.workspace / f"{how}.go").touch()
            assert (await world.ready(how, connects=2)).revision == revision
            assert told(await world.call(how, "hi")) == "hi"
            assert world.state(how).connects == 2
