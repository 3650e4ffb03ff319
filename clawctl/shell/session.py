"""The hybrid shell: the person's own shell on a pseudo-terminal, and the model beside it."""

import os
import secrets
import shutil
import sys
import tempfile
import termios
from pathlib import Path

from clawctl.agent_options import Choice
from clawctl.app import App
from clawctl.render import note
from clawctl.repl.daemon_link import prepare_drawing
from clawctl.shell.command_log import Records, known_secrets
from clawctl.shell.hooks import (
    INSIDE,
    Launch,
    MarkReader,
    ShellMark,
    chosen_shell,
    launch,
    reply_text,
)
from clawctl.shell.pseudo_terminal import Pump, TerminalGuard
from clawctl.shell.turn import Asking
from clawd.errors import InvalidRequestError

ANSWER = "answer"


def run_shell(app: App, choice: Choice, *, shell: str = "", keeps_file: bool = True) -> int:
    """Run a shell until it ends; return its status.

    Raises:
        ClawError: it cannot be started here.
    """
    _check_place()
    program = _program(shell)
    folder = Path(tempfile.mkdtemp(prefix="clawctl-shell-", dir=_private_place()))
    try:
        session = ShellSession(app, choice, program=program, folder=folder, keeps_file=keeps_file)
        return session.run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class ShellSession:
    """One shell with its hooks, its records and its conversations.

    Args:
        app: the way to the daemon.
        choice: what the options chose.
        program: the shell.
        folder: private (0700), empty, removed by the caller.
        keeps_file: whether folders remember their conversations.
    """

    def __init__(
        self, app: App, choice: Choice, *, program: str, folder: Path, keeps_file: bool
    ) -> None:
        self._nonce = secrets.token_hex(16)
        self._folder = folder
        self._plan = launch(program, folder, self._nonce, os.environ)
        self._records = Records(marks_starts=self._plan.catches_lines)
        # The hooks' own variables are shown by `set`: what opens them is a secret as well.
        known = (*known_secrets(os.environ), self._nonce)
        self._asking = Asking(
            app, choice, self._records, known=lambda: known, keeps_file=keeps_file
        )
        self._pump: Pump | None = None
        self._is_up = False

    def run(self) -> int:
        """Run it; the terminal is as it was when this returns, and when this process is killed."""
        guard = TerminalGuard(0, termios.tcgetattr(0), self._folder)
        try:
            _write_files(self._folder, self._plan)
            os.mkfifo(self._folder / ANSWER, 0o600)
            # Open at both ends, so that neither side waits for the other to open it.
            self._answers = os.open(self._folder / ANSWER, os.O_RDWR | os.O_CLOEXEC)
            self._greet()
            self._pump = Pump(
                self._plan,
                MarkReader(self._nonce),
                on_output=self._records.output,
                on_mark=self._take,
            )
            return self._pump.run()
        finally:
            self._asking.close()
            # Before the guard goes: what ends this process from here on leaves nothing behind.
            shutil.rmtree(self._folder, ignore_errors=True)
            guard.dismiss()

    def _take(self, mark: ShellMark) -> None:
        match mark.kind:
            case "done":
                self._prompt(mark.value)
            case "line":
                self._records.line(mark.value)
            case "start":
                self._records.started()
            case "ask":
                self._ask(mark.value)
            case _:
                pass

    def _prompt(self, value: str) -> None:
        status, _, cwd = value.partition(";")
        self._records.finished(int(status) if status.isdigit() else 0, cwd)
        if not self._is_up:
            self._is_up = True
            # The shell has been forked: a thread can harm it no more.
            prepare_drawing()
            for name in self._plan.files:
                (self._folder / name).unlink(missing_ok=True)

    def _ask(self, entered: str) -> None:
        assert self._pump is not None
        text = ""
        try:
            with self._pump.aside():
                text = self._asking.ask(entered)
        finally:
            os.write(self._answers, f"{reply_text(text)}\n".encode())

    def _greet(self) -> None:
        name = Path(self._plan.argv[0]).name
        ask, explain = ("> text", "?") if self._plan.catches_lines else ("ask text", "ask ?")
        note(f"{name} with clawd: {ask} asks, {explain} explains a failure.")


def _check_place() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequestError(
            "the shell needs a terminal on standard input and output",
            hint="For one message from a script use: clawctl agent -m TEXT",
        )
    if os.environ.get(INSIDE):
        raise InvalidRequestError(
            "this is a shell of clawctl already",
            hint=f"Leave it with exit, or start another one with: env -u {INSIDE} clawctl shell",
        )


def _program(wanted: str) -> str:
    program = chosen_shell(wanted, os.environ)
    found = shutil.which(program)
    if found is None:
        raise InvalidRequestError(
            f"there is no shell {program}", hint="Name one that is installed: --shell /bin/bash"
        )
    return str(Path(found).absolute())


def _private_place() -> str | None:
    """Return the folder of this login for such things, None for the common one."""
    place = os.environ.get("XDG_RUNTIME_DIR", "")
    return place if place.startswith("/") and os.access(place, os.W_OK | os.X_OK) else None


def _write_files(folder: Path, plan: Launch) -> None:
    for name, text in plan.files.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
