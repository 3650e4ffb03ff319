"""The skills of a home and a workspace: found, looked at, trusted, added, read.

Skills of the home are the owner's. A workspace's are somebody's until an admin trusts their
folder by its hash over all files; another file in it, and it is untrusted again. What is read is
what was hashed, in one go. Every method blocks.
"""

import errno
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError, StorageError
from clawd.plugins import files
from clawd.plugins.files import read_archive
from clawd.plugins.loader import Pin, PluginPins, changes_since, pin_of
from clawd.skills import skill_file
from clawd.wire.safe_text import visible_line
from clawd.wire.skills import SkillKind, SkillProblem, SkillState

MAX_SKILLS = 256  # of one place
MAX_LISTED_BYTES = 64 << 20
_SHOWN = 64


def names_in(place: Path, suffix: str = "") -> list[str]:
    """Return the names of folders in a place, or of what ends so; none where it cannot be listed.

    A link to a folder counts; reading it refuses it.
    """
    try:
        with os.scandir(place) as found:
            seen = [(each.name, bool(suffix) or each.is_dir()) for each in found]
    except OSError:
        return []
    names = (name for name, counts in seen if counts and name[0] != "." and name.endswith(suffix))
    return sorted(name.removesuffix(suffix) for name in names)


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A folder in one of the places.

    Attributes:
        name: of the folder.
        state: ready; untrusted; changed (since it was trusted); broken; or shadowed.
        folder: where it lies.
        is_own: it is the owner's; a workspace's has to be trusted.
        about: what its SKILL.md says, without the body; all that is wrong with it.
        digest: the hash of all its files; "" when they cannot be read.
        shadowed_by: the folder of the same name that goes before it, or "".
    """

    name: str
    state: SkillState
    folder: Path
    is_own: bool
    about: skill_file.SkillFile = skill_file.SkillFile()
    digest: str = ""
    shadowed_by: str = ""


class Skills(msgspec.Struct, frozen=True, kw_only=True):
    """The skills of a workspace, those that go before first, and how many were not looked at."""

    items: tuple[Skill, ...] = ()
    left_out: int = 0

    @property
    def ready(self) -> tuple[Skill, ...]:
        """Those that a model may read."""
        return tuple(skill for skill in self.items if skill.state == "ready")


class SkillLook(msgspec.Struct, frozen=True, kw_only=True):
    """What a person sees of one skill.

    Attributes:
        skill: what it is.
        tree: its files.
        changes: what differs from what was trusted, or from what an added one replaces.
        replaces: adding it replaces one of the home.
    """

    skill: Skill
    tree: files.PluginTree
    changes: tuple[str, ...] = ()
    replaces: bool = False


class SkillStore:
    """The skills that one daemon knows. Safe to use from several threads.

    Attributes:
        kind: what they are.
        places: of a workspace.
        names: the pattern of their names.

    Args:
        home: the folder of clawd's own home for them; tools never reach it.
        person: `~/.agents/skills` of whom the daemon belongs to.
        pins: what was trusted, by folder.
        roots: returns workspaces that are in use, beside the one that is asked for: what lies in
            one is never the owner's.
    """

    kind: SkillKind = "skill"
    suffix: str = ""
    places: tuple[str, ...] = (".agents/skills", ".claude/skills")
    names: str = skill_file.NAME_PATTERN

    def __init__(
        self, home: Path, person: Path, pins: PluginPins, roots: Callable[[], Sequence[Path]]
    ) -> None:
        self._home = home
        self._person = person
        self._pins = pins
        self._roots = roots
        self._seen: dict[Path, tuple[object, Skill]] = {}

    def found(self, workspace: Path) -> Skills:
        """Return all skills of a workspace, which is resolved, whatever is wrong with them."""
        places = [
            (place, own, names_in(place, self.suffix)) for place, own in self._places(workspace)
        ]
        pins = self._pins.known() if any(names for _, _, names in places) else {}
        items, left_out, room = list[Skill](), 0, MAX_LISTED_BYTES
        first: dict[str, Path] = {}
        for place, is_own, names in places:
            left_out += max(len(names) - MAX_SKILLS, 0)
            for name in names[:MAX_SKILLS]:
                folder = self._entry(place, name)
                skill, read = self._look(folder, is_own=is_own, room=room)
                room -= read
                if before := first.get(name):
                    skill = msgspec.structs.replace(
                        skill, state="shadowed", shadowed_by=str(before)
                    )
                first.setdefault(name, folder)
                items.append(_judged(skill, pins.get(str(folder))))
        if len(self._seen) > 4 * MAX_SKILLS:
            self._seen.clear()
        return Skills(items=tuple(items), left_out=left_out)

    def folder(self, name: str, workspace: Path) -> tuple[Path, bool]:
        """Return the folder of a name, the first that there is, and whether it is the owner's.

        Raises:
            NotFoundError: there is none.
        """
        if len(name) <= skill_file.MAX_NAME and re.fullmatch(self.names, name):
            for place, is_own in self._places(workspace):
                entry = self._entry(place, name)
                if entry.is_dir() if self.kind == "skill" else entry.is_file():
                    return entry, is_own
        raise NotFoundError(
            f"there is no {self.kind} {visible_line(name, _SHOWN)!r}",
            hint=f"clawctl skill list{self._flag} shows them.",
        )

    def read(self, name: str, workspace: Path) -> tuple[Skill, files.PluginTree]:
        """Return a skill that a model may read, and the files that were judged.

        Raises:
            NotFoundError: there is none of this name.
            ForbiddenError: it is untrusted, was changed, or is broken.
        """
        found = self.review(name, workspace)
        if found.skill.state != "ready":
            words = f"{name}{self._flag}{self._place_of(workspace)}"
            raise ForbiddenError(
                f"the {self.kind} {name} is {found.skill.state}; only the user can change that",
                hint=f"clawctl skill show {words} displays it, clawctl skill trust {words} trusts.",
            )
        return found.skill, found.tree

    def review(self, name: str, workspace: Path) -> SkillLook:
        """Return what a person sees of a skill of this name, and what differs since it was trusted.

        Raises:
            NotFoundError: there is none.
        """
        folder, is_own = self.folder(name, workspace)
        pin = self._pins.known().get(str(folder))
        skill, tree = self._read(folder, is_own=is_own)
        changes = tuple(changes_since(pin, tree)) if pin is not None and not is_own else ()
        return SkillLook(skill=_judged(skill, pin), tree=tree, changes=changes)

    def inspect(self, source: Path) -> SkillLook:
        """Return what adding a folder or an archive would add.

        Raises:
            InvalidRequestError: it is neither, or holds what none may.
        """
        if source.is_dir():
            name, tree = (
                source.resolve().name,
                files.read_tree(source.resolve(), is_installed=False),
            )
        else:
            name, tree = read_archive(source)
        file = tree.file(skill_file.FILE_NAME)
        if not name and file is not None:
            name = skill_file.read_skill_file(file.data or b"", "").name
        about = _about(tree, name)
        place = self._home / (name or "-")
        skill = Skill(
            name=name,
            state="broken" if about.problems else "untrusted",
            folder=source,
            is_own=False,
            about=about,
            digest=tree.digest,
        )
        replaces, changes = place.is_dir(), tuple[str, ...]()
        if replaces and not about.problems:
            _, before = self._read(place, is_own=True)
            changes = tuple(changes_since(pin_of(before, 0), tree))
        return SkillLook(skill=skill, tree=tree, changes=changes, replaces=replaces)

    def add(self, source: Path, *, digest: str) -> Path:
        """Copy a skill into the home, if it is still what was inspected; return where it lies.

        Raises:
            InvalidRequestError: it is another one by now, or none by the standard.
            StorageError: the disk refused; what was there before is still there.
        """
        found = self.inspect(source)
        _check(found, digest)
        place = self._home / found.skill.name
        try:
            files.put_tree(found.tree, place)
        except OSError as error:
            raise StorageError(f"the skill cannot be written: {error}") from error
        return place

    def revoke(self, name: str, workspace: Path) -> Path:
        """Take back that a workspace's skill is trusted; return where it lies.

        Raises:
            NotFoundError: there is none of this name.
            StorageError: the disk refused.
        """
        folder, _ = self.folder(name, workspace)
        self._pins.forget(str(folder))
        return folder

    def trust(self, name: str, workspace: Path, *, digest: str, by: int) -> Path:
        """Trust a workspace's skill as it is, if it is still what was looked at.

        Raises:
            NotFoundError, InvalidRequestError: there is none, it is another one by now, or broken.
            StorageError: the disk refused.
        """
        found = self.review(name, workspace)
        if found.skill.is_own:
            raise InvalidRequestError(f"the {self.kind} {name} is the owner's; it needs no trust")
        _check(found, digest)
        self._pins.put(str(found.skill.folder), pin_of(found.tree, by))
        return found.skill.folder

    def _places(self, workspace: Path) -> Iterator[tuple[Path, bool]]:
        """Yield the places that go before first, and whether what lies there is the owner's."""
        yield self._home, True
        roots = (workspace, *(root.resolve() for root in self._roots()))
        person = self._person.resolve()
        is_apart = not any(person.is_relative_to(root) for root in roots)
        if is_apart:
            yield person, True
        for below in self.places:
            place = workspace / below
            # A link may lead out of the workspace.
            if place.resolve() == place:
                yield place, False

    def _look(self, folder: Path, *, is_own: bool, room: int) -> tuple[Skill, int]:
        """Return a skill, as it was seen before if nothing shows a change, and the bytes read."""
        try:
            is_own = is_own and _is_ours(folder)
            mark = (self._stamp(folder), is_own)
        except OSError as error:
            return _broken(folder, f"it cannot be read: {error.strerror}", is_own=is_own), 0
        known = self._seen.get(folder)
        if mark[0] and known is not None and known[0] == mark:
            return known[1], 0
        size = sum(facts[3] for facts in mark[0])
        if size > min(room, files.MAX_BYTES):
            most = f"{files.MAX_BYTES >> 20} MiB, all together {MAX_LISTED_BYTES >> 20} MiB"
            return _broken(folder, f"it is too large: one may have {most}", is_own=is_own), 0
        skill, _ = self._read(folder, is_own=is_own)
        about = msgspec.structs.replace(skill.about, body="")
        skill = msgspec.structs.replace(skill, about=about)
        self._seen[folder] = mark, skill
        return skill, size

    @property
    def _flag(self) -> str:
        return "" if self.kind == "skill" else f" --kind {self.kind}"

    def _place_of(self, workspace: Path) -> str:
        """Return the option that names a workspace which is not the configured one."""
        is_configured = workspace in (root.resolve() for root in self._roots())
        return "" if is_configured else f" -C {shlex.quote(visible_line(str(workspace)))}"

    # --- where one lies, and how it is read

    def _entry(self, place: Path, name: str) -> Path:
        return place / name

    def _stamp(self, entry: Path) -> tuple[tuple[str, int, int, int, int], ...]:
        return files.stamp(entry)

    def _read(self, folder: Path, *, is_own: bool) -> tuple[Skill, files.PluginTree]:
        """Return one as its files are now, `ready` unless broken, and these files."""
        try:
            if folder.is_symlink():
                raise InvalidRequestError("it is a link; a skill is a folder")
            is_own = is_own and _is_ours(folder)
            tree = files.read_tree(folder, is_installed=True)
        except ClawError as error:
            return _broken(folder, error.message, is_own=is_own), files.PluginTree(files=())
        except OSError as error:
            why = f"it cannot be read: {error.strerror}"
            return _broken(folder, why, is_own=is_own), files.PluginTree(files=())
        return self._told(folder, tree, _about(tree, folder.name), is_own=is_own)

    def _told(
        self, entry: Path, tree: files.PluginTree, about: skill_file.SkillFile, *, is_own: bool
    ) -> tuple[Skill, files.PluginTree]:
        state: SkillState = "broken" if about.problems else "ready"
        skill = Skill(name=entry.stem, state=state, folder=entry, is_own=is_own, about=about)
        return msgspec.structs.replace(skill, digest=tree.digest), tree


