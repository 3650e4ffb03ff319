"""`clawctl undo`: take back what tools changed in files, or list what can be taken back."""

import json

import click

from clawctl.app import App, json_option, pass_app
from clawctl.outcome import run_and_show
from clawctl.render import emit_json
from clawctl.views import show_changes
from clawd.paths import expanded
from clawd.wire.methods import ListChanges, RunTool

MAX_STEPS = 100
LIST_LIMIT = 50


@click.command()
@click.argument("steps", type=click.IntRange(1, MAX_STEPS), default=1)
@click.option("--list", "only_list", is_flag=True, help="List what can be taken back.")
@click.option("--redo", is_flag=True, help="Bring back what the last undo took away.")
@click.option("--force", is_flag=True, help="Also where a file was changed since.")
@click.option("--conversation", default="", metavar="ID", help="Only what this one changed.")
@click.option("-C", "directory", metavar="DIR", help="Of the workspace in this folder.")
@click.option("--no-input", is_flag=True, help="Ask nothing; what needs an approval is denied.")
@json_option
@pass_app
def command(app: App, /, directory: str | None, conversation: str, **flags: bool | int) -> int:
    """Take back what the last STEPS calls changed in files (1 by default), newest first.

    A file that somebody changed since is left alone. What undo replaces is kept: --redo brings it
    back. It is a call like any other: risk medium, with a receipt.
    """
    workspace = str(expanded(directory).resolve()) if directory else ""
    if flags["only_list"]:
        request = ListChanges(
            workspace=workspace,
            conversation_id=conversation,
            redo=bool(flags["redo"]),
            limit=LIST_LIMIT,
        )
        with app.client() as client:
            found = client.call(request)
        if flags["as_json"]:
            emit_json(found.items)
        else:
            show_changes(found)
        return 0
    arguments = {"steps": flags["steps"]} | {
        name: True for name in ("redo", "force") if flags[name]
    }
    call = RunTool(
        name="undo",
        arguments=json.dumps(arguments),
        workspace=workspace,
        conversation_id=conversation,
    )
    may_ask = not flags["no_input"]
    return run_and_show(app, call, may_ask=may_ask, as_json=bool(flags["as_json"]))
