"""The line editor of the REPL: keys, history, completion, folded pastes, the bar below."""

import contextlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

import msgspec
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, completion_is_selected, has_selection
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import create_output
from prompt_toolkit.styles import Style
from typing_extensions import override

from clawctl.agent_options import Mode
from clawctl.repl.bar_state import BarState, Pulse, SessionStanding, fragments
from clawctl.repl.host import Host, prepare_drawing
from clawctl.repl.lines import CONTINUATION, PROMPT, HistoryFile, Lines, is_kept
from clawctl.repl.message_text import MAX_TEXT_BYTES
from clawctl.repl.suggestions import MENTION, Known, known_to, offers
from clawctl.safe_stream import plain
from clawd.errors import ClawError
from clawd.wire.safe_text import visible_line

_FOLDED_LINES = 8
_FOLDED_CHARACTERS = 2_000
_PASTES_KEPT = 50
_READ_BYTES = 65_536
_END = "\x1b[201~"

_ABOUT_COLUMNS = 60

MENU_LINES = 8
_AFTER_MENTION = re.compile(r"(?<![\w@/.])@[^\s\"]+$")
TOO_LONG = (
    f"the paste is over {MAX_TEXT_BYTES // 1024**2} MiB and was left out: "
    "save it to a file of the workspace and name it with @file"
)
STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "bar": "fg:ansibrightblack",
        "bar.alert": "fg:ansired bold",
        "bar.weak": "fg:ansiyellow",
        "prompt": "bold ansicyan",
    }
)


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
        if lines <= _FOLDED_LINES and len(text) <= _FOLDED_CHARACTERS:
            return text
        about = f"{lines:,} lines" if lines > _FOLDED_LINES else f"{len(text):,} characters"
        name, number = f"[pasted {about}]", 1
        while self._texts.get(name, text) != text:
            number += 1
            name = f"[pasted {about}, no. {number}]"
        while len(self._texts) >= _PASTES_KEPT:
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


class _EditorInput(Vt100Input):
    """The keys of a terminal, read in big pieces."""

    def __init__(self, stdin: TextIO, on_oversize: Callable[[], None]) -> None:
        super().__init__(stdin)
        self.stdin_reader = _Reader(self._fileno, encoding=stdin.encoding)
        # The buffer is another list after every reading of it.
        self.vt100_parser = PasteParser(lambda key: self._buffer.append(key), on_oversize)


class _Reader(PosixStdinReader):
    @override
    def read(self, count: int = _READ_BYTES) -> str:
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


class _LineCompleter(Completer):
    """Completes a message; it may ask the daemon, so it runs beside the editor."""

    def __init__(self, known: Known) -> None:
        self._known = known

    @override
    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        for offer in offers(document.text_before_cursor, self._known):
            yield Completion(
                offer.text,
                start_position=-offer.typed,
                display=offer.shown or None,
                display_meta=visible_line(offer.about, _ABOUT_COLUMNS),
            )


class EditorQueries(msgspec.Struct, frozen=True, kw_only=True):
    """What the editor asks of the session.

    Attributes:
        state: what the bar shows.
        on_stop: the emergency stop was pressed.
        on_shown: the first prompt is on the screen.
        on_mode: the next mode is wanted; returns why that is not to be had, "" when it is.
    """

    history: Path
    known: Known
    state: Callable[[], BarState]
    on_stop: Callable[[], None]
    on_shown: Callable[[], None]
    on_mode: Callable[[], str]


