"""Manifests of external tools: what a file `CLAWD-<name>.tools` must hold.

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

Pure but for a look at each command. One mistake refuses the whole file, with its line: the reader
of the JSON remembers on which line each value stands. It is stricter than JSON where a file for
people gains by it: no name twice in an object, no NaN.
"""

import difflib
import json
import math
import os
import re
import stat
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from clawd.errors import InvalidRequestError
from clawd.tools.base import NAME_PATTERN
from clawd.wire.policy import ANY_HOST, is_listed_form
from clawd.wire.secrets import is_secret_variable

_MAX_ELEMENT_BYTES = 4 << 10
_ParameterType = Literal["string", "integer", "number", "boolean"]
_Value = str | int | float | bool
VERSION = 1
MAX_TOOLS = 128
MAX_PARAMETERS = 32
MAX_ARGV = 256
MAX_PASSED = 16
MAX_HOSTS = 64
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
    "hosts",
)  # fmt: skip
_PARAMETER_FIELDS = ("type", "description", "enum", "default", "required")
_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_INNER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# What would hand the daemon's own secrets or doors to a program, or change how programs load.
_NEVER_PASSED = re.compile(
    r"CLAWD_.*|LD_.*|CREDENTIALS_DIRECTORY|NOTIFY_SOCKET|LISTEN_(FDS|PID|FDNAMES)|WATCHDOG_.*"
)
_INTERPRETERS = re.compile(
    r"(ba|da|z|k|fi|c|tc|a)?sh|busybox|python[0-9.]*|pypy[0-9.]*|perl[0-9.]*|ruby[0-9.]*|node"
    r"|nodejs|deno|bun|php[0-9.]*|lua[0-9.]*|luajit|tclsh[0-9.]*|[gmn]?awk|Rscript"
)
_CODE_OPTIONS = re.compile(r"-[A-Za-z]*[ceEr]|--eval|--command|--execute|--print|--run")
_STARTERS = frozenset({"env", "nice", "nohup", "setsid", "stdbuf", "timeout", "time", "xargs"})
MAX_DEPTH = 16
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_BLANKS = re.compile(r"[ \t\r\n]*")
_Place = tuple[str | int, ...]


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a tool.

    Attributes:
        name: what the model calls it.
        type: of which JSON type it is.
        description: for the model; may be empty.
        choices: the only values it may have; empty for any.
        default: what it is when the model leaves it out; None makes it required.
    """

    name: str
    type: _ParameterType
    description: str = ""
    choices: tuple[_Value, ...] = ()
    default: _Value | None = None


def _runs_text(command: Path, argv: tuple[str, ...]) -> bool:
    """Return whether an interpreter takes a parameter's value as its program."""
    if not _names_interpreter(command, argv):
        return False
    words = [word for word in argv if word != "--"]  # sh -c -- TEXT runs it as well
    return any(
        _CODE_OPTIONS.fullmatch(option) and _placeholder(code) is not None
        for option, code in pairwise(words)
    )


class ExternalSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of a manifest.

    Attributes:
        name: what the model calls it.
        description: the manual; its first line is what every request says of it.
        command: the program; absolute.
        argv: its arguments, `{name}` standing for a parameter's value.
        parameters: what the model may say.
        timeout_ms: how long a call may take.
        max_output_bytes: how much of its output is kept.
        cwd: where it runs; None is the workspace of the call.
        env_passthrough: variables of the daemon that it is given.
        discards_errors: whether its standard error is thrown away.
        nonzero_is_error: whether another exit code than 0 is a failure.
        hosts: what it may reach: `host:port`, `*.domain:port`, or `*` for every public host.
        is_old: whether it says so by `network`.
        runs_text: whether an interpreter is given a parameter's value as its program.
        file: the manifest.
        line: where it stands there.
    """

    name: str
    description: str
    command: Path
    argv: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    timeout_ms: int = 10_000
    max_output_bytes: int = 65_536
    cwd: Path | None = None
    env_passthrough: tuple[str, ...] = ()
    discards_errors: bool = False
    nonzero_is_error: bool = True
    hosts: tuple[str, ...] = ()
    is_old: bool = False
    runs_text: bool = False
    file: Path = Path()
    line: int = 1

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its arguments."""
        return {
            "type": "object",
            "properties": {each.name: _rule(each) for each in self.parameters},
            "required": [each.name for each in self.parameters if each.default is None],
            "additionalProperties": False,
        }

    def words(self, arguments: dict[str, Any]) -> tuple[str, ...]:
        """Return program and arguments of a call: each value is one element, whatever it holds.

        Raises:
            InvalidRequestError: a value cannot be an argument of a program.
        """
        values = {each.name: arguments.get(each.name, each.default) for each in self.parameters}
        words = [str(self.command)]
        for element in self.argv:
            name = _placeholder(element)
            words.append(element if name is None else _word(name, values[name]))
        return tuple(words)


