"""`clawctl tool`: list the tools, run one through the gate."""

import sys

import click
import msgspec

from clawctl.app import App, Exit, json_option, pass_app
from clawctl.approve import Terminal
from clawctl.render import Palette, emit_json, note, show_table
from clawctl.turn import TurnView, ViewOptions, follow
from clawd.paths import expanded
from clawd.wire.methods import ListTools, RunTool
from clawd.wire.reports import ToolOutcome
from clawd.wire.safe_text import terminal_safe

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
    app.wants_json = output == "json"
    if arguments == "-":
        arguments = sys.stdin.read()
    _check_arguments(arguments)
    workspace = str(expanded(directory).resolve()) if directory else ""
    terminal = None if no_input else Terminal.open()
    view = TurnView(
        sys.stdout, sys.stderr, ViewOptions(text=False, rows=output == "text", calls=False)
    )
    try:
        with app.client() as client:
            request = RunTool(
                name=name,
                arguments=arguments,
                workspace=workspace,
                interactive=terminal is not None,
            )
            outcome = follow(client.stream(request), view, terminal)
    finally:
        view.finish(None)
        if terminal is not None:
            terminal.close()
    if output == "json":
        emit_json(outcome)
    else:
        _show_outcome(outcome)
    return _exit_code(outcome)


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


def _show_outcome(outcome: ToolOutcome) -> None:
    text = terminal_safe(outcome.output)
    if text:
        # What a tool gave is data; why it gave nothing is a remark.
        target = sys.stdout if outcome.status == "allowed" else sys.stderr
        print(text, end="" if text.endswith("\n") else "\n", file=target)
    palette = Palette.of(sys.stderr)
    code = "" if outcome.exit_code is None else f", exit code {outcome.exit_code}"
    about = f"{outcome.status}, risk {outcome.risk}, {outcome.duration_ms} ms{code}"
    note(f"● {about}  {outcome.receipt_id}")
    if outcome.unanswered:
        print(palette.yellow("● nobody could be asked for an approval"), file=sys.stderr)


def _exit_code(outcome: ToolOutcome) -> int:
    if outcome.kind == "stopped":
        return Exit.STOPPED
    if outcome.status == "denied":
        return Exit.DENIED
    return Exit.DONE if outcome.status == "allowed" else Exit.FAILED
