"""Copies of workspaces, in which helpers change files; what they changed; putting it in place.

    <home>/copies (0700)
        <id>/tree       the copy
        <id>/before/    while it is merged: what the workspace held, by SHA-256
        <id>/merging    while it is merged: what becomes what

A copy lives as long as its helper. It has what is in the workspace, with the changes that no
commit holds, and shares nothing with it: no git runs to make it, and no repository, hook or index
of the user is touched by what is done in it. What lies in a copy is judged as what it stands for. A
merge is made as a whole, or taken back: at once, or at the next start where a crash cut it off. One
that cannot be wholly taken back keeps `before` and `merging`, and each start tries again.
"""

import contextlib
import io
import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from clawd.errors import (
    CancelledByUserError,
    ClawError,
    InvalidRequestError,
    NotFoundError,
    StorageError,
)
from clawd.kernel.files import remove_tree, replace_file, sync_folder
from clawd.security.file_content import FileChange, FileState, clone
from clawd.security.snapshot import (
    MADE_ANEW,
    Node,
    Scan,
    Tree,
    TreeStep,
    differences,
    digest_of,
    kind_of,
    settled,
)
from clawd.wire.gitignore import Pattern, is_ignored, patterns_in
from clawd.wire.safe_text import shown_name

MAX_FILE_BYTES = 256 << 20
MAX_REPOSITORY_BYTES = 512 << 20
MAX_BYTES = 2 << 30
MAX_MERGED = 500
# What is left to others on the disk.
MIN_FREE_BYTES = 512 << 20
_TOLD = 5
_MAX_IGNORE_BYTES = 256 << 10
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_log = logging.getLogger(__name__)


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a workspace.

    Attributes:
        original: the workspace that it stands for.
        tree: where it lies.
        base: what it held when it was made.
        left_out: what of the workspace it has not, and why, for people.
    """

    id: str
    original: Path
    tree: Path
    base: Scan
    left_out: tuple[str, ...] = ()


class CopyChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a copy.

    Attributes:
        changes: what is to be merged, by path.
        unmerged: what else was changed and stays behind, and why, for people.
    """

    copy: Copy
    changes: tuple[FileChange, ...]
    unmerged: tuple[str, ...] = ()


class MergeConflict(msgspec.Struct, frozen=True, kw_only=True):
    """What cannot be merged: the change, what stands in the workspace now, and why."""

    change: FileChange
    now: FileState | None
    reason: str


class MergeNotes(Protocol):
    """Keeps for undo what a merge does."""

    def note(self, steps: Sequence[TreeStep]) -> Sequence[int]:
        """Keep what is about to be done, durably; returns the numbers by which it is known.

        Raises:
            ClawError: it cannot be kept, or is not to be done.
        """

    def forget(self, numbers: Sequence[int]) -> None:
        """Drop what was kept: it was not done after all."""


class _Journal(msgspec.Struct, frozen=True, kw_only=True):
    """A merge that is being made; names are bytes, since not all of them are UTF-8."""

    original: bytes
    steps: tuple[tuple[bytes, FileState | None, FileState | None], ...]
    numbers: tuple[int, ...] = ()


