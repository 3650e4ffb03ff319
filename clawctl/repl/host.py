"""What a slash command may do with the REPL or shell that runs it, and the way to the daemon.

What goes on beside the start: first words, imports for later.
"""

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from typing_extensions import override

from clawctl.agent_options import Choice, Mode
from clawctl.app import App
from clawctl.client import LOST, Client, Stream, is_nobody, reason_of
from clawctl.render import Palette, note, show_error
from clawctl.turn import CLEAR_LINE, FRAMES
from clawd import __version__
from clawd.errors import ClawError, UnreachableError
from clawd.wire.conversations import ConversationLine
from clawd.wire.daemon import SetEstop, Status, StatusReport
from clawd.wire.events import ModelLoading, TurnFinished, TurnUsage
from clawd.wire.method import Method
from clawd.wire.safe_text import visible_line
from clawd.wire.tools import RunTool, ToolOutcome

STOP_LIMIT_S = 5
RETRIES_S = (0.1, 0.2, 0.4, 0.8, 1.5, 2.0)


class DaemonLink:
    """One connection at a time; a new one is reported.

    Attributes:
        gave_up: the daemon was looked for the last time, and nobody answered.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._client: Client | None = None
        self._pid = 0
        self.gave_up = False

    def client(self) -> Client:
        """Return a living connection; one that was lost is looked for, for a few seconds.

        Raises:
            ClawError: no daemon answers, or it refuses.
        """
        if self._client is not None and not self._client.is_alive():
            self.drop()
        if self._client is None:
            self._client = self._app.client() if not self._pid else self._again()
            self._report_new(self._client)
        return self._client

    def drop(self) -> None:
        """Close the connection; what it asked for is cancelled by that."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _again(self) -> Client:
        self.gave_up = False
        for number, wait_s in enumerate(RETRIES_S):
            try:
                return self._app.client()
            except UnreachableError as error:
                if not is_nobody(error) and reason_of(error) != LOST:
                    raise
                if not number:
                    note("● the daemon does not answer; looking for it for a few seconds")
                time.sleep(wait_s)
        self.gave_up = True
        client = self._app.client()
        self.gave_up = False
        return client

    def _report_new(self, client: Client) -> None:
        welcome = client.welcome
        if self._pid and welcome.pid != self._pid:
            note(f"● the daemon was restarted; connected to the new one (pid {welcome.pid})")
        if welcome.version != __version__ and welcome.pid != self._pid:
            note(
                f"● the daemon is clawd {welcome.version}, this is clawctl {__version__}: "
                "restart the older one when you can"
            )
        self._pid = welcome.pid


class Opening(threading.Thread):
    """Connects and asks how the daemon is, while something else goes on."""

    def __init__(self, link: DaemonLink) -> None:
        super().__init__(name="opening", daemon=True)
        self._link = link
        self._report: StatusReport | None = None
        self._error: BaseException | None = None
        self.start()

    @override
    def run(self) -> None:
        """Connect and ask."""
        try:
            self._report = self._link.client().call(Status())
        except BaseException as error:  # noqa: BLE001 it is raised again where it is waited for
            self._error = error

    def result(self) -> StatusReport:
        """Wait for the end and return the report, or raise what happened."""
        self.join()
        if self._report is None:
            assert self._error is not None
            raise self._error
        return self._report


def prepare_drawing() -> None:
    """Import in the background what the first answer is drawn with; for when a prompt is up."""
    threading.Thread(target=_import_drawing, name="drawing", daemon=True).start()


def _import_drawing() -> None:
    importlib.import_module("clawctl.repl.plain_view").prepare()


TICK_S = 0.1
SHOWN_AFTER_S = 0.3
WHAT_LIMIT = 60

R = TypeVar("R")


