"""The tools of a daemon: what a configuration and its policy want, made from the parts."""

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from clawd.config.load import Loaded
from clawd.errors import InvalidRequestError, StorageError
from clawd.memory.changes import Changes
from clawd.memory.knowledge.store import Knowledge
from clawd.memory.store import Memory
from clawd.memory.tools import MemorySearch, knowledge_tools
from clawd.paths import Layout
from clawd.plugins.loader import InstalledPlugin, PluginPins, PluginStore
from clawd.plugins.process import plugin_tools
from clawd.runtime.helpers import Delegate, Helpers
from clawd.security.network import NetworkRules
from clawd.security.policy import PolicySettings
from clawd.security.sandbox.run import Sandbox
from clawd.security.taint import TaintBook
from clawd.service.mcp import McpTools
from clawd.skills.store import SkillStore
from clawd.skills.tools import SkillRead
from clawd.tools.base import Tool
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.merge import MergeTool
from clawd.tools.builtin.pdf_extract import ALL_PAGES, PdfText, read_pdf
from clawd.tools.builtin.transfer import TransferFailure, get
from clawd.tools.external import (
    Found,
    ManifestProblem,
    Places,
    external_tool,
    read_folder,
    without_collisions,
)
from clawd.tools.external_manifest import ExternalSpec, ManifestRules
from clawd.tools.jobs import Jobs
from clawd.tools.offer import ToolLookup
from clawd.tools.registry import FACADES
from clawd.tools.session_files import SessionAccess
from clawd.wire.pictures import MAX_PICTURE_BYTES
from clawd.wire.skills import SkillKind

# The tools that others wrote: external tools and plugins as held between two reloads, and MCP.

_log = logging.getLogger(__name__)


