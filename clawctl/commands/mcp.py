"""`clawctl mcp`: be an MCP server for other programs."""

import click

from clawctl import mcp_stdio
from clawctl.app import App, pass_app


@click.group()
def command() -> None:
    """Serve clawd's tools to MCP clients."""


@command.command()
@pass_app
def serve(app: App) -> int:
    """Serve clawd's tools to the MCP client on standard input and output."""
    return mcp_stdio.serve(app)
