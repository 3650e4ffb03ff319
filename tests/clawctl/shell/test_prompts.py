"""Prompts that frameworks draw, and settings of a shell that hooks easily break."""

import shutil
from pathlib import Path

import pytest

from tests.clawctl.shell.conftest import Shells, answering, sent
from tests.support.fake_daemon import FakeDaemon

FRAMEWORKS = {
    "bash": r"""set -u -o vi
seen() { local code=$?; PS1="\nline one $code\nP$ "; return $code; }
shopt -s extdebug; set -o functrace
trap 'LAST=$BASH_COMMAND' DEBUG
PROMPT_COMMAND=(seen 'true; ')
""",
    "zsh": r"""setopt nounset
bindkey -v
autoload -Uz add-zsh-hook
first() { SEEN=$? }
second() { PS1=$'\nline one '$SEEN$'\nP$ ' }
add-zsh-hook precmd first
add-zsh-hook precmd second
""",
}


@pytest.mark.parametrize("kind", FRAMEWORKS)
def test_prompts_that_frameworks_draw_keep_their_status_and_our_lines(
    kind: str, shells: Shells, daemon: FakeDaemon, tmp_path: Path
) -> None:
    if shutil.which(kind) is None:
        pytest.skip(f"{kind} is not installed")
    daemon.handlers["send_message"] = answering("It is a test.")
    (tmp_path / f".{kind}rc").write_text(FRAMEWORKS[kind])
    person = shells(kind, waits=False)
    person.screen.wait_for("line one 0\nP$")
    person.screen.type("sh -c 'exit 6'\r")
    person.screen.wait_for("line one 6\nP$")
    person.screen.type("> what is this\r")
    person.screen.wait_for("It is a test.")
    (request,) = sent(daemon)
    assert "[shell] last command: sh -c 'exit 6' (exit status 6)" in request.text
