"""`clawctl mcp`: the MCP servers of the daemon, their tools, and clawd as a server itself."""

import difflib
import os
import re
import select
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import click
import msgspec

from clawctl.app import App, Exit, JsonObject, Name, json_command, pass_app, schema_option
from clawctl.client import Client, Stream
from clawctl.config_edit import (
    Edited,
    has_section,
    put,
    read_config,
    with_section,
    without_section,
)
from clawctl.render import emit, emit_json, note, say, show_fields, show_table
from clawctl.request_follower import run_and_show
from clawd.errors import ClawError, InvalidRequestError
from clawd.paths import layout
from clawd.wire import mcp as wire
from clawd.wire.events import McpLine
from clawd.wire.method import Done
from clawd.wire.policy import host_grant
from clawd.wire.safe_text import shortened, terminal_safe, visible_line
from clawd.wire.tools import RunTool, ToolOutcome

_MAX_LINE_BYTES = 8 << 20
_READ_BYTES = 64 << 10
_NOT_PLAIN = re.compile(r"[^ -~]+")

_ALIAS_LIMIT = 32
_MAX_FILE_BYTES = 1 << 20
_FETCHERS = ("npx", "uvx", "bunx", "pnpx", "pipx", "docker")
_TABLES = ("mcpServers", "servers", "context_servers", "mcp")
_VARIABLE = re.compile(r"\$\{(?:env:|input:)?([A-Za-z_][A-Za-z0-9_-]*)(?::-[^}]*)?\}")
_SECRET = re.compile(r"(?i)token|secret|passw|api_?key|auth|credential|private")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMENTS = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMAS = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)

WIDTH = 100
_KEYS = (
    *("command", "url", "env_passthrough", "auth_env", "hosts"),
    *("workspace_access", "readonly_paths", "env"),
)


class _NewServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server to be written into a config; the fields are its keys.

    Attributes:
        notes: what a person should know: what was left out, and what is still to be done.
    """

    alias: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    env_passthrough: tuple[str, ...] = ()
    auth_env: str = ""
    oauth: bool = False
    hosts: tuple[str, ...] = ()
    workspace_access: str = ""
    readonly_paths: tuple[str, ...] = ()
    enabled: bool = True
    notes: tuple[str, ...] = ()


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
    return _serve_stdio(app)


@command.command("list")
@json_command(wire.McpServerList)
def list_(app: App, *, as_json: bool) -> None:
    """List the MCP servers: whether they can be called, and what they cost in tokens."""
    found = app.call(wire.ListMcpServers())
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
@click.argument("alias", type=Name("aliases"), default="")
@json_command(wire.McpToolList)
def tools(app: App, alias: str, *, as_json: bool) -> None:
    """List the tools of all MCP servers, or of server ALIAS, and those that cannot be used."""
    found = app.call(wire.ListMcpTools(alias=alias))
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
@click.argument("alias", type=Name("aliases"))
@click.argument("name", type=Name("mcp_tools"), metavar="TOOL")
@click.option(
    "--json",
    "arguments",
    type=JsonObject(),
    metavar="ARGS",
    help="Call it with these arguments; - is stdin.",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--no-input", is_flag=True, help="Ask nothing; what needs an approval is denied.")
@schema_option(wire.McpToolDetail | ToolOutcome)
@pass_app
def tool(
    app: App, alias: str, name: str, arguments: str | None, output: str, *, no_input: bool
) -> int:
    """Show the tool TOOL of server ALIAS; with --json, call it through the gate, with a receipt.

    Exit codes of a call: 0 it ran, 1 it failed, 3 it was denied, 7 the emergency stop is set.
    """
    as_json = output == "json"
    app.wants_json = as_json
    found = app.call(wire.ShowMcpTool(alias=alias, tool=name))
    if arguments is None:
        emit(found, _show, as_json=as_json)
        return Exit.DONE
    request = RunTool(name=found.line.name, arguments=arguments)
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
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST:PORT", help="A host that it may reach."
)
@click.option("--network", is_flag=True, help="Let the program reach every public host.")
@click.option("--workspace", type=click.Choice(["none", "read", "write"]), help="What it may do.")
@click.option("--read", "paths", multiple=True, metavar="PATH", help="What else it may read.")
@json_command(Edited)
def add(app: App, /, name: str, words: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Write server ALIAS into the config: a URL, or a program with its arguments after --.

    Needs no daemon; one that runs takes it over and connects it.
    """
    values, passed = _variables_of(given["variables"])
    is_url = "://" in words[0]
    token = given["token_env"] or (_token_variable(given["header"]) if given["header"] else "")
    server = _NewServer(
        alias=name,
        url=words[0] if is_url else "",
        command=() if is_url else words,
        env=values,
        env_passthrough=passed,
        auth_env=token,
        hosts=tuple(map(host_grant, given["hosts"])) or (("*",) if given["network"] else ()),
        workspace_access=given["workspace"] or "",
        readonly_paths=given["paths"],
    )
    _write_servers(app, [server], as_json=as_json)


