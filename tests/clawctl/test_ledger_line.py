"""The line that tells what fills the context."""

from clawctl.turn import ledger_line
from clawd.wire.events import TokenLedger, TokenPart

PARTS = (TokenPart(name="system", tokens=400), TokenPart(name="history", tokens=100))


def test_parts_and_what_is_free() -> None:
    ledger = TokenLedger(parts=PARTS, free=500, context_size=1000)
    assert ledger_line(ledger) == "● context: system 400 · history 100 · free 500"


def test_what_a_chat_template_leaves_out_is_said() -> None:
    ledger = TokenLedger(parts=PARTS, free=900, context_size=1000)
    line = ledger_line(ledger)
    assert line.endswith("history 100 · free 900 · 400 of these left out by the chat template")


def test_an_estimate_of_an_unknown_context() -> None:
    ledger = TokenLedger(parts=PARTS, is_estimate=True)
    assert ledger_line(ledger) == "● context: about system 400 · history 100"
