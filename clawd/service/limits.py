"""What a configuration says of limits, as the parts that keep them want it."""

from clawd.config.load import Loaded
from clawd.memory.changes import ChangeLimits
from clawd.memory.upkeep import KeepLimits
from clawd.security.sandbox import Mode, SandboxSettings
from clawd.security.sandbox_cgroup import ToolsCgroup
from clawd.security.sandbox_plan import ResourceLimits
from clawd.service.state import forbidden_paths_of


def change_limits_of(loaded: Loaded) -> ChangeLimits:
    """Return how much undo keeps."""
    limits = loaded.config.limits
    return ChangeLimits(max_bytes=limits.undo_mb << 20, max_age_days=limits.undo_days)


def keep_limits_of(loaded: Loaded) -> KeepLimits:
    """Return how much memory keeps."""
    memory = loaded.config.memory
    return KeepLimits(max_age_days=memory.retention_days, max_bytes=memory.quota_mb << 20)


def sandbox_settings_of(loaded: Loaded, mode: Mode, cgroup: ToolsCgroup | None) -> SandboxSettings:
    """Return how commands are isolated; another `mode` than at the start takes a restart."""
    config = loaded.config
    return SandboxSettings(
        mode=mode,
        home=loaded.layout.home,
        forbidden_paths=forbidden_paths_of(loaded),
        limits=ResourceLimits(disk_bytes=config.limits.max_command_disk_bytes),
        writable_run_later=config.security.writable_run_later,
        tools_cgroup=cgroup,
    )
