"""The policy: pure functions from settings and an assessment to a verdict.

It knows no tool, no disk and no clock. `gate` asks it, adds what is known about the moment
(emergency stop, sandbox, granted rules) and never makes a verdict of it milder by itself.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from clawd.errors import ForbiddenError
from clawd.security.principal import Principal
from clawd.security.risk import AUTONOMIES, Assessment, Autonomy, Risk, autonomy_rank

TAINT_REASON = "untrusted text from "
DEFAULT_ALLOWED_COMMANDS: tuple[str, ...] = (
    "ls", "cat", "head", "tail", "wc", "grep", "rg", "find", "sort", "uniq", "cut", "tr",
    "date", "pwd", "echo", "stat", "file", "du", "df", "diff", "tree", "which",
    "git status", "git log", "git diff", "git show", "git branch",
)  # fmt: skip
DEFAULT_FORBIDDEN_COMMANDS: tuple[str, ...] = ("rm", "shutdown", "reboot", "mkfs", "dd")
_SHOWN_SOURCES = 5

DEFAULT_FORBIDDEN_PATHS: tuple[str, ...] = ("/etc", "/sys", "/boot", "~/.ssh")


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner allows; the `[security]` section as plain values.

    Attributes:
        autonomy: how far the model may go without a person.
        max_autonomy: how far a mode of a conversation may let it go.
        workspace_only: whether nothing outside the workspace may be touched.
        forbidden_paths: never touched, with all that lies under them; `~` is the home.
        forbidden_commands: never run, by basename; `mkfs` also means `mkfs.ext4`.
        allowed_commands: shell commands of medium risk: `grep`, or with a subcommand `git log`.
        allowed_domains: where web tools may go and POST; `*.example.org` means subdomains too.
        sandbox_required: whether a tool that starts a process is refused without a sandbox.
    """

    autonomy: Autonomy = "supervised"
    max_autonomy: Autonomy = "full"
    workspace_only: bool = True
    forbidden_paths: tuple[str, ...] = DEFAULT_FORBIDDEN_PATHS
    forbidden_commands: tuple[str, ...] = DEFAULT_FORBIDDEN_COMMANDS
    allowed_commands: tuple[str, ...] = DEFAULT_ALLOWED_COMMANDS
    allowed_domains: tuple[str, ...] = ()
    sandbox_required: bool = True


DenyKind = Literal["estop", "blocked", "policy", "sandbox", "approval", "error"]


class Allow(msgspec.Struct, frozen=True, kw_only=True, tag="allow"):
    """It may run.

    Attributes:
        rule: the sentence of the policy, or the granted rule, that allows it.
        rule_id: the granted rule's id; empty when the policy alone allows it.
    """

    rule: str
    rule_id: str = ""


class Deny(msgspec.Struct, frozen=True, kw_only=True, tag="deny"):
    """It may not run.

    Attributes:
        reason: why, for the model and for people.
        hint: the one line of config or the rule that would allow it; may be empty.
        kind: which part said no.
        rule_may_allow: whether a standing approval rule may still allow it.
        may_ask: whether a person who is there is asked all the same.
        tainted_by: the sources of untrusted text because of which the answer counts once.
        in_view_of: the sources of untrusted text that the person is told of all the same.
        wider: the autonomy that would not refuse it, where the hint names that.
    """

    reason: str
    hint: str = ""
    kind: DenyKind = "policy"
    rule_may_allow: bool = False
    may_ask: bool = False
    tainted_by: tuple[str, ...] = ()
    in_view_of: tuple[str, ...] = ()
    wider: Autonomy | Literal[""] = ""


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """A person decides.

    Attributes:
        reason: why it asks.
        tainted_by: the sources of untrusted text that made it ask; empty when it asks anyway.
        in_view_of: the sources of untrusted text that the reason names.
    """

    reason: str
    tainted_by: tuple[str, ...] = ()
    in_view_of: tuple[str, ...] = ()


