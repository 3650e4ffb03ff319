"""What the person set for this terminal, in `client.toml` of the home; the environment goes first.

theme = "light"
plain = false
notify = "bell"
pictures = "off"
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawd.paths import layout

SETTINGS_FILE = "client.toml"
MAX_SETTINGS_BYTES = 65_536


def read_settings() -> dict[str, Any]:
    """Return what stands in the file; nothing where it is missing or no TOML."""
    try:
        with (Path(layout().home) / SETTINGS_FILE).open("rb") as file:
            data = file.read(MAX_SETTINGS_BYTES)
    except OSError:
        return {}
    import tomllib

    try:
        return tomllib.loads(data.decode(errors="replace"))
    except tomllib.TOMLDecodeError:
        return {}  # a look is no reason to fail, nor to complain at every turn


def is_plain() -> bool:
    """Return whether the terminal cannot move its cursor, or shall not."""
    return os.environ.get("TERM", "") == "dumb" or wants_plain()


def wants_plain(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether words line by line are wanted, as for a screen reader."""
    chosen = (os.environ if environ is None else environ).get("CLAWD_PLAIN")
    if chosen is not None:
        return chosen not in {"", "0"}
    return read_settings().get("plain") is True
