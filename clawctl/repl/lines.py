"""Where the REPL's lines come from: an editor, a plain prompt, or lines that nobody types.

The editor is for a terminal that can move its cursor. `CLAWD_PLAIN=1` (or `plain = true` in
`client.toml` of the home) asks for the plain prompt, which suits screen readers; `TERM=dumb` too.

What is typed while an answer comes: neither echoed into it nor lost, and never an approval.

It is read as bytes from the terminal, and the next prompt gets it. Before a question is asked the
terminal is as it was, and what was typed until then is kept: an answer is typed after it.
Whole lines are offered to the turn that runs, whose model reads them after its calls; what the turn
ends without is typed ahead still.
"""

import contextlib
import os
import re
import readline
import select
import sys
import termios
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from clawctl.repl.suggestions import Known, Suggestion, offers
from clawctl.request_follower import EventView
from clawd.errors import ClawError, UnreachableError
from clawd.kernel.files import replace_file
from clawd.wire.events import Event, MessageJoined, TurnFinished, TurnStarted
from clawd.wire.safe_text import visible_line
from clawd.wire.turns import SteerTurn

READ_BYTES = 65_536
MAX_TYPED_BYTES = 1024 * 1024
MAX_SAID = 16

_IFLAG, _LFLAG, _CC = 0, 3, 6


class TypeAhead:
    """Keeps what is typed while it is open; one that has no terminal keeps nothing."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None
        self._typed = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether it keeps what is typed."""
        return self._before is not None

    def open(self) -> None:
        """Begin to keep what is typed, without showing it; signals go on working."""
        if self._descriptor is None or self._before is not None or not self._is_ours():
            return
        try:
            # Kept first: a Ctrl-C in between must not leave the terminal changed.
            self._before = termios.tcgetattr(self._descriptor)
            termios.tcsetattr(self._descriptor, termios.TCSANOW, _quiet(self._before))
        except termios.error:
            self._before = None
            return
        # Until now the terminal turned Enter into a line feed, which is another key.
        self._typed += self._waiting().replace(b"\n", b"\r")

    def close(self) -> None:
        """Give the terminal back as it was; the next reader may want whole lines."""
        if self._descriptor is None or self._before is None:
            return
        self.take_in()
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)
        self._before = None

    def open_again(self) -> None:
        """Take the terminal again after somebody else had it, as a shell in which we slept."""
        if self._descriptor is not None and self._before is not None and self._is_ours():
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, _quiet(self._before))

    def take_in(self) -> None:
        """Read what was typed, so that the terminal can take more."""
        if self._before is not None:
            self._typed += self._waiting()

    def taken(self) -> str:
        """Return what was typed until now, and forget it."""
        self.take_in()
        text = self._typed.decode(errors="replace")
        self._typed.clear()
        return text

    def take_line(self, may_take: Callable[[str], bool]) -> str:
        """Return the first whole line, and forget it; "" for none, or for one that must stay."""
        end = self._typed.find(b"\r")
        line = _edited(self._typed[:end].decode(errors="replace")) if end >= 0 else None
        if not line or not may_take(line):
            return ""
        del self._typed[: end + 1]
        return line

    def answer(self, pattern: re.Pattern[bytes], limit_s: float) -> re.Match[bytes] | None:
        """Return what the terminal answers to a question; None where it does not in time."""
        deadline = time.monotonic() + limit_s
        while self._descriptor is not None and self._before is not None:
            self.take_in()
            if found := pattern.search(bytes(self._typed)):
                del self._typed[found.start() : found.end()]
                return found
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._descriptor], [], [], left)[0]:
                break
        return None

    def put_back(self, lines: list[str]) -> None:
        """Take lines as if they had been typed before everything else that is here."""
        self._typed[:0] = "".join(f"{line}\r" for line in lines).encode()

    def _waiting(self) -> bytes:
        """Return what waits in the terminal, as far as there is room for it."""
        if self._descriptor is None or not self._is_ours():
            return b""
        found = bytearray()
        with contextlib.suppress(OSError):
            while select.select([self._descriptor], [], [], 0)[0]:
                data = os.read(self._descriptor, READ_BYTES)
                if not data:
                    break
                found += data[: MAX_TYPED_BYTES - len(self._typed) - len(found)]
        return bytes(found)

    def _is_ours(self) -> bool:
        """Return whether we are in front: the terminal stops a job behind that touches it."""
        try:
            return self._descriptor is not None and os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False


def _quiet(attributes: list[Any]) -> list[Any]:
    changed = [*attributes[:_CC], list(attributes[_CC])]
    changed[_IFLAG] &= ~termios.ICRNL
    changed[_LFLAG] &= ~(termios.ECHO | termios.ICANON)
    # Ctrl-C stops the answer; what was typed before it is no part of that.
    changed[_LFLAG] |= termios.ISIG | termios.NOFLSH
    changed[_CC][termios.VMIN], changed[_CC][termios.VTIME] = 0, 0
    return changed


