"""What tests of the REPL's screen share: waiting for its prompt, and turns that stop somewhere."""

import threading
from collections.abc import Callable

from clawd.wire.events import (
    PromptProgress,
    QuestionAsked,
    TextDelta,
    ToolRequested,
    ToolStarted,
    TurnFinished,
)
from tests.support.fake_daemon import Call
from tests.support.screen import TerminalScreen
from tests.support.terminal import REQUEST, STARTED, finished


def at_prompt(screen: TerminalScreen) -> bool:
    """Return whether an empty prompt waits."""
    return screen.line == ">"


def evaluating(call: Call) -> None:
    call.emit(STARTED, PromptProgress(processed=10, cached=0, total=1_000))
    call.until_cancelled()


def running_a_tool(call: Call) -> None:
    call.emit(
        STARTED,
        ToolRequested(call_id="1", tool="shell", arguments='{"command":"sleep 9"}'),
        ToolStarted(call_id="1", tool="shell"),
    )
    call.until_cancelled()


def waiting_for_approval(call: Call) -> None:
    call.emit(STARTED, REQUEST)
    call.until_cancelled()


def waiting_for_answer(call: Call) -> None:
    call.emit(STARTED, QuestionAsked(question_id="q1", text="Which one?", options=("a", "b")))
    call.until_cancelled()


def in_two_parts(go_on: threading.Event) -> Callable[[Call], TurnFinished]:
    """Return a turn that says its last words when it may go on."""

    def turn(call: Call) -> TurnFinished:
        call.emit(STARTED, TextDelta(text="first words "))
        assert go_on.wait(60)
        call.emit(TextDelta(text="and last words"))
        return finished("first words and last words")

    return turn
