"""`clawctl top`: what the daemon does just now, live."""

import sys

import click

from clawctl.app import App, json_command
from clawctl.render import emit_json


@click.command()
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=click.FloatRange(0.2, 60),
    default=1.0,
    show_default=True,
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Print what is now, and end.")
@json_command("clawctl.top:Snapshot")
def command(app: App, interval_s: float, *, once: bool, as_json: bool) -> None:
    """Show turns, queue, tokens a second, cache, workers and MCP servers, live.

    In a pipe, or with --once, it prints what is now and ends.
    """
    from clawctl.top import look

    if not (once or as_json) and sys.stdin.isatty() and sys.stdout.isatty():
        from clawctl.top_view import LiveTop

        LiveTop(app, interval_s).run()
        return
    with app.client() as client:
        now = look(client)
    if as_json:
        emit_json(now)
        return
    from rich.console import Console

    from clawctl.top_view import print_once

    # Plain text: nothing here needs colour, and it goes through the screen as all text does.
    print_once(Console(file=sys.stdout, color_system=None, highlight=False, markup=False), now)
