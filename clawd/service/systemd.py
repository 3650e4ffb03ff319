"""What systemd is told and what it hands over, through its own binding where that is installed."""

import importlib
import logging
import os
import socket
from collections.abc import Mapping
from types import ModuleType

_log = logging.getLogger(__name__)


class Systemd:
    """The service manager's side of a daemon. Without systemd every method does nothing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._binding = _binding() if self._is_wanted() else None

    def notify(self, *states: str) -> None:
        """Send states such as `READY=1` or `STATUS=…` (sd_notify(3))."""
        if self._binding is not None and "NOTIFY_SOCKET" in self._environ:
            self._binding.notify("\n".join(states))

    def watchdog_interval_s(self) -> float | None:
        """Return how often to send WATCHDOG=1: half of what systemd asks for; None for never."""
        microseconds = self._environ.get("WATCHDOG_USEC", "")
        if not microseconds.isdigit() or int(microseconds) == 0:
            return None
        if self._environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        return int(microseconds) / 2_000_000

    def listeners(self) -> list[socket.socket]:
        """Return the listening Unix sockets that were passed in (sd_listen_fds(3))."""
        if self._binding is None or "LISTEN_FDS" not in self._environ:
            return []
        passed = [socket.socket(fileno=fd) for fd in self._binding.listen_fds()]
        return [each for each in passed if each.family == socket.AF_UNIX]

    def _is_wanted(self) -> bool:
        return bool({"NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC"} & self._environ.keys())


def _binding() -> ModuleType | None:
    try:
        return importlib.import_module("systemd.daemon")
    except ImportError:
        _log.warning("systemd-python is not installed: no readiness, no sockets from systemd")
        return None
