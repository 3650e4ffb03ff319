"""Methods about the policy, approvals and their rules, and what they report.

Here stand grants of hosts, too, as people write them: `get.example.org:443`, `*.example.org:443`.

What a config or a manifest lists for one program may also be `*`: every public host.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from clawd.errors import InvalidRequestError
from clawd.wire.events import FileDiff
from clawd.wire.method import Done, Method


class ApprovalLine(msgspec.Struct, frozen=True, kw_only=True):
    """One pending approval.

    Attributes:
        expires_in_s: silence that long is a no; 0 while it waits without end, or has timed out.
        timed_out: nobody answered in time; it can still be answered, and its turn goes on then.
        answerable_until: until when, UTC; empty while it waits.
    """

    id: str
    digest: str
    tool: str
    arguments: str
    risk: str
    reason: str
    workspace: str
    conversation_id: str
    owner: int
    asked_at: str
    expires_in_s: float
    environment: dict[str, str] = {}
    rule: str = ""
    changes: tuple[FileDiff, ...] = ()
    timed_out: bool = False
    answerable_until: str = ""


class ApprovalList(msgspec.Struct, frozen=True, kw_only=True):
    """Pending approvals, oldest first."""

    items: tuple[ApprovalLine, ...]


class ListApprovals(Method[ApprovalList], frozen=True, kw_only=True):
    """List pending approvals."""


class AnswerApproval(Method[Done], frozen=True, kw_only=True):
    """Answer a pending approval; `digest` is the one that was listed or shown with it.

    `days` is how long the rule of `always` is in force, 0 the configured time. `edit` wants the
    call with other `arguments`, JSON text: it is judged and asked about anew.
    """

    approval_id: str
    digest: str
    answer: Literal["deny", "once", "conversation", "project", "always", "edit"]
    days: int = 0
    arguments: str = ""


class AddRule(Method[Done], frozen=True, kw_only=True):
    """Allow or refuse from now on what shell commands of a pattern run: `git commit *`.

    Attributes:
        pattern: words, the command's name first; `*` last stands for whatever follows. After
            `file_write` it is a path below the workspace that file tools change, `docs/**`.
        workspace: the project it holds in; "" for every one.
        conversation_id: the conversation it is limited to; "" for all.
        days: how long it is in force, 0 the configured time.
    """

    pattern: str
    verdict: Literal["allow", "deny"] = "allow"
    workspace: str = ""
    conversation_id: str = ""
    days: int = 0


class RuleLine(msgspec.Struct, frozen=True, kw_only=True):
    """One approval rule in force; `conversation_id` is empty for one that holds in all of them.

    Attributes:
        granted_by: who granted it, `uid 1000`; "" where nobody wrote it down.
        receipt_id: the receipt of the grant, or of when it was found in the file of rules.
    """

    id: str
    tool: str
    pattern: str
    owner: int
    created_at: str
    expires_at: str
    conversation_id: str = ""
    granted_by: str = ""
    receipt_id: str = ""


class RuleList(msgspec.Struct, frozen=True, kw_only=True):
    """Standing approval rules."""

    items: tuple[RuleLine, ...]


class ListRules(Method[RuleList], frozen=True, kw_only=True):
    """List the standing approval rules."""


class RevokeRule(Method[Done], frozen=True, kw_only=True):
    """Remove a standing rule."""

    rule_id: str


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


Autonomy = Literal["readonly", "supervised", "full"]


class ExplainPolicy(Method[PolicyExplanation], frozen=True, kw_only=True):
    """Say what the policy would do with a call, without making it; in its own or this autonomy.

    In a conversation, its workspace, mode, rules and untrusted text count.
    """

    tool: str
    arguments: str = "{}"
    workspace: str = ""
    autonomy: Autonomy | None = None
    conversation_id: str = ""


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


class ShowPolicy(Method[PolicyBoundary], frozen=True, kw_only=True):
    """Show the boundary that the policy draws in a workspace, the configured one if empty."""

    workspace: str = ""


class PolicyCaseLine(msgspec.Struct, frozen=True, kw_only=True):
    """One case, what the policy answers, and what is wrong with that ("" when nothing is)."""

    name: str
    tool: str
    expect: str
    verdict: str
    risk: str
    reason: str
    problem: str = ""


class PolicyCheck(msgspec.Struct, frozen=True, kw_only=True):
    """All cases of a table, in its order."""

    items: tuple[PolicyCaseLine, ...]


class CheckPolicy(Method[PolicyCheck], frozen=True, kw_only=True):
    """Judge a table of cases (TOML, as etc/policy-cases.toml) under the policy in force.

    With `configured` it is the one that the config names.
    """

    table: str = ""
    configured: bool = False
    workspace: str = ""


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


REPLAY_LIMIT = 10_000


HOST_TOOL = "egress:host"
"""What a host is asked about as, in the place of a tool's name; no tool can be called so."""

ANY_HOST = "*"
"""Stands for every public host and port, where a program is given its hosts."""

_PORTS = {"": 443, "https": 443, "http": 80}
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_BRACKETED = re.compile(r"\[[0-9a-f:.]{2,45}\]")
_NAME_LIMIT = 253


def host_grant(text: str) -> str:
    """Return a grant as it is kept and compared: in lower case, with its port.

    `get.example.org` means port 443; an address as `http://mirror.lan:8080/simple` its host and
    port.

    Raises:
        InvalidRequestError: it is none.
    """
    scheme, is_url, rest = text.strip().lower().rpartition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0] if is_url else rest
    found = re.fullmatch(r"(\*\.)?(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?", authority, re.ASCII)
    if found is None or scheme not in _PORTS:
        raise _no_grant(text)
    wildcard, name, port = found[1] or "", found[2].removesuffix("."), found[3]
    number = int(port) if port else _PORTS[scheme]
    is_name = _NAME.fullmatch(name) is not None and len(name) <= _NAME_LIMIT
    is_address = not wildcard and _BRACKETED.fullmatch(name) is not None
    if not (is_name or is_address) or not 0 < number < 1 << 16:
        raise _no_grant(text)
    if wildcard and "." not in name:
        raise InvalidRequestError(
            f"{text!r} would be every host below {name}", hint="Name a domain: *.example.org:443."
        )
    return f"{wildcard}{name}:{number}"


def is_listed_form(text: str, *, any_host: bool = False) -> bool:
    """Return whether a config or a manifest may list a host so: with its port, in lower case.

    Args:
        text: as it is written.
        any_host: whether it may be `*`.
    """
    if any_host and text == ANY_HOST:
        return True
    try:
        return host_grant(text) == text.lower()
    except InvalidRequestError:
        return False


def this_machine_among(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return those of listed hosts that are addresses, or this machine by its name.

    Only such an entry says by itself that it may lead to a private address: any other name leads
    to where its name server says.
    """
    return tuple(host for host in hosts if _is_address(host.rpartition(":")[0]))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host == "localhost"
    return True


def covers_host(grant: str, host: str, port: int) -> bool:
    """Return whether a grant, as `host_grant` gives it or `*`, is one of this host and port.

    A wildcard means subdomains of any depth, and not the domain itself.
    """
    if grant == ANY_HOST:
        return True
    if grant.startswith("*."):
        name, _, number = grant[1:].rpartition(":")
        return number == str(port) and host.endswith(name)
    return grant == f"{host}:{port}"


def _no_grant(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{text!r} is no host", hint="Write HOST:PORT or *.DOMAIN:PORT, as in get.example.org:443."
    )
