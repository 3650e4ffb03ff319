"""Names and texts that are near to what was asked for, for error messages."""

import difflib
import posixpath

from clawd.errors import ClawError
from clawd.security.workspace import Workspace
from clawd.tools.builtin.file_text import shown_name

_SHOWN = 3


def nearest_names(workspace: Workspace, path: str) -> str:
    """Return `; near names are …` for a path that is not there, or an empty string."""
    folder, name = posixpath.split(path.strip().rstrip("/"))
    try:
        names = [entry.name for entry in workspace.entries(folder or ".")]
    except ClawError:
        return ""
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=_SHOWN, cutoff=0.6)
    found = [shown_name(posixpath.join(folder, by_lower[known])) for known in near]
    return f"; near names are {', '.join(found)}" if found else ""


def nearest_text(text: str, wanted: str) -> str:
    """Return the lines of a text that are most like the wanted ones, numbered, or nothing."""
    lines, height = text.splitlines(), max(1, len(wanted.splitlines()))
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")
    stripped = [line.strip() for line in lines[:20_000]]
    near = difflib.get_close_matches(first, set(stripped), n=1, cutoff=0.5) if first else []
    if not near:
        return ""
    at = stripped.index(near[0])
    shown = lines[at : at + min(height, 10)]
    return "\n".join(f"{at + 1 + i}|{line}" for i, line in enumerate(shown))