def _edited(line: str) -> str | None:
    """Return a line as the keys that rub out leave it; None where only an editor can tell."""
    kept: list[str] = []
    for key in line:
        if key in "\x7f\b":
            del kept[-1:]
        elif key == "\x15":
            kept.clear()
        elif key == "\x17":
            kept = list(re.sub(r"\S*\s*$", "", "".join(kept)))
        elif key.isprintable() or key == "\n":
            kept.append(key)
        else:
            return None
    return "".join(kept)


class Steering:
    """Says to a turn that runs what is typed meanwhile, a line each.

    Args:
        typed: what is typed.
        send: sends a request whose answer nobody waits for.
        may_take: tells whether a line can go as it is; others, and what follows them, wait.
    """

    def __init__(
        self, typed: TypeAhead, send: Callable[[SteerTurn], object], may_take: Callable[[str], bool]
    ) -> None:
        self._typed = typed
        self._send = send
        self._may_take = may_take
        self._turn: TurnStarted | None = None
        self._said: dict[str, str] = {}
        self._number = 0

    def hear(self, event: Event) -> None:
        """Take an event of the turn."""
        match event:
            case TurnStarted():
                self._turn = event
            case MessageJoined():
                self._said.pop(event.steer_id, None)
            case _:
                pass

    def look(self) -> None:
        """Say what was typed."""
        turn = self._turn
        while turn is not None and len(self._said) < MAX_SAID:
            line = self._typed.take_line(self._may_take)
            if not line:
                return
            self._number += 1
            steer_id = f"{os.getpid()}-{self._number}"
            self._said[steer_id] = line
            with contextlib.suppress(UnreachableError):  # the turn's follower learns it
                self._send(
                    SteerTurn(
                        conversation_id=turn.conversation_id,
                        turn_id=turn.turn_id,
                        text=line,
                        steer_id=steer_id,
                    )
                )

    def close(self) -> None:
        """Leave what the turn did not take to the next prompt."""
        self._turn = None
        self._typed.put_back(list(self._said.values()))
        self._said.clear()


class AttentiveView:
    """A view that takes in what is typed, and lets go of the terminal before it asks.

    Args:
        view: shows the turn.
        typed: what is typed.
        steering: says it to the turn; None where that takes nothing.
    """

    def __init__(self, view: EventView, typed: TypeAhead, steering: Steering | None = None) -> None:
        self._view = view
        self._typed = typed
        self._steering = steering

    @property
    def animates(self) -> bool:
        """Whether the view moves while nothing happens, or what is typed has to be looked for."""
        return self._view.animates or (self._steering is not None and self._typed.is_open)

    def show(self, event: Event) -> None:
        """Show one event."""
        self._typed.open()
        self._typed.take_in()
        self._view.show(event)
        if self._steering is not None:
            self._steering.hear(event)
            self._steering.look()

    def tick(self) -> None:
        """Say that time has passed."""
        self._typed.open()
        self._typed.take_in()
        self._view.tick()
        if self._steering is not None:
            self._steering.look()

    def pause(self) -> None:
        """Leave the terminal to a question, as it was before."""
        self._typed.close()
        self._view.pause()

    def finish(self, text: str | None, finished: TurnFinished | None = None) -> None:
        """End the turn's lines."""
        self._view.finish(text, finished)
        if self._steering is not None:
            self._steering.close()


# The history of the prompt: a file of the home that nobody else may read.
#
# Every entry is a block of lines that begin with `+`, after a line that says when, as in
#
#     # 2026-11-21 08:00:00
#     +first line
#     +second line
#
# A line that begins with a blank is not kept, nor one that looks as if it held a secret.

MAX_BYTES = 2 * 1024 * 1024
KEPT_BYTES = 1024 * 1024
ENTRY_BYTES = 16 * 1024

_SECRET = re.compile(
    r"(?i)\b(?:api[_-]?key|access[_-]?key|token|passw(?:or)?d|passphrase|secret|authorization)\b"
    r"[\"']?\s*(?:[:=]|\bis\b)\s*\S{6,}"
    r"|\bbearer\s+[\w.~+/-]{16,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b[a-z]{2,10}(?:[-_][a-z0-9]{2,10}){0,3}[-_](?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{28,}"
)


def is_kept(entry: str) -> bool:
    """Return whether an entry may be kept: it begins with no blank and shows no secret."""
    return bool(entry.strip()) and not entry[0].isspace() and _SECRET.search(entry) is None


