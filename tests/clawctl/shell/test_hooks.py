"""How each shell is started, and that nothing a program sees opens the marks."""

from pathlib import Path

from clawctl.shell.hooks import INSIDE, chosen_shell, launch
from tests.support.rows import each_row

FOLDER = Path("/run/user/1/clawctl-x")
NONCE = "ab" * 16


@each_row("shell", ["/bin/bash", "/usr/bin/zsh", "/usr/bin/fish", "/bin/dash"])
def test_the_nonce_is_in_the_files_and_nowhere_else(shell: str) -> None:
    plan = launch(shell, FOLDER, NONCE, {"HOME": "/h", INSIDE: "0"})
    assert any(NONCE in text for text in plan.files.values())
    assert not any(NONCE in word for word in (*plan.argv, *plan.environ.values()))
    assert not any("@" in text and "@NONCE@" in text for text in plan.files.values())
    assert plan.environ[INSIDE] == "1"
    assert plan.argv[0] == shell


def test_zsh_finds_its_own_folder_again() -> None:
    plan = launch("/bin/zsh", FOLDER, NONCE, {"ZDOTDIR": "/h/zsh"})
    assert plan.environ["ZDOTDIR"] == str(FOLDER)
    assert plan.environ["CLAWD_ZDOTDIR"] == "/h/zsh"
    assert "CLAWD_ZDOTDIR" not in launch("/bin/zsh", FOLDER, NONCE, {}).environ


def test_a_shell_without_an_editor_gets_a_command() -> None:
    assert not launch("/bin/dash", FOLDER, NONCE, {}).catches_lines
    assert launch("/bin/bash", FOLDER, NONCE, {}).catches_lines


def test_the_shell_is_the_wanted_one_or_the_person_s_or_sh(tmp_path: Path) -> None:
    own = tmp_path / "zsh"
    own.touch(mode=0o755)
    assert chosen_shell("fish", {"SHELL": str(own)}) == "fish"
    assert chosen_shell("", {"SHELL": str(own)}) == str(own)
    own.chmod(0o644)
    assert chosen_shell("", {"SHELL": str(own)}) == "/bin/sh"
    assert chosen_shell("", {"SHELL": "zsh"}) == "/bin/sh"
    assert chosen_shell("", {}) == "/bin/sh"
