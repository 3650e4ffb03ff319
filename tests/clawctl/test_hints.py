"""What messages tell people to type or to write exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click

from clawctl.main import COMMANDS, cli
from clawd.config.schema import SandboxMode
from tests.clawctl.conftest import ROOT
from tests.support.rows import each_row

SOURCES = sorted([*(ROOT / "clawd").rglob("*.py"), *(ROOT / "clawctl").rglob("*.py")])
COMMAND = re.compile(r"(?:^|`|: )clawctl ([a-z]+)(?: ([a-z]+))?")


def texts(source: Path) -> Iterator[str]:
    """Yield the string constants of a file, without its docstrings."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


@each_row("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_name_commands_and_values_that_there_are(source: Path) -> None:
    context = click.Context(cli)
    written = source.read_text(encoding="utf-8")
    if "clawctl" not in written and "sandbox" not in written:
        return  # it names neither
    for text in texts(source):
        for name, sub in COMMAND.findall(text):
            assert name in COMMANDS, text
            group = cli.get_command(context, name)
            if sub and isinstance(group, click.Group):
                assert sub in group.commands, text
        for value in re.findall(r'sandbox = "(\w+)"', text):
            assert value in get_args(SandboxMode), text
