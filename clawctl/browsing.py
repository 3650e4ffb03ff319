"""Opens a page in the person's browser, by xdg-open: no shell, nothing of ours is handed on."""

import os
import shutil
import subprocess
from urllib.parse import urlsplit

OPENER = "xdg-open"
PATIENCE_S = 3.0


def open_page(url: str) -> str:
    """Open a page; return why it could not be, "" when it was."""
    if urlsplit(url).scheme not in {"http", "https"}:
        return "only http:// and https:// addresses are opened"
    opener = shutil.which(OPENER)
    if opener is None:
        return f"{OPENER} is not on this machine"
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no desktop here"
    try:
        started = subprocess.Popen(  # noqa: S603 a program of the machine, a list, no shell
            [opener, url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            close_fds=True,
        )
    except OSError as error:
        return f"{OPENER} cannot be started: {error.strerror}"
    try:
        status = started.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        # A browser that it became goes on after us; Popen must not warn that nobody waited.
        started.returncode = 0
        return ""
    return f"{OPENER} ended with status {status}" if status else ""
