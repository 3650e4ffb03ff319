"""`clawctl status`: what the daemon is and does."""

import click

from clawctl.app import App, json_option, pass_app
from clawctl.render import emit_json
from clawctl.views import show_status
from clawd.wire.mcp_methods import ListMcpServers
from clawd.wire.methods import Status


@click.command()
@json_option
@pass_app
def command(app: App, *, as_json: bool) -> None:
    """Say what the daemon is and does."""
    with app.client() as client:
        report = client.call(Status())
        if as_json:
            emit_json(report)
            return
        servers = client.call(ListMcpServers()).items
    show_status(report, servers)
