"""Pictures drawn in the terminal, by the way that it is known to have.

What it says of itself in the environment goes first; whether it has sixel it is asked, as terminals
answer what they can (DA1). A terminal that does neither gets nothing. What is drawn are plain
colours, which the daemon took out of the picture in the sandbox.
"""

import base64
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TextIO

from clawctl.repl.lines import TypeAhead
from clawd.wire.pictures import PixelGrid

LONGEST_SIDE = 320
ANSWER_LIMIT_S = 3.0

_KITTY_TERMS = ("xterm-kitty", "xterm-ghostty")
_ITERM_PROGRAMS = frozenset({"iTerm.app", "WezTerm", "mintty"})
_NEVER = ("", "dumb", "linux")
_CHUNK = 4_096
_QUESTION, _ATTRIBUTES = "\x1b[c", re.compile(rb"\x1b\[\?([0-9;]*)c")
_LEVELS = 6  # of each colour in sixel


def way_of(environ: Mapping[str, str], wanted: object, typed: TypeAhead, out: TextIO) -> str:
    """Return how this terminal draws pictures, "" for not at all.

    Args:
        environ: of this process.
        wanted: what the person set: kitty, iterm, sixel or off; anything else finds out.
        typed: takes in what the terminal answers.
        out: where the terminal is asked.
    """
    for way in ("kitty", "iterm", "sixel"):
        if wanted == way:
            return way
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "")
    if wanted == "off" or term in _NEVER:
        return ""
    # What the terminal around them says of itself does not hold for tmux and screen.
    if not ("TMUX" in environ or "STY" in environ or term.startswith(("tmux", "screen"))):
        if term.startswith(_KITTY_TERMS) or "KITTY_WINDOW_ID" in environ or program == "ghostty":
            return "kitty"
        if program in _ITERM_PROGRAMS or environ.get("LC_TERMINAL") == "iTerm2":
            return "iterm"
    out.write(_QUESTION)
    out.flush()
    found = typed.answer(_ATTRIBUTES, ANSWER_LIMIT_S)
    return "sixel" if found is not None and b"4" in found[1].split(b";") else ""


def drawn(picture: PixelGrid, way: str) -> str:
    """Return what draws a picture; the cursor ends at the beginning of a line below it."""
    body = {"kitty": _kitty, "iterm": _iterm, "sixel": _sixel}[way](picture)
    return f"\r{body}\r\n"


def _kitty(picture: PixelGrid) -> str:
    data = base64.b64encode(zlib.compress(picture.pixels)).decode()
    parts = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    # It is asked to answer nothing (q=2): nobody would read that.
    first = f"a=T,q=2,f=24,o=z,s={picture.width},v={picture.height},"
    return "".join(
        f"\x1b_G{'' if at else first}m={int(at < len(parts) - 1)};{part}\x1b\\"
        for at, part in enumerate(parts)
    )


def _iterm(picture: PixelGrid) -> str:
    file = _png(picture)
    size = f"size={len(file)};width={picture.width}px;height={picture.height}px"
    return f"\x1b]1337;File=inline=1;{size}:{base64.b64encode(file).decode()}\x07"


def _png(picture: PixelGrid) -> bytes:
    """Return the picture as a PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    row = 3 * picture.width
    rows = (picture.pixels[at : at + row] for at in range(0, row * picture.height, row))
    head = struct.pack(">IIBBBBB", picture.width, picture.height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + each for each in rows))
    parts = [(b"IHDR", head), (b"IDAT", body), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def _sixel(picture: PixelGrid) -> str:
    """Return the picture in 216 colours: for each six rows a line for each of their colours."""
    width, pixels, top = picture.width, picture.pixels, _LEVELS - 1
    colours = [
        (pixels[at] * top + 127) // 255 * 36
        + (pixels[at + 1] * top + 127) // 255 * 6
        + (pixels[at + 2] * top + 127) // 255
        for at in range(0, len(pixels), 3)
    ]
    used = sorted(set(colours))
    share = 100 // top
    names = (f"#{c};2;{c // 36 * share};{c // 6 % 6 * share};{c % 6 * share}" for c in used)
    bands = (
        "$".join(_band(colours[at : at + 6 * width], width))
        for at in range(0, len(colours), 6 * width)
    )
    size = f'"1;1;{width};{picture.height}'
    return f"\x1bP0;1q{size}{''.join(names)}{'-'.join(bands)}\x1b\\"


def _band(colours: list[int], width: int) -> Iterator[str]:
    """Yield six rows of a picture: for each colour its number, and its dots from left to right."""
    dots: dict[int, list[int]] = {}
    for at, colour in enumerate(colours):
        row, column = divmod(at, width)
        dots.setdefault(colour, [0] * width)[column] |= 1 << row
    for colour, line in dots.items():
        runs = ((chr(63 + bits), len(list(run))) for bits, run in groupby(line))
        yield f"#{colour}" + "".join(
            f"!{count}{sign}" if count > 3 else sign * count for sign, count in runs
        )
