"""Where a path leads, for the policy, and that it leads there still when a call acts.

A path is inside the workspace, outside of it, or forbidden. What a swap between decision and act
could change is held: a path is resolved when a tool judges its arguments, and the nearest folder on
its way that is there is kept open until the call is over. The act starts from that folder and
follows no link, so that whatever was swapped since (while a person was asked, or by a command that
runs beside it) changes nothing but this: the call is refused.

    held.locate("docs/new/a.txt", rules)    # judged: keeps `docs` open, `new/a.txt` is below it
    held.open_parent("docs/new/a.txt", …)   # the act: `docs` must be where it was
"""

import contextlib
import ctypes
import errno
import functools
import os
import re
import stat
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from clawd.errors import ForbiddenError, InvalidRequestError
from clawd.security.auto_exec_files import is_auto_exec
from clawd.security.policy import PolicySettings
from clawd.wire.references import looks_like_reference, no_path

MAX_PATH_BYTES = 4096
_RETRIES = 16

# Builds and tests as programs: editors evaluate them when a project is opened, so untrusted text
# must not write them unseen. Commands may: to make them is their daily work.
_EVALUATED = re.compile(
    r"build\.(rs|sbt)|(build|settings)\.gradle(\.kts)?|mix\.exs|\.mocharc(\.[\w]+)?"
    r"|directory\.build\.(props|targets|rsp)|vitest\.workspace\.([cm]?[jt]s|json)"
    r"|(vite|vitest|jest|playwright|svelte|tailwind)\.config\.([cm]?[jt]s|json)"
)
# Obeyed rather than run: instructions to agents, trust of logins, settings of repositories.
_OBEYED_FOLDERS = frozenset({".agents", ".clawd", ".github"})
_OBEYED_FILES = frozenset({
    ".clinerules", ".curlrc", ".cursorrules", ".gitattributes", ".gitmodules", ".goosehints",
    ".roorules", ".rules", ".windsurfrules", "agent.md", "agents.md", "agents.override.md",
    "authorized_keys", "claude.local.md", "claude.md", "copilot-instructions.md", "crontab",
    "crush.md", "gemini.md", "qwen.md", "warp.md",
})  # fmt: skip

Place = Literal["inside", "outside", "forbidden"]


class PathRules(msgspec.Struct, frozen=True, kw_only=True):
    """Where file tools may go; all paths are absolute and resolved.

    Attributes:
        workspace: the folder that relative paths start from.
        workspace_only: whether nothing outside of it may be touched.
        forbidden: never touched, with all that lies under them.
        home: clawd's own home: forbidden too, but for a workspace inside of it.
        original: what the workspace is a copy of, None for none: paths in it are judged as those
            that they stand for, and nothing outside of it may be touched.
    """

    workspace: Path
    workspace_only: bool = True
    forbidden: tuple[Path, ...] = ()
    home: Path | None = None
    original: Path | None = None

    def forbids(self, real: Path) -> Path | None:
        """Return the forbidden path at or above a resolved path, or None."""
        if self.original is not None and real.is_relative_to(self.workspace):
            meant = self.original / real.relative_to(self.workspace)
            there = msgspec.structs.replace(self, workspace=self.original, original=None)
            return there.forbids(meant)
        for folder in self.forbidden:
            if real.is_relative_to(folder):
                return folder
        home = self.home
        if home is None or not real.is_relative_to(home):
            return None
        workspace = self.workspace
        is_inside = workspace != home and workspace.is_relative_to(home)
        return None if is_inside and real.is_relative_to(workspace) else home


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """Where a path leads: its place, its resolved form, and why it is refused there."""

    place: Place
    path: Path
    reason: str = ""


def path_rules(
    settings: PolicySettings, *, workspace: Path, home: Path | None, original: Path | None = None
) -> PathRules:
    """Resolve the owner's settings for one workspace, which is resolved already.

    It is not resolved again: a link put in its place since must not lead the tools elsewhere.
    """
    return PathRules(
        workspace=workspace,
        workspace_only=settings.workspace_only or original is not None,
        forbidden=tuple(Path(p).expanduser().resolve() for p in settings.forbidden_paths),
        home=home.resolve() if home else None,
        original=original,
    )


