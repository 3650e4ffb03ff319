"""A terminal for tests: a program on a pty of its own, and the screen that a person would see.

    with TerminalScreen(["bash", "--norc"], environ, lines=24, columns=80) as screen:
        screen.type("echo hello\\r")
        screen.wait_for("hello")
        screen.press("C-c")
        screen.resize(24, 40)
        screen.type("exit\\r")
        assert screen.exit_code() == 0

Nothing sleeps: every wait reads what the program writes until it is true, within a limit. The
terminal answers where its cursor is, and has the second screen that vim and less draw on.
"""

import contextlib
import copy
import os
import re
import select
import signal
import sys
import termios
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pexpect
import psutil
import ptyprocess
import pyte

from tests.support.fork_server import Forked, fork_program, may_fork

LIMIT_S = 60.0
SETTLED_S = 0.3
POLL_S = 0.1
SCROLLBACK = 20_000
READ_BYTES = 65_536
SECOND_SCREEN = {47, 1047, 1049}

KEYS = {
    "Enter": "\r",
    "Tab": "\t",
    "Escape": "\x1b",
    "Backspace": "\x7f",
    "Up": "\x1b[A",
    "Down": "\x1b[B",
    "Right": "\x1b[C",
    "Left": "\x1b[D",
    "Home": "\x1b[H",
    "End": "\x1b[F",
    "Delete": "\x1b[3~",
    "PageUp": "\x1b[5~",
    "PageDown": "\x1b[6~",
    "S-Tab": "\x1b[Z",
    "A-Enter": "\x1b\r",
    "C-\\": "\x1c",
    **{f"C-{letter}": chr(ord(letter) - 96) for letter in "abcdefghijklmnopqrstuvwxyz"},
}

# What a person can wait for: a text, a pattern, or a claim about the screen.
Awaited = str | re.Pattern[str] | Callable[["TerminalScreen"], bool]


class _ForkedPty(ptyprocess.PtyProcess):  # type: ignore[misc]
    """A program on a terminal that another process started, which also collects its status."""

    def __init__(self, forked: Forked, master: int) -> None:
        super().__init__(forked.pid, master)
        self._forked = forked

    def isalive(self) -> bool:
        if not self.terminated:
            self._note(self._forked.wait() if self.flag_eof else self._forked.poll())
        return not self.terminated

    def wait(self) -> int | None:
        self._note(self._forked.wait())
        return self.exitstatus

    def _note(self, code: int | None) -> None:
        if code is None:
            return
        self.terminated = True
        self.exitstatus: int | None = code if code >= 0 else None
        self.signalstatus: int | None = -code if code < 0 else None
        self.status = code << 8 if code >= 0 else -code  # as waitpid has it


class _ForkedClawctl(pexpect.spawn):  # type: ignore[misc]
    def _spawnpty(self, args: list[Any], **options: Any) -> _ForkedPty:
        master, slave = os.openpty()
        try:
            termios.tcsetwinsize(slave, options["dimensions"])
            words = [os.fsdecode(each) for each in args[3:]]
            standard = (slave, slave, slave)
            folder = Path(options["cwd"] or Path.cwd())
            forked = fork_program("clawctl", words, options["env"], folder, standard)
        finally:
            os.close(slave)
        return _ForkedPty(forked, master)


def spawn_on_terminal(argv: Sequence[str], environ: dict[str, str], **options: Any) -> Any:
    """Start a program on a terminal as pexpect does; clawctl is forked where that is the same."""
    is_clawctl = list(argv[:3]) == [sys.executable, "-m", "clawctl"]
    kind = _ForkedClawctl if is_clawctl and may_fork(environ) else pexpect.spawn
    return kind(argv[0], list(argv[1:]), env=environ, timeout=LIMIT_S, **options)


