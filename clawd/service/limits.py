"""What a configuration says to the parts that hold calls, files and memory within bounds."""

import os
from collections.abc import Callable

from clawd.config.load import Loaded
from clawd.config.schema import SandboxMode
from clawd.memory.changes import ChangeLimits
from clawd.memory.upkeep import KeepLimits
from clawd.paths import Layout, user_home
from clawd.security.network import NetworkRules
from clawd.security.peer import ADMIN_GROUP, USER_GROUP, PeerPolicy, group_id
from clawd.security.sandbox.limits import ToolsCgroup
from clawd.security.sandbox.plan import ResourceLimits
from clawd.security.sandbox.run import SandboxSettings
from clawd.service.state import forbidden_paths_of
from clawd.tools.audit import DispatchSettings
from clawd.tools.call_hosts import ReachSettings
from clawd.tools.changes import CommandLog
from clawd.tools.outcome import CallOutcome
from clawd.tools.session_files import SessionStore


def peer_policy_of(layout: Layout, tools: ToolsCgroup | None) -> PeerPolicy:
    """Return who may talk to a daemon of this layout, but nobody in the cgroup of its tools."""
    return PeerPolicy(
        mode="system" if layout.is_system else "user",
        owner_uid=os.geteuid(),
        user_gid=group_id(USER_GROUP),
        admin_gid=group_id(ADMIN_GROUP),
        tools_cgroup=tools.name if tools is not None else "",
    )


def sandbox_settings_of(
    loaded: Loaded, *, mode: SandboxMode, tools_cgroup: ToolsCgroup | None
) -> SandboxSettings:
    """Return the sandbox's part of a configuration.

    Args:
        loaded: the configuration.
        mode: the one that the daemon was started with.
        tools_cgroup: where what tools start is put.
    """
    config = loaded.config
    return SandboxSettings(
        mode=mode,
        home=loaded.layout.home,
        forbidden_paths=forbidden_paths_of(loaded),
        limits=ResourceLimits(
            disk_bytes=config.limits.max_command_disk_bytes,
            cpu_s=max(ResourceLimits().cpu_s, int(config.limits.max_command_s)),
        ),
        writable_run_later=config.security.writable_run_later,
        tools_cgroup=tools_cgroup,
        toolchains=config.sandbox.toolchains,
        person=user_home(os.environ),
        caches=loaded.layout.cache / "projects" if config.sandbox.cache_mb else None,
        cache_bytes=config.sandbox.cache_mb << 20,
    )


def dispatch_settings_of(
    loaded: Loaded,
    sandbox_level: str,
    sessions: SessionStore,
    commands: CommandLog,
    count: Callable[[str, CallOutcome], None],
    reach: ReachSettings,
) -> DispatchSettings:
    """Return dispatch's part of a configuration; `count` is told of every call."""
    config = loaded.config
    return DispatchSettings(
        sandbox_level=sandbox_level,
        output_limit_bytes=config.limits.max_tool_output_bytes,
        audit_log=config.security.audit_log,
        sessions=sessions,
        commands=commands,
        count=count,
        reach=reach,
    )


def change_limits_of(loaded: Loaded) -> ChangeLimits:
    """Return how much is kept for undo."""
    limits = loaded.config.limits
    return ChangeLimits(max_bytes=limits.undo_mb << 20, max_age_days=limits.undo_days)


def command_limit_of(loaded: Loaded) -> int:
    """Return how many bytes of workspaces are kept so that undo covers commands."""
    limits = loaded.config.limits
    return limits.undo_commands_mb << 20 if limits.undo_mb else 0


def hidden_paths_of(loaded: Loaded) -> frozenset[str]:
    """Return the paths that no command sees, resolved: no look for undo goes there either."""
    hidden = (*forbidden_paths_of(loaded), loaded.layout.home)
    return frozenset(str(path.expanduser().resolve()) for path in hidden)


def keep_limits_of(loaded: Loaded) -> KeepLimits:
    """Return how much memory keeps, and how long."""
    memory = loaded.config.memory
    return KeepLimits(max_age_days=memory.retention_days, max_bytes=memory.quota_mb << 20)


def network_rules_of(loaded: Loaded) -> NetworkRules:
    """Return where the tools of the web and the processes of calls may go."""
    security = loaded.config.security
    return NetworkRules(
        allowed_domains=security.allowed_domains, allowed_addresses=security.allowed_addresses
    )
