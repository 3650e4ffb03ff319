"""Ends a daemon, under systemd or not, and starts it anew: asked first, then by signals.

A signal goes to a process that holds a home's lock alone, by its pidfd: never to a number that
somebody else has got meanwhile.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from clawctl.client import LOST, SILENT, Client, is_nobody, reason_of
from clawctl.daemon_finder import holder_of
from clawctl.systemctl import SERVICE
from clawd.errors import ClawError, ForbiddenError
from clawd.paths import Layout, layout
from clawd.wire.daemon import Shutdown

HAND_OVER_S = 60.0
SIGNAL_GRACE_S = 5.0
_ASK_LIMIT_S = 10.0
_RETRY_S = 0.05

How = Literal["asked", "terminated", "killed"]
Say = Callable[[str], None]


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon that runs.

    Attributes:
        command: the arguments that it was started with, behind the program's name.
        unit: whose systemd started it; empty for none.
        answers: whether it greeted; one that did not is not asked again.
    """

    pid: int
    home: Path
    socket: Path
    command: tuple[str, ...] = ()
    unit: Literal["", "system", "user"] = ""
    answers: bool = True

    @property
    def lock(self) -> Path:
        """The lock of its home."""
        return layout({"CLAWD_HOME": str(self.home)}).lock


def running(reach: Callable[[], Client], where: Layout) -> Running | None:
    """Return the daemon that clients reach, or that holds the home without answering.

    Args:
        reach: connects to a daemon that runs; raises ClawError.
        where: whose home is looked at when none answers.

    Raises:
        ClawError: one is there and lets nobody in.
    """
    try:
        with reach() as client:
            welcome = client.welcome
            return _found(welcome.pid, Path(welcome.home), client.path)
    except ClawError as error:
        if not is_nobody(error) and reason_of(error) not in {SILENT, LOST}:
            raise
        pid = detached_pid(where)
        return msgspec.structs.replace(found_at(pid, where), answers=False) if pid else None


def found_at(pid: int, where: Layout) -> Running:
    """Return what is known of the process that holds a home."""
    return _found(pid, where.home, where.socket)


def _found(pid: int, home: Path, socket: Path) -> Running:
    return Running(pid=pid, home=home, socket=socket, command=_arguments(pid), unit=_unit_of(pid))


def detached_pid(where: Layout) -> int | None:
    """Return the pid of the process that holds the home, under systemd or not; None for nobody."""
    return holder_of(where.lock)


def end(
    daemon: Running, reach: Callable[[], Client], say: Say, *, limit_s: float = HAND_OVER_S
) -> How:
    """End a daemon, and return how: it is asked, then told by signals, where they may be sent.

    Args:
        daemon: which.
        reach: connects to it; raises ClawError.
        say: is told before a signal is sent.
        limit_s: how long it has to let turns finish.

    Raises:
        ForbiddenError: it may be ended by others only.
        ClawError: it does not end.
    """
    handle = _handle(daemon)
    try:
        was_asked = daemon.answers and _ask(reach)
        # One that took the request drains; one that did not answer has nothing to wait for.
        if was_asked and _has_ended(daemon, handle, limit_s):
            return "asked"
        if handle is None:
            raise _endless(daemon)
        if not was_asked:
            say(f"● the daemon (pid {daemon.pid}) does not answer; it gets SIGTERM")
            _signal(daemon, handle, signal.SIGTERM)
            if _has_ended(daemon, handle, limit_s):
                return "terminated"
        say(f"● the daemon (pid {daemon.pid}) does not end; it gets SIGKILL")
        _signal(daemon, handle, signal.SIGKILL)
        if not _has_ended(daemon, handle, SIGNAL_GRACE_S):
            raise _endless(daemon)
        return "killed"
    finally:
        if handle is not None:
            os.close(handle)


def environment_of(daemon: Running, environ: Mapping[str, str]) -> dict[str, str]:
    """Return this environment with the daemon's home and socket in it, to start it anew there."""
    own = layout(environ)
    if own.home == daemon.home and own.socket == daemon.socket:
        return dict(environ)
    named = {**environ, "CLAWD_HOME": str(daemon.home)}
    named.pop("CLAWD_SOCKET", None)
    if layout(named).socket != daemon.socket:
        named["CLAWD_SOCKET"] = str(daemon.socket)
    return named


def _ask(reach: Callable[[], Client]) -> bool:
    """Ask it to end; return whether it took that, or was about to end by itself."""
    try:
        with reach() as client:
            client.call(Shutdown(), limit_s=_ASK_LIMIT_S)
    except ClawError as error:
        if is_nobody(error) or reason_of(error) == SILENT:
            return False
        if reason_of(error) != LOST:
            raise
    return True


def _handle(daemon: Running) -> int | None:
    """Return a pidfd of the process that holds the home's lock; None where that is not known."""
    try:
        handle = os.pidfd_open(daemon.pid)
    except OSError:
        return None
    # Asked behind it: the number was this process's all along, if it is still the holder's.
    if holder_of(daemon.lock) == daemon.pid:
        return handle
    os.close(handle)
    return None


def _has_ended(daemon: Running, handle: int | None, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    if handle is not None:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        if not poller.poll(limit_s * 1000):
            return False
        deadline += SIGNAL_GRACE_S
    # Its last thread, or a child that it had not let go of yet, holds the lock for a moment.
    while holder_of(daemon.lock) == daemon.pid or (handle is None and daemon.socket.exists()):
        if time.monotonic() > deadline:
            return False
        time.sleep(_RETRY_S)
    return True


def _signal(daemon: Running, handle: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise ForbiddenError(
            f"the daemon (pid {daemon.pid}) may be ended by its owner and by root only",
            hint=f"sudo kill {daemon.pid}",
        ) from error


def _endless(daemon: Running) -> ClawError:
    return ClawError(
        f"the daemon (pid {daemon.pid}, home {daemon.home}) does not end",
        hint=f"End it as its owner: kill {daemon.pid}; then run this again.",
    )


def _arguments(pid: int) -> tuple[str, ...]:
    """Return the arguments of `clawd` in a process's command line, paths made absolute."""
    import psutil

    try:
        process = psutil.Process(pid)
        words, folder = process.cmdline(), Path(process.cwd())
    except psutil.Error:
        return ()
    at = next((n for n, word in enumerate(words) if word.rpartition("/")[2] == "clawd"), -1)
    rest = words[at + 1 :] if at >= 0 else []
    if "--config" in rest[:-1]:
        place = rest.index("--config") + 1
        rest[place] = str(folder / rest[place])
    return tuple(rest)


def _unit_of(pid: int) -> Literal["", "system", "user"]:
    """Return whose unit the process runs in, as the kernel says."""
    try:
        cgroup = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except OSError:
        return ""
    if f"/{SERVICE}" not in cgroup:
        return ""
    return "user" if "/user@" in cgroup else "system"
