"""Running one long step with its progress in sight and its output in a log."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

QUIET_TICK_S = 20.0
TTY_TICK_S = 0.2
SHOWN_ON_FAILURE = 25
STOP_LIMIT_S = 10.0
# `[12/345] Building CXX object ...` is ninja's, `[ 12%] Building ...` is make's.
NINJA_COUNT = re.compile(r"\[(\d+)/(\d+)\]")
MAKE_PERCENT = re.compile(r"\[\s*(\d+)%\]")
PIP_PHRASE = re.compile(
    r"\s*(Collecting \S+|Downloading \S+|Installing build dependencies|Building wheel for \S+"
    r"|Installing collected packages|Get:\d+ \S+|Unpacking \S+|Setting up \S+)"
)
# What make and a surrounding virtual environment tell their own children must not reach pip's.
FOREIGN_VARIABLES = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class SetupError(Exception):
    """Setting up cannot go on; the text tells the person at the terminal what to do."""


@dataclass
class Progress:
    """Shows that a long step is alive: a moving line on a terminal, a line at times elsewhere."""

    title: str
    out: TextIO
    started_at: float = field(default_factory=time.monotonic)
    hint: str = ""

    def feed(self, line: str) -> None:
        """Takes one line of the step's output and keeps what tells how far it is."""
        self.hint = read_hint(line) or self.hint

    def draw(self) -> None:
        """Writes the present state, over the last one where the output is a terminal."""
        text = " ".join(part for part in (f"{self.title}:", self.elapsed(), self.hint) if part)
        if self.out.isatty():
            self.out.write("\r\x1b[K" + text[: shutil.get_terminal_size().columns - 1])
        else:
            self.out.write(text + "\n")
        self.out.flush()

    def finish(self, outcome: str) -> None:
        """Writes the line that stays."""
        start = "\r\x1b[K" if self.out.isatty() else ""
        self.out.write(f"{start}{self.title}: {outcome} in {self.elapsed()}\n")
        self.out.flush()

    def elapsed(self) -> str:
        """Gives the time since the step began, as `7s` or `3m07s`."""
        minutes, seconds = divmod(int(time.monotonic() - self.started_at), 60)
        return f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"


def read_hint(line: str) -> str:
    """Reads from a line of ninja, make, pip or apt how far it is; empty when it does not say."""
    if counted := NINJA_COUNT.search(line):
        done, total = int(counted[1]), int(counted[2])
        return f"{100 * done // max(total, 1)}% [{done}/{total}]"
    if percent := MAKE_PERCENT.search(line):
        return f"{percent[1]}%"
    phrase = PIP_PHRASE.match(line)
    return phrase[1] if phrase else ""


def announce(title: str) -> None:
    """Writes a heading; flushed, so that it stands before what a child writes."""
    print(f"\n== {title}", flush=True)


def run_step(
    title: str,
    command: Sequence[str],
    *,
    log: Path,
    environ: Mapping[str, str] | None = None,
    out: TextIO | None = None,
) -> None:
    """Runs a command to its end, showing progress and keeping its output in the log.

    Raises:
        SetupError: it could not be started or failed; the text carries the end of its output.
    """
    progress = Progress(title=title, out=out or sys.stdout)
    tail: deque[str] = deque(maxlen=SHOWN_ON_FAILURE)
    log.parent.mkdir(parents=True, exist_ok=True)
    variables = {key: value for key, value in os.environ.items() if key not in FOREIGN_VARIABLES}
    with log.open("a", encoding="utf-8") as sink:
        sink.write(f"\n$ {' '.join(command)}\n")
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**variables, **(environ or {})},
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise SetupError(f"{title}: {command[0]} could not be started: {error}") from error

        def read_output() -> None:
            assert child.stdout is not None
            with child.stdout as lines:
                for line in lines:
                    sink.write(line)
                    tail.append(line)
                    progress.feed(line)

        reader = threading.Thread(target=read_output)
        reader.start()
        try:
            status = wait_showing(child, progress)
        finally:
            stop_group(child)
            reader.join()
    if status:
        progress.finish(f"failed (exit status {status})")
        raise SetupError(f"{''.join(tail)}\n{title} failed; all of its output is in {log}")
    progress.finish("done")


def wait_showing(child: "subprocess.Popen[str]", progress: Progress) -> int:
    """Draws the progress until the child ends and gives its exit status."""
    tick_s = TTY_TICK_S if progress.out.isatty() else QUIET_TICK_S
    progress.draw()
    while True:
        try:
            return child.wait(timeout=tick_s)
        except subprocess.TimeoutExpired:
            progress.draw()


def stop_group(child: "subprocess.Popen[Any]") -> None:
    """Ends what an interrupted step has left running, compilers included."""
    for wish in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        os.killpg(child.pid, wish)
        try:
            child.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            continue
