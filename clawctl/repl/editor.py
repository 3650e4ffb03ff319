"""The line editor of the REPL: keys, history, completion, folded pastes, the bar below."""

import contextlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, run_in_terminal
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, completion_is_selected, has_selection
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import create_output
from prompt_toolkit.styles import Style
from typing_extensions import override

from clawctl.repl.bar import BarState, fragments
from clawctl.repl.completing import LineCompleter, is_naming
from clawctl.repl.history import HistoryFile, is_kept
from clawctl.repl.lines import CONTINUATION, PROMPT
from clawctl.repl.offering import Known
from clawctl.repl.pastes import EditorInput, Pastes
from clawctl.repl.sending import MAX_TEXT_BYTES
from clawctl.screen import plain

if TYPE_CHECKING:
    from prompt_toolkit.key_binding.key_processor import KeyPress

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
        "prompt": "bold",
    }
)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the editor asks of the session.

    Attributes:
        state: what the bar shows.
        on_stop: the emergency stop was pressed.
        on_shown: the first prompt is on the screen.
    """

    history: Path
    known: Known
    state: Callable[[], BarState]
    on_stop: Callable[[], None]
    on_shown: Callable[[], None]


class EditedLines:
    """A line editor on a terminal that can move its cursor."""

    edits = True

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._pastes = Pastes()
        self._remark = ""
        self._input = EditorInput(sys.stdin, self._oversize)
        is_naming_now = Condition(lambda: is_naming(get_app().current_buffer.document))
        self._session: PromptSession[str] = PromptSession(
            history=_KeptHistory(HistoryFile(around.history)),
            completer=LineCompleter(around.known),
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

    def read(self, typed: str = "", text: str = "") -> str:
        """Return what was typed, pastes folded."""
        if typed:
            pressed: list[KeyPress] = []
            parser = Vt100Parser(pressed.append)
            parser.feed_and_flush(typed)
            store_typeahead(self._input, pressed)
        folded = self._pastes.fold(text) if text else ""
        return self._session.prompt(FormattedText([("class:prompt", PROMPT)]), default=folded)

    def whole(self, line: str) -> str:
        """Return a line with all that was folded in it."""
        return self._pastes.unfold(line)

    def typed(self, line: str) -> str:
        """Return what was typed of a line."""
        return self._pastes.typed(line)

    def written(self, text: str) -> str:
        """Return a text that the person wrote elsewhere, folded where it is long."""
        return self._pastes.fold(text, is_typed=True)

    def redraw(self) -> None:
        """Show the bar anew; from any thread."""
        loop = self._session.app.loop
        if loop is not None:
            # The prompt, and its loop with it, may end at any time.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._session.app.invalidate)

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
