"""Finds the files of a workspace that run later outside, at a bounded cost.

It changes nothing, but opens folders of ours that are closed to us: a command hides files so.

A folder is read once and then only asked for its change time, which moves with every entry that
comes, goes or is renamed, and which no command can set back.

The caller bounds the number of folders; the nearest come first, and a repository's own at once,
so that no crowd of others hides them. Caches and node_modules are not entered, but for what a
repository's index names in them.
"""

import contextlib
import errno
import os
import stat
import struct
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from clawd.security import auto_exec_files

_MAX_CONFIG_BYTES = 64 << 10
_MAX_INDEX_BYTES = 64 << 20
_MAX_INDEXES = 1_000
_MAX_KEPT = 20_000
# A folder changed so recently may change again within one tick of the file system's clock.
_UNSETTLED_NS = 50_000_000
_NOT_ENTERED = frozenset(
    {"node_modules", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
)
_REPOSITORY_MARKS = ({"HEAD", "objects", "refs"}, {"HEAD", "commondir"})

# As links: what they lead to is found under its own name only.
_LINKED = (
    auto_exec_files.FOLDERS
    | auto_exec_files.VENV_NAMES
    | {path.split("/")[0] for path in auto_exec_files.BELOW}
)
# Longer names are refused by the kernel, but a program may start from a folder that has the longest
# name and go on by a relative one.
PATH_MAX = 4096
LONGEST = 2 * PATH_MAX
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC

Kind = Literal["file", "folder", "link", "repository"]
Key = tuple[int, int, str]
"""Device and inode of the folder, and the name in it: what stays when a parent is renamed."""
Identity = tuple[int, int, int]
"""Device, inode, time of the last change."""


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that runs later.

    Attributes:
        path: absolute.
        kind: what it is; a repository is the folder `.git`, whose hooks and settings are spots.
        key: where it hangs.
        identity: which thing it is; the change time is 0 for folders.
        is_shared: whether the file has further names, by which its content can be changed.
    """

    path: str
    kind: Kind
    key: Key
    identity: Identity
    is_shared: bool = False


class ScanResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a scan found; `is_whole` is False where it met a bound."""

    spots: dict[Key, Spot]
    folders: frozenset[tuple[int, int]]
    is_whole: bool


class _Listing(msgspec.Struct, frozen=True, kw_only=True):
    stamp: Identity
    is_settled: bool
    spots: tuple[tuple[str, Kind], ...]
    folders: tuple[str, ...]


class WorkspaceScan:
    """Scans one workspace, again and again. One caller at a time.

    Args:
        workspace: absolute and resolved.
        left_out: folders that no command can see.
    """

    def __init__(self, workspace: Path, *, left_out: frozenset[str] = frozenset()) -> None:
        self._root = str(workspace)
        self._left_out = left_out
        self._programs = auto_exec_files.own_programs(workspace)
        self._listings: dict[str, _Listing] = {}
        self._configs: dict[Identity, str] = {}
        self._gitlinks: dict[Identity, tuple[str, ...]] = {}

    @property
    def size(self) -> int:
        """How many folders are known."""
        return len(self._listings)

    def find(self, max_folders: int) -> ScanResult:
        """Return what runs later now, in so many folders at most.

        What cannot be read is left out: the owner's programs cannot run it either.
        """
        spots: dict[Key, Spot] = {}
        folders: set[tuple[int, int]] = set()
        kept: dict[str, _Listing] = {}
        waiting = deque([self._root])
        tops: list[tuple[str, Kind]] = []
        while (waiting or tops) and len(folders) < max_folders:
            if not waiting:
                waiting.extend(self._hidden_repositories(tops))
                tops = []
                continue
            path = waiting.popleft()
            listing = None if path in kept else self._listing(path)
            if listing is None:
                continue
            kept[path] = listing
            device, inode, _changed = listing.stamp
            folders.add((device, inode))
            for name, kind in listing.spots:
                self._add(spots, f"{path}/{name}", kind, (device, inode, name))
                if name == ".git":
                    tops.append((path, kind))
            for name in listing.folders:
                child = f"{path}/{name}"
                if child not in self._left_out:
                    (waiting.appendleft if name == ".git" else waiting.append)(child)
        if (waiting or tops) and len(self._listings) < _MAX_KEPT:
            kept = self._listings | kept  # a later, longer look asks for the rest again
        self._listings = kept
        return ScanResult(
            spots=spots, folders=frozenset(folders), is_whole=not waiting and not tops
        )

    def _listing(self, path: str) -> _Listing | None:
        known = self._listings.get(path)
        try:
            with reachable(path) as near:
                about = os.lstat(near)
                if not stat.S_ISDIR(about.st_mode):
                    return None
                stamp = (about.st_dev, about.st_ino, about.st_ctime_ns)
                if known is not None and known.is_settled and known.stamp == stamp:
                    return known
                is_settled = time.time_ns() - about.st_ctime_ns - _UNSETTLED_NS >= 0
                with _opened(near, about) as entries:
                    types = {entry.name: _type(entry) for entry in entries}
        except OSError:
            return None
        found, folders = _sorted_out(path, types, self._programs)
        return _Listing(stamp=stamp, is_settled=is_settled, spots=found, folders=folders)

    def _add(self, spots: dict[Key, Spot], path: str, kind: Kind, key: Key) -> None:
        spot = _spot(path, kind, key)
        if spot is None or key in spots:
            return
        spots[key] = spot
        if kind == "link" and key[2].casefold() != ".git":
            self._add_target(spots, path)
        elif kind == "folder" and key[2].casefold() in auto_exec_files.GIT_FOLDERS:
            for name in _links_in(path):
                self._add_target(spots, f"{path}/{name}")
        elif kind == "file" and key[2] == "config":
            wanted = self._hooks_path(spot)
            if wanted:
                top = os.path.dirname(os.path.dirname(path))  # noqa: PTH120 - strings for speed
                self._add_target(spots, os.path.join(top, os.path.expanduser(wanted)))  # noqa: PTH111,PTH118 - likewise

    def _add_target(self, spots: dict[Key, Spot], path: str) -> None:
        """Add what a link or a setting points to, where it lies in the workspace."""
        target = os.path.realpath(path)
        if not target.startswith(f"{self._root}/"):
            return
        folder, _, name = target.rpartition("/")
        try:
            about, parent = os.lstat(target), os.lstat(folder)
        except OSError:
            return
        key = (parent.st_dev, parent.st_ino, name)
        kind: Kind = "folder" if stat.S_ISDIR(about.st_mode) else "file"
        spot = _spot(target, kind, key)
        if spot is not None:
            spots.setdefault(key, spot)

    def _hidden_repositories(self, tops: list[tuple[str, Kind]]) -> list[str]:
        """Return what the indexes of repositories name below folders that are not entered."""
        hidden: list[str] = []
        for top, kind in tops:
            folder = f"{top}/.git"
            if kind == "file":
                wanted = (read_small(folder) or "").removeprefix("gitdir: ").strip()
                folder = os.path.join(top, wanted)  # noqa: PTH118 - strings for speed
            try:
                names = os.listdir(folder)  # noqa: PTH208 - likewise
            except OSError:
                continue
            for name in names:
                if name == "index" or name.startswith("sharedindex."):
                    hidden += [f"{top}/{link}" for link in self._links_of(f"{folder}/{name}")]
        return [path for path in hidden if os.path.realpath(path) == path]

    def _links_of(self, index: str) -> tuple[str, ...]:
        try:
            about = os.stat(index)  # noqa: PTH116 - likewise
        except OSError:
            return ()
        identity = (about.st_dev, about.st_ino, about.st_ctime_ns)
        if identity in self._gitlinks:
            return self._gitlinks[identity]
        found = gitlinks(_read(os.path.realpath(index), _MAX_INDEX_BYTES) or b"")
        links = tuple(link for link in found if _NOT_ENTERED & set(link.split("/")))
        if time.time_ns() - about.st_ctime_ns >= _UNSETTLED_NS:
            if len(self._gitlinks) >= _MAX_INDEXES:
                self._gitlinks = {}
            self._gitlinks[identity] = links
        return links

    def _hooks_path(self, config: Spot) -> str:
        if config.identity not in self._configs:
            self._configs = {
                config.identity: auto_exec_files.hooks_path(read_small(config.path) or ""),
                **self._configs,
            }
            self._configs = dict(list(self._configs.items())[:64])
        return self._configs[config.identity]


@contextlib.contextmanager
def reachable(path: str) -> Iterator[str]:
    """Give a name by which the kernel takes a path of any length: through its folder's descriptor.

    Raises:
        OSError: the folder cannot be reached, or the path is longer than any program can name.
    """
    size = len(os.fsencode(path))
    if size < PATH_MAX:
        yield path
        return
    if size > LONGEST:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    folder, _, name = path.rpartition("/")
    descriptor = os.open("/", _FOLDER)
    try:
        for piece in pieces(folder):
            inner = os.open(piece, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def pieces(path: str) -> Iterator[str]:
    """Return a path in relative pieces that the kernel takes, outermost first."""
    piece = ""
    for name in path.split("/"):
        longer = f"{piece}/{name}" if piece else name
        if len(os.fsencode(longer)) >= PATH_MAX:
            yield piece
            longer = name
        piece = longer
    if piece:
        yield piece


def read_small(path: str) -> str | None:
    """Return the text of a small regular file; None for anything else."""
    data = _read(path, _MAX_CONFIG_BYTES)
    return None if data is None else data.decode(errors="replace")


def _read(path: str, max_bytes: int) -> bytes | None:
    try:
        with reachable(path) as near:
            descriptor = os.open(near, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > max_bytes:
            return None
        return os.read(descriptor, max_bytes)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def open_up(descriptor: int) -> None:
    """Let the owner of a folder, if that is us, read and change it.

    A command can close one: what is in it is then not seen, or stays, and programs that know its
    name run it all the same.

    Raises:
        OSError: the mode cannot be changed.
    """
    about = os.fstat(descriptor)
    mode = stat.S_IMODE(about.st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU and about.st_uid == os.geteuid():
        Path(f"/proc/self/fd/{descriptor}").chmod(mode | stat.S_IRWXU)


def _opened(path: str, about: os.stat_result) -> "os._ScandirIterator[str]":
    needed = stat.S_IRUSR | stat.S_IXUSR
    if about.st_mode & needed != needed:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags)
        try:
            if os.path.samestat(os.fstat(descriptor), about):
                open_up(descriptor)
        finally:
            os.close(descriptor)
    return os.scandir(path)


def _sorted_out(
    path: str, types: dict[str, Kind], programs: str
) -> tuple[tuple[tuple[str, Kind], ...], tuple[str, ...]]:
    """Return what of a folder's entries runs later, and which of its folders to enter."""
    own_name = path.rpartition("/")[2].casefold()
    names = set(types)
    is_repository = own_name == ".git" or any(marks <= names for marks in _REPOSITORY_MARKS)
    if own_name == ".git":
        entered = {"modules", "worktrees"}
    else:  # a module can have any name
        entered = names if "/.git/" in path else names - _NOT_ENTERED
    # By its name as well: another could stand in its place, without the mark.
    is_venv = auto_exec_files.VENV_FILE in names or own_name in auto_exec_files.VENV_NAMES
    parts = (
        auto_exec_files.GIT_FILES | auto_exec_files.GIT_FOLDERS if is_repository else frozenset()
    ) | (auto_exec_files.VENV_PARTS if is_venv else frozenset())
    spots: list[tuple[str, Kind]] = []
    folders: list[str] = []
    for name, kind in types.items():
        folded = name.casefold()
        if kind == "folder" and folded == ".git":
            spots.append((name, "repository"))
            folders.append(name)
        elif folded in parts or _runs_later(folded, kind, path) or f"{path}/{name}" == programs:
            spots.append((name, kind))
        elif kind == "folder" and name in entered:
            folders.append(name)
    return tuple(spots), tuple(folders)


def _runs_later(folded: str, kind: Kind, folder: str) -> bool:
    if auto_exec_files.is_below(folder, folded):
        return True
    if kind == "folder":
        return folded in auto_exec_files.FOLDERS
    return (
        auto_exec_files.is_named_auto_exec(folded)
        or folded == ".git"
        or (kind == "link" and folded in _LINKED)
    )


def _type(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "file"


def _spot(path: str, kind: Kind, key: Key) -> Spot | None:
    try:
        with reachable(path) as near:
            about = os.lstat(near)
    except OSError:
        return None
    is_folder = stat.S_ISDIR(about.st_mode)
    changed = 0 if is_folder else about.st_ctime_ns
    return Spot(
        path=path,
        kind=kind,
        key=key,
        identity=(about.st_dev, about.st_ino, changed),
        is_shared=not is_folder and about.st_nlink > 1,
    )


def _links_in(folder: str) -> list[str]:
    try:
        with reachable(folder) as near, os.scandir(near) as entries:
            return [entry.name for entry in entries if entry.is_symlink()]
    except OSError:
        return []


# Reads from a repository's index which folders git takes for repositories of their own.
#
# `git status` runs what the settings of these name, wherever they lie.

_MAGIC = b"DIRC"
_GITLINK = 0o160000
_GITLINK_BYTES = _GITLINK.to_bytes(4, "big")
_HEADER = struct.Struct(">4sII")
_MODE_AT = 24
_NAME_LENGTH = 0xFFF
_EXTENDED = 0x4000
# SHA-1 and SHA-256. The index does not say which; what either finds counts.
_HASH_BYTES = (20, 32)


def gitlinks(index: bytes) -> frozenset[str]:
    """Return the paths, relative to the repository's top, of the repositories in an index.

    What follows a part that cannot be understood is left out: git does not read it either.
    """
    if not index.startswith(_MAGIC) or _GITLINK_BYTES not in index:
        return frozenset()
    found: set[str] = set()
    for hash_bytes in _HASH_BYTES:
        try:
            found.update(_gitlinks(index, hash_bytes))
        except (struct.error, ValueError, IndexError):
            continue
    return frozenset(found)


def _gitlinks(index: bytes, hash_bytes: int) -> Iterator[str]:
    _magic, version, count = _HEADER.unpack_from(index)
    at, name = _HEADER.size, b""
    for _ in range(count):
        (mode,) = struct.unpack_from(">I", index, at + _MODE_AT)
        flags_at = at + 40 + hash_bytes
        (flags,) = struct.unpack_from(">H", index, flags_at)
        start = flags_at + (4 if flags & _EXTENDED and version > 2 else 2)
        kept = b""
        if version == 4:
            dropped, start = _number(index, start)
            kept = name[: len(name) - dropped] if dropped else name
        end = index.index(b"\0", start)
        length = flags & _NAME_LENGTH
        size = end - start if length == _NAME_LENGTH else length - len(kept)
        name = kept + index[start : start + size]
        if mode == _GITLINK:
            yield name.partition(b"\0")[0].decode(errors="surrogateescape")
        # Names of the older versions are filled up to eight bytes.
        at = start + size + 1 if version == 4 else at + ((start - at + size + 8) & ~7)


def _number(index: bytes, at: int) -> tuple[int, int]:
    """Return a number as git packs it, and where it ends."""
    value = index[at] & 0x7F
    while index[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (index[at] & 0x7F)
    return value, at + 1
