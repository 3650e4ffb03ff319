"""What is pasted: taken in at once however long it is, folded in the editor, sent whole."""

import re
from collections.abc import Callable
from typing import TextIO

from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from typing_extensions import override

from clawctl.repl.sending import MAX_TEXT_BYTES

FOLDED_LINES = 8
FOLDED_CHARACTERS = 2_000
PASTES_KEPT = 50
READ_BYTES = 65_536

_END = "\x1b[201~"


class Pastes:
    """The long pastes of a session, and the short names that stand for them in the editor."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._typed: set[str] = set()

    def fold(self, text: str, *, is_typed: bool = False) -> str:
        """Return the text, or a name for it when it is too long to look at.

        What was typed, as in an editor, may be too long as well; it stays what the person wrote.
        """
        lines = text.removesuffix("\n").count("\n") + 1
        if lines <= FOLDED_LINES and len(text) <= FOLDED_CHARACTERS:
            return text
        about = f"{lines:,} lines" if lines > FOLDED_LINES else f"{len(text):,} characters"
        name, number = f"[pasted {about}]", 1
        while self._texts.get(name, text) != text:
            number += 1
            name = f"[pasted {about}, no. {number}]"
        while len(self._texts) >= PASTES_KEPT:
            self._typed.discard(oldest := next(iter(self._texts)))
            self._texts.pop(oldest)
        self._texts[name] = text
        if is_typed:
            self._typed.add(name)
        return name

    def typed(self, line: str) -> str:
        """Return what was typed of a line: a blank stands for every paste that is folded in it."""

        def by(found: "re.Match[str]") -> str:
            name = found.group()
            return self._texts[name] if name in self._typed else " "

        return self._replaced(line, by)

    def unfold(self, line: str) -> str:
        """Return a line with every paste that was folded in it."""
        return self._replaced(line, lambda found: self._texts[found.group()])

    def _replaced(self, line: str, by: Callable[["re.Match[str]"], str]) -> str:
        if not self._texts or "[pasted " not in line:
            return line
        # In one go: a paste may hold the name of another one.
        return re.sub("|".join(map(re.escape, self._texts)), by, line)


class EditorInput(Vt100Input):
    """The keys of a terminal, read in big pieces."""

    def __init__(self, stdin: TextIO, on_oversize: Callable[[], None]) -> None:
        super().__init__(stdin)
        self.stdin_reader = _Reader(self._fileno, encoding=stdin.encoding)
        # The buffer is another list after every reading of it.
        self.vt100_parser = PasteParser(lambda key: self._buffer.append(key), on_oversize)


class _Reader(PosixStdinReader):
    @override
    def read(self, count: int = READ_BYTES) -> str:
        return super().read(count)


class PasteParser(Vt100Parser):
    """Takes a paste of any length in linear time, and no more of it than a message may hold."""

    def __init__(
        self, feed_key_callback: Callable[[KeyPress], None], on_oversize: Callable[[], None]
    ) -> None:
        super().__init__(feed_key_callback)
        self._on_oversize = on_oversize
        self._pieces: list[str] = []
        self._size = 0
        self._end_of_last = ""

    @override
    def feed(self, data: str) -> None:
        if not self._in_bracketed_paste:
            super().feed(data)
            return
        seen = self._end_of_last + data
        at = seen.find(_END)
        self._size += len(data)
        if self._size <= MAX_TEXT_BYTES:
            self._pieces.append(data)
        else:
            self._pieces.clear()
        if at < 0:
            self._end_of_last = seen[1 - len(_END) :]
            return
        self._in_bracketed_paste = False
        is_whole = self._size <= MAX_TEXT_BYTES
        text = "".join(self._pieces)
        text = text[: len(text) - (len(seen) - at)]
        self._pieces, self._size, self._end_of_last = [], 0, ""
        if is_whole:
            self.feed_key_callback(KeyPress(Keys.BracketedPaste, text))
        else:
            self._on_oversize()
        self.feed(seen[at + len(_END) :])
