"""What workspaces hold, kept before commands run, so that undo covers what commands do.

    <home>/snapshots (0700)
        blobs/ab/ab12…       contents of files and targets of links, each once, by SHA-256
        <hash>.index         what stood in one workspace when it was looked at last

A look costs a stat of every file; only what is new or was changed since the last look is read, and
kept. What a command changed is the difference between the looks before and after it, a row each in
`changes`. Blobs that no index and no row names are removed.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec
from typing_extensions import override

from clawd.errors import ClawError
from clawd.memory.blobs import Blobs
from clawd.memory.changes import Changes
from clawd.security.copies import Copies
from clawd.security.file_content import FileChange, FileState
from clawd.security.snapshot import NOTHING, Folder, Node, Scan, Stamp, Tree, differences
from clawd.tools.changes import Aftermath, CallFacts, CommandChanges, CommandLog

# Larger files are not read, so that a look ends in bounded time.
MAX_FILE_BYTES = 1 << 30
MAX_CHANGES = 20_000
MAX_WORKSPACES = 16
TOLD = 5
_SAVED_EVERY = 500
# From so much of the room on, what nothing names is removed.
_FULL = 0.8

_log = logging.getLogger(__name__)


class _Place:
    """What is known of one workspace."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.scan: Scan | None = None
        self.visits: list[CommandChanges] = []
        self.unsaved = 0


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    """What an index file holds; names are bytes, since not all of them are UTF-8."""

    workspace: bytes = b""
    folders: dict[bytes, tuple[Stamp, dict[bytes, Node], tuple[bytes, ...]]] = {}
    skipped: dict[bytes, tuple[int, str]] = {}
    ignored: tuple[bytes, ...] = ()


_index: msgspec.msgpack.Decoder[_Index] = msgspec.msgpack.Decoder(_Index)


