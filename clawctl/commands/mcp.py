"""`clawctl mcp`: the MCP servers of the daemon, their tools, and clawd as a server itself."""

import difflib
import os
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import click
import msgspec

from clawctl import mcp_stdio
from clawctl.app import App, Exit, json_option, pass_app, schema_option
from clawctl.client import Client
from clawctl.config_edit import extended, read_config
from clawctl.mcp_config import (
    NewServer,
    is_known,
    read_foreign,
    token_variable,
    variables_of,
    with_server,
)
from clawctl.outcome import run_and_show
from clawctl.render import emit_json, note, say, show_fields, show_table
from clawd.errors import InvalidRequestError
from clawd.paths import layout
from clawd.wire.mcp_methods import (
    AcceptMcp,
    ConnectMcp,
    DiffMcp,
    DisconnectMcp,
    ListMcpServers,
    ListMcpTools,
    ShowMcpTool,
)
from clawd.wire.mcp_reports import McpDifference, McpServerLine, McpToolDetail
from clawd.wire.methods import RunTool
from clawd.wire.safe_text import shortened, terminal_safe, visible_line

WIDTH = 100


@click.group()
def command() -> None:
    """List, connect and disconnect MCP servers, call their tools, and be one."""


@command.command()
@pass_app
def serve(app: App) -> int:
    """Serve clawd's tools to the MCP client on standard input and output."""
    if sys.stdout.isatty():
        raise click.UsageError(
            "this speaks MCP, to programs: let a client start it, with the command "
            "`clawctl mcp serve`"
        )
    return mcp_stdio.serve(app)


@command.command("list")
@json_option
@pass_app
def list_(app: App, *, as_json: bool) -> None:
    """List the MCP servers: whether they can be called, and what they cost in tokens."""
    with app.client() as client:
        found = client.call(ListMcpServers())
    if as_json:
        emit_json(found)
        return
    show_table(
        ("SERVER", "LINK", "TOOLS", "TOKENS", "CALLS", "FAILED", "LAST MS", "IS"),
        [
            (s.alias, s.link, s.tools, s.tokens, s.calls, s.failures, s.last_call_ms, _about(s))
            for s in found.items
        ],
        nothing="No MCP servers are configured: [mcp.servers.<alias>] of the config.",
    )
    for each in found.items:
        for line in _remarks(each):
            note(visible_line(f"{each.alias}: {line}"))
    if found.items:
        total = sum(each.tokens for each in found.items)
        note(f"about {total} tokens of each request; schemas may take {found.budget_tokens}")


@command.command()
@click.argument("alias", default="")
@json_option
@pass_app
def tools(app: App, alias: str, *, as_json: bool) -> None:
    """List the tools of all MCP servers, or of server ALIAS, and those that cannot be used."""
    with app.client() as client:
        found = client.call(ListMcpTools(alias=alias))
    if as_json:
        emit_json(found)
        return
    show_table(
        ("NAME", "RISK", "IS", "WHAT IT DOES"),
        [
            (
                t.name,
                t.risk,
                " ".join(
                    word
                    for word, holds in (
                        ("approved", bool(t.approval)),
                        ("deferred", t.is_deferred),
                        ("hidden", t.is_hidden),
                        ("changed", t.is_changed),
                        ("new", t.is_new),
                        ("repaired", bool(t.repaired)),
                        ("loose", bool(t.loose)),
                    )
                    if holds
                ),
                shortened(t.short, WIDTH),
            )
            for t in found.items
        ],
        nothing="No tools of MCP servers are offered.",
    )
    for each in found.items:
        if each.loose:
            note(visible_line(f"loose: {each.name}: no grammar holds its schema: {each.loose}"))
    for lost in found.left_out:
        note(visible_line(f"left out: {lost.alias} {lost.tool}: {lost.reason}"))


