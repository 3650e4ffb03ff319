"""Pictures that go with a message, drawn by each way that a terminal may have, or not at all."""

import base64
import io
import re
import zlib
from pathlib import Path

import pytest
from PIL import Image

from clawctl.repl import pictures
from clawd.wire.pictures import PixelGrid
from clawd.wire.policy import PolicyExplanation
from clawd.wire.turns import PreviewPicture, SendMessage
from tests.clawctl.conftest import Look
from tests.clawctl.repl_turns import at_prompt
from tests.support.fake_daemon import FakeDaemon
from tests.support.pictures import png
from tests.support.rows import each_row
from tests.support.screen import TerminalScreen
from tests.support.terminal import echo

RED, BLUE = b"\xff\0\0", b"\0\0\xff"
GRID = PixelGrid(width=4, height=7, pixels=(RED * 3 + BLUE) * 7)
ALLOWED = PolicyExplanation(verdict="allow", risk="low", reason="reads", rule="")
DRAWINGS = (b"\x1b_G", b"\x1b]1337", b"\x1bP")


@pytest.fixture
def folder(daemon: FakeDaemon, tmp_path: Path) -> Path:
    """A folder with a picture in it, which is small enough to be drawn whole."""
    (tmp_path / "photo.png").write_bytes(png(4, 7))
    daemon.handlers["status"] = daemon.status(workspace=str(tmp_path))
    daemon.handlers["send_message"] = echo
    daemon.handlers["explain_policy"] = ALLOWED
    daemon.handlers["preview_picture"] = GRID
    return tmp_path


def send(screen: TerminalScreen) -> bytes:
    """Send a message with the picture; return what was written since, until its answer."""
    screen.wait_for(at_prompt)
    before = len(screen.raw)
    screen.type("look at @photo.png now\r")
    screen.wait_for(lambda shown: b"<look at @photo.png now>" in shown.raw[before:])
    return bytes(screen.raw[before:])


@each_row(
    "env",
    [
        {"TERM": "xterm-kitty"},
        {"TERM": "xterm-ghostty", "TERM_PROGRAM": "ghostty"},
        {"KITTY_WINDOW_ID": "3"},
        {"CLAWD_PICTURES": "kitty"},
    ],
    fresh=["daemon", "folder", "look"],
)
def test_kitty_gets_its_colours_and_answers_nothing(
    folder: Path, daemon: FakeDaemon, look: Look, env: dict[str, str]
) -> None:
    raw = send(look("agent", env=env))
    parts = re.findall(rb"\x1b_G([^;\x1b]*);([^\x1b]*)\x1b\\", raw)
    head = dict(each.split(b"=") for each in parts[0][0].split(b","))
    assert (head[b"f"], head[b"s"], head[b"v"], head[b"q"]) == (b"24", b"4", b"7", b"2")
    assert parts[-1][0].endswith(b"m=0")
    assert zlib.decompress(base64.b64decode(b"".join(data for _, data in parts))) == GRID.pixels
    assert b"\x1b[c" not in raw  # a terminal that is known is not asked
    (asked,) = daemon.calls_of(PreviewPicture)
    assert (asked.data, asked.longest) == (png(4, 7), 320)


@each_row(
    "env",
    [{"TERM_PROGRAM": "iTerm.app"}, {"TERM_PROGRAM": "WezTerm"}, {"LC_TERMINAL": "iTerm2"}],
    fresh=["daemon", "folder", "look"],
)
def test_iterm_gets_a_picture_of_its_own(
    folder: Path, daemon: FakeDaemon, look: Look, env: dict[str, str]
) -> None:
    raw = send(look("agent", env=env))
    found = re.search(rb"\x1b\]1337;File=inline=1;size=(\d+)[^:]*:([^\x07]*)\x07", raw)
    assert found is not None
    file = base64.b64decode(found[2])
    assert int(found[1]) == len(file)
    with Image.open(io.BytesIO(file)) as image:
        assert (image.format, image.size) == ("PNG", (4, 7))
        assert image.tobytes() == GRID.pixels


