"""The files of a workspace, for completion: walked in the background, found by a few letters."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from clawd.wire.ignoring import Pattern, is_ignored, patterns_of

MAX_FILES = 20_000
MAX_DEPTH = 16
MAX_WALK_S = 5.0
FRESH_S = 5.0
SHOWN = 50

# Never of interest, whether a .gitignore names them or not.
LEFT_OUT = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"}


class FileIndex:
    """The paths under a folder, relative to it. Asking never waits: an early answer may be short.

    At most `MAX_FILES` of them, the ones near the top first; nothing that a `.gitignore` leaves
    out. Links to folders are not followed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: list[str] = []
        self._walked_at = -FRESH_S
        self._walker: threading.Thread | None = None
        self._is_known = threading.Event()

    def paths(self) -> list[str]:
        """Return what is known, and look again in the background when that is some time ago."""
        is_busy = self._walker is not None and self._walker.is_alive()
        if not is_busy and time.monotonic() - self._walked_at >= FRESH_S:
            self._walker = threading.Thread(target=self._walk, name="files", daemon=True)
            self._walker.start()
        return self._paths

    def find(self, letters: str) -> list[str]:
        """Return the paths that hold these letters in this order, the best ones first."""
        found = ((score(path, letters), path) for path in self.paths())
        fitting = [(value, len(path), path) for value, path in found if value is not None]
        return [path for _, _, path in sorted(fitting)[:SHOWN]]

    def wait(self, limit_s: float) -> None:
        """Wait until some paths are known, or that there are none."""
        self.paths()
        self._is_known.wait(limit_s)

    def _walk(self) -> None:
        paths: list[str] = []
        is_first = not self._paths
        for path in walk(self.folder):
            paths.append(path)
            if is_first and len(paths) % 500 == 0:
                self._paths = paths[:]
                self._is_known.set()
        self._paths = paths
        self._walked_at = time.monotonic()
        self._is_known.set()


def walk(folder: Path) -> Iterator[str]:
    """Yield files and folders (these end with a slash) by depth, within the limits of an index."""
    deadline = time.monotonic() + MAX_WALK_S
    level: list[tuple[str, list[Pattern]]] = [("", [])]
    count = 0
    for _ in range(MAX_DEPTH):
        below: list[tuple[str, list[Pattern]]] = []
        for base, above in level:
            patterns = above + patterns_of(folder / base, base.rstrip("/"))
            for path in _entries(folder, base, patterns):
                if count >= MAX_FILES or time.monotonic() > deadline:
                    return
                count += 1
                yield path
                if path.endswith("/"):
                    below.append((path, patterns))
        level = below


def score(path: str, letters: str) -> tuple[int, int] | None:
    """Return how well letters find a path, less is better; None when they do not.

    The name itself goes before its folders, a whole word before scattered letters.
    """
    low, wanted = path.lower(), letters.lower()
    name = low.rstrip("/").rpartition("/")[2]
    if low.startswith(wanted):
        return 0, low.count("/")
    if name.startswith(wanted):
        return 1, low.count("/")
    if wanted in name:
        return 2, name.index(wanted)
    if wanted in low:
        return 3, low.index(wanted)
    at, gaps = -1, 0
    for letter in wanted:
        found = low.find(letter, at + 1)
        if found < 0:
            return None
        gaps += found - at - 1 if at >= 0 else 0
        at = found
    return 4, gaps


def _entries(folder: Path, base: str, patterns: list[Pattern]) -> list[str]:
    found: list[str] = []
    try:
        with os.scandir(folder / base) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                path = base + entry.name
                if entry.name in LEFT_OUT or not (is_folder or entry.is_file()):
                    continue
                # A name that cannot be typed again is no use in a completion.
                if not entry.name.isprintable() or is_ignored(path, patterns, is_folder=is_folder):
                    continue
                found.append(f"{path}/" if is_folder else path)
                if len(found) >= MAX_FILES:
                    break
    except OSError:
        return []
    # What begins with a dot goes last: it is wanted seldom.
    return sorted(found, key=lambda path: (path[len(base) :].startswith("."), path))
