"""The REPL: reads a message, shows its turn, and again. The conversation lives in the daemon."""

import os
import signal
import sys
import time
from typing import TypeVar

import msgspec

from clawctl.app import App, Exit
from clawctl.approve import Terminal
from clawctl.choice import Choice
from clawctl.client import Client
from clawctl.following import follow
from clawctl.outcome import run_tool, show_outcome
from clawctl.render import note, show_error
from clawctl.repl.drawing import new_view
from clawctl.repl.lines import EditedLines, Lines, PlainLines
from clawctl.repl.slash import COMMANDS, is_command, run_command
from clawctl.turn import ViewOptions
from clawd.errors import ClawError, UnreachableError
from clawd.paths import layout
from clawd.wire.events import TurnFinished
from clawd.wire.method import Method
from clawd.wire.methods import RunTool, SetEstop, Status
from clawd.wire.safe_text import visible_line

HISTORY_FILE = "history"
PRESSES_TO_LEAVE = 3
PRESS_WINDOW_S = 1.0

R = TypeVar("R")


def converse(app: App, choice: Choice) -> int:
    """Hold a conversation until the person leaves; return the exit code."""
    session = Session(app, choice)
    try:
        return session.run()
    finally:
        session.close()


class Session:
    """One REPL.

    Attributes:
        conversation_id: where the next message goes, empty for a new conversation.
        workspace: of the conversation, empty for the configured one.
        is_stopped: whether the emergency stop was set when we last heard.
    """

    def __init__(self, app: App, choice: Choice) -> None:
        self._app = app
        self._choice = choice
        self._client: Client | None = None
        self._has_been_connected = False
        self.conversation_id = ""
        self._presses: list[float] = []
        self._is_leaving = False
        self._is_interrupted = False
        self._finished: TurnFinished | None = None
        self._autonomy = ""
        self._model = ""
        self._on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._terminal = Terminal.open() if choice.interactive else None
        self.workspace = choice.workspace
        self.is_stopped = False

    def run(self) -> int:
        """Read and answer until the end."""
        self.conversation_id = self._choice.resumed(self.client())
        if self._on_terminal:
            self._greet()
        lines = self._lines()
        before = signal.signal(signal.SIGQUIT, lambda *_: self.stop_everything())
        failed = False
        try:
            while not self._is_leaving:
                try:
                    failed = not self._one(lines.read())
                except EOFError:
                    break
                except KeyboardInterrupt:
                    self._presses.append(time.monotonic())
                    self._leave_if_pressed_often()
        finally:
            signal.signal(signal.SIGQUIT, before)
        if self._is_interrupted:
            return Exit.INTERRUPTED
        # A pipe has nobody who saw the error go by.
        return Exit.FAILED if failed and not self._on_terminal else Exit.DONE

    def close(self) -> None:
        """Close the connection and the terminal."""
        self._drop()
        if self._terminal is not None:
            self._terminal.close()

    def client(self) -> Client:
        """Return a living connection; a new one is told of."""
        if self._client is not None and not self._client.is_alive():
            self._drop()
        if self._client is None:
            self._client = self._app.client()
            if self._has_been_connected:
                pid = self._client.welcome.pid
                note(f"● the daemon was restarted; connected to the new one (pid {pid})")
            self._has_been_connected = True
        return self._client

    def call(self, params: Method[R]) -> R:
        """Call a method, on a new connection when the old one is gone."""
        try:
            return self.client().call(params)
        except UnreachableError:
            self._drop()
            raise

    def run_tool(self, request: RunTool) -> None:
        """Run a tool in the conversation, if there is one, and show what came of it."""
        call = msgspec.structs.replace(
            request, workspace=self.workspace, conversation_id=self.conversation_id
        )
        show_outcome(run_tool(self.client(), call, self._terminal))

    def leave(self) -> None:
        """End after this line."""
        self._is_leaving = True

    def go_on_in(self, conversation_id: str) -> None:
        """Let the next message go to this conversation; "" opens a new one."""
        self.conversation_id = conversation_id
        self._finished = None

    def stop_everything(self) -> None:
        """Set the emergency stop, over a connection of its own."""
        try:
            with self._app.running_client() as client:
                client.call(SetEstop(reason="Ctrl-\\ in clawctl"), limit_s=5)
        except ClawError as error:
            show_error(error)
            return
        self.is_stopped = True
        note("EMERGENCY STOP is set. Allow tools again with /estop clear")

    def _one(self, line: str) -> bool:
        text = line.strip()
        if not text:
            return True
        try:
            if is_command(line):
                run_command(self, line.rstrip())
            else:
                self._send(text)
        except ClawError as error:
            if error.code == "cancelled":
                note("● stopped")
                if not self._on_terminal or self._choice.quiet:
                    self._leave_interrupted()
                return True
            show_error(error)
            if error.code == "unreachable":
                self._drop()
                self._reconnect()
            return False
        return True

    def _send(self, text: str) -> None:
        out, err = sys.stdout, sys.stdout if self._on_terminal else sys.stderr
        quiet = self._choice.quiet
        options = ViewOptions(
            rows=not quiet,
            metrics=self._choice.progress and not quiet,
            details=self._on_terminal and not quiet,
        )
        view = new_view(out, err, options)
        if self._finished is not None:
            view.context_size = self._finished.usage.context_size
        request = self._choice.message(
            text, self.conversation_id, interactive=self._terminal is not None
        )
        finished: TurnFinished | None = None
        try:
            stream = self.client().stream(request)
            finished = follow(stream, view, self._terminal, self._presses)
        except KeyboardInterrupt:
            # The daemon did not stop at the first press: leave it alone, take a new connection.
            self._drop()
            self._leave_if_pressed_often()
        finally:
            self.conversation_id = view.conversation_id or self.conversation_id
            if finished is None:
                view.finish(None)
            else:
                view.finish(finished.text, finished)
        if finished is None:
            return
        self._finished = finished
        self._model = finished.model or self._model
        if finished.stop_reason in _STOP_REASONS:
            note(f"● stopped: {_STOP_REASONS[finished.stop_reason]}")

    def _reconnect(self) -> None:
        try:
            self.client()
        except ClawError as error:
            show_error(error)

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _leave_if_pressed_often(self) -> None:
        now = time.monotonic()
        self._presses = [at for at in self._presses if now - at <= PRESS_WINDOW_S]
        if not self._on_terminal:
            self._leave_interrupted()
        elif len(self._presses) >= PRESSES_TO_LEAVE:
            self.leave()

    def _leave_interrupted(self) -> None:
        self._is_interrupted = True
        self.leave()

    def _greet(self) -> None:
        report = self.call(Status())
        self._autonomy = report.autonomy
        self._model = report.default_model or report.default_provider
        self.is_stopped = report.estop
        workspace = self.workspace or report.workspace
        print(visible_line(f"clawd {report.version} · {self._model} · {report.autonomy}"))
        print(visible_line(f"workspace {workspace} · /help lists the commands, Ctrl-D leaves"))
        if report.estop:
            print(
                visible_line(f"EMERGENCY STOP is set: {report.estop_reason or 'no reason given'}")
            )

    def _lines(self) -> Lines:
        if not self._on_terminal:
            return PlainLines()
        where = layout()
        return EditedLines(
            where.home / HISTORY_FILE,
            COMMANDS,
            status=self._status,
            on_stop=self.stop_everything,
        )

    def _status(self) -> str:
        parts = [self._model, self._autonomy]
        usage = self._finished.usage if self._finished is not None else None
        if usage is not None and usage.context_size:
            parts.append(f"ctx {100 * usage.context_used // usage.context_size}%")
        if usage is not None and usage.tokens_per_s:
            parts.append(f"{usage.tokens_per_s:.1f} tok/s")
        if self.is_stopped:
            parts.append("EMERGENCY STOP")
        return visible_line(" · ".join(part for part in parts if part), _columns())


_STOP_REASONS = {"cap": "cap of rounds or time reached", "loop": "no progress"}


def _columns() -> int:
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns - 2, 20)
    except OSError:
        return 78
