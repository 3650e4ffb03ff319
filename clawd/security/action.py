"""A call that wants to run, as the gate and the approval broker see it. Values only."""

import hashlib
import os
from pathlib import Path

import msgspec

from clawd.security.principal import Principal
from clawd.security.risk import Assessment

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
