"""`clawctl config`: check, show and edit the configuration. Needs no daemon."""

import click

from clawctl.app import Exit, json_option
from clawctl.config_edit import edit


@click.group()
def command() -> None:
    """Check, show and edit the configuration. Needs no daemon."""


@command.command()
@click.option(
    "--file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Another config file than the usual one.",
)
@json_option
def validate(file: str | None, *, as_json: bool) -> int:
    """Check the config file and name every problem in it."""
    return _clawd("--check-config", file, as_json=as_json)


@command.command()
@click.option(
    "--file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Another config file than the usual one.",
)
@json_option
def show(file: str | None, *, as_json: bool) -> int:
    """Show every value in force and where it comes from; secrets are hidden."""
    return _clawd("--show-config", file, as_json=as_json)


@command.command()
@json_option
def schema(*, as_json: bool) -> int:
    """Print the JSON Schema of the config file, for editors."""
    return _clawd("--config-schema", None, as_json=as_json)


command.add_command(edit)


def _clawd(action: str, file: str | None, *, as_json: bool) -> int:
    from clawctl.daemon import tell_of_clawd

    arguments = [action]
    if file is not None:
        arguments += ["--config", file]
    if as_json:
        arguments.append("--json")
    return Exit.DONE if tell_of_clawd(arguments) else Exit.FAILED
