"""Makes what README shows of a terminal, on the real clawctl and daemon: transcript and pictures.

    python -m tests.screenshots

The transcript is played by the packaged assistant (of its base that `make test` fetched), the
pictures have scripted replies. Each picture is an SVG of what pyte makes of the terminal's bytes;
text in it stays text. A test plays both again.
"""

import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any

import pexpect
import pyte
from typing_extensions import override

from clawd.engine.models import BASE_FILE
from tests.support.home import Home

ROOT = Path(__file__).parents[1]
BASE = ROOT / ".setup/models/SmolLM2-135M-Instruct.Q4_1.gguf"
README, IMAGES = ROOT / "README.md", ROOT / "docs" / "images"
BEGINS, ENDS = "```console\n$ make run\n", "```\n"
COLUMNS, LINES = 92, 34
LIMIT_S = 60
QUIET_S = 0.8
_DIM, _GREY = 2, 90
BLANK = "\u00a0"  # blanks of an SVG run together
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 14
BACKGROUND, FOREGROUND = "#16181d", "#d6d9de"
COLOURS = {
    "default": FOREGROUND,
    "black": "#3b4048",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#dcdfe4",
    "brightblack": "#7f848e",
    "brightred": "#ef7a85",
    "brightgreen": "#a9d68a",
    "brightbrown": "#f0cf8f",
    "brightyellow": "#f0cf8f",
    "brightblue": "#7cc0ff",
    "brightmagenta": "#d78dee",
    "brightcyan": "#6cd0dc",
    "brightwhite": "#ffffff",
}
ANSWER = """The project has **one module** and a test:

| file | what it holds |
|------|---------------|
| `adder.py` | the function `add` |
| `test_adder.py` | two checks |

```python
def add(left: int, right: int) -> int:
    return left - right  # this looks wrong
```

1. `add` subtracts.
2. The test says so: see the [report](https://example.org/report).
"""
MENDED = """`add` in `adder.py` **adds** now: it subtracted. The diff above is the whole
change; `/undo` takes it back.
"""
PLANNED = "Three steps. The module is read, and `add` is what I mend next.\n"
PLAN = {
    "action": "add",
    "items": [
        {"text": "read the module", "status": "done"},
        {"text": "mend add", "status": "in_progress"},
        {"text": "run the test"},
    ],
}
EDIT = {"path": "adder.py", "old_text": "left - right", "new_text": "left + right"}
ADDER = '"""Adds."""\n\n\ndef add(left: int, right: int) -> int:\n    return left - right\n'

# What each picture asks, the call that it makes, and the answer that fits it.
CONVERSATION: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("what is in this project?", "file_list", {"path": "."}, ANSWER),
    ("mend it", "file_edit", EDIT, MENDED),
    ("plan it", "plan", PLAN, PLANNED),
)
SCRIPT: list[dict[str, Any]] = [
    reply
    for question, tool, arguments, answer in CONVERSATION
    for reply in (
        {"when": question, "tool_calls": [{"name": tool, "arguments": arguments}]},
        {"when": question, "after": "tool", "text": answer},
    )
]


class Screen(pyte.Screen):
    """A screen that shows what is dim as grey: pyte knows no dim."""

    @override
    def select_graphic_rendition(self, *attributes: int, **options: Any) -> None:
        shown = (_GREY if attribute == _DIM else attribute for attribute in attributes)
        super().select_graphic_rendition(*shown, **options)


class Terminal:
    """clawctl on a terminal of its own, seen through pyte."""

    def __init__(self, home: Home, *arguments: str) -> None:
        self.screen = Screen(COLUMNS, LINES)
        # The editor shows its bar where the terminal tells the place of the cursor.
        self.screen.write_process_input = lambda data: self._child.send(data)  # type: ignore[method-assign]  # its way to be answered
        self._stream = pyte.ByteStream(self.screen)
        environ = {name: value for name, value in home.environ.items() if name != "NO_COLOR"}
        environ |= {"TERM": "xterm-256color"}
        self._child: Any = pexpect.spawn(
            sys.executable,
            ["-m", "clawctl", *arguments],
            env=environ,
            cwd=str(home.workspace),
            dimensions=(LINES, COLUMNS),
        )
        self._child.delaybeforesend = None

    def until(self, is_there: Callable[[str], bool]) -> "Terminal":
        """Read until the screen shows something, and then until nothing comes for a while."""
        deadline = time.monotonic() + LIMIT_S
        quiet_since = time.monotonic()
        while True:
            try:
                self._stream.feed(self._child.read_nonblocking(65_536, timeout=0.1))
                quiet_since = time.monotonic()
            except pexpect.TIMEOUT:
                pass
            except pexpect.EOF:
                return self
            shown = "\n".join(self.screen.display)
            if is_there(shown) and time.monotonic() - quiet_since > QUIET_S:
                return self
            if time.monotonic() > deadline:
                raise TimeoutError(shown)

    def type(self, text: str) -> "Terminal":
        """Type a line."""
        self._child.send(f"{text}\r")
        return self

    def close(self) -> None:
        """End clawctl."""
        self._child.close(force=True)


def answered(asked: str) -> Callable[[str], bool]:
    """Return what tells that a screen has the end of a turn, and the line below the next prompt."""

    def is_there(shown: str) -> bool:
        _, footer, below = shown.rpartition(asked)[2].partition(" tok")
        return bool(footer) and "supervised ·" in below

    return is_there


