"""What is measured of local models and MCP servers, and how a long receipt log is looked at."""

import asyncio
import dataclasses
import logging
import os
from pathlib import Path
from typing import cast

import msgspec
import pytest

from clawd.counts import Tally
from clawd.engine.protocol import ModelInfo
from clawd.engine.slot import ModelStatus
from clawd.engine.supervisor import Engine
from clawd.service import receipts
from clawd.service.metrics import LOGGED_EVERY_S, MetricsLog
from clawd.service.receipts import ChainCheck
from clawd.service.upkeep import Background
from clawd.wire.daemon import MetricFamily, MetricSample, MetricsReport
from clawd.wire.tools import RunTool
from tests.service.test_health import FakeEngine, status_of
from tests.support.hostile import instance
from tests.support.inprocess import OWNER, daemon_in


class CountedEngine(FakeEngine):
    """Says of its models what a test wants, and how often their workers died."""

    def __init__(self, *models: ModelStatus) -> None:
        super().__init__(*models)
        self.deaths = Tally("model")
        self.deaths.add("small")


def busy(name: str, running: int, parallel: int) -> ModelStatus:
    info = msgspec.structs.replace(instance(ModelInfo), n_parallel=parallel)
    return msgspec.structs.replace(
        status_of("/m.gguf", "ready"), alias=name, running=running, info=info
    )


def values(report: MetricsReport, name: str) -> dict[str, float]:
    (family,) = [each for each in report.families if each.name == name]
    return {",".join(sample.labels.values()): sample.value for sample in family.samples}


async def test_what_runs_and_waits_is_told_by_model(tmp_path: Path) -> None:
    async with daemon_in(tmp_path) as inside:
        engine = CountedEngine(busy("small", 7, 4), busy("big", 1, 2))
        report = await dataclasses.replace(
            inside.daemon.metrics,
            engine=cast("Engine", engine),
            mcp_servers=lambda: {"files": True, "web": False},
        ).report()
    assert values(report, "clawd_model_running") == {"small": 4, "big": 1}
    assert values(report, "clawd_model_queued") == {"small": 3, "big": 0}
    assert values(report, "clawd_model_loaded") == {"small": 1, "big": 1}
    assert values(report, "llamacpp:requests_processing") == {"": 5}
    assert values(report, "llamacpp:requests_deferred") == {"": 3}
    assert values(report, "clawd_worker_restarts_total") == {"": 1}
    assert values(report, "clawd_mcp_server_up") == {"files": 1, "web": 0}


async def test_nobody_waits_for_the_verification_of_a_long_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "AT_ONCE_BYTES", 0)
    async with daemon_in(tmp_path) as inside:
        await inside.ask(RunTool(name="time"), OWNER)
        daemon = inside.daemon
        assert daemon.chain is not None and daemon.anchor is not None
        check = ChainCheck(daemon.chain, daemon.anchor, daemon.memory.ledger)
        assert await check.is_valid() is None
        assert check._running is not None
        await check._running
        assert await check.is_valid() is True
        path = daemon.loaded.config.receipts.path
        written_ns = path.stat().st_mtime_ns
        path.write_text(path.read_text().replace('"allowed"', '"denied" '))
        # The clock of a file system stands still for milliseconds, and this is all within them.
        os.utime(path, ns=(written_ns, written_ns + 1_000_000))
        # It was looked at a moment ago: this change waits for the next time.
        assert await check.is_valid() is True
        monkeypatch.setattr(receipts, "INTERVAL_S", 0.0)
        await check.is_valid()
        await check._running
        assert await check.is_valid() is False
        await check.close()


async def test_without_receipts_nothing_is_said_of_their_log(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, "[receipts]\nenabled = false") as inside:
        report = await inside.daemon.metrics.report()
    assert "clawd_receipt_chain_valid" not in {each.name for each in report.families}


async def test_m3_the_numbers_are_logged_in_a_line_again_and_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logged, asked = asyncio.Event(), 0

    async def report() -> MetricsReport:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ValueError("a defect")
        if asked == 4:
            logged.set()
        counted = MetricFamily(
            name="clawd_turns_total",
            kind="counter",
            help="",
            samples=(MetricSample(labels={"how": "a"}, value=2.0), MetricSample(value=3.0)),
        )
        silent = MetricFamily(name="clawd_estop", kind="gauge", help="", samples=())
        return MetricsReport(families=(counted, silent))

    background = Background()
    log = MetricsLog(report, every_s=0.001)
    with caplog.at_level(logging.INFO):
        log.start(background.watch)
        async with asyncio.timeout(60):
            await logged.wait()
        await log.close()
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("METRICS")]
    assert lines[:2] == ["METRICS turns_total=5"] * 2
    assert background.problem == ""
    assert LOGGED_EVERY_S == 300
