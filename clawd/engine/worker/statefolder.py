"""The folder of state files: which are there, how many bytes they may take, which go first.

Names are `<model>-<sequence>.kv`; a file's time of change is when its sequence was last used. All
models share one folder and one quota. Nothing is removed but what has such a name.
"""

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Generator
from pathlib import Path

import msgspec

from clawd.engine.worker.buffers import Buffer
from clawd.engine.worker.prompt import Part
from clawd.engine.worker.statefile import (
    TEMPORARY_SUFFIX,
    BadStateError,
    Header,
    file_size,
    is_being_written,
    pack_tokens,
    read_header,
    read_state,
    write_slices,
)

SUFFIX = ".kv"
MAX_FILES = 64
# A file under its temporary name is written within seconds; where it cannot be seen whether
# somebody does, older ones were left by a crash.
STALE_S = 120.0

logger = logging.getLogger(__name__)


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """A state file and its header."""

    path: Path
    header: Header
    used_at: float


class StateFolder:
    """State files of one model. Its methods raise no OSError: what fails is logged and skipped.

    Args:
        folder: where; made when something is written.
        limit_bytes: of all state files in it.
        fingerprint: of the model; files with another are of no use.
    """

    def __init__(self, folder: Path, limit_bytes: int, fingerprint: str) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._fingerprint = fingerprint
        self._prefix = fingerprint[:16] + "-"

    def states(self) -> list[StoredState]:
        """Return this model's states, last used first; removes what is broken or left behind."""
        self._remove_stale()
        found: list[StoredState] = []
        for used_at, _, path in sorted(self._files(), reverse=True):
            if not path.name.startswith(self._prefix):
                continue
            header = self._header(path)
            if header is None or len(found) == MAX_FILES:
                self.remove(path)
            else:
                found.append(StoredState(path=path, header=header, used_at=used_at))
        return found

    def read(self, stored: StoredState, into: Buffer) -> bool:
        """Read a state into a buffer; False, and the file is gone, when it is not whole."""
        try:
            read_state(stored.path, stored.header, into)
        except (OSError, BadStateError) as error:
            logger.warning("a kept state is not used: %s", error)
            self.remove(stored.path)
            return False
        return True

    def write(
        self, tokens: list[int], parts: tuple[Part, ...], state: Buffer, used_at: float
    ) -> Generator[StoredState | None]:
        """Write a state slice by slice, yielding None after each and the file at the end.

        Makes room by removing files that were used less recently; ends without a file when there
        is none to be made, or the disk takes no more. Closing the iterator leaves nothing behind.
        """
        packed = pack_tokens(tokens)
        header = Header(
            fingerprint=self._fingerprint, tokens=packed, parts=parts, size=state.nbytes
        )
        digest = hashlib.sha256(packed).hexdigest()[:16]
        path = self._folder / f"{self._prefix}{digest}{SUFFIX}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._make_room(file_size(header), used_at):
                return
            for _ in write_slices(path, header, state):
                yield None
        except OSError as error:
            logger.warning("a sequence's state is not kept: %s", error)
            return
        self.touch(path, used_at)
        yield StoredState(path=path, header=header, used_at=used_at)

    def touch(self, path: Path, used_at: float) -> None:
        """Note when a state was used."""
        try:
            # Through a descriptor: by its path, no file's times may be changed here.
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.utime(file, (used_at, used_at))
            finally:
                os.close(file)
        except OSError as error:
            logger.debug("the time of a kept state is not set: %s", error)

    def remove(self, path: Path) -> None:
        """Remove a state file."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("a kept state is not removed: %s", error)

    def _header(self, path: Path) -> Header | None:
        try:
            header = read_header(path)
        except (OSError, BadStateError) as error:
            logger.warning("a kept state is removed: %s", error)
            return None
        return header if header.fingerprint == self._fingerprint else None

    def _files(self) -> list[tuple[float, int, Path]]:
        """Return time, size and path of every state file, other models' included."""
        return [
            (status.st_mtime, status.st_size, path)
            for path, status in self._entries(SUFFIX)
            if _is_our_name(path.stem)
        ]

    def _entries(self, suffix: str) -> list[tuple[Path, os.stat_result]]:
        entries = []
        try:
            with os.scandir(self._folder) as found:
                for entry in found:
                    # Another worker may remove a file while this one looks.
                    with contextlib.suppress(FileNotFoundError):
                        if entry.name.endswith(suffix):
                            entries.append((Path(entry.path), entry.stat(follow_symlinks=False)))
        except FileNotFoundError:
            return []  # the first write makes the folder
        except OSError as error:
            logger.warning("the folder of kept states cannot be read: %s", error)
        return entries

    def _make_room(self, size: int, used_at: float) -> bool:
        files = sorted(self._files())
        total = sum(length for _, length, _ in files)
        for time_used, length, path in files:
            if total + size <= self._limit_bytes or time_used > used_at:
                break
            self.remove(path)
            total -= length
        return total + size <= self._limit_bytes

    def _remove_stale(self) -> None:
        for path, status in self._entries(TEMPORARY_SUFFIX):
            if _is_our_name(path.stem.partition(".")[0]) and _is_left_behind(path, status):
                self.remove(path)


def _is_left_behind(path: Path, status: os.stat_result) -> bool:
    try:
        is_written = is_being_written(path)
    except OSError:
        return False
    # It is locked before its first byte is written: an empty one may be about to be.
    if is_written is None or (not is_written and not status.st_size):
        return status.st_mtime < time.time() - STALE_S
    return not is_written


def _is_our_name(stem: str) -> bool:
    model, _, sequence = stem.partition("-")
    return all(
        len(half) == 16 and set(half) <= set("0123456789abcdef") for half in (model, sequence)
    )
