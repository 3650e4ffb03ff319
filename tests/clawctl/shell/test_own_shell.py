"""That it is the person's own shell, with all that a terminal can do, from start to end."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pexpect
import psutil
import pytest

from tests.clawctl.conftest import Run
from tests.clawctl.shell.conftest import SHELLS, Shells, answering
from tests.support.fake_daemon import FakeDaemon
from tests.support.home import is_alive
from tests.support.screen import LIMIT_S, TerminalScreen, in_front
from tests.support.terminal import end

# The whole of it takes a minute on a busy machine: CLAWD_TEST_OUTPUT_MB=100 asks for it.
OUTPUT_BYTES = int(os.environ.get("CLAWD_TEST_OUTPUT_MB", "20")) * 1024 * 1024
MEMORY_KIB = 120 * 1024


def test_own_files_aliases_and_what_is_set_hold(
    kind: str, shells: Shells, tmp_path: Path, project: Path
) -> None:
    for name in (".bashrc", ".zshrc", ".config/fish/config.fish"):
        with (tmp_path / name).open("a") as file:
            file.write("alias greet='echo hello from my alias'\n")
    (project / "sub").mkdir()
    person = shells(kind)
    person.run("greet")
    assert "\nhello from my alias\n" in person.screen.text
    person.folder = "~/project/sub"
    person.run("cd sub")
    person.run("export SAID=one")
    person.run('sh -c \'echo "<$SAID>" "$PWD"\'')
    assert f"\n<one> {project}/sub\n" in person.screen.text
    person.run("unset SAID" if kind != "fish" else "set -e SAID")
    person.run("sh -c 'echo \"{$SAID}\"'")
    assert "\n{}\n" in person.screen.text
    person.screen.type("sh -c 'exit 5'\r")
    person.at_prompt()
    person.screen.type("exit\r")
    assert person.exit_code() == 5


def test_jobs_are_interrupted_stopped_and_taken_up(kind: str, shells: Shells) -> None:
    person = shells(kind)
    person.enter("sleep 100 | cat")
    person.screen.wait_for(in_front("sleep"))
    person.screen.press("C-c")
    person.at_prompt()
    person.enter("sleep 99")
    person.screen.wait_for(in_front("sleep"))
    person.screen.press("C-z")
    person.screen.wait_for(re.compile("[Ss]topped|suspended"))
    person.at_prompt()
    person.enter("fg")
    person.screen.wait_for(in_front("sleep"))
    person.screen.press("C-c")
    person.at_prompt()


def test_vim_less_and_the_size_of_the_window(kind: str, shells: Shells, project: Path) -> None:
    person = shells(kind)
    person.enter("vim -u NONE -N notes")
    person.screen.wait_for("~\n~\n~")
    person.screen.type("i> not asked\x1b:wq\r")
    person.at_prompt()
    assert (project / "notes").read_text() == "> not asked\n"
    (project / "long").write_text("".join(f"row {n}\n" for n in range(200)))
    person.enter("less long")
    person.screen.wait_for("row 0")
    person.screen.type("G")
    person.screen.wait_for("row 199")
    person.screen.type("q")
    person.at_prompt()
    person.screen.resize(20, 60)
    person.run("stty size")
    assert "\n20 60\n" in person.screen.text


RESIZED_EARLY = """
import os, sys, time
from clawctl.main import main
from clawctl.shell import pseudo_terminal
spawn = pseudo_terminal._spawn
def slowly(plan, terminal, modes):
    made = spawn(plan, terminal, modes)
    print("another size now", flush=True)
    while os.get_terminal_size(0).columns != 100:
        time.sleep(0.01)
    return made
