"""The methods of the control socket about the policy; see `wire.methods`."""

from typing import Literal

from clawd.wire.method import Method
from clawd.wire.policy_reports import PolicyBoundary, PolicyCheck, PolicyExplanation, PolicyReplay
from clawd.wire.reports import Done

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
