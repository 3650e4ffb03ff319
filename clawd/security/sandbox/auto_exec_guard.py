"""Keeps commands from files that run later outside: read-only while one runs, a look afterwards.

    visit = await guard.enter(workspace)        # what to bind read-only
    ...                                         # the command runs
    quarantined = await guard.leave(visit)        # what it made all the same, renamed

What exists is bound read-only. What does not cannot be: bubblewrap would leave an empty file
behind for each. So what is new after the command is renamed to `NAME.clawd-held`, which nothing
runs, unless it is harmless (a plain `.git/config`, sample hooks). Between its making and the end
of the command it is there: a program outside that is started in this time may run it.

A bind names its source by path, and a command that runs at the same time in the same workspace
could put a link there. So while one runs, another binds only what the first has bound too and
what no renaming of a parent can move; the rest is compared afterwards.

A command whose purpose it is may make some of them (`Opening`): fill a virtual environment, or
clone a repository that holds such files, or bring them as commits have them (`git switch`, where
a person said yes to this very call). While it does, no other command is in the workspace, which
could write them as well.

Of a workspace with more than 1,000 folders only these are bound, and 10,000 are looked at
afterwards for what has changed; what a command adds to a smaller one is looked at whole.
"""

import asyncio
import fnmatch
import logging
import os
import stat
import time
from pathlib import Path

import msgspec

from clawd.errors import SandboxUnavailableError
from clawd.security.auto_exec_files import (
    GIT_FILES,
    GIT_FOLDERS,
    VENV_FILE,
    VENV_NAMES,
    VENV_PARTS,
    is_plain_git_config,
    own_programs,
)
from clawd.security.paths import open_beneath
from clawd.security.risk import Opening
from clawd.security.sandbox.auto_exec_scan import (
    PATH_MAX,
    Key,
    ScanResult,
    Spot,
    WorkspaceScan,
    open_up,
    pieces,
    reachable,
    read_small,
)

HELD_SUFFIX = ".clawd-held"
# Scanning so few folders again takes less time than handing the work to a thread.
_SMALL = 64
_BEFORE = 1_000
_AFTERWARDS = 10_000
_WHOLE = 1_000_000
_MAX_PLACES = 32
_TURN_LIMIT_S = 120.0
_MAX_NAME_BYTES = 255
_CLOCK_SLACK_NS = 50_000_000
_MAX_CONTENT = 200_000
_CONTENT_DEPTH = 32
# bubblewrap puts a folder of its own before the paths that it binds.
_MAX_BOUND_BYTES = PATH_MAX - 64

_log = logging.getLogger(__name__)

Content = tuple[tuple[str, int, int], ...]


class QuarantinedPaths(msgspec.Struct, frozen=True, kw_only=True):
    """What a command made that would have run later outside, relative to the workspace.

    Attributes:
        held: renamed, with `HELD_SUFFIX`.
        left: could not be renamed.
    """

    held: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.held or self.left)


class GuardedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command's stay in a workspace.

    Attributes:
        workspace: absolute and resolved.
        binds: what to bind, parents first: whether it stays writable, and the path.
        known: what was there when the first of the commands that run now began.
        present: what was there when this one began.
        bound: what this command cannot change.
        entry: its number, to tell whether another began meanwhile; 0 where another ran already.
        opens: what it may make; not empty only where it is alone from its beginning to its end.
    """

    workspace: Path
    binds: tuple[tuple[bool, str], ...]
    known: dict[Key, Spot]
    present: dict[Key, Spot]
    folders: frozenset[tuple[int, int]]
    is_whole: bool
    bound: frozenset[Key]
    entry: int
    started_ns: int
    opens: tuple[Opening, ...] = ()


class _Place:
    """What is known of one workspace."""

    def __init__(self, scan: WorkspaceScan) -> None:
        self.scan = scan
        self.lock = asyncio.Lock()
        self.visits = 0
        self.entries = 0
        self.turn = asyncio.Condition()
        self.guests = 0  # who are there, come or go
        self.is_open = False
        self.known: dict[Key, Spot] = {}
        # Of folders that a command can change, since before the first that can.
        self.contents: dict[Key, Content] = {}


class AutoExecGuard:
    """Guards the workspaces of one daemon; used from its event loop only.

    Args:
        granted: patterns of names or of paths relative to the workspace that commands may write
            all the same; `*` grants everything.
        left_out: folders that no command can see.
    """

    def __init__(
        self, *, granted: tuple[str, ...] = (), left_out: frozenset[str] = frozenset()
    ) -> None:
        self._granted = granted
        self._left_out = left_out
        self._places: dict[Path, _Place] = {}

    async def enter(
        self, workspace: Path, *, binds: bool = True, opens: tuple[Opening, ...] = ()
    ) -> GuardedCommand:
        """Look at a workspace before a command runs; `leave` must follow.

        Args:
            workspace: absolute and resolved.
            binds: whether what is found will be bound read-only.
            opens: what it may make; it waits until it is alone then. What brings files of commits
                does not wait, and brings none of these beside others.

        Raises:
            SandboxUnavailableError: others are at work for too long.
        """
        place = self._place(workspace)
        if place.guests:
            opens = tuple(each for each in opens if each != "checkouts")
        await _come(place, opens=bool(opens))
        try:
            return await self._visit(place, workspace, binds=binds, opens=opens)
        except BaseException:
            await _go(place, opens=bool(opens))
            raise

    async def _visit(
        self, place: _Place, workspace: Path, *, binds: bool, opens: tuple[Opening, ...]
    ) -> GuardedCommand:
        async with place.lock:
            started_ns = time.time_ns() - _CLOCK_SLACK_NS
            found = await _found(place, _BEFORE)
            visit = self._entered(
                place, workspace, found, started_ns=started_ns, binds=binds, opens=opens
            )
            if not (binds and place.visits == 0):
                spots = [each for key, each in visit.present.items() if key not in visit.bound]
                new = [each for each in spots if each.key not in place.contents]
                place.contents.update(await _contents(new))
            place.visits += 1
            place.entries += 1
        return visit

    async def leave(self, visit: GuardedCommand) -> QuarantinedPaths:
        """Look again after the command has ended, and quarantine what must not stay.

        A cancellation waits: what was not looked at would count as the owner's the next time.
        """
        looking = asyncio.create_task(self._look_again(visit))
        cancelled: asyncio.CancelledError | None = None
        while not looking.done():
            try:
                await asyncio.shield(looking)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return looking.result()

    async def _look_again(self, visit: GuardedCommand) -> QuarantinedPaths:
        place = self._places[visit.workspace]
        try:
            async with place.lock:
                found = await _found(place, _WHOLE if visit.is_whole else _AFTERWARDS)
                watched = [each for key, each in found.spots.items() if key in place.contents]
                now = await _contents(watched)
                changed = {key for key, content in now.items() if content != place.contents[key]}
                quarantined = self._left(place, visit, found, changed)
        finally:
            place.visits -= 1  # not before: who enters meanwhile must not trust what is there
            await _go(place, opens=bool(visit.opens))
        if quarantined:
            _log.warning(
                "a command made files that run later outside the sandbox",
                extra={"held": list(quarantined.held), "left": list(quarantined.left)},
            )
        return quarantined

    def _place(self, workspace: Path) -> _Place:
        place = self._places.pop(workspace, None)
        if place is None:
            place = _Place(WorkspaceScan(workspace, left_out=self._left_out))
        self._places[workspace] = place  # the last is the one used last
        idle = [each for each, known in self._places.items() if not known.guests]
        for each in idle[: max(0, len(self._places) - _MAX_PLACES)]:
            if each != workspace:
                del self._places[each]
        return place

    def _entered(
        self,
        place: _Place,
        workspace: Path,
        found: ScanResult,
        *,
        started_ns: int,
        binds: bool,
        opens: tuple[Opening, ...],
    ) -> GuardedCommand:
        present = {
            key: spot
            for key, spot in found.spots.items()
            if not self._is_granted(spot, workspace) and not _may_write(spot, workspace, opens)
        }
        is_alone = place.visits == 0
        if is_alone:
            place.known, place.contents = present, {}
        bound = {
            key: spot
            for key, spot in present.items()
            if binds and (is_alone or _is_fixed(spot, place.known, workspace)) and _can_bind(spot)
        }
        return GuardedCommand(
            workspace=workspace,
            binds=tuple(
                (spot.kind == "repository", spot.path)
                for spot in sorted(bound.values(), key=lambda spot: spot.path)
            ),
            known=place.known,
            present=present,
            folders=found.folders,
            is_whole=found.is_whole,
            bound=frozenset(key for key, spot in bound.items() if not spot.is_shared),
            entry=place.entries + 1 if is_alone else 0,
            started_ns=started_ns,
            opens=opens,
        )

    def _left(
        self, place: _Place, visit: GuardedCommand, found: ScanResult, changed: set[Key]
    ) -> QuarantinedPaths:
        is_alone = visit.entry == place.entries
        held: list[str] = []
        left: list[str] = []
        for spot in _innermost_first(found):
            if self._is_granted(spot, visit.workspace) or _is_opened(spot, visit):
                continue
            is_rewritten = spot.key in changed
            if not _is_changed(spot, visit, is_rewritten=is_rewritten, is_alone=is_alone):
                continue
            name = os.path.relpath(spot.path, visit.workspace)
            is_held = _quarantine(spot, visit.workspace)
            (held if is_held else left).append(name)
        return QuarantinedPaths(held=tuple(sorted(held)), left=tuple(sorted(left)))

    def _is_granted(self, spot: Spot, workspace: Path) -> bool:
        relative = os.path.relpath(spot.path, workspace)
        name = relative.rpartition("/")[2]
        return any(
            fnmatch.fnmatchcase(relative, pattern) or fnmatch.fnmatchcase(name, pattern)
            for pattern in self._granted
        )


async def _come(place: _Place, *, opens: bool) -> None:
    """Wait for one's turn in a workspace, and take it."""
    try:
        async with asyncio.timeout(_TURN_LIMIT_S), place.turn:
            await place.turn.wait_for(lambda: not (place.is_open or (opens and place.guests)))
            place.guests += 1
            place.is_open = opens
    except TimeoutError as error:
        raise SandboxUnavailableError(
            f"another command has been at work in this workspace for {_TURN_LIMIT_S:g} s, beside "
            "which none may change environments or clone",
            hint="Wait for it, or end it: /jobs lists those of a conversation.",
        ) from error


