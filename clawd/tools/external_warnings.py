"""What is allowed in a manifest of external tools, and most likely a mistake."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from clawd.tools.external_spec import ExternalSpec, Parameter, placeholder
from clawd.wire.secrets import is_secret_variable

_INTERPRETERS = re.compile(
    r"(ba|da|z|k|fi|c|tc|a)?sh|busybox|python[0-9.]*|pypy[0-9.]*|perl[0-9.]*|ruby[0-9.]*|node"
    r"|nodejs|deno|bun|php[0-9.]*|lua[0-9.]*|luajit|tclsh[0-9.]*|[gmn]?awk|Rscript"
)
_CODE_OPTIONS = re.compile(r"-[A-Za-z]*[ceEr]|--eval|--command|--execute|--print|--run")
_STARTERS = frozenset({"env", "nice", "nohup", "setsid", "stdbuf", "timeout", "time", "xargs"})


def runs_text(command: Path, argv: tuple[str, ...]) -> bool:
    """Tell whether an interpreter takes a parameter's value as its program."""
    if not _names_interpreter(command, argv):
        return False
    words = [word for word in argv if word != "--"]  # sh -c -- TEXT runs it as well
    return any(
        _CODE_OPTIONS.fullmatch(option) and placeholder(code) is not None
        for option, code in pairwise(words)
    )


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
    used = {placeholder(element) for element in spec.argv}
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
        name = placeholder(element)
        is_value_of_option = before.startswith("-") and placeholder(before) is None
        if name is not None and not is_value_of_option and _may_begin_with_dash(by_name[name]):
            yield f"put `--` before `{element}`: a value that begins with - looks like an option"
        before = element


def _may_begin_with_dash(parameter: Parameter) -> bool:
    if parameter.choices:
        return any(str(choice).startswith("-") for choice in parameter.choices)
    return parameter.type != "boolean"
