"""The tools of a daemon: what a configuration and its policy want, made from the parts."""

from collections.abc import Sequence

import msgspec

from clawd.config.load import Loaded
from clawd.memory.changes import Changes
from clawd.memory.knowledge.store import Knowledge
from clawd.memory.knowledge.tools import knowledge_tools
from clawd.memory.store import Memory
from clawd.memory.tools import MemorySearch
from clawd.plugins.loader import PluginStore
from clawd.security.network import NetworkRules
from clawd.security.policy import PolicySettings
from clawd.security.sandbox import Sandbox
from clawd.security.taint import TaintBook
from clawd.service.additions import Additions
from clawd.service.state import session_limits_of
from clawd.tools.base import Tool
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps, WebSettings
from clawd.tools.external_folder import Problem
from clawd.tools.facades import FACADES
from clawd.tools.lookup import ToolLookup
from clawd.tools.session_files import SessionAccess


class HeldTools(msgspec.Struct, frozen=True, kw_only=True):
    """Tools of a program that holds the daemon; `alone` leaves all others out."""

    tools: tuple[Tool, ...] = ()
    alone: bool = False


class Toolset:
    """Makes the tools, at the start, at a reload and for judging under another policy.

    Args:
        memory: what tools search, and keep session files in.
        sandbox: runs commands.
        changes: keeps what file tools change.
        knowledge: what tools note down.
        taint: what is known of conversations.
        additions: the tools that others wrote.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        sandbox: Sandbox,
        changes: Changes,
        knowledge: Knowledge,
        taint: TaintBook,
        additions: Additions,
    ) -> None:
        self._memory = memory
        self._sandbox = sandbox
        self._changes = changes
        self._knowledge = knowledge
        self._taint = taint
        self._additions = additions
        self._own_names: frozenset[str] = frozenset()
        self._held = HeldTools()

    def hold(self, tools: Sequence[Tool], *, alone: bool) -> HeldTools:
        """Take tools of the program that holds the daemon; return those that they replace."""
        former, self._held = self._held, HeldTools(tools=tuple(tools), alone=alone)
        return former

    async def refresh(self, loaded: Loaded) -> None:
        """Read the tools that others wrote again; `tools` then returns them.

        What tools may keep beside a conversation is limited anew as well.
        """
        self._memory.session_files.limits = session_limits_of(loaded)
        await self._additions.refresh(loaded)

    @property
    def plugins(self) -> PluginStore:
        """What is installed, whether it may run or not."""
        return self._additions.plugins

    @property
    def problems(self) -> tuple[Problem, ...]:
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
        config = loaded.config
        deps = BuiltinDeps(
            policy=policy,
            home=loaded.layout.home,
            sandbox=self._sandbox,
            changes=self._changes,
            plans=self._memory.plans,
            sessions=SessionAccess(
                store=self._memory.session_files, room_bytes=config.limits.max_tool_output_bytes
            ),
            network=NetworkRules(
                allowed_domains=policy.allowed_domains,
                allowed_addresses=config.security.allowed_addresses,
            ),
            web=WebSettings(**config.web.model_dump()),
            shell_timeout_s=config.limits.shell_timeout_s,
            tool_timeout_s=config.limits.tool_timeout_s,
            http_timeout_s=config.limits.http_timeout_s,
        )
        book = taint or self._taint
        notes = knowledge_tools(self._knowledge, book) if config.knowledge.enabled else []
        own = [
            *builtin_tools(deps),
            MemorySearch(self._memory.search),
            ToolLookup(),
            *notes,
            *self._held.tools,
        ]
        for tool in own:
            tool.timeout_s = tool.timeout_s or config.limits.tool_timeout_s
        names = (name for tool in own for name in (tool.name, *tool.aliases))
        self._own_names = frozenset((*names, *FACADES))
        others = self._additions.tools(self._own_names)
        taken = {*self._own_names, *(tool.name for tool in others)}
        return [*own, *others, *self._additions.mcp.tools(loaded, taken, is_in_force=taint is None)]
