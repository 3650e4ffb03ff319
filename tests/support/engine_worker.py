"""A real worker process with a blocking client, for tests and benchmarks of the engine."""

import contextlib
import itertools
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from clawd.engine.protocol import (
    ChatMessage,
    FrameBuffer,
    FromWorker,
    Generate,
    GenerationDone,
    GenerationFailed,
    GenerationStarted,
    Grammar,
    Load,
    LoadFailed,
    ModelConfig,
    ModelReady,
    Quit,
    Sampling,
    TemplateNotes,
    Tokens,
    ToWorker,
    Warmth,
    decode_from_worker,
    encode,
)

LIMIT_S = 60.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one generation, and when each came (monotonic seconds)."""

    events: tuple[FromWorker, ...]
    times: tuple[float, ...]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Tokens))

    @property
    def done(self) -> GenerationDone:
        last = self.events[-1]
        assert isinstance(last, GenerationDone), last
        return last

    @property
    def failed(self) -> GenerationFailed:
        last = self.events[-1]
        assert isinstance(last, GenerationFailed), last
        return last

    @property
    def evaluated(self) -> GenerationStarted:
        (event,) = (event for event in self.events if isinstance(event, GenerationStarted))
        return event


class WorkerClient:
    """One worker process; use as a context manager."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.socket = ours
        self.process = subprocess.Popen(
            [sys.executable, "-m", "clawd.engine.worker", "--fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        theirs.close()
        self._incoming = FrameBuffer()
        self._events: deque[tuple[float, FromWorker]] = deque()
        self._waiting: dict[int, deque[tuple[float, FromWorker]]] = {}
        self._taken: dict[int, list[tuple[float, FromWorker]]] = {}
        self._ids = itertools.count(1)

    def __enter__(self) -> "WorkerClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LIMIT_S)
        self.process.kill()
        self.process.communicate()

    def load(self, config: ModelConfig) -> ModelReady | LoadFailed:
        self.send(Load(config=config))
        event = self.receive()
        assert isinstance(event, ModelReady | LoadFailed), event
        return event

    def send(self, frame: ToWorker) -> None:
        self.socket.sendall(encode(frame))

    def quit(self) -> None:
        """Let it save what it keeps, and end."""
        self.send(Quit(save_limit_s=LIMIT_S))
        assert self.process.wait(LIMIT_S) == 0

    def receive(self, limit_s: float = LIMIT_S) -> FromWorker:
        """Return the next event.

        Raises:
            TimeoutError: none came.
            EOFError: the worker closed the socket.
        """
        return self._receive(time.monotonic() + limit_s)[1]

    def start(
        self,
        messages: tuple[ChatMessage, ...] | str,
        sampling: Sampling | None = None,
        grammar: Grammar | None = None,
        tools: tuple[dict[str, Any], ...] = (),
    ) -> int:
        """Send a request and return its id."""
        if isinstance(messages, str):
            messages = (ChatMessage(role="user", content=messages),)
        number = next(self._ids)
        self.send(
            Generate(
                id=number,
                messages=messages,
                sampling=sampling or Sampling(temperature=0),
                grammar=grammar or Grammar(),
                tools=tools,
            )
        )
        return number

    def finish(self, number: int, limit_s: float = LIMIT_S) -> Answer:
        """Wait for a generation's end; return all its events. Those of others wait for them."""
        for _ in self._follow(number, limit_s):
            pass
        return self._answer(number)

    def stream(self, number: int, limit_s: float = LIMIT_S) -> Iterator[Answer]:
        """Yield all that came of a generation, after each of its events."""
        for _ in self._follow(number, limit_s):
            yield self._answer(number)

    def ask(
        self,
        messages: tuple[ChatMessage, ...] | str,
        sampling: Sampling | None = None,
        grammar: Grammar | None = None,
        tools: tuple[dict[str, Any], ...] = (),
    ) -> Answer:
        """Send a request and wait for its end."""
        return self.finish(self.start(messages, sampling, grammar, tools))

    def _follow(self, number: int, limit_s: float) -> Iterator[None]:
        """Receive a generation's events until its last, yielding after each."""
        deadline = time.monotonic() + limit_s
        while True:
            at, event = self._next_of(number, deadline)
            self._taken.setdefault(number, []).append((at, event))
            yield
            if isinstance(event, GenerationDone | GenerationFailed):
                return

    def _next_of(self, number: int, deadline: float) -> tuple[float, FromWorker]:
        waiting = self._waiting.setdefault(number, deque())
        while not waiting:
            at, event = self._receive(deadline)
            if isinstance(event, TemplateNotes):
                continue
            assert not isinstance(event, ModelReady | LoadFailed | Warmth), event
            self._waiting.setdefault(event.id, deque()).append((at, event))
        return waiting.popleft()

    def _answer(self, number: int) -> Answer:
        taken = self._taken[number]
        return Answer(events=tuple(event for _, event in taken), times=tuple(at for at, _ in taken))

    def _receive(self, deadline: float) -> tuple[float, FromWorker]:
        while not self._events:
            # What has come is taken however late it is.
            left = max(deadline - time.monotonic(), 0.0)
            if not select.select([self.socket], [], [], left)[0]:
                raise TimeoutError("the worker said nothing in time")
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError("the worker closed the socket")
            now = time.monotonic()
            self._events += [(now, decode_from_worker(body)) for body in self._incoming.feed(data)]
        return self._events.popleft()


def is_alive(pid: int) -> bool:
    """Return whether a process runs (one that waits to be reaped does not)."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