class TerminalScreen:
    """One program on a terminal, from its start to its end.

    Attributes:
        raw: every byte that the program wrote so far.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environ: dict[str, str],
        *,
        lines: int = 24,
        columns: int = 80,
        cwd: Path | None = None,
        has_sixel: bool = False,
    ) -> None:
        self.raw = bytearray()
        self._screen = _Screen(columns, lines, self._answer)
        self._screen.has_sixel = has_sixel
        self._stream = pyte.ByteStream(self._screen)
        whole = {"TERM": "xterm-256color", **environ}
        self._child = spawn_on_terminal(argv, whole, cwd=cwd, dimensions=(lines, columns))
        self._child.ptyproc.delayafterclose = 0  # whoever closes it has waited for its end
        self._has_ended = False

    def __enter__(self) -> "TerminalScreen":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return int(self._child.pid)

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, without the blanks at their ends."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The screen as text, without the empty lines at its end."""
        return "\n".join(self.lines).rstrip("\n")

    @property
    def all_text(self) -> str:
        """The screen, and before it all that has scrolled off."""
        return "\n".join([*self._screen.scrolled_off(), *self.lines]).rstrip("\n")

    @property
    def cursor(self) -> tuple[int, int]:
        """Line and column of the cursor, from 0."""
        return self._screen.cursor.y, self._screen.cursor.x

    @property
    def line(self) -> str:
        """The line that the cursor is in."""
        return self.lines[self.cursor[0]]

    def cell(self, line: int, column: int) -> Any:
        """Return a character with its colours: `data`, `fg`, `bg`, `bold`, `reverse`."""
        return self._screen.buffer[line][column]

    def cell_of(self, text: str) -> Any:
        """Return the first character of a text that is on the screen."""
        for number, line in enumerate(self._screen.display):
            if text in line:
                return self.cell(number, line.index(text))
        raise AssertionError(f"{text!r} is not on the screen:\n{self.text}")

    def type(self, text: str) -> None:
        """Type a text as it is; a carriage return is the Enter key."""
        data = text.encode()
        while data:
            # A program that is fed faster than it reads also writes: both have to go on.
            readable, writable, _ = select.select([self._fd], [self._fd], [], LIMIT_S)
            assert readable or writable, f"the program takes no input\n{self.text}"
            if readable and not self._read():
                raise AssertionError(f"the program has ended\n{self.text}")
            if writable:
                data = data[os.write(self._fd, data[:1024]) :]

    def press(self, *keys: str) -> None:
        """Press keys by name, as `C-c`, `Up`, `A-Enter`; other texts are typed as they are."""
        self.type("".join(KEYS.get(key, key) for key in keys))

    def press_until_end(self, key: str, *, gap_s: float = 0.1) -> None:
        """Press a key again and again until the program ends."""
        deadline = time.monotonic() + LIMIT_S
        while not self._has_ended:
            assert time.monotonic() < deadline, f"the program does not end\n{self.text}"
            with contextlib.suppress(OSError):
                os.write(self._fd, KEYS[key].encode())
            # The terminal echoes at once, which alone would end one wait.
            again_at = time.monotonic() + gap_s
            while time.monotonic() < again_at:
                if not self._pump(gap_s):
                    break

    def paste(self, text: str) -> None:
        """Paste a text as a terminal does that brackets pastes."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, lines: int, columns: int) -> None:
        """Give the window another size."""
        self._screen.resize(lines, columns)
        self._child.setwinsize(lines, columns)

    def kill(self, number: signal.Signals) -> None:
        """Send the program a signal."""
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Take the terminal away, as a lost connection does."""
        if not self._has_ended:
            # The file that pexpect holds would close its number again, which is another's by then.
            pty = self._child.ptyproc
            pty.fileobj.close()
            pty.fd, pty.closed = -1, True
            self._child.child_fd, self._child.closed = -1, True
        self._has_ended = True

    def wait_for(
        self, awaited: Awaited, *, limit_s: float = LIMIT_S, anywhere: bool = False
    ) -> None:
        """Wait until something is on the screen, or (`anywhere`) was and has scrolled off."""
        self._wait(awaited, anywhere=anywhere, limit_s=limit_s, wanted=True)

    def wait_gone(self, awaited: Awaited, *, limit_s: float = LIMIT_S) -> None:
        """Wait until something is no longer on the screen."""
        self._wait(awaited, anywhere=False, limit_s=limit_s, wanted=False)

    def settle(self, quiet_s: float = SETTLED_S) -> None:
        """Read until the program writes nothing for a moment."""
        while not self._has_ended and self._pump(quiet_s):
            pass

    def exit_code(self, limit_s: float = LIMIT_S) -> int:
        """Wait for the end of the program and return its exit code; -N for signal N."""
        deadline = time.monotonic() + limit_s
        while not self._has_ended:
            assert time.monotonic() < deadline, f"the program does not end\n{self.text}"
            self._pump(0.1)
        while self._child.isalive():
            assert time.monotonic() < deadline, f"the program does not end\n{self.text}"
            select.select([], [], [], 0.01)
        if self._child.exitstatus is not None:
            return int(self._child.exitstatus)
        return -int(self._child.signalstatus)

    def close(self) -> None:
        """End the program by force, if it runs, and close the terminal."""
        with contextlib.suppress(pexpect.ExceptionPexpect, OSError):
            if self._child.isalive():
                os.kill(self.pid, signal.SIGKILL)
                os.kill(self.pid, signal.SIGCONT)
                self._child.wait()
        if self._child.child_fd >= 0:
            self._child.close(force=True)

    @property
    def _fd(self) -> int:
        return int(self._child.child_fd)

    def _wait(self, awaited: Awaited, *, anywhere: bool, limit_s: float, wanted: bool) -> None:
        deadline = time.monotonic() + limit_s
        while self._is(awaited, anywhere=anywhere) is not wanted:
            left = deadline - time.monotonic()
            if left <= 0 or (self._has_ended and not self._pump(0)):
                what = awaited if isinstance(awaited, str) else repr(awaited)
                why = "the program has ended" if self._has_ended else f"after {limit_s:g} s"
                never = "never came" if wanted else "never went"
                raise AssertionError(f"{what!r} {never} ({why}); the screen is:\n{self.text}")
            # What is awaited may be no matter of the screen alone.
            self._pump(min(left, POLL_S))

    def _is(self, awaited: Awaited, *, anywhere: bool) -> bool:
        if callable(awaited):
            return awaited(self)
        text = self.all_text if anywhere else self.text
        if isinstance(awaited, str):
            # A text may end with a blank, as a prompt does.
            return awaited in text or awaited in "\n".join(self._screen.display)
        return awaited.search(text) is not None

    def _pump(self, limit_s: float) -> bool:
        """Read once; False when nothing came."""
        if self._has_ended:
            return False
        if not select.select([self._fd], [], [], limit_s)[0]:
            return False
        return self._read()

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, READ_BYTES)
        except OSError:  # Linux says so when the last process has closed its side
            data = b""
        if not data:
            self._has_ended = True
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    def _answer(self, text: str) -> None:
        if not self._has_ended:
            with contextlib.suppress(OSError):
                os.write(self._fd, text.encode())


