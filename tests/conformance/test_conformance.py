"""The conformance suite of MCP: a server mounted as ours is, the daemon's own, and our client.

Each run must do all that a revision requires, but for what a baseline names with the reason; an
entry that is not needed any more fails the run as well.
"""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.clients.places import folder, node
from tests.support.home import Home

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1700)]

HERE = Path(__file__).parent
REVISIONS = ("2025-11-25", "2026-07-28")
LIMIT_S = 400.0
PASSED = re.compile(r"Total: (\d+) passed")

Run = Callable[[str], Awaitable[int]]


async def _suite(kind: str, revision: str, results: Path, *words: str) -> int:
    """Run the suite for one revision; return how many checks were passed.

    Once more where it failed: it waits a second for some answers, which a busy machine may need.
    """
    status, text = await _once(kind, revision, results, *words)
    if status != 0:
        status, text = await _once(kind, revision, results, *words)
    assert status == 0, f"{revision}\n{text[-6000:]}"
    found = PASSED.search(text)
    assert found is not None, text
    return int(found[1])


async def _once(kind: str, revision: str, results: Path, *words: str) -> tuple[int | None, str]:
    package = folder() / "mcp" / "node_modules" / "@modelcontextprotocol" / "conformance"
    process = await asyncio.create_subprocess_exec(
        *(node(), str(package / "dist" / "index.js"), kind, *words),
        *("--requirements", revision, "--timeout", "240000", "-o", str(results / revision)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode()


async def _both(run: Run) -> list[int]:
    """Run both revisions, one after the other: the suite waits for some answers a second only."""
    return [await run(revision) for revision in REVISIONS]


@asynccontextmanager
async def _program(module: str, *words: str) -> AsyncIterator[str]:
    """Run a module of ours; give the first line that it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *words),
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            line = (await process.stdout.readline()).decode().strip()
        assert line, f"{module} did not start"
        yield line
        process.stdin.close()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_server_with_everything_does_all_that_both_revisions_require(
    tmp_path: Path,
) -> None:
    async with _program("tests.conformance.fixture_server") as url:
        passed = await _both(
            lambda revision: _suite("server", revision, tmp_path, "--url", f"{url}/mcp")
        )
    assert passed[0] > 75
    assert passed[1] > 155


async def test_the_server_of_the_daemon_does_all_but_what_the_baseline_names(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    home.configure(tables="[channels.http]\nenabled = true\nport = 0")
    try:
        await asyncio.to_thread(home.start)
        url = (await asyncio.to_thread(home.json, "status"))["gateway"]
        passed = await _both(
            lambda revision: _suite(
                *("server", revision, tmp_path, "--url", f"{url}/mcp"),
                *("--expected-failures", str(HERE / f"own_server.{revision}.yml")),
            )
        )
    finally:
        await asyncio.to_thread(home.close)
    assert passed[0] > 30
    assert passed[1] > 95


async def test_the_client_does_all_but_what_the_baseline_names(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    relay = shlex.join([sys.executable, "-I", "-S", str(HERE / "relay.py"), str(socket)])
    async with _program("tests.conformance.client_command", str(socket)):
        passed = await _both(
            lambda revision: _suite(
                *("client", revision, tmp_path, "--command", relay),
                *("--expected-failures", str(HERE / f"client.{revision}.yml")),
            )
        )
    assert passed[0] > 280
    assert passed[1] > 430
