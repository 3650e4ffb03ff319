"""The tools that others wrote: external tools and plugins as held between two reloads, and MCP."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from clawd.config.load import Loaded
from clawd.errors import StorageError
from clawd.paths import Layout
from clawd.plugins.loader import Installed, PluginStore
from clawd.plugins.pins import Pins
from clawd.plugins.process import plugin_tools
from clawd.security.sandbox import Sandbox
from clawd.service.mcp import McpTools
from clawd.tools.base import Tool
from clawd.tools.external import external_tool
from clawd.tools.external_folder import Found, Places, Problem, read_folder, without_collisions
from clawd.tools.external_manifest import ManifestRules

_log = logging.getLogger(__name__)


class Additions:
    """Reads manifests and plugins when told to, and makes tools of what it read last.

    Args:
        sandbox: runs the programs.
        environ: what variables are passed on from.
        layout: says where plugins lie.
        mcp: the tools of MCP servers, which come and go between reloads.

    Attributes:
        plugins: what is installed.
        mcp: the tools of MCP servers.
    """

    def __init__(
        self, sandbox: Sandbox, environ: Mapping[str, str], layout: Layout, mcp: McpTools
    ) -> None:
        self.mcp = mcp
        self._sandbox = sandbox
        self._environ = environ
        self.plugins = PluginStore(layout.plugins, Pins(layout.plugin_pins))
        self._reading = asyncio.Lock()
        self._external = Found()
        self._ready: tuple[Installed, ...] = ()
        self._plugin_problems: tuple[Problem, ...] = ()

    async def refresh(self, loaded: Loaded) -> None:
        """Read everything again; who comes later reads later."""
        async with self._reading:
            found = await asyncio.to_thread(_read, loaded, self.plugins)
            self._external, self._ready, self._plugin_problems = found
        for problem in (*self._external.problems, *self._plugin_problems):
            _log.warning(
                "a tool of others: %s",
                problem.reason,
                extra={"file": problem.file, "line": problem.line, "severity": problem.severity},
            )

    def tools(self, taken: Collection[str]) -> list[Tool]:
        """Return the tools whose name is not taken."""
        return self._chosen(taken)[0]

    def problems(self, taken: Collection[str]) -> tuple[Problem, ...]:
        """Return what was left out and what is doubtful, where these names are taken."""
        return self._chosen(taken)[1]

    def _chosen(self, taken: Collection[str]) -> tuple[list[Tool], tuple[Problem, ...]]:
        external = without_collisions(self._external, taken)
        tools: list[Tool] = [
            external_tool(spec, sandbox=self._sandbox, environ=self._environ)
            for spec in external.specs
        ]
        problems = [*external.problems, *self._plugin_problems]
        names = {*taken, *(tool.name for tool in tools)}
        for plugin in self._ready:
            for tool in plugin_tools(plugin, sandbox=self._sandbox):
                if tool.name in names:
                    reason = f"another tool is called `{tool.name}` already"
                    problems.append(Problem(file=str(plugin.folder), reason=reason, tool=tool.name))
                    continue
                names.add(tool.name)
                tools.append(tool)
        return tools, tuple(problems)


def _read(
    loaded: Loaded, store: PluginStore
) -> tuple[Found, tuple[Installed, ...], tuple[Problem, ...]]:
    """Return the external tools, the plugins that may run, and what is wrong with the others."""
    config, external, found = loaded.config, Found(), []
    if config.external_tools.enabled:
        external = read_folder(config.external_tools.dir, _places(loaded))
    try:
        found = store.installed() if config.plugins.enabled else []
    except StorageError as error:
        return external, (), (Problem(file="plugins", reason=error.message),)
    problems = (
        Problem(file=str(each.folder), reason=f"the plugin is {each.state}: {each.reason}")
        for each in found
        if each.state != "ready"
    )
    return external, tuple(each for each in found if each.state == "ready"), tuple(problems)


def _places(loaded: Loaded) -> Places:
    config = loaded.config
    hidden = [path.expanduser().resolve() for path in config.security.forbidden_paths]
    keys = [section.api_key_env for section in config.providers.models.values()]
    for section in config.mcp.servers.values():
        keys += [section.auth_env, section.oauth_client_env]
    return Places(
        home=loaded.layout.home,
        writable=(config.workspace_dir, *config.security.workspace_roots),
        rules=ManifestRules(
            hidden=(*hidden, Path(loaded.layout.home).resolve()),
            workspace=config.workspace_dir,
            kept_variables=frozenset(filter(None, keys)),
        ),
    )
