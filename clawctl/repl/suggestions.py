"""What can be completed in a message: commands and their arguments, paths, `@file`.

Live values that stand behind commands are asked of the daemon when wanted, and kept a while.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from clawctl.agent_options import PRESETS
from clawctl.live_names import names_in, request_of
from clawctl.repl.bar_state import Pulse, SessionStanding
from clawctl.repl.host import Host
from clawctl.repl.slash import COMMANDS
from clawctl.repl.theme import THEMES
from clawd.wire.daemon import ShowConfig
from clawd.wire.gitignore import Pattern, is_ignored, patterns_of
from clawd.wire.models import ListProviders
from clawd.wire.safe_text import has_invisible
from clawd.wire.skills import ListSkills

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


MENTION = re.compile(r'(?<![\w@/.])@("?)([^\s"]*)$')
PATHS_SHOWN = 200
# A menu that is empty when it is wanted stays so until the next key.
FIRST_WALK_S = 5.0


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can stand behind a command, and what it is."""

    text: str
    about: str = ""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What may be offered.

    Attributes:
        commands: names of clawd's and what they do.
        values: returns what may follow the words of a command; the last one is being typed. For the
            first one it returns the commands that are not clawd's.
        files: returns the files of the workspace.
    """

    commands: Sequence[Value]
    values: Callable[[Sequence[str]], Iterable[Value]]
    files: Callable[[], FileIndex]


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """One way to go on.

    Attributes:
        text: what takes the place of what was typed.
        typed: how many characters before the cursor that is.
        shown: what a menu shows, the text where it is empty.
    """

    text: str
    typed: int
    shown: str = ""
    about: str = ""


def offers(before: str, known: Known) -> Iterable[Suggestion]:
    """Return what may stand at the cursor; it may ask the daemon.

    Args:
        before: the message up to the cursor.
        known: what there is.
    """
    mention = MENTION.search(before)
    if mention is not None:
        return _files(mention.group(2), known.files())
    if re.match(r"/[a-z0-9_-]*$", before):
        return _beginning((*known.commands, *known.values([before])), before)
    if re.match(r"/[a-z0-9_-]+ ", before) and "\n" not in before:
        words = before.split(" ")
        return _beginning(known.values(words), words[-1])
    word = re.search(r"\S*$", before)
    if word is not None and "/" in word.group():
        return _paths(word.group(), known.files().folder)
    return []


def _files(letters: str, index: FileIndex) -> Iterable[Suggestion]:
    if not index.paths():
        index.wait(FIRST_WALK_S)
    for path in index.find(letters):
        if has_invisible(path) or '"' in path:
            continue
        text = f'@"{path}"' if " " in path else f"@{path}"
        yield Suggestion(text=text, typed=1 + len(letters), shown=path)


def _beginning(values: Iterable[Value], typed: str) -> Iterable[Suggestion]:
    for value in values:
        if value.text.startswith(typed) and not has_invisible(value.text):
            yield Suggestion(text=value.text, typed=len(typed), about=value.about)


def _paths(word: str, folder: Path) -> Iterable[Suggestion]:
    head, _, name = word.rpartition("/")
    try:
        base = folder / Path(f"{head}/").expanduser()
        entries = sorted(base.iterdir())
    except (OSError, RuntimeError, ValueError):
        return
    fitting = [
        entry
        for entry in entries
        if entry.name.startswith(name) and (name or not entry.name.startswith("."))
    ]
    for entry in fitting[:PATHS_SHOWN]:
        if not has_invisible(entry.name):
            end = "/" if entry.is_dir() else ""
            yield Suggestion(text=f"{entry.name}{end}", typed=len(name))


def known_to(host: Host, standing: SessionStanding, pulse: Pulse) -> Known:
    """Return what can be completed in a session."""
    indexes: dict[Path, FileIndex] = {}

    def files() -> FileIndex:
        folder = standing.folder()
        if folder not in indexes:
            indexes.clear()
            indexes[folder] = FileIndex(folder)
        return indexes[folder]

    return Known(
        commands=[Value(text=name, about=slash.help) for name, slash in COMMANDS.items()],
        values=Values(pulse, host).after,
        files=files,
    )


class Values:
    """What may follow the words of a command. It is called beside the editor, so it may wait."""

    def __init__(self, pulse: Pulse, host: Host) -> None:
        self._pulse = pulse
        self._host = host
        self._kept: dict[str, tuple[float, list[Value]]] = {}

    def after(self, words: Sequence[str]) -> Iterable[Value]:
        """Return what may be the last one of the words, of which the first is a command.

        With one word these are the commands of the person's own and of the workspace.
        """
        if len(words) == 1:
            return self._of("own")
        command = COMMANDS.get(words[0])
        place = len(words) - 2
        if command is None or place >= len(command.arguments):
            return []
        kind = command.arguments[place]
        if kind.startswith("="):
            return [Value(text=word) for word in kind[1:].split("|")]
        return self._of(kind)

    def _of(self, kind: str) -> list[Value]:
        at, values = self._kept.get(kind, (-FRESH_S, []))
        if time.monotonic() - at >= FRESH_S:
            values = [Value(text=name, about=about) for name, about in self._named(kind) if name]
            self._kept[kind] = time.monotonic(), values
        return values

    def _named(self, kind: str) -> Iterable[tuple[str, str]]:
        match kind:
            case "own":
                request = ListSkills(workspace=self._host.workspace, kind="command")
                found = self._pulse.ask(request)
                own = found.items if found is not None else ()
                ready = [
                    (f"/{each.name}", each.description) for each in own if each.state == "ready"
                ]
                return [each for each in ready if each[0] not in COMMANDS]
            case "commands":
                return [(name.removeprefix("/"), slash.help) for name, slash in COMMANDS.items()]
            case "presets" | "themes":
                return [(name, "") for name in (PRESETS if kind == "presets" else THEMES)]
            case "agents":
                config = self._pulse.ask(ShowConfig())
                return [(name, "") for name in (config.values.get("agents", {}) if config else ())]
            case "models":
                providers = self._pulse.ask(ListProviders())
                of_providers = {
                    each.model: f"of provider {each.name}"
                    for each in (providers.items if providers is not None else ())
                }
                return (of_providers | dict(self._live(kind))).items()
            case _:
                return self._live(kind)

    def _live(self, kind: str) -> Iterable[tuple[str, str]]:
        request = request_of(kind, {"conversation": self._host.conversation_id})
        found = self._pulse.ask(request) if request is not None else None
        return names_in(kind, found.items) if found is not None else ()
