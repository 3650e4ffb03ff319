"""What systemd is told and what it hands over: sd_notify(3) and sd_listen_fds(3), spoken here.

Both protocols are a few lines each, so a plain install is a full citizen of a Type=notify unit
without a compiler and without libsystemd.
"""

import fcntl
import logging
import os
import socket
import time
from collections.abc import Mapping

CONTROL = "control"
HTTP = "http"

_FIRST_FD = 3
_MAX_FDS = 64
_UNNAMED = ("", "unknown")

_log = logging.getLogger(__name__)


class Systemd:
    """The service manager's side of a daemon. Without systemd every method does nothing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._passed: list[tuple[str, socket.socket]] | None = None
        self._has_failed = False

    @property
    def listens(self) -> bool:
        """Whether there is somebody to notify."""
        return self._environ.get("NOTIFY_SOCKET", "")[:1] in {"/", "@"}

    def notify(self, *states: str) -> None:
        """Send states such as `READY=1` or `STATUS=…` (sd_notify(3)); never raises, never waits."""
        if not self.listens:
            return
        address = self._environ["NOTIFY_SOCKET"]
        if address.startswith("@"):  # the abstract namespace
            address = f"\0{address[1:]}"
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, kind) as sender:
                sender.sendto("\n".join(states).encode(errors="replace"), address)
        except OSError as error:
            if not self._has_failed:
                _log.warning("the service manager cannot be told: %s", error.strerror or error)
            self._has_failed = True
        else:
            self._has_failed = False

    def reloading(self) -> None:
        """Say that a reload begins; `READY=1` ends it. Serves Type=notify and notify-reload."""
        self.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def watchdog_interval_s(self) -> float | None:
        """Return how often to send WATCHDOG=1: half of what systemd asks for; None for never."""
        microseconds = self._environ.get("WATCHDOG_USEC", "")
        if not microseconds.isdigit() or int(microseconds) == 0:
            return None
        if self._environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        return int(microseconds) / 2_000_000

    def control_listeners(self) -> list[socket.socket]:
        """Return the listening Unix sockets that were passed in as `control`, or without a name."""
        return [
            each
            for name, each in self._all_passed()
            if each.family == socket.AF_UNIX and name in {CONTROL, *_UNNAMED}
        ]

    def http_listeners(self) -> list[socket.socket]:
        """Return the listening TCP sockets that were passed in as `http`."""
        families = (socket.AF_INET, socket.AF_INET6)
        return [
            each for name, each in self._all_passed() if each.family in families and name == HTTP
        ]

    def _all_passed(self) -> list[tuple[str, socket.socket]]:
        if self._passed is None:
            self._passed = self._adopt()
        return self._passed

    def _adopt(self) -> list[tuple[str, socket.socket]]:
        count = self._environ.get("LISTEN_FDS", "")
        if self._environ.get("LISTEN_PID") != str(os.getpid()) or not count.isdigit():
            return []
        names = self._environ.get("LISTEN_FDNAMES", "").split(":")
        found: list[tuple[str, socket.socket]] = []
        for place in range(min(int(count), _MAX_FDS)):
            name = names[place] if place < len(names) else ""
            passed = _listening_socket(_FIRST_FD + place)
            if passed is None:
                _log.warning(
                    "a descriptor from systemd is no listening stream socket, it is left alone",
                    extra={"fd": _FIRST_FD + place, "named": name},
                )
            else:
                found.append((name, passed))
        return found


def _listening_socket(descriptor: int) -> socket.socket | None:
    try:
        # No child may inherit the door.
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
