"""Downloads one large file: in pieces side by side, on from where it was, its digest checked.

What has come stands in `.NAME.download` in the folder, and which of it in `.NAME.download.json`,
until the file is whole and right:

    {"url":"https://…","size_bytes":98,"sha256":"9f86d0…","etag":"","piece_bytes":64,"done":[64,3]}
"""

import contextlib
import fcntl
import http.client
import os
import re
import shutil
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from clawctl.modelfile import HEAD_BYTES, check_head, digest_of, make_folder
from clawctl.web import CODE, TryAgainError, Web, shown
from clawd.errors import BusyError, ClawError, ForbiddenError, StorageError

READ_BYTES = 1 << 18
SHOW_EVERY_S = 0.2
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A file to download.

    Attributes:
        name: in the folder.
        size_bytes: as its source tells it, 0 where it does not.
        sha256: as its source tells it, "" where it does not.
        token: the key for its host.
        member: the name of the file in the zip archive that comes, "" where it comes as it is;
            then `size_bytes` is the archive's.
        archive_sha256: of that archive.
    """

    url: str
    name: str
    size_bytes: int = 0
    sha256: str = ""
    token: str = field(default="", repr=False)
    member: str = ""
    archive_sha256: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of what comes, as its source tells it."""
        return self.archive_sha256 if self.member else self.sha256


@dataclass(frozen=True, kw_only=True)
class DownloadPace:
    """How hard it is tried.

    Attributes:
        max_failures: tries of a piece in a row that bring nothing, until it is given up.
        pause_s: before the second try; doubles with each.
        save_every_s: how often what has come is made to survive a loss of power.
    """

    piece_bytes: int = 64 << 20
    connections: int = 4
    max_failures: int = 8
    pause_s: float = 0.5
    max_pause_s: float = 60.0
    save_every_s: float = 5.0


class _Part(msgspec.Struct, kw_only=True):
    """What has come of a file; `done` are the bytes of each piece, from its start."""

    url: str
    size_bytes: int
    sha256: str
    etag: str
    piece_bytes: int
    done: list[int]