async def _go(place: _Place, *, opens: bool) -> None:
    async with place.turn:
        place.guests -= 1
        place.is_open = place.is_open and not opens
        place.turn.notify_all()


def _is_of_environment(spot: Spot, workspace: Path) -> bool:
    """Return whether a spot is a part of a virtual environment."""
    path = Path(spot.path)
    folder, name = path.parent, path.name.casefold()
    is_environment = folder.name.casefold() in VENV_NAMES or (folder / VENV_FILE).is_file()
    return name in VENV_PARTS and is_environment and spot.path != own_programs(workspace)


def _may_write(spot: Spot, workspace: Path, opens: tuple[Opening, ...]) -> bool:
    """Return whether a command was there to write to a spot, whether it is new or not."""
    if not set(opens) - {"clones"} or len(os.fsencode(spot.path)) >= _MAX_BOUND_BYTES:
        return False
    if _is_of_environment(spot, workspace):
        return "environments" in opens
    return "checkouts" in opens and not _is_of_repository(spot, workspace)


def _is_of_repository(spot: Spot, workspace: Path) -> bool:
    parts = os.path.relpath(spot.path, workspace).casefold().split("/")
    return ".git" in parts or parts[-1] in GIT_FILES | GIT_FOLDERS


def _is_opened(spot: Spot, visit: GuardedCommand) -> bool:
    """Return whether a command was there to make a spot."""
    if _may_write(spot, visit.workspace, visit.opens):
        return True
    is_new = spot.key not in visit.known
    return "clones" in visit.opens and is_new and not _is_of_repository(spot, visit.workspace)


async def _found(place: _Place, most: int) -> ScanResult:
    """Scan here when that takes no time, else in a thread."""
    if 0 < place.scan.size <= _SMALL:
        found = place.scan.find(_SMALL + 1)
        if found.is_whole:
            return found
    return await asyncio.to_thread(place.scan.find, most)


def _can_bind(spot: Spot) -> bool:
    """Whether a bind protects it: one over a link would protect what the link leads to only."""
    return spot.kind != "link" and len(os.fsencode(spot.path)) < _MAX_BOUND_BYTES


def _is_fixed(spot: Spot, known: dict[Key, Spot], workspace: Path) -> bool:
    """Whether every command that runs now has it bound, and its parents cannot be exchanged."""
    before = known.get(spot.key)
    if before is None or before.identity[:2] != spot.identity[:2]:
        return False
    folder = Path(spot.path).parent
    in_repository = folder.parent == workspace and folder.name == ".git"
    return folder == workspace or in_repository


def _is_changed(spot: Spot, visit: GuardedCommand, *, is_rewritten: bool, is_alone: bool) -> bool:
    """Whether a command may have made it, or written to it, during the visit."""
    before = visit.known.get(spot.key)
    if before is None:
        return not _is_harmless(spot) and not _was_there(spot, visit)
    if spot.kind == before.kind == "repository":
        return False
    if spot.key in visit.bound and (is_alone or _is_fixed(before, visit.known, visit.workspace)):
        return False
    if spot.identity != visit.present.get(spot.key, before).identity:
        return not _is_harmless(spot)
    return is_rewritten


