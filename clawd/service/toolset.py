"""The tools of a daemon: what a configuration and its policy want, made from the parts."""

from clawd.config.load import Loaded
from clawd.memory.changes import Changes
from clawd.memory.store import Memory
from clawd.memory.tools import MemorySearch
from clawd.security.network import NetworkRules
from clawd.security.policy import PolicySettings
from clawd.security.sandbox import Sandbox
from clawd.tools.base import Tool
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps


class Toolset:
    """Makes the tools, at the start, at a reload and for judging under another policy.

    Args:
        memory: what tools search.
        sandbox: runs commands.
        changes: keeps what file tools change.
    """

    def __init__(self, memory: Memory, *, sandbox: Sandbox, changes: Changes) -> None:
        self._memory = memory
        self._sandbox = sandbox
        self._changes = changes

    def tools(self, loaded: Loaded, policy: PolicySettings) -> list[Tool]:
        """Return the tools as a configuration and its policy want them."""
        config = loaded.config
        deps = BuiltinDeps(
            policy=policy,
            home=loaded.layout.home,
            sandbox=self._sandbox,
            changes=self._changes,
            plans=self._memory.plans,
            network=NetworkRules(
                allowed_domains=policy.allowed_domains,
                allowed_addresses=config.security.allowed_addresses,
            ),
            shell_timeout_s=config.limits.shell_timeout_s,
            tool_timeout_s=config.limits.tool_timeout_s,
            http_timeout_s=config.limits.http_timeout_s,
        )
        return [*builtin_tools(deps), MemorySearch(self._memory.search)]
