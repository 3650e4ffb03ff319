"""`clawctl tool`: list the tools, run one through the gate."""

import sys

import click
import msgspec

from clawctl.app import App, json_option, pass_app
from clawctl.outcome import run_and_show
from clawctl.render import emit_json, show_table
from clawd.paths import expanded
from clawd.wire.methods import ListTools, RunTool

SHOWN_CHARACTERS = 200


@click.group()
def command() -> None:
    """List the tools and run one."""


@command.command("list")
@json_option
@pass_app
def list_(app: App, *, as_json: bool) -> None:
    """List the tools."""
    with app.client() as client:
        tools = client.call(ListTools())
    if as_json:
        emit_json(tools.items)
        return
    show_table(
        ("NAME", "SOURCE", "WHAT IT DOES"), [(t.name, t.source, t.short) for t in tools.items]
    )


@command.command()
@click.argument("name")
@click.option("--json", "arguments", metavar="ARGS", default="{}", help="Arguments; - is stdin.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-C", "directory", metavar="DIR", help="Work in this folder.")
@click.option("--no-input", is_flag=True, help="Ask nothing; what needs an approval is denied.")
@pass_app
def run(
    app: App, name: str, arguments: str, output: str, directory: str | None, *, no_input: bool
) -> int:
    """Run one tool, as the model would: risk, policy, approval, sandbox, receipt.

    Exit codes: 0 it ran, 1 it failed, 3 it was denied, 7 the emergency stop is set.
    """
    if arguments == "-":
        arguments = sys.stdin.read()
    app.wants_json = output == "json"
    _check_arguments(arguments)
    workspace = str(expanded(directory).resolve()) if directory else ""
    request = RunTool(name=name, arguments=arguments, workspace=workspace)
    return run_and_show(app, request, may_ask=not no_input, as_json=output == "json")


def _check_arguments(arguments: str) -> None:
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise click.UsageError(f"--json {_shortened(arguments)} is not JSON: {error}") from error
    except RecursionError as error:
        raise click.UsageError(f"--json {_shortened(arguments)} is nested too deep") from error
    if not isinstance(value, dict):
        raise click.UsageError('--json must be an object, as \'{"path": "."}\'')


def _shortened(arguments: str) -> str:
    return repr(
        arguments if len(arguments) <= SHOWN_CHARACTERS else f"{arguments[:SHOWN_CHARACTERS]}…"
    )