Verdict = Allow | Deny | Ask


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy says about a call, and by which of its rules."""

    verdict: str
    rule: str
    risk: Risk
    reason: str
    hint: str = ""


def judge(
    settings: PolicySettings,
    assessment: Assessment,
    *,
    tainted_by: tuple[str, ...] = (),
    outward: bool | None = None,
) -> Verdict:
    """Judge a call.

    Args:
        settings: what the owner allows.
        assessment: what the call would do.
        tainted_by: where untrusted text in the conversation came from.
        outward: whether the call can send data out or change things outside the workspace;
            None when nobody knows, which counts as yes for all but low risk.

    Returns:
        The verdict. Taint turns an Allow into an Ask for outward calls and never does more.
    """
    autonomy = settings.autonomy
    if autonomy == "edits" and tainted_by:
        autonomy = "supervised"  # what was read may have written the edit
    verdict = _by_autonomy(autonomy, assessment)
    if isinstance(verdict, Deny) and verdict.may_ask:
        counts_once = reaches_out(assessment, outward)
        named = {"tainted_by" if counts_once else "in_view_of": tainted_by}
        return msgspec.structs.replace(verdict, **named)
    if isinstance(verdict, Deny) or not tainted_by:
        return verdict
    if not reaches_out(assessment, outward):
        if isinstance(verdict, Allow):
            return verdict
        reason = f"{verdict.reason}; {told_sources(tainted_by)}"
        return Ask(reason=reason, in_view_of=tainted_by)
    return Ask(
        reason=f"{told_sources(tainted_by)}, and this call "
        f"can reach outside the workspace{_because(assessment)}",
        tainted_by=tainted_by,
    )


def reaches_out(assessment: Assessment, outward: bool | None) -> bool:  # noqa: FBT001 - a fact
    """Whether a call can send data out or change things outside; None asks its risk."""
    return assessment.risk != "low" if outward is None else outward


def explain(
    settings: PolicySettings,
    assessment: Assessment,
    *,
    tainted_by: tuple[str, ...] = (),
    outward: bool | None = None,
) -> Explanation:
    """Say what `judge` answers and the rule it follows, for people."""
    verdict = judge(settings, assessment, tainted_by=tainted_by, outward=outward)
    match verdict:
        case Allow():
            word, rule, hint = "allow", verdict.rule, ""
        case Ask():
            by_taint = "untrusted text makes outward calls ask, in any autonomy"
            rule = (
                by_taint if verdict.tainted_by else f"{settings.autonomy} asks before medium risk"
            )
            word, hint = "ask", ""
        case Deny():
            word, rule, hint = "deny", verdict.reason, verdict.hint
        case _:
            assert_never(verdict)
    reason = assessment.blocked or assessment.reason
    return Explanation(verdict=word, rule=rule, risk=assessment.risk, reason=reason, hint=hint)


def _by_autonomy(autonomy: Autonomy, assessment: Assessment) -> Verdict:
    if assessment.blocked:
        return Deny(reason=assessment.blocked, hint=assessment.allow_hint, kind="blocked")
    if autonomy == "full":
        return Allow(rule="full runs everything that is not blocked")
    if assessment.risk == "low":
        return Allow(rule=f"{autonomy} runs low risk")
    if autonomy == "readonly":
        return Deny(
            reason=f"readonly runs low risk only, this is {assessment.risk}{_because(assessment)}",
            hint='[security] autonomy = "supervised"',
            wider="supervised",
        )
    if assessment.risk == "medium":
        granted = assessment.preapproved
        if autonomy == "edits" and assessment.edits:
            granted = "edits changes files of the workspace; clawctl undo takes it back"
        return Allow(rule=granted) if granted else Ask(reason=assessment.reason or "medium risk")
    wider: Literal["", "full"] = "" if assessment.allow_hint or assessment.needs else "full"
    return Deny(
        reason=f"{autonomy} refuses high risk{_because(assessment)}",
        hint='[security] autonomy = "full"' if wider else assessment.allow_hint,
        wider=wider,
        rule_may_allow=True,
        may_ask=bool(assessment.needs),
    )


def told_sources(tainted_by: tuple[str, ...]) -> str:
    """Return where the untrusted text of a conversation came from, for a person."""
    return f"{TAINT_REASON}{_listed(tainted_by)} is in this conversation"


def _listed(sources: tuple[str, ...]) -> str:
    more = len(sources) - _SHOWN_SOURCES
    return ", ".join(sources[:_SHOWN_SOURCES]) + (f" and {more} more" if more > 0 else "")


def _because(assessment: Assessment) -> str:
    return f": {assessment.reason}" if assessment.reason else ""


class ModeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation's mode becomes another one; "" is the configured autonomy."""

    conversation_id: str
    workspace: Path
    before: Autonomy | str
    mode: Autonomy | str
    by: Principal

    @property
    def is_wider(self) -> bool:
        """Whether more may run behind it; what nobody named counts as the narrowest."""
        return autonomy_rank(self.mode) > autonomy_rank(self.before)


