"""`clawctl status`: what the daemon is and does."""

import click

from clawctl.app import App, json_command
from clawd.paths import layout
from clawd.wire.daemon import Status, StatusReport


@click.command()
@json_command(StatusReport)
def command(app: App, *, as_json: bool) -> None:
    """Say what the daemon is and does, what is wrong with it, and what to do about that.

    One that was ended by `stop` is not started for it.
    """
    is_stopped = layout().stopped.exists()
    with app.running_client() if is_stopped else app.client() as client:
        report = client.call(Status())
    if as_json:
        from clawctl.render import emit_json

        emit_json(report)
        return
    from clawctl.status_view import show_status

    show_status(report)
