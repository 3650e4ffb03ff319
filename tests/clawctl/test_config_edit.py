"""`config edit`: nothing invalid is put in place, nothing is lost, and nobody is overwritten."""

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawctl.config_edit import (
    has_section,
    quoted,
    with_section,
    with_toml,
    without,
    without_section,
)
from clawd.errors import ConfigError
from tests.clawctl.conftest import Run


@pytest.fixture
def config(here: Run, home: Path) -> Path:
    assert here("init").returncode == 0
    return home / "config.toml"


def editor(environ: dict[str, str], folder: Path, script: str) -> None:
    """Make an editor that does to its file what the script says."""
    program = folder / "an-editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    environ["VISUAL"] = environ["EDITOR"] = str(program)


def test_a_valid_text_replaces_the_config_and_keeps_its_mode(
    here: Run, environ: dict[str, str], tmp_path: Path, config: Path
) -> None:
    config.chmod(0o640)
    editor(environ, tmp_path, 'sed -i s/supervised/readonly/ "$1"')
    done = here("config", "edit")
    assert done.returncode == 0, done.stderr
    assert "is written. It is in force when a daemon starts." in done.stdout
    assert tomllib.loads(config.read_text("utf-8"))["security"]["autonomy"] == "readonly"
    assert stat.S_IMODE(config.stat().st_mode) == 0o640


def test_an_invalid_text_is_kept_aside_and_the_config_stays(
    here: Run, environ: dict[str, str], tmp_path: Path, config: Path
) -> None:
    before = config.read_text("utf-8")
    editor(environ, tmp_path, 'sed -i s/supervised/godmode/ "$1"; echo "odd = 1" >> "$1"')
    done = here("config", "edit")
    assert done.returncode == 1
    assert "godmode" in done.stderr
    assert "readonly, supervised" in done.stderr
    assert str(config) in done.stderr
    assert config.read_text("utf-8") == before
    kept = config.with_name("config.toml.rejected")
    assert "godmode" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert f"Your text is kept: {kept}" in done.stderr


def test_nothing_is_done_where_nothing_was_changed(
    here: Run, environ: dict[str, str], tmp_path: Path, config: Path
) -> None:
    editor(environ, tmp_path, "true")
    before = config.stat().st_ino
    assert "Nothing was changed." in here("config", "edit").stdout
    assert config.stat().st_ino == before


def test_a_change_by_somebody_else_meanwhile_is_not_overwritten(
    here: Run, environ: dict[str, str], tmp_path: Path, config: Path
) -> None:
    editor(environ, tmp_path, f'sed -i s/supervised/readonly/ "$1"; echo "# theirs" >> {config}')
    done = here("config", "edit")
    assert done.returncode == 1
    assert "somebody else" in done.stderr
    assert config.read_text("utf-8").endswith("# theirs\n")
    assert "readonly" in config.with_name("config.toml.rejected").read_text()


def test_an_editor_that_fails_changes_nothing(
    here: Run, environ: dict[str, str], tmp_path: Path, config: Path
) -> None:
    before = config.read_text("utf-8")
    editor(environ, tmp_path, 'echo "autonomy = 1" > "$1"; exit 3')
    done = here("config", "edit")
    assert done.returncode == 1
    assert "EDITOR=nano" in done.stderr
    assert config.read_text("utf-8") == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every file")
def test_a_config_that_may_not_be_written_says_how(here: Run, config: Path) -> None:
    config.chmod(0o400)
    done = here("config", "edit")
    assert done.returncode == 1
    assert "sudo clawctl config edit" in done.stderr


TEXT = 'a = "1"  # one\n\n[security]\n# autonomy\nautonomy = "supervised"\n[other]\nb = 2\n'


