"""What a configuration says to the parts that hold calls, files and memory within bounds."""

from collections.abc import Callable

from clawd.config.load import Loaded
from clawd.config.schema import SandboxMode
from clawd.memory.changes import ChangeLimits
from clawd.memory.upkeep import KeepLimits
from clawd.security.sandbox import SandboxSettings
from clawd.security.sandbox_cgroup import ToolsCgroup
from clawd.security.sandbox_plan import ResourceLimits
from clawd.service.state import forbidden_paths_of
from clawd.tools.outcome import CallOutcome
from clawd.tools.session_files import SessionStore
from clawd.tools.telling import DispatchSettings


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
        limits=ResourceLimits(disk_bytes=config.limits.max_command_disk_bytes),
        writable_run_later=config.security.writable_run_later,
        tools_cgroup=tools_cgroup,
    )


def dispatch_settings_of(
    loaded: Loaded,
    sandbox_level: str,
    sessions: SessionStore,
    count: Callable[[str, CallOutcome], None],
) -> DispatchSettings:
    """Return dispatch's part of a configuration; `count` is told of every call."""
    config = loaded.config
    return DispatchSettings(
        sandbox_level=sandbox_level,
        output_limit_bytes=config.limits.max_tool_output_bytes,
        audit_log=config.security.audit_log,
        sessions=sessions,
        count=count,
    )


def change_limits_of(loaded: Loaded) -> ChangeLimits:
    """Return how much is kept for undo."""
    limits = loaded.config.limits
    return ChangeLimits(max_bytes=limits.undo_mb << 20, max_age_days=limits.undo_days)


def keep_limits_of(loaded: Loaded) -> KeepLimits:
    """Return how much memory keeps, and how long."""
    memory = loaded.config.memory
    return KeepLimits(max_age_days=memory.retention_days, max_bytes=memory.quota_mb << 20)