def clawctl_screen(
    environ: dict[str, str],
    *arguments: str,
    lines: int = 24,
    columns: int = 80,
    how: Sequence[str] = ("-m", "clawctl"),
    cwd: Path | None = None,
    has_sixel: bool = False,
) -> TerminalScreen:
    """Start clawctl on a terminal; the place of its cursor is told, as a real one does.

    Args:
        environ: its environment.
        arguments: those of clawctl.
        lines: how high the terminal is.
        columns: how wide it is.
        how: the words that let Python run it.
        cwd: where it runs; by default in the workspace.
        has_sixel: whether the terminal says that it draws sixel.
    """
    told = {name: value for name, value in environ.items() if name != "PROMPT_TOOLKIT_NO_CPR"}
    argv = [sys.executable, *how, *arguments]
    place = cwd or workspace_of(environ)
    return TerminalScreen(argv, told, lines=lines, columns=columns, cwd=place, has_sixel=has_sixel)


def workspace_of(environ: dict[str, str]) -> Path | None:
    """Return the configured workspace of a home, where nobody is asked about the folder."""
    config = Path(environ.get("CLAWD_HOME", "/nonexistent")) / "config.toml"
    if not config.is_file():
        return None
    found = tomllib.loads(config.read_text(encoding="utf-8")).get("workspace_dir", "")
    return Path(found) if found and Path(found).is_dir() else None


