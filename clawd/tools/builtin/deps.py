"""What the built-in tools are given."""

from pathlib import Path

import msgspec

from clawd.config.sections import WebSection
from clawd.security.copies import Copies
from clawd.security.network import NetworkRules, Resolve
from clawd.security.policy import PolicySettings
from clawd.security.sandbox.run import Sandbox
from clawd.tools.changes import ChangeLog
from clawd.tools.jobs import Jobs
from clawd.tools.plans import PlanStore
from clawd.tools.session_files import SessionAccess


class BuiltinDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What the built-in tools need.

    Attributes:
        policy: what the owner allows.
        home: clawd's own home, which no tool may touch; None for none.
        sandbox: runs commands.
        changes: keeps what file tools change, for undo; None keeps nothing.
        plans: keeps plans; None keeps none.
        sessions: the files of conversations; None for none.
        network: where web tools may go.
        web: how those that read pages and PDFs work.
        copies: the copies of workspaces; None for none.
        jobs: keeps commands that take longer than their call; None ends them then.
        shell_timeout_s: how long a call waits for a command unless it says otherwise.
        max_command_s: how long a command may take in all.
        tool_timeout_s: how long the others may take.
        http_timeout_s: how long a transfer may take, redirects included.
        max_response_bytes: how much of a response's body is read.
        max_shell_output_bytes: how much of a command's output is kept.
        resolve: gives the addresses of a host; the system's resolver if None.
    """

    policy: PolicySettings
    home: Path | None
    sandbox: Sandbox
    changes: ChangeLog | None = None
    plans: PlanStore | None = None
    sessions: SessionAccess | None = None
    network: NetworkRules = NetworkRules()
    web: WebSection = WebSection()
    copies: Copies | None = None
    jobs: Jobs | None = None
    shell_timeout_s: float = 15.0
    max_command_s: float = 1_800.0
    tool_timeout_s: float = 30.0
    http_timeout_s: float = 20.0
    max_response_bytes: int = 1_000_000
    max_shell_output_bytes: int = 1 << 20
    resolve: Resolve | None = None


def object_schema(properties: dict[str, object], *required: str) -> dict[str, object]:
    """Return a JSON Schema of type object that takes these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


PATH = {"type": "string", "description": "Path, relative to the workspace."}
