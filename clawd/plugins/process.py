"""One call of a plugin's tool: JSON to its standard input, JSON from its standard output.

    → {"tool": "note_titles", "arguments": {"folder": "."}, "workspace": "/home/ada/w"}
    ← {"success": true, "output": "two notes"}

What runs is a private copy of the very bytes whose hash was approved, made for the call: nothing
that is changed in between can run.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, ForbiddenError
from clawd.kernel.concurrency import settled
from clawd.plugins.files import PluginTree, read_tree, stamp, write_tree
from clawd.plugins.loader import InstalledPlugin
from clawd.plugins.manifest import PluginManifest, PluginToolSpec
from clawd.security.risk import Assessment
from clawd.security.sandbox.landlock import make_folder, remove_folder
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import Sandbox
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Touched,
    failed,
    first_line,
    in_thread,
    succeeded,
)
from clawd.tools.child_outcome import cut_short, quarantine_report
from clawd.tools.external import is_of_person

GRACE_S = 1.0
MAX_ANSWER_BYTES = 1 << 20

_END_S = 20.0
_SHOWN = 400


class PluginAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin prints, once. Unknown fields are ignored."""

    success: bool
    output: Any = ""
    error: str = ""


class PluginTool(Tool):
    """Runs one tool of a plugin; `plugin_tools` makes them.

    Args:
        plugin: what was approved.
        spec: the tool's part of the manifest.
        sandbox: runs the program.
        most_s: the longest that any call may take, whatever the manifest says.
    """

    starts_process: ClassVar[bool] = True
    holds_until_cleared: ClassVar[bool] = True
    source: ClassVar[str] = "plugin"

    def __init__(
        self, plugin: InstalledPlugin, spec: PluginToolSpec, *, sandbox: Sandbox, most_s: float
    ) -> None:
        assert plugin.manifest is not None
        self._plugin = plugin
        self._spec = spec
        self._sandbox = sandbox
        self._capabilities = frozenset(plugin.manifest.capabilities)
        self._stamp: object = None
        self._limit_s = min(spec.timeout_ms / 1000, most_s)
        self.timeout_s = self._limit_s + GRACE_S + _END_S

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        blocked = self._change()
        return Assessment(
            risk="high" if blocked else self._spec.risk,
            reason=f"runs the plugin {self._plugin.name}",
            blocked=blocked,
        )

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        workspace = (context.workspace,)
        writes = workspace if "workspace-write" in self._capabilities else ()
        reads = workspace if writes or "workspace-read" in self._capabilities else ()
        return Touched(reads=reads, writes=writes)

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        folder = make_folder()
        try:
            if folder.is_relative_to(context.workspace):
                # Another command of this workspace could change the copy.
                return failed(f"plugins do not run in {context.workspace}: their copies lie there")
            _, cancelled = await settled(in_thread(lambda: self._copy_to(folder)))
            if not cancelled:
                command = self._command(folder, arguments, context)
                result = await self._sandbox.run(
                    command, cleared=context.cleared, way_out=context.way_out
                )
                return self._told(result)
        finally:
            await settled(in_thread(lambda: remove_folder(folder)))
        return failed("cancelled")

    def _command(self, folder: Path, arguments: Arguments, context: ToolContext) -> ChildCommand:
        sees = bool({"workspace-read", "workspace-write"} & self._capabilities)
        program = folder / self._spec.command
        request = {
            "tool": self._spec.name,
            "arguments": dict(arguments),
            "workspace": str(context.workspace) if sees else None,
        }
        return ChildCommand(
            argv=(str(program),),
            workspace=context.workspace if sees else folder,
            workspace_writable="workspace-write" in self._capabilities,
            readonly_paths=(folder,) if sees else (),
            stdin=msgspec.json.encode(request) + b"\n",
            timeout_s=self._limit_s,
            max_output_bytes=MAX_ANSWER_BYTES,
            toolchains=is_of_person(program, own=folder),
            apart=f"plugin {self._plugin.name}",
            separate_errors=True,
            grace_s=GRACE_S,
        )

    def _change(self) -> str:
        """Say why the plugin may not run; reads its files only where their facts have changed."""
        try:
            found = stamp(self._plugin.folder)
            if found and found == self._stamp:
                return ""
            self._checked()
        except (OSError, ClawError) as error:
            return error.message if isinstance(error, ClawError) else str(error)
        self._stamp = found
        return ""

    def _checked(self) -> PluginTree:
        tree = read_tree(self._plugin.folder, is_installed=True)
        if tree.digest != self._plugin.digest:
            name = self._plugin.name
            raise ForbiddenError(
                f"the plugin {name} was changed since it was approved; "
                f"look at it and approve it again with: clawctl plugin approve {name}"
            )
        return tree

    def _copy_to(self, folder: Path) -> None:
        write_tree(self._checked(), folder, is_durable=False)

    def _told(self, result: ChildResult) -> ToolResult:
        facts: dict[str, Any] = {
            "exit_code": result.exit_code,
            "duration_ms": result.duration_ms,
            "timed_out": result.timed_out,
            "sandbox": result.level,
        }
        if "network" in self._capabilities:
            facts["untrusted_source"] = f"the plugin {self._plugin.name}"
        name = self._plugin.name
        problem = cut_short(result, self._limit_s, noun=f"plugin {name}")
        answer: PluginAnswer | str = problem or answer_of(result)
        aside = quarantine_report(result.quarantined)
        if isinstance(answer, str):
            text = problem or f"The plugin {name} {answer}"
            said = _shown(result.errors)
            text += f"; it said on standard error: {said}" if said else ""
            return failed(" ".join(filter(None, (text, aside))), **facts)
        output = answer.output if isinstance(answer.output, str) else _as_json(answer.output)
        if answer.success and not aside:
            return succeeded(output or "(no output)", **facts)
        error = "" if answer.success else answer.error or "it failed and did not say why"
        return failed(" ".join(filter(None, (error, aside))), output=output, **facts)


