"""What is typed while an answer comes: neither echoed into it nor lost, and never an approval.

It is read as bytes from the terminal, and the next prompt gets it. Before a question is asked the
terminal is as it was, and what was typed until then is put aside: an answer is typed after it.
Whole lines are offered to the turn that runs, whose model reads them after its calls; what the turn
ends without is typed ahead still.
"""

import contextlib
import os
import re
import select
import termios
from collections.abc import Callable
from typing import Any

from clawctl.request_follower import View
from clawd.errors import UnreachableError
from clawd.wire.events import Event, MessageJoined, TurnFinished, TurnStarted
from clawd.wire.turns import SteerTurn

READ_BYTES = 65_536
MAX_BYTES = 1024 * 1024
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
        """Give the terminal back as it was; whoever reads it next may want whole lines."""
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
                found += data[: MAX_BYTES - len(self._typed) - len(found)]
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
            with contextlib.suppress(UnreachableError):  # whoever follows the turn learns it
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

    def __init__(self, view: View, typed: TypeAhead, steering: Steering | None = None) -> None:
        self._view = view
        self._typed = typed
        self._steering = steering

    @property
    def conversation_id(self) -> str:
        """The view's."""
        return self._view.conversation_id

    @conversation_id.setter
    def conversation_id(self, value: str) -> None:
        self._view.conversation_id = value

    @property
    def context_size(self) -> int:
        """The view's."""
        return self._view.context_size

    @context_size.setter
    def context_size(self, value: int) -> None:
        self._view.context_size = value

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
