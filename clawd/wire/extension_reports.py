"""Reports about tools that others wrote: what could not be loaded, and plugins."""

from typing import Literal

import msgspec


class ToolProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, or doubtful, about a manifest of external tools or a plugin.

    `line` is 0 where none is meant; `severity` refused means that it was left out.
    """

    file: str
    line: int
    severity: Literal["refused", "warning"]
    reason: str
    tool: str = ""


class PluginToolLine(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of a plugin."""

    name: str
    risk: str
    description: str


class PluginLine(msgspec.Struct, frozen=True, kw_only=True):
    """One installed plugin; `reason` says why it does not run."""

    name: str
    state: Literal["ready", "changed", "unapproved", "broken"]
    version: str = ""
    capabilities: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    digest: str = ""
    approved_at: str = ""
    reason: str = ""


class PluginList(msgspec.Struct, frozen=True, kw_only=True):
    """The installed plugins, by name."""

    items: tuple[PluginLine, ...]


class PluginFileLine(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a plugin."""

    path: str
    size_bytes: int
    is_program: bool = False


class PluginReview(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin is and may do; `digest` is what an approval of it names.

    `reach` says what it may do, `secrets` where it holds what looks like a secret, `replaces` the
    version that is installed, `changes` what differs from what was approved.
    """

    name: str
    version: str
    description: str
    digest: str
    tools: tuple[PluginToolLine, ...]
    files: tuple[PluginFileLine, ...]
    reach: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    replaces: str = ""
    changes: tuple[str, ...] = ()
