"""What the built-in tools are given, and the judgement that those with paths share."""

from pathlib import Path
from typing import ClassVar

import msgspec

from clawd.errors import ClawError
from clawd.security.network import NetworkRules, Resolve
from clawd.security.paths import PathRules, classify, path_rules
from clawd.security.policy import PolicySettings
from clawd.security.risk import Assessment, Risk, raised
from clawd.security.run_later import is_run_later
from clawd.security.sandbox import Sandbox
from clawd.tools.base import Tool, ToolContext


class BuiltinDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What the built-in tools need.

    Attributes:
        policy: what the owner allows.
        home: clawd's own home, which no tool may touch; None for none.
        sandbox: runs commands.
        network: where web tools may go.
        shell_timeout_s: how long a command may take unless the call says otherwise.
        tool_timeout_s: how long the others may take.
        http_timeout_s: how long a transfer may take, redirects included.
        max_response_bytes: how much of a response's body is read.
        max_shell_output_bytes: how much of a command's output is kept.
        resolve: gives the addresses of a host; the system's resolver if None.
    """

    policy: PolicySettings
    home: Path | None
    sandbox: Sandbox
    network: NetworkRules = NetworkRules()
    shell_timeout_s: float = 15.0
    tool_timeout_s: float = 30.0
    http_timeout_s: float = 20.0
    max_response_bytes: int = 1_000_000
    max_shell_output_bytes: int = 1 << 20
    resolve: Resolve | None = None


class FileTool(Tool):
    """A tool that touches files of the workspace."""

    outward: ClassVar[bool | None] = False

    def __init__(self, deps: BuiltinDeps) -> None:
        self._policy = deps.policy
        self._home = deps.home
        self.timeout_s = deps.tool_timeout_s

    def _rules(self, context: ToolContext) -> PathRules:
        return path_rules(self._policy, workspace=context.workspace, home=self._home)

    def _assess(self, path: str, context: ToolContext, risk: Risk, reason: str) -> Assessment:
        """Assess an act on a path that has this risk inside of the workspace."""
        rules = self._rules(context)
        try:
            location = classify(path, rules)
        except ClawError as error:
            return Assessment(risk="high", reason=reason, blocked=error.message)
        if location.place == "forbidden":
            return Assessment(risk="high", reason=reason, blocked=location.reason)
        if location.place == "inside":
            if risk != "low" and is_run_later(location.path.relative_to(rules.workspace).parts):
                reason += ", which programs outside the sandbox run later"
            return Assessment(risk=risk, reason=reason)
        if self._policy.workspace_only:
            return Assessment(
                risk="high",
                reason=reason,
                blocked="path is outside the workspace",
                allow_hint="workspace_only = false in [security] lets file tools leave it",
            )
        return Assessment(risk=raised(risk), reason=f"{reason} outside the workspace")


def object_schema(properties: dict[str, object], *required: str) -> dict[str, object]:
    """Return a JSON Schema of type object that takes these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


PATH = {"type": "string", "description": "Path, relative to the workspace."}
