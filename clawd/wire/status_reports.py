"""The report on the daemon itself.

It stands apart from the others because `clawctl status` loads nothing else: each struct costs a
one-shot command some 50 microseconds.
"""

import msgspec


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One loaded model; `fence` is what holds its worker, as `landlock+seccomp`, none or off."""

    alias: str
    pid: int
    state: str
    running: int = 0
    context_size: int = 0
    fence: str = ""


class ServerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One MCP server: `link` as in `mcp_reports.McpServerLine`, and what is wrong, if anything."""

    alias: str
    link: str
    tools: int = 0
    problem: str = ""


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon is and does.

    `gateway` is where the HTTP gateway listens, empty where it does not.
    `found_at_start` are sentences: a crash before this start, and what was put right after it.
    `problem` says why it cannot do its work, though it answers; empty while it can.
    `restored` says which backup the home came from, empty where it did not.
    `reload_refused` is why the config on disk is not in force; empty where it was not refused.
    `sandbox_layers` names what holds a command, `sandbox_unbounded` what nothing here limits.
    `servers` are the MCP servers in the order of the config.
    """

    pid: int
    version: str
    home: str
    socket: str
    workspace: str
    config: str
    started_at: str
    uptime_s: float
    autonomy: str
    sandbox: str
    sandbox_reason: str
    estop: bool
    estop_reason: str
    default_provider: str
    default_model: str
    receipts_enabled: bool
    receipts: int
    receipts_head: str
    receipts_problem: str
    problem: str = ""
    conversations: int
    turns_running: int
    turns_queued: int
    approvals_pending: int
    rules: int = 0
    rules_problem: str = ""
    workers: tuple[WorkerLine, ...] = ()
    sandbox_layers: tuple[str, ...] = ()
    sandbox_unbounded: tuple[str, ...] = ()
    gateway: str = ""
    found_at_start: tuple[str, ...] = ()
    restored: str = ""
    reload_refused: str = ""
    servers: tuple[ServerLine, ...] = ()
