"""Help, manual, completion and pages for users say the same as the command tree."""

import os
import pkgutil
import re
import shlex
import shutil
import string
import subprocess
import typing
from pathlib import Path

import click
import pytest
from bootstrap import manpages
from bootstrap.manual_text import EXAMPLES

from clawctl.app import App, Exit, Name
from clawctl.completion import complete
from clawctl.live_names import SOURCES
from clawctl.main import COMMANDS, cli
from clawd.wire.method import result_type
from tests.support.command_tree import every_command
from tests.support.rows import each_row

ROOT = Path(__file__).parents[1]
LIMIT_S = 30.0  # what a person is not made to wait for is not what is tested here
PAGES = manpages.pages()
TREE = every_command()
README_ROWS = re.findall(r"^\| `clawctl ([^|]+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)


def unformatted(page: str) -> str:
    """Return a page's text without what only formats it."""
    for escape, plain in (("\\-", "-"), ("\\(aq", "'"), ("\\(dq", '"'), ("\\e", "\\")):
        page = page.replace(escape, plain)
    return " ".join(re.sub(r"\\f[BIR]|^\.\w+ ?", "", page, flags=re.MULTILINE).split())


def test_there_is_a_page_for_every_command_the_daemon_and_the_config() -> None:
    wanted = {"clawctl.1", "clawd.8", "clawd.toml.5", *(f"clawctl-{name}.1" for name in COMMANDS)}
    assert set(PAGES) == wanted


@each_row("path", sorted(TREE))
def test_help_and_page_name_every_command_option_and_argument(path: str) -> None:
    command = TREE[path]
    name = path.split()[0]
    page = unformatted(PAGES[f"clawctl-{name}.1"])
    if not command.hidden:
        assert f"clawctl {path}" in page
    context = click.Context(command, info_name=path)
    told = command.get_help(context)
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help or isinstance(param.type, click.Choice | click.IntRange), param.name
            for option in param.opts:
                assert option in told
                assert option in page


@each_row("name", sorted(PAGES))
def test_a_page_has_what_one_looks_for(name: str) -> None:
    heads = re.findall(r"^\.SH (.+)$", PAGES[name], re.MULTILINE)
    assert heads[0] == "NAME"
    assert {"DESCRIPTION", "EXAMPLES", "SEE ALSO"} <= set(heads)
    if not name.endswith(".5"):
        assert {"SYNOPSIS", "EXIT STATUS"} <= set(heads)


def test_mandoc_finds_every_page_clean(tmp_path: Path) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    files = [tmp_path / name for name in sorted(PAGES)]
    for file in files:
        file.write_text(PAGES[file.name])
    done = subprocess.run(
        ["mandoc", "-Tlint", *map(str, files)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout + done.stderr) == ""


def test_man_finds_nothing_to_warn_of(tmp_path: Path) -> None:
    if shutil.which("man") is None or shutil.which("groff") is None:
        pytest.skip("man-db or groff is not installed")
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text)
        done = subprocess.run(
            ["man", "--warnings", "-l", "-Tutf8", "-Z", str(tmp_path / name)],
            env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), name


def test_exit_codes_are_the_same_in_code_help_and_manual() -> None:
    told = " ".join((cli.help or "").split())
    for code in Exit:
        assert f"{code.value} " in told
        assert f"\n.TP\n{code.value}\n" in PAGES["clawctl.1"]


@each_row("name", sorted(COMMANDS))
def test_examples_are_commands_and_options_that_there_are(name: str) -> None:
    for typed, _about in EXAMPLES[name]:
        words = shlex.split(typed.rpartition("clawctl ")[2] or typed)
        path = " ".join(words[:2]) if " ".join(words[:2]) in TREE else words[0]
        known = {option for param in TREE[path].params for option in param.opts}
        used = {word for word in words if word.startswith("--") or re.fullmatch(r"-\w", word)}
        assert used <= known, typed


@each_row("path", ["", *sorted(TREE)])
def test_completion_offers_what_the_tree_has(path: str) -> None:
    words = path.split()
    offered = {
        line.partition("\t")[0]
        for line in complete(cli, "zsh", [*words, "-"], App(), limit_s=LIMIT_S)
    }
    command: click.Command = TREE[path] if path else cli
    known = {
        option
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden
        for option in (*param.opts, *param.secondary_opts)
    }
    assert offered == known | {"--help"} | ({"-h"} if "-h" in offered else set())


@each_row("name", ["", *sorted({path.split()[0] for path in TREE if " " in path})])
def test_completion_offers_every_command_below(name: str) -> None:
    offered = {
        line.partition("\t")[0]
        for line in complete(cli, "fish", [*name.split(), ""], App(), limit_s=LIMIT_S)
    }
    below = {
        path.split()[1]
        for path, c in TREE.items()
        if name and path.startswith(f"{name} ") and not c.hidden
    }
    assert (below or set(COMMANDS)) <= offered


def test_each_kind_of_live_names_is_asked_for_and_says_what_its_lines_have() -> None:
    params = [param for command in TREE.values() for param in command.params]
    kinds = {param.type.kind for param in params if isinstance(param.type, Name)}
    assert kinds == {*SOURCES, "keywords", "knowledge"}
    for source in SOURCES.values():
        method = pkgutil.resolve_name(f"clawd.wire.{source.request}")
        assert set(source.given) <= set(method.__struct_fields__)
        (line, *_) = typing.get_args(typing.get_type_hints(result_type(method))["items"])
        told = {
            name.partition(".")[2]
            for _, name, _, _ in string.Formatter().parse(source.about)
            if name
        }
        assert {source.name, *filter(None, told)} <= set(line.__struct_fields__)


def test_the_page_of_commands_has_the_table_of_the_code() -> None:
    assert manpages.table() in (ROOT / "docs" / "commands.md").read_text()


@each_row("row", README_ROWS)
def test_the_readme_names_commands_that_there_are(row: str) -> None:
    for typed in re.findall(r"`(?:clawctl )?([^`]+)`", f"`{row}"):
        words = re.sub(r"\[[^\]]*\]|\s-.*|[A-Z\"…].*", "", typed).replace(",", " ").split()
        if not words:
            continue
        names = words if words[0] in COMMANDS else [row.split()[0], *words]
        assert names[0] in COMMANDS, row
        group = [path for path in TREE if path.startswith(f"{names[0]} ")]
        for sub in names[1:]:
            assert f"{names[0]} {sub}" in group, (row, sub)
