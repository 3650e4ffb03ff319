"""The service manager's own programs, asked politely: with a limit, and no answer is an answer."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

LIMIT_S = 5.0
RUNS_SYSTEMD = Path("/run/systemd/system")


def is_booted_with_systemd() -> bool:
    """Tell whether systemd runs this machine (sd_booted(3))."""
    return RUNS_SYSTEMD.is_dir()


def answer_of(program: str, *arguments: str) -> str | None:
    """Return what a program prints; None where it is missing, fails or does not end in time."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 a fixed program, a list of arguments, no shell
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def lines_of(program: str, arguments: Sequence[str]) -> Iterator[str]:
    """Yield the lines that a program prints, as they come; it is ended when this is.

    Raises:
        FileNotFoundError: there is no such program.
    """
    path = shutil.which(program)
    if path is None:
        raise FileNotFoundError(program)
    with subprocess.Popen(  # noqa: S603 a fixed program, a list of arguments, no shell
        [path, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                yield line.rstrip("\n")
        finally:
            running.terminate()
