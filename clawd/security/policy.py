"""The policy: pure functions from settings and an assessment to a verdict.

It knows no tool, no disk and no clock. `gate` asks it, adds what is known about the moment
(emergency stop, sandbox, granted rules) and never makes a verdict of it milder by itself.
"""

from typing import Literal, assert_never

import msgspec

from clawd.security.risk import Assessment, Autonomy, Risk

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
        workspace_only: whether nothing outside the workspace may be touched.
        forbidden_paths: never touched, with all that lies under them; `~` is the home.
        forbidden_commands: never run, by basename; `mkfs` also means `mkfs.ext4`.
        allowed_commands: shell commands of medium risk: `grep`, or with a subcommand `git log`.
        allowed_domains: where web tools may go and POST; `*.example.org` means subdomains too.
        sandbox_required: whether a tool that starts a process is refused without a sandbox.
    """

    autonomy: Autonomy = "supervised"
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
    """

    reason: str
    hint: str = ""
    kind: DenyKind = "policy"
    rule_may_allow: bool = False


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """A person decides.

    Attributes:
        reason: why it asks.
        tainted_by: the sources of untrusted text that made it ask; empty when it asks anyway.
    """

    reason: str
    tainted_by: tuple[str, ...] = ()


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
    verdict = _by_autonomy(settings.autonomy, assessment)
    if not tainted_by or isinstance(verdict, Deny):
        return verdict
    if not reaches_out(assessment, outward):
        if isinstance(verdict, Allow):
            return verdict
        return Ask(
            reason=f"{verdict.reason}; {TAINT_REASON}{_listed(tainted_by)} is in this conversation"
        )
    return Ask(
        reason=f"{TAINT_REASON}{_listed(tainted_by)} is in this conversation, and this call "
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
            rule = by_taint if verdict.tainted_by else "supervised asks before medium risk"
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
        )
    if assessment.risk == "medium":
        granted = assessment.preapproved
        return Allow(rule=granted) if granted else Ask(reason=assessment.reason or "medium risk")
    return Deny(
        reason=f"supervised refuses high risk{_because(assessment)}",
        hint=assessment.allow_hint or '[security] autonomy = "full"',
        rule_may_allow=True,
    )


def _listed(sources: tuple[str, ...]) -> str:
    more = len(sources) - _SHOWN_SOURCES
    return ", ".join(sources[:_SHOWN_SOURCES]) + (f" and {more} more" if more > 0 else "")


def _because(assessment: Assessment) -> str:
    return f": {assessment.reason}" if assessment.reason else ""