def in_front(name: str) -> Callable[[TerminalScreen], bool]:
    """Return a claim to wait for: a program of this name runs below, and keys would reach it."""

    def is_in_front(screen: TerminalScreen) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            for process in psutil.Process(screen.pid).children(recursive=True):
                # The group that the program is in, and the one that its terminal listens to.
                facts = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
                fields = facts.rpartition(")")[2].split()
                if process.name() == name and fields[2] == fields[5]:
                    return True
        return False

    return is_in_front


class _Screen(pyte.HistoryScreen):
    """A pyte screen that tells its cursor's place and has a second screen."""

    def __init__(self, columns: int, lines: int, answer: Callable[[str], None]) -> None:
        self._reply = answer
        self.has_sixel = False
        self._first: tuple[Any, Any] | None = None
        super().__init__(columns, lines, history=SCROLLBACK)

    def write_process_input(self, data: str) -> None:
        self._reply(data)

    def scrolled_off(self) -> list[str]:
        return [
            "".join(row[column].data for column in range(self.columns)).rstrip()
            for row in self.history.top
        ]

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        if kwargs.get("private") and SECOND_SCREEN & set(modes) and self._first is None:
            self._first = copy.deepcopy(self.buffer), copy.copy(self.cursor)
            self.erase_in_display(2)
        super().set_mode(*modes, **kwargs)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        super().reset_mode(*modes, **kwargs)
        if kwargs.get("private") and SECOND_SCREEN & set(modes) and self._first is not None:
            self.buffer, self.cursor = self._first
            self._first = None
            self.dirty.update(range(self.lines))

    def index(self) -> None:
        # What scrolls on the second screen is no history.
        if self._first is None:
            super().index()
        else:
            pyte.Screen.index(self)

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Resize, and keep the cursor in its line when lines go at the top."""
        lost = self.lines - (lines or self.lines)
        # A terminal takes lines away below the cursor first.
        above = max(self.cursor.y - (lines or self.lines) + 1, 0) if lost > 0 else 0
        for _ in range(above):
            self.history.top.append(self.buffer[0])
            self._drop_first_line()
        if lost > 0:
            self.lines = lines or self.lines
            for number in [y for y in self.buffer if y >= self.lines]:
                del self.buffer[number]
        super().resize(lines, columns)
        self.cursor.y = min(self.cursor.y, self.lines - 1)
        self.cursor.x = min(self.cursor.x, self.columns - 1)

    def _drop_first_line(self) -> None:
        moved = {y - 1: row for y, row in self.buffer.items() if y > 0}
        self.buffer.clear()
        self.buffer.update(moved)
        self.cursor.y = max(self.cursor.y - 1, 0)

    def select_graphic_rendition(self, *attrs: int, **kwargs: Any) -> None:
        if not kwargs:
            super().select_graphic_rendition(*attrs)

    def report_device_attributes(self, *args: Any, **kwargs: Any) -> None:
        """Say what we can: nothing that is worth a number, but for sixel where that is so."""
        self._reply("\x1b[?62;4c" if self.has_sixel else "\x1b[?62c")

    def report_device_status(self, mode: int = 0, **kwargs: Any) -> None:
        if not kwargs:
            super().report_device_status(mode)