def wait_long(stream: Stream[R], what: str, on_tick: Callable[[], None]) -> R:
    """Return the result of a request; `what` says what goes on.

    Raises:
        ClawError: the request failed.
        KeyboardInterrupt: Ctrl-C; the caller drops the connection, which cancels the request.
    """
    text = visible_line(what, WHAT_LIMIT)
    moves = sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"
    moves = moves and os.environ.get("CLAWD_PLAIN", "") in {"", "0"}
    palette = Palette.of(sys.stderr)
    started, frame, is_drawn, share = time.monotonic(), 0, False, ""
    try:
        while not stream.is_done:
            event = stream.wait(TICK_S)
            on_tick()
            if isinstance(event, ModelLoading):
                share = f" {100 * event.loaded_bytes // max(event.total_bytes, 1)}%"
            seconds = time.monotonic() - started
            if seconds < SHOWN_AFTER_S:
                continue
            if moves:
                frame += 1
                drawn = palette.dim(f"{FRAMES[frame % len(FRAMES)]} {text}{share} {seconds:.0f} s")
                sys.stderr.write(f"{CLEAR_LINE}{drawn}")
                sys.stderr.flush()
            elif not is_drawn:
                note(f"{text} …")
            is_drawn = True
    finally:
        if is_drawn and moves:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
    return stream.result


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What the session has cost so far."""

    turns: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def after(self, usage: TurnUsage, seconds: float) -> "Spent":
        """Return the account with one more turn."""
        return Spent(
            turns=self.turns + 1,
            seconds=self.seconds + seconds,
            prompt_tokens=self.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.completion_tokens + usage.completion_tokens,
        )


class Host(Protocol):
    """The REPL or the shell as its commands see it.

    Attributes:
        keys: what /help says of the keys.
        absent: commands that make no sense here, each with what to do instead.
        conversation_id: where the next message goes, empty for a new conversation.
        is_stopped: whether the emergency stop was set when we last heard.
        system: text that goes in place of clawd's own system prompt; None for that one.
        shows_reasoning: whether a model's reasoning is shown whole.
        spent: what the session has cost.
    """

    keys: str
    absent: Mapping[str, str]
    conversation_id: str
    is_stopped: bool
    system: str | None
    shows_reasoning: bool
    spent: Spent

    @property
    def last(self) -> TurnFinished | None:
        """The last turn, None before the first of this conversation."""
        ...

    @property
    def last_text(self) -> str:
        """The last message that was sent, "" before the first."""
        ...

    @property
    def directory(self) -> Path:
        """The person's folder: names of files begin there."""
        ...

    @property
    def app(self) -> App:
        """What this run of clawctl was started with."""
        ...

    @property
    def choice(self) -> Choice:
        """What the next message is sent with."""
        ...

    @property
    def mode(self) -> Mode:
        """How far the model may go without a person, "" for as configured."""
        ...

    @property
    def workspace(self) -> str:
        """The conversation's workspace, empty for the configured one."""
        ...

    def choose(self, **changes: object) -> None:
        """Change what the next message is sent with."""
        ...

    def client(self) -> Client:
        """Return a living connection."""
        ...

    def call(self, params: Method[R]) -> R:
        """Call a method."""
        ...

    def wait_for(self, params: Method[R], what: str) -> R:
        """Call a method that may take long, and show that it goes on."""
        ...

    def run_tool(self, request: RunTool) -> ToolOutcome:
        """Run a tool in the conversation, if there is one, show and return what came of it."""
        ...

    def send(self, text: str) -> None:
        """Send a message as if it had been typed; the last one with what it had."""
        ...

    def offer(self, text: str, *, is_typed: bool = False) -> None:
        """Put a text into the next prompt, to be edited."""
        ...

    def leave(self) -> None:
        """End after this line."""
        ...

    def go_on_in(self, conversation: ConversationLine | None) -> None:
        """Let the next message go to this conversation; None opens a new one."""
        ...

    def set_mode(self, mode: Mode) -> None:
        """Let the model go that far in this conversation, or in the one that begins next."""
        ...


class BaseHost:
    """What REPL and shell have alike: options, connection, account, and the emergency stop.

    Attributes:
        program: what the emergency stop says of who set it.
        prompt: what is typed before a slash command.
    """

    absent: Mapping[str, str] = {}
    program = "clawctl"
    prompt = ""

    def __init__(self, app: App, choice: Choice) -> None:
        self.app = app
        self.choice = choice
        self.is_stopped = False
        self.system: str | None = None
        self.shows_reasoning = False
        self.spent = Spent()
        self._link = DaemonLink(app)

    def choose(self, **changes: object) -> None:
        """Change what the next message is sent with."""
        self.choice = msgspec.structs.replace(self.choice, **changes)

    def client(self) -> Client:
        """Return a living connection; a new one is reported."""
        return self._link.client()

    def call(self, params: Method[R]) -> R:
        """Call a method."""
        return self.client().call(params)

    def stop_everything(self) -> None:
        """Set the emergency stop, over a connection of its own."""
        try:
            with self.app.running_client() as client:
                reason = f"Ctrl-\\ in {self.program}"
                client.call(SetEstop(reason=reason), limit_s=STOP_LIMIT_S)
        except ClawError as error:
            show_error(error)
            return
        self.is_stopped = True
        note(f"EMERGENCY STOP is set. Allow tools again with: {self.prompt}/estop clear")