def classify(path: str | Path, rules: PathRules) -> Location:
    """Tell where a path leads now; what does not exist is judged by where it would be.

    See `absolute` for what text and a `Path` mean.

    Raises:
        InvalidRequestError: it is no path (NUL, too long).
        ForbiddenError: what it leads through is being replaced all the time.
    """
    text = absolute(path, rules)
    for _ in range(_RETRIES):
        # EINVAL: a link that was no link any more when it was read.
        with contextlib.suppress(OSError):
            real = Path(os.path.realpath(text))
            break
    else:
        raise ForbiddenError(f"{path} leads to another place each time it is looked at")
    if folder := rules.forbids(real):
        return Location(place="forbidden", path=real, reason=f"{folder} is a forbidden path")
    if real.is_relative_to(rules.workspace):
        return Location(place="inside", path=real)
    reason = f"{real} is outside the workspace {rules.workspace}"
    return Location(place="outside", path=real, reason=reason)


def acts_later(path: Path, *, workspace: Path | None = None) -> bool:
    """Whether a file, by its path in a workspace, is one that programs outside run or obey later.

    What `auto_exec_files` names, what editors evaluate, and instructions to agents, wherever they
    lie.
    """
    folded = {part.casefold() for part in path.parts}
    name = path.name.casefold()
    return (
        is_auto_exec(path.parts, workspace=workspace)
        or bool(folded & _OBEYED_FOLDERS)
        or name in _OBEYED_FILES
        or name.endswith(".desktop")
        or _EVALUATED.fullmatch(name) is not None
    )


def absolute(path: str | Path, rules: PathRules) -> str:
    """Return the path as an absolute one, `..` and links as they are.

    Text is what a model wrote: blanks around it are dropped and `~` is the user's home. A `Path`
    was made from that, so it is taken as it is: names may begin or end with a blank.

    Raises:
        InvalidRequestError: it is no path (NUL, too long, a session file).
    """
    text = path.strip() if isinstance(path, str) else str(path)
    if isinstance(path, str) and looks_like_reference(path):
        raise no_path(text)
    if "\0" in text:
        raise InvalidRequestError("a path cannot hold NUL characters")
    try:
        size = len(os.fsencode(text))
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{text!r} is no path: it is not valid Unicode") from error
    if size > MAX_PATH_BYTES:
        raise InvalidRequestError(f"a path has at most {MAX_PATH_BYTES} bytes")
    if isinstance(path, str) and text.startswith("~"):
        text = os.path.expanduser(text)  # noqa: PTH111 - keeps `..` and unknown users as they are
    return os.path.join(rules.workspace, text)  # noqa: PTH118 - Path would drop `.` and slashes


# Opening a path so that it cannot lead out of a folder, whatever is swapped meanwhile.
#
# openat2(2) with RESOLVE_BENEATH does it in the kernel (Linux 5.6); where it is missing or barred,
# a walk by descriptors does the same. Symbolic links that stay beneath are followed.

_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_MAX_LINKS = 40


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(folder: int, path: str, flags: int) -> int:
    """Open a relative path beneath a folder's descriptor; creates nothing.

    Raises:
        OSError: EXDEV when the path leads out of the folder; else as open(2).
    """
    return (
        _openat2(folder, path, flags, _RESOLVE_NO_MAGICLINKS | _RESOLVE_BENEATH)
        if has_openat2()
        else walk_beneath(folder, path, flags)
    )


def open_resolved(path: str, flags: int) -> int:
    """Open an absolute path that was resolved before; a link that is there by now is not followed.

    Raises:
        OSError: ELOOP or ENOTDIR for a link; else as open(2).
    """
    if has_openat2():
        return _openat2(-100, path, flags, _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS)
    return _walk(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), _parts(path), flags)


def open_without_links(folder: int, path: str, flags: int) -> int:
    """Open a relative path beneath a folder's descriptor, with no link on the way to it.

    The last part may be one, for `O_PATH | O_NOFOLLOW`.

    Raises:
        OSError: ELOOP or ENOTDIR for a link on the way; else as open(2).
    """
    if has_openat2():
        return _openat2(folder, path, flags, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH)
    parts = _parts(path)
    if ".." in parts or path.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    return _walk(os.dup(folder), parts, flags)


