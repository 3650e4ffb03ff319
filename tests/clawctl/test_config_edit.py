"""`config edit`: nothing invalid is put in place, nothing is lost, and nobody is overwritten."""

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawctl.config_text import has_section, with_section, with_value
from clawd.errors import ConfigError
from tests.clawctl.conftest import Run


@pytest.fixture
def config(clawctl: Run, home: Path) -> Path:
    assert clawctl("init").returncode == 0
    return home / "config.toml"


def editor(environ: dict[str, str], folder: Path, script: str) -> None:
    """Make an editor that does to its file what the script says."""
    program = folder / "an-editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    environ["VISUAL"] = environ["EDITOR"] = str(program)


def test_a_valid_text_replaces_the_config_and_keeps_its_mode(
    clawctl: Run, environ: dict[str, str], tmp_path: Path, config: Path
) -> None:
    config.chmod(0o640)
    editor(environ, tmp_path, 'sed -i s/supervised/readonly/ "$1"')
    done = clawctl("config", "edit")
    assert done.returncode == 0, done.stderr
    assert "is replaced. It is in force when a daemon starts." in done.stdout
    assert tomllib.loads(config.read_text("utf-8"))["security"]["autonomy"] == "readonly"
    assert stat.S_IMODE(config.stat().st_mode) == 0o640


def test_an_invalid_text_is_kept_aside_and_the_config_stays(
    clawctl: Run, environ: dict[str, str], tmp_path: Path, config: Path
) -> None:
    before = config.read_text("utf-8")
    editor(environ, tmp_path, 'sed -i s/supervised/godmode/ "$1"; echo "odd = 1" >> "$1"')
    done = clawctl("config", "edit")
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
    clawctl: Run, environ: dict[str, str], tmp_path: Path, config: Path
) -> None:
    editor(environ, tmp_path, "true")
    before = config.stat().st_ino
    assert "Nothing was changed." in clawctl("config", "edit").stdout
    assert config.stat().st_ino == before


def test_a_change_by_somebody_else_meanwhile_is_not_overwritten(
    clawctl: Run, environ: dict[str, str], tmp_path: Path, config: Path
) -> None:
    editor(environ, tmp_path, f'sed -i s/supervised/readonly/ "$1"; echo "# theirs" >> {config}')
    done = clawctl("config", "edit")
    assert done.returncode == 1
    assert "somebody else" in done.stderr
    assert config.read_text("utf-8").endswith("# theirs\n")
    assert "readonly" in config.with_name("config.toml.rejected").read_text()


def test_an_editor_that_fails_changes_nothing(
    clawctl: Run, environ: dict[str, str], tmp_path: Path, config: Path
) -> None:
    before = config.read_text("utf-8")
    editor(environ, tmp_path, 'echo "autonomy = 1" > "$1"; exit 3')
    done = clawctl("config", "edit")
    assert done.returncode == 1
    assert "EDITOR=nano" in done.stderr
    assert config.read_text("utf-8") == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every file")
def test_a_config_that_may_not_be_written_says_how(clawctl: Run, config: Path) -> None:
    config.chmod(0o400)
    done = clawctl("config", "edit")
    assert done.returncode == 1
    assert "sudo clawctl config edit" in done.stderr


TEXT = 'a = "1"  # one\n\n[security]\n# autonomy\nautonomy = "supervised"\n[other]\nb = 2\n'


def test_a_value_is_set_where_it_stands_and_all_else_stays() -> None:
    assert with_value(TEXT, "a", "x") == TEXT.replace('"1"  # one', '"x"')
    changed = with_value(TEXT, "security.autonomy", "full")
    assert changed == TEXT.replace("supervised", "full")
    assert tomllib.loads(with_value(TEXT, "new", "y"))["new"] == "y"
    assert tomllib.loads(with_value(TEXT, "third.c", "z"))["third"] == {"c": "z"}
    with pytest.raises(ConfigError, match="left to you"):
        with_value('a = """x\ny"""\n', "a", "z")


@given(value=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_every_value_comes_back_from_toml(value: str) -> None:
    assert tomllib.loads(with_value(TEXT, "security.autonomy", value))["security"] == {
        "autonomy": value
    }
    added = with_section(TEXT, "providers.models.server", {"model": value, "empty": ""})
    expected = {"model": value} if value else {}
    assert tomllib.loads(added)["providers"]["models"]["server"] == expected
    assert has_section(added, "providers.models.server")
    assert not has_section(added, "providers.models.claude")
