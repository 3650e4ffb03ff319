"""Starts clawd and clawctl by forking a process that has imported them: most of a start is imports.

    python -m tests.support.fork_server clawd      serves the socket that is its standard input

What is forked runs what `python -m clawd`, or `python -m clawctl`, runs, in a session, a folder and
an environment of its own. Stories whose subject is the process itself start a real one, and so
does every autostart.
"""

import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INTERPRETERS = {"PYTHONWARNINGS": "error::ResourceWarning", "PYTHONPATH": str(ROOT)}
# What a program imports by and by. A package stands for all of its modules.
_EARLY = {
    "clawd": (
        "clawd.service.main",
        "clawd.service.lifecycle",
        "clawd.service.http",
        "clawd.channels.http",
        "clawd.mcp",
        "clawd.memory",
        "clawd.providers",
        "clawd.service.main",
        "cryptography.hazmat.primitives.asymmetric.ed25519",
        "sqlite_utils.db",
    ),
    "clawctl": (
        "clawctl.main",
        "clawctl.client",
        "clawctl.commands",
        "clawctl.repl",
        "clawctl.shell",
        "clawd.wire",
    ),
}
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
    """Return whether an environment asks Python and the loader for nothing but what is known."""
    return all(
        value in {INTERPRETERS.get(name), os.environ.get(name)} or name == "LANG"
        for name, value in _early(environ)
    ) and environ.get("PYTHONPATH") == str(ROOT)


def _early(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what is read before a program begins."""
    names = ("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LC_", "LANG")
    return tuple(sorted(each for each in environ.items() if each[0].startswith(names)))


def fork_program(
    program: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    standard: tuple[int, int, int],
) -> Forked:
    """Start clawd or clawctl; `standard` are the descriptors of its input, output and errors."""
    control, _ = _server(os.getpid(), program, _early(environ))
    ours, theirs = socket.socketpair()
    request = {"arguments": list(arguments), "environ": dict(environ), "folder": str(folder)}
    with theirs:
        socket.send_fds(control, [json.dumps(request).encode()], [*standard, theirs.fileno()])
    return Forked(int(control.recv(16)), ours)


@cache
def _server(
    _worker: int, program: str, early: tuple[tuple[str, str], ...]
) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """Start the server of this test process; it ends with it, and is kept for as long."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {"PATH": os.environ["PATH"], **dict(early)}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", program],
            stdin=theirs.fileno(),
            env=environ,
            cwd=ROOT,
            start_new_session=True,
        )
    return ours, process


def serve(control: socket.socket, program: str) -> int:
    """Fork a process for each request, and report how each ends, until nobody can ask.

    Returns:
        the exit status: the server's, or in a fork the program's.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy starts threads, which no fork takes along
    for name in _EARLY[program]:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{name}."):
            importlib.import_module(module.name)
    gc.freeze()
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
        request, passed, _, _ = socket.recv_fds(control, _MOST_BYTES, 4)
        if not request:
            for each in (control, wake, wakes):
                each.close()
            return 0
        *standard, ending = passed
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for each in (control, wake, wakes, *endings.values()):
                each.detach()  # they are closed by their numbers, which are taken again later
            return _become(program, json.loads(request), standard)
        for number in standard:
            os.close(number)
        endings[pid] = socket.socket(fileno=ending)
        control.send(b"%d" % pid)


def _become(program: str, request: dict[str, Any], standard: Sequence[int]) -> int:
    """Make of a fork what a process that was just started is, and run the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, given in enumerate(standard):
        os.dup2(given, number)
    os.closerange(3, 1024)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        raw = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
        buffered = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
        known = getattr(sys, name)
        by_line = number == 2 or os.isatty(number)
        stream = io.TextIOWrapper(buffered, known.encoding, known.errors, line_buffering=by_line)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    main = importlib.import_module(f"{program}.__main__")
    sys.argv = [str(main.__file__), *request["arguments"]]
    sys.path[0] = request["folder"]
    time.tzset()
    return int(main.run() if program == "clawctl" else main.main())


def _report(endings: dict[int, socket.socket]) -> None:
    while endings:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with endings.pop(pid) as ending, contextlib.suppress(OSError):
            ending.send(b"%d" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.exit(serve(socket.socket(fileno=0), sys.argv[1]))
