"""The form of a backup: a gzipped tar whose first member says what every other one must be.

    manifest.json           {"format": "clawd-backup/1", "files": [{"path", "size", …}], …}
    home/memory.sqlite
    home/knowledge/…

Any tar can unpack one. What reads one here believes nothing of it: only plain files, in the order
and of the sizes that the manifest names, each with its hash, and no name that leads elsewhere.
"""

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, BinaryIO

import msgspec

from clawd.errors import ClawError, InvalidRequestError

FORMAT = "clawd-backup/1"
MANIFEST = "manifest.json"
AREAS = frozenset({"home", "config", "workspace"})
PIECE_BYTES = 1 << 20
MAX_MANIFEST_BYTES = 64 << 20
MAX_FILES = 1_000_000

# A journal beside a database is played back by the process that opens it, and may name files to
# remove.
_MEMORY = "home/memory.sqlite"
_MAX_PATH = 4_096
_MAX_NAME = 255
_MAX_HEADER_BYTES = 64 << 10
_MAX_PADDING_BYTES = 1 << 20
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_HEX = re.compile(r"([0-9a-f]{64})?")
_UNREADABLE = (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError)

Progress = Callable[[int, int], None]


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file: its path below an area, size, SHA-256, age, and whether its owner may run it."""

    path: str
    size: int
    sha256: str
    mtime_ns: int = 0
    executable: bool = False


class ChainFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was known of the receipts: the last one, and the key that everything began with."""

    seq: int = 0
    hash: str = ""
    first_public_key: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup is and holds.

    Attributes:
        home: where it was taken.
        schema: of memory.
        with_keys: whether the private keys of the receipts and the tokens of MCP servers are in it.
        left_out: what of the home is not, in words.
    """

    format: str
    created_at: str
    version: str
    host: str
    home: str
    is_system: bool
    with_keys: bool
    schema: int
    receipts: ChainFacts
    left_out: tuple[str, ...]
    files: tuple[ArchivedFile, ...]

    @property
    def total_bytes(self) -> int:
        """Return how much all files are together."""
        return sum(each.size for each in self.files)


class ArchiveWriter:
    """Writes a backup to a stream, the manifest first."""

    def __init__(self, stream: BinaryIO, manifest: Manifest) -> None:
        self._gzip = gzip.GzipFile(fileobj=stream, mode="wb", filename="", mtime=0, compresslevel=6)
        self._tar = tarfile.open(fileobj=self._gzip, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed by close
        data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        header = tarfile.TarInfo(MANIFEST)
        header.size, header.mode = len(data), 0o600
        self._tar.addfile(header, io.BytesIO(data))

    def add(self, entry: ArchivedFile, file: BinaryIO, progress: Callable[[int], None]) -> None:
        """Write a file.

        Raises:
            ClawError: it is no longer what the manifest says.
            OSError: it cannot be read, or the stream not be written.
        """
        header = tarfile.TarInfo(entry.path)
        header.size, header.mode = entry.size, 0o700 if entry.executable else 0o600
        header.mtime = entry.mtime_ns // 10**9
        hashed = _Hashed(file, progress)
        self._tar.addfile(header, hashed)
        if hashed.digest.hexdigest() != entry.sha256 or file.read(1):
            raise ClawError(
                f"{entry.path} was changed while it was read",
                hint="Run it again; stop what writes there if it happens again.",
            )

    def close(self) -> None:
        """Write the end."""
        self._tar.close()
        self._gzip.close()


class ArchiveReader:
    """Reads a backup from a stream, once, from the beginning.

    Args:
        stream: the archive; it need not be seekable.

    Raises:
        InvalidRequestError: it is no backup, or one that nobody here wrote.
    """

    def __init__(self, stream: BinaryIO) -> None:
        try:
            unzipped = gzip.GzipFile(fileobj=stream, mode="rb")
            self._stream = _Bounded(unzipped)
            bounded: IO[bytes] = self._stream  # type: ignore[assignment]
            self._tar = tarfile.open(fileobj=bounded, mode="r:", errorlevel=2)  # noqa: SIM115 - the stream is the caller's
            first = self._tar.next()
            self.manifest = self._read_manifest(first)
        except msgspec.MsgspecError as error:
            raise _refused(f"its manifest is not one of ours: {error}") from error
        except _UNREADABLE as error:
            raise _refused(f"it cannot be read: {error}") from error

    def files(self) -> Iterator[tuple[ArchivedFile, Iterator[bytes]]]:
        """Yield every file with its pieces, which are to be taken before the next file.

        Raises:
            InvalidRequestError: the archive does not hold what its manifest says.
        """
        try:
            for entry in self.manifest.files:
                member = _checked(self._tar.next(), entry.path, entry.size)
                yield entry, self._pieces(member, entry)
            if self._tar.next() is not None:
                raise _refused("it holds more than its manifest says")
            self._read_padding()
        except _UNREADABLE as error:
            raise _refused(f"it cannot be read to its end: {error}") from error

    def _read_padding(self) -> None:
        """Read to the end of the stream, whose checksum stands there."""
        for _ in range(_MAX_PADDING_BYTES // _MAX_HEADER_BYTES):
            piece = self._stream.read(_MAX_HEADER_BYTES)
            if not piece:
                return
            if piece.strip(b"\0"):
                break
        raise _refused("something follows its end")

    def _read_manifest(self, member: tarfile.TarInfo | None) -> Manifest:
        if member is None or member.name != MANIFEST:
            raise _refused("it does not begin with a manifest")
        if not 0 < member.size <= MAX_MANIFEST_BYTES:
            raise _refused(f"its manifest has {member.size} bytes")
        _checked(member, MANIFEST, member.size)
        file = self._tar.extractfile(member)
        assert file is not None
        data = b"".join(iter(lambda: file.read(PIECE_BYTES), b""))
        manifest = msgspec.json.decode(data, type=Manifest)
        if manifest.format != FORMAT:
            raise InvalidRequestError(
                f"this backup has the format {manifest.format!r}; this clawctl reads {FORMAT}",
                hint="A newer clawd wrote it: install that one.",
            )
        _check_facts(manifest)
        _check_entries(manifest)
        return manifest

    def _pieces(self, member: tarfile.TarInfo, entry: ArchivedFile) -> Iterator[bytes]:
        file = self._tar.extractfile(member)
        assert file is not None
        digest, count = hashlib.sha256(), 0
        for piece in iter(lambda: file.read(PIECE_BYTES), b""):
            digest.update(piece)
            count += len(piece)
            yield piece
        if count != entry.size or digest.hexdigest() != entry.sha256:
            raise _refused(f"{entry.path} is not what the manifest says: damaged or changed")


class _Bounded:
    """A stream of which nobody takes much at once: a header that claims gigabytes is refused."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream

    def read(self, count: int = -1) -> bytes:
        if not 0 <= count <= PIECE_BYTES + _MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {count} bytes")
        return self._stream.read(count)

    def seek(self, position: int) -> int:
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()


