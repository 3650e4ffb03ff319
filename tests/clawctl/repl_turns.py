"""What tests of the REPL's screen share: waiting for its prompt, and turns that stop somewhere."""

from clawd.wire.events import (
    PromptProgress,
    QuestionAsked,
    ToolRequested,
    ToolStarted,
)
from tests.support.fake_daemon import Call
from tests.support.screen import TerminalScreen
from tests.support.terminal import REQUEST, STARTED


def at_prompt(screen: TerminalScreen) -> bool:
    """Tell whether an empty prompt waits."""
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