def _was_there(spot: Spot, visit: GuardedCommand) -> bool:
    """Whether a spot that was not seen before was there all the same."""
    if spot.kind == "folder" and spot.identity[:2] in visit.folders:
        # A folder as others, until its parent was made a virtual environment; that is undone,
        # unless the name of the parent makes it one.
        parent, name = spot.path.casefold().split("/")[-2:]
        return name in VENV_PARTS and parent not in VENV_NAMES
    if visit.is_whole or spot.key[:2] in visit.folders:
        return False
    try:
        with reachable(spot.path) as near:
            return os.lstat(near).st_ctime_ns < visit.started_ns
    except OSError:
        return False


def _is_harmless(spot: Spot) -> bool:
    """Whether a new spot runs nothing: an empty repository's parts as `git init` makes them."""
    name = spot.path.rpartition("/")[2]
    match spot.kind, name:
        case "repository", _:
            return True
        case "folder", "hooks":
            return _holds_samples_only(spot.path)
        case "file", "config" | "config.worktree":
            text = read_small(spot.path)
            return text is not None and is_plain_git_config(text)
        case "file", "commondir":
            return read_small(spot.path) == "../..\n"
        case "file", ".git":
            return _leads_into_a_repository(spot.path)
        case _:
            return False


def _holds_samples_only(folder: str) -> bool:
    try:
        with reachable(folder) as near, os.scandir(near) as entries:
            return all(
                entry.is_file(follow_symlinks=False) and entry.name.endswith(".sample")
                for entry in entries
            )
    except OSError:
        return False


def _leads_into_a_repository(path: str) -> bool:
    """Whether a `.git` file names a worktree or module of a repository above it, which is scanned.

    Such a folder's own settings are spots and judged for themselves.
    """
    wanted = (read_small(path) or "").removeprefix("gitdir: ").strip()
    folder = os.path.dirname(path)  # noqa: PTH120 - strings for speed
    target = Path(os.path.realpath(os.path.join(folder, wanted)))  # noqa: PTH118 - likewise
    for above in target.parents:
        if above.name == ".git":
            parts = target.relative_to(above).parts
            return parts[0] in {"worktrees", "modules"} and above.parent in Path(path).parents
    return False


async def _contents(spots: list[Spot]) -> dict[Key, Content]:
    """Read folders in a thread: an environment can hold tens of thousands of files."""
    folders = {spot.key: spot.path for spot in spots if spot.kind == "folder"}
    if not folders:
        return {}
    return await asyncio.to_thread(lambda: {key: _content(at) for key, at in folders.items()})


def _content(folder: str, depth: int = 0) -> Content:
    """Return what can tell that something under a folder was changed, up to a bound."""
    told: list[tuple[str, int, int]] = []
    try:
        with reachable(folder) as near, os.scandir(near) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}"
                about = entry.stat(follow_symlinks=False)
                is_folder = stat.S_ISDIR(about.st_mode)
                told.append((path, about.st_ino, 0 if is_folder else about.st_ctime_ns))
                if is_folder and depth < _CONTENT_DEPTH and entry.name != "__pycache__":
                    told.extend(_content(path, depth + 1))
                if len(told) > _MAX_CONTENT:
                    break
    except OSError as error:
        told.append((folder, error.errno or 0, 0))
    return tuple(sorted(told))


def _innermost_first(found: ScanResult) -> list[Spot]:
    return sorted(found.spots.values(), key=lambda spot: spot.path, reverse=True)


def _quarantine(spot: Spot, workspace: Path) -> bool:
    """Rename a spot in its folder, reached so that no link can lead out of the workspace."""
    relative, _, name = os.path.relpath(spot.path, workspace).rpartition("/")
    try:
        folder = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for piece in pieces(relative):
                inner = open_beneath(folder, piece, os.O_PATH | os.O_DIRECTORY)
                os.close(folder)
                folder = inner
            about = os.fstat(folder)
            if (about.st_dev, about.st_ino) != spot.key[:2]:
                return False
            open_up(folder)
            os.rename(name, _free_name(name, folder), src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
    except OSError:
        return False
    return True


def _free_name(name: str, folder: int) -> str:
    taken = {entry.name for entry in Path(f"/proc/self/fd/{folder}").iterdir()}
    ending, number = HELD_SUFFIX, 1
    while (wanted := _shortened(name, ending)) in taken:
        number += 1
        ending = f"{HELD_SUFFIX}-{number}"
    return wanted


def _shortened(name: str, ending: str) -> str:
    while len(os.fsencode(name + ending)) > _MAX_NAME_BYTES:
        name = name[:-1]
    return name + ending
