"""Methods about the daemon: its state, stop, config, log, keys, caches; and what they report."""

from typing import Any, ClassVar, Literal

import msgspec

from clawd.wire.method import Done, Method


class Ping(Method[Done], frozen=True, kw_only=True):
    """Answer at once."""


class Reload(Method[Done], frozen=True, kw_only=True):
    """Read the config again; an invalid one is refused and the old stays."""

    admin: ClassVar[bool] = True


class Shutdown(Method[Done], frozen=True, kw_only=True):
    """Drain and end the daemon."""

    admin: ClassVar[bool] = True


class EstopReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the emergency stop is set, and why."""

    is_set: bool
    reason: str = ""


class EstopState(Method[EstopReport], frozen=True, kw_only=True):
    """Report the emergency stop."""


class SetEstop(Method[EstopReport], frozen=True, kw_only=True):
    """Set the emergency stop."""

    reason: str = ""


class ClearEstop(Method[EstopReport], frozen=True, kw_only=True):
    """Clear the emergency stop."""

    admin: ClassVar[bool] = True


class ConfigText(msgspec.Struct, frozen=True, kw_only=True):
    """The effective configuration as JSON-like data, secrets redacted."""

    path: str
    values: dict[str, Any]


class ShowConfig(Method[ConfigText], frozen=True, kw_only=True):
    """Show the effective configuration."""

    admin: ClassVar[bool] = True


class OverrideLine(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of a client's environment that the daemon does not have.

    Attributes:
        key: the config's key, dotted.
        wanted: the variable's value as TOML; hidden for a secret, as is `effective`.
        effective: the value in force as TOML; empty where there is none.
    """

    variable: str
    key: str
    wanted: str
    effective: str


class EnvironmentReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a client's environment asks for and the daemon does not have."""

    items: tuple[OverrideLine, ...]


class CompareEnvironment(Method[EnvironmentReport], frozen=True, kw_only=True):
    """Say which of the client's variables `CLAWD_SECTION__KEY` ask for what is not in force.

    A daemon keeps the environment that it was started with.
    """

    variables: dict[str, str]


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


class MetricSample(msgspec.Struct, frozen=True, kw_only=True):
    """One number."""

    value: float
    labels: dict[str, str] = {}


class MetricSpread(msgspec.Struct, frozen=True, kw_only=True):
    """How many values there were up to each bound (`buckets`: bound and count), and in all."""

    count: int
    sum: float
    buckets: tuple[tuple[float, int], ...]
    labels: dict[str, str] = {}


class MetricFamily(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers of one name. A counter and a gauge have samples, a histogram has spreads."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[MetricSample, ...] = ()
    spreads: tuple[MetricSpread, ...] = ()


class MetricsReport(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers, by name. Counters begin at the start of the daemon."""

    families: tuple[MetricFamily, ...]


class ShowMetrics(Method[MetricsReport], frozen=True, kw_only=True):
    """Show what the daemon counts and measures: sums over everybody, nobody's contents."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: when (UTC, ISO 8601), `level` in lower case, and the text that the log has."""

    at: str
    level: str
    logger: str
    text: str


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, oldest first, and the cursor for what comes after them.

    `missed` counts entries after the cursor given that were not kept so long.
    """

    items: tuple[LogLine, ...]
    cursor: str
    missed: int = 0


class TailLog(Method[LogPage], frozen=True, kw_only=True):
    """Return the newest lines of the log, or with the cursor of a page before, what came since.

    The daemon keeps a bounded number of lines since it began; secrets are replaced in them.
    """

    admin: ClassVar[bool] = True
    cursor: str = ""
    limit: int = 100


class KeyLine(msgspec.Struct, frozen=True, kw_only=True):
    """One key; times are UTC, empty for never."""

    id: str
    name: str
    owner: int
    scopes: tuple[str, ...]
    created_at: str
    expires_at: str = ""
    used_at: str = ""
    is_expired: bool = False


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was made: the only time that its text is told."""

    key: str
    line: KeyLine


class CreateKey(Method[NewKey], frozen=True, kw_only=True):
    """Make a key that acts as the caller; `days` is how long it works, 0 for ever.

    `scopes` are some of models, chat, tools and admin; the last is for admins only.
    """

    name: str = ""
    scopes: tuple[str, ...] = ("models",)
    days: int = 0


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """The keys, oldest first."""

    items: tuple[KeyLine, ...]


class ListKeys(Method[KeyList], frozen=True, kw_only=True):
    """List the caller's keys; an admin sees all."""


class RevokeKey(Method[Done], frozen=True, kw_only=True):
    """Take a key out of force, by its id or its name."""

    key: str


class PageLink(msgspec.Struct, frozen=True, kw_only=True):
    """An address that opens the page.

    `expires_in_s` is how long its one-time login holds, 0 where the page asks for no key.
    """

    url: str
    expires_in_s: float = 0.0


class LinkPage(Method[PageLink], frozen=True, kw_only=True):
    """Return an address that opens the page in a browser; for admins.

    Where the page asks for a key, or with `always`, the address logs a browser in once: as the
    caller, for 30 days, with the scopes chat, tools and admin. `at` is a name or address of the
    gateway, with scheme and port where these are other ones; empty for the gateway's own.
    """

    admin: ClassVar[bool] = True
    at: str = ""
    always: bool = False


class CacheLine(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept for one project; `used_at` is when a command used it last, UTC."""

    workspace: str
    size_bytes: int
    used_at: str


class CacheList(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept, the most recently used first; all together may have `limit_bytes`."""

    items: tuple[CacheLine, ...]
    limit_bytes: int


class ListCaches(Method[CacheList], frozen=True, kw_only=True):
    """List the caches of all projects: they name folders of everybody, so it is for admins."""

    admin: ClassVar[bool] = True


class CachesCleared(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, and what stays because a command uses it now."""

    removed: tuple[CacheLine, ...]
    in_use: tuple[CacheLine, ...] = ()


class ClearCaches(Method[CachesCleared], frozen=True, kw_only=True):
    """Remove the caches of the project in an absolute folder, or of all; commands fetch anew."""

    admin: ClassVar[bool] = True
    workspace: str = ""


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """How this clawd stands by its config; all but `problems` is empty when that is not valid.

    Attributes:
        problems: what is wrong with the config, a line each.
        sandbox: the level that was found by trying it, with what it holds and what it does not.
        toolchains: what commands see of the person's programs, and what is left out of it, and why.
        old_networks: the MCP servers that are given the network as such, and not by hosts.
        hooks: the owner's programs that are told of calls and turns, and which are not there.
        provider_url: where the default provider is asked, empty for a usual place.
        model: the local model that the default provider answers from, why it cannot be had, and
            what to do about that; of the assistant how it is loaded, in `model_form`.
        gateway: host and port where the HTTP gateway would listen; port 0 for off.
    """

    config: str
    config_exists: bool = False
    problems: tuple[str, ...] = ()
    hint: str = ""
    sandbox: str = ""
    sandbox_reason: str = ""
    sandbox_layers: tuple[str, ...] = ()
    sandbox_unbounded: tuple[str, ...] = ()
    toolchains: tuple[str, ...] = ()
    toolchains_left_out: tuple[str, ...] = ()
    old_networks: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    hooks_missing: tuple[str, ...] = ()
    workspace: str = ""
    memory: str = ""
    receipts: str = ""
    receipts_enabled: bool = True
    provider: str = ""
    provider_kind: str = ""
    provider_url: str = ""
    key_variable: str = ""
    model: str = ""
    model_problem: str = ""
    model_hint: str = ""
    model_form: str = ""
    gateway: tuple[str, int] = ("", 0)
