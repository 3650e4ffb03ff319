r"""Manifests of external tools: what a file `CLAWD-<name>.tools` must hold.

    {
      "version": 1,
      "tools": [
        {
          "name": "word_count",
          "description": "Count the words of a file.",
          "command": "/usr/bin/wc",
          "argv": ["-w", "--", "{path}"],
          "parameters": {"path": {"type": "string", "description": "The file."}}
        }
      ]
    }

Pure but for a look at each command. One mistake refuses the whole file, with its line.
"""

import math
import os
import re
import stat
from pathlib import Path
from typing import Any, cast

import msgspec

from clawd.tools.base import NAME_PATTERN
from clawd.tools.external_fields import Fields
from clawd.tools.external_json import Document, parse
from clawd.tools.external_spec import (
    MAX_ELEMENT_BYTES,
    ExternalSpec,
    Parameter,
    ParameterType,
    Value,
    placeholder,
)
from clawd.tools.external_warnings import runs_text

VERSION = 1
MAX_TOOLS = 128
MAX_PARAMETERS = 32
MAX_ARGV = 256
MAX_PASSED = 16
MAX_DESCRIPTION = 4096
TIMEOUT_MS = (100, 300_000)
OUTPUT_BYTES = (1 << 10, 4 << 20)
SANDBOX = "$SANDBOX"

_MAX_CHOICES = 64
_MAX_INTEGER = 2**53  # beyond it JSON readers disagree
_TYPES = ("string", "integer", "number", "boolean")
_TOOL_FIELDS = (
    "name", "description", "command", "argv", "parameters", "timeout_ms", "max_output_bytes",
    "cwd", "env_passthrough", "stderr", "treat_nonzero_exit_as_error", "network",
)  # fmt: skip
_PARAMETER_FIELDS = ("type", "description", "enum", "default", "required")
_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_INNER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# What would hand the daemon's own secrets or doors to a program, or change how programs load.
_NEVER_PASSED = re.compile(
    r"CLAWD_.*|LD_.*|CREDENTIALS_DIRECTORY|NOTIFY_SOCKET|LISTEN_(FDS|PID|FDNAMES)|WATCHDOG_.*"
)


class ManifestRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest is held to beside its own form.

    Attributes:
        hidden: folders and files that no command may see: clawd's home, forbidden paths.
        workspace: the configured workspace, which the model writes to.
        kept_variables: variables that hold a key of clawd's own.
    """

    hidden: tuple[Path, ...] = ()
    workspace: Path | None = None
    kept_variables: frozenset[str] = frozenset()


def read_manifest(text: str, file: Path, rules: ManifestRules) -> list[ExternalSpec]:
    """Return the tools of a manifest.

    Raises:
        JsonFileError: something in it is not as it must be.
    """
    document = parse(text)
    whole = Fields(document, (), ("version", "tools"))
    if "version" not in whole.value:
        raise whole.error("", f"`version` is missing, expected {VERSION}")
    version = whole.value["version"]
    if isinstance(version, bool) or version != VERSION:
        raise whole.error("version", f"`version` is {version!r:.40}, expected {VERSION}")
    if "tools" not in whole.value:
        raise whole.error("", "`tools` is missing, expected a list of tools")
    items = whole.items("tools", at_most=MAX_TOOLS)
    return [_tool(document, number, file, rules) for number in range(len(items))]


def _tool(document: Document, number: int, file: Path, rules: ManifestRules) -> ExternalSpec:
    fields = Fields(document, ("tools", number), _TOOL_FIELDS)
    name = fields.text("name", at_least=1, at_most=64)
    if not re.fullmatch(NAME_PATTERN, name):
        raise fields.error("name", f"`name` is {name!r}, expected letters, digits, _ and -")
    command = _command(fields, rules)
    parameters = _parameters(document, fields)
    argv = _argv(fields, parameters)
    return ExternalSpec(
        name=name,
        description=_description(fields),
        command=command,
        argv=argv,
        parameters=parameters,
        timeout_ms=fields.number(
            "timeout_ms", at_least=TIMEOUT_MS[0], at_most=TIMEOUT_MS[1], default=10_000
        ),
        max_output_bytes=fields.number(
            "max_output_bytes", at_least=OUTPUT_BYTES[0], at_most=OUTPUT_BYTES[1], default=65_536
        ),
        cwd=_cwd(fields, rules),
        env_passthrough=_passed(fields, rules),
        discards_errors=fields.choice("stderr", ("merge", "discard"), default="merge") == "discard",
        nonzero_is_error=fields.flag("treat_nonzero_exit_as_error", default=True),
        network=fields.flag("network", default=False),
        runs_text=runs_text(command, argv),
        file=file,
        line=fields.line,
    )


def _description(fields: Fields) -> str:
    text = fields.text("description", at_least=1, at_most=MAX_DESCRIPTION)
    if not text.strip():
        raise fields.error("description", "`description` is blank; say what the tool does")
    return text


def _command(fields: Fields, rules: ManifestRules) -> Path:
    text = fields.text("command", at_least=1, at_most=MAX_ELEMENT_BYTES)
    command = Path(text)
    if "\0" in text or not command.is_absolute():
        raise fields.error("command", f"`command` is {text!r:.200}, expected an absolute path")
    try:
        facts = command.stat()
        real = command.resolve()
    except (OSError, ValueError) as error:
        raise fields.error("command", f"`command` {text} cannot be had: {error}") from error
    if not stat.S_ISREG(facts.st_mode) or not os.access(command, os.X_OK):
        raise fields.error("command", f"`command` {text} is no file that may be executed")
    if problem := _place_problem(command, rules) or _place_problem(real, rules):
        raise fields.error("command", f"`command` {text} {problem}")
    return command


def _place_problem(path: Path, rules: ManifestRules) -> str:
    for hidden in rules.hidden:
        if path.is_relative_to(hidden):
            return f"lies in {hidden}, where no command may see it"
    if rules.workspace is not None and path.is_relative_to(rules.workspace):
        return "lies in the workspace, where the model could change it"
    return ""


def _cwd(fields: Fields, rules: ManifestRules) -> Path | None:
    text = fields.text("cwd", at_least=1, at_most=MAX_ELEMENT_BYTES, default=SANDBOX)
    if text == SANDBOX:
        return None
    written = Path(os.path.normpath(text))
    if "\0" in text or not written.is_absolute():
        reason = f"`cwd` is {text!r:.200}, expected an absolute path or {SANDBOX}"
        raise fields.error("cwd", reason)
    # Where a link leads is what the tool would see, and what it goes on to see.
    cwd = Path(os.path.realpath(text))
    if cwd == Path("/"):
        raise fields.error("cwd", "`cwd` is /: the tool would see all of this machine")
    for hidden in rules.hidden:
        if any(
            each.is_relative_to(hidden) or hidden.is_relative_to(each) for each in (cwd, written)
        ):
            raise fields.error("cwd", f"`cwd` {text} holds or lies in {hidden}, which is hidden")
    return cwd


def _passed(fields: Fields, rules: ManifestRules) -> tuple[str, ...]:
    names = fields.texts("env_passthrough", at_most=MAX_PASSED, max_bytes=MAX_ELEMENT_BYTES)
    for number, name in enumerate(names):
        if not _VARIABLE.fullmatch(name):
            reason = f"{name!r:.80} is no name of an environment variable"
            raise fields.at("env_passthrough", number, reason)
        if name in rules.kept_variables or _NEVER_PASSED.fullmatch(name):
            raise fields.at("env_passthrough", number, f"{name} is clawd's own and never passed on")
    return names


def _argv(fields: Fields, parameters: tuple[Parameter, ...]) -> tuple[str, ...]:
    argv = fields.texts("argv", at_most=MAX_ARGV, max_bytes=MAX_ELEMENT_BYTES)
    known = {each.name for each in parameters}
    for number, element in enumerate(argv):
        name = placeholder(element)
        if name is not None and name not in known:
            raise fields.at("argv", number, f"`{element}` stands for a parameter that is not there")
        if name is None and (inner := _INNER.search(element)):
            reason = f"{element!r:.80}: a placeholder is a whole element; put {inner[0]} alone"
            raise fields.at("argv", number, reason)
    return argv


def _parameters(document: Document, fields: Fields) -> tuple[Parameter, ...]:
    given = fields.value.get("parameters", {})
    if not isinstance(given, dict):
        raise fields.error(
            "parameters",
            '`parameters` is no object; write them as {"path": {"type": "string"}}',
        )
    if len(given) > MAX_PARAMETERS:
        reason = f"`parameters` has {len(given)} entries, at most {MAX_PARAMETERS}"
        raise fields.error("parameters", reason)
    return tuple(
        _parameter(Fields(document, (*fields.place, "parameters", name), _PARAMETER_FIELDS), name)
        for name in given
    )


def _parameter(fields: Fields, name: str) -> Parameter:
    if not _PARAMETER_NAME.fullmatch(name):
        raise fields.error("", f"{name!r:.80} is no name of a parameter (letters, digits, _)")
    kind = cast("ParameterType", fields.choice("type", _TYPES))
    choices = fields.items("enum", at_most=_MAX_CHOICES)
    for number, choice in enumerate(choices):
        if not _is_of(kind, choice):
            raise fields.at("enum", number, f"an entry of `enum` is no {kind} that can be given")
    if "enum" in fields.value and not choices:
        raise fields.error("enum", "`enum` is empty, so no value would do")
    default = fields.value.get("default")
    _check_default(fields, kind, choices, default)
    return Parameter(
        name=name,
        type=kind,
        description=fields.text("description", at_most=MAX_DESCRIPTION, default=""),
        choices=tuple(choices),
        default=default,
    )


def _check_default(fields: Fields, kind: str, choices: list[Any], default: Any) -> None:
    if "default" in fields.value:
        if not _is_of(kind, default):
            raise fields.error("default", f"`default` is no {kind} that can be given")
        if choices and default not in choices:
            raise fields.error("default", "`default` is none of `enum`")
    is_required = fields.flag("required", default=default is None)
    if not is_required and default is None:
        raise fields.error(
            "required",
            "a parameter that may be left out needs a `default`: argv always has all its elements",
        )
    if is_required and default is not None:
        raise fields.error("required", "a parameter with a `default` is not required")


def _is_of(kind: str, value: Value | None) -> bool:
    if kind == "string":
        return isinstance(value, str) and len(value.encode()) <= MAX_ELEMENT_BYTES
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if isinstance(value, int):
        return abs(value) <= _MAX_INTEGER
    return kind == "number" and isinstance(value, float) and math.isfinite(value)
