"""Which folder `agent` works in, and in which mode: as a person meets it."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawctl.workspace_trust import MAX_TRUSTED, TRUSTED, trust, trusted
from tests.clawctl.repl_turns import at_prompt
from tests.support.home import Home
from tests.support.screen import TerminalScreen, clawctl_screen

pytestmark = pytest.mark.daemon
WRITE = {"tool_calls": [{"name": "file_write", "arguments": {"path": "a.md", "content": "new\n"}}]}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    made.configure(WRITE, {"text": "written"}, WRITE, {"text": "written"})
    made.start()
    try:
        yield made
    finally:
        made.close()


def project(home: Home, name: str = "adder") -> Path:
    folder = home.path.parent / name
    folder.mkdir()
    return folder


def agent(home: Home, cwd: Path, *words: str) -> TerminalScreen:
    return clawctl_screen(home.environ, "agent", *words, cwd=cwd, columns=120, lines=40)


def test_p4_a_session_works_where_it_is_started_once_the_person_trusts_that(home: Home) -> None:
    here = project(home)
    with agent(home, here) as screen:
        screen.wait_for(f"Work in {here}?")
        screen.type("y\r")
        screen.wait_for(at_prompt)
        assert f"workspace {here}" in screen.text
        screen.type("/mode edits\r")
        screen.wait_for("mode edits")
        screen.type("write it\r")
        screen.wait_for("written")
        assert (here / "a.md").read_text() == "new\n"
        screen.type("\x04")
        screen.exit_code()
    assert trusted(home.path) == (here,)
    with agent(home, here, "--continue") as screen:
        screen.wait_for(at_prompt)
        assert "Work in" not in screen.text
        assert "write it" in screen.text  # what was said
        assert "· edits" in screen.text  # and the mode it was left in
        screen.type("\x1b[Z")
        screen.wait_for("readonly")
        screen.type("\x1b[Z")
        screen.wait_for("supervised")


def test_p4_what_is_not_trusted_is_read_only(home: Home) -> None:
    here = project(home)
    with agent(home, here) as screen:
        screen.wait_for("[y/N]")
        screen.type("\r")
        screen.wait_for(at_prompt)
        assert "· readonly" in screen.text
        screen.type("write it\r")
        screen.wait_for("written")
    assert list(here.iterdir()) == []
    assert trusted(home.path) == ()
    done = home.ctl("agent", "-m", "write it", "--json", cwd=here)
    assert "mode readonly" in done.stderr
    assert [call["status"] for call in json.loads(done.stdout)["tool_calls"]] == ["denied"]
    assert list(here.iterdir()) == []


def test_what_a_message_from_here_changed_is_explained_and_listed_here(home: Home) -> None:
    here = project(home)
    trust(home.path, here)
    done = home.ctl("agent", "--mode", "full", "-m", "write it", cwd=here)
    assert done.returncode == 0, done.stderr
    assert (here / "a.md").read_text() == "new\n"
    shown = home.ctl("policy", "show", "--json", cwd=here)
    assert json.loads(shown.stdout)["workspace"] == str(here)
    inside = json.dumps({"path": str(here / "b.md"), "content": "x"})
    explained = home.ctl("policy", "explain", "file_write", inside, "--json", cwd=here)
    assert json.loads(explained.stdout)["verdict"] == "ask"
    listed = home.ctl("undo", "--list", "--json", cwd=here)
    assert listed.stderr == ""
    assert [each["path"] for each in json.loads(listed.stdout)] == ["a.md"]
    elsewhere = home.ctl("undo", "--list", "--json", cwd=home.workspace)
    assert json.loads(elsewhere.stdout) == []
    assert home.ctl("undo", "--no-input", cwd=here).returncode == 3  # it would ask


def test_p4_a_home_is_no_workspace_and_options_name_another(home: Home) -> None:
    trust(home.path, home.path.parent)
    here = project(home)
    told = {
        (home.path.parent,): "",  # its banner says it; a home is where one begins
        (Path("/"),): f"is not a workspace; this works in {home.workspace}",
        (Path("/usr"),): f"/usr is not trusted; this works in {home.workspace}",
        (here, "--home-workspace"): "",
        (home.path.parent, "-C", str(here)): "",
        (here, "--here"): "",
        (home.workspace,): "",
    }
    for (cwd, *words), remark in told.items():
        given = ("agent", "-m", "hello", "--json", *map(str, words))
        done = home.ctl(*given, cwd=Path(cwd))
        assert done.returncode in {0, 4}, done.stderr  # its write waits for nobody
        assert (remark in done.stderr) if remark else done.stderr == "", (cwd, words)


def test_a_folder_that_no_root_holds_becomes_one_when_it_is_trusted(
    home: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = tmp_path_factory.mktemp("elsewhere")
    with agent(home, here) as screen:
        screen.wait_for("[y/N]")
        assert f"works in {home.workspace}" in " ".join(screen.text.split())
        screen.type("n\r")
        screen.wait_for(at_prompt)
        assert f"workspace {home.workspace}" in screen.text
    with agent(home, here) as screen:
        screen.wait_for("[y/N]")
        screen.type("y\r")
        screen.wait_for(at_prompt)
        assert f"workspace {here}" in screen.text
    assert str(here) in home.config.read_text()
    done = home.ctl("agent", "-m", "write it", "--mode", "edits", cwd=here)
    assert done.returncode == 0, done.stderr
    assert (here / "a.md").read_text() == "new\n"


def test_what_was_trusted_is_bounded_and_survives_rubbish(tmp_path: Path) -> None:
    many = [f"/project/{number}" for number in range(MAX_TRUSTED)]
    (tmp_path / TRUSTED).write_text(json.dumps(many))
    trust(tmp_path, Path("/project/5"))
    trust(tmp_path, Path("/project/new"))
    assert len(trusted(tmp_path)) == MAX_TRUSTED
    assert trusted(tmp_path)[-2:] == (Path("/project/5"), Path("/project/new"))
    assert (tmp_path / TRUSTED).stat().st_mode & 0o777 == 0o600
    for rubbish in (b"", b"{", b"{}", b"[1]", b"\xff"):
        (tmp_path / TRUSTED).write_bytes(rubbish)
        assert trusted(tmp_path) == ()


def test_a_folder_whose_name_is_no_text_is_never_trusted(home: Home) -> None:
    here = project(home, os.fsdecode(b"m\xfcller"))
    done = home.ctl("agent", "-m", "write it", cwd=here)
    assert "mode readonly" in done.stderr, done.stderr
    with agent(home, here) as screen:
        screen.wait_for(at_prompt)
        assert "mode readonly" in screen.text
        assert "[y/N]" not in screen.text
    assert trusted(home.path) == ()


def test_a_folder_that_is_gone_is_told_in_a_sentence(home: Home) -> None:
    here = project(home)
    sentence = "the folder that this runs in is gone"
    for words in (("agent", "-m", "hello"), ("agent", "--here", "-m", "hello"), ("undo",)):
        here.mkdir(exist_ok=True)
        gone = ("sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh")
        done = home.ctl(*words, cwd=here, before=gone)
        assert sentence in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_the_hybrid_shell_asks_the_same_question_once_for_both(home: Home) -> None:
    here, other = project(home), project(home, "other")
    argv = [sys.executable, "-m", "clawctl", "shell"]
    environ = {**home.environ, "SHELL": "/bin/bash", "TERM": "xterm"}
    with TerminalScreen(argv, environ, cwd=here, columns=120, lines=40) as screen:

        def at_shell(folder: Path) -> None:
            screen.wait_for(lambda seen: folder.name in seen.line and seen.line[-1:] in "#$")
            screen.settle()

        def asked(folder: Path) -> None:
            screen.wait_for(f"Work in {folder}?")
            screen.wait_for(lambda seen: "[y/N]" in seen.line)  # what is typed before stands in it

        at_shell(here)
        screen.type("> /status\r")
        screen.wait_for("supervised")
        at_shell(here)
        assert "Work in" not in screen.text, "only what acts there asks"
        screen.type("> write it\r")
        asked(here)
        screen.type("y\r")
        screen.wait_for("Approve?")
        screen.type("n\r")
        screen.wait_for("written")
        screen.wait_for(f"tools act in {here} · supervised")
        at_shell(here)
        screen.type(f"cd {other}\r")
        at_shell(other)
        screen.type("> write it\r")
        asked(other)
        screen.type("\r")
        screen.wait_for(f"tools act in {other} · readonly")
        at_shell(other)
        screen.type("exit\r")
        screen.exit_code()
    assert trusted(home.path) == (here,)
    assert list(other.iterdir()) == []
    with agent(home, here) as screen:
        screen.wait_for(at_prompt)
        assert "Work in" not in screen.text
