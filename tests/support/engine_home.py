"""A daemon with local models that break: turns on it, and what a fault must not leave behind."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from clawctl.client import Client, connect
from clawd.engine.worker.statefolder import BadStateError, read_header
from clawd.errors import ClawError
from clawd.paths import layout
from clawd.wire.events import Event, PromptEvaluated, TextDelta, TurnFailed, TurnStarted
from clawd.wire.models import ListLoadedModels, LoadedModel
from clawd.wire.turns import SendMessage
from tests.support.home import Home

LIMIT_S = 60.0
SETTINGS = """
[agents.plain]
tools_allow = []

[engine]
n_threads = 1
watchdog_s = {watchdog_s}
temperature = 0.0
max_tokens = {max_tokens}
prefix_cache_disk_mb = {disk_mb}
"""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A turn's events, and its failure if it failed."""

    events: list[Event]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def failed(self) -> TurnFailed:
        last = self.events[-1]
        assert isinstance(last, TurnFailed), last
        return last

    @property
    def conversation(self) -> str:
        (started,) = (event for event in self.events if isinstance(event, TurnStarted))
        return started.conversation_id

    @property
    def evaluated(self) -> PromptEvaluated:
        (event,) = (event for event in self.events if isinstance(event, PromptEvaluated))
        return event


class EngineHome:
    """A home whose local models are files of its own folder, and the embedded one."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.models = home.path / "models"
        self.temporary = home.path.parent / "tmp"
        self.temporary.mkdir()
        home.environ["TMPDIR"] = str(self.temporary)
        self.seen: set[int] = set()

    def configure(
        self,
        more: str = "",
        *,
        watchdog_s: float = 30.0,
        max_tokens: int = 60,
        disk_mb: int = 0,
    ) -> None:
        engine = SETTINGS.format(watchdog_s=watchdog_s, max_tokens=max_tokens, disk_mb=disk_mb)
        self.home.configure(provider="local", tables=engine + more)
        self.models.mkdir()

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        with connect(layout(self.home.environ).socket) as client:
            yield client

    def ask(self, text: str, model: str, conversation: str = "", agent: str = "plain") -> Ended:
        """Make a turn and return all of it."""
        with self.client() as client:
            return drained(client, send(text, model, conversation, agent))

    def assert_embedded_answers(self) -> None:
        """Make sure that the embedded model answers, and calls a tool for it."""
        assert "84" in self.ask("what is 12 times 7?", "embedded", agent="").text

    def loaded(self) -> dict[str, LoadedModel]:
        """Return the models that have a worker, by name."""
        with self.client() as client:
            lines = client.call(ListLoadedModels()).items
        self.seen |= {line.pid for line in lines if line.pid}
        return {line.name: line for line in lines if line.pid}

    def children(self) -> set[int]:
        """Return all processes below the daemon."""
        pid = self.home.pid()
        assert pid is not None
        found = {child.pid for child in psutil.Process(pid).children(recursive=True)}
        self.seen |= found
        return found

    def left_behind(self) -> list[str]:
        """Return what there is that no loaded model needs; empty is right."""
        workers = {line.pid for line in self.loaded().values()}
        found = [f"process {pid}" for pid in self.children() - workers]
        found += [f"temporary {path.name}" for path in self.temporary.iterdir()]
        for path in self.home.path.rglob("*"):
            if path.suffix in {".part", ".tmp"} or "core" in path.name:
                found.append(f"file {path.relative_to(self.home.path)}")
            if path.is_socket() and path != layout(self.home.environ).socket:
                found.append(f"socket {path.relative_to(self.home.path)}")
        return found

    def states(self) -> list[Path]:
        """Return the files of kept sequences: of conversations, and of what they begin with."""
        return sorted(self.home.path.rglob("*.kv"))

    def conversation_states(self) -> list[Path]:
        """Return the whole files of kept conversations.

        What several begin with is kept beside them, once the daemon had a quiet moment for it.
        """
        found = []
        for path in self.states():
            with contextlib.suppress(BadStateError):
                if read_header(path).parts:
                    found.append(path)
        return found


def send(text: str, model: str, conversation: str = "", agent: str = "plain") -> SendMessage:
    """Return the request for a turn."""
    return SendMessage(text=text, model=model, conversation_id=conversation, agent=agent)


def drained(client: Client, request: SendMessage) -> Ended:
    """Make a turn on this connection."""
    events: list[Event] = []
    with contextlib.suppress(ClawError):
        events.extend(client.stream(request))
    return Ended(events=events)


class Running:
    """A turn in a thread of its own; `end` waits for what becomes of it."""

    def __init__(self, client: Client, request: SendMessage) -> None:
        self._client = client
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(client, request))
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    @property
    def pieces(self) -> int:
        """How many pieces of text have come."""
        return sum(isinstance(event, TextDelta) for event in self._events)

    def wait_for_pieces(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.pieces >= count, LIMIT_S), self._events[-1:]

    def leave(self) -> None:
        """End the connection as a client that is gone."""
        with socket.socket(fileno=os.dup(self._client.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def end(self) -> Ended:
        """Wait for the turn's end and return all of it."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        return Ended(events=self._events)

    def _run(self, client: Client, request: SendMessage) -> None:
        with contextlib.suppress(ClawError):
            for event in client.stream(request):
                with self._changed:
                    self._events.append(event)
                    self._changed.notify_all()
