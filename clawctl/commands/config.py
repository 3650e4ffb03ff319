"""`clawctl config`: check, show and edit the configuration. Needs no daemon."""

import os
from typing import Any

import click
import msgspec

from clawctl.app import App, Exit, config_file_option, json_command, json_option
from clawctl.config_edit import edit, set_, unset


class Checked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A config that is valid, or that is not, with a line for each problem."""

    ok: bool
    path: str = ""
    code: str = ""
    message: str = ""
    hint: str = ""
    problems: list[str] = []


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Every value in force, by section, and for each key that was set, dotted, who set it."""

    path: str
    values: dict[str, Any]
    sources: dict[str, str]


@click.group()
def command() -> None:
    """Check, show and edit the configuration. Needs no daemon."""


@command.command()
@config_file_option
@json_option(Checked)
def validate(file: str | None, *, as_json: bool) -> int:
    """Check the config file and name every problem in it."""
    return _clawd("--check-config", file, as_json=as_json)


@command.command()
@config_file_option
@json_command(Shown)
def show(app: App, file: str | None, *, as_json: bool) -> int:
    """Show every value that a daemon started here would have, and where it comes from.

    Secrets are hidden. Where a daemon runs without what the environment here asks for, stderr says
    what it has instead.
    """
    code = _clawd("--show-config", file, as_json=as_json)
    if file is None:
        _note_overrides(app)
    return code


@command.command()
@json_option(dict[str, Any])
def schema(*, as_json: bool) -> int:
    """Print the JSON Schema of the config file, for editors."""
    return _clawd("--config-schema", None, as_json=as_json)


for each in (edit, set_, unset):
    command.add_command(each)


def _note_overrides(app: App) -> None:
    """Say what a running daemon does not have of this environment."""
    from clawctl.daemon_finder import override_text, overrides
    from clawctl.render import note
    from clawd.errors import ClawError

    try:
        with app.running_client() as client:
            for each in overrides(client, os.environ):
                note(
                    f"● the running daemon (pid {client.welcome.pid}) was started without it: "
                    f"{override_text(each)}"
                )
    except ClawError:
        # Nobody there, or nobody who answers: then what was printed is all there is to say.
        return


def _clawd(action: str, file: str | None, *, as_json: bool) -> int:
    from clawctl.daemon import relay_clawd

    arguments = [action]
    if file is not None:
        arguments += ["--config", file]
    if as_json:
        arguments.append("--json")
    return Exit.DONE if relay_clawd(arguments) else Exit.FAILED