class AgentStore(SkillStore):
    """Agents: a Markdown file each, `NAME.md`, with fields before its text."""

    kind: SkillKind = "agent"
    suffix: str = ".md"
    places: tuple[str, ...] = (".agents/agents", ".claude/agents")

    @override
    def inspect(self, source: Path) -> SkillLook:
        skill, tree = self._read(source, is_own=False)
        return SkillLook(skill=_judged(skill, None), tree=tree)

    def _says(self, data: bytes, name: str) -> skill_file.SkillFile:
        return skill_file.read_definition(data, name)

    @override
    def _entry(self, place: Path, name: str) -> Path:
        return place / f"{name}.md"

    @override
    def _stamp(self, entry: Path) -> tuple[tuple[str, int, int, int, int], ...]:
        facts = entry.lstat()
        return ((str(entry), facts.st_ino, facts.st_mode, facts.st_size, facts.st_ctime_ns),)

    @override
    def _read(self, folder: Path, *, is_own: bool) -> tuple[Skill, files.PluginTree]:
        try:
            is_own = is_own and _is_ours(folder)
            tree = files.PluginTree(files=(_plain_file(folder),))
        except OSError as error:
            why = f"it cannot be read: {error.strerror}"
            return _broken(folder, why, is_own=is_own), files.PluginTree(files=())
        about = self._says(tree.files[0].data or b"", folder.stem)
        return self._told(folder, tree, about, is_own=is_own)


