"""Methods about the policy, and what they report: values only, made safe by who displays them."""

from typing import Literal

import msgspec

from clawd.wire.method import Method
from clawd.wire.reports import Done


class PolicyExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen to a call, and by which rule.

    Attributes:
        hooks: the owner's programs that are told of it, which may still refuse it.
    """

    verdict: Literal["allow", "ask", "deny"]
    risk: str
    reason: str
    rule: str
    hint: str = ""
    hooks: tuple[str, ...] = ()


class PolicyBoundary(msgspec.Struct, frozen=True, kw_only=True):
    """What tools may touch and reach, and what they never may, in one folder.

    Attributes:
        workspace: the folder in which tools act.
        sandbox: the level that holds commands.
        writable_run_later: files that commands may write though programs outside run them later.
        egress: whether commands may reach hosts by name: ask or off.
        egress_hosts: those that they may reach unasked.
    """

    autonomy: str
    sandbox: str
    workspace: str
    workspace_only: bool
    workspace_roots: tuple[str, ...] = ()
    forbidden_paths: tuple[str, ...] = ()
    forbidden_commands: tuple[str, ...] = ()
    allowed_commands: tuple[str, ...] = ()
    allowed_domains: tuple[str, ...] = ()
    allowed_addresses: tuple[str, ...] = ()
    untrusted_paths: tuple[str, ...] = ()
    writable_run_later: tuple[str, ...] = ()
    egress: str = "off"
    egress_hosts: tuple[str, ...] = ()


class PolicyCaseLine(msgspec.Struct, frozen=True, kw_only=True):
    """One case, what the policy answers, and what is wrong with that ("" when nothing is)."""

    name: str
    tool: str
    expect: str
    verdict: str
    risk: str
    reason: str
    problem: str = ""


class ReplayLine(msgspec.Struct, frozen=True, kw_only=True):
    """One past call that would be decided otherwise: allow, ask or deny, then and now."""

    seq: int
    receipt_id: str
    timestamp: str
    tool: str
    arguments: str
    before: str
    after: str
    risk: str
    reason: str
    hint: str = ""


class ReplayCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many calls went from one decision to another, or kept theirs."""

    before: str
    after: str
    count: int


class ReplaySkip(msgspec.Struct, frozen=True, kw_only=True):
    """How many receipts cannot be replayed, and why."""

    reason: str
    count: int


class PolicyReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found: the changes newest first, all counts, what was left out."""

    items: tuple[ReplayLine, ...]
    counts: tuple[ReplayCount, ...]
    skipped: tuple[ReplaySkip, ...] = ()


class PolicyCheck(msgspec.Struct, frozen=True, kw_only=True):
    """All cases of a table, in its order."""

    items: tuple[PolicyCaseLine, ...]


REPLAY_LIMIT = 10_000

Autonomy = Literal["readonly", "supervised", "full"]


class ExplainPolicy(Method[PolicyExplanation], frozen=True, kw_only=True):
    """Say what the policy would do with a call, without making it; in its own or this autonomy."""

    tool: str
    arguments: str = "{}"
    workspace: str = ""
    autonomy: Autonomy | None = None


class AllowHost(Method[Done], frozen=True, kw_only=True):
    """Let commands reach hosts unasked: `get.example.org:443`, `*.example.org:443`.

    Each becomes a standing rule, with a receipt: for one conversation, or for one workspace (as
    everywhere, the configured one if empty), or for all. `days` 0 is the configured time.
    """

    hosts: tuple[str, ...]
    workspace: str = ""
    conversation_id: str = ""
    everywhere: bool = False
    days: int = 0


class ShowPolicy(Method[PolicyBoundary], frozen=True, kw_only=True):
    """Show the boundary that the policy draws in a workspace, the configured one if empty."""

    workspace: str = ""


class CheckPolicy(Method[PolicyCheck], frozen=True, kw_only=True):
    """Judge a table of cases (TOML, as etc/policy-cases.toml) under the policy in force.

    With `configured` it is the one that the config names.
    """

    table: str = ""
    configured: bool = False
    workspace: str = ""


class ReplayPolicy(Method[PolicyReplay], frozen=True, kw_only=True):
    """Judge past calls again, from their receipts; nothing is run.

    The policy is the one in force, that of `config` (the text of a configuration; needs an admin),
    or either of them in another `autonomy`. Newest first, at most `limit` receipts, none older
    than `since` (UTC, as in a receipt).
    """

    config: str | None = None
    autonomy: Autonomy | None = None
    since: str = ""
    limit: int = 1000
