"""`clawctl tool`: list the tools, run one through the gate."""

import shlex
import textwrap

import click
import msgspec

from clawctl.app import (
    SHOWN_CHARACTERS,
    App,
    Exit,
    JsonObject,
    Name,
    json_command,
    pass_app,
    schema_option,
    workspace_of,
)
from clawctl.render import emit, emit_json, note, say, show_table
from clawctl.request_follower import run_and_show
from clawd.errors import NotFoundError
from clawd.wire.daemon import Reload
from clawd.wire.method import Done
from clawd.wire.safe_text import shortened, terminal_safe, visible_line
from clawd.wire.tools import ListTools, RunTool, ToolLine, ToolOutcome, ToolProblem

WIDTH = 100
_MODES = {
    "split": "models are offered each tool by its name",
    "unified": "models are offered fs(action=…) and web(action=…) instead of their members",
    "both": "models are offered each tool by its name, and fs(action=…) and web(action=…)",
}


@click.group()
def command() -> None:
    """List the tools, show one, run one."""


@command.command("list")
@json_command(list[ToolLine])
def list_(app: App, *, as_json: bool) -> None:
    """List the tools."""
    tools = app.call(ListTools())
    if as_json:
        emit_json(tools.items)
        return
    show_table(
        ("NAME", "SOURCE", "WHAT IT DOES"), [(t.name, t.source, t.short) for t in tools.items]
    )
    mode = _MODES.get(tools.mode, "unknown to this clawctl")
    note(f"mode: {shortened(terminal_safe(tools.mode), 20)} ({mode})")
    if refused := sum(each.severity == "refused" for each in tools.problems):
        note(f"{refused} more could not be loaded: clawctl tool problems")


@command.command()
@click.argument("name", type=Name("tools"))
@json_command(ToolLine)
def show(app: App, name: str, *, as_json: bool) -> None:
    """Show one tool: what it does, its arguments, its other names and an example."""
    tools = app.call(ListTools())
    found = next((tool for tool in tools.items if name in {tool.name, *tool.aliases}), None)
    if found is None:
        known = ", ".join(tool.name for tool in tools.items)
        raise NotFoundError(
            f"there is no tool {shortened(name, SHOWN_CHARACTERS)!r}; the tools are: {known}"
        )
    if as_json:
        emit_json(found)
        return
    for line in terminal_safe(_manual(found)).splitlines():
        say("\n".join(textwrap.wrap(line, WIDTH, subsequent_indent="    ")))


@command.command()
@json_command(list[ToolProblem])
def problems(app: App, *, as_json: bool) -> int:
    """List external tools and plugins that were left out, and what is doubtful about others.

    Ends with 1 when something was left out.
    """
    found = app.call(ListTools()).problems
    if as_json:
        emit_json(found)
    else:
        for each in found:
            of_tool = f" {each.tool}:" if each.tool else ""
            say(visible_line(f"{_place(each)}: {each.severity}:{of_tool} {each.reason}"))
        if not found:
            print("Everything was loaded, and nothing is doubtful.")
    return Exit.FAILED if any(each.severity == "refused" for each in found) else Exit.DONE


@command.command("reload")
@json_command(Done)
def reload_(app: App, *, as_json: bool) -> None:
    """Read the config, the manifests of external tools and the plugins again."""
    done = app.call(Reload())
    emit(done, done.message, as_json=as_json)


def _place(problem: ToolProblem) -> str:
    return f"{problem.file}:{problem.line}" if problem.line else problem.file


@command.command()
@click.argument("name", type=Name("tools"))
@click.option(
    "--json",
    "arguments",
    type=JsonObject(),
    metavar="ARGS",
    default="{}",
    help="Arguments; - is stdin.",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-C", "directory", metavar="DIR", help="Work in this folder.")
@click.option("--here", is_flag=True, help="Work in the current folder.")
@click.option("--no-input", is_flag=True, help="Ask nothing; what needs an approval is denied.")
@schema_option(ToolOutcome)
@pass_app
def run(
    app: App, /, name: str, arguments: str, output: str, directory: str | None, **flags: bool
) -> int:
    """Run one tool, as the model would: risk, policy, approval, sandbox, receipt.

    Exit codes: 0 it ran, 1 it failed, 3 it was denied, 7 the emergency stop is set.
    """
    app.wants_json = output == "json"
    workspace = workspace_of(directory, here=flags["here"])
    request = RunTool(name=name, arguments=arguments, workspace=workspace)
    return run_and_show(app, request, may_ask=not flags["no_input"], as_json=output == "json")


def _manual(tool: ToolLine) -> str:
    lines = [f"{tool.name}: {tool.short}", "", tool.description, ""]
    required = tool.parameters.get("required", ())
    for name, rule in (tool.parameters.get("properties") or {}).items():
        about = rule.get("description", "") if isinstance(rule, dict) else ""
        need = "required" if name in required else "optional"
        lines.append(f"  {name} ({need}) {about}".rstrip())
    lines += [
        f"offered as: {tool.offered_as or tool.name}",
        f"other names: {', '.join(tool.aliases) or '-'}",
        f"example: clawctl tool run {tool.name} --json {shlex.quote(_json(tool.example))}",
    ]
    return "\n".join(lines)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
