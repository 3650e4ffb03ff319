"""Asks the model from the shell: one turn in the conversation of the folder, drawn in between.

What the shell ran is handed in; what comes back is the text for the shell's edit line, "" for none.
"""

import os
import signal
import sys
from collections.abc import Callable
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
from clawctl.repl.slash import is_command, run_command
from clawctl.shell.choosing import choose
from clawctl.shell.proposals import proposals_in
from clawctl.shell.question import Line, Question, line_of, question
from clawctl.shell.records import Records
from clawctl.shell.session_file import NAME, read_session, write_session
from clawctl.turn import ViewOptions
from clawd.errors import ClawError
from clawd.wire.events import TurnFinished
from clawd.wire.method import Method
from clawd.wire.methods import RunTool, SendMessage, SetEstop

_STOP_REASONS = {"cap": "cap of rounds or time reached", "loop": "no progress"}
_NOT_ALLOWED = {"forbidden", "invalid_request"}
_NOT_THERE = {"not_found", "forbidden"}

R = TypeVar("R")


class Folder(msgspec.Struct, kw_only=True):
    """What is known of a folder that was asked from.

    Attributes:
        conversation_id: empty for a new one.
        workspace: the folder, or empty where it is not allowed as one.
        from_file: whether the conversation is only what a file names.
    """

    conversation_id: str
    workspace: str
    from_file: bool = False


class Asking:
    """The asking half of the shell; a host of the REPL's commands as well.

    Args:
        app: the way to the daemon.
        choice: agent, provider and model; `resume` goes on with what a folder's file names.
        records: what the shell ran.
        known: returns values that are secret.
        keeps_file: whether `.clawd_session` is read and written.

    Attributes:
        is_stopped: whether the emergency stop was set when we last heard.
    """

    def __init__(
        self,
        app: App,
        choice: Choice,
        records: Records,
        *,
        known: Callable[[], tuple[str, ...]],
        keeps_file: bool = True,
    ) -> None:
        self._app = app
        self._choice = choice
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
        self.is_stopped = False

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

    def ask(self, entered: str) -> str:
        """Answer a line; return what goes into the shell's edit line."""
        before = signal.signal(signal.SIGQUIT, lambda *_: self.stop_everything())
        self._terminal = Terminal.open()
        try:
            self._here = self._folder(self._records.cwd)
            return self._answer(line_of(entered))
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
        return ""

    def close(self) -> None:
        """Close the connection."""
        self._drop()

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
        return self.client().call(params)

    def run_tool(self, request: RunTool) -> None:
        """Run a tool in the conversation, if there is one, and show what came of it."""
        call = msgspec.structs.replace(
            request, workspace=self.workspace, conversation_id=self.conversation_id
        )
        show_outcome(run_tool(self.client(), call, self._terminal))

    def leave(self) -> None:
        """Say how a shell is left: it is the person's, and ends as it always does."""
        note("This is your own shell: leave it with exit or Ctrl-D.")

    def go_on_in(self, conversation_id: str) -> None:
        """Let the next question here go to this conversation; "" opens a new one."""
        self._here.conversation_id = conversation_id

    def stop_everything(self) -> None:
        """Set the emergency stop, over a connection of its own."""
        try:
            with self._app.running_client() as client:
                client.call(SetEstop(reason="Ctrl-\\ in clawctl shell"), limit_s=5)
        except ClawError as error:
            show_error(error)
            return
        self.is_stopped = True
        note("EMERGENCY STOP is set. Allow tools again with: > /estop clear")

    def _answer(self, line: Line) -> str:
        if not line.explains and is_command(line.text):
            run_command(self, line.text)
            return ""
        if line.explains and self._records.last_failure is None:
            note("No command has failed in this shell yet: there is nothing to explain.")
            return ""
        asked = question(
            line, self._records, self._known(), is_first=not self._here.conversation_id
        )
        if asked.missing:
            note(f"● not kept, so not sent: {', '.join(asked.missing)}")
        finished = self._turn(asked)
        proposals = proposals_in(finished.text)
        if not proposals or self._terminal is None:
            return ""
        if not self._warned:
            self._warned = True
            note("● It would run in your own shell, outside the sandbox.")
        return choose(proposals)

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
                note(f"● {NAME} names a conversation that is gone: a new one begins.")
                here.conversation_id, here.from_file = "", False
            elif here.workspace and not here.conversation_id and error.code in _NOT_ALLOWED:
                here.workspace = ""
                show_error(error)
                note("● Tools work in the configured workspace instead, not in this folder.")
            else:
                raise
        return self._send(asked)

    def _send(self, asked: Question) -> TurnFinished:
        view = new_view(sys.stdout, sys.stdout, ViewOptions(details=True))
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
        choice = msgspec.structs.replace(self._choice, workspace=self._here.workspace)
        request = choice.message(
            asked.text, self._here.conversation_id, interactive=self._terminal is not None
        )
        return msgspec.structs.replace(request, untrusted=asked.untrusted)

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
                write_session(Path(self._records.cwd), conversation_id)
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
        if not (cwd and self._keeps_file and self._choice.resume):
            return ""
        try:
            return read_session(Path(cwd))
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
