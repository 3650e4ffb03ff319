"""Puts the editor together with what it shows and offers. Importing it takes a moment."""

from collections.abc import Callable
from pathlib import Path

from clawctl.repl.editor import EditedLines, Surroundings
from clawctl.repl.host import Host
from clawctl.repl.opening import prepare_drawing
from clawctl.repl.pulse import Pulse
from clawctl.repl.standing import Standing
from clawctl.repl.values import known_to


def edited_lines(
    host: Host, standing: Standing, pulse: Pulse, history: Path, on_stop: Callable[[], None]
) -> EditedLines:
    """Return the editor of a session."""
    return EditedLines(
        Surroundings(
            history=history,
            known=known_to(host, standing, pulse),
            state=standing.state,
            on_stop=on_stop,
            on_shown=prepare_drawing,
        )
    )
