"""The log file of a daemon that runs without the journal: cut off by size while it runs.

Only a file that is the home's own log is rotated. What a person redirected stderr to is theirs.
"""

import contextlib
import logging
import os
import sys
from pathlib import Path

from typing_extensions import override

MAX_BYTES = 10 * 1024 * 1024
KEPT = 3


class LogFileHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr, which is the file at `path`, and begins a new file where it is full.

    The full ones are `clawd.log.1` (the newest) to `clawd.log.3`. Descriptors 1 and 2 follow to
    the new file, so that what a library prints, and a crash, is in the log as well.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> None:
        super().__init__(sys.stderr)
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Write the record."""
        # A log that cannot be rotated (a full disk) is still written.
        with contextlib.suppress(OSError, ValueError):
            self._rotate_when_full()
        super().emit(record)

    def _rotate_when_full(self) -> None:
        descriptor = self.stream.fileno()
        if os.fstat(descriptor).st_size < self._max_bytes or not is_log(descriptor, self._path):
            return
        for number in range(self._kept, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path if number == 1 else older.with_suffix(f".{number - 1}")
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fresh = os.open(self._path, flags, 0o600)
        was_stdout = os.path.sameopenfile(1, descriptor)
        os.dup2(fresh, descriptor)
        if was_stdout:
            os.dup2(fresh, 1)
        os.close(fresh)


def is_log(descriptor: int, path: Path) -> bool:
    """Tell whether the descriptor is the file at the path, and no link to another."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False