def _placeholder(element: str) -> str | None:
    """Return the parameter that an element of argv stands for, or None."""
    if element.startswith("{") and element.endswith("}") and element[1:-1].isidentifier():
        return element[1:-1]
    return None


def _rule(parameter: Parameter) -> dict[str, Any]:
    rule: dict[str, Any] = {"type": parameter.type}
    if parameter.description:
        rule["description"] = parameter.description
    if parameter.choices:
        rule["enum"] = list(parameter.choices)
    if parameter.default is not None:
        rule["default"] = parameter.default
    return rule


def _word(name: str, value: _Value | None) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if "\0" in text:
        raise InvalidRequestError(
            f"argument `{name}` holds a NUL character, which no program can be given"
        )
    size = len(text.encode("utf-8", "replace"))
    if size > _MAX_ELEMENT_BYTES:
        raise InvalidRequestError(
            f"argument `{name}` is {size} bytes long, at most {_MAX_ELEMENT_BYTES} can be given",
            hint="Write what is longer to a file of the workspace and give its path.",
        )
    return text


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
    whole = _Fields(document, (), ("version", "tools"))
    if "version" not in whole.value:
        raise whole.error("", f"`version` is missing, expected {VERSION}")
    version = whole.value["version"]
    if isinstance(version, bool) or version != VERSION:
        raise whole.error("version", f"`version` is {version!r:.40}, expected {VERSION}")
    if "tools" not in whole.value:
        raise whole.error("", "`tools` is missing, expected a list of tools")
    items = whole.items("tools", at_most=MAX_TOOLS)
    return [_tool(document, number, file, rules) for number in range(len(items))]


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed text.

    Attributes:
        value: what it holds.
        lines: the line of each value, by the names and numbers that lead to it.
    """

    value: Any
    lines: dict[_Place, int]

    def line_of(self, place: _Place) -> int:
        """Return the line of a value; of what holds it, where there is no such value."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def _tool(document: _Document, number: int, file: Path, rules: ManifestRules) -> ExternalSpec:
    fields = _Fields(document, ("tools", number), _TOOL_FIELDS)
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
        hosts=_hosts(fields),
        is_old=fields.flag("network", default=False),
        runs_text=_runs_text(command, argv),
        file=file,
        line=fields.line,
    )


