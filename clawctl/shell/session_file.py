"""`.clawd_session`: the conversation that belongs to a folder. One line, its id, mode 0600.

    conv-7f3a…

A folder may have been made by anybody, so that nothing in it is believed: the file is followed
nowhere (no link, no pipe), has to be the person's own and of nobody else's writing, and what it
holds has to look like an id. The daemon then tells whose conversation it is.
"""

import contextlib
import os
import re
import secrets
import stat
from pathlib import Path

from clawd.errors import ClawError

NAME = ".clawd_session"
MAX_BYTES = 256

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


def read_session(folder: Path) -> str:
    """Return the conversation of a folder, "" where there is no file.

    Raises:
        ClawError: there is one that is not to be trusted; the message says why.
    """
    path = folder / NAME
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        why = "it is a symbolic link" if path.is_symlink() else error.strerror
        raise _refused(path, str(why)) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise _refused(path, "it is no file")
        if facts.st_uid != os.geteuid():
            raise _refused(path, f"it belongs to uid {facts.st_uid}")
        if facts.st_mode & 0o077:
            raise _refused(path, f"its mode is {stat.S_IMODE(facts.st_mode):04o}, not 0600")
        data = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    text = data.decode("ascii", errors="replace").removesuffix("\n")
    if not _ID.fullmatch(text):
        raise _refused(path, "it holds no id of a conversation")
    return text


def write_session(folder: Path, conversation_id: str) -> None:
    """Let a conversation belong to a folder; a link or a file of others there is replaced.

    Raises:
        OSError: the folder takes no files.
    """
    path = folder / NAME
    if path.is_dir() and not path.is_symlink():
        raise IsADirectoryError(f"{path} is a folder")
    partial = folder / f"{NAME}.{secrets.token_hex(4)}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{conversation_id}\n")
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def _refused(path: Path, why: str) -> ClawError:
    return ClawError(
        f"{path} is not used: {why}",
        hint="Remove it, or leave it out with --no-local-session.",
    )
