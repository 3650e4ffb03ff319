"""Every task that runs as long as the daemon: its death shows, in health or where it belongs."""

import asyncio
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from clawd.channels.rpc.connection import RpcServer
from clawd.mcp.model import ServerSettings
from clawd.mcp.server_hosts import ConnectionContext
from clawd.mcp.supervisor import Supervisor, Timing
from clawd.receipts.verify import verify
from clawd.service import control_socket, lifecycle, receipts, systemd
from clawd.service.build import Daemon
from clawd.service.control_socket import Door
from clawd.service.http import health_of
from clawd.service.receipts import ChainCheck
from clawd.service.systemd import Reporter, Systemd
from clawd.service.upkeep import Background
from clawd.wire.tools import RunTool
from tests.support.engines import eventually
from tests.support.inprocess import OWNER, daemon_in


def _breaks(*_: Any, **__: Any) -> NoReturn:
    raise ZeroDivisionError("a defect")


class FakeServer:
    """Listens nowhere."""

    async def start(self, listener: Any) -> None:
        listener.close()

    async def stop_listening(self) -> None:
        """Do nothing."""


async def test_the_telling_of_heads_that_ends_makes_the_daemon_unhealthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawd.service.receipts.NEWS_INTERVAL_S", 0.001)
    async with daemon_in(tmp_path) as inside:
        daemon = inside.daemon
        assert daemon.anchor is not None
        with monkeypatch.context() as patched:
            patched.setattr(daemon.anchor, "_tell", _breaks)
            await eventually(lambda: bool(daemon.problem))
        assert "the telling of receipt heads has ended (ZeroDivisionError" in daemon.problem
        assert "restart clawd" in (await health_of(daemon)()).problem


async def test_the_watch_over_the_socket_that_ends_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    background = Background()
    made = Door(
        cast("RpcServer", FakeServer()),
        tmp_path / "home" / "run" / "clawd.sock",
        watch=background.watch,
        look_interval_s=0.001,
    )
    monkeypatch.setattr(made, "_is_ours", _breaks)
    await made.open([])
    await eventually(lambda: bool(background.problem))
    assert background.problem.startswith("the watch over the control socket has ended")
    await made.shut()


async def test_the_reporting_to_systemd_that_ends_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "LOOK_INTERVAL_S", 0.001)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    async with daemon_in(tmp_path) as inside:
        reporter = Reporter(Systemd(), inside.daemon)
        reporter.start()
        reporter.ready()
        monkeypatch.setattr(reporter, "_tell", _breaks)
        await eventually(lambda: bool(inside.daemon.problem))
        assert "the reporting to systemd has ended" in inside.daemon.problem
        await reporter.close()


async def test_a_check_of_the_log_that_breaks_never_leaves_it_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with daemon_in(tmp_path) as inside:
        await inside.ask(RunTool(name="time"), OWNER)
        daemon = inside.daemon
        assert daemon.chain is not None and daemon.anchor is not None
        check = ChainCheck(daemon.chain, daemon.anchor, daemon.memory.ledger)
        assert await check.is_valid() is True
        await inside.ask(RunTool(name="time"), OWNER)
        monkeypatch.setattr(receipts, "verify", _breaks)
        assert await check.is_valid() is False
        assert "failed by a defect" in caplog.text
        monkeypatch.setattr(receipts, "verify", verify)
        assert await check.is_valid() is True
        await check.close()


async def test_the_supervision_of_a_server_that_ends_shows_it_as_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = SimpleNamespace(problem="")
    supervisor = Supervisor(
        ServerSettings(alias="hand", command=("true",)),
        lambda _tell: cast("ConnectionContext", SimpleNamespace(reach=quiet, ear=quiet)),
        on_change=lambda: None,
        is_stopped=_breaks,
        timing=Timing(),
    )
    supervisor.start()
    await eventually(lambda: supervisor.state.link == "waiting")
    assert "clawctl mcp connect" in supervisor.state.problem
    assert "ended by a defect" in caplog.text
    await supervisor.close()


async def test_a_reload_that_breaks_is_told_as_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with daemon_in(tmp_path) as inside:
        reporter = Reporter(Systemd(), inside.daemon)
        monkeypatch.setattr(Daemon, "reload", _breaks)
        reporter.ready()
        await lifecycle._reload(inside.daemon, reporter, asyncio.Lock())
        assert "RELOAD REFUSED, the old config stays: a defect: ZeroDivisionError" in (
            reporter._line()
        )
    assert "a reload failed by a defect" in caplog.text


async def test_a_home_that_is_gone_is_not_made_again_for_its_socket(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, control_socket.__name__)
    home = tmp_path / "home"
    path = home / "run" / "clawd.sock"
    made = Door(cast("RpcServer", FakeServer()), path, look_interval_s=0.001)
    await made.open([])
    shutil.rmtree(home)
    await eventually(lambda: "cannot be made again" in caplog.text)
    assert not home.exists()
    home.mkdir()  # another directory, as under a mount that is gone
    await made._bind_anew()
    assert list(home.iterdir()) == []
    await made.shut()
