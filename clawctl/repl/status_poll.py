"""Asks the daemon how it is while a prompt waits, over a connection of its own."""

import threading
from collections.abc import Callable
from typing import TypeVar

from clawctl.client import Client
from clawd.errors import ClawError
from clawd.wire.conversations import ConversationLine, ShowConversation
from clawd.wire.daemon import Status, StatusReport
from clawd.wire.method import Method

PERIOD_S = 1.5
ANSWER_LIMIT_S = 5.0
GONE = "no daemon"

R = TypeVar("R")


class Pulse:
    """What was last heard of the daemon. One thread, that rests while no prompt waits.

    Attributes:
        report: the last one, None before the first.
        trouble: why there is no newer one, "" when there is.
        conversation: the one that was asked about last, None when it is unknown.
    """

    def __init__(self, connect: Callable[[], Client], conversation_id: Callable[[], str]) -> None:
        self._connect = connect
        self._conversation_id = conversation_id
        self._client: Client | None = None
        self._lock = threading.Lock()
        self._is_wanted = threading.Event()
        self._ended = threading.Event()
        self._on_change: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self.report: StatusReport | None = None
        self.trouble = ""
        self.conversation: ConversationLine | None = None

    def watch(self, on_change: Callable[[], None]) -> None:
        """Ask from now on, at once and then and again; `on_change` is called in the thread."""
        self._on_change = on_change
        self._is_wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
            self._thread.start()

    def rest(self) -> None:
        """Ask no more until the next `watch`."""
        self._is_wanted.clear()

    def close(self) -> None:
        """End; a question that is under way is left to itself."""
        self._ended.set()
        self._is_wanted.set()

    def ask(self, params: Method[R]) -> R | None:
        """Return the answer, None when there is none soon; never starts a daemon."""
        with self._lock:
            try:
                if self._client is not None and not self._client.is_alive():
                    self._drop()
                if self._client is None:
                    self._client = self._connect()
                return self._client.call(params, limit_s=ANSWER_LIMIT_S)
            except ClawError as error:
                if error.code == "unreachable":
                    self._drop()
                return None

    def _run(self) -> None:
        while not self._ended.is_set():
            self._is_wanted.wait()
            if self._beat():
                self._on_change()
            self._ended.wait(PERIOD_S)
        with self._lock:
            self._drop()

    def _beat(self) -> bool:
        """Ask once; tell whether anything that is shown has changed."""
        before = self.report, self.trouble, self.conversation
        report = self.ask(Status())
        self.trouble = GONE if report is None else ""
        self.report = report or self.report
        conversation_id = self._conversation_id()
        known = self.conversation
        if report is not None and conversation_id and not (known and known.title):
            found = self.ask(ShowConversation(conversation_id=conversation_id, limit=1))
            known = found.conversation if found is not None else None
        is_same = known is not None and known.id == conversation_id
        self.conversation = known if is_same else None
        return before != (self.report, self.trouble, self.conversation)

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