@given(value=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_every_value_comes_back_from_toml(value: str) -> None:
    changed = with_toml(TEXT, "security.autonomy", quoted(value))
    assert tomllib.loads(changed)["security"] == {"autonomy": value}
    added = with_section(TEXT, "providers.models.server", {"model": value, "empty": ""})
    expected = {"model": value} if value else {}
    assert tomllib.loads(added)["providers"]["models"]["server"] == expected
    assert has_section(added, "providers.models.server")
    assert not has_section(added, "providers.models.claude")


WRITTEN = """\
# on top
default_model = "a"  # why
list = [
    "x = 1",  # no key
    "[no.heading]",
]

[security]
# The level.
#autonomy = "supervised"
roots = ["a"]
"odd key" = 1
[[rules]]
a = 1
[providers.models."qwen2.5"]
kind = "local"
dotted.key = 1
"""


def test_p12_a_key_is_set_where_it_stands_and_all_else_stays() -> None:
    rows = {
        ("default_model", '"b"'): ('default_model = "a"  # why', 'default_model = "b"  # why'),
        ("list", "[]"): ('list = [\n    "x = 1",  # no key\n    "[no.heading]",\n]', "list = []"),
        ("security.roots", '["b", "c"]'): ('roots = ["a"]', 'roots = ["b", "c"]'),
        ('security."odd key"', "2"): ('"odd key" = 1', '"odd key" = 2'),
        ('providers.models."qwen2.5".kind', '"x"'): ('kind = "local"', 'kind = "x"'),
        ('providers.models."qwen2.5".dotted.key', "2"): ("dotted.key = 1", "dotted.key = 2"),
        ("security.autonomy", '"full"'): (
            '#autonomy = "supervised"\n',
            '#autonomy = "supervised"\nautonomy = "full"\n',
        ),
        ("new", "true"): ("# on top\n", "new = true\n# on top\n"),
    }
    found = {row: with_toml(WRITTEN, *row) for row in rows}
    assert found == {row: WRITTEN.replace(old, new, 1) for row, (old, new) in rows.items()}
    assert with_toml(WRITTEN, "new.section.key", "1") == f"{WRITTEN}\n[new.section]\nkey = 1\n"
    assert with_toml("", "a", "1") == "a = 1\n"
    assert with_toml("a = 1", "b", "2") == "b = 2\na = 1"


def test_p12_a_key_is_taken_out_and_all_else_stays() -> None:
    assert without(WRITTEN, "default_model") == WRITTEN.replace('default_model = "a"  # why\n', "")
    assert without(WRITTEN, "list") == WRITTEN.replace(
        'list = [\n    "x = 1",  # no key\n    "[no.heading]",\n]\n', ""
    )
    assert without(WRITTEN, "security.autonomy") == WRITTEN


def test_p12_what_cannot_be_changed_in_one_place_is_left_alone() -> None:
    inline = "security = { autonomy = 'full' }\n"
    for text, key, value in (
        (inline, "security.autonomy", '"full2"'),
        (WRITTEN, "rules.a", "2"),
        (WRITTEN, "default_model.x", "2"),
        (WRITTEN, "security", "2"),
        (WRITTEN, "a = 1\nb", "2"),
        (WRITTEN, "", "2"),
        (WRITTEN, "x", "1\ny = 2"),
        (WRITTEN, "x", "what"),
        ("no toml", "x", "1"),
    ):
        with pytest.raises(ConfigError):
            with_toml(text, key, value)
    with pytest.raises(ConfigError, match="left to you"):
        without(inline, "security.autonomy")


@given(st.text(), st.sampled_from(["default_model", "security.roots", "new", "new.section.key"]))
def test_p12_any_text_is_set_as_it_is(value: str, key: str) -> None:
    if any("\ud800" <= char <= "\udfff" for char in value):
        return
    *sections, name = key.split(".")
    found = tomllib.loads(with_toml(WRITTEN, key, quoted(value)))
    for section in sections:
        found = found[section]
    assert found[name] == value


def test_p12_config_set_writes_what_is_valid_and_nothing_else(here: Run, home: Path) -> None:
    config = home / "config.toml"
    done = here("config", "set", "security.autonomy", "readonly")
    assert done.returncode == 0, done.stderr
    assert f"there was no {config}: one with every key in it was made" in done.stderr
    before = config.read_text("utf-8")
    assert tomllib.loads(before)["security"]["autonomy"] == "readonly"
    assert before.count("#") > 100, "the comments are there still"
    refused = here("config", "set", "security.autonomy", "godmode")
    assert refused.returncode == 1
    assert "readonly, supervised" in refused.stderr
    assert config.read_text("utf-8") == before
    assert here("config", "set", "agent.max_tool_rounds", "3").returncode == 0
    assert here("config", "set", "default_model", "4").returncode == 0
    values = tomllib.loads(config.read_text("utf-8"))
    assert (values["agent"]["max_tool_rounds"], values["default_model"]) == (3, "4")
    assert here("config", "unset", "agent.max_tool_rounds").returncode == 0
    assert "max_tool_rounds" not in tomllib.loads(config.read_text("utf-8")).get("agent", {})
    assert not list(home.glob(".config.toml.*"))


def test_a_section_is_taken_out_with_those_within_it_and_nothing_else() -> None:
    text = (
        '# mine\n[mcp.servers.a]\nurl = "x"\n[mcp.servers.a.env]\nB = "1"\n'
        '[mcp.servers.ab]\nurl = "y"\n\n# after\n[security]\nautonomy = "full"\n'
    )
    wanted = '# mine\n[mcp.servers.ab]\nurl = "y"\n\n# after\n[security]\nautonomy = "full"\n'
    assert without_section(text, "mcp", "servers", "a") == wanted
    for left in ("", '[mcp.servers]\na = { url = "x" }\n', 'mcp.servers.a.url = "x"\n'):
        with pytest.raises(ConfigError, match="not in the config as a section"):
            without_section(left, "mcp", "servers", "a")
