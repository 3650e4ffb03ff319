"""`clawctl provider`: the sources of answers."""

import click
import msgspec

from clawctl.app import App, Name, json_command
from clawctl.progress import ProgressLine, call
from clawctl.render import emit, table
from clawd.wire.models import CheckProvider, ListProviders, ProviderLine

CHECK_LIMIT_S = 600.0


class ProviderTested(msgspec.Struct, frozen=True, kw_only=True):
    """The provider that was asked, null for the default one, and what it said."""

    ok: bool
    provider: str | None
    message: str


@click.group()
def command() -> None:
    """List and test the sources of answers."""


@command.command("list")
@json_command(list[ProviderLine])
def list_(app: App, *, as_json: bool) -> None:
    """List the configured providers."""
    providers = app.call(ListProviders())
    emit(
        providers.items,
        table(
            ("", "NAME", "KIND", "MODEL"),
            [("*" if p.is_default else "", p.name, p.kind, p.model) for p in providers.items],
        ),
        as_json=as_json,
    )


@command.command()
@click.argument("name", type=Name("providers"), default="")
@json_command(ProviderTested)
def test(app: App, name: str, *, as_json: bool) -> None:
    """Reach a provider with the smallest request; without NAME the default one."""
    with app.client() as client:
        bar = ProgressLine(f"asking {name or 'the default provider'}", quiet=app.is_quiet)
        done = call(client, CheckProvider(name=name), bar, limit_s=CHECK_LIMIT_S)
    tested = ProviderTested(ok=True, provider=name or None, message=done.message)
    emit(tested, done.message, as_json=as_json)