class Copies:
    """The copies of a daemon. What blocks says so; safe to be used from many threads.

    Args:
        home: clawd's own home, in which they lie.
        left_out: returns absolute paths that no copy has and no merge changes.

    Attributes:
        originals: the workspaces of those that there are, by id.
    """

    def __init__(self, home: Path, left_out: Callable[[], frozenset[str]]) -> None:
        self._folder = home.resolve() / "copies"
        self.left_out = left_out
        self.originals: dict[str, Path] = {}
        self._merging = threading.Lock()

    def original(self, workspace: Path) -> Path | None:
        """Return the workspace that a folder is the copy of; None for any that is no copy."""
        is_copy = workspace.name == "tree" and workspace.parent.parent == self._folder
        return self.originals.get(workspace.parent.name) if is_copy else None

    def meant(self, path: Path) -> Path:
        """Return what a path in a copy stands for; any other path as it is."""
        if self.originals and self._folder in path.parents:
            identity, *rest = path.relative_to(self._folder).parts
            original = self.originals.get(identity)
            if original is not None and rest[:1] == ["tree"]:
                return original.joinpath(*rest[1:])
        return path

    def make(self, workspace: Path, stop: threading.Event) -> Copy:
        """Copy a workspace. Blocks, until it is done or `stop` is set.

        Raises:
            ClawError: it cannot be copied, is too large, or nobody wants it any more.
        """
        identity = f"copy-{secrets.token_hex(8)}"
        tree = self._folder / identity / "tree"
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            tree.parent.mkdir(mode=0o700)
            tree.mkdir(mode=0o700)
            with Tree(workspace, left_out=self.left_out()) as source:
                filling = _Filling(source, tree, stop)
                filling.fill()
            base = _base(tree, filling.digests)
        except BaseException as error:
            _removed(tree.parent)
            if isinstance(error, OSError):
                raise InvalidRequestError(
                    f"{workspace} cannot be copied: {error.strerror}"
                ) from error
            raise
        self.originals[identity] = workspace
        left_out = tuple(filling.left_out)
        return Copy(id=identity, original=workspace, tree=tree, base=base, left_out=left_out)

    def changes(self, copy: Copy) -> CopyChanges:
        """Return what became of a copy. Blocks; nothing may be at work there any more.

        Raises:
            ClawError: it cannot be told, or is more than is merged.
        """
        with Tree(copy.tree) as tree:
            after = tree.scan(copy.base)
            for folder, name in after.unread:
                path = f"{folder}/{name}" if folder else name
                with contextlib.suppress(OSError):
                    node = tree.read(path, digest_of, most=MAX_FILE_BYTES, opens=True)
                    if node is not None:
                        after.folders[folder].files[name] = node
            ignored = _Ignored(tree, after)
        unseen = set(after.skipped)
        found = [e for e in differences(copy.base, after) if not _lies_in(e.name, unseen)]
        new = [each for each in after.skipped if each not in copy.base.skipped]
        kept, unmerged = _sorted_out(found, ignored)
        unmerged += [f"{shown_name(path)}/ ({after.skipped[path][1]})" for path in new[:_TOLD]]
        if len(kept) > MAX_MERGED:
            raise InvalidRequestError(
                f"it changed {len(kept)} files and folders; at most {MAX_MERGED} are merged"
            )
        return CopyChanges(copy=copy, changes=tuple(kept), unmerged=tuple(unmerged))

    def plan(
        self, found: CopyChanges, tree: Tree, *, keeps: bool = False
    ) -> tuple[list[TreeStep], list[MergeConflict]]:
        """Return what a merge does in the open workspace, and what is in its way. Blocks.

        Args:
            found: what became of the copy.
            tree: the workspace.
            keeps: whether what it replaces is kept beside the copy, to take the merge back.
        """
        before = found.copy.tree.parent / "before"
        steps: list[TreeStep] = []
        conflicts: list[MergeConflict] = []
        gone = {each.name for each in found.changes if each.after is None}
        for change in found.changes:
            now: FileState | None = None
            try:
                now = tree.state(change.name, (lambda f, _s: _kept(before, f)) if keeps else None)
                reason = _why_not_now(change, now, tree, gone)
            except ClawError as error:
                reason = error.message
            if reason:
                conflicts.append(MergeConflict(change=change, now=now, reason=reason))
            elif not _is_done(change, now):
                steps.append(TreeStep(path=change.name, now=now, target=change.after))
        return steps, conflicts

    def workspace(self, copy: Copy) -> Tree:
        """Return the workspace of a copy, to be entered."""
        return Tree(copy.original, left_out=self.left_out())

    def merge(
        self,
        found: CopyChanges,
        notes: MergeNotes,
        cancelled: threading.Event,
    ) -> list[TreeStep]:
        """Put what became of a copy in place: all of it, or nothing. Blocks.

        Args:
            found: what became of the copy.
            notes: keeps for undo what is done.
            cancelled: set when nobody wants it any more; what has begun is brought to its end.

        Raises:
            ClawError: nothing was changed, or `is_cut_off` holds; the message says why.
        """
        place = found.copy.tree.parent
        problems: dict[str, str] = {}
        with self._merging, self.workspace(found.copy) as tree:
            if found.copy.id not in self.originals:
                raise NotFoundError("the copy is gone")
            steps, conflicts = self.plan(found, tree, keeps=True)
            if conflicts:
                raise conflict_error(conflicts)
            numbers = notes.note(steps)
            try:
                if cancelled.is_set():
                    raise CancelledByUserError("the call was cancelled; nothing was changed")
                _begin(place, found.copy.original, steps, numbers)
                with Tree(found.copy.tree) as copied:
                    problems = tree.restore(steps, lambda step: content_of(copied, step))
                if problems:
                    raise _broken_off(problems)
            except BaseException as error:
                if left := _left_after_undoing(place, tree, problems):
                    raise _half_merged(left, place) from error
                notes.forget(numbers)
                raise
            (place / "merging").unlink()
            sync_folder(place)
        return steps

    def remove(self, copy: Copy) -> None:
        """Remove a copy, and all that is in it. Blocks; what cannot go now goes at the next start.

        A merge that has begun is waited for. What one that is cut off replaced stays.
        """
        with self._merging:
            self.originals.pop(copy.id, None)
        _removed(copy.tree if self.is_cut_off(copy) else copy.tree.parent)

    def is_cut_off(self, copy: Copy) -> bool:
        """Whether a merge of it was begun and is neither made nor wholly taken back."""
        return (copy.tree.parent / "merging").exists()

    def recover(self) -> list[int]:
        """Take back merges that were cut off, and remove the copies that a crash left. Blocks.

        Returns the numbers by which undo knows of those that are wholly taken back.
        """
        numbers: list[int] = []
        with contextlib.suppress(FileNotFoundError):
            for place in self._folder.iterdir():
                try:
                    journal = _journal_of(place)
                    if journal is not None:
                        _removed(place / "tree")  # on a full disk this is the room that it takes
                        original = Path(os.fsdecode(journal.original))
                        with Tree(original, left_out=self.left_out()) as tree:
                            left = _left_after_undoing(place, tree, {})
                        if left:
                            raise _half_merged(left, place)
                        numbers += journal.numbers
                        _log.warning("a merge was cut off and is taken back: %s", original)
                except (ClawError, OSError, msgspec.DecodeError) as error:
                    _log.error("a merge that was cut off stays so: %s: %s", place, error)
                    continue
                _removed(place)
        return numbers


