"""Lets a person edit the arguments of a call in their own editor, in a private file."""

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from clawd.wire.safe_text import ascii_json

EDITORS = ("editor", "nano", "vi")
MAX_EDITED_BYTES = 4 << 20


class EditedArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: new arguments, or why there are none."""

    arguments: str = ""
    problem: str = ""


def edited_arguments(arguments: str, terminal: int) -> EditedArguments:
    """Open the arguments in an editor on the terminal, and return what they are then.

    The text is JSON, laid out for reading; what cannot be seen is written as an escape.
    """
    before = _laid_out(arguments)
    if before is None:
        return EditedArguments(problem="the arguments are no JSON object")
    with tempfile.TemporaryDirectory(prefix="clawctl-") as folder:
        path = Path(folder) / "arguments.json"
        with _private(path) as file:
            os.write(file, before.encode())
        problem = _run_editor(path, terminal)
        return EditedArguments(problem=problem) if problem else _read(path, before)


def _read(path: Path, before: str) -> EditedArguments:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_EDITED_BYTES + 1)
    except OSError as error:
        return EditedArguments(problem=f"the file cannot be read: {error.strerror}")
    if len(data) > MAX_EDITED_BYTES:
        return EditedArguments(problem=f"the text has over {MAX_EDITED_BYTES} bytes")
    after = _laid_out(data.decode(errors="replace"))
    if after is None:
        return EditedArguments(problem="what was written is no JSON object")
    if after == before:
        return EditedArguments(problem="nothing was changed")
    return EditedArguments(arguments=data.decode(errors="replace"))


def _laid_out(text: str) -> str | None:
    """Return a JSON object for a person to read; None when it is none."""
    try:
        values = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        shown = msgspec.json.format(msgspec.json.encode(values), indent=2)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return ascii_json(shown.decode(errors="replace")) + "\n"


@contextlib.contextmanager
def _private(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _run_editor(path: Path, terminal: int) -> str:
    """Run the editor; return why it came to nothing, "" when it did not."""
    wanted = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        commands = [shlex.split(wanted)] if wanted.strip() else [[name] for name in EDITORS]
    except ValueError:
        return f"VISUAL or EDITOR cannot be understood: {wanted}"
    # Ctrl-C is the editor's now. A handler is reset in the child, an ignored signal would not be.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        for command in commands:
            with contextlib.suppress(FileNotFoundError):
                done = subprocess.run(  # noqa: S603 - the person's own editor
                    [*command, str(path)],
                    stdin=terminal,
                    stdout=terminal,
                    stderr=terminal,
                    check=False,
                )
                return f"the editor ended with {done.returncode}" if done.returncode else ""
    except OSError as error:
        return f"the editor cannot be started: {error.strerror}"
    finally:
        signal.signal(signal.SIGINT, before)
    return f"there is no editor: {', '.join(command[0] for command in commands)}; set EDITOR"