class JsonFileError(Exception):
    """A text is not the JSON that is wanted.

    Attributes:
        line: where, counted from 1.
        reason: what is wrong there.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class _Fields:
    """One object of a document.

    Args:
        document: the whole text.
        place: where the object stands in it.
        known: the names that it may have.

    Raises:
        JsonFileError: it is no object, or has a name that is not known.
    """

    def __init__(self, document: _Document, place: _Place, known: tuple[str, ...]) -> None:
        self._document = document
        self.place = place
        value: Any = document.value
        for part in place:
            value = value[part]
        if not isinstance(value, dict):
            raise self.error("", f"{_kind(value)} stands here, expected an object")
        self.value: dict[str, Any] = value
        for name in value:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                meant = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
                raise self.error(name, f"`{name}` is unknown; {meant}")

    @property
    def line(self) -> int:
        """Return the line on which the object begins."""
        return self._document.line_of(self.place)

    def error(self, name: str, reason: str) -> JsonFileError:
        """Return a complaint about a field; "" is the object itself."""
        place = (*self.place, name) if name else self.place
        return JsonFileError(self._document.line_of(place), reason)

    def text(
        self, name: str, *, at_least: int = 0, at_most: int, default: str | None = None
    ) -> str:
        """Return a text of so many characters; without a default it must be there."""
        value = self._given(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"`{name}` is {_kind(value)}, expected text in double quotes")
        if not at_least <= len(value) <= at_most:
            raise self.error(
                name, f"`{name}` has {len(value)} characters, expected {at_least} to {at_most}"
            )
        return value

    def number(self, name: str, *, at_least: int, at_most: int, default: int) -> int:
        """Return a whole number in these bounds."""
        value = self.value.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"`{name}` is {_kind(value)}, expected a whole number")
        if not at_least <= value <= at_most:
            raise self.error(
                name, f"`{name}` is {str(value)[:40]}, expected {at_least} to {at_most}"
            )
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.value.get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"`{name}` is {_kind(value)}, expected true or false")
        return value

    def choice(self, name: str, choices: tuple[str, ...], *, default: str | None = None) -> str:
        """Return one of a few words."""
        value = self._given(name, default)
        if not isinstance(value, str) or value not in choices:
            shown = repr(value)[:60] if isinstance(value, str) else _kind(value)
            raise self.error(name, f"`{name}` is {shown}, expected one of {', '.join(choices)}")
        return value

    def items(self, name: str, *, at_most: int) -> list[Any]:
        """Return a list; an absent one is empty."""
        value = self.value.get(name, [])
        if not isinstance(value, list):
            raise self.error(name, f"`{name}` is {_kind(value)}, expected a list")
        if len(value) > at_most:
            raise self.error(name, f"`{name}` has {len(value)} entries, at most {at_most}")
        return value

    def texts(self, name: str, *, at_most: int, max_bytes: int) -> tuple[str, ...]:
        """Return a list of texts; an absent one is empty."""
        found = self.items(name, at_most=at_most)
        for number, item in enumerate(found):
            if not isinstance(item, str):
                raise self.at(name, number, f"an entry of `{name}` is {_kind(item)}, expected text")
            if "\0" in item:
                raise self.at(name, number, f"an entry of `{name}` holds a NUL character")
            size = len(item.encode("utf-8", "surrogatepass"))
            if size > max_bytes:
                reason = f"an entry of `{name}` is {size} bytes long, at most {max_bytes}"
                raise self.at(name, number, reason)
        return tuple(found)

    def at(self, name: str, number: int, reason: str) -> JsonFileError:
        """Return a complaint about one entry of a list."""
        return JsonFileError(self._document.line_of((*self.place, name, number)), reason)

    def _given(self, name: str, default: str | None) -> Any:
        if name not in self.value and default is None:
            raise self.error("", f"`{name}` is missing")
        return self.value.get(name, default)


def _hosts(fields: _Fields) -> tuple[str, ...]:
    """Return what it may reach; `network`, which was there before `hosts`, is every public host."""
    hosts = fields.texts("hosts", at_most=MAX_HOSTS, max_bytes=_MAX_ELEMENT_BYTES)
    for number, host in enumerate(hosts):
        if not is_listed_form(host, any_host=True):
            reason = f"{host!r:.80} is no host: expected host:port, *.domain:port or *"
            raise fields.at("hosts", number, reason)
    has_network = fields.flag("network", default=False)
    return tuple(host.lower() for host in hosts) or ((ANY_HOST,) if has_network else ())


def _description(fields: _Fields) -> str:
    text = fields.text("description", at_least=1, at_most=MAX_DESCRIPTION)
    if not text.strip():
        raise fields.error("description", "`description` is blank; say what the tool does")
    return text


def _command(fields: _Fields, rules: ManifestRules) -> Path:
    text = fields.text("command", at_least=1, at_most=_MAX_ELEMENT_BYTES)
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


def _cwd(fields: _Fields, rules: ManifestRules) -> Path | None:
    text = fields.text("cwd", at_least=1, at_most=_MAX_ELEMENT_BYTES, default=SANDBOX)
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


def _passed(fields: _Fields, rules: ManifestRules) -> tuple[str, ...]:
    names = fields.texts("env_passthrough", at_most=MAX_PASSED, max_bytes=_MAX_ELEMENT_BYTES)
    for number, name in enumerate(names):
        if not _VARIABLE.fullmatch(name):
            reason = f"{name!r:.80} is no name of an environment variable"
            raise fields.at("env_passthrough", number, reason)
        if name in rules.kept_variables or _NEVER_PASSED.fullmatch(name):
            raise fields.at("env_passthrough", number, f"{name} is clawd's own and never passed on")
    return names


def _argv(fields: _Fields, parameters: tuple[Parameter, ...]) -> tuple[str, ...]:
    argv = fields.texts("argv", at_most=MAX_ARGV, max_bytes=_MAX_ELEMENT_BYTES)
    known = {each.name for each in parameters}
    for number, element in enumerate(argv):
        name = _placeholder(element)
        if name is not None and name not in known:
            raise fields.at("argv", number, f"`{element}` stands for a parameter that is not there")
        if name is None and (inner := _INNER.search(element)):
            reason = f"{element!r:.80}: a placeholder is a whole element; put {inner[0]} alone"
            raise fields.at("argv", number, reason)
    return argv


def _parameters(document: _Document, fields: _Fields) -> tuple[Parameter, ...]:
    given = fields.value.get("parameters", {})
    if not isinstance(given, dict):
        raise fields.error(
            "parameters", '`parameters` is no object; write them as {"path": {"type": "string"}}'
        )
    if len(given) > MAX_PARAMETERS:
        reason = f"`parameters` has {len(given)} entries, at most {MAX_PARAMETERS}"
        raise fields.error("parameters", reason)
    return tuple(
        _parameter(_Fields(document, (*fields.place, "parameters", name), _PARAMETER_FIELDS), name)
        for name in given
    )


def _parameter(fields: _Fields, name: str) -> Parameter:
    if not _PARAMETER_NAME.fullmatch(name):
        raise fields.error("", f"{name!r:.80} is no name of a parameter (letters, digits, _)")
    kind = cast("_ParameterType", fields.choice("type", _TYPES))
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


def _check_default(fields: _Fields, kind: str, choices: list[Any], default: Any) -> None:
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


def _is_of(kind: str, value: _Value | None) -> bool:
    if kind == "string":
        return isinstance(value, str) and len(value.encode()) <= _MAX_ELEMENT_BYTES
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if isinstance(value, int):
        return abs(value) <= _MAX_INTEGER
    return kind == "number" and isinstance(value, float) and math.isfinite(value)


def _kind(value: object) -> str:
    """Name a value's type as JSON does."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    names = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def warnings_of(spec: ExternalSpec) -> Iterator[str]:
    """Yield what is doubtful about a tool, a sentence each."""
    if _names_interpreter(spec.command, spec.argv):
        for option in spec.argv:
            if _CODE_OPTIONS.fullmatch(option):
                yield f"{spec.command.name} with {option} runs text as a program; " + (
                    "the model writes that text, so every call is of high risk"
                    if spec.runs_text
                    else "put the program into a file of its own"
                )
                break
    yield from _unprotected(spec)
    used = {_placeholder(element) for element in spec.argv}
    for parameter in spec.parameters:
        if parameter.name not in used:
            yield f"parameter `{parameter.name}` is nowhere in argv"
    for name in spec.env_passthrough:
        if is_secret_variable(name):
            yield f"{name} looks like a secret; the tool can read it, its output loses it"


