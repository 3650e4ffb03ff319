"""The procedures of a home and a workspace: found, checked, looked at, enabled.

Those of the home are the owner's. A workspace's count when an admin has enabled their folder by
its hash over all files; another file in it, and they do not. Every method blocks.
"""

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError
from clawd.plugins.files import PluginTree, read_tree
from clawd.plugins.loader import Pin, PluginPins, changes_since, pin_of
from clawd.skills.store import names_in
from clawd.sop.load import (
    FILE_NAME,
    MAX_FILE_BYTES,
    MAX_NAME,
    NAME_PATTERN,
    Procedure,
    Schemas,
    load,
)
from clawd.wire.safe_text import visible_line
from clawd.wire.sops import SopProblem, SopState

MAX_SOPS = 64  # of one place
PLACE = "sops"


class Sop(msgspec.Struct, frozen=True, kw_only=True):
    """A folder in one of the places.

    Attributes:
        is_own: it is the owner's; a workspace's has to be enabled.
        procedure: what its file says, as far as that can be read.
        source: the file.
        digest: the hash of all its files; "" when they cannot be read.
        changes: what differs from what was enabled.
        shadowed_by: the folder of the same name that goes before it, or "".
    """

    name: str
    state: SopState
    folder: Path
    is_own: bool
    procedure: Procedure
    problems: tuple[SopProblem, ...] = ()
    source: str = ""
    digest: str = ""
    changes: tuple[str, ...] = ()
    shadowed_by: str = ""


