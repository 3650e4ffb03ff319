"""The log of a daemon that a client started: cut at 10 MiB, its last lines shown."""

import os
from pathlib import Path

LOG_BYTES = 10 * 1024 * 1024
LOG_LINES_SHOWN = 15


def rotate(log: Path) -> None:
    """Set a log over 10 MiB aside as `.1`. Its writer appends, so it may be cut under its hands."""
    try:
        if log.stat().st_size <= LOG_BYTES:
            return
        import shutil

        # What is written between the copy and the cut is lost; renaming would lose all the rest,
        # as a running daemon keeps its descriptor.
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        log.with_name(f"{log.name}.1").chmod(0o600)
        os.truncate(log, 0)
    except OSError:
        return


def last_lines(log: Path, offset: int) -> list[str]:
    """Return the last lines that were written after the offset."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(offset, stream.seek(0, os.SEEK_END) - 64 * 1024))
            text = stream.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-LOG_LINES_SHOWN:]
