r"""What the shell tells us between the bytes it prints: marks, and the reader that takes them out.

A mark is an operating system command of our own, `ESC ] 7717 ; NONCE ; KIND ; VALUE BEL`. NONCE is
drawn anew for each session and lives in the shell's unexported variables, so that no program which
runs there, and no file that is shown, can forge one. In VALUE a backslash, ESC, BEL, a line feed
and a carriage return are written `\\`, `\e`, `\a`, `\n`, `\r`: a terminal's line discipline passes
the rest. For example: `ESC ] 7717 ; 5f…c0 ; done ; 1;/srv/my project BEL`.

    done   the prompt comes: status and folder of the last command
    line   a line was entered at the prompt, or at a continuation of it
    start  the entered command starts
    ask    a line is for us; the shell waits for the answer
"""

import re

import msgspec

CODE = "7717"
MAX_MARK_BYTES = 256 * 1024

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MEANT = {"n": "\n", "r": "\r", "e": "\x1b", "a": "\a"}


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One mark: its kind, and its value with escapes undone."""

    kind: str
    value: str = ""


class MarkReader:
    """Parts a shell's output into bytes for the terminal and marks for us.

    Args:
        nonce: of this session, letters and digits.
    """

    def __init__(self, nonce: str) -> None:
        self._begin = f"\x1b]{CODE};{nonce};".encode()
        self._held = b""

    def feed(self, data: bytes) -> list[bytes | Mark]:
        """Return what the output holds, in order; an unfinished mark waits for its rest."""
        data, self._held = self._held + data, b""
        out: list[bytes | Mark] = []
        at = 0
        while (begin := data.find(self._begin, at)) >= 0:
            end = data.find(b"\a", begin, begin + MAX_MARK_BYTES)
            if end < 0 and len(data) - begin < MAX_MARK_BYTES:
                self._held = data[begin:]
                return [*out, data[at:begin]] if begin > at else out
            if begin > at:
                out.append(data[at:begin])
            if end < 0:  # ours began it, so nobody is to see it: what is too long is dropped
                at = begin + len(self._begin)
                continue
            out.append(_mark(data[begin + len(self._begin) : end]))
            at = end + 1
        cut = self._may_begin(data, at)
        self._held = data[cut:]
        if cut > at:
            out.append(data[at:cut])
        return out

    def rest(self) -> bytes:
        """Return what waits at the end of the output."""
        held, self._held = self._held, b""
        return held

    def _may_begin(self, data: bytes, at: int) -> int:
        """Return where a mark may begin that is not here whole yet, else the end."""
        begin = data.rfind(b"\x1b", max(at, len(data) - len(self._begin) + 1))
        return begin if begin >= 0 and self._begin.startswith(data[begin:]) else len(data)


def _mark(data: bytes) -> Mark:
    kind, _, value = data.decode(errors="replace").partition(";")
    return Mark(kind=kind, value=_ESCAPED.sub(lambda m: _MEANT.get(m[1], m[1]), value))


def reply_text(text: str) -> str:
    """Return an answer as the shell takes it: one line, for `printf %b`."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")
