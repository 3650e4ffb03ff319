"""Follows one request to its end: shows its events, asks what has to be asked, takes Ctrl-C.

A call outside a conversation is made, displayed and turned into an exit code here as well.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Literal, Protocol, TypeVar

import msgspec

from clawctl.app import App, Exit
from clawctl.approve import Terminal, answer_question, approve
from clawctl.client import Client, Stream
from clawctl.render import Palette, emit, note, without_status
from clawctl.turn import TurnView, ViewOptions
from clawd.errors import ClawError
from clawd.wire import events
from clawd.wire.conversations import ConversationLine
from clawd.wire.method import Method
from clawd.wire.safe_text import NAME_LIMIT, terminal_safe, visible_line
from clawd.wire.tools import RunTool, ToolOutcome

Level = Literal["all", "bell", "off"]
LONG_TURN_S = 10.0
BELL = "\x07"
# XTerm's stack of titles: the one of before comes back. Terminals without a stack keep "clawd".
_KEEP_TITLE, _OLD_TITLE = "\x1b[22;2t", "\x1b]2;clawd\x1b\\\x1b[23;2t"
_NO_CODES = frozenset({"", "dumb", "linux"})

TICK_S = 0.1
_PIECES = events.TextDelta | events.ReasoningDelta | events.ToolDraft | events.PromptProgress
WIDEST = 2_000  # of a line about an event

R = TypeVar("R")

Hear = Callable[[events.Event], None]


class EventView(Protocol):
    """What is given a request's events."""

    @property
    def animates(self) -> bool:
        """Whether `tick` should be called while nothing happens."""
        ...

    def show(self, event: events.Event) -> None:
        """Show one event."""
        ...

    def tick(self) -> None:
        """Say that time has passed and nothing came."""
        ...

    def pause(self) -> None:
        """Leave the terminal to somebody else, who asks a question."""
        ...

    def finish(self, text: str | None, finished: events.TurnFinished | None = None) -> None:
        """End the turn's lines; `text` is the whole answer, of which some may be shown already."""
        ...


class View(EventView, Protocol):
    """What shows a request's events: plain lines (`turn.TurnView`), or a drawing of the REPL.

    Attributes:
        conversation_id: of the turn, once it began.
        context_size: the last one heard of, 0 for unknown; may be set before the first event.
    """

    conversation_id: str
    context_size: int


class Answerer(Protocol):
    """Who answers where no person is at a terminal: `streaming.Program`."""

    def approve(self, request: events.ApprovalRequested, stream: Stream[Any]) -> None:
        """Send the answer, unless the question is over before there is one."""
        ...

    def answer(self, question: events.QuestionAsked, stream: Stream[Any]) -> None:
        """Send the answer, unless the question is over before there is one."""
        ...


class AtTerminal:
    """The person at a terminal, who is called to what waits; see `Answerer`.

    Args:
        terminal: where they are.
        title: of the conversation, for a user who looks elsewhere.
    """

    def __init__(self, terminal: Terminal, title: str = "") -> None:
        self._terminal = terminal
        self._title = title
        self._seen_at = time.monotonic()

    def approve(self, request: events.ApprovalRequested, stream: Stream[Any]) -> None:
        """Show the call and ask."""
        with waiting(self._terminal, "approval", f"{request.tool} {self._title}"):
            approve(self._terminal, request, stream)
        self._seen_at = time.monotonic()

    def answer(self, question: events.QuestionAsked, stream: Stream[Any]) -> None:
        """Show the question and ask."""
        with waiting(self._terminal, "question", self._title):
            answer_question(self._terminal, question, stream)
        self._seen_at = time.monotonic()

    def finished(self) -> None:
        """Say that all is over, if nothing was asked for long."""
        if time.monotonic() - self._seen_at > LONG_TURN_S:
            notify(self._terminal, f"has finished {self._title}")


class Nobody:
    """No one who could be asked; see `Answerer`."""

    def approve(self, request: events.ApprovalRequested, stream: Stream[Any]) -> None:
        """Say no."""
        stream.answer(request.approval_id, "deny", request.digest)

    def answer(self, question: events.QuestionAsked, stream: Stream[Any]) -> None:
        """Say nothing."""
        stream.answer(question.question_id, "")


