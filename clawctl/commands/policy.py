"""`clawctl policy`: what the gate would answer, to one call or to a table of cases."""

from pathlib import Path

import click

from clawctl.app import App, Exit, json_option, pass_app
from clawctl.render import emit_json, show_table
from clawctl.views import check_arguments, show_explanation
from clawd.errors import InvalidRequestError
from clawd.wire.methods import CheckPolicy, ExplainPolicy


@click.group()
def command() -> None:
    """Ask the policy; nothing is run."""


@command.command()
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="[JSON]")
@click.option("-C", "--directory", default="", metavar="DIR", help="The workspace of the call.")
@json_option
@pass_app
def explain(app: App, tool: str, arguments: str, directory: str, *, as_json: bool) -> None:
    """Say what the policy answers to a call of TOOL with these arguments, and by which rule."""
    check_arguments(arguments, example=f'clawctl policy explain {tool} \'{{"command": "ls"}}\'')
    with app.client() as client:
        found = client.call(
            ExplainPolicy(tool=tool, arguments=arguments, workspace=_absolute(directory))
        )
    if as_json:
        emit_json(found)
    else:
        show_explanation(found)


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-C", "--directory", default="", metavar="DIR", help="The workspace of the calls.")
@json_option
@pass_app
def test(app: App, file: Path, directory: str, *, as_json: bool) -> Exit:
    """Judge the table of cases in FILE (TOML) under the policy in force; exit 1 if one is wrong."""
    try:
        table = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{file} cannot be read: {error}") from error
    with app.client() as client:
        cases = client.call(CheckPolicy(table=table, workspace=_absolute(directory))).items
    wrong = [case for case in cases if case.problem]
    if as_json:
        emit_json(cases)
    else:
        if wrong:
            show_table(
                ("CASE", "TOOL", "RISK", "PROBLEM"),
                [(case.name, case.tool, case.risk, case.problem) for case in wrong],
            )
        print(f"{len(cases) - len(wrong)} of {len(cases)} cases are as they should be.")
    return Exit.FAILED if wrong else Exit.DONE


def _absolute(directory: str) -> str:
    return str(Path(directory).absolute()) if directory else ""
