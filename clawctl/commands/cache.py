"""`clawctl cache`: what commands in the sandbox keep between them, a folder for each project."""

import click

from clawctl.app import App, ListingGroup, current_folder, json_command, workspace_of
from clawctl.render import emit_json, note, say, show_table, size
from clawd.wire.daemon import CacheList, CachesCleared, ClearCaches, ListCaches
from clawd.wire.safe_text import visible_line


@click.group(cls=ListingGroup)
def command() -> None:
    """List and clear what commands keep between them, by project.

    That is what package managers fetch and tools remember (~/.cache, ~/.npm, ~/.cargo/registry and
    their like in the sandbox); your own home has nothing of it. Without a word more it is listed.
    """


@command.command("list")
@json_command(CacheList)
def list_(app: App, *, as_json: bool) -> None:
    """List what commands keep between them, the most recently used project first."""
    found = app.call(ListCaches())
    if as_json:
        emit_json(found)
        return
    show_table(
        ("SIZE", "USED", "PROJECT"),
        [(size(each.size_bytes), each.used_at, each.workspace) for each in found.items],
        nothing="Nothing is kept yet.",
    )
    if found.items:
        total = sum(each.size_bytes for each in found.items)
        note(f"{size(total)} of {size(found.limit_bytes)} (cache_mb in [sandbox])")


@command.command()
@click.option("--project", is_flag=True, help="Of the current folder alone.")
@click.option("-C", "directory", metavar="DIR", help="Of the project in this folder alone.")
@json_command(CachesCleared)
def clear(app: App, directory: str | None, *, project: bool, as_json: bool) -> None:
    """Remove what commands keep between them, of all projects or of one; they fetch it anew."""
    if project and directory:
        raise click.UsageError("--project and -C exclude each other")
    folder = workspace_of(directory, here=False) if directory else ""
    folder = str(current_folder()) if project else folder
    done = app.call(ClearCaches(workspace=folder))
    if as_json:
        emit_json(done)
        return
    for each in done.removed:
        say(f"removed {size(each.size_bytes)} of {visible_line(each.workspace)}")
    for each in done.in_use:
        note(f"● {visible_line(each.workspace)} is in use now and stays; try again later")
    if not done.removed and not done.in_use:
        say("Nothing was kept.")
