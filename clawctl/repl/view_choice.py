"""How the REPL and the shell draw a turn."""

import os
from typing import TextIO

from clawctl.repl.canvas import Canvas, reflows, syncs
from clawctl.repl.drawn_view import DrawnView
from clawctl.repl.markdown import preload
from clawctl.repl.plain_view import PlainView
from clawctl.repl.theme import chosen_look
from clawctl.request_follower import View
from clawctl.turn import TurnView, ViewOptions

_UNKNOWN_SIZE = (80, 24)


def new_view(out: TextIO, err: TextIO, options: ViewOptions) -> View:
    """Return what draws one turn: the answer on `out`, everything about it on `err`.

    On a terminal both are one drawing; words line by line where that is asked for (`CLAWD_PLAIN`)
    or the terminal cannot be redrawn.
    """
    if not (out.isatty() and err.isatty()):
        return TurnView(out, err, options)
    look = chosen_look(out)
    if look.plain:
        return PlainView(out, options)
    if os.environ.get("TERM", "") in {"", "dumb"}:
        return TurnView(out, err, options)
    canvas = Canvas(out, lambda: _size(out), sync=syncs(os.environ), reflows=reflows(os.environ))
    return DrawnView(out, options, look, canvas)


def prepare() -> None:
    """Import what the first block will need; it takes a moment, so call it in the background."""
    preload()


def _size(out: TextIO) -> tuple[int, int]:
    try:
        size = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        return _UNKNOWN_SIZE
    return size.columns or _UNKNOWN_SIZE[0], size.lines or _UNKNOWN_SIZE[1]
