"""Asks the model from the shell: one turn in the conversation of the folder, drawn in between.

What the shell ran is handed in; what comes back is the text for the shell's edit line, "" for none.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from clawctl.app import App
from clawctl.approve import Terminal
from clawctl.choice import Choice
from clawctl.client import LOST, Client, reason_of
from clawctl.following import View, follow
from clawctl.outcome import run_tool, show_outcome
from clawctl.render import note, show_error
from clawctl.repl.drawing import new_view
from clawctl.repl.host import Spent
from clawctl.repl.slash import is_command, run_command
from clawctl.repl.waiting import wait_long
from clawctl.shell.choosing import choose
from clawctl.shell.proposals import proposals_in
from clawctl.shell.question import Line, Question, line_of, question
from clawctl.shell.records import Records
from clawctl.shell.session_file import read_session, write_session
from clawctl.turn import ViewOptions
from clawd.errors import ClawError
from clawd.paths import layout
from clawd.wire.events import TurnFinished
from clawd.wire.method import Method
from clawd.wire.methods import RunTool, SendMessage, SetEstop

_STOP_REASONS = {"cap": "cap of rounds or time reached", "loop": "no progress"}
_ABSENT: Mapping[str, str] = {
    "/editor": "your shell's own key opens the editor: Ctrl-X Ctrl-E in bash.",
    "/refine": "it is in `clawctl agent`: here a line after the first would be a command of yours.",
    "/exit": "it is your own shell: leave it with exit or Ctrl-D.",
    "/quit": "it is your own shell: leave it with exit or Ctrl-D.",
}
_KEYS = """\
> text asks; ? explains the last failure. @last and @-2 stand for the output of a command.
Tools work in the folder you are in, and each folder has a conversation of its own.
A proposed command goes into your prompt, where you change it and press Enter.
Ctrl-C stops the answer. Ctrl-\\ during an answer is the emergency stop."""
_NOT_ALLOWED = {"forbidden", "invalid_request"}
_NOT_THERE = {"not_found", "forbidden"}

R = TypeVar("R")


class Folder(msgspec.Struct, kw_only=True):
    """What is known of a folder that was asked from.

    Attributes:
        conversation_id: empty for a new one.
        workspace: the folder, or empty where it is not allowed as one.
        from_file: whether the conversation is only what a file names.
        last: the last turn of the conversation here, None before the first.
        last_text: what was asked last, "" before the first.
    """

    conversation_id: str
    workspace: str
    from_file: bool = False
    last: TurnFinished | None = None
    last_text: str = ""


class Asking:
    """The asking half of the shell; its commands see it as a `host.Host`.

    Args:
        app: the way to the daemon.
        choice: agent, provider and model; `resume` goes on with what a folder's file names.
        records: what the shell ran.
        known: returns values that are secret.
        keeps_file: whether the conversation of a folder is remembered.
    """

    keys = _KEYS
    absent = _ABSENT

    def __init__(
        self,
        app: App,
        choice: Choice,
        records: Records,
        *,
        known: Callable[[], tuple[str, ...]],
        keeps_file: bool = True,
    ) -> None:
        self.app = app
        self.choice = choice
        self._records = records
        self._known = known
        self._keeps_file = keeps_file
        self._client: Client | None = None
        self._has_been_connected = False
        self._terminal: Terminal | None = None
        self._folders: dict[str, Folder] = {}
        self._here = Folder(conversation_id="", workspace="")
        self._context_size = 0
        self._warned = False
        self._edit_line = ""
        self.is_stopped = False
        self.system: str | None = None
        self.shows_reasoning = False
        self.spent = Spent()

    @property
    def directory(self) -> Path:
        """The shell's folder: names of files begin there."""
        return Path(self._records.cwd or ".")

    @property
    def workspace(self) -> str:
        """The shell's folder, empty where the configured workspace is used."""
        return self._here.workspace

    @property
    def conversation_id(self) -> str:
        """The conversation of the shell's folder, empty for a new one."""
        return self._here.conversation_id

    @conversation_id.setter
    def conversation_id(self, conversation_id: str) -> None:
        self._here.conversation_id = conversation_id

    @property
    def last(self) -> TurnFinished | None:
        """The last turn in the shell's folder."""
        return self._here.last

    @property
    def last_text(self) -> str:
        """What was asked last in the shell's folder."""
        return self._here.last_text

    def ask(self, entered: str) -> str:
        """Answer a line; return what goes into the shell's edit line."""
        before = signal.signal(signal.SIGQUIT, lambda *_: self.stop_everything())
        self._terminal = Terminal.open()
        self._edit_line = ""
        try:
            self._here = self._folder(self._records.cwd)
            self._answer(line_of(entered))
        except ClawError as error:
            if error.code == "cancelled":
                note("● stopped")
            else:
                show_error(error)
            if error.code == "unreachable":
                self._drop()
            if reason_of(error) == LOST:
                self._reconnect()
        except KeyboardInterrupt:
            # The daemon did not stop at the first press: leave it alone, take a new connection.
            self._drop()
            note("● stopped")
        finally:
            sys.stdout.flush()
            if self._terminal is not None:
                self._terminal.close()
                self._terminal = None
            signal.signal(signal.SIGQUIT, before)
        return self._edit_line

    def close(self) -> None:
        """Close the connection."""
        self._drop()

    def client(self) -> Client:
        """Return a living connection; a new one is told of."""
        if self._client is not None and not self._client.is_alive():
            self._drop()
        if self._client is None:
            self._client = self.app.client()
            if self._has_been_connected:
                pid = self._client.welcome.pid
                note(f"● the daemon was restarted; connected to the new one (pid {pid})")
            self._has_been_connected = True
        return self._client

    def call(self, params: Method[R]) -> R:
        """Call a method, on a new connection when the old one is gone."""
        return self.client().call(params)

    def wait_for(self, params: Method[R], what: str) -> R:
        """Call a method that may take long, and show that it goes on."""
        return wait_long(self.client().stream(params), what, lambda: None)

    def choose(self, **changes: object) -> None:
        """Change what the next question is sent with."""
        self.choice = msgspec.structs.replace(self.choice, **changes)

    def run_tool(self, request: RunTool) -> None:
        """Run a tool in the conversation, if there is one, and show what came of it."""
        call = msgspec.structs.replace(
            request, workspace=self.workspace, conversation_id=self.conversation_id
        )
        show_outcome(run_tool(self.client(), call, self._terminal))

    def send(self, text: str) -> None:
        """Ask as if it had been typed."""
        self._converse(Line(text=text))

    def offer(self, text: str, *, is_typed: bool = False) -> None:  # noqa: ARG002 no file is named here
        """Put a question into the shell's edit line."""
        self._edit_line = f"> {text}"

    def leave(self) -> None:
        """Do nothing: the shell is the person's, and ends as it always does."""

    def go_on_in(self, conversation_id: str) -> None:
        """Let the next question here go to this conversation; "" opens a new one."""
        self._here.conversation_id, self._here.from_file = conversation_id, False
        self._here.last = None

    def stop_everything(self) -> None:
        """Set the emergency stop, over a connection of its own."""
        try:
            with self.app.running_client() as client:
                client.call(SetEstop(reason="Ctrl-\\ in clawctl shell"), limit_s=5)
        except ClawError as error:
            show_error(error)
            return
        self.is_stopped = True
        note("EMERGENCY STOP is set. Allow tools again with: > /estop clear")

    def _answer(self, line: Line) -> None:
        if not line.explains and is_command(line.text):
            run_command(self, line.text)
        elif line.explains and self._records.last_failure is None:
            note("No command has failed in this shell yet: there is nothing to explain.")
        else:
            self._converse(line)

    def _converse(self, line: Line) -> None:
        """Ask, show the answer, and offer the commands in it."""
        asked = question(
            line, self._records, self._known(), is_first=not self._here.conversation_id
        )
        if asked.missing:
            note(f"● not kept, so not sent: {', '.join(asked.missing)}")
        if not line.explains:
            self._here.last_text = line.text
        started = time.monotonic()
        finished = self._turn(asked)
        self._here.last = finished
        self.spent = self.spent.after(finished.usage, time.monotonic() - started)
        proposals = proposals_in(finished.text)
        if not proposals or self._terminal is None:
            return
        if not self._warned:
            self._warned = True
            note("● It would run in your own shell, outside the sandbox.")
        self._edit_line = choose(proposals)

    def _turn(self, asked: Question) -> TurnFinished:
        """Send the question, and once more where the folder or its file asks for too much.

        From a folder that is not allowed tools work in the configured workspace; a conversation
        that a file names and the daemon does not know gives way to a new one.
        """
        here = self._here
        try:
            return self._send(asked)
        except ClawError as error:
            if here.from_file and error.code in _NOT_THERE:
                note("● This folder's conversation is gone: a new one begins.")
                here.conversation_id, here.from_file = "", False
            elif here.workspace and not here.conversation_id and error.code in _NOT_ALLOWED:
                here.workspace = ""
                show_error(error)
                note("● Tools work in the configured workspace instead, not in this folder.")
            else:
                raise
        return self._send(asked)

    def _send(self, asked: Question) -> TurnFinished:
        view = new_view(
            sys.stdout, sys.stdout, ViewOptions(details=True, reasoning=self.shows_reasoning)
        )
        view.context_size = self._context_size
        finished: TurnFinished | None = None
        try:
            stream = self.client().stream(self._request(asked))
            finished = follow(stream, view, self._terminal)
        finally:
            self._remember(view)
            view.finish(finished.text if finished is not None else None, finished)
        if finished.stop_reason in _STOP_REASONS:
            note(f"● stopped: {_STOP_REASONS[finished.stop_reason]}")
        return finished

    def _request(self, asked: Question) -> SendMessage:
        choice = msgspec.structs.replace(self.choice, workspace=self._here.workspace)
        request = choice.message(
            asked.text, self._here.conversation_id, interactive=self._terminal is not None
        )
        return msgspec.structs.replace(request, untrusted=asked.untrusted, system=self.system)

    def _remember(self, view: View) -> None:
        """Keep the conversation that a turn began in, for this folder."""
        self._context_size = view.context_size
        conversation_id = view.conversation_id
        self._here.from_file = self._here.from_file and not conversation_id
        if not conversation_id or conversation_id == self._here.conversation_id:
            return
        self._here.conversation_id = conversation_id
        if self._keeps_file and self._records.cwd:
            try:
                write_session(Path(self._records.cwd), layout().home, conversation_id)
            except OSError as error:
                note(f"● this folder does not remember its conversation: {error.strerror or error}")

    def _folder(self, cwd: str) -> Folder:
        known = self._folders.get(cwd)
        if known is None:
            resumed = self._resumed(cwd)
            known = Folder(conversation_id=resumed, workspace=_real(cwd), from_file=bool(resumed))
            self._folders[cwd] = known
        return known

    def _resumed(self, cwd: str) -> str:
        if not (cwd and self._keeps_file and self.choice.resume):
            return ""
        try:
            return read_session(Path(cwd), layout().home)
        except ClawError as error:
            show_error(error)
            return ""

    def _reconnect(self) -> None:
        try:
            self.client()
        except ClawError as error:
            show_error(error)

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _real(cwd: str) -> str:
    return os.path.realpath(cwd) if cwd.startswith("/") else ""
