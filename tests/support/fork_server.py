"""Starts daemons by forking a process that has imported clawd: most of a start is its imports.

    python -m tests.support.fork_server clawd      serves the socket that is its standard input

What is forked runs what `python -m clawd` runs, in a session, a folder and an environment of its
own. Stories whose subject is the process itself start a real one, and so does every autostart.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
INTERPRETERS = {"PYTHONWARNINGS": "error::ResourceWarning", "PYTHONPATH": str(ROOT)}
_MOST_BYTES = 1 << 17


class Forked:
    """A process of the fork server, with what tests use of a `Popen`."""

    def __init__(self, pid: int, ending: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ending = ending

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        with contextlib.suppress(TimeoutError):
            self._look(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit status.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        try:
            self._look(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired("clawd", timeout or 0.0) from None
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def _look(self, timeout_s: float | None) -> None:
        if self.returncode is not None:
            return
        ready, _, _ = select.select([self._ending], [], [], timeout_s)
        if not ready:
            raise TimeoutError
        told = self._ending.recv(16)
        self.returncode = int(told) if told else -signal.SIGKILL
        self._ending.close()


def may_fork(environ: Mapping[str, str]) -> bool:
    """Return whether an environment asks Python and the loader for nothing but what was asked."""
    early = ("PYTHON", "LD_", "GLIBC_", "MALLOC_")  # read before a program begins
    asked = {name: value for name, value in environ.items() if name.startswith(early)}
    return asked == INTERPRETERS


def fork_daemon(environ: Mapping[str, str], folder: Path, output: IO[str]) -> Forked:
    """Start a daemon that writes what it prints to a file."""
    control, _ = _server(os.getpid())
    ours, theirs = socket.socketpair()
    with theirs:
        request = json.dumps({"environ": dict(environ), "folder": str(folder)}).encode()
        socket.send_fds(control, [request], [output.fileno(), theirs.fileno()])
    return Forked(int(control.recv(16)), ours)


@cache
def _server(_worker: int) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """Start the server of this test process; it ends with it, and is kept for as long."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **INTERPRETERS}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", "clawd"],
            stdin=theirs.fileno(),
            env=environ,
            cwd=ROOT,
            start_new_session=True,
        )
    return ours, process


def serve(control: socket.socket) -> None:
    """Fork a daemon for each request, and report how each ends, until nobody can ask."""
    from clawd.service.main import main

    wake, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    endings: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            wake.recv(512)
            _report(endings)
        if control not in ready:
            continue
        request, passed, _, _ = socket.recv_fds(control, _MOST_BYTES, 2)
        if not request:
            return
        output, ending = passed
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for each in (control, wake, wakes, *endings.values()):
                each.detach()  # they are closed by their numbers, which are taken again later
            _become(json.loads(request), output)
            sys.exit(main([]))
        os.close(output)
        endings[pid] = socket.socket(fileno=ending)
        control.send(b"%d" % pid)


def _become(request: dict[str, object], output: int) -> None:
    """Make of a fork what a process that was just started is."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 1024)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environ"])  # type: ignore[call-overload]
    sys.argv = ["clawd"]
    sys.path[0] = str(request["folder"])
    time.tzset()


def _report(endings: dict[int, socket.socket]) -> None:
    while endings:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with endings.pop(pid) as ending, contextlib.suppress(OSError):
            ending.send(b"%d" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
