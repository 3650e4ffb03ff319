"""The whole path on the real thing: real socket, real worker, the embedded GGUF itself."""

import re

import pytest

from tests.support.home import Home
from tests.support.lent_home import LentHome
from tests.support.screen import clawctl_screen

pytestmark = [pytest.mark.daemon, pytest.mark.real_model]


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def test_the_embedded_model_lists_the_project_through_the_gate(home: Home) -> None:
    (home.workspace / "README.md").write_text("# a project\n")
    (home.workspace / "src").mkdir()
    home.configure(provider="local")
    done = home.ctl("agent", "-m", "what files are in this project?")
    assert done.returncode == 0, done.stderr
    assert "README.md" in done.stdout
    assert "src" in done.stdout
    assert "│ README.md" in done.stderr, "a small model's tools speak for themselves"
    (receipt,) = home.receipt_lines()
    assert (receipt["tool"], receipt["status"], receipt["approval"]) == (
        "file_list",
        "allowed",
        "auto",
    )
    assert home.ctl("receipt", "verify").returncode == 0


def test_the_repl_writes_a_file_after_a_yes_and_answers(home: Home) -> None:
    home.configure(provider="local")
    home.start()
    with clawctl_screen(home.environ, "agent", "-C", str(home.workspace), lines=40) as screen:
        screen.wait_for(re.compile("^>", re.MULTILINE))
        screen.type('write "hello world" to hello.txt\r')
        screen.wait_for("Approve? [y/N]")
        screen.type("y\r")
        screen.wait_for("Done, I wrote hello.txt")
        screen.type("/exit\r")
        assert screen.exit_code() == 0
    assert (home.workspace / "hello.txt").read_text() == "hello world"
    (receipt,) = home.receipt_lines()
    assert (receipt["tool"], receipt["status"], receipt["approval"]) == (
        "file_write",
        "allowed",
        "user",
    )


def test_a_denied_act_is_answered_as_denied(home: Home) -> None:
    home.configure(provider="local", tables='[security]\nautonomy = "readonly"')
    done = home.ctl("agent", "-m", "run the command: make")
    assert done.returncode == 0
    assert "denied" in done.stdout
    (receipt,) = home.receipt_lines()
    assert (receipt["tool"], receipt["status"]) == ("shell", "denied")


def test_two_conversations_at_once_do_not_mix(home: Home) -> None:
    home.configure(provider="local")
    home.start()
    from concurrent.futures import ThreadPoolExecutor

    questions = ["what time is it?", "what is 12 times 7?"] * 2
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda text: home.ctl("agent", "-m", text), questions))
    assert [each.returncode for each in done] == [0, 0, 0, 0]
    assert all("84" in each.stdout for each in done[1::2])
    assert sorted(r["tool"] for r in home.receipt_lines()) == [
        "calculator",
        "calculator",
        "time",
        "time",
    ]
    assert home.ctl("receipt", "verify").returncode == 0
