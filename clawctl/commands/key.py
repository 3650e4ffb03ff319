"""`clawctl key`: the keys that programs show to the HTTP gateway."""

import click

from clawctl.app import App, Name, json_command
from clawctl.render import emit, emit_json, table
from clawd.wire.daemon import CreateKey, KeyLine, ListKeys, NewKey, RevokeKey, Status
from clawd.wire.method import Done
from clawd.wire.safe_text import visible_line


@click.group()
def command() -> None:
    """Make, list and revoke keys for the HTTP gateway."""


@command.command()
@click.option("--name", default="", metavar="NAME", help="What it is for, to know it again.")
@click.option(
    "--scope",
    "scopes",
    default="models",
    show_default=True,
    metavar="LIST",
    help="What it allows: models (the model alone, nothing kept), chat, tools, admin.",
)
@click.option("--expires-days", "days", type=click.IntRange(1), help="How long it works.")
@json_command(NewKey)
def create(app: App, name: str, scopes: str, days: int | None, *, as_json: bool) -> None:
    """Make a key that acts as you. It is shown this once, and kept nowhere."""
    wanted = tuple(word.strip() for word in scopes.split(",") if word.strip())
    with app.client() as client:
        made = client.call(CreateKey(name=name, scopes=wanted, days=days or 0))
        status = client.call(Status())
    if as_json:
        emit_json(made)
        return
    print(visible_line(made.key))
    line = made.line
    until = f"until {line.expires_at}" if line.expires_at else "until it is revoked"
    click.echo(
        visible_line(
            f"Keep it: it is not shown again. It allows {', '.join(line.scopes)} {until}; "
            f"clawctl key revoke {line.id} ends it."
        ),
        err=True,
    )
    gateway = (
        f"The gateway is at {status.gateway}."
        if status.gateway
        else "The gateway is off, so the key opens nothing yet: set enabled = true in "
        f"[channels.http] of {status.config} and restart clawd."
    )
    click.echo(visible_line(gateway), err=True)


@command.command("list")
@json_command(list[KeyLine])
def list_(app: App, *, as_json: bool) -> None:
    """List keys: what they are for, not the keys themselves."""
    found = app.call(ListKeys()).items
    emit(
        found,
        table(
            ("ID", "NAME", "OWNER", "SCOPES", "CREATED", "USED", "EXPIRES"),
            [
                (
                    line.id,
                    line.name,
                    line.owner,
                    ",".join(line.scopes),
                    line.created_at,
                    line.used_at or "never",
                    f"{line.expires_at or 'never'}{' (over)' if line.is_expired else ''}",
                )
                for line in found
            ],
            nothing="No keys.",
        ),
        as_json=as_json,
    )


@command.command()
@click.argument("key", type=Name("keys"), metavar="ID")
@json_command(Done)
def revoke(app: App, key: str, *, as_json: bool) -> None:
    """Take a key out of force, by its id or its name."""
    done = app.call(RevokeKey(key=key))
    emit(done, done.message, as_json=as_json)
