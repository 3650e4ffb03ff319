"""How long the emergency stop takes, against killing the same processes with nothing in between."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from clawd.security.sandbox.run import Sandbox, SandboxSettings
from tests.bench.ours import start
from tests.bench.security_peer import Bare
from tests.bench.streams import BenchError, now
from tests.support.estop_load import (
    EXPECTED,
    PROCESSES,
    TOOLS,
    Load,
    Stopped,
    held,
    tagged,
    wait_for,
    wait_for_death,
)
from tests.support.home import Home

_TOLD = ("stopped", "failed")


async def stop_pairs(
    folder: Path, count: int, say: Callable[[str], None]
) -> list[tuple[float, float]]:
    """Return milliseconds from `touch ESTOP` to all dead, and from SIGKILL to all dead.

    Raises:
        BenchError: something survived, a receipt is missing or a model went on answering.
    """
    folder.mkdir()
    home = Home(folder)
    load = Load(home)
    sandbox = Sandbox(SandboxSettings(home=home.path))
    await sandbox.probe()
    bare = Bare(sandbox, home.workspace)
    pairs = []
    start(home)
    try:
        for number in range(count):
            stopped = load.round()
            _check(stopped)
            pairs.append((stopped.elapsed_ms, _bare_kill_ms(bare, load)))
            if (number + 1) % 10 == 0:
                ours, peer = max(pairs)[0], max(peer for _, peer in pairs)
                say(f"estop: {number + 1} of {count}, longest {ours:.1f} ms (bare {peer:.1f} ms)")
    finally:
        home.close()
    return pairs


def _check(stopped: Stopped) -> None:
    if stopped.survivors:
        raise BenchError(f"the stop left alive: {stopped.survivors}")
    if stopped.receipts != EXPECTED:
        raise BenchError(f"the stop left these receipts: {stopped.receipts}")
    if stopped.answer != "estop" or any(told[:2] != _TOLD for told in stopped.told):
        raise BenchError(f"the stop was told as {stopped.answer} and {stopped.told}")


def _bare_kill_ms(bare: Bare, load: Load) -> float:
    command = load.arguments["command"]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                _ended(stack.enter_context(bare.prepared("bash", "-c", command)).start())
            )
            for _ in range(TOOLS)
        ]
        wait_for(lambda: len(tagged(f"{load.tag}-leaf")) == PROCESSES)
        processes = [stack.enter_context(pidfd) for pidfd in held(load.tag)]
        inits = [
            child.pid for process in started for child in psutil.Process(process.pid).children()
        ]
        began = now()
        for init in inits:
            os.kill(init, signal.SIGKILL)
        wait_for_death(processes)
        elapsed_ms = 1e3 * (now() - began)
        if tagged(load.tag):
            raise BenchError("bare bubblewrap survived SIGKILL")
        return elapsed_ms


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
