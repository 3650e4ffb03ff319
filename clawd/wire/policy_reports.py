"""What methods about the policy answer. Values only; whoever shows their texts makes them safe."""

from typing import Literal

import msgspec


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