class Additions:
    """Reads manifests and plugins when told to, and makes tools of what it read last.

    Args:
        sandbox: runs the programs.
        environ: what variables are passed on from.
        layout: says where plugins lie.
        mcp: the tools of MCP servers, which come and go between reloads.
        definitions: the skills and agents of the home and of workspaces.

    Attributes:
        sandbox: runs the programs.
        plugins: what is installed.
        mcp: the tools of MCP servers.
        definitions: the stores by kind.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        environ: Mapping[str, str],
        layout: Layout,
        mcp: McpTools,
        definitions: Mapping[SkillKind, SkillStore],
    ) -> None:
        self.mcp = mcp
        self.definitions = definitions
        self.sandbox = sandbox
        self._environ = environ
        self.plugins = PluginStore(layout.plugins, PluginPins(layout.plugin_pins))
        self._reading = asyncio.Lock()
        self._external = Found()
        self._ready: tuple[InstalledPlugin, ...] = ()
        self._plugin_problems: tuple[ManifestProblem, ...] = ()
        self._most_s = 0.0

    async def refresh(self, loaded: Loaded) -> None:
        """Read everything again; who comes later reads later."""
        async with self._reading:
            found = await asyncio.to_thread(_read, loaded, self.plugins)
            self._external, self._ready, self._plugin_problems = found
            self._most_s = loaded.config.limits.tool_timeout_s
        for problem in (*self._external.problems, *self._plugin_problems):
            _log.warning(
                "a tool of others: %s",
                problem.reason,
                extra={"file": problem.file, "line": problem.line, "severity": problem.severity},
            )

    def tools(self, taken: Collection[str]) -> list[Tool]:
        """Return the tools whose name is not taken."""
        return self._chosen(taken)[0]

    def problems(self, taken: Collection[str]) -> tuple[ManifestProblem, ...]:
        """Return what was left out and what is doubtful, where these names are taken."""
        return self._chosen(taken)[1]

    def _chosen(self, taken: Collection[str]) -> tuple[list[Tool], tuple[ManifestProblem, ...]]:
        external = without_collisions(self._external, taken)
        tools: list[Tool] = [
            external_tool(spec, sandbox=self.sandbox, environ=self._environ, most_s=self._most_s)
            for spec in external.specs
        ]
        problems = [*external.problems, *self._plugin_problems, *self._shortened(external.specs)]
        problems += [_old(spec) for spec in external.specs if spec.is_old]
        names = {*taken, *(tool.name for tool in tools)}
        for plugin in self._ready:
            for tool in plugin_tools(plugin, sandbox=self.sandbox, most_s=self._most_s):
                if tool.name in names:
                    reason = f"another tool is called `{tool.name}` already"
                    problems.append(
                        ManifestProblem(file=str(plugin.folder), reason=reason, tool=tool.name)
                    )
                    continue
                names.add(tool.name)
                tools.append(tool)
        return tools, tuple(problems)

    def _shortened(self, specs: Sequence[ExternalSpec]) -> Iterator[ManifestProblem]:
        """Yield a warning for each tool whose manifest wants more time than any call may take."""
        wanted = [(str(spec.file), spec.name, spec.timeout_ms) for spec in specs]
        for plugin in self._ready:
            tools = plugin.manifest.tools if plugin.manifest is not None else ()
            wanted += [(str(plugin.folder), tool.name, tool.timeout_ms) for tool in tools]
        for file, name, timeout_ms in wanted:
            if timeout_ms > 1000 * self._most_s:
                reason = (
                    f"timeout_ms is {timeout_ms}; calls are ended after {self._most_s:g} s, "
                    "which tool_timeout_s in [limits] sets for all tools"
                )
                yield ManifestProblem(file=file, reason=reason, tool=name, severity="warning")


def _old(spec: ExternalSpec) -> ManifestProblem:
    """Return a warning about a manifest that asks for the network as such."""
    reason = (
        '`network` is old: it means "hosts": ["*"], every public host by the egress proxy, and no '
        "longer this machine's own network"
    )
    return ManifestProblem(file=str(spec.file), reason=reason, tool=spec.name, severity="warning")


def _read(
    loaded: Loaded, store: PluginStore
) -> tuple[Found, tuple[InstalledPlugin, ...], tuple[ManifestProblem, ...]]:
    """Return the external tools, the plugins that may run, and what is wrong with the others."""
    config, external, found = loaded.config, Found(), []
    if config.external_tools.enabled:
        external = read_folder(config.external_tools.dir, _places(loaded))
    try:
        found = store.installed() if config.plugins.enabled else []
    except StorageError as error:
        return external, (), (ManifestProblem(file="plugins", reason=error.message),)
    problems = (
        ManifestProblem(file=str(each.folder), reason=f"the plugin is {each.state}: {each.reason}")
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


class _HeldTools(msgspec.Struct, frozen=True, kw_only=True):
    """Tools of a program that holds the daemon; `alone` leaves all others out."""

    tools: tuple[Tool, ...] = ()
    alone: bool = False


class Toolset:
    """Makes the tools, at the start, at a reload and for judging under another policy.

    Args:
        memory: what tools search, and keep session files in.
        changes: keeps what file tools change.
        knowledge: what tools note down.
        taint: what is known of conversations.
        additions: the tools that others wrote.
        jobs: keeps commands that take long.

    Attributes:
        beside: clawd's own tools of parts that are made after it.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        changes: Changes,
        knowledge: Knowledge,
        taint: TaintBook,
        additions: Additions,
        jobs: Jobs,
    ) -> None:
        self._memory = memory
        self.beside: tuple[Tool, ...] = ()
        self._jobs = jobs
        self._changes = changes
        self._knowledge = knowledge
        self._taint = taint
        self._additions = additions
        self._own_names: frozenset[str] = frozenset()
        self._held = _HeldTools()
        self.helpers = Helpers(additions.definitions["agent"], jobs=jobs)

    def hold(self, tools: Sequence[Tool], *, alone: bool) -> _HeldTools:
        """Take tools of the program that holds the daemon; return those that they replace."""
        former, self._held = self._held, _HeldTools(tools=tuple(tools), alone=alone)
        return former

    async def refresh(self, loaded: Loaded) -> None:
        """Read the tools that others wrote again; `tools` then returns them.

        What tools may keep beside a conversation is limited anew as well.
        """
        self._memory.session_files.limits = loaded.config.session_files
        await self._additions.refresh(loaded)

    @property
    def plugins(self) -> PluginStore:
        """What is installed, whether it may run or not."""
        return self._additions.plugins

    @property
    def problems(self) -> tuple[ManifestProblem, ...]:
        """What of the tools that others wrote was left out, and what is doubtful."""
        return self._additions.problems(self._own_names)

    def tools(
        self, loaded: Loaded, policy: PolicySettings, taint: TaintBook | None = None
    ) -> list[Tool]:
        """Return the tools as a configuration and its policy want them.

        Args:
            loaded: the configuration.
            policy: what the owner allows.
            taint: judge by another book than the daemon's.
        """
        if self._held.alone:
            return list(self._held.tools)
        config, deps = loaded.config, self._deps(loaded, policy)
        book = taint or self._taint
        notes = knowledge_tools(self._knowledge, book) if config.knowledge.enabled else []
        own = [
            *builtin_tools(deps),
            MemorySearch(self._memory.search),
            ToolLookup(),
            SkillRead(self._additions.definitions["skill"]),
            *self.beside,
            *notes,
            *self._held.tools,
        ]
        if config.agent.helpers:
            agent = config.agent
            copies, most = agent.helper_copies, agent.helpers
            own += [
                Delegate(self.helpers, most, agent.helper_tokens, gives_copies=copies),
                MergeTool(deps, self.helpers.pending),
            ]
        for tool in own:
            tool.timeout_s = tool.timeout_s or config.limits.tool_timeout_s
        names = (name for tool in own for name in (tool.name, *tool.aliases))
        self._own_names = frozenset((*names, *FACADES))
        others = self._additions.tools(self._own_names)
        taken = {*self._own_names, *(tool.name for tool in others)}
        return [*own, *others, *self._additions.mcp.tools(loaded, taken, is_in_force=taint is None)]

    async def picture_at(self, url: str, loaded: Loaded, policy: PolicySettings) -> bytes:
        """Return what is at an address of a picture, by the rules for tools of the web.

        Raises:
            ClawError: the address is refused, or nothing of that size is to be had there.
        """
        deps = self._deps(loaded, policy)
        answer = await get(url, deps, max_bytes=MAX_PICTURE_BYTES)
        if isinstance(answer, TransferFailure):
            raise InvalidRequestError(f"a picture could not be fetched: {answer.message}")
        if answer.is_cut:
            raise InvalidRequestError(f"{answer.target.url} has over {MAX_PICTURE_BYTES} bytes")
        return answer.body

    async def pdf_text(self, data: bytes, loaded: Loaded, policy: PolicySettings) -> PdfText:
        """Return what is in a PDF that goes with a message.

        Raises:
            InvalidRequestError: it is too large.
            SandboxUnavailableError: there is no sandbox of the required level here.
        """
        if len(data) > (limit := loaded.config.web.max_pdf_bytes):
            raise InvalidRequestError(
                f"a PDF of {len(data)} bytes is too large; max_pdf_bytes in [web] is {limit}"
            )
        return await read_pdf(data, ALL_PAGES, self._deps(loaded, policy))

    def _deps(self, loaded: Loaded, policy: PolicySettings) -> BuiltinDeps:
        """Return what the built-in tools are given."""
        config = loaded.config
        return BuiltinDeps(
            policy=policy,
            home=loaded.layout.home,
            sandbox=self._additions.sandbox,
            changes=self._changes,
            copies=self.helpers.copies,
            plans=self._memory.plans,
            sessions=SessionAccess(
                store=self._memory.session_files, room_bytes=config.limits.max_tool_output_bytes
            ),
            network=NetworkRules(
                allowed_domains=policy.allowed_domains,
                allowed_addresses=config.security.allowed_addresses,
            ),
            web=config.web,
            jobs=self._jobs,
            shell_timeout_s=config.limits.shell_timeout_s,
            max_command_s=config.limits.max_command_s,
            tool_timeout_s=config.limits.tool_timeout_s,
            http_timeout_s=config.limits.http_timeout_s,
        )
