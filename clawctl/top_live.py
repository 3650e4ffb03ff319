"""The live screen of `clawctl top`: looks, draws, takes keys. Leaves the terminal as it was."""

import contextlib
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live

from clawctl.app import App
from clawctl.client import Client
from clawctl.screen import plain
from clawctl.top import CALL_LIMIT_S, Snapshot, look
from clawctl.top_view import screen
from clawd.errors import ClawError
from clawd.wire.methods import CancelTurn, SetEstop
from clawd.wire.safe_text import visible_line
from clawd.wire.turns import TurnLine

KEY_BYTES = 64
_KEY = re.compile(r"\x1b[\[O].|.", re.DOTALL)
UP, DOWN = {"\x1b[A", "\x1bOA", "k"}, {"\x1b[B", "\x1bOB", "j"}
QUESTIONS = {
    "x": "Cancel the chosen turn? y for yes, any other key for no.",
    "s": "Set the EMERGENCY STOP? y for yes, any other key for no.",
}


class LiveTop:
    """One run of the live screen."""

    def __init__(self, app: App, interval_s: float) -> None:
        self._app = app
        self._interval_s = interval_s
        self._client: Client | None = None
        self._now: Snapshot | None = None
        self._before: Snapshot | None = None
        self._chosen = ""
        self._message = ""
        self._asked = ""
        self._meant = ""
        self._was_away = False

    def run(self) -> None:
        """Draw until the person leaves.

        Raises:
            ClawError: there was no daemon at all; one that goes away later is waited for.
        """
        self._client = self._app.client()
        console = Console(file=plain(sys.stdout), highlight=False, markup=False, emoji=False)
        try:
            with (
                _keys() as keyboard,
                Live(console=console, screen=True, auto_refresh=False) as live,
            ):
                self._loop(console, live, keyboard)
        finally:
            self._drop()

    def _loop(self, console: Console, live: Live, keyboard: int) -> None:
        due = 0.0
        while True:
            if time.monotonic() >= due:
                self._look()
                due = time.monotonic() + self._interval_s
            if self._now is not None:
                live.update(
                    screen(
                        self._now,
                        self._before,
                        chosen=self._chosen,
                        message=self._message,
                        width=console.width,
                    ),
                    refresh=True,
                )
            wait_s = max(due - time.monotonic(), 0.0)
            if select.select([keyboard], [], [], wait_s)[0]:
                typed = os.read(keyboard, KEY_BYTES).decode(errors="replace")
                if not typed or not all(map(self._key, _KEY.findall(typed))):
                    return

    def _look(self) -> None:
        try:
            if self._client is None:
                self._client = self._app.running_client()
            self._before, self._now = self._now, look(self._client)
        except ClawError as error:
            if error.code == "unreachable":
                self._drop()
            self._message = visible_line(f"No answer, trying again: {error.message}")
            self._was_away = True
            return
        if self._was_away:
            self._was_away, self._message = False, "The daemon is back."
        self._keep_choice()

    def _keep_choice(self) -> None:
        ids = [turn.turn_id for turn in self._turns()]
        if self._chosen not in ids:
            self._chosen = ids[0] if ids else ""

    def _turns(self) -> tuple[TurnLine, ...]:
        return self._now.turns.items if self._now is not None else ()

    def _key(self, key: str) -> bool:
        """Take a key; False to leave."""
        if self._asked:
            asked, self._asked, self._message = self._asked, "", ""
            if key in {"y", "Y"}:
                self._do(asked)
            return True
        self._message = ""
        if key in {"q", "Q", "\x03", "\x04", "\x1b"}:
            return False
        if key in UP or key in DOWN:
            self._move(-1 if key in UP else 1)
        elif key in QUESTIONS and (key != "x" or self._chosen):
            # The yes is for this one: another may be chosen by the time it comes.
            self._asked, self._meant, self._message = key, self._chosen, QUESTIONS[key]
        return True

    def _move(self, by: int) -> None:
        ids = [turn.turn_id for turn in self._turns()]
        if ids:
            at = ids.index(self._chosen) if self._chosen in ids else 0
            self._chosen = ids[max(0, min(at + by, len(ids) - 1))]

    def _do(self, asked: str) -> None:
        if self._client is None:
            return
        try:
            if asked == "s":
                self._client.call(SetEstop(reason="clawctl top"), limit_s=CALL_LIMIT_S)
                self._message = "EMERGENCY STOP is set. Clear it with: clawctl estop --clear"
                return
            self._message = "That turn has ended; nothing was cancelled."
            for turn in self._turns():
                if turn.turn_id == self._meant:
                    params = CancelTurn(conversation_id=turn.conversation_id)
                    self._message = self._client.call(params, limit_s=CALL_LIMIT_S).message
        except ClawError as error:
            self._message = visible_line(f"{error.message} {error.hint}")

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Let single keys through, without echo; afterwards all is as it was."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
