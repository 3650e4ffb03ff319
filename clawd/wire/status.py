"""The method that reports on the daemon, and its report; see `wire.methods`."""

import msgspec

from clawd.wire.method import Method

# The report on the daemon itself.
#
# It stands apart from the others because `clawctl status` loads nothing else: each struct costs a
# one-shot command some 50 microseconds.


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One loaded model; `fence` is what holds its worker, as `landlock+seccomp`, none or off."""

    alias: str
    pid: int
    state: str
    running: int = 0
    context_size: int = 0
    fence: str = ""


class ServerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One MCP server: `link` as in `mcp.McpServerLine`, and what is wrong, if anything."""

    alias: str
    link: str
    tools: int = 0
    problem: str = ""


class MeaningLine(msgspec.Struct, frozen=True, kw_only=True):
    """How searches by meaning stand: by which model, how many messages are indexed of how many.

    `problem` says why no more are indexed; empty where nothing is wrong.
    """

    model: str
    indexed: int = 0
    messages: int = 0
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
    `meaning` tells of searches by meaning; None where the config names no model for them.
    `model` is the local model that answers where nothing else is asked for; `model_note` says
    why it is the packaged toy though it need not be, and how to get better.
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
    jobs_running: int = 0
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
    meaning: MeaningLine | None = None
    model: str = ""
    model_note: str = ""


class Status(Method[StatusReport], frozen=True, kw_only=True):
    """Report on the daemon."""