class Snapshots(CommandLog):
    """`clawd.tools.changes.CommandLog` over blobs, an index of each workspace, and `changes`.

    Args:
        folder: where indexes and blobs lie.
        blobs: keeps contents.
        changes: keeps what commands changed, a row each.
        copies: of what commands change in one nothing is kept; what they leave out nobody looks at.
    """

    def __init__(
        self,
        folder: Path,
        blobs: Blobs,
        *,
        changes: Changes,
        copies: Copies,
    ) -> None:
        self._copies = copies
        self._folder = folder
        self._blobs = blobs
        self._changes = changes
        self._places: dict[str, _Place] = {}
        self._swept_at = -1

    @override
    async def prepare(self, workspace: str) -> None:
        """Look at a workspace that is not known yet."""
        if not self._keeps(workspace):
            return
        await self._clear_up()
        place = self._place(workspace)
        async with place.lock:
            if place.scan is None:
                with contextlib.suppress(ClawError, OSError):  # `enter` meets it again, and tells
                    await asyncio.to_thread(self._look, place, workspace)

    @override
    async def enter(self, call: CallFacts) -> CommandChanges | None:
        """Look at the workspace and keep what is not kept yet."""
        if not self._keeps(call.workspace):
            return None
        await self._clear_up()
        place = self._place(call.workspace)
        async with place.lock:
            visit = CommandChanges(call=call, before=None)
            try:
                await asyncio.to_thread(self._look, place, call.workspace)
                visit.before = place.scan
            except (ClawError, OSError) as error:
                visit.problem = _told(error)
                _log.warning("undo does not cover a command: %s", visit.problem)
            place.visits.append(visit)
        return visit

    @override
    async def leave(self, visit: CommandChanges) -> Aftermath:
        """Look again, and record the difference."""
        place = self._places[visit.call.workspace]
        async with place.lock:
            place.visits.remove(visit)
            if visit.before is None:
                return Aftermath(uncovered=(visit.problem,))
            try:
                return await self._recorded(place, visit)
            except (ClawError, OSError) as error:
                _log.warning("what a command changed is not known: %s", _told(error))
                return Aftermath(uncovered=(f"what it changed is not known: {_told(error)}",))

    async def close(self) -> None:
        """Save what is known, so that the next start need not read everything again."""
        for workspace, place in self._places.items():
            if place.unsaved:
                await asyncio.to_thread(self._save, place, workspace)

    async def _recorded(self, place: _Place, visit: CommandChanges) -> Aftermath:
        workspace, before = visit.call.workspace, visit.before
        await asyncio.to_thread(self._look, place, workspace)
        after = place.scan
        assert after is not None
        found = differences(before, after)
        for other in place.visits:
            if other.before is not None and found:
                other.before = _with(other.before, after, found)
        uncovered = [
            *(f"{each.path} was not kept" for each in found if self._is_lost(each.before)),
            *(_why(before, after, path) for path in _gone(before, after)),
        ]
        if len(found) > MAX_CHANGES:
            return Aftermath(
                uncovered=(f"it changed {len(found)} files; at most {MAX_CHANGES} are covered",)
            )
        if found:
            await self._changes.record(visit.call, found)
        if place.unsaved > _SAVED_EVERY:
            await asyncio.to_thread(self._save, place, workspace)
        more = (f"and {len(uncovered) - TOLD} more",) if len(uncovered) > TOLD else ()
        return Aftermath(changed=len(found), uncovered=(*uncovered[:TOLD], *more))

    def _keeps(self, workspace: str) -> bool:
        return self._blobs.max_bytes() > 0 and self._copies.original(Path(workspace)) is None

    def _is_lost(self, state: FileState | None) -> bool:
        if state is None or state.kind not in {"file", "link"}:
            return state is not None and state.kind == "other"
        return not self._blobs.has(state.sha256)

    def _place(self, workspace: str) -> _Place:
        place = self._places.pop(workspace, None) or _Place()
        self._places[workspace] = place  # the last is the one used last
        idle = [each for each, known in self._places.items() if not known.visits]
        for each in idle[: max(0, len(self._places) - MAX_WORKSPACES)]:
            if each != workspace and not self._places[each].lock.locked():
                del self._places[each]
        return place

    def _look(self, place: _Place, workspace: str) -> None:
        """Look at a workspace, and keep what is new; in a thread."""
        known = place.scan or self._load(workspace)
        with Tree(Path(workspace), left_out=self._copies.left_out()) as tree:
            scan = tree.scan(known)
            # Small ones first: where there is no room for all, most are kept.
            for folder, name in sorted(scan.unread, key=lambda each: _size(scan, each)):
                files = scan.folders[folder].files
                before = known.folders.get(folder)
                opens = before is not None and name in before.files
                path = f"{folder}/{name}" if folder else name
                node = None
                with contextlib.suppress(OSError):
                    node = tree.read(path, self._blobs.put, most=MAX_FILE_BYTES, opens=opens)
                    if node is None:
                        del files[name]
                if node is not None:
                    files[name] = node
        place.unsaved += len(scan.unread)
        place.scan = scan

    async def _clear_up(self) -> None:
        """Remove what is not needed any more: at the first command, and when room gets scarce."""
        full = self._blobs.max_bytes() * _FULL
        if self._swept_at >= 0 and self._blobs.used_bytes < max(full, 1.1 * self._swept_at):
            return
        self._swept_at = 0
        await self._sweep()
        if self._blobs.used_bytes > full:
            for workspace in [each for each, known in self._places.items() if not known.visits]:
                self._forget(workspace)
            await self._sweep(keeps_indexes=False)
        self._swept_at = self._blobs.used_bytes

    def _forget(self, workspace: str) -> None:
        """Know a workspace no more, so that what it holds makes room for others."""
        if not self._places[workspace].lock.locked():
            del self._places[workspace]

    async def _sweep(self, *, keeps_indexes: bool = True) -> None:
        """Remove indexes that were not used for long, and contents that nothing names."""
        rows = await self._changes.named()
        most = MAX_WORKSPACES if keeps_indexes else 0
        for place in self._places.values():
            if place.scan is not None:
                files = (folder.files for folder in place.scan.folders.values())
                rows += [node.sha256 for each in files for node in each.values()]

        def act() -> None:
            named = set(rows)
            try:
                indexes = sorted(self._folder.glob("*.index"), key=_changed_at, reverse=True)
                for index in indexes[most:]:
                    index.unlink()
                for index in indexes[:most]:
                    for _stamp, files, _inner in _decoded(index).folders.values():
                        named.update(node.sha256 for node in files.values())
                self._blobs.sweep(named)
            except OSError as error:
                _log.warning("contents kept for undo were not cleared up: %s", error.strerror)

        await asyncio.to_thread(act)

    def _load(self, workspace: str) -> Scan:
        found = _decoded(self._file(workspace))
        if os.fsdecode(found.workspace) != workspace:
            return NOTHING
        return _scan_of(found)

    def _save(self, place: _Place, workspace: str) -> None:
        if place.scan is None:
            return
        place.unsaved = 0
        data = msgspec.msgpack.encode(_index_of(workspace, place.scan))
        draft = self._folder / f"draft-{secrets.token_hex(8)}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as to:
                to.write(data)
            draft.rename(self._file(workspace))
        except OSError as error:
            draft.unlink(missing_ok=True)
            _log.warning("the index of a workspace is not saved: %s", error.strerror)

    def _file(self, workspace: str) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32]}.index"


