"""A call outside a conversation: made, asked about, shown, and turned into an exit code."""

import sys
from typing import TypeVar

import msgspec

from clawctl.app import App, Exit
from clawctl.approve import Terminal
from clawctl.client import Client
from clawctl.render import Palette, emit, note, without_status
from clawctl.request_follower import follow
from clawctl.turn import TurnView, ViewOptions
from clawd.wire.conversations import ConversationLine
from clawd.wire.method import Method
from clawd.wire.safe_text import terminal_safe
from clawd.wire.tools import RunTool, ToolOutcome

R = TypeVar("R")


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
    if text:
        # What a tool gave is data; why it gave nothing is a remark.
        target = sys.stdout if has_acted else sys.stderr
        print(text, end="" if text.endswith("\n") else "\n", file=target)
    palette = Palette.of(sys.stderr)
    code = "" if outcome.exit_code is None else f", exit code {outcome.exit_code}"
    about = f"{outcome.status}, risk {outcome.risk}, {outcome.duration_ms} ms{code}"
    if not (is_quiet and has_acted):
        note(f"● {about}  {outcome.receipt_id}")
    if outcome.unanswered:
        print(palette.yellow("● nobody could be asked for an approval"), file=sys.stderr)


def exit_code(outcome: ToolOutcome) -> int:
    """Return the exit code of clawctl for what came of a call."""
    if outcome.kind == "stopped":
        return Exit.STOPPED
    if outcome.status == "denied":
        return Exit.DENIED
    return Exit.DONE if outcome.status == "allowed" else Exit.FAILED
