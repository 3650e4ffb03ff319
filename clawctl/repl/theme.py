"""How a drawing looks: colours by what they mean, and marks, chosen by the person at the terminal.

`CLAWD_THEME` is `dark`, `light`, `contrast` or `none`; `CLAWD_PLAIN=1` is for screen readers. Both
may stand in the settings file as well.
"""

import os
from collections.abc import Mapping
from typing import TextIO

import msgspec

from clawctl.settings import read_settings, wants_plain

THEME_VARIABLE = "CLAWD_THEME"


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the codes for styles, by what they stand for; "" is the terminal's own."""

    strong: str = "1"
    emphasis: str = "3"
    struck: str = "9"
    dim: str = "2"
    heading: str = "1;36"
    code: str = "36"
    link: str = "4"
    address: str = "2"
    accent: str = "36"
    good: str = "32"
    bad: str = "31"
    warning: str = "33"
    added: str = "32"
    removed: str = "31"
    keyword: str = "35"
    string: str = "32"
    number: str = "33"
    name: str = "34"
    comment: str = "2"


DARK = Theme(keyword="95", name="94", number="93", string="92", heading="1;96", code="96")
LIGHT = Theme(
    heading="1;34", code="34", accent="34", warning="1;31", number="35", keyword="34", name="36"
)
CONTRAST = Theme(
    dim="",
    heading="1;4",
    code="1",
    address="",
    accent="1",
    good="1;32",
    bad="1;31",
    warning="1;33",
    added="1;32",
    removed="1;31",
    keyword="1",
    string="",
    number="",
    name="",
    comment="3",
)
NONE = Theme(**dict.fromkeys(Theme.__struct_fields__, ""))
THEMES = {"dark": DARK, "light": LIGHT, "contrast": CONTRAST, "none": NONE}


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """The signs of a drawing."""

    frames: str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
    done: str = "✓"
    failed: str = "✗"
    remark: str = "●"
    folded: str = "▸"
    bar: str = "│"
    ellipsis: str = "…"
    dot: str = "·"


UNICODE = Marks()
ASCII = Marks(
    frames="|/-\\", done="ok", failed="x", remark="*", folded=">", bar="|", ellipsis="...", dot="-"
)
# What rows of ours and of libraries hold beyond ASCII, for terminals that cannot show it.
_ASCII_OF = str.maketrans("•─━╺╸│▌…·●▸−", "*----||~-*>-")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen.

    Attributes:
        plain: one line for each event in words; nothing moves the cursor.
        unicode: whether the terminal shows more than ASCII.
    """

    theme: Theme = DARK
    marks: Marks = UNICODE
    plain: bool = False
    unicode: bool = True

    def drawn(self, text: str) -> str:
        """Return a row with the signs that this terminal can show."""
        return text if self.unicode else text.translate(_ASCII_OF)


def chosen_look(out: TextIO, environ: Mapping[str, str] | None = None) -> Look:
    """Return the look that environment, settings file and terminal ask for."""
    env = os.environ if environ is None else environ
    theme = THEMES[theme_name(env)]
    plain = wants_plain(env)
    unicode = "utf" in (getattr(out, "encoding", "") or "").lower()
    return Look(theme=theme, marks=UNICODE if unicode else ASCII, plain=plain, unicode=unicode)


def theme_name(environ: Mapping[str, str] | None = None) -> str:
    """Return the name of the theme that environment, settings file and terminal ask for."""
    env = os.environ if environ is None else environ
    if env.get("NO_COLOR") or env.get("TERM", "") == "dumb":
        return "none"
    name = env.get(THEME_VARIABLE) or str(read_settings().get("theme", "")) or _background(env)
    return name.lower() if name.lower() in THEMES else "dark"


def _background(env: Mapping[str, str]) -> str:
    """Return what COLORFGBG (rxvt, Konsole) says of the background."""
    return "light" if env.get("COLORFGBG", "").rpartition(";")[2] in {"7", "15"} else "dark"