class HistoryFile:
    """The entries of all REPLs of a home; one that cannot be read or written is an empty one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[str]:
        """Return the entries, oldest first; a file that has grown too long is cut first."""
        try:
            data = self._path.read_bytes()
            self._path.chmod(0o600)
        except OSError:
            return []
        if len(data) > MAX_BYTES:
            data = data[data.find(b"\n#", len(data) - KEPT_BYTES) + 1 :]
            with contextlib.suppress(OSError):
                replace_file(self._path, data)
        return list(_entries(data.decode(errors="replace").split("\n")))

    def add(self, entry: str) -> None:
        """Keep an entry, if it may be kept and is short enough to be of use."""
        text = entry.encode(errors="replace")
        if not is_kept(entry) or len(text) > ENTRY_BYTES:
            return
        lines = b"".join(b"+%s\n" % line for line in text.split(b"\n"))
        block = f"\n# {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode() + lines
        # A home that cannot be written is reported by whatever needs it; a prompt does not.
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.write(descriptor, block)
            finally:
                os.close(descriptor)


def _entries(lines: Iterable[str]) -> Iterable[str]:
    entry: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("+"):
            entry.append(line[1:])
        elif entry:
            yield "\n".join(entry)
            entry = []


HISTORY_LOADED = 1_000
PROMPT = "> "
CONTINUATION = "… "


class Lines(ABC):
    """Gives one message after the other; as it stands here, of lines that nobody edits.

    Attributes:
        edits: whether it reads single keys, and sets the terminal up for that by itself.
    """

    edits = False

    @abstractmethod
    def read(self, typed: str = "", text: str = "") -> str:
        """Return the next message.

        Args:
            typed: keys that were typed before, as a terminal sends them.
            text: what the line holds at first.

        Raises:
            EOFError: there is no more.
            KeyboardInterrupt: Ctrl-C at the prompt.
        """

    def whole(self, line: str) -> str:
        """Return a line with all that was folded in it."""
        return line

    def typed(self, line: str) -> str:
        """Return what was typed of a line, without what was pasted and folded."""
        return line

    def written(self, text: str) -> str:
        """Return a text that the person wrote elsewhere, as it goes into a line."""
        return text

    def redraw(self) -> None:  # noqa: B027 a line that comes by itself would be read in mid-word
        """Show anew what may have changed below the prompt; from any thread."""

    def presses(self) -> int:
        """Return how often Ctrl-C was pressed after the one that ended `read`, and forget these."""
        return 0  # each is a signal


class PipedLines(Lines):
    """Lines of standard input, one message each, without any prompt."""

    @override
    def read(self, typed: str = "", text: str = "") -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")


class PlainLines(Lines):
    """A prompt that writes no more than itself; the terminal or readline edits the line.

    A line that ends with a backslash goes on in the next one.
    """

    def __init__(
        self, history: Path, status: Callable[[], str], known: "Callable[[], Known]"
    ) -> None:
        self._file = HistoryFile(history)
        self._status = status
        self._queued = ""
        if os.environ.get("TERM", "") != "dumb":
            # The file is written here, entry by entry, and only what may be kept.
            readline.set_auto_history(False)
            for entry in self._file.load()[-HISTORY_LOADED:]:
                if "\n" not in entry:
                    readline.add_history(entry)
            complete_with(known(), PROMPT)

    @override
    def read(self, typed: str = "", text: str = "") -> str:
        """Return what was typed."""
        status = self._status()
        if status:
            print(status)
        if text:
            print(f"(not sent yet: {text})")
        self._queued += typed.replace("\r", "\n")
        line = self._next(PROMPT)
        while line.endswith("\\"):
            line = f"{line[:-1]}\n{self._next(CONTINUATION)}"
        self._file.add(line)
        return line

    def _next(self, prompt: str) -> str:
        """Return the next line that was typed ahead, or ask for one; half a line is its begin."""
        begun, ended, self._queued = self._queued.partition("\n")
        if ended:
            print(prompt + begun)
            return begun
        return begun + self._typed(prompt + begun)

    def _typed(self, prompt: str) -> str:
        try:
            line = input(prompt)
        except KeyboardInterrupt:
            print()
            raise
        if line.strip() and not line[0].isspace():
            readline.add_history(line)
        return line


ABOUT_COLUMNS = 60


def complete_with(known: Known, prompt: str) -> None:
    """Let the Tab key complete what there is; several ways to go on are listed, one on a line."""
    completer = _Completer(known, prompt)
    # The whole line is what is completed: what it means decides where a word begins.
    readline.set_completer_delims("")
    readline.set_completer(completer.complete)
    readline.set_completion_display_matches_hook(completer.show)
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")


class _Completer:
    """Gives readline whole lines, and shows only what is new of them."""

    def __init__(self, known: Known, prompt: str) -> None:
        self._known = known
        self._prompt = prompt
        self._found: dict[str, Suggestion] = {}

    def complete(self, before: str, number: int) -> str | None:
        """Return one of the lines that may come of what was typed; None behind the last."""
        if number == 0:
            try:
                found = list(offers(before, self._known))
            except ClawError:
                found = []  # a daemon that does not answer knows no names
            self._found = {before[: len(before) - each.typed] + each.text: each for each in found}
        lines = list(self._found)
        return lines[number] if number < len(lines) else None

    def show(self, _typed: str, lines: Sequence[str], _longest: int) -> None:
        """List the ways to go on, and the line below them again."""
        print()
        for line in lines:
            offer = self._found.get(line)
            if offer is not None:
                about = visible_line(offer.about, ABOUT_COLUMNS)
                print(f"{offer.shown or offer.text}  {about}".rstrip())
        print(f"{self._prompt}{readline.get_line_buffer()}", end="", flush=True)