class ModeBook:
    """The modes that were set, by conversation; a restart restores them from what memory kept.

    Args:
        policy: returns the policy in force.
        record: writes the receipt of a change; raises ClawError when it cannot.
    """

    def __init__(
        self,
        policy: Callable[[], PolicySettings],
        *,
        record: Callable[[ModeChange], Awaitable[object]],
    ) -> None:
        self._policy = policy
        self._record = record
        self._modes: dict[str, Autonomy] = {}
        self._confined: set[str] = set()

    def confine(self, conversation_id: str) -> None:
        """Let no standing rule allow anything there; what was granted for it alone still does."""
        self._confined.add(conversation_id)

    def is_confined(self, conversation_id: str) -> bool:
        """Return whether only what was granted for a conversation itself allows anything there."""
        return conversation_id in self._confined

    def policy(self, conversation_id: str, principal: Principal) -> PolicySettings:
        """Return the policy by which a call there is judged: never beyond what is allowed now."""
        policy = self._policy()
        mode = self._modes.get(conversation_id)
        if mode is None:
            return policy
        highest = _highest(policy, principal)
        mode = mode if autonomy_rank(mode) <= autonomy_rank(highest) else highest
        return msgspec.structs.replace(policy, autonomy=mode)

    def open_to(self, principal: Principal) -> tuple[Autonomy, ...]:
        """Return the modes that the principal may set, the narrowest first."""
        return AUTONOMIES[: autonomy_rank(_highest(self._policy(), principal)) + 1]

    def check(self, mode: Autonomy, principal: Principal) -> None:
        """Refuse a mode that the principal may not set.

        Raises:
            ForbiddenError: it goes further than the policy lets it.
        """
        policy = self._policy()
        highest = _highest(policy, principal)
        if autonomy_rank(mode) <= autonomy_rank(highest):
            return
        is_admins = autonomy_rank(mode) <= autonomy_rank(policy.max_autonomy)
        raise ForbiddenError(
            f"mode {mode} goes further than {highest}, the furthest "
            + ("for those who are no admins" if is_admins else "that [security] allows"),
            hint="An admin of this clawd may set it."
            if is_admins
            else f'[security] max_autonomy = "{mode}" in the config would allow it.',
        )

    async def change(self, change: ModeChange) -> None:
        """Put another mode in force; more is allowed once that is on record, less at once.

        Raises:
            ClawError: the receipt cannot be written; what would allow more is not in force then.
        """
        if change.mode == change.before:
            return
        if change.is_wider:
            await self._record(change)
            self.restore(change.conversation_id, change.mode)
        else:
            self.restore(change.conversation_id, change.mode)
            await self._record(change)

    def restore(self, conversation_id: str, mode: object) -> None:
        """Put in force what memory kept; what is no mode counts as readonly."""
        if not mode:
            self._modes.pop(conversation_id, None)
            return
        try:
            self._modes[conversation_id] = msgspec.convert(mode, Autonomy)
        except msgspec.ValidationError:
            self._modes[conversation_id] = "readonly"

    def copy(self, from_id: str, to_id: str) -> None:
        """Give a fork the mode of what it was forked from, and its confinement."""
        self.restore(to_id, self._modes.get(from_id, ""))
        if from_id in self._confined:
            self._confined.add(to_id)

    def forget(self, conversation_id: str) -> None:
        """Drop what is known of a deleted conversation."""
        self._modes.pop(conversation_id, None)
        self._confined.discard(conversation_id)


def _highest(policy: PolicySettings, principal: Principal) -> Autonomy:
    """Return how far a principal may let a model go: others than admins never beyond the config."""
    if principal.is_admin or autonomy_rank(policy.autonomy) > autonomy_rank(policy.max_autonomy):
        return policy.max_autonomy
    return policy.autonomy
