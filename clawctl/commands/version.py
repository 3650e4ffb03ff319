"""`clawctl version`: of this client, and of the daemon when one runs."""

import click

from clawctl.app import App, json_option, pass_app
from clawctl.render import emit_json, say
from clawd import __version__
from clawd.errors import ClawError


@click.command()
@json_option
@pass_app
def command(app: App, *, as_json: bool) -> None:
    """Print the version of clawctl, and of the daemon when one runs."""
    daemon = ""
    try:
        with app.running_client() as client:
            daemon = client.welcome.version
    except ClawError:
        # Which daemon answers is a bonus here; every other command says why none does.
        daemon = ""
    if as_json:
        emit_json({"clawctl": __version__, "clawd": daemon or None})
        return
    print(f"clawctl {__version__}")
    say(f"clawd   {daemon or '(not running)'}")
