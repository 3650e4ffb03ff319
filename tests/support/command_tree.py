"""Every command of clawctl that does something, by what one types for it."""

import importlib
from collections.abc import Iterator

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
