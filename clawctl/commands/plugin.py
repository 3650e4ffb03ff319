"""`clawctl plugin`: install plugins, look at them, approve them again, remove them."""

import sys
from pathlib import Path

import click
import msgspec

from clawctl.app import App, Exit, Name, json_command
from clawctl.client import Client
from clawctl.render import emit, emit_json, note, say, show_fields, show_table, size
from clawd.wire import tools
from clawd.wire.method import Done
from clawd.wire.safe_text import visible_line

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
secrets_option = click.option(
    "--accept-secrets", is_flag=True, help="Go on though files hold what looks like a secret."
)


@click.group()
def command() -> None:
    """Install, list, approve and remove plugins."""


@command.command("list")
@json_command(list[tools.PluginLine])
def list_(app: App, *, as_json: bool) -> None:
    """List the installed plugins and whether they run."""
    items = app.call(tools.ListPlugins()).items
    if as_json:
        emit_json(items)
        return
    show_table(
        ("NAME", "VERSION", "STATE", "MAY", "TOOLS", "HASH"),
        [
            (p.name, p.version, p.state, " ".join(p.capabilities), " ".join(p.tools), p.digest[:16])
            for p in items
        ],
        nothing="No plugins are installed.",
    )
    for each in items:
        if each.reason:
            note(visible_line(f"{each.name}: {each.reason}"))


@command.command()
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@yes_option
@secrets_option
@json_command(tools.PluginLine | None)
def install(app: App, path: Path, *, yes: bool, accept_secrets: bool, as_json: bool) -> int:
    """Show what the plugin in folder PATH may do, ask, and install it.

    Its files are copied, and it runs as long as the copy is what was shown here.
    """
    source = str(path.absolute())
    with app.client() as client:
        found = client.call(tools.InspectPlugin(path=source))
        if not _is_agreed(found, "Install it?", yes=yes, accept=accept_secrets, as_json=as_json):
            return Exit.FAILED
        done = client.call(tools.InstallPlugin(path=source, digest=found.digest))
        return _show_done(client, found.name, done.message, as_json=as_json)


@command.command()
@click.argument("name", type=Name("plugins"))
@yes_option
@secrets_option
@json_command(tools.PluginLine | None)
def approve(app: App, name: str, *, yes: bool, accept_secrets: bool, as_json: bool) -> int:
    """Show what changed in a plugin since it was approved, ask, and let it run as it is now."""
    with app.client() as client:
        found = client.call(tools.InspectPlugin(name=name))
        found = msgspec.structs.replace(found, replaces="")
        if not _is_agreed(found, "Approve it?", yes=yes, accept=accept_secrets, as_json=as_json):
            return Exit.FAILED
        done = client.call(tools.ApprovePlugin(name=name, digest=found.digest))
        return _show_done(client, name, done.message, as_json=as_json)


@command.command()
@click.argument("name", type=Name("plugins"))
@yes_option
@json_command(Done)
def remove(app: App, name: str, *, yes: bool, as_json: bool) -> int:
    """Remove a plugin and its approval."""
    if not yes and not asked(visible_line(f"Remove the plugin {name}?"), as_json=as_json):
        return Exit.FAILED
    done = app.call(tools.RemovePlugin(name=name))
    emit(done, done.message, as_json=as_json)
    return Exit.DONE


@command.command("reload")
@json_command(Done)
def reload_(app: App, *, as_json: bool) -> None:
    """Read plugins and external tools again."""
    done = app.call(tools.ReloadPlugins())
    emit(done, done.message, as_json=as_json)


def _is_agreed(
    found: tools.PluginReview, question: str, *, yes: bool, accept: bool, as_json: bool
) -> bool:
    """Show what a plugin may do, and find out whether that is wanted."""
    if not as_json:
        _show(found)
    if yes:
        if found.secrets and not accept:
            note("Files hold what looks like a secret. Nothing was done; see --accept-secrets.")
            return False
        return True
    return asked(question, as_json=as_json)


def asked(question: str, *, as_json: bool) -> bool:
    """Ask on the terminal; where there is none, or nobody says y, the answer is no."""
    if as_json or not sys.stdin.isatty():
        note("Nothing was done: nobody can be asked here. Say yes with --yes.")
        return False
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _show(found: tools.PluginReview) -> None:
    programs = ", ".join(each.path for each in found.files if each.is_program)
    total = sum(each.size_bytes for each in found.files)
    replaces = [("replaces", f"version {found.replaces}")] if found.replaces else []
    show_fields(
        [
            ("plugin", f"{found.name} {found.version}"),
            *([("about", found.description)] if found.description else []),
            *replaces,
            ("hash", found.digest),
            ("files", f"{len(found.files)}, {size(total)}; programs: {programs or 'none'}"),
        ]
    )
    print()
    show_table(
        ("TOOL", "RISK", "WHAT IT DOES"),
        [(each.name, each.risk, each.description) for each in found.tools],
    )
    print()
    for heading, lines in (
        ("What it may do:", found.reach),
        ("What is different from what was approved:", found.changes),
        ("What looks like a secret:", found.secrets),
    ):
        if lines:
            print(heading)
            for line in lines:
                say(f"  {visible_line(line)}")


def _show_done(client: Client, name: str, message: str, *, as_json: bool) -> int:
    if as_json:
        items = client.call(tools.ListPlugins()).items
        emit_json(next((each for each in items if each.name == name), None))
    else:
        say(message)
    return Exit.DONE
