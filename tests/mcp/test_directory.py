"""The servers of a daemon: told of once, found by name, changed ones noticed."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.mcp.catalogue import CatalogueRules
from clawd.mcp.directory import CHANGE_BURST, CHANGE_INTERVAL_S, ServerDirectory, WantedServers
from clawd.mcp.model import Quarantined, ServerSettings
from clawd.mcp.pins import PinFile
from tests.mcp.remote import FakeServers, a_tool
from tests.support.dispatching import LIMIT_S


class Desk:
    """A directory over servers without connections, and how often it told of other tools."""

    def __init__(self, folder: Path) -> None:
        self.servers = FakeServers({"files": (a_tool("read"),), "web": (a_tool("get"),)})
        self.pins = PinFile(folder / "mcp_tools.json")
        self.directory = ServerDirectory(self.servers, self.pins)
        self.told: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()

    async def open(self, *aliases: str) -> None:
        await self.directory.open(wanted(*aliases), self.take)

    def take(self) -> None:
        self.told.put_nowait(tuple(tool.name for tool in self.directory.tools(())))

    async def news(self) -> tuple[str, ...]:
        async with asyncio.timeout(LIMIT_S):
            return await self.told.get()


def wanted(*aliases: str) -> WantedServers:
    servers = {alias: ServerSettings(alias=alias, command=("x",)) for alias in aliases}
    return WantedServers(
        rules=CatalogueRules(servers=servers), problems={"lost": "its token is missing"}
    )


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path)
    yield made
    await made.directory.close()
    assert made.servers.is_closed


async def test_tools_are_told_of_when_they_come(desk: Desk) -> None:
    await desk.open("files", "web")
    assert await desk.news() == ("files__read", "web__get")
    desk.servers.offer("files", a_tool("read"), a_tool("write"))
    assert await desk.news() == ("files__read", "files__write", "web__get")


async def test_opening_waits_for_no_server(desk: Desk) -> None:
    desk.servers.blocked = asyncio.Event()
    async with asyncio.timeout(LIMIT_S):
        await desk.open("files")
    assert desk.told.empty()
    desk.servers.blocked.set()
    assert await desk.news() == ("files__read",)


async def test_what_changes_no_tool_is_not_told(desk: Desk) -> None:
    await desk.open("files")
    await desk.news()
    for calls in range(100):
        desk.servers.put("files", calls=calls)
    desk.servers.lose("files")
    desk.servers.put("files", link="ready")
    desk.servers.offer("files", a_tool("last"))
    assert await desk.news() == ("files__last",)
    assert desk.told.empty()


async def test_a_server_that_changes_without_end_is_heard_now_and_then(desk: Desk) -> None:
    await desk.open("files")
    await desk.news()
    began = asyncio.get_running_loop().time()
    for number in range(500):
        desk.servers.offer("files", a_tool(f"tool_{number}"))
    seen = [await desk.news()]
    while seen[-1] != ("files__tool_499",):
        seen.append(await desk.news())
    took_s = asyncio.get_running_loop().time() - began
    assert len(seen) <= CHANGE_BURST + 3 + took_s / CHANGE_INTERVAL_S


async def test_a_server_that_is_away_keeps_its_tools_and_one_that_is_off_does_not(
    desk: Desk,
) -> None:
    await desk.open("files")
    await desk.news()
    desk.servers.lose("files")
    assert [tool.name for tool in desk.directory.tools(())] == ["files__read"]
    state = await desk.directory.disconnect("files")
    assert state.link == "off"
    assert await desk.news() == ()
    await desk.directory.connect("files")
    assert await desk.news() == ("files__read",)


async def test_a_reload_keeps_what_was_switched_by_hand(desk: Desk) -> None:
    await desk.open("files")
    await desk.news()
    await desk.directory.disconnect("files")
    assert await desk.news() == ()
    await desk.directory.adopt(wanted("files", "web"))
    assert await desk.news() == ()
    assert await desk.news() == ("web__get",)


async def test_a_server_that_is_configured_and_not_started_is_listed_with_the_reason(
    desk: Desk,
) -> None:
    await desk.open("files")
    await desk.news()
    assert [(s.alias, s.link, s.problem) for s in desk.directory.states()] == [
        ("files", "ready", ""),
        ("lost", "off", "its token is missing"),
    ]
    for act in (desk.directory.connect, desk.directory.disconnect):
        with pytest.raises(InvalidRequestError, match="lost is not started: its token is missing"):
            await act("lost")
        with pytest.raises(NotFoundError, match="configured are: files, lost"):
            await act("none")


async def test_a_tool_is_found_by_both_of_its_names_and_missing_ones_are_explained(
    desk: Desk,
) -> None:
    await desk.open("files")
    await desk.news()
    desk.servers.put("files", quarantined=(Quarantined(name="bad", reason="no schema"),))
    directory = desk.directory
    assert directory.tool("files", "read") is directory.tool("files", "files__read")
    with pytest.raises(NotFoundError, match="'bad' of files cannot be used: no schema"):
        directory.tool("files", "bad")
    with pytest.raises(NotFoundError, match="files has no tool 'none'; it has: read"):
        directory.tool("files", "none")


class HeldPins(PinFile):
    """Its disk takes until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.let_go = threading.Event(), threading.Event()

    def save(self) -> None:
        self.is_unsaved = False  # as `save` says before it writes
        self.begun.set()
        assert self.let_go.wait(LIMIT_S)
        super().save()


async def test_what_was_seen_is_on_disk_when_it_has_closed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    held = desk.pins = HeldPins(tmp_path / "mcp_tools.json")
    desk.directory = ServerDirectory(desk.servers, held)
    await desk.open("files")
    await desk.news()
    assert await asyncio.to_thread(held.begun.wait, LIMIT_S)
    closing = asyncio.create_task(desk.directory.close())
    done, _ = await asyncio.wait([closing], timeout=0.05)
    held.let_go.set()
    await closing
    assert not done, "it was being written"
    known = PinFile(tmp_path / "mcp_tools.json")
    known.load()
    assert "read" in known._servers["files"].tools


async def test_a_changed_tool_is_logged_once_and_known_after_a_restart(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await desk.open("files")
    await desk.news()
    desk.servers.offer("files", a_tool("read", "Now something else."))
    await desk.news()
    desk.servers.offer("files", a_tool("read", "Now something else."), a_tool("more"))
    await desk.news()
    said = [each for each in caplog.records if "changed a tool" in each.message]
    assert [(each.__dict__["server"], each.__dict__["tool"]) for each in said] == [
        ("files", "read")
    ]
    await desk.directory.close()
    other = ServerDirectory(desk.servers, PinFile(desk.pins._path))
    await other.open(wanted("files"), lambda: None)
    await other.adopt(wanted("files"))
    assert [tool.plan.is_changed for tool in other.tools(())] == [True, False]
    await other.connect("files", accept=other.differences("files")[0])
    assert not any(tool.plan.is_changed for tool in other.tools(()))
    await other.close()


async def test_tools_that_cannot_be_offered_leave_the_daemon_as_it_is(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise InvalidRequestError("two tools are called 'x'")

    await desk.directory.open(wanted("files"), refuse)
    await desk.directory.adopt(wanted("files"))
    assert "could not be offered" in caplog.text
