"""What is judged medium against bash itself: no line may run a command that is not allowed.

Bash runs each line with an empty PATH, so nothing is executed; a handler writes down the names
that it would have run.
"""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from clawd.security.command import assess
from clawd.security.policy import DEFAULT_ALLOWED_COMMANDS, PolicySettings
from clawd.security.shell_wrappers import WRAPPERS
from tests.support.rows import each_row

LINES = 250
LIMIT_S = 100.0
BEGINNINGS = ("ls ", "cat a|", "echo ", "sort ", "grep a b", "time ls ", "ls -l;", "git log ")
TOKENS = (
    "ls", "cat", "rm", "evil", "echo", "grep", "sort", "find", " ", " ", "\n", "'", '"', "\\", "$",
    "$(", ")", "(", "`", "|", "&&", "&", ";", "#", "{", "}", ",", "<<E\n", "E\n", "<", "2>&1",
    ">/dev/null", "!", "\t", "a", "$'", "x=", "=", "*", "~", "time ", "env ", "xargs ",
    "timeout 5 ", "command ", "\\\n", "$HOME", "${x}", "if ", "then ", "fi", "-", "--", "é", "[",
    '$"', "'\\''", '"\\""', ">|", "&>", ">&2",
)  # fmt: skip
ALLOWED = {entry.split()[0] for entry in DEFAULT_ALLOWED_COMMANDS} | {
    name for name, wrapper in WRAPPERS.items() if wrapper.is_transparent
}


def medium_lines(seed: int) -> list[str]:
    chooser = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < LINES:
        tail = chooser.choices(TOKENS, k=chooser.randint(1, chooser.choice([3, 6, 9])))
        line = chooser.choice(BEGINNINGS) + "".join(tail)
        assessment = assess(
            line, PolicySettings(), workspace=Path("/home/ada/w"), home=Path("/home/ada")
        )
        if assessment.risk == "medium":
            found[line] = None
    return list(found)


def names_that_bash_runs(line: str, folder: Path) -> set[str]:
    read_end, write_end = os.pipe()
    handler = f"() {{ builtin printf '%s\\0' \"$1\" >&{write_end}; }}"
    try:
        subprocess.run(
            ["/bin/bash", "--norc", "--noprofile", "-c", line],
            cwd=folder,
            env={"PATH": "/nonexistent", "BASH_FUNC_command_not_found_handle%%": handler},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(write_end,),
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        return {name.decode("utf-8", "replace") for name in pipe.read().split(b"\0") if name}


@pytest.mark.skipif(shutil.which("/bin/bash") is None, reason="bash is not installed")
@each_row("seed", [1, 2])
def test_bash_runs_nothing_but_allowed_commands_in_a_medium_line(tmp_path: Path, seed: int) -> None:
    for line in medium_lines(seed):
        assert names_that_bash_runs(line, tmp_path) <= ALLOWED, line
        assert not list(tmp_path.iterdir()), line
