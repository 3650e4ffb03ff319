"""Which conversation belongs to a folder: a file in the home of clawd, named for the folder.

    <home>/folders/<hash of the folder's real path>:   conv-7f3a…

Earlier ones lay in the folder itself, as `.clawd_session`, where every `git status` showed them:
one that is found is moved. A folder may have been made by anybody, so nothing in it is believed:
the file is followed nowhere (no link, no pipe), has to be the person's own and of nobody else's
writing, and what it holds has to look like an id. The daemon then tells whose conversation it is.
"""

import contextlib
import hashlib
import os
import re
import secrets
import stat
from pathlib import Path

from clawd.errors import ClawError

OLD_NAME = ".clawd_session"
FOLDERS = "folders"
MAX_BYTES = 256
MAX_FOLDERS = 2_000

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


def read_session(folder: Path, home: Path) -> str:
    """Return the conversation of a folder, "" where there is none; an old file is moved.

    Raises:
        ClawError: there is a file that is not to be trusted; the message says why.
    """
    kept = _read(_place(folder, home))
    if kept:
        return kept
    old = _read(folder / OLD_NAME)
    if old:
        # It stays what it was where it cannot be moved: the next question tries it again.
        with contextlib.suppress(OSError):
            write_session(folder, home, old)
    return old


def write_session(folder: Path, home: Path, conversation_id: str) -> None:
    """Let a conversation belong to a folder.

    Raises:
        OSError: the home takes no files.
    """
    place = _place(folder, home)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{conversation_id}\n")
        partial.replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    _forget_oldest(place.parent)
    _remove_old(folder / OLD_NAME)


def _place(folder: Path, home: Path) -> Path:
    real = os.path.realpath(folder)
    return home / FOLDERS / hashlib.sha256(os.fsencode(real)).hexdigest()[:32]


def _forget_oldest(folders: Path) -> None:
    """Keep the newest; what a folder is not asked from any more need not be known."""
    for path in sorted(folders.iterdir(), key=_changed_at)[:-MAX_FOLDERS]:
        with contextlib.suppress(OSError):
            path.unlink()


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _remove_old(path: Path) -> None:
    """Remove the file of earlier versions, if it is one that would be believed."""
    with contextlib.suppress(ClawError, OSError):
        if _read(path):
            path.unlink()


def _read(path: Path) -> str:
    """Return the id in a file, "" where there is no file.

    Raises:
        ClawError: there is one that is not to be trusted; the message says why.
    """
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


def _refused(path: Path, why: str) -> ClawError:
    return ClawError(
        f"{path} is not used: {why}",
        hint="Remove it, or leave it out with --no-local-session.",
    )