@command.command()
@click.argument("alias")
@json_command(Edited)
def remove(app: App, alias: str, *, as_json: bool) -> None:
    """Take server ALIAS out of the config; a daemon that runs disconnects it.

    Needs no daemon. `clawctl config set mcp.servers.ALIAS.enabled false` only switches it off.
    """
    path = layout().config
    before = read_config(path)
    after = without_section(before.decode("utf-8", "replace"), "mcp", "servers", alias)
    done = put(app, path, before, after.encode(), wanted=True)
    emit(done, visible_line(f"removed {alias}. {done.message}"), as_json=as_json)


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--network", is_flag=True, help="Let the programs reach every public host.")
@json_command(Edited)
def import_(app: App, file: str, *, network: bool, as_json: bool) -> None:
    """Take the servers of FILE into the config: .mcp.json and its kin of other programs.

    Servers whose alias is there already are left out. Secrets that are written out in FILE are not
    copied; what to export is said.
    """
    found = [
        msgspec.structs.replace(each, hosts=("*",) if network and each.command else ())
        for each in read_foreign(Path(file))
    ]
    _write_servers(app, found, as_json=as_json)


def _write_servers(app: App, servers: list[_NewServer], *, as_json: bool) -> None:
    """Add servers to the config, where it is valid with them; say what is left to do."""
    path = layout().config
    before = read_config(path)
    text, added = before.decode("utf-8", "replace"), list[str]()
    for server in servers:
        if not server.alias or _is_known(text, server.alias):
            note(visible_line(f"left out: {server.alias or 'a server without a name'} is there"))
            continue
        text = with_server(text, server)
        added.append(server.alias)
        for each in server.notes:
            note(visible_line(f"{server.alias}: {each}"))
    if not added:
        raise InvalidRequestError("no server was added: there is none that is new")
    done = put(app, path, before, text.encode(), wanted=True)
    if as_json:
        emit_json(done)
        return
    say(visible_line(f"added {', '.join(added)}. {done.message}"))
    note("what each does here: clawctl mcp list")


@command.command()
@click.argument("alias", type=Name("aliases"), metavar="ALIAS | URL")
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
@json_command(wire.McpServerLine)
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
    request = wire.ConnectMcp(
        alias=called or alias,
        accept=bool(offer),
        offer=offer,
        url=url,
        token=os.environ.get(token_env, ""),
    )
    with app.client() as client:
        return _show_line(client, request, as_json=as_json)


@command.command()
@click.argument("alias", type=Name("aliases"))
@json_command(wire.McpDiff)
def diff(app: App, alias: str, *, as_json: bool) -> None:
    """Show what server ALIAS changed or added since it was first seen, and the hash to accept."""
    found = app.call(wire.DiffMcp(alias=alias))
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
@click.argument("alias", type=Name("aliases"))
@click.argument("offer", metavar="HASH")
@json_command(wire.McpServerLine)
def accept(app: App, alias: str, offer: str, *, as_json: bool) -> int:
    """Take the tools of server ALIAS as they are, if HASH is what `mcp diff` showed of them."""
    with app.client() as client:
        return _show_line(client, wire.AcceptMcp(alias=alias, offer=offer), as_json=as_json)


@command.command()
@click.argument("alias", type=Name("aliases"))
@json_command(wire.McpServerLine)
def disconnect(app: App, alias: str, *, as_json: bool) -> int:
    """Disconnect server ALIAS until it is connected by hand; its tools are offered no more."""
    with app.client() as client:
        return _show_line(client, wire.DisconnectMcp(alias=alias), as_json=as_json)