pseudo_terminal._spawn = slowly
sys.exit(main(["shell"]))
"""


def test_a_window_may_change_its_size_while_the_shell_starts(
    project: Path, shell_environ: dict[str, str]
) -> None:
    environ = {**shell_environ, "SHELL": "/bin/bash"}
    with TerminalScreen([sys.executable, "-c", RESIZED_EARLY], environ, cwd=project) as screen:
        screen.wait_for("another size now")
        screen.resize(30, 100)
        screen.wait_for(lambda it: it.line.startswith("~/project"))
        screen.type("stty size\r")
        screen.wait_for("\n30 100\n")


def test_a_prompt_that_the_person_set_is_kept(shells: Shells, tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("PS1='mine> '; PROMPT_COMMAND='SEEN=$?'\n")
    person = shells("bash", waits=False)
    person.screen.wait_for("\nmine> ")
    person.screen.type("(exit 9)\r")
    person.screen.wait_for("(exit 9)")
    person.screen.type("echo seen $SEEN\r")
    person.screen.wait_for("\nseen 9\n")


def test_a_shell_without_an_editor_has_the_command_ask(shells: Shells, daemon: FakeDaemon) -> None:
    daemon.handlers["send_message"] = answering("here")
    person = shells("sh", waits=False)
    person.screen.wait_for("/project $ ")
    person.screen.type("ask what is this\r")
    person.screen.wait_for("here\n")
    request = daemon.requests[-1]
    assert getattr(request, "text", "").startswith("what is this\n")


@pytest.mark.parametrize("kind", [*SHELLS, "sh"])
def test_no_program_sees_what_opens_the_marks(
    kind: str, shells: Shells, tmp_path: Path, shell_environ: dict[str, str]
) -> None:
    if shutil.which(kind) is None:
        pytest.skip(f"{kind} is not installed")
    shell_environ |= {"PS0": "", "PS1": "mine % "}
    (tmp_path / ".bashrc").write_text("set -a\n")
    (tmp_path / ".zshrc").write_text("setopt all_export\n")
    person = shells(kind, waits=False)
    # Some of these set a prompt of their own, and dash has only the one it is given.
    person.screen.wait_for(re.compile(r"(mine [%$]|[#$%>]) ?$"))
    person.screen.type("env | grep -c '7717;'\r")
    person.screen.wait_for("\n0\n")


def test_exec_of_another_shell_is_that_shell(shells: Shells) -> None:
    person = shells("bash")
    person.screen.type("exec bash --norc\r")
    person.screen.wait_for(re.compile(r"bash-\S+[$#] ?$"))
    person.screen.type("echo al''ive; exit 4\r")
    assert person.exit_code() == 4
    assert "alive" in person.screen.text


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_behind_by_a_kill(
    number: signal.Signals,
    project: Path,
    shell_environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(project)
    environ = {**shell_environ, "SHELL": "/bin/bash"}
    with TerminalScreen(["sh"], {**environ, "PS1": "outer% "}) as screen:
        screen.wait_for("outer%")
        before = termios.tcgetattr(screen._fd)
        screen.type(f"{shlex.quote(sys.executable)} -m clawctl shell\r")
        screen.wait_for(lambda it: it.line.startswith("~/project"))
        assert termios.tcgetattr(screen._fd) != before, "the terminal is raw while it runs"
        screen.type("sleep 1234 | cat\r")
        ours = _wait_for_sleep(screen.pid)
        clawctl = psutil.Process(screen.pid).children()[0]
        os.kill(clawctl.pid, number)
        deadline = time.monotonic() + LIMIT_S
        while alive := [process for process in ours if is_alive(process.pid)]:
            assert time.monotonic() < deadline, alive
            time.sleep(0.01)
        screen.settle()
        screen.type("echo ag''ain\r")
        screen.wait_for("\nagain\n")
        screen.settle()
        assert termios.tcgetattr(screen._fd) == before
        assert list(Path(environ["XDG_RUNTIME_DIR"]).iterdir()) == []


def _wait_for_sleep(pid: int) -> list[psutil.Process]:
    """Return all that runs below a process, once `sleep` does."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        below: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
        with contextlib.suppress(psutil.Error):
            if any(process.name() == "sleep" for process in below):
                return below
    raise AssertionError("the command never started")


@pytest.mark.timeout(600)
def test_a_long_output_passes_whole_in_bounded_memory(
    project: Path, shell_environ: dict[str, str]
) -> None:
    line = b"0123456789abcdef" * 4 + b"\n"
    (project / "big").write_bytes(line * (OUTPUT_BYTES // len(line)))
    environ = {**shell_environ, "SHELL": "/bin/bash", "TERM": "xterm"}
    ours, memory_kib = _pass(project, environ, sys.executable, "-m", "clawctl", "shell")
    other, _ = _pass(project, environ, "script", "-qc", "bash --norc", "/dev/null")
    print(f"{OUTPUT_BYTES >> 20} MiB: {ours:.2f} s, script {other:.2f} s, ratio {ours / other:.2f}")
    assert memory_kib < MEMORY_KIB


def _pass(folder: Path, environ: dict[str, str], *argv: str) -> tuple[float, int]:
    """Return the seconds a file takes to be shown, and the memory of what showed it."""
    child = pexpect.spawn(argv[0], list(argv[1:]), env=environ, cwd=folder, timeout=LIMIT_S)
    try:
        child.expect(r"[#$] ")
        child.send(b"cat big; printf 'THE-%s\\n' END\r")
        began, size, tail = time.monotonic(), 0, b""
        while b"THE-END" not in tail:
            data = os.read(child.child_fd, 1 << 16)
            size, tail = size + len(data), (tail + data)[-100:]
        took = time.monotonic() - began
        assert size > OUTPUT_BYTES
        text = Path(f"/proc/{child.pid}/status").read_text(encoding="utf-8")
        return took, int(text.partition("VmHWM:")[2].split()[0])
    finally:
        end(child)


def test_without_a_terminal_it_says_so(clawctl: Run) -> None:
    done = clawctl("shell")
    assert done.returncode == 1
    assert "needs a terminal" in done.stderr


def test_wrong_options_are_refused(clawctl: Run) -> None:
    assert clawctl("shell", "--continue", "--no-local-session").returncode == 2


@pytest.mark.parametrize("missing", ["", "/nonexistent/sh"])
def test_it_is_not_started_twice_or_with_a_shell_that_is_not_there(
    project: Path, shell_environ: dict[str, str], missing: str
) -> None:
    inside = {} if missing else {"CLAWD_SHELL": "1"}
    options = ["--shell", missing] if missing else []
    argv = [sys.executable, "-m", "clawctl", "shell", *options]
    with TerminalScreen(argv, {**shell_environ, **inside}, cwd=project) as screen:
        screen.wait_for("there is no shell" if missing else "a shell of clawctl already")
        assert screen.exit_code() == 1


def test_no_shell_runs_for_help(clawctl: Run) -> None:
    done: subprocess.CompletedProcess[str] = clawctl("shell", "--help")
    assert done.returncode == 0
    assert "--no-local-session" in done.stdout
