"""Why a call did not act, and what the model is told of it and of calls that did."""

from typing import Any

import msgspec

from clawd.security.estop import ESTOP_REASON
from clawd.security.policy import Deny
from clawd.tools.clearance import Clearance
from clawd.tools.outcome import Execution, OutcomeKind


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A call that did not act: the kind for programs, the receipt's reason, the model's text."""

    kind: OutcomeKind
    reason: str
    text: str


CANCELLED = Refused(kind="cancelled", reason="cancelled", text="error: cancelled")


def denied(reason: str, *, hint: str = "", kind: OutcomeKind = "denied") -> Refused:
    """Return a denial."""
    text = f"denied: {reason}" + (f" ({hint})" if hint else "")
    return Refused(kind=kind, reason=reason, text=text)


def refused_by(verdict: Deny) -> Refused:
    """Return what a verdict of the gate comes to."""
    if verdict.kind == "estop":
        return denied(verdict.reason, kind="stopped")
    return denied(verdict.reason, hint=verdict.hint)


def not_cleared(clearance: Clearance[Any], execution: Execution | None) -> Refused | None:
    """Return why a call did not get to act; None when it did, or could not even get ready."""
    if clearance.is_given:
        return None
    if clearance.refusal is not None:
        return refused_by(clearance.refusal)
    if execution is None or execution.kind == "cancelled":
        return CANCELLED
    return denied(ESTOP_REASON, kind="stopped") if execution.kind == "stopped" else None


def told(execution: Execution) -> str:
    """Return what the model is told of a call that ran."""
    result = execution.result
    if execution.kind == "stopped":
        return f"denied: {ESTOP_REASON}"
    if result.success:
        return result.output
    return f"error: {result.error}" + (f"\n{result.output}" if result.output else "")
