"""`clawctl agent show-prompt`: what the model is told before anybody says a word."""

from pathlib import Path

import click

from clawctl.agent_options import Choice
from clawctl.app import App, conversation_option, json_command
from clawctl.render import emit_json, note, say
from clawd.paths import expanded
from clawd.wire.conversations import PromptText, ShowPrompt
from clawd.wire.safe_text import visible_line


@click.command("show-prompt")
@click.option("--agent", metavar="NAME", default="", help="An agent of the config.")
@click.option("-C", "directory", metavar="DIR", help="Of a conversation in this folder.")
@click.option("--here", is_flag=True, help="Of a conversation in the current folder.")
@conversation_option(help="Of this conversation.")
@json_command(PromptText)
def show_prompt(
    app: App, agent: str, directory: str | None, conversation: str, *, here: bool, as_json: bool
) -> None:
    """Show the system prompt, and the block that the next message would carry.

    Without a conversation it is that of a new one, in the folder where `agent` would work. Nothing
    is sent to a model.
    """
    workspace = workspace_of(directory, here=here)
    if workspace and conversation:
        raise click.UsageError(
            "a conversation has its folder: give --conversation, or -C or --here"
        )
    with app.client() as client:
        if not (workspace or conversation):
            from clawctl.workspace_trust import placed

            workspace = placed(app, Choice(here=True), client, None).workspace
        found = client.call(
            ShowPrompt(agent=agent, workspace=workspace, conversation_id=conversation)
        )
    if as_json:
        emit_json(found)
        return
    say(found.system)
    if found.block:
        note("\n● the next message would begin with:")
        say(found.block)
    for source in found.untrusted:
        note(f"● untrusted text in it: {visible_line(source)}")


def workspace_of(directory: str | None, *, here: bool) -> str:
    """Return the folder that -C or --here name, absolute; "" for the configured one."""
    if directory and here:
        raise click.UsageError("-C and --here exclude each other")
    if not directory and not here:
        return ""
    folder = expanded(directory) if directory else Path.cwd()
    try:
        is_there = folder.is_dir()
    except PermissionError:
        # The machine's daemon has folders that its clients cannot see: it judges this one.
        return str(folder.absolute())
    if not is_there:
        raise click.UsageError(f"-C {folder}: there is no such folder")
    return str(folder.resolve())