def _names_interpreter(command: Path, argv: tuple[str, ...]) -> bool:
    names = [command.name]
    if command.name in _STARTERS:
        names += [Path(element).name for element in argv]
    return any(_INTERPRETERS.fullmatch(name) for name in names)


def _unprotected(spec: ExternalSpec) -> Iterator[str]:
    """Yield a warning for each value that a program could take for an option."""
    by_name = {each.name: each for each in spec.parameters}
    before = ""
    for element in spec.argv:
        if element == "--":
            return
        name = _placeholder(element)
        is_value_of_option = before.startswith("-") and _placeholder(before) is None
        if name is not None and not is_value_of_option and _may_begin_with_dash(by_name[name]):
            yield f"put `--` before `{element}`: a value that begins with - looks like an option"
        before = element


def _may_begin_with_dash(parameter: Parameter) -> bool:
    if parameter.choices:
        return any(str(choice).startswith("-") for choice in parameter.choices)
    return parameter.type != "boolean"


def parse(text: str) -> _Document:
    """Parse a whole text.

    Raises:
        JsonFileError: it is no JSON, names something twice or nests too deeply.
    """
    reader = _Reader(text)
    value, end = reader.value(reader.skip(0), ())
    if reader.skip(end) != len(text):
        raise reader.error(reader.skip(end), "there is more text after the end of the JSON")
    return _Document(value=value, lines=reader.lines)