def plugin_tools(plugin: InstalledPlugin, *, sandbox: Sandbox, most_s: float) -> list[PluginTool]:
    """Return the tools of a plugin that is ready."""
    manifest = plugin.manifest
    assert manifest is not None
    return [
        _kind(manifest, spec, plugin)(plugin, spec, sandbox=sandbox, most_s=most_s)
        for spec in manifest.tools
    ]


def answer_of(result: ChildResult) -> PluginAnswer | str:
    """Return what a plugin answered; a text that says what is wrong where it is no answer."""
    if result.truncated:
        return f"answered more than {MAX_ANSWER_BYTES} bytes"
    ending = f"exited with code {result.exit_code}" if result.exit_code else ""
    if not result.output.strip():
        return ending or "answered nothing, expected one JSON object"
    try:
        answer = msgspec.json.decode(result.output, type=PluginAnswer)
    except (msgspec.DecodeError, RecursionError) as error:
        began = _shown(result.output, 80)
        return (
            f"answered no JSON object with `success` and `output` ({error}); it begins: {began}"
            + (f"; it {ending}" if ending else "")
        )
    if ending and answer.success:
        return f"{ending}, though it called that a success"
    return answer


def _kind(
    manifest: PluginManifest, spec: PluginToolSpec, plugin: InstalledPlugin
) -> type[PluginTool]:
    facts: Mapping[str, Any] = {
        "name": spec.name,
        "short": first_line(spec.description),
        "description": spec.description,
        "parameters": spec.schema,
        "outward": bool(manifest.reached),
        "reaches_hosts": bool(manifest.reached),
        "hosts": manifest.reached,
        "identity": plugin.digest,
    }
    kind: type[PluginTool] = type(f"PluginTool_{spec.name}", (PluginTool,), dict(facts))
    return kind


def _shown(text: str, limit: int = _SHOWN) -> str:
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= limit else line[:limit] + "…"


def _as_json(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()
