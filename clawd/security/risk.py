"""What a call would do, as far as it can be told before it runs: its risk, and what blocks it.

A tool assesses its own arguments; the policy turns the assessment into a verdict.
"""

from typing import Literal

import msgspec

Risk = Literal["low", "medium", "high"]
Autonomy = Literal["readonly", "supervised", "full"]

_ORDER: dict[Risk, int] = {"low": 0, "medium": 1, "high": 2}


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """How risky a call is.

    Attributes:
        risk: low, medium or high (SPEC's table; what is blocked counts as high).
        reason: why, in a few words for a person: `writes a file`, `gcc is not on the
            allow-list`.
        blocked: why no autonomy may run it; empty when it is not blocked.
        allow_hint: the line of config or the rule that would allow it; may be empty.
        outward: whether this call can send data out or change things outside the workspace; None
            leaves it to what its tool says of all calls.
        preapproved: the owner's line of config by which medium risk needs no person; empty where
            there is none.
    """

    risk: Risk
    reason: str = ""
    blocked: str = ""
    allow_hint: str = ""
    outward: bool | None = None
    preapproved: str = ""


def highest(*risks: Risk) -> Risk:
    """Return the highest of the risks, low for none."""
    return max(risks, key=_ORDER.__getitem__, default="low")


def raised(risk: Risk) -> Risk:
    """Return the next higher risk; high stays high."""
    return "high" if risk != "low" else "medium"


def worst(assessments: list[Assessment]) -> Assessment:
    """Return the assessment that decides: a blocked one, else the first of the highest risk."""
    return max(assessments, key=lambda a: (bool(a.blocked), _ORDER[a.risk]))
