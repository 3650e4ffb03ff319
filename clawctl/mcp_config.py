"""MCP servers for the config: from words of a command line, and from files of other programs.

    {"mcpServers": {"files": {"command": "npx", "args": ["-y", "x"], "env": {"KEY": "${KEY}"}}}}
    {"servers": {"web": {"type": "http", "url": "https://x.example/mcp",
                         "headers": {"Authorization": "Bearer ${input:token}"}}}}
    {"mcp": {"files": {"type": "local", "command": ["x", "."], "environment": {}}}}

The first is of Claude, Cursor and Gemini, the second of VS Code, the third of opencode. A secret
that is written out in such a file is not copied: a config is no place for it.
"""

import re
from pathlib import Path
from typing import Any

import msgspec

from clawctl.config_text import has_section, quoted
from clawd.errors import InvalidRequestError

ALIAS_LIMIT = 32
MAX_FILE_BYTES = 1 << 20
FETCHERS = ("npx", "uvx", "bunx", "pnpx", "pipx", "docker")

_TABLES = ("mcpServers", "servers", "context_servers", "mcp")
_VARIABLE = re.compile(r"\$\{(?:env:|input:)?([A-Za-z_][A-Za-z0-9_-]*)(?::-[^}]*)?\}")
_SECRET = re.compile(r"(?i)token|secret|passw|api_?key|auth|credential|private")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMENTS = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMAS = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)


class NewServer(msgspec.Struct, frozen=True, kw_only=True):
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
    network: bool = False
    workspace_access: str = ""
    readonly_paths: tuple[str, ...] = ()
    enabled: bool = True
    notes: tuple[str, ...] = ()


def with_server(text: str, server: NewServer) -> str:
    """Return the text of a config with a server added to its end."""
    lines = [f"\n[mcp.servers.{server.alias}]"]
    keys = ("command", "url", "env_passthrough", "auth_env", "workspace_access", "readonly_paths")
    lines += [f"{key} = {_toml(getattr(server, key))}" for key in keys if getattr(server, key)]
    if server.env:
        held = ", ".join(f"{name} = {quoted(value)}" for name, value in server.env.items())
        lines.append(f"env = {{ {held} }}")
    lines += [f"{key} = true" for key in ("oauth", "network") if getattr(server, key)]
    if not server.enabled:
        lines.append("enabled = false")
    end = "" if not text or text.endswith("\n") else "\n"
    return text + end + "\n".join(lines) + "\n"


def is_known(text: str, alias: str) -> bool:
    """Return whether the text of a config has a server of this alias."""
    return has_section(text, f"mcp.servers.{alias}") or has_section(text, f'mcp.servers."{alias}"')


def alias_of(name: str) -> str:
    """Return the alias nearest to a name: a-z, 0-9 and -; empty where nothing is left of it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:ALIAS_LIMIT].strip("-")


def read_foreign(path: Path) -> list[NewServer]:
    """Return the servers of another program's file.

    Raises:
        InvalidRequestError: it cannot be read, or is none that is known.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise InvalidRequestError(f"{path} has more than {MAX_FILE_BYTES} bytes")
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


def _server(name: str, about: dict[str, Any]) -> NewServer:
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
        given = _of_url(alias_of(name), about, notes)
    else:
        given = _of_command([str(word) for word in words if word], about, notes)
    is_off = about.get("disabled") is True or about.get("enabled") is False
    return NewServer(alias=alias_of(name), url=url, enabled=not is_off, notes=tuple(notes), **given)


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
    if words and Path(words[0]).name in FETCHERS:
        notes.append(f"{words[0]} fetches what it runs: it needs network = true (--network)")
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


def variables_of(given: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
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


def token_variable(header: str) -> str:
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


def _toml(value: str | tuple[str, ...]) -> str:
    if isinstance(value, str):
        return quoted(value)
    return "[" + ", ".join(quoted(each) for each in value) + "]"


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
