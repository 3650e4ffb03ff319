"""The life of a plugin through the real daemon and clawctl: installed, run, changed, removed."""

import json
import shutil
from pathlib import Path

import pytest

from tests.plugins.plugin_files import ANSWERS, manifest_text, plugin
from tests.support.home import Home
from tests.support.lent_home import LentHome
from tests.support.terminal import code_of, spawn_clawctl

pytestmark = pytest.mark.sandbox

RUN = ("tool", "run", "probe_tool", "--json", '{"text": "; rm -rf /"}')


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def states(home: Home) -> dict[str, str]:
    return {each["name"]: each["state"] for each in home.json("plugin", "list")}


def test_the_life_of_a_plugin(home: Home, tmp_path: Path) -> None:
    source = plugin(tmp_path / "source")
    home.configure(tables='[security]\nautonomy = "full"')
    home.start()
    assert "No plugins are installed." in home.ctl("plugin", "list").stdout

    unasked = home.ctl("plugin", "install", str(source))
    assert unasked.returncode == 1
    assert "it sees no file of yours" in unasked.stdout
    assert "probe_tool" in unasked.stdout
    assert "nobody can be asked" in unasked.stderr
    assert states(home) == {}

    done = home.ctl("plugin", "install", str(source), "--yes")
    assert done.returncode == 0, done.stderr
    assert "probe 1.0 is installed" in done.stdout
    assert states(home) == {"probe": "ready"}
    sources = {each["name"]: each["source"] for each in home.json("tool", "list")}
    assert sources["probe_tool"] == "plugin"

    ran = home.ctl(*RUN)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["arguments"] == {"text": "; rm -rf /"}

    shutil.rmtree(source)  # the copy is what runs
    installed = home.path / "plugins" / "probe"
    (installed / "run").write_text(ANSWERS + "\n# changed\n")
    refused = home.ctl(*RUN)
    assert refused.returncode == 3
    assert "was changed since it was approved" in refused.stdout + refused.stderr
    assert states(home) == {"probe": "changed"}

    assert home.ctl("plugin", "reload").returncode == 0
    assert "probe_tool" not in {each["name"] for each in home.json("tool", "list")}
    assert "changed: run" in home.ctl("tool", "problems").stdout
    approved = home.ctl("plugin", "approve", "probe", "--yes")
    assert approved.returncode == 0, approved.stderr
    assert "changed: run" in approved.stdout
    assert home.ctl(*RUN).returncode == 0

    removed = home.ctl("plugin", "remove", "probe", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert states(home) == {}
    assert not installed.exists()
    assert home.ctl(*RUN).returncode == 1
    assert home.ctl("plugin", "remove", "probe", "--yes").returncode == 1
    lines = [(each["tool"], each["status"], each["risk"]) for each in home.receipt_lines()]
    assert lines[:3] == [
        ("probe_tool", "allowed", "medium"),
        ("probe_tool", "denied", "high"),
        ("probe_tool", "allowed", "medium"),
    ]
    assert lines[3][:2] == ("probe_tool", "failed")


def test_it_survives_a_restart_and_a_change_meanwhile_is_seen(home: Home, tmp_path: Path) -> None:
    home.configure(tables='[security]\nautonomy = "full"')
    home.start()
    source = plugin(tmp_path / "source")
    assert home.ctl("plugin", "install", str(source), "--yes").returncode == 0
    home.kill()
    home.start()
    assert home.ctl(*RUN).returncode == 0
    home.kill()
    (home.path / "plugins" / "probe" / "more.py").write_text("import os\n")
    home.start()
    assert states(home) == {"probe": "changed"}
    assert home.ctl(*RUN).returncode == 1
    home.configure(tables="[plugins]\nenabled = false")
    assert home.ctl("tool", "reload").returncode == 0
    assert "Everything was loaded" in home.ctl("tool", "problems").stdout


def test_secrets_in_a_plugin_stop_an_unasked_installation(home: Home, tmp_path: Path) -> None:
    home.configure()
    home.start()
    source = plugin(tmp_path / "source")
    (source / "settings.py").write_text("password = 'hunter-two-hunter'\n")
    refused = home.ctl("plugin", "install", str(source), "--yes")
    assert refused.returncode == 1
    assert "settings.py:1: looks like a password or key" in refused.stdout
    assert "hunter" not in refused.stdout
    assert states(home) == {}
    taken = home.ctl("plugin", "install", str(source), "--yes", "--accept-secrets", "--json")
    assert taken.returncode == 0
    assert json.loads(taken.stdout)["state"] == "ready"


def test_a_plugin_that_the_model_may_have_written_is_shown_as_such(home: Home) -> None:
    home.configure()
    home.start()
    plugin(home.workspace / "mine")
    plugin(home.path.parent / "elsewhere")
    shown = home.ctl("plugin", "install", str(home.workspace / "mine")).stdout
    assert "the model may have written it" in shown
    other = home.ctl("plugin", "install", str(home.path.parent / "elsewhere")).stdout
    assert "it sees no file of yours" in other
    assert "the model may have written it" not in other


def test_a_name_that_is_taken_is_left_out_and_said(home: Home, tmp_path: Path) -> None:
    home.configure()
    home.start()
    source = plugin(tmp_path / "source", manifest=manifest_text(tool="shell"))
    done = home.ctl("plugin", "install", str(source), "--yes")
    assert "not loaded: shell" in done.stdout
    sources = {each["name"]: each["source"] for each in home.json("tool", "list")}
    assert sources["shell"] == "builtin"


@pytest.mark.parametrize("what", ["missing", "no plugin", "link"])
def test_what_is_no_plugin_is_refused_with_a_sentence(
    home: Home, tmp_path: Path, what: str
) -> None:
    home.configure()
    home.start()
    source = tmp_path / "source"
    if what != "missing":
        plugin(source)
        (source / "manifest.toml").unlink() if what == "no plugin" else (source / "odd").symlink_to(
            "/etc/passwd"
        )
    done = home.ctl("plugin", "install", str(source), "--yes")
    assert done.returncode == (2 if what == "missing" else 1)
    assert done.stderr.strip()
    assert states(home) == {}


def test_a_person_is_asked_and_an_empty_answer_is_no(home: Home, tmp_path: Path) -> None:
    home.configure()
    home.start()
    source = plugin(tmp_path / "source")
    for answer, state in (("", {}), ("y", {"probe": "ready"})):
        child = spawn_clawctl(home.environ, "plugin", "install", str(source))
        child.expect_exact("Install it? [y/N]")
        child.sendline(answer)
        code_of(child)
        assert states(home) == state
