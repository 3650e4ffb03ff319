"""What a call would change in files, computed by the code that will change them.

A tool acts on a `RehearsedWorkspace`, which changes nothing and keeps what it was told to write.
What comes of it is shown to the person who is asked, and binds the act: a change that was not
shown, or of a file that is another by then, is refused (`tools.changes.ChangeKeeper`).
"""

import difflib
import hashlib
import io
import posixpath
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from typing_extensions import override

from clawd.errors import BusyError, InvalidRequestError, NotFoundError
from clawd.security.file_content import CHUNK_BYTES, FileChange, FileState, ReplacementRules
from clawd.security.paths import HeldPaths, PathRules
from clawd.security.snapshot import Tree, TreeStep
from clawd.security.workspace import FolderEntry, Workspace
from clawd.wire.events import DiffLine, FileDiff, Mark

# Beyond this a file is not held in memory, and its lines are not compared.
MAX_OLD_BYTES = 8 << 20
MAX_SHOWN_LINES = 4_000
MAX_SHOWN_BYTES = 512 << 10
# A file of more lines than these is not replaced by less than half of it without being asked.
SHORT_LINES = 20
# Of so many files that undo of a command brings back the lines are compared.
MAX_COMPARED_FILES = 200
NOT_HELD = "what it held is kept no longer, or too large to compare"
# Comparing takes time by the product of both.
_MAX_COMPARED = 4_000_000
_CONTEXT_LINES = 2