def _walk(descriptor: int, parts: list[str], flags: int) -> int:
    """Open what a path leads to, a part after the other; closes `descriptor`, where it begins."""
    parts = parts or ["."]
    for position, part in enumerate(parts, 1):
        try:
            above, descriptor = (
                descriptor,
                _step(part, descriptor, flags, is_last=position == len(parts)),
            )
        except OSError:
            os.close(descriptor)
            raise
        os.close(above)
    return descriptor


@functools.cache
def has_openat2() -> bool:
    """Whether the kernel has openat2 and lets us use it (old container filters do not)."""
    try:
        os.close(_openat2(-100, "/", os.O_PATH, _RESOLVE_NO_MAGICLINKS))
    except OSError:
        return False
    return True


def walk_beneath(folder: int, path: str, flags: int) -> int:
    """Do what `open_beneath` does, one component at a time.

    The descriptors of all folders on the way stay open: `..` goes back to where the walk came
    from, not to where a folder has been moved meanwhile.
    """
    if path.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    opened = [os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)]
    parts = deque(_parts(path))
    links = 0
    try:
        while parts:
            part = parts.popleft()
            if part == "..":
                if len(opened) == 1:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
                os.close(opened.pop())
                continue
            target = _link_target(part, opened[-1])
            if target is None:
                opened.append(_step(part, opened[-1], flags, is_last=not parts))
                continue
            links += 1
            if links > _MAX_LINKS or (flags & os.O_NOFOLLOW and not parts):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
            parts.extendleft(reversed(_parts(target)))
        return (
            os.open(".", flags | os.O_CLOEXEC, dir_fd=opened[0])
            if len(opened) == 1
            else (opened.pop())
        )
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _step(part: str, folder: int, flags: int, *, is_last: bool) -> int:
    wanted = flags if is_last else os.O_PATH | os.O_DIRECTORY
    return os.open(part, wanted | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def _link_target(part: str, folder: int) -> str | None:
    status = os.stat(part, dir_fd=folder, follow_symlinks=False)
    return os.readlink(part, dir_fd=folder) if stat.S_ISLNK(status.st_mode) else None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=0, resolve=resolve)
    name = os.fsencode(path)
    number = errno.EAGAIN
    for _ in range(_RETRIES):  # EAGAIN: something on the way was renamed meanwhile
        descriptor = _libc().syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(folder),
            ctypes.c_char_p(name),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if descriptor >= 0:
            return int(descriptor)
        number = ctypes.get_errno()
        if number not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(number, os.strerror(number), path)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


_RETRIES = 16
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """A judged path: where it leads, the folder that is kept open, and the names from there on."""

    given: str | Path
    location: Location
    rules: PathRules
    anchor: Path
    below: tuple[str, ...]


