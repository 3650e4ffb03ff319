"""The section of MCP servers, [mcp], and what is to be found out about its values."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from clawd.config.sections import Section
from clawd.wire.policy import ANY_HOST, is_listed_form

Words = Annotated[tuple[str, ...], Field(strict=False)]
Paths = Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)]

ALIAS_LIMIT = 32
SEPARATOR = "__"

Wrong = tuple[tuple[str | int, ...], object, str]
"""A key below [mcp], its value, and what was expected."""

_ALIAS = re.compile(r"[a-z0-9][a-z0-9-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_A_COMMAND = ("env", "env_passthrough", "workspace_access", "readonly_paths", "hosts", "network")
_OF_A_URL = ("auth_token", "auth_env", "oauth", "oauth_client_id", "oauth_client_env")


class McpServerSection(Section):
    """One MCP server: [mcp.servers.<alias>]; its tools are called alias__tool."""

    command: Words = Field(
        default=(),
        description="Program and arguments of a server on its standard input and output; it runs "
        "in the sandbox. Either this or a url.",
    )
    url: str = Field(default="", description="The address of a server that speaks HTTP.")
    env: dict[str, str] = Field(
        default_factory=dict, description="command: variables of the program. No secrets here."
    )
    env_passthrough: Words = Field(
        default=(),
        description="command: variables that it gets from the environment or from systemd "
        "credentials, by name.",
    )
    workspace_access: Literal["none", "read", "write"] = Field(
        default="read", description="command: what it may do in the workspace: none, read or write."
    )
    readonly_paths: Paths = Field(
        default=(), description="command: what it may read beside the workspace and the system."
    )
    hosts: Words = Field(
        default=(),
        description='command: the hosts that it may reach, through the egress proxy: "host:port", '
        '"*.domain:port", or "*" for every public one.',
    )
    network: bool = Field(
        default=False, description='command: the same as hosts = ["*"]; write that instead.'
    )
    auth_token: SecretStr | None = Field(
        default=None,
        strict=False,
        description="url: the bearer token; accepted only from a config of mode 0600.",
    )
    auth_env: str = Field(
        default="",
        description="url: the environment variable, or systemd credential, that holds the token; "
        "auth_token wins.",
    )
    oauth: bool = Field(
        default=False, description="url: sign in by OAuth where the server asks for it."
    )
    oauth_client_id: str = Field(
        default="",
        description="url: the client id issued by the server's operator, where clients cannot "
        "register themselves.",
    )
    oauth_client_env: str = Field(
        default="",
        description="url: the environment variable, or systemd credential, that holds the secret "
        "of that client.",
    )
    mode: Literal["auto", "legacy"] = Field(
        default="auto",
        description="legacy never asks for the newest revision of the protocol first, for "
        "servers that fail on it.",
    )
    allow: Words = Field(
        default=("*",),
        description='Tools that are offered, by the server\'s own names; a name may end in "*".',
    )
    deny: Words = Field(default=(), description="Tools that are excluded nevertheless.")
    trusted: bool = Field(
        default=False, description="Trust the server where it reports that a tool only reads."
    )
    connect_timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="To connect and to learn its tools; 60 where nothing is set for a program "
        "that fetches what it runs (npx, uvx, docker, …).",
    )
    call_timeout_s: float = Field(default=60.0, gt=0, le=86_400, description="One call.")
    enabled: bool = Field(default=True, description="Whether it is connected.")

    @property
    def reached(self) -> tuple[str, ...]:
        """The hosts that it may reach; `*` for every public one."""
        named = tuple(host.lower() for host in self.hosts)
        return named or ((ANY_HOST,) if self.network else ())


class McpAutoApproveSection(Section):
    """MCP tools that run without approval where medium risk would ask."""

    tools: Words = Field(
        default=(),
        description='Names of tools as "files__read", or "files__*" for all of a server.',
    )


class McpSection(Section):
    """MCP servers, whose tools are offered in addition to the others."""

    schema_budget_tokens: int = Field(
        default=4_000,
        ge=0,
        description="What the schemas of all servers' tools may take of each request, in tokens; "
        "beyond it the largest are offered by name and one line, and of too many only some "
        "are named; tool_lookup finds the others.",
    )
    first_turn_wait_s: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="How long, after the start, turns wait for servers that are still "
        "connecting; those missing then are reported.",
    )
    max_result_bytes: int = Field(
        default=4 << 20, ge=1_024, le=256 << 20, description="The largest result of one call."
    )
    servers: dict[str, McpServerSection] = Field(default_factory=dict)
    auto_approve: McpAutoApproveSection = McpAutoApproveSection()


def wrong_values(section: dict[str, Any]) -> Iterator[Wrong]:
    """Return what of an untyped [mcp] the schema cannot say; values of a wrong type are left out.

    Variables and paths in it have been filled in.
    """
    found = section.get("servers")
    servers = found if isinstance(found, dict) else {}
    for alias, server in servers.items():
        yield from _alias(alias)
        if isinstance(server, dict):
            yield from _server(("servers", alias), server)
    approve = section.get("auto_approve")
    tools = approve.get("tools") if isinstance(approve, dict) else None
    for index, entry in _texts(tools):
        if expected := _expected_of_entry(entry, list(servers)):
            yield ("auto_approve", "tools", index), entry, expected


def _alias(alias: str) -> Iterator[Wrong]:
    if not _ALIAS.fullmatch(alias) or len(alias) > ALIAS_LIMIT:
        yield (
            ("servers", alias),
            {},
            f"an alias of a-z, 0-9 and -, at most {ALIAS_LIMIT} characters, as files or git-hub",
        )


def _server(at: tuple[str, ...], server: dict[str, Any]) -> Iterator[Wrong]:
    command, url = server.get("command"), server.get("url")
    if bool(command) == bool(url):
        yield at, {}, "either a command or a url" + (", not both" if url else "")
    elif isinstance(url, str) and url:
        yield from _url(at, url)
        yield from _foreign(at, server, _OF_A_COMMAND, "for a server with a command only")
    else:
        yield from _command(at, command)
        yield from _foreign(at, server, _OF_A_URL, "for a server with a url only")
    yield from _variables(at, server)
    for index, host in _texts(server.get("hosts")):
        if not is_listed_form(host, any_host=True):
            expected = 'host:port, as api.example.org:443, *.domain:port, or "*"'
            yield (*at, "hosts", index), host, expected
    for key in ("allow", "deny"):
        for index, pattern in _texts(server.get(key)):
            if not pattern or "*" in pattern[:-1]:
                yield (*at, key, index), pattern, 'a name of a tool, or one that ends in "*"'


def _foreign(
    at: tuple[str, ...], server: dict[str, Any], keys: tuple[str, ...], why: str
) -> Iterator[Wrong]:
    for key in keys:
        # What stands there as built in says nothing, so it does no harm.
        default = McpServerSection.model_fields[key].get_default(call_default_factory=True)
        value = server.get(key)
        plain = tuple(value) if isinstance(value, list) else value
        if value is not None and plain != default:
            yield (*at, key), value, f"nothing: it is {why}"


def _command(at: tuple[str, ...], command: object) -> Iterator[Wrong]:
    words = dict(_texts(command))
    program = words.get(0, "")
    if 0 in words and (not program or ("/" in program and not program.startswith("/"))):
        yield (
            (*at, "command", 0),
            program,
            "a program by its name, as npx, or by an absolute path",
        )
    for index, word in words.items():
        if "\0" in word:
            yield (*at, "command", index), word, "text without zero bytes"


def _url(at: tuple[str, ...], url: str) -> Iterator[Wrong]:
    expected = "a URL like https://mcp.example.org/mcp"
    try:
        parts = urlsplit(url)
        host, user, _port = parts.hostname, parts.username, parts.port
    except ValueError as error:
        yield (*at, "url"), url, f"{expected} ({error})"
        return
    if parts.scheme not in {"http", "https"} or not host:
        yield (*at, "url"), url, expected
    elif user is not None:
        yield (*at, "url"), url, f"{expected}, no name or password in it; see auth_env"


def _variables(at: tuple[str, ...], server: dict[str, Any]) -> Iterator[Wrong]:
    env = server.get("env")
    for name, value in env.items() if isinstance(env, dict) else ():
        if not _VARIABLE.fullmatch(name):
            yield (*at, "env", name), value, "a name of a variable, of letters, digits and _"
        elif isinstance(value, str) and "\0" in value:
            yield (*at, "env", name), value, "text without zero bytes"
    for index, name in _texts(server.get("env_passthrough")):
        if not _VARIABLE.fullmatch(name):
            yield (*at, "env_passthrough", index), name, "a name of a variable, as GITHUB_TOKEN"
    auth = server.get("auth_env")
    if isinstance(auth, str) and auth and ("/" in auth or "\0" in auth or "=" in auth):
        yield (*at, "auth_env"), auth, "a name of a variable or credential, as GITHUB_TOKEN"


def _expected_of_entry(entry: str, known: list[str]) -> str:
    """Return what an entry of auto_approve should be; "" where nothing is wrong."""
    alias, separator, tool = entry.partition(SEPARATOR)
    if not separator or not tool or (tool != "*" and "*" in tool) or "*" in alias:
        return 'a tool as "files__read", or "files__*" for all of a server'
    if alias not in known:
        listed = ", ".join(known) or "none"
        return f"a tool of a server of [mcp.servers]; known are {listed}"
    return ""


def _texts(values: object) -> Iterator[tuple[int, str]]:
    if isinstance(values, list | tuple):
        for index, value in enumerate(values):
            if isinstance(value, str):
                yield index, value
