"""Where a path leads, for the policy: inside the workspace, outside of it, or forbidden.

A swap between decision and act can fool this; `workspace` enforces it on what was opened.
"""

import contextlib
import os
import re
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
    """

    workspace: Path
    workspace_only: bool = True
    forbidden: tuple[Path, ...] = ()
    home: Path | None = None

    def forbids(self, real: Path) -> Path | None:
        """Return the forbidden path at or above a resolved path, or None."""
        for folder in self.forbidden:
            if is_under(real, folder):
                return folder
        home = self.home
        if home is None or not is_under(real, home):
            return None
        workspace = self.workspace
        is_inside = workspace != home and is_under(workspace, home)
        return None if is_inside and is_under(real, workspace) else home


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """Where a path leads: its place, its resolved form, and why it is refused there."""

    place: Place
    path: Path
    reason: str = ""


def path_rules(settings: PolicySettings, *, workspace: Path, home: Path | None) -> PathRules:
    """Resolve the owner's settings for one workspace, which is resolved already.

    It is not resolved again: a link put in its place since must not lead the tools elsewhere.
    """
    return PathRules(
        workspace=workspace,
        workspace_only=settings.workspace_only,
        forbidden=tuple(Path(p).expanduser().resolve() for p in settings.forbidden_paths),
        home=home.resolve() if home else None,
    )


def classify(path: str | Path, rules: PathRules) -> Location:
    """Tell where a path leads now; what does not exist is judged by where it would be.

    See `absolute` for what text and a `Path` mean.

    Raises:
        InvalidRequestError: it is no path (NUL, too long).
        ForbiddenError: what it leads through is being replaced all the time.
    """
    real = _resolved(absolute(path, rules))
    if folder := rules.forbids(real):
        return Location(place="forbidden", path=real, reason=f"{folder} is a forbidden path")
    if is_under(real, rules.workspace):
        return Location(place="inside", path=real)
    reason = f"{real} is outside the workspace {rules.workspace}"
    return Location(place="outside", path=real, reason=reason)


def _resolved(path: str) -> Path:
    for _ in range(_RETRIES):
        # EINVAL: a link that was no link any more when it was read.
        with contextlib.suppress(OSError):
            return Path(os.path.realpath(path))
    raise ForbiddenError(f"{path} leads to another place each time it is looked at")


def is_under(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or lies in it; compares resolved paths by their parts."""
    return path == folder or folder in path.parents


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
