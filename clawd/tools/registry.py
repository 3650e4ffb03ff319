"""Which tools there are, by name and alias."""

import fnmatch
import re
from collections.abc import Callable, Iterable
from typing import Protocol

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.tools.base import NAME_PATTERN, Tool
from clawd.tools.facades import FACADES
from clawd.tools.offer import short_of as short_of
from clawd.tools.offer import specs as specs


class Elsewhere(Protocol):
    """Where further tools come from, which may be there only later, or not at all."""

    def why_missing(self, name: str) -> str:
        """Return why there is no tool of a name that can only be one of these; "" for others."""
        ...

    async def arrived(self) -> tuple[str, ...]:
        """Wait a while for tools that are on their way; return sentences on what is missing.

        Nothing is waited for twice, and nothing is reported twice.
        """
        ...


class Nowhere:
    """There are no tools but those that are there."""

    def why_missing(self, _name: str) -> str:
        """Return that nothing is known of it."""
        return ""

    async def arrived(self) -> tuple[str, ...]:
        """Return at once."""
        return ()


class Registry:
    """The tools of one daemon.

    Attributes:
        generation: grows when the tools change.
        elsewhere: knows of tools that are not there.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._aliases: dict[str, str] = {}
        self._listeners: dict[object, Callable[[], None]] = {}
        self.generation = 0
        self.elsewhere: Elsewhere = Nowhere()
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Take a tool in.

        Raises:
            InvalidRequestError: its name is no tool name, or is taken.
        """
        for name in (tool.name, *tool.aliases):
            if not re.fullmatch(NAME_PATTERN, name):
                raise InvalidRequestError(f"tool name {name!r} does not match {NAME_PATTERN}")
            if name in self._tools or name in self._aliases or name in FACADES:
                raise InvalidRequestError(f"two tools are called {name!r}")
        self._tools[tool.name] = tool
        self._aliases.update(dict.fromkeys(tool.aliases, tool.name))
        self._changed()

    def replace(self, tools: Iterable[Tool]) -> None:
        """Hold these tools instead of those so far; all or none.

        Raises:
            InvalidRequestError: one of them cannot be taken.
        """
        fresh = Registry(tools)
        self._tools, self._aliases = fresh._tools, fresh._aliases
        self._changed()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Be told when the tools have changed; never raises, never blocks. Returns what ends it."""
        token = object()
        self._listeners[token] = listener

        def end() -> None:
            self._listeners.pop(token, None)

        return end

    def find(self, name: str) -> Tool | None:
        """Return the tool of this name or alias; None when there is none."""
        return self._tools.get(self._aliases.get(name, name))

    def get(self, name: str) -> Tool:
        """Return the tool of this name or alias.

        Raises:
            NotFoundError: there is none; the message names those that are.
        """
        tool = self.find(name.strip())
        if tool is None:
            raise NotFoundError(
                f"there is no tool {name[:64]!r}; the tools are: {', '.join(sorted(self._tools))}"
            )
        return tool

    def all(self) -> list[Tool]:
        """Return every tool, by name."""
        return [self._tools[name] for name in sorted(self._tools)]

    def allowed(self, patterns: Iterable[str]) -> list[Tool]:
        """Return the tools whose name matches one of the patterns (`*`, `file_*`), by name.

        A pattern with `-` in front (`-evaluate`) takes out, wherever it stands; where there are no
        others it takes out of all.
        """
        given = tuple(patterns)
        refused = [pattern.removeprefix("-") for pattern in given if pattern.startswith("-")]
        wanted = [pattern for pattern in given if not pattern.startswith("-")]
        if refused and not wanted:
            wanted = ["*"]
        return [
            tool
            for tool in self.all()
            if _matches(tool.name, wanted) and not _matches(tool.name, refused)
        ]

    def _changed(self) -> None:
        self.generation += 1
        for listener in list(self._listeners.values()):
            listener()


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
