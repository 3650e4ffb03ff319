"""Follows one request to its end: shows its events, asks what has to be asked, takes Ctrl-C."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Protocol, TypeVar

import msgspec

from clawctl.approve import Terminal, answer_question, approve
from clawctl.client import Stream
from clawd.errors import ClawError
from clawd.wire.events import (
    ApprovalRequested,
    Event,
    PromptProgress,
    QuestionAsked,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from clawd.wire.safe_text import visible_line

TICK_S = 0.1
WIDEST = 2_000  # of a line about an event

R = TypeVar("R")

Hear = Callable[[Event], None]


class View(Protocol):
    """What shows a request's events: plain lines (`turn.TurnView`), or a drawing of the REPL.

    Attributes:
        conversation_id: of the turn, once it began.
        context_size: the last one heard of, 0 for unknown; may be set before the first event.
    """

    conversation_id: str
    context_size: int

    @property
    def animates(self) -> bool:
        """Whether `tick` should be called while nothing happens."""
        ...

    def show(self, event: Event) -> None:
        """Show one event."""
        ...

    def tick(self) -> None:
        """Say that time has passed and nothing came."""
        ...

    def pause(self) -> None:
        """Leave the terminal to somebody else, who asks a question."""
        ...

    def finish(self, text: str | None, finished: TurnFinished | None = None) -> None:
        """End the turn's lines; `text` is the whole answer, of which some may be shown already."""
        ...


def follow(
    stream: Stream[R],
    view: View,
    terminal: Terminal | None,
    presses: list[float] | None = None,
    *,
    heard: Hear | None = None,
) -> R:
    """Show a request's events, ask what has to be asked, and return its result.

    The first Ctrl-C cancels; another one gives up waiting and raises KeyboardInterrupt. The time
    of each is appended to `presses`. `heard` is told every event before it is shown.

    Raises:
        ClawError: the request failed; code `cancelled` when it was cancelled.
    """
    with _interrupts(stream, [] if presses is None else presses):
        while not stream.is_done:
            event = stream.wait(TICK_S if view.animates else None)
            if event is not None and heard is not None:
                heard(event)
            match event:
                case None:
                    view.tick()
                case ApprovalRequested():
                    view.show(event)
                    view.pause()
                    if terminal is None:
                        stream.answer(event.approval_id, "deny", event.digest)
                    else:
                        approve(terminal, event, stream)
                case QuestionAsked():
                    view.pause()
                    if terminal is None:
                        stream.answer(event.question_id, "")
                    else:
                        answer_question(terminal, event, stream)
                case _:
                    view.show(event)
    if stream.is_cancelled:
        raise ClawError("interrupted", code="cancelled")
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

    def hear(event: Event) -> None:
        if log is not None:
            log.write(msgspec.json.encode(event) + b"\n")
        if verbose and not isinstance(event, TextDelta | ReasoningDelta | PromptProgress):
            told = msgspec.to_builtins(event)
            fields = (f"{name}={value}" for name, value in told.items() if name != "type")
            print(visible_line(f"· {told['type']} {' '.join(fields)}", WIDEST), file=sys.stderr)

    with log or contextlib.nullcontext():
        yield hear


def _private(log_file: str) -> BinaryIO:
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "ab", buffering=0)


@contextlib.contextmanager
def _interrupts(stream: Stream[Any], presses: list[float]) -> Iterator[None]:
    # Whoever presses on while this unwinds must not break off what puts the handler back.
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