class Download:
    """One file on its way; `run` may be called once."""

    def __init__(
        self, web: Web, remote: Remote, folder: Path, pace: DownloadPace | None = None
    ) -> None:
        self._web = web
        self._remote = remote
        self._pace = pace or DownloadPace()
        self.path = folder / f".{remote.name}.download"
        self._notes = folder / f".{remote.name}.download.json"
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._turn = threading.Condition(self._lock)
        self._next = 0
        self._working = 0
        self._error: Exception | None = None
        self._descriptor = -1
        self._has_ranges = False

    def run(self, progress: Progress, checking: Progress) -> str:
        """Download the file to `path` and return its SHA-256.

        Interrupted or failed, what has come is kept for the next time, unless it was wrong.
        `progress` gets the bytes that are there and all, `checking` those that were hashed.

        Raises:
            ClawError: it cannot be had, is not what was announced, or there is no room.
        """
        make_folder(self.path.parent)
        self._descriptor = self._opened()
        try:
            self._prepare()
            self._fetch_all(progress)
            return self._checked(checking)
        finally:
            with self._lock:
                # A thread that still waits for its server must not write into another file.
                descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def settle(self, target: Path) -> None:
        """Put the whole file in its place."""
        self.path.chmod(0o644)
        self.path.replace(target)
        self._notes.unlink(missing_ok=True)

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise ForbiddenError(
                f"{self.path.parent} may not be written: {error.strerror}",
                hint="Do it as the user whose home it is, or as root.",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise BusyError(
                f"{self._remote.name} is being downloaded already", retry_after_s=60.0
            ) from error
        return descriptor

    def _prepare(self) -> None:
        """Ask for the first bytes, find what is there already, and see that the rest has room."""
        self._etag = ""
        self._size = self._patiently(self._probe)
        self._part = self._kept()
        place = os.fstatvfs(self._descriptor)
        free = place.f_bavail * place.f_frsize
        missing = self._size - (sum(self._part.done) if self._part else 0)
        if self._remote.member:  # weights hardly pack
            missing += self._size * 5 // 4
        if free < missing:
            raise StorageError(
                f"{self.path.parent} has room for {free} bytes, and {self._remote.name} needs "
                f"{missing} more",
                hint="Make room. What has come of it is kept.",
            )
        if self._part is None:
            os.ftruncate(self._descriptor, 0)
            piece = self._pace.piece_bytes if self._has_ranges else self._size
            self._part = _Part(
                url=shown(self._remote.url),
                size_bytes=self._size,
                sha256=self._remote.digest,
                etag=self._etag,
                piece_bytes=piece,
                done=[0] * -(-self._size // piece),
            )

    def _probe(self) -> int:
        """Return the file's size; its first bytes tell whether it is a model at all."""
        remote = self._remote
        headers = {"Range": f"bytes=0-{HEAD_BYTES - 1}"}
        with self._web.open(remote.url, token=remote.token, headers=headers) as answer:
            self._has_ranges = answer.status == 206
            size = _size_of(answer, 0)
            etag = answer.headers.get("ETag") or ""
            self._etag = "" if etag.startswith("W/") else etag
            head = answer.read(HEAD_BYTES)
        if size <= 0:
            raise ClawError(
                f"{shown(remote.url)} does not tell how large it is",
                code=CODE,
                hint="Without that nobody could say whether it is whole: download it by other "
                "means, then: clawctl model add FILE",
            )
        if remote.size_bytes not in {0, size}:
            raise ClawError(
                f"{remote.name} has {remote.size_bytes} bytes by its source, and {size} by its "
                f"server ({shown(remote.url)})",
                code=CODE,
                hint="The source, or a proxy on the way, is not to be trusted with it.",
            )
        if len(head) < min(HEAD_BYTES, size):
            raise TryAgainError(f"{shown(remote.url)} broke off")
        if not remote.member:
            check_head(head, shown(remote.url))
        return size

    def _kept(self) -> _Part | None:
        """Return what came at an earlier time, if it is of the very same file."""
        try:
            part = msgspec.json.decode(self._notes.read_bytes(), type=_Part)
        except (OSError, msgspec.DecodeError):
            return None
        if self._remote.digest:
            is_same = part.sha256 == self._remote.digest
        else:
            is_same = part.url == shown(self._remote.url) and part.etag == self._etag != ""
        fits = part.size_bytes == self._size and part.piece_bytes > 0 and self._has_ranges
        if not (is_same and fits and len(part.done) == -(-self._size // part.piece_bytes)):
            return None
        there = os.fstat(self._descriptor).st_size
        for index, done in enumerate(part.done):
            start = index * part.piece_bytes
            room = min(part.piece_bytes, self._size - start)
            part.done[index] = max(0, min(done, room, there - start))
        return part

    def _fetch_all(self, progress: Progress) -> None:
        part = self._part
        assert part is not None
        count = min(self._pace.connections, len(part.done)) if self._has_ranges else 1
        self._working = count
        for number in range(count):
            # Daemons: one that hangs in a read must not keep an interrupted command alive.
            threading.Thread(target=self._work, name=f"download-{number}", daemon=True).start()
        saved_at = time.monotonic()
        try:
            while True:
                with self._turn:
                    if not self._working or self._error is not None:
                        break
                    self._turn.wait(SHOW_EVERY_S)
                progress(sum(part.done), self._size)
                if time.monotonic() - saved_at >= self._pace.save_every_s:
                    self._save()
                    saved_at = time.monotonic()
        finally:
            self._stop.set()
            self._save()
        if self._error is not None:
            raise self._error
        progress(sum(part.done), self._size)

    def _work(self) -> None:
        part = self._part
        assert part is not None
        try:
            while not self._stop.is_set():
                with self._lock:
                    index, self._next = self._next, self._next + 1
                if index >= len(part.done):
                    break
                self._fetch(part, index)
        except Exception as error:  # noqa: BLE001 goes on in the thread that waits
            with self._lock:
                self._error = self._error or error
        finally:
            with self._turn:
                self._working -= 1
                self._turn.notify()

    def _fetch(self, part: _Part, index: int) -> None:
        """Get what is missing of a piece, in as many tries as bring something."""
        start = index * part.piece_bytes
        end = min(start + part.piece_bytes, self._size)
        failures = 0
        while part.done[index] < end - start and not self._stop.is_set():
            before = part.done[index]
            try:
                self._read(part, index, end)
            except (TryAgainError, OSError, http.client.HTTPException) as error:
                came = part.done[index] - before if self._has_ranges else 0
                failures = 1 if came else failures + 1
                self._rest(error, failures)
            if not self._has_ranges and part.done[index] < end:
                part.done[index] = 0

    def _read(self, part: _Part, index: int, end: int) -> None:
        remote, at = self._remote, index * part.piece_bytes + part.done[index]
        headers = {}
        if self._has_ranges:
            headers["Range"] = f"bytes={at}-{end - 1}"
            if not remote.digest and part.etag:
                headers["If-Range"] = part.etag
        with self._web.open(remote.url, token=remote.token, headers=headers) as answer:
            if self._has_ranges and answer.status != 206:
                raise ClawError(
                    f"{shown(remote.url)} is another file than when its download began",
                    code=CODE,
                    hint="Run it again: it begins anew.",
                )
            if _size_of(answer, at) != self._size:
                raise ClawError(f"{shown(remote.url)} changed its size", code=CODE)
            while at < end and not self._stop.is_set():
                data = answer.read1(min(READ_BYTES, end - at))
                if not data:
                    raise TryAgainError(f"{shown(remote.url)} broke off")
                self._write(part, index, at, data)
                at += len(data)

    def _write(self, part: _Part, index: int, at: int, data: bytes) -> None:
        with self._lock:
            if self._stop.is_set() or self._descriptor < 0:
                return
            view = memoryview(data)
            try:
                while view:
                    written = os.pwrite(self._descriptor, view, at)
                    view, at = view[written:], at + written
            except OSError as error:
                raise StorageError(
                    f"{self.path} cannot be written: {error.strerror}",
                    hint="Make room. What has come of it is kept.",
                ) from error
            part.done[index] += len(data)

    def _rest(self, error: Exception, failures: int) -> None:
        """Wait before the next try, or give up."""
        what = error.message if isinstance(error, TryAgainError) else _words(error)
        if failures >= self._pace.max_failures:
            raise ClawError(
                f"{self._remote.name} was not downloaded whole: {failures} tries in a row brought "
                f"nothing; the last one: {what}",
                code=CODE,
                hint="What has come is kept: the same command goes on there.",
            ) from error
        asked = error.wait_s if isinstance(error, TryAgainError) else 0.0
        pause_s = max(asked, self._pace.pause_s * 2 ** (failures - 1))
        self._stop.wait(min(pause_s, self._pace.max_pause_s))

    def _patiently(self, ask: Callable[[], int]) -> int:
        failures = 0
        while True:
            try:
                return ask()
            except (TryAgainError, OSError, http.client.HTTPException) as error:
                failures += 1
                self._rest(error, failures)

    def _save(self) -> None:
        """Write down what has come, once it is on the disk."""
        part = self._part
        assert part is not None
        with self._lock:
            noted = msgspec.json.encode(part)
        fresh = self._notes.with_name(f"{self._notes.name}.new")
        with contextlib.suppress(OSError):
            os.fdatasync(self._descriptor)
            fresh.write_bytes(noted)
            fresh.replace(self._notes)

    def _checked(self, checking: Progress) -> str:
        """Return the file's SHA-256; one that is not its source's is the end of the file."""
        found = self._compared(self._remote.digest, checking)
        if not self._remote.member:
            return found
        self._unpack()
        return self._compared(self._remote.sha256, checking)

    def _unpack(self) -> None:
        """Put the file that is meant in the place of the archive that it came in."""
        fresh, member = self._notes.with_suffix(".unpacked"), self._remote.member
        try:
            with zipfile.ZipFile(self.path) as archive:
                names = [each for each in archive.namelist() if Path(each).name == member]
                if len(names) != 1:
                    raise ClawError(f"{shown(self._remote.url)} has no {member} in it", code=CODE)
                with archive.open(names[0]) as source, fresh.open("wb") as target:
                    check_head(head := source.read(HEAD_BYTES), member)
                    target.write(head)
                    shutil.copyfileobj(source, target, READ_BYTES)
                    target.flush()
                    os.fsync(target.fileno())
            fresh.replace(self.path)
            self._notes.unlink(missing_ok=True)
        except (OSError, zipfile.BadZipFile) as error:
            raise StorageError(f"{self.path} was not unpacked: {error}") from error
        finally:
            fresh.unlink(missing_ok=True)

    def _compared(self, wanted: str, checking: Progress) -> str:
        try:
            os.fsync(self._descriptor)
            found = digest_of(self.path, checking)
        except OSError as error:
            raise StorageError(f"{self.path} cannot be read: {error.strerror}") from error
        if wanted and found != wanted:
            for path in (self.path, self._notes):
                path.unlink(missing_ok=True)
            raise ClawError(
                f"{self._remote.name} came with another content than its source tells: SHA-256 "
                f"{found}, expected {wanted}",
                code=CODE,
                hint="It was damaged or exchanged on the way, and is deleted. Run it again, by "
                "another network or without a mirror.",
            )
        return found


def _size_of(answer: http.client.HTTPResponse, at: int) -> int:
    """Return the size of the whole file by an answer that begins at a byte; 0 for untold.

    Raises:
        ClawError: it begins elsewhere, or is packed.
    """
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise ClawError("the server packs what was asked for as it is", code=CODE)
    if answer.status != 206:
        length = answer.headers.get("Content-Length") or ""
        return int(length) if length.isdecimal() else 0
    content_range = answer.headers.get("Content-Range") or ""
    found = _RANGE.fullmatch(content_range.strip())
    if found is None or int(found[1]) != at:
        raise ClawError(
            f"the server was asked for byte {at} on and answered with {content_range!r}", code=CODE
        )
    return int(found[3])


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