class CommandStore(AgentStore):
    """Commands that stand for a message, in files as those of agents."""

    kind: SkillKind = "command"
    places: tuple[str, ...] = (".agents/commands", ".claude/commands")
    names: str = skill_file.COMMAND_PATTERN

    @override
    def _says(self, data: bytes, name: str) -> skill_file.SkillFile:
        return skill_file.read_command(data, name)


def _plain_file(path: Path) -> files.PluginFile:
    """Return a file that is no link; what is more than may be read is cut, and is too much.

    Raises:
        OSError: it is none, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no plain file")
        return files.PluginFile(
            path=path.name, mode=0o600, data=file.read(skill_file.MAX_FILE_BYTES + 1)
        )


def _is_ours(folder: Path) -> bool:
    """Return whether a folder belongs to whom the daemon runs as, or to root."""
    return folder.lstat().st_uid in {0, os.geteuid()}


def _broken(folder: Path, why: str, *, is_own: bool) -> Skill:
    about = skill_file.SkillFile(problems=(SkillProblem(text=why),))
    return Skill(name=folder.stem, state="broken", folder=folder, is_own=is_own, about=about)


def _about(tree: files.PluginTree, name: str) -> skill_file.SkillFile:
    file = tree.file(skill_file.FILE_NAME)
    if file is None or file.data is None:
        return skill_file.SkillFile(
            problems=(SkillProblem(text=f"it has no {skill_file.FILE_NAME}"),)
        )
    return skill_file.read_skill_file(file.data, name)


def _judged(skill: Skill, pin: Pin | None) -> Skill:
    """Return a skill that is ready as what its pin makes of it."""
    if skill.state != "ready" or skill.is_own or (pin is not None and pin.digest == skill.digest):
        return skill
    return msgspec.structs.replace(skill, state="untrusted" if pin is None else "changed")


def _check(found: SkillLook, digest: str) -> None:
    skill = found.skill
    if skill.about.problems:
        problems = "; ".join(f"line {each.line}: {each.text}" for each in skill.about.problems[:3])
        raise InvalidRequestError(
            f"{visible_line(str(skill.folder))} is no skill: {problems}",
            hint="clawctl skill lint PATH tells all that is wrong with it.",
        )
    if skill.digest != digest:
        raise InvalidRequestError(
            f"the skill {skill.name} is not what was looked at: its hash is "
            f"{skill.digest[:16]}…, not {digest[:16]}…",
            hint="Look at it again.",
        )
