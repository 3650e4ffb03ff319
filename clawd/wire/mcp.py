"""Methods about MCP servers, their tools and clients, and what they report; see `wire.methods`."""

from typing import Any, ClassVar, Literal

import msgspec

from clawd.wire.method import Done, Method


class McpServerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One server.

    `link` off: not wanted; waiting: it failed and is tried again. `problem` is what failed last.
    `tokens` is what its tools take of every request, estimated. `since` is when `link` became what
    it is (UTC, ISO 8601), empty for unknown. `changed` and `waiting` are tools by their own names:
    those that are not what they were, and those that came later and only a pattern approves.
    `loose` are those whose schema no grammar holds. `address` is the URL without what may be secret
    in it, or the program; for admins. So is `reach_problem`: the hosts that its program was
    refused, or why it has no way out.
    """

    alias: str
    link: Literal["off", "connecting", "ready", "waiting"]
    transport: Literal["stdio", "http"]
    address: str = ""
    problem: str = ""
    reach_problem: str = ""
    tools: int = 0
    left_out: int = 0
    changed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
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
    that names it and is in force. `is_deferred`: requests carry it without its schema; `is_hidden`:
    they do not carry it until it is looked at.
    `is_changed`: the server changed it since it was first seen. `is_new`: it came after the server
    was first seen, and nobody accepted it. `repaired` is what was wrong. `loose` is why a local
    model's arguments are not held to its schema while they are written; they are checked after.
    """

    name: str
    alias: str
    tool: str
    short: str
    risk: Literal["low", "medium", "high"]
    approval: str = ""
    is_deferred: bool = False
    is_hidden: bool = False
    is_changed: bool = False
    is_new: bool = False
    repaired: str = ""
    loose: str = ""


class McpLeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that a server has and that cannot be offered, and why."""

    alias: str
    tool: str
    reason: str


class McpToolList(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that are offered, by server, and those that are not."""

    items: tuple[McpToolLine, ...]
    left_out: tuple[McpLeftOut, ...] = ()


class McpDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server that is not what was first seen, or was not there then.

    `was` and `now` are all that the server said of it, as JSON; `was` is empty where that was not
    kept. `refused`: the server has shown so many tools that this one cannot be compared later.
    """

    tool: str
    kind: Literal["changed", "new", "refused"]
    was: str = ""
    now: str


class McpDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What of a server's tools is not what was first seen; `offer` is the hash to accept."""

    alias: str
    offer: str
    items: tuple[McpDifference, ...] = ()


class McpToolDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One tool in full; `hints` are the server's own words on its effects, where it has any."""

    line: McpToolLine
    description: str
    parameters: dict[str, Any]
    example: dict[str, Any]
    other_names: tuple[str, ...] = ()
    hints: dict[str, bool] = {}


# The methods of the control socket about MCP servers; see `wire.methods`.
#
# A tool of a server is called with `RunTool`, by what it is called here.


class ListMcpServers(Method[McpServerList], frozen=True, kw_only=True):
    """List the MCP servers and how they are."""


class ListMcpTools(Method[McpToolList], frozen=True, kw_only=True):
    """List the tools of all MCP servers, or of the one named."""

    alias: str = ""


class ShowMcpTool(Method[McpToolDetail], frozen=True, kw_only=True):
    """Show one tool, by its own name or by what it is called here."""

    alias: str
    tool: str


class ConnectMcp(Method[McpServerLine], frozen=True, kw_only=True):
    """Connect a server now (again) and wait for the outcome.

    With `accept` its tools are taken as they are then, also those that are changed or new; `offer`
    is the hash of what was looked at, and nothing is taken where the server offers something else.
    With `url` it is a server that the config does not have, until the daemon ends; `token` is sent
    to it as a bearer token.
    """

    admin: ClassVar[bool] = True
    alias: str
    accept: bool = False
    offer: str = ""
    url: str = ""
    token: str = ""


class DiffMcp(Method[McpDiff], frozen=True, kw_only=True):
    """Show how the tools of a server differ from what was first seen of them."""

    alias: str


class AcceptMcp(Method[McpServerLine], frozen=True, kw_only=True):
    """Take the tools of a server as they are, if `offer` is the hash of what it offers now."""

    admin: ClassVar[bool] = True
    alias: str
    offer: str


class DisconnectMcp(Method[McpServerLine], frozen=True, kw_only=True):
    """Disconnect a server until it is connected by hand."""

    admin: ClassVar[bool] = True
    alias: str


LINE = "line"
END = "end"


class ServeMcp(Method[Done], frozen=True, kw_only=True):
    """Serve an MCP client whose messages the caller passes on, until it says that they end.

    An Answer to question `line` is a message of the client, one to `end` says that no more come.
    Every message for the client is an event.
    """

    streams: ClassVar[bool] = True