class SopStore:
    """The procedures that one daemon knows.

    Args:
        home: the folder of clawd's own home for them; tools never reach it.
        pins: what was enabled, by folder.
        schemas: knows the tools.
    """

    def __init__(self, home: Path, pins: PluginPins, schemas: Schemas) -> None:
        self._home = home
        self._pins = pins
        self.schemas = schemas

    @property
    def patterns(self) -> tuple[str, ...]:
        """What finds the file of any procedure, of the home or from a workspace."""
        return f"{glob.escape(str(self._home))}/*/{FILE_NAME}", f"{PLACE}/*/{FILE_NAME}"

    def found(self, workspace: Path) -> tuple[list[Sop], int]:
        """Return the procedures, those that go before first, and how many were not looked at."""
        items, left_out, first = list[Sop](), 0, dict[str, Path]()
        pins = self._pins.known()
        for place, is_own in self._places(workspace):
            names = names_in(place)
            left_out += max(len(names) - MAX_SOPS, 0)
            for name in names[:MAX_SOPS]:
                sop, tree = self._read(place / name, is_own=is_own)
                sop = _judged(sop, tree, pins.get(str(sop.folder)))
                if before := first.get(name):
                    sop = msgspec.structs.replace(sop, state="shadowed", shadowed_by=str(before))
                first.setdefault(name, sop.folder)
                items.append(sop)
        return items, left_out

    def review(self, name: str, workspace: Path) -> Sop:
        """Return the procedure of a name as it is now, whatever is wrong with it.

        Raises:
            NotFoundError: there is none.
        """
        sop, tree = self._look(name, workspace)
        return _judged(sop, tree, self._pins.known().get(str(sop.folder)))

    def ready(self, name: str, workspace: Path) -> Sop:
        """Return a procedure that may run.

        Raises:
            NotFoundError: there is none of this name.
            ForbiddenError: it is not enabled, or was changed since.
            InvalidRequestError: it is broken.
        """
        sop = self.review(name, workspace)
        if sop.problems:
            raise InvalidRequestError(
                f"{name} is no procedure: {described(sop.problems[0])}"
                + (f", and {len(sop.problems) - 1} more" if len(sop.problems) > 1 else ""),
                hint=f"clawctl sop validate {name} says all that is wrong with it.",
            )
        if sop.state != "ready":
            why = "was changed since it was enabled" if sop.state == "changed" else "is not enabled"
            raise ForbiddenError(
                f"the procedure {name} {why}; only the user can change that",
                hint=f"Look at it and let it run: clawctl sop enable {name}",
            )
        return sop

    def inspect(self, path: Path) -> Sop:
        """Return the procedure in a folder or file, wherever it lies.

        Raises:
            InvalidRequestError: there is none.
        """
        if path.is_dir():
            return self._read(path.resolve(), is_own=True)[0]
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise InvalidRequestError(f"{path} cannot be read: {error.strerror}") from error
        return self._sop(data, path.parent, "", is_own=True)

    def enable(self, name: str, workspace: Path, *, digest: str, by: int) -> Path:
        """Let a workspace's procedure run as it is, if it is still what was looked at.

        Raises:
            NotFoundError, InvalidRequestError: there is none, it is another one by now, or broken.
            StorageError: the disk refused.
        """
        sop, tree = self._look(name, workspace)
        if sop.is_own:
            raise InvalidRequestError(f"{name} is the owner's; it can be run as it is")
        if sop.problems:
            raise InvalidRequestError(f"{name} is no procedure: {described(sop.problems[0])}")
        if sop.digest != digest:
            raise InvalidRequestError(
                f"the procedure {name} is not what was looked at: its hash is "
                f"{sop.digest[:16]}…, not {digest[:16]}…",
                hint="Look at it again.",
            )
        self._pins.put(str(sop.folder), pin_of(tree, by))
        return sop.folder

    def revoke(self, name: str, workspace: Path) -> Path:
        """Let a workspace's procedure run no longer; runs that began go on.

        Raises:
            NotFoundError: there is none of this name.
            StorageError: the disk refused.
        """
        folder = self._look(name, workspace)[0].folder
        self._pins.forget(str(folder))
        return folder

    def _places(self, workspace: Path) -> Iterator[tuple[Path, bool]]:
        yield self._home, True
        place = workspace / PLACE
        # A link may lead out of the workspace.
        if place.resolve() == place:
            yield place, False

    def _look(self, name: str, workspace: Path) -> tuple[Sop, PluginTree]:
        if len(name) <= MAX_NAME and re.fullmatch(NAME_PATTERN, name):
            for place, is_own in self._places(workspace):
                if (place / name).is_dir():
                    return self._read(place / name, is_own=is_own)
        raise NotFoundError(
            f"there is no procedure {visible_line(name, MAX_NAME)!r}",
            hint="clawctl sop list shows them.",
        )

    def _read(self, folder: Path, *, is_own: bool) -> tuple[Sop, PluginTree]:
        """Return a procedure as its files are now, and these files."""
        try:
            if folder.is_symlink():
                raise InvalidRequestError("it is a link; a procedure lies in a folder")
            if is_own and folder.lstat().st_uid not in {0, os.geteuid()}:
                raise InvalidRequestError("it belongs to another user")
            tree = read_tree(folder, is_installed=True)
            file = tree.file(FILE_NAME)
            if file is None or file.data is None:
                raise InvalidRequestError(f"it has no {FILE_NAME}")
        except (ClawError, OSError) as error:
            why = error.message if isinstance(error, ClawError) else str(error.strerror)
            sop = Sop(
                name=folder.name,
                state="broken",
                folder=folder,
                is_own=is_own,
                procedure=Procedure(name=folder.name, description=""),
                problems=(SopProblem(text=why),),
            )
            return sop, PluginTree(files=())
        return self._sop(file.data, folder, tree.digest, is_own=is_own), tree

    def _sop(self, data: bytes, folder: Path, digest: str, *, is_own: bool) -> Sop:
        found = load(data, folder.name if digest else "", self.schemas)
        return Sop(
            name=folder.name if digest else found.procedure.name,
            state="broken" if found.problems else "ready",
            folder=folder,
            is_own=is_own,
            procedure=found.procedure,
            problems=found.problems,
            source=data[:MAX_FILE_BYTES].decode(errors="replace"),
            digest=digest,
        )


def described(problem: SopProblem) -> str:
    """Return a problem as a sentence."""
    where = f"line {problem.line}, " if problem.line else ""
    return f"{where}{problem.key}: {problem.text}" if problem.key else f"{where}{problem.text}"


def _judged(sop: Sop, tree: PluginTree, pin: Pin | None) -> Sop:
    """Return a procedure as what its pin makes of it."""
    if sop.is_own or (pin is not None and pin.digest == sop.digest):
        return sop
    changes = tuple(changes_since(pin, tree)) if pin is not None else ()
    if sop.state == "ready":
        state: SopState = "untrusted" if pin is None else "changed"
        sop = msgspec.structs.replace(sop, state=state)
    return msgspec.structs.replace(sop, changes=changes)