def _difference(found: wire.McpDifference) -> list[str]:
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
    client: Client, request: wire.ConnectMcp | wire.DisconnectMcp | wire.AcceptMcp, *, as_json: bool
) -> int:
    line = client.call(request)
    if as_json:
        emit_json(line)
    else:
        say(visible_line(f"{line.alias} is {line.link}, {line.tools} tools ({_about(line)})"))
        for remark in _remarks(line):
            note(visible_line(f"{line.alias}: {remark}"))
    is_done = isinstance(request, wire.AcceptMcp) or line.link == (
        "ready" if isinstance(request, wire.ConnectMcp) else "off"
    )
    return Exit.DONE if is_done else Exit.FAILED


def _about(line: wire.McpServerLine) -> str:
    words = [
        line.address or line.transport,
        "trusted" if line.is_trusted else "",
        line.server,
        line.revision,
    ]
    return ", ".join(filter(None, words))


def _remarks(line: wire.McpServerLine) -> list[str]:
    remarks = [line.problem] if line.problem else []
    if line.reach_problem and line.reach_problem not in line.problem:
        remarks.append(line.reach_problem)
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


def _show(found: wire.McpToolDetail) -> None:
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


def with_server(text: str, server: _NewServer) -> str:
    """Return the text of a config with a server added to its end."""
    values = {name: getattr(server, name) for name in _KEYS}
    values |= {"oauth": True} if server.oauth else {}
    values |= {} if server.enabled else {"enabled": False}
    return with_section(text, f"mcp.servers.{server.alias}", values)


def _is_known(text: str, alias: str) -> bool:
    """Return whether the text of a config has a server of this alias."""
    return has_section(text, f"mcp.servers.{alias}") or has_section(text, f'mcp.servers."{alias}"')


def _alias_of(name: str) -> str:
    """Return the alias nearest to a name: a-z, 0-9 and -; empty where nothing is left of it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_ALIAS_LIMIT].strip("-")


def read_foreign(path: Path) -> list[_NewServer]:
    """Return the servers of another program's file.

        {"mcpServers": {"files": {"command": "npx", "args": ["-y", "x"], "env": {"KEY": "${KEY}"}}}}
        {"servers": {"web": {"type": "http", "url": "https://x.example/mcp",
                             "headers": {"Authorization": "Bearer ${input:token}"}}}}
        {"mcp": {"files": {"type": "local", "command": ["x", "."], "environment": {}}}}

    The first is of Claude, Cursor and Gemini, the second of VS Code, the third of opencode. A
    secret that is written out in such a file is not copied: a config is no place for it.

    Raises:
        InvalidRequestError: it cannot be read, or is none that is known.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_FILE_BYTES:
        raise InvalidRequestError(f"{path} has more than {_MAX_FILE_BYTES} bytes")
    text = _COMMENTS.sub(lambda found: found[1] or "", data.decode("utf-8", "replace"))
    text = _LAST_COMMAS.sub(lambda found: found[1] or "", text)
    try:
        tree = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(f"{path} is not JSON: {error}") from error
    servers = _table(tree)
    if servers is None:
        raise InvalidRequestError(
            f"{path} names no MCP servers; expected an object mcpServers, servers, "
            "context_servers or mcp"
        )
    return [_server(name, about) for name, about in servers.items() if isinstance(about, dict)]


def _table(tree: Any) -> dict[str, Any] | None:
    for key in _TABLES:
        found = tree.get(key) if isinstance(tree, dict) else None
        if isinstance(found, dict):
            inner = found.get("servers")
            return inner if isinstance(inner, dict) and "command" not in inner else found
    return None


def _server(name: str, about: dict[str, Any]) -> _NewServer:
    notes: list[str] = []
    command = about.get("command")
    if isinstance(command, dict):  # Zed's older form
        about = {**about, "args": command.get("args"), "env": command.get("env")}
        command = command.get("path")
    words = command if isinstance(command, list) else [command, *_list(about.get("args"))]
    url = next((str(about[k]) for k in ("url", "serverUrl", "httpUrl") if about.get(k)), "")
    if about.get("type") == "sse":
        notes.append("it speaks the old SSE transport; clawd speaks streamable HTTP")
    given = {}
    if url:
        given = _of_url(_alias_of(name), about, notes)
    else:
        given = _of_command([str(word) for word in words if word], about, notes)
    is_off = about.get("disabled") is True or about.get("enabled") is False
    return _NewServer(
        alias=_alias_of(name), url=url, enabled=not is_off, notes=tuple(notes), **given
    )


