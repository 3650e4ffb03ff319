"""Tells systemd how the daemon is: a status line, signs of life, and more time where it needs it.

systemctl status clawd
 Status: "serving; 1 turn running, 2 waiting; model qwen3-8b ready"
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from clawd.service.systemd import Systemd
from clawd.wire.safe_text import visible_line

if TYPE_CHECKING:
    from clawd.service.build import Daemon

LOOK_INTERVAL_S = 2.0
EXTENSION_S = 30.0
MAX_START_S = 1800.0
MAX_STOP_S = 120.0
MAX_STATUS = 300


class Reporter:
    """Reports a daemon's life to systemd from its main loop, so that a loop that hangs shows.

    A migration, a long integrity check or a last checkpoint may take longer than the unit's
    timeouts: while it starts or stops, more time is asked for, up to a limit of its own.
    """

    def __init__(self, systemd: Systemd, daemon: "Daemon") -> None:
        self._systemd = systemd
        self._daemon = daemon
        self._phase = "starting"
        self._began = 0.0
        self._told = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to report; the daemon opens now."""
        self._began = asyncio.get_running_loop().time()
        self._tell()
        if self._systemd.listens:
            self._task = asyncio.create_task(self._keep_reporting())
            self._daemon.background.watch(self._task, "the reporting to systemd")

    def ready(self) -> None:
        """Say that it serves."""
        self._phase = "serving"
        self._tell("READY=1")

    def stopping(self) -> None:
        """Say that it ends; idempotent."""
        if self._phase == "stopping":
            return
        self._phase = "stopping"
        self._began = asyncio.get_running_loop().time()
        self._tell("STOPPING=1")

    def reloading(self) -> None:
        """Say that a reload begins."""
        self._systemd.reloading()

    def reloaded(self) -> None:
        """Say that a reload ended; why it was refused stays in the status until one succeeds."""
        self._tell("READY=1")

    async def close(self) -> None:
        """Report no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_reporting(self) -> None:
        watchdog_s = self._systemd.watchdog_interval_s()
        interval = min(watchdog_s or LOOK_INTERVAL_S, LOOK_INTERVAL_S)
        while True:
            self._systemd.catch_up()
            # A chain that cannot be written is not healed by waiting: systemd starts it anew.
            if watchdog_s is not None and (self._phase != "serving" or not self._daemon.problem):
                self._systemd.notify("WATCHDOG=1")
            if self._may_extend():
                self._systemd.notify(f"EXTEND_TIMEOUT_USEC={int(EXTENSION_S * 1e6)}")
            self._tell()
            await asyncio.sleep(interval)

    def _may_extend(self) -> bool:
        if self._phase == "serving":
            return False
        limit = MAX_START_S if self._phase == "starting" else MAX_STOP_S
        return asyncio.get_running_loop().time() - self._began < limit

    def _tell(self, *states: str) -> None:
        """Tell these states and the status line; without states the line only when it is news."""
        line = self._line()
        if states or line != self._told:
            self._told = line
            self._systemd.notify(*states, f"STATUS={line}")

    def _line(self) -> str:
        if self._phase == "starting":
            return "opening memory and receipts"
        parts = list(_facts(self._daemon))
        first = "draining" if self._phase == "stopping" else "serving"
        why = self._daemon.state.reload_refused
        refused = [f"RELOAD REFUSED, the old config stays: {why}"] if why else []
        return visible_line("; ".join([first, *parts, *refused]), MAX_STATUS)


def _facts(daemon: "Daemon") -> Iterator[str]:
    if daemon.estop.state().is_set:
        yield "EMERGENCY STOP SET"
    if daemon.chain is not None and daemon.chain.failure:
        yield f"RECEIPTS STOPPED: {daemon.chain.failure}"
    elif daemon.anchor is not None and daemon.anchor.problem:
        yield "RECEIPTS: the log was cut or replaced"
    running, waiting = daemon.inbox.turns
    turns = f"{running} turn{'' if running == 1 else 's'} running"
    yield f"{turns}, {waiting} waiting" if waiting else turns
    for each in daemon.engine.status():
        yield f"model {each.alias} {each.state}"