class UnseenFileError(InvalidRequestError):
    """A model would replace a file whose content it cannot know."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a call would change.

    Attributes:
        writes: every change in the order in which it is made.
        diffs: what becomes of each file in the end, for a person.
        losses: why a person is asked in any case: which files lose most of what they hold, and how
            much, or what a command brings that runs later.
    """

    writes: tuple[FileChange, ...] = ()
    diffs: tuple[FileDiff, ...] = ()
    losses: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of which files become what: what an approval binds."""
        facts = [
            (each.path, each.before and each.before.sha256, each.after and each.after.sha256)
            for each in self.writes
        ]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


class _File(msgspec.Struct, kw_only=True):
    """A file that would be changed: what it holds now and would hold then.

    `old` and `new` are None where there is nothing, and where `is_large`, which is not held;
    `note` tells what they do not.
    """

    path: str
    before: FileState | None
    after: FileState | None
    old: bytes | None
    new: bytes | None
    is_large: bool = False
    added: bytes = b""
    note: str = ""


class RehearsedWorkspace(Workspace):
    """A workspace whose changes are kept beside it; what is read afterwards shows them."""

    def __init__(self, rules: PathRules, *, held: HeldPaths | None = None) -> None:
        super().__init__(rules, held=held)
        self._files: dict[Path, _File] = {}
        self._writes: list[FileChange] = []

    def preview(self) -> Preview:
        """Return what was to be changed so far."""
        room, diffs = _Room(), []
        for each in self._files.values():
            diff = _diff_of(each, room)
            if diff is not None:
                diffs.append(diff)
        losses = tuple(filter(None, map(_loss_of, self._files.values())))
        return Preview(writes=tuple(self._writes), diffs=tuple(diffs), losses=losses)

    @override
    def open_read(self, path: str | Path) -> BinaryIO:
        known = self._known(path)
        if known is None or known.is_large:
            return super().open_read(path)
        if known.new is None:
            raise NotFoundError(f"{path} does not exist", hint="file_list shows what is there.")
        return io.BytesIO(known.new)

    @override
    def stat(self, path: str) -> FolderEntry:
        place = self.place_of(path)
        known = self._known(path)
        name = posixpath.basename(path.rstrip("/")) or path
        if known is not None and not known.is_large:
            if known.new is None:
                raise NotFoundError(f"{path} does not exist")
            return FolderEntry(name=name, kind="file", size=len(known.new), modified_at=0.0)
        if place in self._made_folders():
            return FolderEntry(name=name, kind="folder", size=0, modified_at=0.0)
        return super().stat(path)

    @override
    def entries(self, path: str) -> list[FolderEntry]:
        place = self.place_of(path)
        made = self._made_folders()
        found = {} if place in made else {each.name: each for each in super().entries(path)}
        for file, known in self._files.items():
            if file.parent == place and not known.is_large:
                found.pop(file.name, None)
                if known.new is not None:
                    found[file.name] = FolderEntry(
                        name=file.name, kind="file", size=len(known.new), modified_at=0.0
                    )
        for folder in made:
            if folder.parent == place:
                found[folder.name] = FolderEntry(
                    name=folder.name, kind="folder", size=0, modified_at=0.0
                )
        return sorted(found.values(), key=lambda each: each.name)

    @override
    def walk(
        self, path: str, *, skip: frozenset[str] = frozenset()
    ) -> Iterator[tuple[str, FolderEntry]]:
        if not self._files:
            yield from super().walk(path, skip=skip)
            return
        for entry in self.entries(path):
            if entry.kind == "folder" and entry.name in skip:
                continue
            yield entry.name, entry
            if entry.kind == "folder":
                below = self.walk(str(self.place_of(path) / entry.name), skip=skip)
                yield from ((f"{entry.name}/{name}", each) for name, each in below)

    @override
    def state(self, path: str | Path) -> FileState | None:
        known = self._known(path)
        return super().state(path) if known is None else known.after

    @override
    def restore(self, path: str | Path, chunks: Iterable[bytes], plan: ReplacementRules) -> bool:
        file = self._file(path)
        is_new = file.after is None
        is_other = plan.replaces is not None and not (
            file.after is not None and file.after.holds(plan.replaces)
        )
        if is_other or (plan.must_be_new and not is_new):
            raise _changed(path)
        data = b"".join(chunks)
        self._set(file, data)
        return is_new

    @override
    def append(self, path: str, data: bytes) -> bool:
        file = self._file(path)
        is_new = file.after is None
        if not file.is_large:
            self._set(file, (file.new or b"") + data)
            return is_new
        file.added += data
        digest, size = hashlib.sha256(), 0
        with super().open_read(path) as old:
            while chunk := old.read(CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
        digest.update(file.added)
        after = FileState(size=size + len(file.added), sha256=digest.hexdigest(), mode=0)
        self._note(file, after)
        return is_new

    @override
    def remove(
        self, path: str | Path, was: FileState | None, folders: tuple[str, ...] = ()
    ) -> None:
        file = self._file(path)
        if file.after is None or (was is not None and not file.after.holds(was)):
            raise _changed(path)
        file.is_large, file.new = False, None
        self._note(file, None)

    def supposed(self, path: str, tree: Tree) -> FileState | None:
        """Return what would stand at a path, by its name and with no link followed."""
        known = self._files.get(self.rules.workspace / path)
        return tree.state(path) if known is None else known.after

    def suppose(self, step: TreeStep, tree: Tree, content: Callable[[TreeStep], BinaryIO]) -> None:
        """Note that undo of a command would make this of a path."""
        place = self.rules.workspace / step.path
        file = self._files.get(place)
        if file is None:
            shown = FileChange.of(step.path, None, None).path
            old, is_large = _held(step.now, lambda: tree.opened(step.path), len(self._files))
            file = self._files[place] = _File(
                path=shown, before=step.now, after=step.now, old=old, new=old, is_large=is_large
            )
        new, is_large = _held(step.target, lambda: content(step), len(self._files))
        file.new, file.is_large = new, file.is_large or is_large
        file.note = _noted(file.before, step.target)
        self._note(file, step.target)

    def _known(self, path: str | Path) -> _File | None:
        return self._files.get(self.place_of(path))

    def _file(self, path: str | Path) -> _File:
        """Return what is known of a file that is to be changed.

        Raises:
            ClawError: it cannot be changed.
        """
        if isinstance(path, str) and path.strip().endswith("/"):
            raise InvalidRequestError(f"{path} ends with a slash; a file's path was expected")
        place = self.place_of(path)
        if place not in self._files:
            state = super().state(path)
            old: bytes | None = None
            is_large = state is not None and state.size > MAX_OLD_BYTES
            if state is not None and not is_large:
                with super().open_read(path) as file:
                    old = file.read()
                state = FileState.of(old)
            elif state is None and place in self._made_folders():
                raise InvalidRequestError(f"{path} is a folder; a file's path was expected")
            self._files[place] = _File(
                path=self._named(place),
                before=state,
                after=state,
                old=old,
                new=old,
                is_large=is_large,
            )
        return self._files[place]

    def _set(self, file: _File, data: bytes) -> None:
        file.is_large, file.new = False, data
        self._note(file, FileState.of(data))

    def _note(self, file: _File, after: FileState | None) -> None:
        self._writes.append(FileChange(path=file.path, before=file.after, after=after))
        file.after = after

    def _made_folders(self) -> set[Path]:
        """Return the folders that would be made for the files that were written."""
        workspace = self.rules.workspace
        return {
            above
            for file, known in self._files.items()
            if known.before is None and known.new is not None
            for above in file.parents
            if workspace in above.parents and not above.exists()
        }


def is_as_shown(change: FileChange, shown: FileChange) -> bool:
    """Whether a change that is about to be made is the one that was shown."""
    return (
        change.path == shown.path
        and _same(change.before, shown.before)
        and _same(change.after, shown.after)
    )


def _same(one: FileState | None, other: FileState | None) -> bool:
    return one is other if one is None or other is None else one.holds(other)


def _changed(path: str | Path) -> BusyError:
    return BusyError(
        f"{path} is not what it was; it is left as it is",
        retry_after_s=0.1,
        hint="Look at it again.",
    )


def _held(
    state: FileState | None, opened: Callable[[], BinaryIO], files: int
) -> tuple[bytes | None, bool]:
    """Return what a file holds, and whether it is too large to be held, or one of too many."""
    if state is None:
        return None, False
    if state.kind != "file":
        return b"", False
    if state.size > MAX_OLD_BYTES or files > MAX_COMPARED_FILES:
        return None, True
    with opened() as file:
        return file.read(), False


def _noted(before: FileState | None, after: FileState | None) -> str:
    """Return what of a change its lines do not show."""
    kinds = [each.kind for each in (before, after) if each is not None]
    notes = [f"a {kind}" for kind in dict.fromkeys(kinds) if kind != "file"]
    if before is None or after is None or before.kind != after.kind:
        return ", then ".join(notes)
    if before.mode != after.mode:
        notes.append(f"permissions {before.mode:04o}, then {after.mode:04o}")
    return ", then ".join(notes)


class _Room:
    """How much of the diffs of one call is still shown."""

    def __init__(self) -> None:
        self._lines, self._bytes = MAX_SHOWN_LINES, MAX_SHOWN_BYTES

    def take(self, lines: list[DiffLine]) -> list[DiffLine]:
        """Return as many of the lines as there is room for."""
        for count, line in enumerate(lines):
            self._lines -= 1
            self._bytes -= len(line.text.encode()) + len(line.raw)
            if self._lines < 0 or self._bytes < 0:
                return lines[:count]
        return lines


def _diff_of(file: _File, room: _Room) -> FileDiff | None:
    """Return what becomes of a file; None where nothing does."""
    if _same(file.before, file.after) and not file.note:
        return None
    old, new = file.old or b"", file.new or b""
    if file.is_large:
        lines = _numbered("+", _split(file.added), 0, is_known=False)
    elif file.before is not None and file.old is None:  # it was large, and is replaced
        lines = _numbered("+", _split(new), 0)
    else:
        lines = _compared(_split(old), _split(new))
    shown = room.take(lines)
    is_whole = len(shown) == len(lines) and (file.before is None or file.old is not None)
    return FileDiff(
        path=file.path,
        lines=tuple(shown),
        is_new=file.before is None,
        is_removed=file.after is None,
        is_binary=any(not _is_text(each) for each in (old, new, file.added)),
        is_cut=not is_whole,
        added=sum(line.mark == "+" for line in lines),
        removed=sum(line.mark == "-" for line in lines),
        old_size=file.before.size if file.before else 0,
        new_size=file.after.size if file.after else 0,
        old_sha256=file.before.sha256 if file.before else "",
        new_sha256=file.after.sha256 if file.after else "",
        note=file.note,
    )


def diffs_of_kept(
    files: Iterable[tuple[FileChange, BinaryIO | None, BinaryIO | None]],
) -> tuple[FileDiff, ...]:
    """Return what became of files, each with what it held before and held after; closes both.

    A content is taken only where it is the one of the change; a note says where one is missing.
    """
    room, diffs = _Room(), []
    for change, old, new in files:
        before, after = change.before, change.after
        known = _content(before, old), _content(after, new)
        file = _File(
            path=change.path,
            before=before,
            after=after,
            old=known[0],
            new=known[1],
            note=_noted(before, after),
        )
        diff = _diff_of(file, room)
        if diff is not None and ((before and known[0] is None) or (after and known[1] is None)):
            note = "; ".join(filter(None, (file.note, NOT_HELD)))
            diff = msgspec.structs.replace(
                diff, lines=(), added=0, removed=0, is_binary=False, is_cut=True, note=note
            )
        if diff is not None:
            diffs.append(diff)
    return tuple(diffs)


def _content(state: FileState | None, file: BinaryIO | None) -> bytes | None:
    """Return what a file held, and close it; None where it is too large, or is not what it was."""
    with file or io.BytesIO() as opened:
        if state is None or state.kind != "file":
            return None if state is None else b""
        data = opened.read(MAX_OLD_BYTES + 1)
    return data if FileState.of(data).holds(state) else None


def _loss_of(file: _File) -> str:
    """Say of a file that it is replaced by less than half of it; "" where it is not, or is short.

    One that is not held is told by its bytes.
    """
    if file.before is None or file.after is None or file.is_large:
        return ""
    if file.old is None:
        if 2 * file.after.size >= file.before.size:
            return ""
        return f"replaces {file.before.size} bytes of {file.path} by {file.after.size}"
    before, after = len(_split(file.old)), len(_split(file.new or b""))
    if before <= SHORT_LINES or 2 * after >= before:
        return ""
    return f"replaces {before} lines of {file.path} by {after}"


def _compared(before: list[bytes], after: list[bytes]) -> list[DiffLine]:
    """Return the lines that go and come, with some around them."""
    start = 0
    shorter = min(len(before), len(after))
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if len(old) * len(new) > _MAX_COMPARED:
        middle = [("replace", 0, len(old), 0, len(new))]
    else:
        middle = list(difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
    codes = [
        ("equal", 0, start, 0, start),
        *((kind, a + start, b + start, c + start, d + start) for kind, a, b, c, d in middle),
        ("equal", len(before) - end, len(before), len(after) - end, len(after)),
    ]
    lines: list[DiffLine] = []
    for position, (kind, old_from, old_to, new_from, new_to) in enumerate(codes):
        if kind != "equal":
            lines += _numbered("-", before[old_from:old_to], old_from)
            lines += _numbered("+", after[new_from:new_to], new_from)
            continue
        head = _CONTEXT_LINES if position > 0 else 0
        tail = _CONTEXT_LINES if position < len(codes) - 1 else 0
        kept = after[new_from:new_to]
        if len(kept) <= head + tail:
            lines += _numbered(" ", kept, new_from)
            continue
        lines += _numbered(" ", kept[:head], new_from)
        lines.append(DiffLine(mark="@"))
        lines += _numbered(" ", kept[len(kept) - tail :], new_to - tail)
    while lines and lines[0].mark == "@":
        del lines[0]
    while lines and lines[-1].mark == "@":
        del lines[-1]
    return lines


def _numbered(
    mark: Mark, lines: list[bytes], before: int, *, is_known: bool = True
) -> list[DiffLine]:
    return [
        _line(mark, line, number if is_known else 0)
        for number, line in enumerate(lines, before + 1)
    ]


def _line(mark: Mark, line: bytes, number: int) -> DiffLine:
    has_end = line.endswith(b"\n")
    data = line[:-1] if has_end else line
    try:
        return DiffLine(mark=mark, text=data.decode(), number=number, has_end=has_end)
    except UnicodeDecodeError:
        text = data.decode(errors="backslashreplace")
        return DiffLine(mark=mark, text=text, number=number, has_end=has_end, raw=data)


def _split(data: bytes) -> list[bytes]:
    r"""Return the lines, each with its end; nothing but `\n` ends one."""
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
