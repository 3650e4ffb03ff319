"""What a call would do, as far as it can be told before it runs: its risk, and what blocks it.

A tool assesses its own arguments; the policy turns the assessment into a verdict.
"""

import hashlib
import os
from pathlib import Path
from typing import Literal, get_args

import msgspec

from clawd.security.principal import Principal

Risk = Literal["low", "medium", "high"]
Opening = Literal["environments", "clones", "checkouts"]
Autonomy = Literal["readonly", "supervised", "edits", "full"]

AUTONOMIES: tuple[Autonomy, ...] = get_args(Autonomy)
_ORDER: dict[Risk, int] = {"low": 0, "medium": 1, "high": 2}


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a call asks for, and that a standing rule has to cover.

    Attributes:
        risk: its own.
        kind: `words` of a command, a path that it is to `write`, a `file` of the workspace that a
            file tool changes, or `other`, which no pattern covers.
        text: it, for a person; of a file its path, resolved and relative to the workspace.
        words: of a command, its name first; "" for one that cannot be told.
        pattern: what covers it and the next similar one.
    """

    kind: Literal["words", "write", "file", "other"]
    text: str
    risk: Risk = "high"
    words: tuple[str, ...] = ()
    pattern: str = ""


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
        needs: what it asks for, where that can be told in parts; patterns of rules cover them.
        edits: whether it changes files of the workspace and nothing else, and `undo` takes it back.
        opens: what that programs outside run later the call is there to make, and nothing else:
            virtual environments, a clone of a repository, or files as its commits have them.
    """

    risk: Risk
    reason: str = ""
    blocked: str = ""
    allow_hint: str = ""
    outward: bool | None = None
    preapproved: str = ""
    needs: tuple[Need, ...] = ()
    edits: bool = False
    opens: tuple[Opening, ...] = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """What would cover the call and the next similar one; empty where no pattern does."""
        uncovered = [need for need in self.needs if need.risk != "low"]
        if not all(need.pattern for need in uncovered):
            return ()
        return tuple(dict.fromkeys(need.pattern for need in uncovered))

    @property
    def unlisted(self) -> tuple[str, ...]:
        """What of it is of high risk and a list could hold, as `terraform`."""
        high = [need for need in self.needs if need.risk == "high" and need.kind != "other"]
        return tuple(dict.fromkeys(need.pattern.removesuffix(" *") or need.text for need in high))


def autonomy_rank(autonomy: str) -> int:
    """Return the place of an autonomy among all, the narrowest first; -1 for what is none."""
    return [*AUTONOMIES].index(autonomy) if autonomy in AUTONOMIES else -1


def highest(*risks: Risk) -> Risk:
    """Return the highest of the risks, low for none."""
    return max(risks, key=_ORDER.__getitem__, default="low")


def raised(risk: Risk) -> Risk:
    """Return the next higher risk; high stays high."""
    return "high" if risk != "low" else "medium"


def worst(assessments: list[Assessment]) -> Assessment:
    """Return the assessment that decides: a blocked one, else the first of the highest risk."""
    return max(assessments, key=lambda a: (bool(a.blocked), _ORDER[a.risk]))


NO_SANDBOX = "none"


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One call, assessed and about to be judged.

    Attributes:
        tool: the canonical name.
        arguments: canonical JSON (sorted keys, no blanks) of the arguments that will be used.
        assessment: what the tool says of them.
        conversation_id: empty for a call outside a conversation.
        call_id: the call's id in its conversation.
        principal: for whom it runs.
        workspace: absolute; where it runs.
        places: where the paths of its arguments lead, resolved.
        outcome: digest of what it makes of files; "" where that is not known beforehand.
        environment: variables that differ from those every child gets.
        starts_process: whether it starts a child process.
        sandbox_level: the level such a child would get; `none` when there is none.
        outward: whether it can send data out or change things outside the workspace; None when
            nobody knows, which counts as yes for all but low risk.
        at_most: the mode beyond which this call is not judged, whatever the policy says; "" for
            as the policy says.
        helps: the conversations that it works for as a helper: their modes and what their rules
            refuse hold for it.
    """

    tool: str
    arguments: bytes
    assessment: Assessment
    conversation_id: str
    call_id: str
    principal: Principal
    workspace: Path
    places: tuple[str, ...] = ()
    outcome: str = ""
    environment: dict[str, str] = {}
    starts_process: bool = False
    sandbox_level: str = NO_SANDBOX
    outward: bool | None = None
    at_most: Autonomy | Literal[""] = ""
    helps: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of what an approval binds: everything here that says what would be done."""
        parts = [
            b"clawd-approval/2",
            self.tool.encode(),
            self.arguments,
            os.fsencode(self.workspace),
        ]
        parts.append(len(self.places).to_bytes(4, "big"))
        parts += [os.fsencode(place) for place in self.places]
        parts.append(self.outcome.encode())
        for name in sorted(self.environment):
            parts += [os.fsencode(name), os.fsencode(self.environment[name])]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest()
