"""The system's errors about a path, told as clawd's; and what a path leads to, in words."""

import errno
import os
import stat
from types import TracebackType

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError, StorageError


class Told:
    """Turns the system's errors about a path into clawd's while the body runs."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise _told(error, self._path) from error


def wrong_kind(path: str, mode: int) -> InvalidRequestError:
    """Return the error for a path that leads to no regular file."""
    if stat.S_ISDIR(mode):
        return InvalidRequestError(f"{path} is a folder; file_list lists it")
    return InvalidRequestError(f"{path} is {_kind_words(mode)}, not a regular file")


def _told(error: OSError, path: str) -> ClawError:
    match error.errno:
        case errno.ENOENT:
            return NotFoundError(f"{path} does not exist", hint="file_list shows what is there.")
        case errno.EXDEV | errno.ELOOP:
            return ForbiddenError(f"{path} leads out of the workspace")
        case errno.ENOTDIR:
            return InvalidRequestError(f"{path} is no folder, or leads through a file")
        case errno.EISDIR:
            return InvalidRequestError(f"{path} is a folder; file_list lists it")
        case errno.ENAMETOOLONG:
            return InvalidRequestError(f"{path[:80]}… is too long for a path")
        case _:
            return StorageError(f"{path}: {os.strerror(error.errno or errno.EIO)}")


def _kind_words(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    return kinds.get(stat.S_IFMT(mode), "a device")
