"""What is reported to systemd and what it hands over: sd_notify(3) and sd_listen_fds(3).

systemctl status clawd
 Status: "serving; 1 turn running, 2 waiting; model qwen3-8b ready"
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from clawd.kernel.concurrency import Pool
from clawd.service.logs import wait_for_room
from clawd.wire.safe_text import visible_line

try:
    from systemd.daemon import listen_fds_with_names, notify
except ImportError:  # without the extra `systemd`

    def notify(status: str) -> bool:
        """Send states to the service manager, as sd_notify(3) does."""
        address = os.environ["NOTIFY_SOCKET"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(status.encode(), f"\0{address[1:]}" if address[0] == "@" else address)
        return True

    def listen_fds_with_names(unset_environment: bool) -> dict[int, str]:  # noqa: ARG001, FBT001 - as there
        """Return the descriptors that were passed to this process, with their names."""
        if os.environ.get("LISTEN_PID") != str(os.getpid()):
            return {}
        last = _FIRST_FD + int(os.environ.get("LISTEN_FDS", "0"))
        names = os.environ.get("LISTEN_FDNAMES")
        given = repeat("unknown") if names is None else names.split(":")
        return dict(zip(range(_FIRST_FD, last), given, strict=False))


_CONTROL = "control"
_HTTP = "http"

_FIRST_FD = 3
_UNNAMED = ("", "unknown")
_LOOK_S = 0.5  # how long a wait for the manager goes on at least when the daemon has ended
_LAST_SEND_S = 2.0

_log = logging.getLogger(__name__)


class Systemd:
    """The service manager's side of a daemon. Without systemd every method does nothing."""

    def __init__(self) -> None:
        self._passed: list[tuple[str, socket.socket]] | None = None
        self._has_failed = False
        self.listens = os.environ.get("NOTIFY_SOCKET", "")[:1] in {"/", "@"}
        # A manager that is busy makes its senders wait, which the main loop must not.
        self._sender = Pool(1, "systemd") if self.listens else None
        self._has_ended = threading.Event()

    def notify(self, *states: str) -> None:
        """Send states such as `READY=1` or `STATUS=…`, in order; never raises, never waits."""
        if self._sender is not None:
            self._sender.submit(self._send, "\n".join(states))

    async def close(self) -> None:
        """Send what is left, if the manager takes it soon; one that hangs holds up no end."""
        if self._sender is None:
            return
        with contextlib.suppress(TimeoutError):
            sent = asyncio.wrap_future(self._sender.submit(int))
            await asyncio.wait_for(sent, _LAST_SEND_S)
        self._has_ended.set()
        self._sender.shutdown(wait=False, cancel_futures=True)

    def _send(self, message: str) -> None:
        try:
            self._wait_for_room()
            notify(message)
        except (OSError, ValueError) as error:
            if not self._has_failed:
                _log.warning("the service manager cannot be reached: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False

    def _wait_for_room(self) -> None:
        while True:
            try:
                return wait_for_room(os.environ["NOTIFY_SOCKET"], _LOOK_S)
            except TimeoutError:
                if self._has_ended.is_set():
                    raise

    def reloading(self) -> None:
        """Say that a reload begins; `READY=1` ends it. Serves Type=notify and notify-reload."""
        self.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def watchdog_interval_s(self) -> float | None:
        """Return how often to send WATCHDOG=1: half of what systemd asks for; None for never."""
        microseconds = os.environ.get("WATCHDOG_USEC", "")
        if not microseconds.isdigit() or int(microseconds) == 0:
            return None
        if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        return int(microseconds) / 2_000_000

    def control_listeners(self) -> list[socket.socket]:
        """Return the listening Unix sockets that were passed in as `control`, or without a name."""
        return [
            each
            for name, each in self._all_passed()
            if each.family == socket.AF_UNIX and name in {_CONTROL, *_UNNAMED}
        ]

    def http_listeners(self) -> list[socket.socket]:
        """Return the listening TCP sockets that were passed in as `http`."""
        families = (socket.AF_INET, socket.AF_INET6)
        return [
            each for name, each in self._all_passed() if each.family in families and name == _HTTP
        ]

    def _all_passed(self) -> list[tuple[str, socket.socket]]:
        if self._passed is None:
            self._passed = self._adopt()
        return self._passed

    def _adopt(self) -> list[tuple[str, socket.socket]]:
        try:
            given = listen_fds_with_names(False)  # noqa: FBT003 - the library's signature
        except (OSError, ValueError) as error:
            _log.warning("the sockets of systemd cannot be taken: %s", error)
            return []
        found: list[tuple[str, socket.socket]] = []
        for descriptor, name in given.items():
            passed = _listening_socket(descriptor)
            if passed is None:
                _log.warning(
                    "a descriptor from systemd is no listening stream socket, it is left alone",
                    extra={"fd": descriptor, "named": name},
                )
            else:
                found.append((name, passed))
        return found


def _listening_socket(descriptor: int) -> socket.socket | None:
    try:
        # No child may inherit the socket.
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        passed = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        is_listening = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
    except OSError:
        is_listening = False
    if passed.type != socket.SOCK_STREAM or not is_listening:
        passed.detach()
        return None
    passed.setblocking(False)  # noqa: FBT003 - the signature of socket
    return passed


if TYPE_CHECKING:
    from clawd.service.build import Daemon

LOOK_INTERVAL_S = 2.0
_EXTENSION_S = 30.0
_MAX_START_S = 1800.0
_MAX_STOP_S = 120.0
_MAX_STATUS = 300


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
        await self._systemd.close()

    async def _keep_reporting(self) -> None:
        watchdog_s = self._systemd.watchdog_interval_s()
        interval = min(watchdog_s or LOOK_INTERVAL_S, LOOK_INTERVAL_S)
        while True:
            # A chain that cannot be written is not healed by waiting: systemd starts it anew.
            if watchdog_s is not None and (self._phase != "serving" or not self._daemon.problem):
                self._systemd.notify("WATCHDOG=1")
            if self._may_extend():
                self._systemd.notify(f"EXTEND_TIMEOUT_USEC={int(_EXTENSION_S * 1e6)}")
            self._tell()
            await asyncio.sleep(interval)

    def _may_extend(self) -> bool:
        if self._phase == "serving":
            return False
        limit = _MAX_START_S if self._phase == "starting" else _MAX_STOP_S
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
        return visible_line("; ".join([first, *parts, *refused]), _MAX_STATUS)


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
