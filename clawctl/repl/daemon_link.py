"""The way to the daemon, and what goes on beside the start: first words, imports for later.

Waits for a request that may take long, and shows that it goes on.
"""

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from typing_extensions import override

from clawctl.app import App
from clawctl.client import LOST, Client, Stream, is_nobody, reason_of
from clawctl.render import Palette, note
from clawctl.turn import CLEAR_LINE, FRAMES
from clawd import __version__
from clawd.errors import UnreachableError
from clawd.wire.daemon import Status, StatusReport
from clawd.wire.events import ModelLoading
from clawd.wire.safe_text import visible_line

RETRIES_S = (0.1, 0.2, 0.4, 0.8, 1.5, 2.0)


class DaemonLink:
    """One connection at a time; a new one is told of.

    Attributes:
        gave_up: the daemon was looked for the last time, and nobody answered.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._client: Client | None = None
        self._pid = 0
        self.gave_up = False

    def client(self) -> Client:
        """Return a living connection; one that was lost is looked for, for a few seconds.

        Raises:
            ClawError: no daemon answers, or it refuses.
        """
        if self._client is not None and not self._client.is_alive():
            self.drop()
        if self._client is None:
            self._client = self._app.client() if not self._pid else self._again()
            self._tell_of(self._client)
        return self._client

    def drop(self) -> None:
        """Close the connection; what it asked for is cancelled by that."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _again(self) -> Client:
        self.gave_up = False
        for number, wait_s in enumerate(RETRIES_S):
            try:
                return self._app.client()
            except UnreachableError as error:
                if not is_nobody(error) and reason_of(error) != LOST:
                    raise
                if not number:
                    note("● the daemon does not answer; looking for it for a few seconds")
                time.sleep(wait_s)
        self.gave_up = True
        client = self._app.client()
        self.gave_up = False
        return client

    def _tell_of(self, client: Client) -> None:
        welcome = client.welcome
        if self._pid and welcome.pid != self._pid:
            note(f"● the daemon was restarted; connected to the new one (pid {welcome.pid})")
        if welcome.version != __version__ and welcome.pid != self._pid:
            note(
                f"● the daemon is clawd {welcome.version}, this is clawctl {__version__}: "
                "restart the older one when you can"
            )
        self._pid = welcome.pid


class Opening(threading.Thread):
    """Connects and asks how the daemon is, while something else goes on."""

    def __init__(self, link: DaemonLink) -> None:
        super().__init__(name="opening", daemon=True)
        self._link = link
        self._report: StatusReport | None = None
        self._error: BaseException | None = None
        self.start()

    @override
    def run(self) -> None:
        """Connect and ask."""
        try:
            self._report = self._link.client().call(Status())
        except BaseException as error:  # noqa: BLE001 it is raised again where it is waited for
            self._error = error

    def result(self) -> StatusReport:
        """Wait for the end and return the report, or raise what happened."""
        self.join()
        if self._report is None:
            assert self._error is not None
            raise self._error
        return self._report


def prepare_drawing() -> None:
    """Import in the background what the first answer is drawn with; for when a prompt is up."""
    threading.Thread(target=_import_drawing, name="drawing", daemon=True).start()


def _import_drawing() -> None:
    importlib.import_module("clawctl.repl.plain_view").prepare()


TICK_S = 0.1
SHOWN_AFTER_S = 0.3
WHAT_LIMIT = 60

R = TypeVar("R")


def wait_long(stream: Stream[R], what: str, on_tick: Callable[[], None]) -> R:
    """Return the result of a request; `what` says what goes on.

    Raises:
        ClawError: the request failed.
        KeyboardInterrupt: Ctrl-C; the caller drops the connection, which cancels the request.
    """
    told = visible_line(what, WHAT_LIMIT)
    moves = sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"
    moves = moves and os.environ.get("CLAWD_PLAIN", "") in {"", "0"}
    palette = Palette.of(sys.stderr)
    started, frame, is_drawn, share = time.monotonic(), 0, False, ""
    try:
        while not stream.is_done:
            event = stream.wait(TICK_S)
            on_tick()
            if isinstance(event, ModelLoading):
                share = f" {100 * event.loaded_bytes // max(event.total_bytes, 1)}%"
            seconds = time.monotonic() - started
            if seconds < SHOWN_AFTER_S:
                continue
            if moves:
                frame += 1
                drawn = palette.dim(f"{FRAMES[frame % len(FRAMES)]} {told}{share} {seconds:.0f} s")
                sys.stderr.write(f"{CLEAR_LINE}{drawn}")
                sys.stderr.flush()
            elif not is_drawn:
                note(f"{told} …")
            is_drawn = True
    finally:
        if is_drawn and moves:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
    return stream.result
