"""A second process that puts the terminal right when the first one is killed.

A process that is killed with SIGKILL restores nothing: the terminal would stay raw, and the
private folder with the hooks would stay on disk. The guard waits for the end of a pipe. It holds
nothing of the pseudo-terminal, so that the shell gets its SIGHUP from the kernel all the same.
"""

import contextlib
import os
import shutil
import signal
import termios
from pathlib import Path
from typing import Any

# Bracketed paste and reports of the mouse off, the cursor seen, back from a full screen.
RESET = (
    b"\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?1047l\x1b[?25h"
    b"\x1b[0m\r\n"
)

_IGNORED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGTTOU,
    signal.SIGTTIN,
    signal.SIGTSTP,
    signal.SIGPIPE,
)


class Guard:
    """The guard of one terminal; made before there are threads.

    Args:
        terminal: its descriptor.
        modes: what `termios.tcgetattr` said of it.
        folder: removed when this process dies.
    """

    def __init__(self, terminal: int, modes: list[Any], folder: Path) -> None:
        waits, self._alive = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(waits)
            return
        try:
            os.close(self._alive)
            for number in _IGNORED:
                signal.signal(number, signal.SIG_IGN)
            if not os.read(waits, 1):
                put_right(terminal, modes)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os._exit(0)

    def dismiss(self) -> None:
        """End it: the terminal is right already."""
        with contextlib.suppress(OSError):
            os.write(self._alive, b".")
        os.close(self._alive)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def put_right(terminal: int, modes: list[Any]) -> None:
    """Give a terminal its modes back, and undo what programs ask of terminals."""
    with contextlib.suppress(OSError, termios.error):
        termios.tcsetattr(terminal, termios.TCSANOW, modes)
        os.write(terminal, RESET)