class _Reader:
    """Walks objects and lists itself and leaves all else to the standard library."""

    def __init__(self, text: str) -> None:
        self.lines: dict[_Place, int] = {}
        self._text = text
        self._counted = (0, 1)
        self._plain = json.JSONDecoder(parse_constant=_no_constant)

    def skip(self, at: int) -> int:
        found = _BLANKS.match(self._text, at)
        return found.end() if found else at

    def error(self, at: int, reason: str) -> JsonFileError:
        return JsonFileError(self._text.count("\n", 0, at) + 1, reason)

    def value(self, at: int, place: _Place) -> tuple[Any, int]:
        self.lines[place] = self._line(at)
        if len(place) > MAX_DEPTH:
            raise self.error(at, f"it is nested more than {MAX_DEPTH} deep")
        if self._text.startswith("{", at):
            return self._object(at, place)
        if self._text.startswith("[", at):
            return self._list(at, place)
        return self._scalar(at)

    def _object(self, at: int, place: _Place) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = self.skip(at + 1)
        while not self._text.startswith("}", at):
            if found:
                at = self._after(",", at)
            name, end = self._scalar(at)
            if not isinstance(name, str):
                raise self.error(at, "a name in double quotes is expected")
            if name in found:
                raise self.error(at, f"`{name}` is named twice")
            found[name], end = self.value(self._after(":", self.skip(end)), (*place, name))
            at = self.skip(end)
        return found, at + 1

    def _list(self, at: int, place: _Place) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = self.skip(at + 1)
        while not self._text.startswith("]", at):
            if found:
                at = self._after(",", at)
            item, end = self.value(at, (*place, len(found)))
            found.append(item)
            at = self.skip(end)
        return found, at + 1

    def _after(self, mark: str, at: int) -> int:
        if not self._text.startswith(mark, at):
            raise self.error(at, f"`{mark}` is expected")
        return self.skip(at + 1)

    def _scalar(self, at: int) -> tuple[Any, int]:
        if self._text[at : at + 1] in {"{", "["}:
            raise self.error(at, "a name in double quotes is expected")
        try:
            value, end = self._plain.raw_decode(self._text, at)
        except json.JSONDecodeError as error:
            raise self.error(error.pos, f"this is no JSON: {error.msg}") from error
        except ValueError as error:
            raise self.error(at, f"this is no JSON: {error}") from error
        if isinstance(value, str) and _NO_TEXT.search(value):
            raise self.error(at, "a text holds a NUL or half of a surrogate pair")
        return value, end

    def _line(self, at: int) -> int:
        """Return the line of a place that is not before the one asked for last."""
        before, line = self._counted
        line += self._text.count("\n", before, at)
        self._counted = (at, line)
        return line


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
