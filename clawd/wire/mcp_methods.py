"""The methods of the control socket about MCP servers; see `wire.methods`.

A tool of a server is called with `RunTool`, by what it is called here.
"""

from typing import ClassVar

from clawd.wire.mcp_reports import McpServerLine, McpServerList, McpToolDetail, McpToolList
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

    `accept` takes its tools as they are now, also those that it changed since they were first seen.
    """

    admin: ClassVar[bool] = True
    alias: str
    accept: bool = False


class DisconnectMcp(Method[McpServerLine], frozen=True, kw_only=True):
    """Disconnect a server until it is connected by hand."""

    admin: ClassVar[bool] = True
    alias: str
