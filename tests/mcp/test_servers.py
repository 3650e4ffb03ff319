"""What the servers promise whatever is configured."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import NotFoundError
from clawd.mcp import connection_end
from clawd.mcp.connection_end import KEPT_BYTES, StderrLog
from clawd.mcp.model import ServerSettings
from clawd.mcp.server_hosts import ConnectionContext
from clawd.mcp.supervisor import Backoff
from tests.mcp.world import World, told


@given(st.integers(1, 12))
def test_waits_double_up_to_a_bound_and_begin_anew(tries: int) -> None:
    backoff = Backoff(first_s=1.0, most_s=60.0)
    for number in range(tries):
        step = min(2.0**number, 60.0)
        assert step / 2 <= backoff.next() <= step
    backoff.reset()
    assert backoff.next() <= 1.0


@given(st.lists(st.binary(max_size=90_000), max_size=6))
def test_the_end_of_what_was_printed_is_kept_and_no_more(pieces: list[bytes]) -> None:
    log = StderrLog(Path("/nonexistent/log"), lambda text: text)
    for piece in pieces:
        log.add(piece)
    whole = b"".join(pieces)
    assert log._text() == whole[-KEPT_BYTES:].decode("utf-8", "replace")


async def test_a_server_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.start(ServerSettings(alias="books", url="http://127.0.0.1:9/"))
    assert "there is no MCP server 'other'" in told(await world.call("other"))
    with pytest.raises(NotFoundError, match="no MCP server 'other'") as caught:
        await world.servers.connect("other")
    assert caught.value.hint == "There are: books."
    with pytest.raises(NotFoundError):
        await world.servers.disconnect("other")
    await world.close()
    await world.close()


async def test_a_listener_that_fails_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ValueError("on purpose")

    world = World(tmp_path)
    world.start(ServerSettings(alias="books", url="http://127.0.0.1:9/"))
    world.servers.on_change(broken)
    state = await world.servers.connect("books")
    assert (state.link, "cannot be reached" in state.problem) == ("waiting", True)
    assert "a listener of MCP servers failed" in caplog.text
    await world.close()


async def test_a_closed_set_of_servers_starts_nothing_any_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    servers = world.made((ServerSettings(alias="books", url="http://127.0.0.1:9/"),))
    await servers.close()
    servers.start()
    assert [state.link for state in servers.states()] == ["off"]
    assert not world.folder.exists()


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    world = World(tmp_path, "none")
    world.start(world.program("good", command=("no-such-program",)))
    state = await world.servers.connect("good")
    assert (state.link, "no-such-program" in state.problem) == ("waiting", True)
    await world.close()


@pytest.mark.sandbox
async def test_a_workspace_that_is_not_there_is_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.start(world.program("good", workspace=str(tmp_path / "gone")))
    state = await world.servers.connect("good")
    assert (state.link, "gone is no folder" in state.problem) == ("waiting", True)
    await world.close()


@pytest.mark.sandbox
async def test_without_a_workspace_a_server_has_a_folder_of_its_own(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.workspace / "private").write_text("hidden")
    world.start(world.program("good", workspace="", workspace_access="none"))
    await world.ready("good")
    assert told(await world.call("good")) == "hi"
    await world.close()


async def test_a_person_who_is_asked_just_when_the_time_is_up_changes_nothing() -> None:
    told: list[str] = []
    none: Any = None
    around = ConnectionContext(none, Path(), none, told.append, none)
    with pytest.raises(TimeoutError):
        async with around.connecting(0.01):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # The limit is over, and its body is only about to learn it.
                await around.on_sign_in("https://a.example/")
                raise
    assert told == ["https://a.example/"]


async def test_what_a_cancelled_save_did_not_write_is_written_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.stderr.log"
    log = StderrLog(path, str)
    log.add(b"the last words\n")
    with anyio.CancelScope() as scope:
        scope.cancel()  # before its thread has begun
        await log.save()
    await log.save()
    assert path.read_text() == "the last words\n"

    log.add(b"and more\n")
    began, go_on, write = threading.Event(), threading.Event(), connection_end._replace

    def slowly(path: Path, data: bytes) -> None:
        began.set()
        go_on.wait(60)
        write(path, data)

    monkeypatch.setattr(connection_end, "_replace", slowly)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.save)
        await asyncio.to_thread(began.wait, 60)
        tasks.cancel_scope.cancel()
        go_on.set()
    assert path.read_text() == "the last words\nand more\n"
