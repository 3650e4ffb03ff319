"""Waits for a request that may take long, and shows that it goes on."""

import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from clawctl.client import Stream
from clawctl.render import Palette, note
from clawctl.turn import CLEAR_LINE, FRAMES
from clawd.wire.events import ModelLoading
from clawd.wire.safe_text import visible_line

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
    told = visible_line(what, WHAT_LIMIT)
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
                drawn = palette.dim(f"{FRAMES[frame % len(FRAMES)]} {told}{share} {seconds:.0f} s")
                sys.stderr.write(f"{CLEAR_LINE}{drawn}")
                sys.stderr.flush()
            elif not is_drawn:
                note(f"{told} …")
            is_drawn = True
    finally:
        if is_drawn and moves:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
    return stream.result
