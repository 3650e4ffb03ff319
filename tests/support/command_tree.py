"""Every command of clawctl that does something, by what one types for it."""

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import click

from clawctl.main import COMMANDS


def walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from walk(f"{path} {name}", below)


def every_command() -> dict[str, click.Command]:
    return {
        path: command
        for name in COMMANDS
        for path, command in walk(name, importlib.import_module(f"clawctl.commands.{name}").command)
    }


def printed_types() -> dict[str, Any]:
    """Return what each command prints with --json, as its --json-schema has it."""
    found: dict[str, Any] = {}
    for path, command in every_command().items():
        for param in command.params:
            if param.name == "json_schema":
                assert isinstance(param.callback, functools.partial)
                (prints,) = param.callback.args
                found[path] = pkgutil.resolve_name(prints) if isinstance(prints, str) else prints
    return found
