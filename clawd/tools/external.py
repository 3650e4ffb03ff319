"""External tools: programs of this machine that a manifest makes callable, in the sandbox.

The model's values arrive as whole elements of argv. No shell ever reads them. Every manifest of the
folder is read; what cannot be taken is reported.
"""

import contextlib
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, InvalidRequestError
from clawd.security.risk import Assessment
from clawd.security.sandbox.plan import DEFAULT_PATH, SYSTEM_TREES, USR_LINKS, ChildCommand
from clawd.security.sandbox.run import Sandbox
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, Touched, first_line
from clawd.tools.child_outcome import told_of
from clawd.tools.external_manifest import (
    MAX_TOOLS,
    ExternalSpec,
    JsonFileError,
    ManifestRules,
    read_manifest,
    warnings_of,
)
from clawd.wire.secrets import is_secret_variable

GRACE_S = 1.0
_END_S = 10.0
_MIN_SECRET_LENGTH = 6
_FIRST_LINE_BYTES = 512
MAX_FILE_BYTES = 1 << 20
MAX_ENTRIES = 4096
_NAME = re.compile(r"CLAWD-[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.tools")
_OTHERS_WRITE = stat.S_IWOTH


class ExternalTool(Tool):
    """Runs the program of one entry of a manifest; `external_tool` makes one of a spec.

    Args:
        spec: what the manifest says.
        sandbox: runs the program.
        environ: what variables are passed on from.
        most_s: the longest that any call may take, whatever the manifest says.
    """

    starts_process: ClassVar[bool] = True
    holds_until_cleared: ClassVar[bool] = True
    source: ClassVar[str] = "external"

    def __init__(
        self, spec: ExternalSpec, *, sandbox: Sandbox, environ: Mapping[str, str], most_s: float
    ) -> None:
        self._spec = spec
        self._sandbox = sandbox
        self._environ = environ
        self._limit_s = min(spec.timeout_ms / 1000, most_s)
        self.timeout_s = self._limit_s + GRACE_S + _END_S

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
                timeout_s=self._limit_s,
                max_output_bytes=spec.max_output_bytes,
                toolchains=is_of_person(spec.command),
                separate_errors=spec.discards_errors,
                grace_s=GRACE_S,
            ),
            # A secret could come in two pieces, of which neither would be known.
            on_output=None if hidden else context.report,
            cleared=context.cleared,
            way_out=context.way_out,
        )
        output = result.output
        for value, name in hidden:
            output = _without(value, name, output, is_cut=result.truncated)
        told = told_of(
            msgspec.structs.replace(result, output=output),
            self._limit_s,
            noun="tool",
            nonzero_is_error=spec.nonzero_is_error,
        )
        return _marked(told, spec) if spec.hosts else told

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        touched = super().touches(arguments, context)
        if self._spec.cwd is None:
            return touched
        return msgspec.structs.replace(touched, reads=(*touched.reads, self._spec.cwd))


def external_tool(
    spec: ExternalSpec, *, sandbox: Sandbox, environ: Mapping[str, str], most_s: float
) -> ExternalTool:
    """Return the tool of a spec; what it may send out follows from its hosts."""
    facts: dict[str, Any] = {
        "name": spec.name,
        "short": first_line(spec.description),
        "description": spec.description,
        "parameters": spec.schema(),
        "outward": bool(spec.hosts),
        "reaches_hosts": bool(spec.hosts),
        "hosts": spec.hosts,
        "identity": hashlib.sha256(repr(spec).encode()).hexdigest(),
    }
    kind: type[ExternalTool] = type(f"ExternalTool_{spec.name}", (ExternalTool,), facts)
    return kind(spec, sandbox=sandbox, environ=environ, most_s=most_s)


def is_of_person(program: Path, *, own: Path | None = None) -> bool:
    """Return whether a program needs what is on the person's PATH alone, as `node` of nvm.

    It lies beside the system's programs and what it is shown by itself (`own`), or names an
    interpreter that the system does not have.
    """
    system = (*map(Path, (*SYSTEM_TREES, *USR_LINKS)), *([own] if own else []))
    try:
        with program.open("rb") as file:
            first = file.readline(_FIRST_LINE_BYTES)
    except OSError:
        return False
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if not words:
        return not any(program.resolve().is_relative_to(tree) for tree in system)
    name = next((word for word in words[1:] if not word.startswith("-")), "")
    if Path(words[0]).name == "env" and name:
        return shutil.which(name, path=DEFAULT_PATH) is None
    return not any(Path(words[0]).is_relative_to(tree) for tree in system)


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


class ManifestProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, or doubtful, about a manifest or a plugin.

    Attributes:
        file: which.
        line: where in it, 0 where no line is meant.
        severity: refused means that it, or the tool named, was left out.
        reason: what is wrong, for people.
        tool: the tool that is meant, or "".
    """

    file: str
    line: int = 0
    severity: Literal["refused", "warning"] = "refused"
    reason: str
    tool: str = ""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder holds.

    Attributes:
        specs: the tools, in the order of the files' names.
        problems: what was left out, and what is doubtful.
    """

    specs: tuple[ExternalSpec, ...] = ()
    problems: tuple[ManifestProblem, ...] = ()


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where manifests may lie.

    Attributes:
        home: clawd's home, which no command sees.
        writable: folders in which a workspace may lie, so that the model could write there.
        rules: what the manifests are held to.
    """

    home: Path
    writable: tuple[Path, ...] = ()
    rules: ManifestRules = ManifestRules()


def read_folder(folder: Path, places: Places) -> Found:
    """Read every manifest of a folder; a folder that is not there holds none. Blocks."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted
    except FileNotFoundError:
        return Found()
    except OSError as error:
        return Found(
            problems=(ManifestProblem(file=str(folder), reason=f"cannot be read: {error}"),)
        )
    if reason := _place_problem(folder, places):
        return Found(problems=(ManifestProblem(file=str(folder), reason=reason),))
    specs: list[ExternalSpec] = []
    problems = list(_folder_warnings(folder, names))
    for name in names[:MAX_ENTRIES]:
        if not _NAME.fullmatch(name):
            continue
        file = folder / name
        try:
            found = read_manifest(_text_of(file, places, problems), file, places.rules)
        except JsonFileError as error:
            problems.append(ManifestProblem(file=str(file), line=error.line, reason=error.reason))
            continue
        if len(specs) + len(found) > MAX_TOOLS:
            reason = f"with it there would be more than {MAX_TOOLS} external tools"
            problems.append(ManifestProblem(file=str(file), reason=reason))
            continue
        specs += found
    problems += [_about(spec, reason, "warning") for spec in specs for reason in warnings_of(spec)]
    return Found(specs=tuple(specs), problems=tuple(problems))


def without_collisions(found: Found, taken: Collection[str]) -> Found:
    """Leave out the tools whose name is taken, by others or by one before them."""
    names, specs, problems = set(taken), [], list(found.problems)
    for spec in found.specs:
        if spec.name in names:
            whose = "a tool of clawd" if spec.name in taken else "another external tool"
            problems.append(_about(spec, f"{whose} is called `{spec.name}` already", "refused"))
            continue
        names.add(spec.name)
        specs.append(spec)
    return Found(specs=tuple(specs), problems=tuple(problems))


def _about(
    spec: ExternalSpec, reason: str, severity: Literal["refused", "warning"]
) -> ManifestProblem:
    return ManifestProblem(
        file=str(spec.file), line=spec.line, severity=severity, reason=reason, tool=spec.name
    )


def _place_problem(path: Path, places: Places) -> str:
    """Say why nothing is taken from a place; empty when the model cannot write there."""
    real = Path(os.path.realpath(path))
    if real.is_relative_to(os.path.realpath(places.home)):
        return ""
    for folder in places.writable:
        if real.is_relative_to(os.path.realpath(folder)):
            return (
                f"lies in {folder}, where a workspace may be, so that the model could write it; "
                "keep manifests in clawd's home or outside of all workspace_roots"
            )
    return ""


def _folder_warnings(folder: Path, names: list[str]) -> Iterator[ManifestProblem]:
    with contextlib.suppress(OSError):
        if folder.stat().st_mode & _OTHERS_WRITE:
            reason = "everybody may write to this folder: chmod o-w"
            yield ManifestProblem(file=str(folder), severity="warning", reason=reason)
    for name in names[:MAX_ENTRIES]:
        if name.endswith(".tools") and not _NAME.fullmatch(name):
            reason = "it is not named CLAWD-<name>.tools, so it is not read"
            yield ManifestProblem(file=str(folder / name), severity="warning", reason=reason)
    if len(names) > MAX_ENTRIES:
        reason = f"it holds {len(names)} files, of which the first {MAX_ENTRIES} are looked at"
        yield ManifestProblem(file=str(folder), severity="warning", reason=reason)


def _text_of(file: Path, places: Places, problems: list[ManifestProblem]) -> str:
    """Return a manifest's text.

    Raises:
        JsonFileError: it cannot be had, or must not be trusted.
    """
    if reason := _place_problem(file, places):
        raise JsonFileError(1, reason)
    try:
        # Not blocking: a pipe in its place must not hold up the daemon.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise JsonFileError(1, "it is no plain file")
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise JsonFileError(1, f"it cannot be read: {error.strerror or error}") from error
    if facts.st_uid not in {0, os.geteuid()}:
        reason = (
            f"it belongs to uid {facts.st_uid}; only root and uid {os.geteuid()} may name tools"
        )
        raise JsonFileError(1, reason)
    if len(data) > MAX_FILE_BYTES:
        raise JsonFileError(1, f"it is longer than {MAX_FILE_BYTES} bytes")
    if facts.st_mode & _OTHERS_WRITE:
        reason = "everybody may write this file: chmod o-w"
        problems.append(ManifestProblem(file=str(file), severity="warning", reason=reason))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise JsonFileError(line, "it is no UTF-8") from error