def _of_command(words: list[str], about: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    env: dict[str, str] = {}
    passed: list[str] = []
    variables = about.get("env") or about.get("environment")
    for name, value in (variables if isinstance(variables, dict) else {}).items():
        if found := _VARIABLE.fullmatch(str(value)):
            passed.append(name)
            if found[1] != name:
                notes.append(f"{name} is taken from a variable {name}, not from {found[1]}")
        elif _SECRET.search(name):
            passed.append(name)
            notes.append(f"the value of {name} was not copied: export it where the daemon starts")
        else:
            env[name] = str(value)
    if words and Path(words[0]).name in _FETCHERS:
        notes.append(
            f"{words[0]} fetches what it runs: it needs hosts (--host, --network); those that it "
            "was refused stand in clawctl mcp list"
        )
    return {"command": tuple(words), "env": env, "env_passthrough": tuple(passed)}


def _of_url(alias: str, about: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    headers = about.get("headers") or about.get("requestInit", {}).get("headers")
    for name, value in (headers if isinstance(headers, dict) else {}).items():
        if name.lower() != "authorization" or not str(value).lower().startswith("bearer "):
            notes.append(f"the header {name} was left out: clawd sends a bearer token only")
            continue
        found = _VARIABLE.fullmatch(str(value)[7:].strip())
        variable = found[1] if found else f"{alias}_token"
        given["auth_env"] = re.sub(r"[^A-Za-z0-9_]", "_", variable)
        if found is None:
            given["auth_env"] = given["auth_env"].upper()
            notes.append(f"the token was not copied: export {given['auth_env']}")
    return given


def _variables_of(given: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the values and the bare names of `NAME=VALUE` and `NAME`.

    Raises:
        InvalidRequestError: one is neither.
    """
    values: dict[str, str] = {}
    names: list[str] = []
    for each in given:
        name, is_value, value = each.partition("=")
        if not _NAME.fullmatch(name):
            raise InvalidRequestError(f"{each!r} is neither NAME nor NAME=VALUE")
        if is_value:
            values[name] = value
        else:
            names.append(name)
    return values, tuple(names)


def _token_variable(header: str) -> str:
    """Return the variable of a header `Authorization: Bearer ${NAME}`.

    Raises:
        InvalidRequestError: it is another header, or holds the token itself.
    """
    found = re.fullmatch(r"(?i)authorization:\s*bearer\s+\$\{?(\w+)\}?", header.strip())
    if found is None:
        raise InvalidRequestError(
            "--header takes 'Authorization: Bearer ${NAME}', with the name of a variable",
            hint="Keep the token in a variable of the daemon's, or use --token-env NAME.",
        )
    return found[1]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _serve_stdio(app: App) -> int:
    """Pass lines between the client on standard input and output and the daemon.

    Until the client closes either. What it says is not looked at here; the daemon speaks MCP.
    """
    with app.client() as client:
        stream = client.stream(wire.ServeMcp())
        try:
            _pass_on(stream)
        except BrokenPipeError:
            return Exit.DONE
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
    return Exit.DONE


def _pass_on(stream: Stream[Done]) -> None:
    """Pass lines both ways until the daemon has said all.

    Raises:
        ClawError: the daemon refused or went, or a line is too long.
        BrokenPipeError: the client went.
    """
    source, sink = sys.stdin.fileno(), sys.stdout.buffer
    waiting, is_open = b"", True
    while not stream.is_done:
        watched = [stream.fileno(), *([source] if is_open else [])]
        readable, _, _ = select.select(watched, [], [])
        if source in readable:
            data = os.read(source, _READ_BYTES)
            *lines, waiting = (waiting + data).split(b"\n")
            for line in (*lines, *([] if data else [waiting])):
                _send(stream, line)
            if len(waiting) > _MAX_LINE_BYTES:
                raise ClawError(f"a line of the client is over {_MAX_LINE_BYTES} bytes")
            if not data:
                is_open, waiting = False, b""
                stream.answer(wire.END, "")
        if stream.fileno() in readable:
            stream.read(0)
        while (event := _next(stream)) is not None:
            if isinstance(event, McpLine):
                sink.write(as_ascii(event.text) + b"\n")
        sink.flush()


def as_ascii(line: str) -> bytes:
    """Return a line of JSON in ASCII: the same value, and nothing that drives a terminal."""
    return _NOT_PLAIN.sub(_escaped, line).encode("ascii")


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _next(stream: Stream[Done]) -> object:
    """Return an event that was read already, or None; tells a failure of the daemon."""
    return stream.wait(0) if stream.waiting or stream.has_ended else None


def _send(stream: Stream[Done], line: bytes) -> None:
    if line.strip():
        stream.answer(wire.LINE, line.decode(errors="replace"))
