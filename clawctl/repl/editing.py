"""Puts the editor together with what it shows and offers. Importing it takes a moment."""

from collections.abc import Callable
from pathlib import Path

from clawctl.repl.completing import Known, Value
from clawctl.repl.editor import EditedLines, Surroundings
from clawctl.repl.files import FileIndex
from clawctl.repl.host import Host
from clawctl.repl.opening import prepare_drawing
from clawctl.repl.pulse import Pulse
from clawctl.repl.slash import COMMANDS
from clawctl.repl.standing import Standing
from clawctl.repl.values import Values


def edited_lines(
    host: Host, standing: Standing, pulse: Pulse, history: Path, on_stop: Callable[[], None]
) -> EditedLines:
    """Return the editor of a session."""
    indexes: dict[Path, FileIndex] = {}

    def files() -> FileIndex:
        folder = standing.folder()
        if folder not in indexes:
            indexes.clear()
            indexes[folder] = FileIndex(folder)
        return indexes[folder]

    commands = [Value(text=name, about=slash.help) for name, slash in COMMANDS.items()]
    values = Values(pulse, lambda: host.conversation_id)
    return EditedLines(
        Surroundings(
            history=history,
            known=Known(commands=commands, values=values.after, files=files),
            state=standing.state,
            on_stop=on_stop,
            on_shown=prepare_drawing,
        )
    )