def _answers(terminal: Terminal | Answerer | None, title: str) -> Answerer:
    if terminal is None:
        return Nobody()
    return AtTerminal(terminal, title) if isinstance(terminal, Terminal) else terminal


def follow(
    stream: Stream[R],
    view: EventView,
    terminal: Terminal | Answerer | None,
    presses: list[float] | None = None,
    *,
    heard: Hear | None = None,
    title: str = "",
) -> R:
    """Show a request's events, ask what has to be asked, and return its result.

    The first Ctrl-C cancels; another one gives up waiting and raises KeyboardInterrupt. The time
    of each is appended to `presses`. `heard` is told every event before it is shown. `title` is the
    conversation's, for a user who looks elsewhere.

    Raises:
        ClawError: the request failed; code `cancelled` when it was cancelled.
    """
    is_person = isinstance(terminal, Terminal)
    answers = _answers(terminal, title)
    with _interrupts(stream, [] if presses is None else presses):
        while not stream.is_done:
            event = stream.wait(TICK_S if view.animates else None)
            if event is not None and heard is not None:
                heard(event)
            match event:
                case None:
                    view.tick()
                case events.ApprovalRequested():
                    view.show(event)
                    view.pause()
                    answers.approve(event, stream)
                case events.ApprovalResolved() if (
                    is_person and event.approval_id in stream.answered
                ):
                    view.show(msgspec.structs.replace(event, by=""))  # the person here knows
                case events.QuestionAsked():
                    view.show(event)
                    view.pause()
                    answers.answer(event, stream)
                case _:
                    view.show(event)
    if stream.is_cancelled:
        raise ClawError("interrupted", code="cancelled")
    if isinstance(answers, AtTerminal):
        answers.finished()
    return stream.result


@contextlib.contextmanager
def listening(log_file: str, *, verbose: bool = False) -> Iterator[Hear]:
    """Return what appends every event to a file as a line of JSON, and tells most in a line.

    Raises:
        ClawError: the file cannot be written.
    """
    try:
        # It holds what was said: nobody else's to read, as the daemon's log.
        log = _private(log_file) if log_file else None
    except OSError as error:
        raise ClawError(
            f"the log file {log_file} cannot be written: {error.strerror}",
            hint="Give --log-file a file in a folder of yours.",
        ) from error

    def hear(event: events.Event) -> None:
        if log is not None:
            log.write(msgspec.json.encode(event) + b"\n")
        if verbose and not isinstance(event, _PIECES):
            values = msgspec.to_builtins(event)
            fields = (f"{name}={value}" for name, value in values.items() if name != "type")
            print(visible_line(f"· {values['type']} {' '.join(fields)}", WIDEST), file=sys.stderr)

    with log or contextlib.nullcontext():
        yield hear


def _private(log_file: str) -> BinaryIO:
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "ab", buffering=0)


@contextlib.contextmanager
def _interrupts(stream: Stream[Any], presses: list[float]) -> Iterator[None]:
    # A press while this unwinds must not break off what puts the handler back.
    raises = True

    def on_interrupt(_number: int, _frame: object) -> None:
        nonlocal raises
        presses.append(time.monotonic())
        if not stream.is_cancelled:
            stream.cancel()
        elif raises:
            raises = False
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, on_interrupt)
        try:
            yield
        finally:
            raises = False
    finally:
        signal.signal(signal.SIGINT, before)


# Calls a person who looks elsewhere: the bell, a notification, the title of the window.
#
# They go to the controlling terminal, past the wall of `safe_stream`: the codes are ours, and of
# what others wrote only a tool's and a conversation's name are in them, made safe and cut.
#
# `CLAWD_NOTIFY`, or `notify` in `client.toml` of the home, is `all` (the default), `bell` or `off`.
# Where colour is not wanted and on terminals that do not know the codes there is the bell alone.


class Signals(Protocol):
    """What takes the codes: a terminal."""

    def signal(self, codes: str) -> None:
        """Send codes, as they are."""
        ...


def level_of(environ: Mapping[str, str] | None = None) -> Level:
    """Return how much is wanted."""
    given = os.environ if environ is None else environ
    chosen = given.get("CLAWD_NOTIFY")
    if chosen is None:
        from clawctl.settings import read_settings

        chosen = read_settings().get("notify")
    if chosen in {"off", "0", False}:
        return "off"
    if chosen == "bell" or given.get("NO_COLOR") or given.get("TERM", "") in _NO_CODES:
        return "bell"
    return "all"