class EditedLines(Lines):
    """A line editor on a terminal that can move its cursor."""

    edits = True

    def __init__(self, around: EditorQueries) -> None:
        self._around = around
        self._pastes = Pastes()
        self._remark = ""
        self._input = _EditorInput(sys.stdin, self._oversize)
        is_naming_now = Condition(lambda: _is_naming(get_app().current_buffer.document))
        self._session: PromptSession[str] = PromptSession(
            history=_KeptHistory(HistoryFile(around.history)),
            completer=_LineCompleter(around.known),
            complete_in_thread=True,
            complete_while_typing=is_naming_now,
            enable_history_search=~is_naming_now,
            enable_open_in_editor=False,
            enable_suspend=True,
            tempfile_suffix=".md",
            editing_mode=_editing_mode(),
            key_bindings=self._keys(),
            prompt_continuation=CONTINUATION,
            input=self._input,
            output=create_output(stdout=plain(sys.stdout)),
            bottom_toolbar=self._bar,
            style=STYLE,
            reserve_space_for_menu=MENU_LINES,
        )

        self._session.app.after_render += self._shown

    @override
    def read(self, typed: str = "", text: str = "") -> str:
        """Return what was typed, pastes folded."""
        if typed:
            pressed: list[KeyPress] = []
            parser = Vt100Parser(pressed.append)
            parser.feed_and_flush(typed)
            store_typeahead(self._input, pressed)
        folded = self._pastes.fold(text) if text else ""
        return self._session.prompt(FormattedText([("class:prompt", PROMPT)]), default=folded)

    @override
    def whole(self, line: str) -> str:
        """Return a line with all that was folded in it."""
        return self._pastes.unfold(line)

    @override
    def typed(self, line: str) -> str:
        """Return what was typed of a line."""
        return self._pastes.typed(line)

    @override
    def written(self, text: str) -> str:
        """Return a text that the person wrote elsewhere, folded where it is long."""
        return self._pastes.fold(text, is_typed=True)

    @override
    def redraw(self) -> None:
        """Show the bar anew; from any thread."""
        loop = self._session.app.loop
        if loop is not None:
            # The prompt, and its loop with it, may end at any time.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._session.app.invalidate)

    @override
    def presses(self) -> int:
        """Return how often Ctrl-C was pressed after the one that ended `read`, and forget these."""
        waiting = get_typeahead(self._input)
        others = list(itertools.dropwhile(lambda press: press.key == Keys.ControlC, waiting))
        store_typeahead(self._input, others)
        return len(waiting) - len(others)

    def _shown(self, _app: object) -> None:
        self._session.app.after_render -= self._shown
        self._around.on_shown()

    def _bar(self) -> FormattedText:
        columns = self._session.app.output.get_size().columns
        return FormattedText(fragments(self._around.state(), columns - 1, self._remark))

    def _oversize(self) -> None:
        self._remark = TOO_LONG
        self.redraw()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("escape", "enter")(_new_line)
        keys.add("c-j")(_new_line)
        keys.add("enter", filter=completion_is_selected)(_take_completion)
        keys.add("enter", filter=Condition(_ends_with_backslash))(_go_on_below)
        keys.add("c-x", "c-e")(self._edit)
        keys.add("c-g", filter=~has_selection)(self._edit)
        keys.add(Keys.BracketedPaste)(self._paste)

        @keys.add("s-tab", filter=~completion_is_selected)
        def _mode(_event: KeyPressEvent) -> None:
            self._remark = self._around.on_mode()

        @keys.add("c-\\")
        async def _stop(_event: KeyPressEvent) -> None:
            await run_in_terminal(self._around.on_stop)

        return keys

    def _paste(self, event: KeyPressEvent) -> None:
        self._remark = ""
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        buffer = event.current_buffer
        if _AFTER_MENTION.search(buffer.document.text_before_cursor) and not text[:1].isspace():
            # Else the name of the file would go on with what is pasted.
            buffer.insert_text(" ")
        buffer.insert_text(self._pastes.fold(text))

    async def _edit(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        buffer.text = self._pastes.unfold(buffer.text)
        await buffer.open_in_editor()
        buffer.text = self._pastes.fold(buffer.text, is_typed=True)
        buffer.cursor_position = len(buffer.text)


class _KeptHistory(History):
    """What the keys find: the file's entries and this session's, without those not to be kept."""

    def __init__(self, file: HistoryFile) -> None:
        super().__init__()
        self._file = file

    @override
    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._file.load())

    @override
    def append_string(self, string: str) -> None:
        # One that shows a secret is at hand as long as we run; one after a blank is not.
        if string.strip() and not string[0].isspace():
            super().append_string(string)

    @override
    def store_string(self, string: str) -> None:
        # What stands for a paste means nothing to the next session.
        if is_kept(string) and "[pasted " not in string:
            self._file.add(string)


def _new_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


def _take_completion(event: KeyPressEvent) -> None:
    event.current_buffer.complete_state = None


def _ends_with_backslash() -> bool:
    document = get_app().current_buffer.document
    return document.is_cursor_at_the_end and document.text.endswith("\\")


def _go_on_below(event: KeyPressEvent) -> None:
    event.current_buffer.delete_before_cursor()
    event.current_buffer.insert_text("\n")


def _editing_mode() -> EditingMode:
    """Return the mode that the person set for readline."""
    path = Path(os.environ.get("INPUTRC") or "~/.inputrc")
    try:
        text = path.expanduser().read_text(encoding="utf-8", errors="replace")
    except (OSError, RuntimeError):
        return EditingMode.EMACS
    found = re.findall(r"(?m)^\s*set\s+editing-mode\s+(vi|emacs)\b", text)
    return EditingMode.VI if found and found[-1] == "vi" else EditingMode.EMACS


def _is_naming(document: Document) -> bool:
    """Return whether a command or a file is being named: then the menu opens by itself."""
    before = document.text_before_cursor
    return bool(re.match(r"/[a-z]*$", before)) or MENTION.search(before) is not None


def edited_lines(
    host: Host, standing: SessionStanding, pulse: Pulse, history: Path, on_stop: Callable[[], None]
) -> EditedLines:
    """Return the editor of a session."""
    return EditedLines(
        EditorQueries(
            history=history,
            known=known_to(host, standing, pulse),
            state=standing.state,
            on_stop=on_stop,
            on_shown=prepare_drawing,
            on_mode=lambda: _next_mode(host, standing),
        )
    )


_CYCLE: tuple[Mode, ...] = ("supervised", "edits", "readonly")


def _next_mode(host: Host, standing: SessionStanding) -> str:
    """Set the mode behind the one in force; `full` takes a word, not a key."""
    now = standing.mode()
    after = _CYCLE.index(now) + 1 if now in _CYCLE else 0
    try:
        host.set_mode(_CYCLE[after % len(_CYCLE)])
    except ClawError as error:
        return error.message
    return ""