def content_of(copied: Tree, step: TreeStep) -> BinaryIO:
    """Open what a step brings from an open copy: the bytes of a file, the target of a link."""
    assert step.target is not None
    if step.target.kind != "link":
        return copied.opened(step.path)
    return io.BytesIO(copied.link(step.path))


def conflict_error(conflicts: Sequence[MergeConflict]) -> InvalidRequestError:
    """Return the error of a merge that cannot be made."""
    return _broken_off({each.change.name: each.reason for each in conflicts})


class _Filling:
    """Fills a copy.

    Args:
        source: the workspace.
        target: the empty folder of the copy; nobody else is at work there.
        stop: set when nobody wants it any more.

    Attributes:
        digests: of what was copied, by path.
        left_out: what was not, and why, for people.
    """

    def __init__(self, source: Tree, target: Path, stop: threading.Event) -> None:
        self._source = source
        self._target = target
        self._stop = stop
        self.digests: dict[str, str] = {}
        self.left_out: list[str] = []

    def fill(self) -> None:
        """Copy everything.

        Raises:
            ClawError: there is too much of it, no room for it, or nobody wants it any more.
        """
        scan = self._source.scan()
        self.left_out += [f"{shown_name(p)}/ ({why})" for p, (_, why) in scan.skipped.items()]
        large = self._large_repositories(scan)
        wanted = set(scan.unread)
        self._check_room(scan, large)
        folders = [path for path in sorted(scan.folders) if path and not _lies_in(path, large)]
        for path in folders:
            (self._target / path).mkdir(mode=0o700)
        for folder in ("", *folders):
            for name, node in scan.folders[folder].files.items():
                path = f"{folder}/{name}" if folder else name
                why = "" if (folder, name) in wanted else "ignored and large"
                why = why or self._copied(path, node)
                if why:
                    self.left_out.append(f"{shown_name(path)} ({why})")
        for path in reversed(folders):
            (self._target / path).chmod(scan.folders[path].state.mode)

    def _large_repositories(self, scan: Scan) -> set[str]:
        found: set[str] = set()
        for top in (p for p in scan.folders if p.rpartition("/")[2] == ".git"):
            inside = (f for p, f in scan.folders.items() if p == top or p.startswith(f"{top}/"))
            size = sum(node.stamp[1] for each in inside for node in each.files.values())
            if size > MAX_REPOSITORY_BYTES:
                found.add(top)
                self.left_out.append(f"{shown_name(top)}/ (over {MAX_REPOSITORY_BYTES} bytes)")
        return found

    def _check_room(self, scan: Scan, large: set[str]) -> None:
        sizes = (
            scan.folders[folder].files[name].stamp[1]
            for folder, name in scan.unread
            if not _lies_in(folder, large)
        )
        total = sum(size for size in sizes if size <= MAX_FILE_BYTES)
        if total > MAX_BYTES:
            raise InvalidRequestError(
                f"the workspace holds {total} bytes; at most {MAX_BYTES} are copied"
            )
        if shutil.disk_usage(self._target).free - total < MIN_FREE_BYTES:
            raise InvalidRequestError(f"there is no room for a copy of {total} bytes")

    def _copied(self, path: str, node: Node) -> str:
        """Copy a file or link; return why it is not, or ""."""
        if self._stop.is_set():
            raise CancelledByUserError("the copy is not wanted any more")
        kind = kind_of(node.stamp[0])
        if kind not in {"file", "link"}:
            return "no file" if kind == "other" else f"a {kind}"
        if path.rpartition("/")[2].casefold() == ".git":
            return "it leads to a repository elsewhere"
        place = self._target / path
        try:
            read = self._source.read(path, lambda f, _s: _cloned(f, place), most=MAX_FILE_BYTES)
            if read is None:
                return "it went while it was copied"
            if not read.sha256:
                return f"over {MAX_FILE_BYTES} bytes, or closed to clawd"
            if read.state.kind == "link":
                target = place.read_bytes()
                place.unlink()
                place.symlink_to(os.fsdecode(target))
            else:
                place.chmod(read.state.mode)
        except OSError as error:
            place.unlink(missing_ok=True)
            return os.strerror(error.errno or 0)
        self.digests[path] = read.sha256
        return ""


