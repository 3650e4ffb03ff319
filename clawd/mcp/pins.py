"""What was first seen of each remote tool, so that a changed one is noticed.

A server may show harmless tools, be approved, and change them later, or add others. The first sight
of a tool is kept: the hash of its name, description, schema and hints, and the text where there is
room. The file is private and replaced as a whole:

    {"version": 1, "servers": {"files": {
        "mark": "9c1e…", "tools": {"read": "77ab…"}, "new": ["later"], "texts": {"read": "{…}"}}}}

So many names are kept of a server and no more. A tool beyond them is refused: one that could not be
compared with its first sight tomorrow must not be called today.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from clawd.errors import StorageError
from clawd.kernel.files import replace_file
from clawd.receipts.durable import read_private

MAX_TOOLS = 2_000
MAX_TEXT = 1 << 20
"""So many characters of what tools were are kept of a server, to be compared by people."""

OFFER_LENGTH = 32
_MAX_BYTES = 64 << 20
_VERSION = 1


class ServerPins(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one server.

    Attributes:
        mark: of its settings; another one is another server, of which nothing is known.
        tools: the hash of each tool by its own name.
        new: those that came after the server was first seen, and that nobody has accepted yet.
        texts: what the server said of each when its hash was taken, where there was room.
    """

    mark: str
    tools: dict[str, str] = {}
    new: tuple[str, ...] = ()
    texts: dict[str, str] = {}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """How the tools of a server compare with what was seen of it, by their own names.

    Attributes:
        changed: they are not what they were.
        new: they came after the server was first seen, and nobody has accepted them yet.
        refused: there were too many names before; what they were cannot be kept.
    """

    changed: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()


class _PinFile(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    servers: dict[str, ServerPins] = {}


class PinFile:
    """What was seen so far; `load` and `save` block, nothing else does.

    Args:
        path: the file.

    Attributes:
        problem: why nothing that was seen is known; empty when all is well. Then every tool
            counts as changed.
        is_unsaved: there is news that the file does not have.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._servers: dict[str, ServerPins] = {}
        self.problem = ""
        self.is_unsaved = False

    def load(self) -> None:
        """Read the file; one that cannot be read is a `problem`."""
        try:
            self._servers, self.problem = _read(self._path), ""
        except StorageError as error:
            self._servers, self.problem = {}, error.message

    def save(self) -> None:
        """Write what was seen beside the file and rename; nothing is written over a `problem`.

        Raises:
            StorageError: the disk refused; the old file is still there.
        """
        if self.problem:
            return
        self.is_unsaved = False
        held = _PinFile(version=_VERSION, servers=dict(sorted(self._servers.items())))
        try:
            replace_file(self._path, msgspec.json.encode(held))
        except OSError as error:
            self.is_unsaved = True
            raise StorageError(f"{self._path} cannot be written: {error}") from error

    def judged(self, alias: str, mark: str, seen: Mapping[str, str]) -> Judged:
        """Return how the tools of a server compare with what was seen of it.

        Args:
            alias: of the server.
            mark: of its settings.
            seen: what it says of each of its tools now, by their own names.
        """
        if self.problem:
            return Judged(changed=frozenset(seen))
        known = self._known(alias, mark)
        if known is None:
            names = list(seen)
            return Judged(refused=frozenset(names[MAX_TOOLS:]))
        pinned = known.tools
        news = [name for name in seen if name not in pinned]
        refused = frozenset(news[max(0, MAX_TOOLS - len(pinned)) :])
        return Judged(
            changed=frozenset(
                name for name, text in seen.items() if pinned.get(name) not in {None, digest(text)}
            ),
            new=(frozenset(known.new) & seen.keys()) | (frozenset(news) - refused),
            refused=refused,
        )

    def note(self, alias: str, mark: str, seen: Mapping[str, str]) -> None:
        """Keep what is seen for the first time; what changed stays as it was.

        A server is first seen when it first has tools. Those that come later are new.
        """
        known = self._known(alias, mark)
        if not seen:
            return
        pinned = known.tools if known is not None else {}
        news = [name for name in seen if name not in pinned][: MAX_TOOLS - len(pinned)]
        if not news:
            return
        new = (*known.new, *news) if known is not None else ()
        self._keep(alias, mark, pinned | {name: digest(seen[name]) for name in news}, new, seen)

    def accept(self, alias: str, mark: str, seen: Mapping[str, str]) -> None:
        """Take the tools of a server as they are now; nothing of them is changed or new then."""
        known = self._known(alias, mark)
        now = {name: digest(text) for name, text in list(seen.items())[:MAX_TOOLS]}
        before = known.tools if known is not None else {}
        tools = before | now if len(before | now) <= MAX_TOOLS else now
        new = tuple(name for name in (known.new if known is not None else ()) if name not in seen)
        self._keep(alias, mark, tools, tuple(name for name in new if name in tools), seen)

    def text(self, alias: str, mark: str, name: str) -> str | None:
        """Return what was pinned of a tool; None where nothing was, or it was too long to keep."""
        known = self._known(alias, mark)
        return known.texts.get(name) if known is not None else None

    def _keep(
        self,
        alias: str,
        mark: str,
        tools: dict[str, str],
        new: tuple[str, ...],
        seen: Mapping[str, str],
    ) -> None:
        known = self._known(alias, mark)
        before = known.texts if known is not None else {}
        texts, size = dict[str, str](), 0
        for name, pin in tools.items():
            text = next(
                (t for t in (before.get(name), seen.get(name)) if t and digest(t) == pin), ""
            )
            if text and size + len(text) <= MAX_TEXT:
                texts[name] = text
                size += len(text)
        self._servers[alias] = ServerPins(mark=mark, tools=tools, new=new, texts=texts)
        self.is_unsaved = True

    def _known(self, alias: str, mark: str) -> ServerPins | None:
        found = self._servers.get(alias)
        return found if found is not None and found.mark == mark else None


def digest(text: str) -> str:
    """Return the hash of what a server says of a tool."""
    return hashlib.sha256(text.encode()).hexdigest()


def offer_of(seen: Mapping[str, str]) -> str:
    """Return the hash of all that a server offers: who accepts it names it."""
    held = msgspec.json.encode(sorted((name, digest(text)) for name, text in seen.items()))
    return hashlib.sha256(held).hexdigest()[:OFFER_LENGTH]


def _read(path: Path) -> dict[str, ServerPins]:
    data = read_private(path, _MAX_BYTES)
    if data is None:
        return {}
    try:
        found = msgspec.json.decode(data, type=_PinFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} does not say what was seen of MCP tools: {error}") from error
    if found.version != _VERSION:
        raise StorageError(f"{path} is of version {found.version}, expected {_VERSION}")
    return found.servers