@dataclass(eq=False)
class HeldPaths:
    """Holds the paths of one call; `close` lets go of them.

    `locate` belongs to the thread that judges. The others may be called from any thread, also
    after `close`: then they refuse.
    """

    _held: dict[str, _Held] = field(default_factory=dict)
    _folders: dict[Path, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def places(self) -> tuple[str, ...]:
        """Where the judged paths lead: part of what an approval binds."""
        return tuple(sorted({str(each.location.path) for each in self._held.values()}))

    def locate(self, path: str | Path, rules: PathRules) -> Location:
        """Return where a path led when it was asked for first.

        Under rules that were changed since it is judged by them, and must still lead there.

        Raises:
            InvalidRequestError: it is no path.
            ForbiddenError: what it leads through is being replaced all the time.
        """
        key = absolute(path, rules)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = self._hold(path, rules)
        elif held.rules != rules:
            location = classify(path, rules)
            if location.path != held.location.path:
                raise _moved(held)
            held = msgspec.structs.replace(held, location=location, rules=rules)
            self._held[key] = held
        return held.location

    def knows(self, path: str | Path, rules: PathRules) -> Location | None:
        """Return where a judged path leads, None for one that was not judged."""
        held = self._held.get(absolute(path, rules))
        return None if held is None else held.location

    def covers(self, place: Path) -> bool:
        """Whether a resolved path is one that was judged, or lies beneath one."""
        return any(place.is_relative_to(each.location.path) for each in self._held.values())

    def check(self) -> None:
        """Raise when a judged path leads elsewhere by now.

        Raises:
            ForbiddenError: so it is.
        """
        for held in self._held.values():
            os.close(self._anchor(held))
            if classify(held.given, held.rules) != held.location:
                raise _moved(held)

    def open(self, path: str | Path, rules: PathRules, flags: int) -> int:
        """Open what a judged path leads to.

        Raises:
            ForbiddenError: it leads elsewhere by now.
            OSError: as open(2).
        """
        held = self._held[absolute(path, rules)]
        descriptor = self._anchor(held)
        for position, name in enumerate(held.below, 1):
            wanted = flags if position == len(held.below) else _FOLDER
            descriptor = self._step(held, descriptor, name, wanted)
        if not held.below:
            descriptor = self._step(held, descriptor, ".", flags)
        return _checked(held, descriptor, held.location.path)

    def open_parent(
        self, path: str | Path, rules: PathRules, make: Callable[[int, Path], None] | None
    ) -> int:
        """Open the folder that holds, or is to hold, what a judged path leads to.

        Args:
            path: the judged path.
            rules: those that it was judged by.
            make: makes the folder of this resolved path in the open one; None makes none.

        Raises:
            ForbiddenError: it leads elsewhere by now.
            OSError: as open(2) and mkdir(2).
        """
        held = self._held[absolute(path, rules)]
        descriptor, place = self._anchor(held), held.anchor
        for name in held.below[:-1]:
            place /= name
            if make is not None:
                try:
                    make(descriptor, place)
                except BaseException:
                    os.close(descriptor)
                    raise
            descriptor = self._step(held, descriptor, name, _FOLDER)
        descriptor = self._step(held, descriptor, ".", os.O_RDONLY | os.O_DIRECTORY)
        return _checked(held, descriptor, held.location.path.parent)

    def close(self) -> None:
        """Let go of all folders."""
        with self._lock:
            folders, self._folders = self._folders, {}
            for descriptor in folders.values():
                os.close(descriptor)

    def _hold(self, path: str | Path, rules: PathRules) -> _Held:
        for _ in range(_RETRIES):
            location = classify(path, rules)
            if location.place == "forbidden":
                # It is blocked; nothing is ever opened there.
                anchor, below = Path("/"), location.path.parts[1:]
            else:
                anchor = location.path.parent  # the nearest that is there, which stays open
                while anchor not in self._folders:
                    try:
                        self._folders[anchor] = open_resolved(str(anchor), _FOLDER)
                    except OSError:
                        if anchor == anchor.parent:
                            raise
                        anchor = anchor.parent
                below = location.path.relative_to(anchor).parts
            held = _Held(given=path, location=location, rules=rules, anchor=anchor, below=below)
            descriptor = self._folders.get(anchor)
            if descriptor is None or real_path(descriptor) == anchor:
                return held
            os.close(self._folders.pop(anchor))  # what was opened is not of the judged path
        raise ForbiddenError(f"{path} leads to another place each time it is looked at")

    def _anchor(self, held: _Held) -> int:
        """Return a descriptor of one's own of the folder that is held, where it was."""
        with self._lock:
            known = self._folders.get(held.anchor)
            descriptor = -1 if known is None else os.dup(known)
        if descriptor < 0:
            raise ForbiddenError(f"{held.given} is not held any more; the call is over")
        return _checked(held, descriptor, held.anchor)

    def _step(self, held: _Held, folder: int, name: str, flags: int) -> int:
        """Go from an open folder, which is closed, to what is in it."""
        try:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            if _is_link(folder, name):
                raise _moved(held) from error
            raise
        finally:
            os.close(folder)


def real_path(descriptor: int) -> Path:
    """Return where an open file lies now."""
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def _checked(held: _Held, descriptor: int, expected: Path) -> int:
    if real_path(descriptor) == expected:
        return descriptor
    os.close(descriptor)
    raise _moved(held)


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _moved(held: _Held) -> ForbiddenError:
    return ForbiddenError(
        f"{held.given} led to {held.location.path} when this call was judged, and leads to another "
        "place or through another folder by now; nothing is done there",
        hint="Look at it again, and make the call anew.",
    )
