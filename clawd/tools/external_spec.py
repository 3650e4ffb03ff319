"""What an external tool is: the values of a manifest once they are known to be sound."""

from pathlib import Path
from typing import Any, Literal

import msgspec

from clawd.errors import InvalidRequestError

MAX_ELEMENT_BYTES = 4 << 10

ParameterType = Literal["string", "integer", "number", "boolean"]
Value = str | int | float | bool


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
    type: ParameterType
    description: str = ""
    choices: tuple[Value, ...] = ()
    default: Value | None = None


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
        network: whether it may use the network.
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
    network: bool = False
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
            name = placeholder(element)
            words.append(element if name is None else _word(name, values[name]))
        return tuple(words)


def placeholder(element: str) -> str | None:
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


def _word(name: str, value: Value | None) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if "\0" in text:
        raise InvalidRequestError(
            f"argument `{name}` holds a NUL character, which no program can be given"
        )
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_ELEMENT_BYTES:
        raise InvalidRequestError(
            f"argument `{name}` is {size} bytes long, at most {MAX_ELEMENT_BYTES} can be given",
            hint="Write what is longer to a file of the workspace and give its path.",
        )
    return text
