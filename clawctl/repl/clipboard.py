"""The clipboard of the desktop, by the program that reaches it; none over ssh, as a rule."""

import os
import shutil
import subprocess
from collections.abc import Mapping

LIMIT_S = 5.0

# Program, its arguments, and the variable without which it reaches nothing.
_PROGRAMS = (
    ("wl-copy", (), "WAYLAND_DISPLAY"),
    ("xclip", ("-selection", "clipboard"), "DISPLAY"),
    ("xsel", ("--clipboard", "--input"), "DISPLAY"),
    ("pbcopy", (), ""),
    ("clip.exe", (), "WSL_DISTRO_NAME"),
)


def copy_text(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Copy a text and return the program that did it, "" when none could."""
    env = os.environ if environ is None else environ
    for name, arguments, needed in _PROGRAMS:
        program = shutil.which(name, path=env.get("PATH", ""))
        if program is None or (needed and not env.get(needed)):
            continue
        try:
            done = subprocess.run(  # noqa: S603 a fixed command of the desktop, no shell
                [program, *arguments],
                input=text.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(env),
                timeout=LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return name
    return ""
