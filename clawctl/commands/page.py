"""`clawctl page`: an address that opens the gateway's page, logged in once."""

import click

from clawctl.app import App, json_command
from clawctl.approve import open_page
from clawctl.render import emit_json
from clawd.wire.daemon import LinkPage, PageLink
from clawd.wire.safe_text import visible_line


@click.command()
@click.option(
    "--at",
    default="",
    metavar="HOST",
    help="A name or address by which the browser reaches the gateway; scheme and port if other.",
)
@click.option("--login", is_flag=True, help="Log in, also where the page asks for no key yet.")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser of this desktop.")
@json_command(PageLink)
def command(app: App, at: str, *, login: bool, opens: bool, as_json: bool) -> None:
    """Print a link that opens the page; it logs a browser in once, where a key is needed."""
    link = app.call(LinkPage(at=at, always=login))
    problem = open_page(link.url) if opens else ""
    if problem:
        click.echo(f"It is not opened: {problem}.", err=True)
    if as_json:
        emit_json(link)
        return
    if problem or not opens:
        print(visible_line(link.url))
    if link.expires_in_s:
        click.echo(
            f"It works once, for {link.expires_in_s:.0f} seconds, and lets that browser in as you "
            "for 30 days: clawctl key list names its key, clawctl key revoke ends it.",
            err=True,
        )