def sixels(raw: bytes) -> list[list[tuple[int, int, int]]]:
    """Return the rows of a sixel drawing, read as a terminal does."""
    found = re.search(rb'\x1bP0;1q"1;1;(\d+);(\d+)([^\x1b]*)\x1b\\', raw)
    assert found is not None, raw
    width, height = int(found[1]), int(found[2])
    rows = [[(0, 0, 0)] * width for _ in range(height)]
    colours: dict[int, tuple[int, int, int]] = {}
    colour = top = column = 0
    signs = re.findall(r"#(\d+)(?:;2;(\d+);(\d+);(\d+))?|!(\d+)([?-~])|([?-~])|([$-])",
                       found[3].decode())  # fmt: skip
    for number, red, green, blue, count, repeated, single, control in signs:
        if number:
            colour = int(number)
            if red:
                colours[colour] = (int(red), int(green), int(blue))
        elif control:
            column, top = 0, top + 6 * (control == "-")
        else:
            end, bits = column + int(count or 1), ord(repeated or single) - 63
            for bit in range(6):
                if bits >> bit & 1:
                    rows[top + bit][column:end] = [colours[colour]] * (end - column)
            column = end
    return rows


def test_a_terminal_that_says_it_has_sixel_gets_that(
    folder: Path, daemon: FakeDaemon, look: Look
) -> None:
    screen = look("agent", has_sixel=True)
    raw = send(screen)
    percent = [(100, 0, 0)] * 3 + [(0, 0, 100)]
    assert sixels(raw) == [percent] * 7
    assert raw.count(b"\x1b[c") == 1
    assert b"\x1b[c" not in send(screen)  # once it is known


@each_row(
    "env",
    [
        {},
        {"TERM": "linux"},
        {"TMUX": "/tmp/tmux", "TERM": "screen-256color", "KITTY_WINDOW_ID": "3"},
        {"TERM": "xterm-kitty", "CLAWD_PICTURES": "off"},
        {"TERM": "xterm-kitty", "CLAWD_PLAIN": "1"},
    ],
    fresh=["daemon", "folder", "look"],
)
def test_a_terminal_that_cannot_or_shall_not_gets_none(
    folder: Path, daemon: FakeDaemon, look: Look, env: dict[str, str]
) -> None:
    screen = look("agent", env=env)
    if "CLAWD_PLAIN" in env:
        screen.wait_for("> ")
        screen.type("look at @photo.png now\r")
        screen.wait_for("<look at @photo.png now>")
        raw = bytes(screen.raw)
    else:
        raw = send(screen)
    assert not [each for each in DRAWINGS if each in raw]
    assert not daemon.calls_of(PreviewPicture)
    assert daemon.calls_of(SendMessage)[0].pictures == (png(4, 7),)


def test_the_home_may_switch_it_off(folder: Path, daemon: FakeDaemon, look: Look) -> None:
    (daemon.home / "client.toml").write_text('pictures = "off"\n')
    raw = send(look("agent", env={"TERM": "xterm-kitty"}))
    assert not [each for each in DRAWINGS if each in raw]


def test_what_is_typed_while_the_terminal_answers_is_kept(
    folder: Path, daemon: FakeDaemon, look: Look
) -> None:
    screen = look("agent", has_sixel=True)
    screen.wait_for(at_prompt)
    screen.type("look at @photo.png now\rand then this")
    screen.wait_for("<look at @photo.png now>")
    screen.wait_for(lambda shown: shown.line == "> and then this")
    assert b"\x1bP" in screen.raw


@each_row(("width", "height"), [(320, 200), (1, 320), (7, 1)])
def test_any_picture_is_drawn_as_it_is_in_sixel(width: int, height: int) -> None:
    pixels = bytes((at * 51) % 256 // 51 * 51 for at in range(3 * width * height))
    grid = PixelGrid(width=width, height=height, pixels=pixels)
    shares = [round(each * 100 / 255) for each in pixels]
    rows = sixels(pictures.drawn(grid, "sixel").encode())
    flat = [share for row in rows for colour in row for share in colour]
    assert flat == shares
