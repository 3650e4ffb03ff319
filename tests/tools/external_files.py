"""What the tests of external tools share: manifests in parts, and a program that tells its argv."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawd.security.principal import Principal
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.arguments import decode_arguments
from clawd.tools.base import Tool, ToolContext, ToolResult
from clawd.tools.external import external_tool
from clawd.tools.external_manifest import ExternalSpec, ManifestRules, read_manifest

TRUE = "/usr/bin/true"
ECHOES_ARGV = "#!/usr/bin/python3\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"


def entry(**changes: Any) -> dict[str, Any]:
    """Return a sound tool of a manifest, changed; a value of None takes the field away."""
    made = {"name": "probe", "description": "Probes.", "command": TRUE, **changes}
    return {name: value for name, value in made.items() if value is not None}


def manifest(*tools: dict[str, Any], **changes: Any) -> str:
    """Return a manifest with these tools, a line for each field."""
    return json.dumps({"version": 1, "tools": list(tools), **changes}, indent=1)


def read(text: str, rules: ManifestRules | None = None) -> list[ExternalSpec]:
    return read_manifest(text, Path("/m/CLAWD-m.tools"), rules or ManifestRules())


def program(path: Path, text: str) -> str:
    """Write a program; return its path."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


class Bench:
    """Runs tools of manifests in a real sandbox, as dispatch would."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.workspace = base / "ws"
        self.workspace.mkdir()
        self.home = base / "home"
        self.home.mkdir()
        self.sandbox = Sandbox(SandboxSettings(home=self.home))
        self.environ: dict[str, str] = dict(os.environ)
        self.reported: list[str] = []
        self.most_s = 300.0
        self.heard: Callable[[str], None] = self.reported.append

    def tool(self, **fields: Any) -> Tool:
        (spec,) = read(manifest(entry(**fields)))
        return external_tool(spec, sandbox=self.sandbox, environ=self.environ, most_s=self.most_s)

    def context(self) -> ToolContext:
        return ToolContext(
            conversation_id="c1",
            call_id="k1",
            principal=Principal(uid=1000, gid=1000, pid=1),
            workspace=self.workspace,
            report=self.heard,
        )

    async def call(self, tool: Tool, **arguments: Any) -> ToolResult:
        decoded = decode_arguments(json.dumps(arguments), tool.parameters)
        blocked = tool.risk(decoded, self.context()).blocked
        if blocked:
            return ToolResult(success=False, error=f"blocked: {blocked}")
        return await tool.invoke(decoded, self.context())
