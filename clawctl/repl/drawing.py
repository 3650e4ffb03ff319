"""How the REPL and the shell draw a turn."""

from typing import TextIO

from clawctl.following import View
from clawctl.turn import TurnView, ViewOptions


def new_view(out: TextIO, err: TextIO, options: ViewOptions) -> View:
    """Return what draws one turn: the answer on `out`, everything about it on `err`."""
    return TurnView(out, err, options)