def svg(screen: pyte.Screen, title: str, place: str) -> str:
    """Return the screen as a picture: rows of text in runs of one style; `place` is not told."""
    rows = [screen.buffer[number] for number in range(screen.lines)]
    last = max((n for n, row in enumerate(rows) if _text(row).strip()), default=0)
    width, height = COLUMNS * CELL_WIDTH + 2 * MARGIN, (last + 1) * CELL_HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" '
        'style="white-space:pre">',
    ]
    for number, row in enumerate(rows[: last + 1]):
        baseline = MARGIN + number * CELL_HEIGHT + 13
        for start, text, style in _runs(row):
            length = len(text) * CELL_WIDTH
            left = MARGIN + start * CELL_WIDTH
            if "background" in style:
                parts.append(
                    f'<rect x="{left:g}" y="{baseline - 13:g}" width="{length:g}" '
                    f'height="{CELL_HEIGHT}" fill="{style["background"]}"/>'
                )
            shown = text.strip().replace(place, "~/project")
            if shown:
                left += (len(text) - len(text.lstrip())) * CELL_WIDTH
                length = len(shown) * CELL_WIDTH
                weight = ' font-weight="bold"' if "bold" in style else ""
                parts.append(
                    f'<text x="{left:g}" y="{baseline:g}" textLength="{length:g}" '
                    f'fill="{style["fill"]}"{weight}>{escape(shown).replace(" ", BLANK)}</text>'
                )
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _text(row: Any) -> str:
    return "".join(row[column].data for column in range(COLUMNS))


def _runs(row: Any) -> list[tuple[int, str, dict[str, str]]]:
    runs: list[tuple[int, str, dict[str, str]]] = []
    for column in range(COLUMNS):
        cell = row[column]
        style = {"fill": COLOURS.get(cell.fg, f"#{cell.fg}")}
        if cell.bold:
            style["bold"] = "1"
        if cell.reverse or cell.bg != "default":
            front, back = style["fill"], COLOURS.get(cell.bg, f"#{cell.bg}")
            style["background"] = front if cell.reverse else back
            style["fill"] = BACKGROUND if cell.reverse else front
        if runs and runs[-1][2] == style:
            runs[-1] = (runs[-1][0], runs[-1][1] + (cell.data or ""), style)
        else:
            runs.append((column, cell.data, style))
    return runs


def made(home: Home) -> dict[str, str]:
    """Return every picture by its name."""
    pictures = {}

    def keep(terminal: Terminal, name: str, title: str) -> None:
        pictures[name] = svg(terminal.screen, title, str(home.workspace))

    def begun(question: str) -> Terminal:
        terminal = Terminal(home, "agent").until(lambda shown: "supervised ·" in shown)
        return terminal.type(question)

    for name, number, title in (("conversation", 0, "a first conversation"), ("plan", 2, "a plan")):
        question = CONVERSATION[number][0]
        terminal = begun(question).until(answered(question))
        keep(terminal, name, title)
        terminal.close()
    terminal = begun(CONVERSATION[1][0]).until(lambda shown: "d details" in shown)
    keep(terminal, "approval", "an approval that shows what the file becomes")
    terminal.type("y").until(answered("d details"))
    keep(terminal, "diff", "an edit that was approved")
    terminal.close()
    terminal = Terminal(home, "status").until(lambda shown: "receipts" in shown)
    keep(terminal, "status", "clawctl status")
    terminal.close()
    return pictures


def text_of(picture: str) -> str:
    """Return the text of a picture, a run of one style a line."""
    return unescape("\n".join(re.findall(r">([^<]+)</text>", picture))).replace(BLANK, " ")


def played(home: Home) -> str:
    """Return what a first conversation with the packaged assistant shows."""
    terminal = Terminal(home, "agent").until(lambda shown: "supervised ·" in shown)
    terminal.type('write "hello world" to hello.txt').until(lambda shown: "d details" in shown)
    terminal.type("y").until(answered("d details"))
    terminal.type("what files are in this project?").until(answered("what files"))
    terminal.type("/exit").until(lambda _shown: False)
    shown = "\n".join(row.rstrip() for row in terminal.screen.display).strip("\n")
    terminal.close()
    return f"{shown.replace(str(home.workspace), '~/clawd-workspace')}\n"


def shown_in(readme: str) -> str:
    """Return the transcript that README has."""
    return readme.split(BEGINS, 1)[1].split(ENDS, 1)[0]


@contextlib.contextmanager
def at_home(*script: dict[str, Any]) -> Iterator[Home]:
    """Lend a daemon with replies to a script, or with the model that answers after `make run`."""
    with tempfile.TemporaryDirectory(prefix="clawd-pictures-") as place:
        home = Home(Path(place))
        home.configure(*script, provider="mock" if script else "local")
        if not script:  # what a first config says
            text = home.config.read_text(encoding="utf-8")
            home.config.write_text(text.replace('"embedded"', '"auto"'), encoding="utf-8")
            models = home.config.parent / "models"
            models.mkdir(exist_ok=True)
            (models / BASE_FILE).symlink_to(BASE)
        if script:
            (home.workspace / "adder.py").write_text(ADDER)
            (home.workspace / "test_adder.py").write_text("from adder import add\n")
        home.start()
        try:
            yield home
        finally:
            home.close()


def main() -> None:
    """Write the transcript into README, and the pictures."""
    with at_home() as home:
        readme = README.read_text(encoding="utf-8")
        README.write_text(readme.replace(shown_in(readme), played(home)), encoding="utf-8")
        print(README)
    with at_home(*SCRIPT) as home:
        for name, picture in made(home).items():
            (IMAGES / f"{name}.svg").write_text(picture, encoding="utf-8")
            print(IMAGES / f"{name}.svg")


if __name__ == "__main__":
    main()
