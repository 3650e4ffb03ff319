"""What was first seen of each remote tool, so that a changed one is noticed.

A server may show harmless tools, be approved, and change them later. The first sight of a tool is
kept: the hash of its name, description, schema and hints. The file is private and replaced as a
whole:

    {"version": 1, "servers": {"files": {"mark": "9c1e…", "tools": {"read": "77ab…"}}}}
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from clawd.errors import StorageError
from clawd.receipts.durable import read_private, sync_folder, write_private

MAX_TOOLS = 5_000
_MAX_BYTES = 64 << 20
_VERSION = 1


class ServerPins(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one server.

    Attributes:
        mark: of its settings; another one is another server, of which nothing is known.
        tools: the hash of each tool by its own name.
    """

    mark: str
    tools: dict[str, str] = {}


class _PinFile(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    servers: dict[str, ServerPins] = {}


class Pins:
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
        partial = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        held = _PinFile(version=_VERSION, servers=dict(sorted(self._servers.items())))
        try:
            write_private(partial, msgspec.json.encode(held), os.O_EXCL)
            partial.replace(self._path)
            sync_folder(self._path)
        except OSError as error:
            self.is_unsaved = True
            partial.unlink(missing_ok=True)
            raise StorageError(f"{self._path} cannot be written: {error}") from error

    def changed(self, alias: str, mark: str, seen: Mapping[str, str]) -> frozenset[str]:
        """Return the tools that are not what they were, by their own names.

        Args:
            alias: of the server.
            mark: of its settings.
            seen: the hash of each of its tools.
        """
        if self.problem:
            return frozenset(seen)
        known = self._known(alias, mark)
        return frozenset(name for name, digest in seen.items() if known.get(name, digest) != digest)

    def note(self, alias: str, mark: str, seen: Mapping[str, str]) -> None:
        """Keep what is seen for the first time; what changed stays as it was."""
        known = self._known(alias, mark)
        news = {name: digest for name, digest in seen.items() if name not in known}
        before = self._servers.get(alias)
        if not news and before is not None and before.mark == mark:
            return
        kept = dict(list((known | news).items())[:MAX_TOOLS])
        if before is not None and before.mark == mark and kept == before.tools:
            return
        self._servers[alias] = ServerPins(mark=mark, tools=kept)
        self.is_unsaved = True

    def accept(self, alias: str, mark: str, seen: Mapping[str, str]) -> None:
        """Take the tools of a server as they are now."""
        known = self._known(alias, mark) | dict(seen)
        self._servers[alias] = ServerPins(mark=mark, tools=known)
        self.is_unsaved = True

    def _known(self, alias: str, mark: str) -> dict[str, str]:
        found = self._servers.get(alias)
        return dict(found.tools) if found is not None and found.mark == mark else {}


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
