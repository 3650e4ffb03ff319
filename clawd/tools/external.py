"""External tools: programs of this machine that a manifest makes callable, in the sandbox.

The model's values arrive as whole elements of argv. No shell ever reads them.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, InvalidRequestError
from clawd.security.risk import Assessment
from clawd.security.sandbox import Sandbox
from clawd.security.sandbox_plan import SYSTEM_TREES, USR_LINKS, ChildCommand
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Touched,
    first_line,
)
from clawd.tools.child_outcome import told_of
from clawd.tools.external_spec import ExternalSpec
from clawd.wire.secrets import is_secret_variable

GRACE_S = 1.0
_END_S = 10.0
_MIN_SECRET_LENGTH = 6


class ExternalTool(Tool):
    """Runs the program of one entry of a manifest; `external_tool` makes one of a spec."""

    starts_process: ClassVar[bool] = True
    holds_until_cleared: ClassVar[bool] = True
    source: ClassVar[str] = "external"

    def __init__(self, spec: ExternalSpec, *, sandbox: Sandbox, environ: Mapping[str, str]) -> None:
        self._spec = spec
        self._sandbox = sandbox
        self._environ = environ
        self.timeout_s = spec.timeout_ms / 1000 + GRACE_S + _END_S

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        spec, blocked = self._spec, ""
        try:
            spec.words(dict(arguments))
        except InvalidRequestError as error:
            blocked = " ".join(filter(None, (error.message, error.hint)))
        if _is_within(spec.command, context.workspace):
            blocked = f"{spec.command} lies in the workspace, where the model could change it"
        reason = f"runs the external tool {spec.command}"
        if spec.runs_text:
            reason += " with text of the model as its program"
        return Assessment(
            risk="high" if blocked or spec.runs_text else "medium", reason=reason, blocked=blocked
        )

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        spec = self._spec
        env = {name: self._environ[name] for name in spec.env_passthrough if name in self._environ}
        hidden = [
            (value, f"[{name}]")
            for name, value in env.items()
            if is_secret_variable(name) and len(value) >= _MIN_SECRET_LENGTH
        ]
        result = await self._sandbox.run(
            ChildCommand(
                argv=spec.words(dict(arguments)),
                workspace=context.workspace,
                cwd=spec.cwd,
                readonly_paths=_shown(spec, context.workspace),
                env=env,
                timeout_s=spec.timeout_ms / 1000,
                max_output_bytes=spec.max_output_bytes,
                network=spec.network,
                separate_errors=spec.discards_errors,
                grace_s=GRACE_S,
            ),
            # A secret could come in two pieces, of which neither would be known.
            on_output=None if hidden else context.report,
            cleared=context.cleared,
        )
        output = result.output
        for value, name in hidden:
            output = _without(value, name, output, is_cut=result.truncated)
        told = told_of(
            msgspec.structs.replace(result, output=output),
            spec.timeout_ms / 1000,
            noun="tool",
            nonzero_is_error=spec.nonzero_is_error,
        )
        return _marked(told, spec) if spec.network else told

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        touched = super().touches(arguments, context)
        if self._spec.cwd is None:
            return touched
        return msgspec.structs.replace(touched, reads=(*touched.reads, self._spec.cwd))


def external_tool(
    spec: ExternalSpec, *, sandbox: Sandbox, environ: Mapping[str, str]
) -> ExternalTool:
    """Return the tool of a spec; what it may send out follows from its network."""
    facts: dict[str, Any] = {
        "name": spec.name,
        "short": first_line(spec.description),
        "description": spec.description,
        "parameters": spec.schema(),
        "outward": spec.network,
        "identity": hashlib.sha256(repr(spec).encode()).hexdigest(),
    }
    kind: type[ExternalTool] = type(f"ExternalTool_{spec.name}", (ExternalTool,), facts)
    return kind(spec, sandbox=sandbox, environ=environ)


def _shown(spec: ExternalSpec, workspace: Path) -> tuple[Path, ...]:
    """Return what the sandbox must show beside the system: the program, the folder to work in.

    Raises:
        ClawError: the program is gone.
    """
    try:
        real = spec.command.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ClawError(
            f"the program {spec.command} of the tool {spec.name} cannot be had: {error}",
            hint=f"Mend {spec.file} or put the program back.",
        ) from error
    wanted = [spec.command, real, *([spec.cwd] if spec.cwd is not None else [])]
    seen = [*map(Path, (*SYSTEM_TREES, *USR_LINKS)), workspace]
    return tuple(
        path
        for path in dict.fromkeys(wanted)
        if not any(path.is_relative_to(tree) for tree in seen)
    )


def _marked(told: ToolResult, spec: ExternalSpec) -> ToolResult:
    """Mark what may hold text of the network as untrusted."""
    facts = {**told.metadata, "untrusted_source": f"the external tool {spec.name}"}
    return msgspec.structs.replace(told, metadata=facts)


def _without(secret: str, name: str, output: str, *, is_cut: bool) -> str:
    """Return output with a name instead of a secret, and of the beginning of one at a cut."""
    output = output.replace(secret, name)
    for length in range(len(secret) - 1, _MIN_SECRET_LENGTH - 1, -1) if is_cut else ():
        if output.endswith(secret[:length]):
            return output[:-length] + name
    return output


def _is_within(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder) or Path(os.path.realpath(path)).is_relative_to(folder)
