"""What a turn shows where nothing can be drawn: in a pipe."""

import io
import time

from clawctl.turn import SILENCE_S, TurnView, ViewOptions, resolved_line
from clawd.wire.events import ApprovalResolved, TextDelta, TurnStarted

STARTED = TurnStarted(conversation_id="c", turn_id="t", provider="p", model="m", workspace="/w")


def view(**options: bool) -> tuple[TurnView, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    made = TurnView(out, err, ViewOptions(**options))
    made.show(STARTED)
    return made, out, err


def ticked(made: TurnView) -> None:
    """Tick as `follow` does, for longer than silence lasts."""
    deadline = time.monotonic() + 2 * SILENCE_S
    while made.animates and time.monotonic() < deadline:
        made.tick()
    made.tick()  # on a busy machine the first one may be later than that


def test_r4_a_pipe_is_told_once_and_soon_that_the_model_is_at_it() -> None:
    assert SILENCE_S < 0.3
    made, out, err = view()
    ticked(made)
    assert err.getvalue() == "● reading the prompt\n"
    assert not made.animates
    made.show(TextDelta(text="hi"))
    assert (out.getvalue(), err.getvalue()) == ("hi", "● reading the prompt\n")


def test_a_pipe_is_told_nothing_where_text_comes_at_once_or_progress_is_not_wanted() -> None:
    quick, _, err = view()
    quick.show(TextDelta(text="hi"))
    ticked(quick)
    assert err.getvalue() == ""
    quiet, _, silent = view(metrics=False)
    assert not quiet.animates
    ticked(quiet)
    assert silent.getvalue() == ""


def test_p12_a_no_is_told_once() -> None:
    said = {
        "denied by the user": "  denied by uid 1000",
        "nobody answered within 120 s": "  denied by uid 1000: nobody answered within 120 s",
        "": "  denied by uid 1000",
    }
    for reason, line in said.items():
        event = ApprovalResolved(approval_id="a", answer="deny", by="uid 1000", reason=reason)
        assert resolved_line(event) == line