def _scan_of(index: _Index) -> Scan:
    name = os.fsdecode
    folders = {
        name(path): Folder(
            stamp, {name(each): node for each, node in files.items()}, tuple(map(name, inner))
        )
        for path, (stamp, files, inner) in index.folders.items()
    }
    skipped = {name(path): why for path, why in index.skipped.items()}
    return Scan(folders=folders, skipped=skipped, ignored=frozenset(map(name, index.ignored)))


def _index_of(workspace: str, scan: Scan) -> _Index:
    name = os.fsencode
    return _Index(
        workspace=name(workspace),
        folders={
            name(path): (
                folder.stamp,
                {name(each): node for each, node in folder.files.items()},
                tuple(map(name, folder.folders)),
            )
            for path, folder in scan.folders.items()
        },
        skipped={name(path): why for path, why in scan.skipped.items()},
        ignored=tuple(map(name, scan.ignored)),
    )


def _decoded(file: Path) -> _Index:
    """Return what an index file holds; one that is not there, or damaged, holds nothing."""
    try:
        return _index.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return _Index()


def _with(before: Scan, after: Scan, found: Iterable[FileChange]) -> Scan:
    """Return what a command that still runs began with, and what another has changed since.

    So each change counts for one command: the one that ended first.
    """
    folders = dict(before.folders)
    for change in found:
        path = change.name
        if path in after.folders or path in folders:
            held = after.folders.get(path)
            if held is None:
                folders.pop(path, None)
            elif path not in folders:
                folders[path] = Folder(held.stamp, {}, held.folders)
            else:
                folders[path] = Folder(held.stamp, folders[path].files, folders[path].folders)
            if not _is_file_in(before, path) and not _is_file_in(after, path):
                continue
        above, _, name = path.rpartition("/")
        new = after.folders.get(above)
        old = folders.get(above)
        if old is None:
            continue
        files = dict(old.files)
        node = new.files.get(name) if new is not None else None
        if node is None:
            files.pop(name, None)
        else:
            files[name] = node
        folders[above] = Folder(old.stamp, files, old.folders)
    return msgspec.structs.replace(before, folders=folders)


def _is_file_in(scan: Scan, path: str) -> bool:
    above, _, name = path.rpartition("/")
    folder = scan.folders.get(above)
    return folder is not None and name in folder.files


def _gone(before: Scan, after: Scan) -> list[str]:
    """Return folders that were not looked into and are there no more, or are there anew."""
    gone = [each for each in before.skipped if each not in {*after.skipped, *after.folders}]
    made = [each for each in after.skipped if each not in {*before.skipped, *before.folders}]
    return sorted([*gone, *made])


def _why(before: Scan, after: Scan, path: str) -> str:
    if path in before.skipped:
        return f"{path}/ was not kept ({before.skipped[path][1]})"
    return f"{path}/ is new and stays ({after.skipped[path][1]})"


def _size(scan: Scan, place: tuple[str, str]) -> int:
    return scan.folders[place[0]].files[place[1]].stamp[1]


def _changed_at(path: Path) -> float:
    return path.stat().st_mtime


def _told(error: ClawError | OSError) -> str:
    return error.message if isinstance(error, ClawError) else str(error.strerror)