@contextlib.contextmanager
def waiting(terminal: Signals, what: str, about: str = "") -> Iterator[None]:
    """Call the person, and have the window's title say so until the body has ended.

    Args:
        terminal: where they are.
        what: is waited for: `approval`, `question`.
        about: the names of a tool and of a conversation.
    """
    level = level_of()
    if level != "off":
        terminal.signal(BELL)
    if level == "all":
        terminal.signal(f"{_notification(f'clawd waits: {what}', about)}{_KEEP_TITLE}")
        terminal.signal(f"\x1b]2;? clawd: {what}\x1b\\")
    try:
        yield
    finally:
        if level == "all":
            terminal.signal(_OLD_TITLE)


def notify(terminal: Signals, what: str) -> None:
    """Report that something is over to a user who may look elsewhere."""
    if level_of() == "all":
        terminal.signal(_notification("clawd", what))


def _notification(title: str, text: str) -> str:
    """Return the codes of a notification: OSC 9, and OSC 777 for terminals that know that one."""
    safe = visible_line(text, 2 * NAME_LIMIT).replace(";", ",").strip()
    said = f"{title} {safe}".rstrip()
    return f"\x1b]9;{said}\x1b\\\x1b]777;notify;{title};{safe}\x1b\\"


class Rewound(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation that was taken back to a message has become.

    Attributes:
        files: the call of undo.
        conversation: the copy in which it goes on; None where nothing is before the message.
    """

    files: ToolOutcome
    conversation: ConversationLine | None = None


def run_and_show(app: App, request: RunTool, *, may_ask: bool, as_json: bool) -> int:
    """Make the call, show what came of it, and return the exit code; `interactive` is set here."""
    app.wants_json = as_json
    with Terminal.opened(wanted=may_ask) as terminal, app.client() as client:
        outcome = run_tool(client, request, terminal, shows_rows=not as_json)
    emit(outcome, show_outcome, as_json=as_json)
    return exit_code(outcome)


def run_tool(
    client: Client, request: RunTool, terminal: Terminal | None, *, shows_rows: bool = True
) -> ToolOutcome:
    """Make the call, asking at the terminal where that is needed.

    Raises:
        ClawError: the request failed.
    """
    options = ViewOptions(text=False, rows=shows_rows, calls=False, metrics=False)
    return follow_calls(client, request, terminal, options)


def follow_calls(
    client: Client, request: Method[R], terminal: Terminal | None, options: ViewOptions
) -> R:
    """Make a request that calls tools, asking at the terminal where that is needed.

    Raises:
        ClawError: the request failed.
    """
    view = TurnView(sys.stdout, sys.stderr, options)
    call = msgspec.structs.replace(request, interactive=terminal is not None)
    try:
        return follow(client.stream(call), view, terminal)
    finally:
        view.finish(None)


def show_outcome(outcome: ToolOutcome, *, is_quiet: bool = False) -> None:
    """Print what a call gave, and how it went: with `is_quiet` only where it did not go well."""
    has_acted = outcome.status == "allowed"
    text = terminal_safe(outcome.output if has_acted else without_status(outcome.output))
    is_denied = outcome.status == "denied"
    if text and not is_denied:
        # What a tool gave is data; why it gave nothing is a remark.
        target = sys.stdout if has_acted else sys.stderr
        print(text, end="" if text.endswith("\n") else "\n", file=target)
    palette = Palette.of(sys.stderr)
    code = "" if outcome.exit_code is None else f", exit code {outcome.exit_code}"
    about = f"{outcome.status}, risk {outcome.risk}, {outcome.duration_ms} ms{code}"
    if not (is_quiet and has_acted):
        note(f"● {about}  {outcome.receipt_id}")
    if is_denied:
        note("\n".join(f"  {line}" for line in text.splitlines()))
    if outcome.unanswered:
        print(palette.yellow("● nobody could be asked for an approval"), file=sys.stderr)


def exit_code(outcome: ToolOutcome) -> int:
    """Return the exit code of clawctl for what came of a call."""
    if outcome.kind == "stopped":
        return Exit.STOPPED
    if outcome.status == "denied":
        return Exit.DENIED
    return Exit.DONE if outcome.status == "allowed" else Exit.FAILED
