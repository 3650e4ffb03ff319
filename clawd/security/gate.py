"""The one gate: whether an assessed call may run now. Only `tools.dispatch` asks it.

In order: emergency stop, blocked, policy with taint, standing rules, sandbox. Whatever goes
wrong inside is a no.
"""

import logging
from collections.abc import Callable

import msgspec

from clawd.security.approval_rules import ApprovalRule, RuleBook
from clawd.security.estop import ESTOP_REASON, Stop
from clawd.security.policy import (
    Allow,
    Ask,
    Deny,
    ModeBook,
    PolicySettings,
    Verdict,
    judge,
    reaches_out,
)
from clawd.security.risk import NO_SANDBOX, Action, autonomy_rank
from clawd.security.taint import TaintBook

_log = logging.getLogger(__name__)


class Gate:
    """Judges actions; keeps nothing of its own.

    Args:
        settings: returns the policy in force, so that a reload shows at the next call.
        modes: those of conversations; None where there are none.
        estop: the emergency stop.
        taint: what untrusted text each conversation holds.
        rules: the standing approvals.
    """

    def __init__(
        self,
        settings: Callable[[], PolicySettings],
        *,
        estop: Stop,
        taint: TaintBook,
        rules: RuleBook,
        modes: ModeBook | None = None,
    ) -> None:
        self._settings = settings
        self._modes = modes
        self._estop = estop
        self._taint = taint
        self._rules = rules

    def review(self, action: Action) -> Verdict:
        """Judge an action. Never raises; never blocks for longer than a stat.

        An Ask goes to the approval broker; after a yes, `may_start` is asked once more.
        """
        try:
            if (no := self._standing_no(action)) is not None:
                return no
            # A rule refuses what a call needs.
            for each in (action.conversation_id, *action.helps) if action.assessment.needs else ():
                there = msgspec.structs.replace(action, conversation_id=each)
                if (rule := self._rules.forbidding(there)) is not None:
                    return Deny(
                        reason=f"rule {rule.id} refuses it: {rule.pattern}",
                        hint=f"clawctl approval revoke {rule.id}",
                    )
            tainted = self._taint.sources(action.conversation_id)
            outward = action.outward
            policy = self._policy(action)
            verdict = judge(policy, action.assessment, tainted_by=tainted, outward=outward)
            if isinstance(verdict, Deny):
                verdict = self._hinted(verdict, policy, action)
            is_final = isinstance(verdict, Deny) and not verdict.rule_may_allow
            if isinstance(verdict, Allow) or is_final:
                return verdict
            # A rule that allows what is refused must not allow more than one that is asked.
            if isinstance(verdict, Ask):
                tainted = verdict.tainted_by
            elif not reaches_out(action.assessment, outward):
                tainted = ()
            return self._by_rule(action, tainted) or verdict
        except Exception as error:  # noqa: BLE001 - a defect in here must never let a call run
            _log.error("the gate failed, the call is denied", exc_info=error)
            return Deny(reason=f"the gate failed: {type(error).__name__}", kind="error")

    def may_start(self, action: Action) -> Allow | Deny:
        """Judge once more, right before the act: what an approval cannot overrule.

        Time has passed since `review`, and the stop may have been set or the policy reloaded.
        """
        try:
            return self._standing_no(action) or Allow(rule="approved")
        except Exception as error:  # noqa: BLE001 - a defect in here must never let a call run
            _log.error("the gate failed, the call is denied", exc_info=error)
            return Deny(reason=f"the gate failed: {type(error).__name__}", kind="error")

    def is_full(self, action: Action) -> bool:
        """Return whether a person set the mode in which nothing asks. Never raises."""
        try:
            return self._policy(action).autonomy == "full"
        except Exception as error:  # noqa: BLE001 - what is not known is not full
            _log.error("the gate failed, the call is asked about", exc_info=error)
            return False

    def _standing_no(self, action: Action) -> Deny | None:
        """What neither a rule nor a person may overrule."""
        if self._estop.is_set():
            return Deny(
                reason=ESTOP_REASON, hint="an admin clears it: clawctl estop --clear", kind="estop"
            )
        policy = self._policy(action)
        verdict = judge(policy, action.assessment)
        if isinstance(verdict, Deny) and not verdict.rule_may_allow:
            return self._hinted(verdict, policy, action)
        if action.starts_process and action.sandbox_level == NO_SANDBOX:
            return self._without_sandbox(action)
        return None

    def _without_sandbox(self, action: Action) -> Deny | None:
        if not self._settings().sandbox_required:
            return None
        return Deny(
            reason=f"{action.tool} starts a process and this machine offers no sandbox",
            hint='clawctl status says why; or [security] sandbox = "preferred"',
            kind="sandbox",
        )

    def _hinted(self, verdict: Deny, policy: PolicySettings, action: Action) -> Deny:
        """Return a refusal whose hint, where the conversation's mode refuses, names no key."""
        if not verdict.wider or policy.autonomy == self._settings().autonomy:
            return verdict
        # Only a mode of the conversation can be set by hand, and not that of a plan or a helper.
        is_fixed = policy.autonomy == action.at_most or action.helps
        return msgspec.structs.replace(verdict, hint="" if is_fixed else f"/mode {verdict.wider}")

    def _policy(self, action: Action) -> PolicySettings:
        """Return the policy for the conversation of a call."""
        policy = self._settings()
        if self._modes is not None:
            policy = self._modes.policy(action.conversation_id, action.principal)
            for each in action.helps:
                there = self._modes.policy(each, action.principal)
                if autonomy_rank(there.autonomy) < autonomy_rank(policy.autonomy):
                    policy = there
        if action.at_most and autonomy_rank(action.at_most) < autonomy_rank(policy.autonomy):
            policy = msgspec.structs.replace(policy, autonomy=action.at_most)
        return policy

    def _by_rule(self, action: Action, tainted_by: tuple[str, ...]) -> Allow | None:
        own = self._modes is not None and self._modes.is_confined(action.conversation_id)
        rule = self._rules.find(action, tainted_by=tainted_by, own=own)
        rules: tuple[ApprovalRule, ...] = () if rule is None else (rule,)
        if rule is None:
            sources = self._taint.sources(action.conversation_id)
            rules = self._rules.covering(action, tainted_by=sources, own=own)
        if not rules:
            return None
        told = "; ".join(f"rule {rule.id}: {rule.pattern}" for rule in rules)
        return Allow(rule=told, rule_id=rules[0].id)
