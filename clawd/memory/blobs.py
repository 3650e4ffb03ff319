"""Contents by their SHA-256, each once, in files: `<folder>/ab/ab12…` (0600)."""

import contextlib
import hashlib
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from clawd.errors import StorageError
from clawd.security.file_content import CHUNK_BYTES, clone, write_all
from clawd.security.snapshot import digest_of

# What is left to others on the disk.
MIN_FREE_BYTES = 512 << 20
_ASKED_EVERY_BYTES = 64 << 20
_SMALL_BYTES = 4 << 20
_SPARED_S = 600.0
_DIGEST_LENGTH = 64

_log = logging.getLogger(__name__)


class Blobs:
    """Contents by their SHA-256, in files. Methods block and may be called from any thread.

    Args:
        folder: where they lie; made when it is needed.
        max_bytes: how much is kept; 0 keeps nothing.
    """

    def __init__(self, folder: Path, max_bytes: Callable[[], int]) -> None:
        self._folder = folder
        self.max_bytes = max_bytes
        self._sizes: dict[str, int] | None = None
        self._made: set[str] = set()
        self._recent: dict[str, float] = {}
        self._lock = threading.Lock()
        self._left_bytes = 0
        self.used_bytes = 0

    def has(self, sha256: str) -> bool:
        """Return whether a content is kept."""
        return sha256 in self._known()

    def open(self, sha256: str) -> BinaryIO:
        """Open a content.

        Raises:
            StorageError: it is not there.
        """
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.fdopen(os.open(self._place(sha256), flags), "rb")
        except OSError as error:
            raise StorageError(f"what was kept cannot be read: {error.strerror}") from error

    def put(self, file: int, size: int) -> str:
        """Keep the content of an open file if there is room, and return its SHA-256 in any case.

        Raises:
            OSError: the file cannot be read.
        """
        if size <= _SMALL_BYTES:
            data = _whole(file)
            digest = hashlib.sha256(data).hexdigest()
            self._put(digest, len(data), lambda draft: write_all(draft, data))
            return digest
        digest = digest_of(file, size)
        self._put(digest, size, lambda draft: clone(file, draft))
        return digest

    def sweep(self, named: set[str]) -> None:
        """Remove what nothing names, but for what came lately and may not be named yet."""
        known, lately = self._known(), time.monotonic() - _SPARED_S
        with self._lock:
            self._recent = {each: at for each, at in self._recent.items() if at > lately}
            spared = named | self._recent.keys()
        for digest in [each for each in known if each not in spared]:
            with contextlib.suppress(OSError):
                self._place(digest).unlink()
            with self._lock:
                self.used_bytes -= known.pop(digest, 0)

    def _put(self, digest: str, size: int, fill: Callable[[int], None]) -> None:
        with self._lock:
            self._recent[digest] = time.monotonic()
        if not self.has(digest) and self._has_room(size):
            self._store(digest, fill)

    def _known(self) -> dict[str, int]:
        with self._lock:
            if self._sizes is None:
                self._sizes = dict(self._found())
                self.used_bytes = sum(self._sizes.values())
            return self._sizes

    def _found(self) -> Iterator[tuple[str, int]]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as folders:
            for folder in folders:
                with os.scandir(folder.path) as blobs:
                    for blob in blobs:
                        if len(blob.name) == _DIGEST_LENGTH:  # else a draft that a crash left
                            yield blob.name, blob.stat(follow_symlinks=False).st_size
                        else:
                            Path(blob.path).unlink()

    def _has_room(self, size: int) -> bool:
        if self.used_bytes + size > self.max_bytes():
            return False
        # Asked seldom: a look at a large workspace keeps thousands of small contents.
        self._left_bytes -= size
        if self._left_bytes < 0:
            near = next(each for each in (self._folder, *self._folder.parents) if each.exists())
            free = shutil.disk_usage(near).free - MIN_FREE_BYTES - size
            if free < 0:
                return False
            self._left_bytes = min(free, _ASKED_EVERY_BYTES)
        return True

    def _store(self, digest: str, fill: Callable[[int], None]) -> None:
        """Keep a content; one that the disk does not take is not kept."""
        place = self._place(digest)
        draft = place.with_name(f"draft-{secrets.token_hex(8)}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            if digest[:2] not in self._made:
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._made.add(digest[:2])
            descriptor = os.open(draft, flags, 0o600)
            try:
                fill(descriptor)
                size = os.fstat(descriptor).st_size
                # A large file could have been changed between the first reading and the copy.
                is_it = size <= _SMALL_BYTES or digest_of(descriptor, size) == digest
            finally:
                os.close(descriptor)
            if not is_it:
                draft.unlink()
            else:
                os.rename(draft, place)  # noqa: PTH104 - thousands in a row
                with self._lock:
                    assert self._sizes is not None
                    self._sizes[digest] = size
                    self.used_bytes += size
        except OSError as error:
            _log.warning("a content is not kept for undo: %s", error.strerror)
            self._made.discard(digest[:2])
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    def _place(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest


def _whole(file: int) -> bytes:
    data, at = [], 0
    while chunk := os.pread(file, CHUNK_BYTES, at):
        data.append(chunk)
        at += len(chunk)
    return b"".join(data)
