"""`agent --resume` and `/resume`: the person chooses the conversation to go on with.

Those of the folder come first, the newest on top; what is typed leaves those that have every word
of it in title, folder or last words. A terminal that cannot move its cursor gets numbers.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from clawctl.client import Client
from clawctl.render import duration
from clawctl.repl.theme import Span, shortened_row
from clawctl.safe_stream import plain
from clawctl.settings import is_plain
from clawd.wire.conversations import ConversationLine, ListConversations
from clawd.wire.safe_text import shortened, visible_line

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

LISTED = 200
NUMBERED = 20
ROWS_SHOWN = 12
AGE_COLUMNS = 12
FOLDER_COLUMNS = 28
TITLE_COLUMNS = 44
HELP = "Enter goes on in it, words filter, Ctrl-C leaves"


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as it is offered, each part on one line and safe."""

    id: str
    title: str
    folder: str
    age: str
    last_words: str

    def has(self, words: str) -> bool:
        """Return whether each of the words stands somewhere in it."""
        text = f"{self.title}\n{self.folder}\n{self.last_words}\n{self.id}".casefold()
        return all(word in text for word in words.casefold().split())

    def spans(self, *, is_chosen: bool = False) -> list[Span]:
        """Return it as a row; `shortened_row` makes it fit."""
        folder = self.folder
        if len(folder) > FOLDER_COLUMNS:
            folder = f"…{folder[1 - FOLDER_COLUMNS :]}"
        return [
            Span("› " if is_chosen else "  ", "class:chosen" if is_chosen else ""),
            Span(self.age.ljust(AGE_COLUMNS), "class:dim"),
            Span(f"{folder.ljust(FOLDER_COLUMNS)}  "),
            Span(shortened(self.title, TITLE_COLUMNS), "class:chosen" if is_chosen else ""),
            Span(f"  {self.last_words}", "class:dim"),
        ]


def talks(client: Client, folder: str, now: datetime | None = None) -> list[Talk]:
    """Return the conversations that there is something in, those of the folder first."""
    asked = (
        ListConversations(workspace=folder, limit=LISTED, last_words=True),
        ListConversations(limit=LISTED, last_words=True),
    )
    lines = [line for request in asked for line in client.call(request).items if line.messages]
    known = {line.id: line for line in reversed(lines)}
    order = dict.fromkeys(line.id for line in lines)
    return [_talk(known[each], folder, now or datetime.now(UTC)) for each in order]


def _talk(line: ConversationLine, folder: str, now: datetime) -> Talk:
    place, home = Path(line.workspace), Path.home()
    shown = f"~/{place.relative_to(home)}" if place.is_relative_to(home) else line.workspace
    return Talk(
        id=line.id,
        title=visible_line(line.title or "no title yet"),
        folder="here" if line.workspace == folder else visible_line(shown.removesuffix("/.")),
        age=_age(line.updated_at, now),
        last_words=visible_line(line.last_words),
    )


def _age(at: str, now: datetime) -> str:
    try:
        seconds = (now - datetime.fromisoformat(at)).total_seconds()
    except (ValueError, TypeError):
        return ""
    return duration(max(seconds, 0.0))


def choose(offered: Sequence[Talk]) -> str:
    """Return the id of the conversation that the person chooses; "" for none."""
    return pick_by_number(offered) if is_plain() else pick(offered)


def pick_by_number(offered: Sequence[Talk]) -> str:
    """Return the id of the conversation whose number is typed; "" for none."""
    words = ""
    while True:
        found = [talk for talk in offered if talk.has(words)][:NUMBERED]
        if found:
            print("Conversations, those of this folder first:")
        else:
            print(f"None has {visible_line(words)}.")
        for number, talk in enumerate(found, 1):
            about = " · ".join(filter(None, (talk.age, talk.folder, talk.title, talk.last_words)))
            print(f"{number:>3}  {shortened(about, 200)}")
        try:
            typed = input(f"Number (Enter for 1), words to filter, Ctrl-D leaves [1-{len(found)}] ")
        except (EOFError, KeyboardInterrupt):
            print()
            return ""
        typed = typed.strip()
        if found and not typed:
            return found[0].id
        if typed.isascii() and typed.isdigit() and 0 < int(typed[:4]) <= len(found):
            return found[int(typed[:4]) - 1].id
        words = typed


def pick(offered: Sequence[Talk]) -> str:
    """Return the id of the conversation that is chosen with the keys; "" for none."""
    from prompt_toolkit.application import Application
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.layout import HSplit, Layout, Window
    from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
    from prompt_toolkit.layout.processors import BeforeInput
    from prompt_toolkit.output import create_output
    from prompt_toolkit.styles import Style

    chooser = _Chooser(offered)
    typed = Buffer(multiline=False, on_text_changed=lambda buffer: chooser.filter(buffer.text))
    keys = KeyBindings()
    for names, step in ((("up", "c-p"), -1), (("down", "c-n"), 1), (("pageup",), -ROWS_SHOWN)):
        for name in names:
            keys.add(name)(_moving(chooser, step))
    keys.add("pagedown")(_moving(chooser, ROWS_SHOWN))
    keys.add("enter")(lambda event: event.app.exit(result=chooser.chosen))
    for name in ("c-c", "c-d", "escape"):
        keys.add(name)(lambda event: event.app.exit(result=""))
    output = create_output(stdout=plain(sys.stdout))

    def rows() -> FormattedText:
        return FormattedText(chooser.rows(output.get_size().columns - 1))

    asking = BufferControl(typed, input_processors=[BeforeInput("Go on with: ", "class:bold")])
    list_ = FormattedTextControl(rows)
    app: Application[str] = Application(
        layout=Layout(HSplit([Window(asking, height=1), Window(list_, height=ROWS_SHOWN + 1)])),
        key_bindings=keys,
        output=output,
        style=Style.from_dict({"chosen": "bold fg:ansicyan", "dim": "fg:ansibrightblack"}),
        erase_when_done=True,
    )
    app.ttimeoutlen = 0.05  # Escape alone is a key here
    return app.run()


class _Chooser:
    """What is offered, how far it is filtered, and which of it is chosen."""

    def __init__(self, offered: Sequence[Talk]) -> None:
        self._offered = offered
        self._found = list(offered)
        self._at = 0

    @property
    def chosen(self) -> str:
        """The id of the one that is chosen, "" where none has the words."""
        return self._found[self._at].id if self._found else ""

    def filter(self, words: str) -> None:
        """Leave those that have the words."""
        self._found = [talk for talk in self._offered if talk.has(words)]
        self._at = 0

    def move(self, step: int) -> None:
        """Choose another one."""
        self._at = max(0, min(len(self._found) - 1, self._at + step))

    def rows(self, columns: int) -> list[tuple[str, str]]:
        """Return those around the chosen one, and a line of help."""
        first = max(0, min(self._at - ROWS_SHOWN // 2, len(self._found) - ROWS_SHOWN))
        shown: list[tuple[str, str]] = []
        for index, talk in enumerate(self._found[first : first + ROWS_SHOWN], first):
            row = shortened_row(talk.spans(is_chosen=index == self._at), columns, "…")
            shown += [*((span.sgr, span.text) for span in row), ("", "\n")]
        count = f"{len(self._found)} of {len(self._offered)}"
        shown.append(("class:dim", shortened(f"  {count} · {HELP}", columns)))
        return shown


def _moving(chooser: _Chooser, step: int) -> Callable[["KeyPressEvent"], None]:
    return lambda _event: chooser.move(step)
