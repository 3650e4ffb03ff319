"""The MCP servers of a configuration: their settings, secrets filled in, and what connects them."""

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from clawd.config.load import Loaded
from clawd.config.mcp import McpServerSection
from clawd.config.secrets import mcp_client_secret, mcp_token, mcp_variables
from clawd.errors import ConfigError
from clawd.mcp.catalogue import CatalogueRules
from clawd.mcp.directory import ServerDirectory, WantedServers
from clawd.mcp.model import FETCHERS, FETCHERS_LIMIT_S, RemoteServers, ServerSettings
from clawd.mcp.pins import PinFile
from clawd.mcp.supervisor import Servers
from clawd.mcp.tools import McpTool
from clawd.paths import Layout
from clawd.security.sandbox.run import Sandbox
from clawd.tools.call_hosts import ReachSettings
from clawd.tools.session_files import SessionStore

DISABLED = "it is switched off in the config (enabled = false)"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_log = logging.getLogger(__name__)


class McpTools:
    """The MCP servers of a daemon, by its configuration.

    Args:
        servers: makes connections and calls.
        layout: says where it is kept what was seen of tools.
        environ: what secrets and variables are taken from.
        sessions: keeps results that are no text.

    Attributes:
        directory: the servers.
    """

    def __init__(
        self,
        servers: RemoteServers,
        *,
        layout: Layout,
        environ: Mapping[str, str],
        sessions: SessionStore | None,
    ) -> None:
        self._environ = environ
        self.directory = ServerDirectory(servers, PinFile(layout.mcp_pins), sessions)

    async def open(self, loaded: Loaded, on_tools: Callable[[], None]) -> None:
        """Begin to connect, and wait for none; `on_tools` is told when there are other tools."""
        await self.directory.open(self._wanted(loaded), on_tools)

    async def adopt(self, loaded: Loaded) -> None:
        """Take another configuration."""
        await self.directory.adopt(self._wanted(loaded))

    def health(self) -> dict[str, bool]:
        """Return by name whether each server that is wanted can be called."""
        states = self.directory.states()
        return {state.alias: state.link == "ready" for state in states if state.link != "off"}

    async def close(self) -> None:
        """End all connections."""
        await self.directory.close()

    def tools(
        self, loaded: Loaded, taken: Collection[str], *, is_in_force: bool
    ) -> tuple[McpTool, ...]:
        """Return the tools whose names are not taken, to be called or to be judged only.

        Args:
            loaded: the configuration.
            taken: names that other tools have.
            is_in_force: it is the configuration in force.
        """
        rules = None if is_in_force else wanted_of(loaded, self._environ).rules
        return self.directory.tools(taken, rules)

    def _wanted(self, loaded: Loaded) -> WantedServers:
        wanted = wanted_of(loaded, self._environ)
        for alias, problem in wanted.problems.items():
            _log.info("an MCP server is not started: %s", problem, extra={"server": alias})
        for alias, server in wanted.rules.servers.items():
            if server.token and _is_in_the_open(server.url):
                _log.warning(
                    "the token of an MCP server crosses the network unencrypted, use https",
                    extra={"server": alias},
                )
        for alias, section in loaded.config.mcp.servers.items():
            if section.network:
                _log.warning(
                    'network = true of an MCP server is old: it means hosts = ["*"], every public '
                    "host by the egress proxy, and no longer this machine's own network",
                    extra={"server": alias},
                )
        return wanted


def make_servers(
    sandbox: Sandbox, folder: Path, is_stopped: Callable[[], bool], ways: ReachSettings
) -> RemoteServers:
    """Return what connects the servers of a daemon; there are none before it adopts some.

    Args:
        sandbox: starts those on standard input and output.
        folder: of the home, for tokens and what servers print on standard error.
        is_stopped: whether the emergency stop is set.
        ways: what leads their programs out.
    """
    return Servers((), sandbox=sandbox, folder=folder, is_stopped=is_stopped, ways=ways)


def wanted_of(loaded: Loaded, environ: Mapping[str, str]) -> WantedServers:
    """Return what a configuration wants of MCP; a server whose secret is missing is a problem."""
    servers: dict[str, ServerSettings] = {}
    problems: dict[str, str] = {}
    for alias, section in loaded.config.mcp.servers.items():
        if not section.enabled:
            problems[alias] = DISABLED
            continue
        try:
            token = mcp_token(alias, section, environ)
            secret = mcp_client_secret(alias, section, environ)
            variables = mcp_variables(alias, section, environ)
        except ConfigError as error:
            problems[alias] = "; ".join(filter(None, (error.message, error.hint)))
            continue
        found = _settings(alias, section, loaded, token=token, variables=variables)
        servers[alias] = msgspec.structs.replace(found, oauth_client_secret=secret)
    budget = loaded.config.mcp.schema_budget_tokens
    return WantedServers(
        rules=CatalogueRules(servers=servers, budget_tokens=budget),
        problems=problems,
        wait_s=loaded.config.mcp.first_turn_wait_s,
    )


def _settings(
    alias: str,
    section: McpServerSection,
    loaded: Loaded,
    *,
    token: str,
    variables: Mapping[str, str],
) -> ServerSettings:
    mcp = loaded.config.mcp
    return ServerSettings(
        alias=alias,
        command=section.command,
        env={**section.env, **variables},
        workspace=str(loaded.config.workspace_dir.resolve()),
        workspace_access=section.workspace_access,
        readonly_paths=tuple(map(str, section.readonly_paths)),
        hosts=section.reached,
        url=section.url,
        token=token,
        oauth=section.oauth,
        oauth_client_id=section.oauth_client_id,
        mode=section.mode,
        allow=section.allow,
        deny=section.deny,
        trusted=section.trusted,
        auto_approve=mcp.auto_approve.tools,
        connect_timeout_s=_connect_limit_s(section),
        call_timeout_s=section.call_timeout_s,
        max_result_bytes=mcp.max_result_bytes,
    )


def _connect_limit_s(section: McpServerSection) -> float:
    is_set = "connect_timeout_s" in section.model_fields_set
    fetches = bool(section.command) and Path(section.command[0]).name in FETCHERS
    return FETCHERS_LIMIT_S if fetches and not is_set else section.connect_timeout_s


def _is_in_the_open(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in _LOOPBACK
