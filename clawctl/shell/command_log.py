"""What the shell ran lately: each command with its folder, status, and the ends of its output."""

import base64
import json
from collections import deque
from collections.abc import Iterable, Mapping
from urllib.parse import quote

import msgspec

from clawd.wire.secrets import find_secrets, is_secret_variable

HEAD_BYTES = 16 * 1024
TAIL_BYTES = 16 * 1024
KEPT_COMMANDS = 20
MAX_COMMAND_CHARS = 8_192


class Capture:
    """The beginning and the end of a stream of bytes, in bounded memory."""

    def __init__(self, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        self._limits = head, tail
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, data: bytes) -> None:
        """Take in the next bytes."""
        head, tail = self._limits
        self._size += len(data)
        if room := head - len(self._head):
            self._head += data[:room]
            data = data[room:]
        if len(data) >= tail:
            self._tail[:] = data[len(data) - tail :]
        elif data:
            self._tail += data
            if len(self._tail) > 2 * tail:
                del self._tail[:-tail]

    def ends(self) -> tuple[bytes, bytes, int]:
        """Return the beginning, the end, and how many bytes between them are lost."""
        end = bytes(self._tail[-self._limits[1] :])
        return bytes(self._head), end, self._size - len(self._head) - len(end)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One command that has ended.

    Attributes:
        command: as it was entered; empty where the shell did not tell.
        cwd: where the shell was after it.
        head: the beginning of what it printed, all of it where nothing is lost.
        tail: the end of it.
        lost: bytes between these two.
    """

    command: str
    status: int
    cwd: str
    head: bytes = b""
    tail: bytes = b""
    lost: int = 0


class Records:
    """The newest commands of a shell.

    Args:
        marks_starts: whether the shell tells when a command starts; where it does not, all that
            comes between two prompts counts as output.

    Attributes:
        cwd: the shell's folder as it last told; empty before the first prompt.
    """

    def __init__(self, *, marks_starts: bool = True) -> None:
        self._marks_starts = marks_starts
        self._done: deque[Record] = deque(maxlen=KEPT_COMMANDS)
        self._lines: list[str] = []
        self._running: Capture | None = None
        self.cwd = ""

    def line(self, text: str) -> None:
        """Take in a line of the command that is being entered; what a program reads is none."""
        is_program_s = self._marks_starts and self._running is not None
        if not is_program_s and sum(map(len, self._lines)) < MAX_COMMAND_CHARS:
            self._lines.append(text[:MAX_COMMAND_CHARS])

    def started(self) -> None:
        """Say that the entered command starts."""
        self._running = Capture()

    def output(self, data: bytes) -> None:
        """Take in what is printed."""
        if self._running is not None:
            self._running.add(data)

    def finished(self, status: int, cwd: str) -> None:
        """Say that the prompt comes: nothing runs any more."""
        ran, self._running = self._running, None if self._marks_starts else Capture()
        command, self._lines = "\n".join(self._lines), []
        self.cwd = cwd
        if ran is None:
            return
        head, tail, lost = ran.ends()
        self._done.append(
            Record(command=command, status=status, cwd=cwd, head=head, tail=tail, lost=lost)
        )

    def last(self, back: int = 1) -> Record | None:
        """Return the command that many back, 1 the newest; None when it is not kept."""
        return self._done[-back] if 1 <= back <= len(self._done) else None

    @property
    def last_failure(self) -> Record | None:
        """The newest command that ended with another status than 0."""
        return next((each for each in reversed(self._done) if each.status), None)


# Takes secrets out of terminal text before it leaves this process. Pure.
#
# Values that are known (those of variables whose names say that they are secret) go first, then
# what `clawd.wire.secrets` finds, eagerly: the model can ask, and what was sent cannot be taken
# back. A secret becomes `[secret]`.

TAG = "[secret]"
MIN_KNOWN_CHARS = 6
MAX_PASSES = 4


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """Return the text with every secret that is recognised replaced by `[secret]`.

    Args:
        text: without control sequences, which would part a secret.
        known: values that are secret; those under six characters are ignored.
    """
    forms = {form for each in known if len(each) >= MIN_KNOWN_CHARS for form in _forms(each)}
    for value in sorted(forms, key=_longest):
        text = text.replace(value, TAG)
    # What stood beside a secret may read as one itself, now that the secret is gone.
    for _ in range(MAX_PASSES):
        found = find_secrets(text, is_eager=True)
        parts, at = list[str](), 0
        for secret in found:
            parts += (text[at : secret.start], TAG)
            at = secret.end
        before, text = text, "".join([*parts, text[at:]])
        if text == before:
            break
    return text


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of those variables whose names say that they are secret."""
    return tuple(
        value
        for name, value in environ.items()
        if is_secret_variable(name) and len(value) >= MIN_KNOWN_CHARS and not _is_place(value)
    )


def _is_place(value: str) -> bool:
    # SSH_AUTH_SOCK, GPG_KEY_FILE and their kind say where a secret is, and are none.
    return value.startswith(("/", "~/", "./"))


def _forms(value: str) -> set[str]:
    """Return a value as it is, and as addresses, JSON and base64 (from any byte on) have it."""
    data = value.encode(errors="replace")
    forms = {value, quote(value, safe=""), json.dumps(value)[1:-1]}
    for before in range(3):
        # The characters at both ends depend on what stands around it.
        body = base64.b64encode(bytes(before) + data).rstrip(b"=")[before and before + 1 :]
        body = body[: len(body) - (1 if (before + len(data)) % 3 else 0)]
        if len(body) >= MIN_KNOWN_CHARS + 2:
            forms.add(body.decode())
    return forms


def _longest(value: str) -> tuple[int, str]:
    return -len(value), value
