"""Names and texts that are near to what was asked for, for error messages."""

import difflib
import posixpath

from clawd.errors import ClawError
from clawd.security.workspace import Workspace
from clawd.tools.builtin.file_text import shown_name

_SHOWN = 3
# Comparing takes time by the square of a length, and nothing could end it.
_MAX_NAMES = 2_000
_MAX_LINES = 20_000
_MAX_WIDTH = 200
_MAX_COMPARED = 200_000


def nearest_names(workspace: Workspace, path: str) -> str:
    """Return `; near names are …` for a path that is not there, or an empty string."""
    folder, name = posixpath.split(path.strip().rstrip("/"))
    try:
        names = [entry.name for entry in workspace.entries(folder or ".")]
    except ClawError:
        return ""
    by_lower = {known.lower(): known for known in names[:_MAX_NAMES]}
    wanted = name.lower()[:_MAX_WIDTH]
    near = difflib.get_close_matches(wanted, by_lower, n=_SHOWN, cutoff=0.6)
    found = [shown_name(posixpath.join(folder, by_lower[known])) for known in near]
    return f"; near names are {', '.join(found)}" if found else ""


def nearest_text(text: str, wanted: str) -> str:
    """Return the lines of a text that are most like the wanted ones, numbered, or nothing."""
    lines, height = text.splitlines(), max(1, len(wanted.splitlines()))
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")
    first = first[:_MAX_WIDTH]
    stripped = [line.strip()[:_MAX_WIDTH] for line in lines[:_MAX_LINES]]
    near = difflib.get_close_matches(first, _comparable(stripped), n=1, cutoff=0.5) if first else []
    if not near:
        return ""
    at = stripped.index(near[0])
    shown = lines[at : at + min(height, 10)]
    return "\n".join(f"{at + 1 + i}|{line}" for i, line in enumerate(shown))


def _comparable(lines: list[str]) -> list[str]:
    """Return each line once, as many as are compared in a short time."""
    kept, room = [], _MAX_COMPARED
    for line in dict.fromkeys(lines):
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return kept
