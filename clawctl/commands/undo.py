"""`clawctl undo`: take back what tools and commands changed, or list what can be taken back."""

import json
import re
from typing import Any

import click

from clawctl.app import App, conversation_option, json_command
from clawctl.render import emit_json
from clawctl.request_follower import run_and_show
from clawctl.views import show_changes
from clawctl.workspace_trust import workspace_here
from clawd.wire.tools import ChangeLine, ListChanges, RunTool, ToolOutcome

MAX_STEPS = 100
LIST_LIMIT = 50


@click.command()
@click.argument("what", metavar="[STEPS|RECEIPT]", default="1")
@click.option("--turn", is_flag=True, help="All calls of the newest turn that changed anything.")
@click.option("--list", "only_list", is_flag=True, help="List what can be taken back.")
@click.option("--preview", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--redo", is_flag=True, help="Bring back what the last undo took away.")
@click.option("--force", is_flag=True, help="Also where a file was changed since.")
@conversation_option(help="Only what this one changed.")
@click.option("-C", "directory", metavar="DIR", help="Of this workspace; else of the one here.")
@click.option("--no-input", is_flag=True, help="Ask nothing; what needs an approval is denied.")
@json_command(ToolOutcome | list[ChangeLine])
def command(app: App, /, what: str, directory: str | None, conversation: str, **flags: bool) -> int:
    """Take back what calls changed in files: the newest, the last STEPS, or the one of RECEIPT.

    Commands count as file tools do. A file that somebody changed since is left alone. What undo
    replaces is kept: --redo brings it back. It is a call like any other: risk medium, with a
    receipt.
    """
    arguments = _chosen(what, is_turn=flags["turn"])
    workspace = workspace_here(app, directory)
    if flags["only_list"]:
        request = ListChanges(
            workspace=workspace, conversation_id=conversation, redo=flags["redo"], limit=LIST_LIMIT
        )
        found = app.call(request)
        if flags["as_json"]:
            emit_json(found.items)
        else:
            show_changes(found)
        return 0
    arguments |= {name: True for name in ("redo", "force", "preview") if flags[name]}
    call = RunTool(
        name="undo",
        arguments=json.dumps(arguments),
        workspace=workspace,
        conversation_id=conversation,
    )
    return run_and_show(app, call, may_ask=not flags["no_input"], as_json=flags["as_json"])


def _chosen(what: str, *, is_turn: bool) -> dict[str, Any]:
    """Return the arguments that say which calls are meant.

    Raises:
        click.BadParameter: it is neither a number of steps nor a receipt.
    """
    if is_turn:
        return {"turn": True}
    if re.fullmatch("[0-9]{1,3}", what):
        if not 1 <= int(what) <= MAX_STEPS:
            raise click.BadParameter(f"{what} steps; 1 to {MAX_STEPS} can be taken back at once")
        return {"steps": int(what)}
    if not re.fullmatch("[A-Za-z0-9-]{5,64}", what):
        raise click.BadParameter(f"{what!r} is neither a number of steps nor a receipt's id")
    return {"call": what}
