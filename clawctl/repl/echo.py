"""Keeps a terminal from showing keys while something is drawn in place: they would move it.

What is typed meanwhile is not lost; the prompt reads it. Interrupt keys work as before.
"""

import atexit
import contextlib
import termios
from typing import Any, TextIO

_LOCAL_FLAGS = 3


class Echo:
    """Turns the echo of one terminal off and on again."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._before: list[Any] | None = None

    def off(self) -> None:
        """Show no keys until `on`; the end of the process turns it on as well."""
        if self._before is not None:
            return
        # No terminal, or one that is gone, or that another job has: nothing to keep quiet.
        with contextlib.suppress(OSError, ValueError, termios.error):
            before = termios.tcgetattr(self._out.fileno())
            if not before[_LOCAL_FLAGS] & termios.ECHO:
                return
            now = [*before]
            now[_LOCAL_FLAGS] &= ~termios.ECHO
            termios.tcsetattr(self._out.fileno(), termios.TCSANOW, now)
            self._before = before
            atexit.register(self.on)

    def on(self) -> None:
        """Show keys again, if `off` ended that."""
        if self._before is None:
            return
        before, self._before = self._before, None
        atexit.unregister(self.on)
        with contextlib.suppress(OSError, ValueError, termios.error):
            termios.tcsetattr(self._out.fileno(), termios.TCSANOW, before)