class _Hashed:
    """A file that is hashed as it is read."""

    def __init__(self, file: BinaryIO, progress: Callable[[int], None]) -> None:
        self._file = file
        self._progress = progress
        self.digest = hashlib.sha256()

    def read(self, count: int = -1) -> bytes:
        piece = self._file.read(count)
        self.digest.update(piece)
        self._progress(len(piece))
        return piece


def _checked(member: tarfile.TarInfo | None, path: str, size: int) -> tarfile.TarInfo:
    if member is None:
        raise _refused(f"it ends before {path}")
    if member.name != path:
        raise _refused(f"it holds {member.name!r} where its manifest names {path!r}")
    if member.type != tarfile.REGTYPE or member.linkname or member.issparse():
        raise _refused(f"{path} is not a plain file in it")
    if member.uid or member.gid:
        raise _refused(f"{path} belongs to uid {member.uid} in it; clawctl writes no owners")
    if member.size != size:
        raise _refused(f"{path} has {member.size} bytes, and its manifest says {size}")
    return member


def _check_facts(manifest: Manifest) -> None:
    """Refuse facts that are put to use (a folder is named after the time) and have another form."""
    if not _TIME.fullmatch(manifest.created_at):
        raise _refused("it does not say when it was made")
    head = manifest.receipts
    if not 0 <= head.seq < 1 << 62 or not all(
        _HEX.fullmatch(text) for text in (head.hash, head.first_public_key)
    ):
        raise _refused("what it says of its receipts has no valid form")


def _check_entries(manifest: Manifest) -> None:
    if len(manifest.files) > MAX_FILES:
        raise _refused(f"it names {len(manifest.files)} files; at most {MAX_FILES} are read")
    seen: set[str] = set()
    folders: set[str] = set()
    for entry in manifest.files:
        parts = entry.path.split("/")
        is_plain = all(part not in {"", ".", ".."} and len(part) <= _MAX_NAME for part in parts)
        if (
            not is_plain
            or parts[0] not in AREAS
            or len(parts) < 2
            or len(entry.path) > _MAX_PATH
            or not entry.path.isprintable()
        ):
            raise _refused(f"it names a path that leads elsewhere: {entry.path[:200]!r}")
        if entry.path.startswith(_MEMORY) and entry.path != _MEMORY:
            raise _refused(f"{entry.path} would be played into memory when that is opened")
        if entry.size < 0 or len(entry.sha256) != 64 or not 0 <= entry.mtime_ns < 1 << 62:
            raise _refused(f"{entry.path} has no valid size, hash and age")
        if entry.path in seen:
            raise _refused(f"it names {entry.path} twice")
        seen.add(entry.path)
        folders.update(str(each) for each in PurePosixPath(entry.path).parents)
    both = seen & folders
    if both:
        raise _refused(f"{min(both)} is a file and a folder in it")


def _refused(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"this is not a backup that can be trusted: {why}",
        hint="Take another copy of it. Nothing was changed.",
    )
