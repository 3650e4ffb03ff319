"""Reports about MCP servers and their tools."""

from typing import Any, Literal

import msgspec


class McpServerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One server.

    `link` off: not wanted; waiting: it failed and is tried again. `problem` is what failed last.
    `tokens` is what its tools take of every request, estimated. `since` is when `link` became what
    it is (UTC, ISO 8601), empty for unknown.
    """

    alias: str
    link: Literal["off", "connecting", "ready", "waiting"]
    transport: Literal["stdio", "http"]
    problem: str = ""
    tools: int = 0
    left_out: int = 0
    changed: tuple[str, ...] = ()
    tokens: int = 0
    is_trusted: bool = False
    server: str = ""
    revision: str = ""
    connects: int = 0
    calls: int = 0
    failures: int = 0
    since: str = ""
    last_call_ms: int = 0


class McpServerList(msgspec.Struct, frozen=True, kw_only=True):
    """The servers in the order of the config, and what their schemas may take of a request."""

    items: tuple[McpServerLine, ...]
    budget_tokens: int = 0


class McpToolLine(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of a server.

    `name` is what it is called here, `tool` its own name; `approval` is the entry of auto_approve
    that names it and is in force. `is_deferred`: requests carry it without its schema.
    `is_changed`: the server changed it since it was first seen. `repaired` is what was wrong.
    """

    name: str
    alias: str
    tool: str
    short: str
    risk: Literal["low", "medium", "high"]
    approval: str = ""
    is_deferred: bool = False
    is_changed: bool = False
    repaired: str = ""


class McpLeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that a server has and that cannot be offered, and why."""

    alias: str
    tool: str
    reason: str


class McpToolList(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that are offered, by server, and those that are not."""

    items: tuple[McpToolLine, ...]
    left_out: tuple[McpLeftOut, ...] = ()


class McpToolDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One tool in full; `hints` are the server's own words on its effects, where it has any."""

    line: McpToolLine
    description: str
    parameters: dict[str, Any]
    example: dict[str, Any]
    other_names: tuple[str, ...] = ()
    hints: dict[str, bool] = {}