@command.command()
@click.argument("alias")
@click.argument("name", metavar="TOOL")
@click.option(
    "--json", "arguments", metavar="ARGS", help="Call it with these arguments; - is stdin."
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--no-input", is_flag=True, help="Ask nothing; what needs an approval is denied.")
@schema_option
@pass_app
def tool(
    app: App, alias: str, name: str, arguments: str | None, output: str, *, no_input: bool
) -> int:
    """Show the tool TOOL of server ALIAS; with --json, call it through the gate, with a receipt.

    Exit codes of a call: 0 it ran, 1 it failed, 3 it was denied, 7 the emergency stop is set.
    """
    as_json = output == "json"
    app.wants_json = as_json
    given = _arguments(arguments)
    with app.client() as client:
        found = client.call(ShowMcpTool(alias=alias, tool=name))
    if given is None:
        if as_json:
            emit_json(found)
        else:
            _show(found)
        return Exit.DONE
    request = RunTool(name=found.line.name, arguments=given)
    return run_and_show(app, request, may_ask=not no_input, as_json=as_json)


@command.command()
@click.argument("name", metavar="ALIAS")
@click.argument("words", metavar="URL | -- COMMAND [ARGS]", nargs=-1, required=True)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable of the program: with its value, or taken from the daemon's environment.",
)
@click.option(
    "--token-env", metavar="NAME", default="", help="The variable that holds the URL's token."
)
@click.option("--header", default="", metavar="TEXT", help="'Authorization: Bearer ${NAME}'.")
@click.option("--network", is_flag=True, help="Let the program use the network.")
@click.option("--workspace", type=click.Choice(["none", "read", "write"]), help="What it may do.")
@click.option("--read", "paths", multiple=True, metavar="PATH", help="What else it may read.")
@json_option
@pass_app
def add(app: App, /, name: str, words: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Write server ALIAS into the config: a URL, or a program with its arguments after --.

    Needs no daemon; one that runs takes it over and connects it.
    """
    values, passed = variables_of(given["variables"])
    is_url = "://" in words[0]
    token = given["token_env"] or (token_variable(given["header"]) if given["header"] else "")
    server = NewServer(
        alias=name,
        url=words[0] if is_url else "",
        command=() if is_url else words,
        env=values,
        env_passthrough=passed,
        auth_env=token,
        network=given["network"],
        workspace_access=given["workspace"] or "",
        readonly_paths=given["paths"],
    )
    _write_servers(app, [server], as_json=as_json)


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--network", is_flag=True, help="Let the programs use the network.")
@json_option
@pass_app
def import_(app: App, file: str, *, network: bool, as_json: bool) -> None:
    """Take the servers of FILE into the config: .mcp.json and its kin of other programs.

    Servers whose alias is there already are left out. Secrets that are written out in FILE are not
    copied; what to export is said.
    """
    found = [
        msgspec.structs.replace(each, network=network and bool(each.command))
        for each in read_foreign(Path(file))
    ]
    _write_servers(app, found, as_json=as_json)


def _write_servers(app: App, servers: list[NewServer], *, as_json: bool) -> None:
    """Add servers to the config, where it is valid with them; say what is left to do."""
    text = read_config(layout().config).decode("utf-8", "replace")
    added: list[str] = []
    for server in servers:
        if not server.alias or is_known(text, server.alias):
            note(visible_line(f"left out: {server.alias or 'a server without a name'} is there"))
            continue
        text = with_server(text, server)
        added.append(server.alias)
        for each in server.notes:
            note(visible_line(f"{server.alias}: {each}"))
    if not added:
        raise InvalidRequestError("no server was added: there is none that is new")
    done = extended(app, text)
    if as_json:
        emit_json(done)
        return
    say(visible_line(f"added {', '.join(added)}. {done.message}"))
    note("what each does here: clawctl mcp list")


@command.command()
@click.argument("alias", metavar="ALIAS | URL")
@click.option("--alias", "called", default="", metavar="NAME", help="What a URL is called here.")
@click.option(
    "--token-env", default="", metavar="NAME", help="A variable of yours that holds its token."
)
@click.option(
    "--accept",
    "offer",
    default="",
    metavar="HASH",
    help="Take its tools as they are then, if that is what `mcp diff` showed under this hash.",
)
@json_option
@pass_app
def connect(app: App, alias: str, called: str, token_env: str, offer: str, *, as_json: bool) -> int:
    """Connect server ALIAS now (again), and say what came of it.

    A URL is connected as --alias until the daemon ends; `mcp add` writes one into the config.
    """
    url = alias if alias.startswith(("http://", "https://")) else ""
    if url and not called:
        raise click.UsageError(f"say what it is called: clawctl mcp connect {url} --alias NAME")
    if not url and (called or token_env):
        raise click.UsageError("--alias and --token-env go with a URL")
    if token_env and token_env not in os.environ:
        raise click.UsageError(f"there is no variable {token_env}")
    request = ConnectMcp(
        alias=called or alias,
        accept=bool(offer),
        offer=offer,
        url=url,
        token=os.environ.get(token_env, ""),
    )
    with app.client() as client:
        return _show_line(client, request, as_json=as_json)


@command.command()
@click.argument("alias")
@json_option
@pass_app
def diff(app: App, alias: str, *, as_json: bool) -> None:
    """Show what server ALIAS changed or added since it was first seen, and the hash to accept."""
    with app.client() as client:
        found = client.call(DiffMcp(alias=alias))
    if as_json:
        emit_json(found)
        return
    for each in found.items:
        say(visible_line(f"{each.tool}: {each.kind}"))
        for line in _difference(each):
            say(terminal_safe(line))
    if found.items:
        note(visible_line(f"take it as it is: clawctl mcp accept {alias} {found.offer}"))
    else:
        say(visible_line(f"{alias} offers what was first seen of it ({found.offer or 'nothing'})"))


@command.command()
@click.argument("alias")
@click.argument("offer", metavar="HASH")
@json_option
@pass_app
def accept(app: App, alias: str, offer: str, *, as_json: bool) -> int:
    """Take the tools of server ALIAS as they are, if HASH is what `mcp diff` showed of them."""
    with app.client() as client:
        return _show_line(client, AcceptMcp(alias=alias, offer=offer), as_json=as_json)


@command.command()
@click.argument("alias")
@json_option
@pass_app
def disconnect(app: App, alias: str, *, as_json: bool) -> int:
    """Disconnect server ALIAS until it is connected by hand; its tools are offered no more."""
    with app.client() as client:
        return _show_line(client, DisconnectMcp(alias=alias), as_json=as_json)


def _difference(found: McpDifference) -> list[str]:
    """Return the lines of a difference; all of it where what was there before is not known."""
    was = _pretty(found.was)
    if not was and found.kind == "changed":
        return ["  (what it was is not kept)", *(f"+ {line}" for line in _pretty(found.now))]
    lines = difflib.unified_diff(was, _pretty(found.now), lineterm="", n=2)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _pretty(text: str) -> list[str]:
    try:
        return msgspec.json.format(text, indent=2).splitlines() if text else []
    except msgspec.DecodeError:
        return text.splitlines()


def _show_line(
    client: Client, request: ConnectMcp | DisconnectMcp | AcceptMcp, *, as_json: bool
) -> int:
    line = client.call(request)
    if as_json:
        emit_json(line)
    else:
        say(visible_line(f"{line.alias} is {line.link}, {line.tools} tools ({_about(line)})"))
        for remark in _remarks(line):
            note(visible_line(f"{line.alias}: {remark}"))
    is_done = isinstance(request, AcceptMcp) or line.link == (
        "ready" if isinstance(request, ConnectMcp) else "off"
    )
    return Exit.DONE if is_done else Exit.FAILED


def _about(line: McpServerLine) -> str:
    words = [
        line.address or line.transport,
        "trusted" if line.is_trusted else "",
        line.server,
        line.revision,
    ]
    return ", ".join(filter(None, words))


def _remarks(line: McpServerLine) -> list[str]:
    remarks = [line.problem] if line.problem else []
    if line.left_out:
        remarks.append(f"{line.left_out} tools cannot be used: clawctl mcp tools {line.alias}")
    if line.loose:
        names = shortened(", ".join(line.loose), WIDTH)
        remarks.append(f"no grammar holds the schemas of {names}: clawctl mcp tools {line.alias}")
    if line.changed:
        names = shortened(", ".join(line.changed), WIDTH)
        remarks.append(
            f"changed since they were first seen: {names}; look at them with "
            f"clawctl mcp diff {line.alias}"
        )
    if line.waiting:
        names = shortened(", ".join(line.waiting), WIDTH)
        remarks.append(
            f"came later, and are not approved yet: {names}; look at them with "
            f"clawctl mcp diff {line.alias}"
        )
    return remarks


def _show(found: McpToolDetail) -> None:
    line = found.line
    hints = ", ".join(f"{name}: {'yes' if on else 'no'}" for name, on in found.hints.items())
    example = msgspec.json.encode(found.example).decode()
    show_fields(
        [
            ("tool", line.name),
            ("server", line.alias),
            ("its own name", line.tool),
            ("risk", line.risk),
            ("auto_approve", line.approval or "-"),
            ("the server says", hints or "-"),
            ("other names", ", ".join(found.other_names) or "-"),
            *([("repaired", line.repaired)] if line.repaired else []),
        ]
    )
    print()
    schema = msgspec.json.format(msgspec.json.encode(found.parameters), indent=2).decode()
    for text in terminal_safe(f"{found.description}\n\n{schema}").splitlines():
        indent = " " * (len(text) - len(text.lstrip()) + 4)
        say("\n".join(textwrap.wrap(text, WIDTH, subsequent_indent=indent[: WIDTH // 2])))
    words = ["clawctl", "mcp", "tool", line.alias, line.tool, "--json", example]
    note(visible_line(f"example: {shlex.join(words)}"))


def _arguments(text: str | None) -> str | None:
    """Return the arguments of a call as JSON text; None where none is wanted."""
    if text is None:
        return None
    given = sys.stdin.read() if text == "-" else text
    try:
        value = msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise click.UsageError(f"--json {shortened(given, 200)!r} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError('--json must be an object, as \'{"path": "."}\'')
    return given
