"""TAB in real shells: live names, hostile names, a daemon that hangs, and none at all."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clawctl.app import App
from clawctl.completion import complete
from clawctl.main import cli, main
from clawd.wire.conversations import ConversationLine, ConversationPage
from clawd.wire.tools import ToolLine, ToolList
from tests.clawctl.conftest import ROOT, Run
from tests.support.fake_daemon import Call, FakeDaemon

pytestmark = pytest.mark.usefixtures("own_home")

LIMIT_S = 30.0
HOSTILE = ["$(touch pwned)", "`touch pwned`", "a b;touch pwned", "q'uote\"d", "*"]
UNPRINTABLE = ["esc\x1b[2J", "two\nlines", "tab\tbed", "\u202eback", "x" * 300, ""]


def offered(*words: str, shell: str = "zsh") -> list[str]:
    lines = complete(cli, shell, list(words), App(), limit_s=LIMIT_S)
    return [line.partition("\t")[0] for line in lines]


def tools(*names: str) -> ToolList:
    lines = [ToolLine(name=n, short=f"about {n}", description="", parameters={}) for n in names]
    return ToolList(items=tuple(lines))


def test_names_of_the_daemon_are_offered_with_what_they_are(daemon: FakeDaemon) -> None:
    daemon.handlers["list_tools"] = tools("time", "file_read")
    assert complete(cli, "fish", ["tool", "run", "ti"], App(), limit_s=LIMIT_S) == [
        "time\tabout time"
    ]
    assert offered("tool", "show", "") == ["time", "file_read"]
    assert offered("receipt", "list", "--tool=fi") == ["--tool=file_read"]
    assert offered("--socket", str(daemon.path), "tool", "show", "t") == ["time"]


def test_bash_parts_words_at_marks_and_is_answered_in_its_way(daemon: FakeDaemon) -> None:
    daemon.handlers["list_tools"] = tools("time")
    assert offered("receipt", "list", "--tool", "=", "ti", shell="bash") == ["time"]
    assert offered("receipt", "list", "--tool", "=", shell="bash") == ["time"]


def test_names_that_would_not_stay_on_their_line_are_left_out(daemon: FakeDaemon) -> None:
    daemon.handlers["list_tools"] = tools(*UNPRINTABLE, "--socket=/tmp/x", "good")
    assert offered("tool", "show", "") == ["good"]
    title = ConversationLine(
        id="conv-1", title="a\x1b[2J\ttitle\nx", created_at="", updated_at="", messages=1
    )
    daemon.handlers["list_conversations"] = ConversationPage(items=(title,))
    (line,) = complete(cli, "zsh", ["memory", "show", ""], App(), limit_s=LIMIT_S)
    assert line.split("\t")[0] == "conv-1"
    assert line.isprintable() or line.replace("\t", "").isprintable()


def test_without_a_daemon_nothing_is_started_and_nothing_said(clawctl: Run, home: Path) -> None:
    done = clawctl("completion", "_words", "bash", "--", "tool", "run", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(home.iterdir()) == []
    assert offered("stat", shell="bash") == ["status"]


def test_p12_words_that_need_no_daemon_wait_for_no_clock(daemon: FakeDaemon) -> None:
    daemon.handlers["list_tools"] = lambda call: call.gone.wait(LIMIT_S) and None
    at_once = {
        ("stat",): "status",
        ("config", "va"): "validate",
        ("tool", "run", "--no"): "--no-input",
        ("receipt", "list", "--status", "al"): "allowed",
    }
    found = {words: complete(cli, "zsh", list(words), App(), limit_s=1e-6) for words in at_once}
    assert {words: line.partition("\t")[0] for words, (line, *_) in found.items()} == at_once
    assert complete(cli, "zsh", ["tool", "run", ""], App(), limit_s=0.05) == []


def test_a_daemon_that_hangs_is_given_up(daemon: FakeDaemon) -> None:
    def never(call: Call) -> ToolList:
        call.gone.wait(LIMIT_S)
        return tools()

    daemon.handlers["list_tools"] = never
    began = time.monotonic()
    assert complete(cli, "bash", ["tool", "run", ""], App()) == []
    assert time.monotonic() - began < LIMIT_S / 2
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_time_that_is_up_at_the_very_end_takes_nothing_away(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.handlers["list_tools"] = tools("time")
    set_timer = signal.setitimer

    def late(which: int, seconds: float) -> tuple[float, float]:
        if seconds == 0:
            signal.raise_signal(signal.SIGALRM)
        return set_timer(which, seconds)

    monkeypatch.setattr(signal, "setitimer", late)
    try:
        assert offered("tool", "show", "") == ["time"]
    finally:
        set_timer(signal.ITIMER_REAL, 0)


def test_a_daemon_that_refuses_is_silence(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.welcome = None
    assert main(["completion", "_words", "zsh", "--", "tool", "run", ""]) == 0
    assert capsys.readouterr() == ("", "")


def test_notes_are_offered_without_a_tool_call(daemon: FakeDaemon, home: Path) -> None:
    (home / "knowledge").mkdir()
    for name in ("backup_server", "fix-printer"):
        (home / "knowledge" / f"{name}.md").write_text("x")
    assert offered("knowledge", "delete", "") == ["backup_server", "fix-printer"]
    assert offered("knowledge", "search", "") == ["backup", "printer", "server"]
    assert daemon.requests == []


def test_install_writes_what_is_printed(
    clawctl: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    for shell, path in (
        ("bash", ".local/share/bash-completion/completions/clawctl"),
        ("zsh", ".zfunc/_clawctl"),
        ("fish", ".config/fish/completions/clawctl.fish"),
    ):
        for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
            environ.pop(name, None)
        done = clawctl("completion", shell, "--install")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / path).read_text() == clawctl("completion", shell).stdout


SHELLS = {
    "bash": (
        "source <(clawctl completion bash); COMP_WORDS=(clawctl tool run ''); COMP_CWORD=3; "
        '_clawctl; printf \'%s\\n\' "${COMPREPLY[@]}"; eval "set -- ${COMPREPLY[*]}"; '
        "printf 'word:%s\\n' \"$@\""
    ),
    "zsh": (
        "compdef() { :; }; source <(clawctl completion zsh); words=(clawctl tool run ''); "
        "CURRENT=4; compadd() { printf 'word:%s\\n' \"${(@)values}\" }; _clawctl"
    ),
    "fish": (
        "clawctl completion fish | source; "
        "for each in (complete -C 'clawctl tool run '); "
        "echo word:(string split \\t -- $each)[1]; end"
    ),
}


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_hostile_names_stay_names_in_every_shell(
    shell: str, daemon: FakeDaemon, environ: dict[str, str], tmp_path: Path
) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    daemon.handlers["list_tools"] = tools("time", *HOSTILE)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    # A machine under load must not make this test see the limit; the script is what is tested.
    patient = tmp_path / "patient.py"
    patient.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "import clawctl.completion as c\nc.complete.__kwdefaults__['limit_s'] = 30.0\n"
        "from clawctl.main import main\nsys.exit(main())\n"
    )
    # A first line that names a program takes no blanks in its path.
    command = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(patient))}"
    (binaries / "clawctl").write_text(f'#!/bin/sh\n{command} "$@"\n')
    (binaries / "clawctl").chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    starting = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["-N"]}[shell]
    done = subprocess.run(
        [program, *starting, "-c", SHELLS[shell]],
        env={**environ, "PATH": f"{binaries}{os.pathsep}{environ['PATH']}"},
        cwd=work,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        check=False,
    )
    found = {line[5:] for line in done.stdout.splitlines() if line.startswith("word:")}
    assert found == {"time", *HOSTILE}, done.stderr
    assert list(work.iterdir()) == []
