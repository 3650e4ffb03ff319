"""The methods of the control socket about MCP servers; see `wire.methods`.

A tool of a server is called with `RunTool`, by what it is called here.
"""

from typing import ClassVar

from clawd.wire.mcp_reports import (
    McpDiff,
    McpServerLine,
    McpServerList,
    McpToolDetail,
    McpToolList,
)
from clawd.wire.method import Method


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
