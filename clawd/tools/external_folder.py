"""The folder of external tools: reads every manifest in it and says what it could not take."""

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from clawd.tools.external_json import JsonFileError
from clawd.tools.external_manifest import MAX_TOOLS, ManifestRules, read_manifest
from clawd.tools.external_spec import ExternalSpec
from clawd.tools.external_warnings import warnings_of

MAX_FILE_BYTES = 1 << 20
MAX_ENTRIES = 4096

_NAME = re.compile(r"CLAWD-[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.tools")
_OTHERS_WRITE = stat.S_IWOTH


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, or doubtful, about a manifest or a plugin.

    Attributes:
        file: which.
        line: where in it, 0 where no line is meant.
        severity: refused means that it, or the tool named, was left out.
        reason: what is wrong, for people.
        tool: the tool that is meant, or "".
    """

    file: str
    line: int = 0
    severity: Literal["refused", "warning"] = "refused"
    reason: str
    tool: str = ""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder holds.

    Attributes:
        specs: the tools, in the order of the files' names.
        problems: what was left out, and what is doubtful.
    """

    specs: tuple[ExternalSpec, ...] = ()
    problems: tuple[Problem, ...] = ()


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where manifests may lie.

    Attributes:
        home: clawd's home, which no command sees.
        writable: folders in which a workspace may lie, so that the model could write there.
        rules: what the manifests are held to.
    """

    home: Path
    writable: tuple[Path, ...] = ()
    rules: ManifestRules = ManifestRules()


def read_folder(folder: Path, places: Places) -> Found:
    """Read every manifest of a folder; a folder that is not there holds none. Blocks."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted
    except FileNotFoundError:
        return Found()
    except OSError as error:
        return Found(problems=(Problem(file=str(folder), reason=f"cannot be read: {error}"),))
    if reason := _place_problem(folder, places):
        return Found(problems=(Problem(file=str(folder), reason=reason),))
    specs: list[ExternalSpec] = []
    problems = list(_folder_warnings(folder, names))
    for name in names[:MAX_ENTRIES]:
        if not _NAME.fullmatch(name):
            continue
        file = folder / name
        try:
            found = read_manifest(_text_of(file, places, problems), file, places.rules)
        except JsonFileError as error:
            problems.append(Problem(file=str(file), line=error.line, reason=error.reason))
            continue
        if len(specs) + len(found) > MAX_TOOLS:
            reason = f"with it there would be more than {MAX_TOOLS} external tools"
            problems.append(Problem(file=str(file), reason=reason))
            continue
        specs += found
    problems += [_about(spec, reason, "warning") for spec in specs for reason in warnings_of(spec)]
    return Found(specs=tuple(specs), problems=tuple(problems))


def without_collisions(found: Found, taken: Collection[str]) -> Found:
    """Leave out the tools whose name is taken, by others or by one before them."""
    names, specs, problems = set(taken), [], list(found.problems)
    for spec in found.specs:
        if spec.name in names:
            whose = "a tool of clawd" if spec.name in taken else "another external tool"
            problems.append(_about(spec, f"{whose} is called `{spec.name}` already", "refused"))
            continue
        names.add(spec.name)
        specs.append(spec)
    return Found(specs=tuple(specs), problems=tuple(problems))


def _about(spec: ExternalSpec, reason: str, severity: Literal["refused", "warning"]) -> Problem:
    return Problem(
        file=str(spec.file), line=spec.line, severity=severity, reason=reason, tool=spec.name
    )


def _place_problem(path: Path, places: Places) -> str:
    """Say why nothing is taken from a place; empty when the model cannot write there."""
    real = Path(os.path.realpath(path))
    if real.is_relative_to(os.path.realpath(places.home)):
        return ""
    for folder in places.writable:
        if real.is_relative_to(os.path.realpath(folder)):
            return (
                f"lies in {folder}, where a workspace may be, so that the model could write it; "
                "keep manifests in clawd's home or outside of all workspace_roots"
            )
    return ""


def _folder_warnings(folder: Path, names: list[str]) -> Iterator[Problem]:
    with contextlib.suppress(OSError):
        if folder.stat().st_mode & _OTHERS_WRITE:
            reason = "everybody may write to this folder: chmod o-w"
            yield Problem(file=str(folder), severity="warning", reason=reason)
    for name in names[:MAX_ENTRIES]:
        if name.endswith(".tools") and not _NAME.fullmatch(name):
            reason = "it is not named CLAWD-<name>.tools, so it is not read"
            yield Problem(file=str(folder / name), severity="warning", reason=reason)
    if len(names) > MAX_ENTRIES:
        reason = f"it holds {len(names)} files, of which the first {MAX_ENTRIES} are looked at"
        yield Problem(file=str(folder), severity="warning", reason=reason)


def _text_of(file: Path, places: Places, problems: list[Problem]) -> str:
    """Return a manifest's text.

    Raises:
        JsonFileError: it cannot be had, or must not be trusted.
    """
    if reason := _place_problem(file, places):
        raise JsonFileError(1, reason)
    try:
        # Not blocking: a pipe in its place must not hold up the daemon.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise JsonFileError(1, "it is no plain file")
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise JsonFileError(1, f"it cannot be read: {error.strerror or error}") from error
    if facts.st_uid not in {0, os.geteuid()}:
        reason = (
            f"it belongs to uid {facts.st_uid}; only root and uid {os.geteuid()} may name tools"
        )
        raise JsonFileError(1, reason)
    if len(data) > MAX_FILE_BYTES:
        raise JsonFileError(1, f"it is longer than {MAX_FILE_BYTES} bytes")
    if facts.st_mode & _OTHERS_WRITE:
        reason = "everybody may write this file: chmod o-w"
        problems.append(Problem(file=str(file), severity="warning", reason=reason))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise JsonFileError(line, "it is no UTF-8") from error
