"""The home of a command in the sandbox: what is kept there between commands, and what is not.

HOME is a folder of the sandbox's own in its /tmp and gone with it. What programs fetch there again
and again (`CACHES`) is kept in a folder of the project's own, below clawd's home:

    <clawd's home>/cache/projects/<number of the workspace>/workspace    its path; used last then
                                                            home/        its caches

Commands write there, so it is never read by anything outside, and code that makes folders in it
follows no link. The least recently used projects go first when all of them are too large.
"""

import contextlib
import hashlib
import os
import secrets
import stat
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from clawd.kernel.files import remove_tree

INNER_HOME = "/tmp/home"  # noqa: S108 - the sandbox's own
KEPT = ".kept"

CACHES = (
    ".cache", ".npm", ".node-gyp", ".yarn", ".pnpm-store", ".local/share/pnpm",
    ".bun/install/cache",
    ".deno", ".cargo/registry", ".cargo/git", ".rustup/downloads", ".rustup/tmp", "go/pkg",
    ".m2/repository", ".gradle/caches", ".gradle/wrapper", ".ivy2", ".sbt", ".nuget/packages",
    ".dotnet/tools", ".gem", ".bundle/cache", ".composer/cache", ".pub-cache", ".hex", ".mix",
    ".cabal/packages", ".stack", ".opam/download-cache", ".julia", ".terraform.d/plugin-cache",
    ".conda/pkgs", ".ccache", ".konan",
)  # fmt: skip
"""Folders of a home that are kept for a project."""

_WORKSPACE_FILE = "workspace"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ProjectCache(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept for one workspace; `used_at` is in seconds since 1970."""

    id: str
    workspace: str
    size_bytes: int
    used_at: float


class ProjectCaches:
    """The caches of all projects. Functions block; safe to be used from many threads.

    Args:
        folder: that of all projects; made when it is needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._at_work: Counter[str] = Counter()
        self._lock = threading.Lock()

    def enter(self, workspace: Path) -> Path:
        """Return the folder of a workspace's caches, made and marked as used now.

        It stays until as many have left as have entered, whatever the others need.

        Raises:
            OSError: it cannot be made; nobody has entered.
        """
        with self._lock:
            home = self._made(workspace)
            self._at_work[_id_of(workspace)] += 1
            return home

    def leave(self, workspace: Path) -> None:
        """Count one out who entered."""
        with self._lock:
            self._at_work[_id_of(workspace)] -= 1

    def _made(self, workspace: Path) -> Path:
        place = self._folder / _id_of(workspace)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        (place / _WORKSPACE_FILE).write_bytes(os.fsencode(workspace))
        home = place / "home"
        home.mkdir(mode=0o700, exist_ok=True)
        top = os.open(home, _FOLDER_FLAGS)
        try:
            for name in CACHES:
                _make(top, name.split("/"))
        finally:
            os.close(top)
        return home

    def all(self) -> list[ProjectCache]:
        """Return what is kept, the most recently used first."""
        found = []
        for place in self._places():
            try:
                about = (place / _WORKSPACE_FILE).stat()
                workspace = os.fsdecode((place / _WORKSPACE_FILE).read_bytes())
            except OSError:
                continue  # being removed, or made
            found.append(
                ProjectCache(
                    id=place.name,
                    workspace=workspace,
                    size_bytes=size_of(place),
                    used_at=about.st_mtime,
                )
            )
        return sorted(found, key=lambda each: each.used_at, reverse=True)

    def remove(self, project: str) -> bool:
        """Remove what is kept for a project, by its id; return whether it is gone.

        What a command uses now stays: it could put links where something is just removed.
        """
        place = self._folder / project
        # Its own name goes first: what is half removed must not pass for a cache.
        gone = place.with_name(f".{project}.{secrets.token_hex(4)}")
        with self._lock:
            if self._at_work[project] > 0 or place.parent != self._folder:
                return False
            with contextlib.suppress(FileNotFoundError):
                place.rename(gone)
        with contextlib.suppress(OSError):
            remove_tree(gone)
        return True

    def shrink(self, limit_bytes: int) -> list[ProjectCache]:
        """Remove the least recently used until the rest fits; return what was removed."""
        known = self.all()
        total, removed = sum(each.size_bytes for each in known), []
        for each in reversed(known):
            if total <= limit_bytes:
                break
            if self.remove(each.id):
                total -= each.size_bytes
                removed.append(each)
        return removed

    def _places(self) -> list[Path]:
        try:
            return [each for each in self._folder.iterdir() if not each.name.startswith(".")]
        except FileNotFoundError:
            return []


def size_of(folder: Path) -> int:
    """Return the bytes on disk of all that is in a folder; links are not followed."""
    total = 0
    for _, names, files, top in os.fwalk(folder, follow_symlinks=False):
        for name in (*names, *files):
            with contextlib.suppress(OSError):
                total += os.lstat(name, dir_fd=top).st_blocks * 512
    return total


def home_links(
    workspace: Path, more: Iterable[tuple[str, Path]], *, kept: Path | None
) -> dict[str, str]:
    """Return the links of a home in the sandbox, by name: to its caches and to `more`.

    A name that would cover another, or the workspace, is left out.
    """
    links = {} if kept is None else {name: f"{KEPT}/{name}" for name in CACHES}
    for name, target in more:
        for each in [each for each in links if each == name or each.startswith(f"{name}/")]:
            del links[each]
        links[name] = str(target)
    home = Path(INNER_HOME)
    return {
        name: target
        if target.startswith("/")
        else os.path.relpath(home / target, (home / name).parent)
        for name, target in links.items()
        if home / name != workspace and home / name not in workspace.parents
    }


def make_home(home: Path, links: dict[str, str]) -> None:
    """Make the links of a home that nobody else can write yet.

    Raises:
        OSError: one of them cannot be made.
    """
    for name, target in links.items():
        link = home / name
        link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        link.symlink_to(target)


def _id_of(workspace: Path) -> str:
    return hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]


def _make(top: int, names: list[str]) -> None:
    """Make a folder in an open one; what a command put in its place goes."""
    folder = os.dup(top)
    try:
        for name in names:
            try:
                os.mkdir(name, 0o700, dir_fd=folder)
            except FileExistsError:
                about = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISDIR(about.st_mode):
                    os.unlink(name, dir_fd=folder)
                    os.mkdir(name, 0o700, dir_fd=folder)
            below = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
    finally:
        os.close(folder)


NOBODY = 65534


def inner_id(host_id: int) -> int:
    """Root outside is nobody inside; everybody else keeps their number."""
    return host_id or NOBODY


def etc_files() -> dict[str, bytes]:
    """Return the made-up part of /etc: one user, no names of the host's."""
    uid, gid = inner_id(os.getuid()), inner_id(os.getgid())
    users = [f"sandbox:x:{uid}:{gid}:sandbox:/tmp:/bin/sh", "root:x:0:0:root:/:/usr/sbin/nologin"]
    groups = [f"sandbox:x:{gid}:", "root:x:0:"]
    if NOBODY not in {uid, gid}:
        users.append(f"nobody:x:{NOBODY}:{NOBODY}:nobody:/:/usr/sbin/nologin")
        groups.append(f"nogroup:x:{NOBODY}:")
    return {
        "/etc/passwd": "\n".join([*users, ""]).encode(),
        "/etc/group": "\n".join([*groups, ""]).encode(),
        "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
        "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    }