class _Ignored:
    """What of an open copy its `.gitignore` files leave out, and what programs make anew."""

    def __init__(self, tree: Tree, scan: Scan) -> None:
        self._patterns: list[Pattern] = []
        for folder in sorted(scan.folders):
            if ".gitignore" in scan.folders[folder].files:
                path = f"{folder}/.gitignore" if folder else ".gitignore"
                with contextlib.suppress(ClawError), tree.opened(path) as file:
                    self._patterns += patterns_in(file.read(_MAX_IGNORE_BYTES), folder)

    def holds(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a path is left out, or lies in what is."""
        above, _, name = path.rpartition("/")
        if (is_folder and name in MADE_ANEW) or is_ignored(
            path, self._patterns, is_folder=is_folder
        ):
            return True
        return bool(above) and self.holds(above, is_folder=True)


def _sorted_out(
    found: Sequence[FileChange], ignored: _Ignored
) -> tuple[list[FileChange], list[str]]:
    """Return what of the changes is merged, and what is not, for people."""
    kept: list[FileChange] = []
    special: list[str] = []
    counts = {"in .git": 0, "ignored": 0}
    gone: set[str] = set()
    for change in found:  # by path: a folder before what is in it
        name, after = change.name, change.after
        state = after or change.before
        is_folder = state is not None and state.kind == "folder"
        if ".git" in name.casefold().split("/"):
            counts["in .git"] += 1
        elif not _is_below(name, gone) and ignored.holds(name, is_folder=is_folder):
            counts["ignored"] += 1
        elif after is not None and after.kind in {"fifo", "other"}:
            special.append(f"{shown_name(name)} (no file)")
        elif after is not None and after.kind == "file" and not after.sha256:
            special.append(f"{shown_name(name)} (over {MAX_FILE_BYTES} bytes, or closed to clawd)")
        else:
            kept.append(change)
            if after is None and is_folder:
                gone.add(name)
    told = [f"{count} {what}" for what, count in counts.items() if count]
    more = len(special) - _TOLD
    return kept, [*told, *special[:_TOLD], *([f"{more} more"] if more > 0 else [])]


def _why_not_now(change: FileChange, now: FileState | None, tree: Tree, gone: set[str]) -> str:
    """Return why a change cannot be made where this stands now; "" where it can."""
    if _is_done(change, now):
        return ""
    if now != change.before:
        became = (
            "came" if change.before is None else "was removed" if now is None else "was changed"
        )
        return f"it {became} in the workspace since the copy was made"
    if now is not None and now.kind == "folder" and change.after is None:
        left = [each for each in tree.names(change.name) if f"{change.name}/{each}" not in gone]
        if left:
            return f"it holds {shown_name(left[0])}, which the copy had not"
    return ""


def _is_done(change: FileChange, now: FileState | None) -> bool:
    """Whether it stands there already as it shall be: somebody else made the same."""
    after = change.after
    if now is not None and after is not None and change.before is None:
        return now == after or now.kind == after.kind == "folder"
    return now == after


def _begin(place: Path, original: Path, steps: Sequence[TreeStep], numbers: Sequence[int]) -> None:
    """Write down a merge; durable when it returns, with what it will replace."""
    journal = _Journal(
        original=os.fsencode(original),
        steps=tuple((os.fsencode(each.path), each.now, each.target) for each in steps),
        numbers=tuple(numbers),
    )
    before = place / "before"
    if before.exists():
        sync_folder(before)
    replace_file(place / "merging", msgspec.msgpack.encode(journal))


def _journal_of(place: Path) -> _Journal | None:
    try:
        return msgspec.msgpack.decode((place / "merging").read_bytes(), type=_Journal)
    except FileNotFoundError:
        return None


def _left_after_undoing(place: Path, tree: Tree, undone: Mapping[str, str]) -> dict[str, str]:
    """Bring a workspace back to what it held before a merge; what others changed since stays.

    Returns what could not be brought back, and why; the merge is still written down then, since
    what it replaced is nowhere else. `undone` are paths that the merge is known to have left alone.
    """
    journal = _journal_of(place)
    if journal is None:
        return {}
    steps: list[TreeStep] = []
    left: dict[str, str] = {}
    tree.tidy(os.fsdecode(name) for name, _, _ in journal.steps)
    for name, before, target in journal.steps:
        path = os.fsdecode(name)
        try:
            now = tree.state(path)
        except ClawError as error:
            if path not in undone:
                left[path] = error.message
            continue
        is_ours = now == target or (before is None and now is not None and now.kind == "folder")
        if now != before and is_ours:
            steps.append(TreeStep(path=path, now=now, target=before))

    def content(step: TreeStep) -> BinaryIO:
        assert step.target is not None
        return (place / "before" / step.target.sha256).open("rb")

    left |= tree.restore(steps, content)
    if not left:
        (place / "merging").unlink()
        sync_folder(place)
    return left


def _base(tree: Path, digests: dict[str, str]) -> Scan:
    """Return what a fresh copy holds, whose contents are known."""
    with Tree(tree) as copy:
        scan = copy.scan()
    for folder, name in scan.unread:
        files = scan.folders[folder].files
        digest = digests.get(f"{folder}/{name}" if folder else name, "")
        files[name] = Node(settled(files[name].stamp), digest)
    return scan


def _cloned(source: int, place: Path) -> str:
    """Copy an open file, sharing its blocks where the file system can; return its SHA-256."""
    target = os.open(place, _NEW_FILE, 0o600)
    try:
        clone(source, target)
        return digest_of(target, 0)
    finally:
        os.close(target)


def _kept(folder: Path, file: int) -> str:
    """Keep what an open file holds, durably, by its SHA-256; return that."""
    folder.mkdir(mode=0o700, exist_ok=True)
    draft = folder / secrets.token_hex(8)
    target = os.open(draft, _NEW_FILE, 0o600)
    try:
        clone(file, target)
        os.fsync(target)
        digest = digest_of(target, 0)
    finally:
        os.close(target)
    draft.rename(folder / digest)
    return digest


def _removed(place: Path) -> None:
    try:
        remove_tree(place)
    except OSError as error:
        _log.warning("a copy is not wholly removed: %s", error.strerror, extra={"path": str(place)})


def _broken_off(problems: dict[str, str]) -> InvalidRequestError:
    return InvalidRequestError(f"nothing was merged; {_told(problems)}")


def _half_merged(left: dict[str, str], place: Path) -> StorageError:
    return StorageError(
        f"the merge was broken off and could not be wholly taken back; {_told(left)}. What these "
        f"files held before is kept in {place / 'before'}, under its SHA-256",
        hint="clawctl undo brings it back, and clawd tries that itself at its next start.",
    )


def _told(problems: dict[str, str]) -> str:
    shown = [f"{shown_name(path)}: {why}" for path, why in list(problems.items())[:_TOLD]]
    more = len(problems) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def _lies_in(path: str, folders: set[str]) -> bool:
    return path in folders or _is_below(path, folders)


def _is_below(path: str, folders: set[str]) -> bool:
    return any(each in folders for each in _above(path))


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
