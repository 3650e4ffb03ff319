"""Where the REPL's lines come from: an editor on a terminal, plain lines from anything else."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from typing_extensions import override

from clawctl.screen import plain


class Lines(Protocol):
    """Gives one message after the other."""

    def read(self) -> str:
        """Return the next message.

        Raises:
            EOFError: there is no more.
            KeyboardInterrupt: Ctrl-C at the prompt.
        """
        ...


class PlainLines:
    """Lines of standard input, one message each, without any prompt."""

    def read(self) -> str:
        """Return the next line."""
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")


class EditedLines:
    """A line editor with history and completion; Alt-Enter begins a new line."""

    def __init__(
        self,
        history: Path,
        commands: Iterable[str],
        *,
        status: Callable[[], str],
        on_stop: Callable[[], None],
    ) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_private_history(history),
            completer=_Commands(tuple(commands)),
            complete_while_typing=False,
            key_bindings=_keys(on_stop),
            prompt_continuation="… ",
            output=create_output(stdout=plain(sys.stdout)),
            bottom_toolbar=lambda: FormattedText([("", f" {status()}")]),
        )

    def read(self) -> str:
        """Return what was typed."""
        return self._session.prompt("> ")


class _Commands(Completer):
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    @override
    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if typed.startswith("/") and " " not in typed:
            for name in self._names:
                if name.startswith(typed):
                    yield Completion(name, start_position=-len(typed))


def _keys(on_stop: Callable[[], None]) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-\\")
    async def _stop(_event: KeyPressEvent) -> None:
        await run_in_terminal(on_stop)

    return keys


def _private_history(path: Path) -> History:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError:
        # A home that cannot be written is told by whatever needs it; a prompt does not.
        return InMemoryHistory()
    return FileHistory(str(path))
