"""The worker's loop over a socket, with the fake backend in place of a model."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from clawd.engine.protocol import (
    CancelGeneration,
    ChatMessage,
    CountTokens,
    FrameBuffer,
    FromWorker,
    Generate,
    GenerationDone,
    GenerationFailed,
    Load,
    ModelConfig,
    ModelInfo,
    ModelReady,
    Ping,
    Pong,
    Quit,
    Sampling,
    TokenCounts,
    Tokens,
    ToWorker,
    decode_from_worker,
    encode,
)
from clawd.engine.worker.grammar import GrammarPlanner
from clawd.engine.worker.loop import LoadedEngine, Worker
from clawd.engine.worker.planner import Planner
from clawd.engine.worker.prompt import PromptBuilder
from clawd.engine.worker.queries import Answers
from clawd.engine.worker.scheduler import Scheduler
from clawd.engine.worker.states import StateStore
from clawd.engine.worker.template import ChatTemplate
from clawd.errors import ProtocolError
from tests.engine.worker.fake_backend import FakeBackend
from tests.engine.worker.test_prompt import TEMPLATE, Characters
from tests.support.grammar_text import compiled

LIMIT_S = 60.0
MAX_UNSENT_BYTES = 4096
INFO = ModelInfo(
    alias="fake",
    architecture="fake",
    description="",
    n_params=1,
    size_bytes=1,
    n_ctx=256,
    n_ctx_train=256,
    n_vocab=256,
    n_parallel=2,
    chat_template=TEMPLATE,
    load_ms=0.0,
)


def fake_engine(load: Load) -> LoadedEngine:
    return engine_over(FakeBackend(n_ctx=load.config.n_ctx), StateStore())


def engine_over(backend: FakeBackend, store: StateStore) -> LoadedEngine:
    scheduler = Scheduler(
        backend,
        Planner(backend, prefill_chunk=8, speculates=True),
        n_parallel=2,
        max_queue=2,
        store=store,
    )
    prompts = PromptBuilder(Characters(), ChatTemplate(TEMPLATE), max_characters=20000)
    return LoadedEngine(
        info=INFO,
        answers=Answers(Characters(), prompts, scheduler.histories),
        grammars=GrammarPlanner(compiled),
        scheduler=scheduler,
    )


class Daemon:
    """The other end: a worker in a thread, and what it said."""

    def __init__(self, load_engine: Callable[[Load], LoadedEngine] = fake_engine) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(LIMIT_S)
        self.errors: list[ProtocolError] = []
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.worker = Worker(theirs, load_engine, max_unsent_bytes=MAX_UNSENT_BYTES)
        self._theirs = theirs
        self._incoming = FrameBuffer()
        self._events: list[FromWorker] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.worker.run()
        except ProtocolError as error:
            self.errors.append(error)
        finally:
            self._theirs.close()

    def send(self, *frames: ToWorker) -> None:
        self.socket.sendall(b"".join(map(encode, frames)))

    def receive(self) -> FromWorker:
        while not self._events:
            data = self.socket.recv(1 << 16)
            assert data, "the worker closed the socket"
            self._events += map(decode_from_worker, self._incoming.feed(data))
        return self._events.pop(0)

    def ends(self) -> bool:
        self.thread.join(LIMIT_S)
        return not self.thread.is_alive()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.socket.close()
    assert made.ends()


def load(n_ctx: int = 256) -> Load:
    return Load(config=ModelConfig(path="fake", n_ctx=n_ctx))


def generate(number: int, text: str = "hi", max_tokens: int = 5) -> Generate:
    return Generate(
        id=number,
        messages=(ChatMessage(role="user", content=text),),
        sampling=Sampling(temperature=0, max_tokens=max_tokens),
    )


def test_frames_in_one_write_are_all_answered(daemon: Daemon) -> None:
    daemon.send(load(), Ping(id=1), CountTokens(id=2, texts=("abc", "")), generate(3))
    assert daemon.receive() == ModelReady(info=INFO)
    assert daemon.receive() == Pong(id=1, running=0, queued=0, cached_sequences=0)
    assert daemon.receive() == TokenCounts(id=2, counts=(2, 0))
    events = [daemon.receive()]
    while not isinstance(events[-1], GenerationDone):
        events.append(daemon.receive())
    assert sum(event.count for event in events if isinstance(event, Tokens)) == 5


def test_a_frame_may_arrive_byte_by_byte(daemon: Daemon) -> None:
    for byte in encode(load()) + encode(Ping(id=1)):
        daemon.socket.sendall(bytes([byte]))
    assert isinstance(daemon.receive(), ModelReady)
    assert isinstance(daemon.receive(), Pong)


def test_pings_are_answered_while_a_generation_runs(daemon: Daemon) -> None:
    daemon.send(load(200_000), generate(1, max_tokens=100_000))
    while not isinstance(daemon.receive(), Tokens):
        pass
    daemon.send(Ping(id=9))
    event = daemon.receive()
    while not isinstance(event, Pong):
        event = daemon.receive()
    assert event.running == 1


def test_a_prompt_too_long_and_a_full_queue_are_answered(daemon: Daemon) -> None:
    daemon.send(load(), generate(1, "x" * 300), generate(2, "x" * 30000))
    daemon.receive()
    for number in (1, 2):
        failed = daemon.receive()
        assert isinstance(failed, GenerationFailed)
        assert (failed.id, failed.code) == (number, "context_full")
    daemon.send(*(generate(number) for number in range(10, 15)))
    codes: list[str] = []
    while len(codes) < 5:
        event = daemon.receive()
        if isinstance(event, GenerationFailed):
            codes.append(event.code)
        elif isinstance(event, GenerationDone):
            codes.append("done")
    assert sorted(codes) == ["busy", "done", "done", "done", "done"]


def test_a_daemon_that_does_not_read_stops_the_model(daemon: Daemon) -> None:
    daemon.send(load(10_000_000), generate(1, max_tokens=0))
    assert isinstance(daemon.receive(), ModelReady)
    deadline = time.monotonic() + LIMIT_S
    while daemon.worker.unsent_bytes < MAX_UNSENT_BYTES:
        assert time.monotonic() < deadline
        daemon.thread.join(0.01)
    # Time in which a model that did not rest would go on.
    daemon.thread.join(0.2)
    assert daemon.worker.unsent_bytes < MAX_UNSENT_BYTES + 1024
    daemon.send(CancelGeneration(id=1))
    event = daemon.receive()
    while not isinstance(event, GenerationDone):
        event = daemon.receive()
    assert event.reason == "cancelled"


def test_a_quiet_moment_is_used_to_copy_and_a_request_is_answered_after_it() -> None:
    backend, store = FakeBackend(n_ctx=10_000_000), StateStore(1 << 20)
    daemon = Daemon(lambda _: engine_over(backend, store))
    daemon.send(load(), generate(1, "x" * 60))
    while not isinstance(daemon.receive(), GenerationDone):
        pass
    deadline = time.monotonic() + LIMIT_S
    while not backend.saved:
        assert time.monotonic() < deadline
        daemon.thread.join(0.01)
    # Without an end, so that no second quiet moment follows.
    daemon.send(Ping(id=1), generate(2, "y" * 60, max_tokens=0))
    assert daemon.receive() == Pong(id=1, running=0, queued=0, cached_sequences=1)
    while not isinstance(daemon.receive(), Tokens):
        pass
    daemon.socket.close()
    assert daemon.ends()
    assert backend.saved == 1


def test_quit_ends_the_worker(daemon: Daemon) -> None:
    daemon.send(load(), generate(1), Quit())
    assert daemon.ends()
    assert daemon.errors == []


def test_a_closed_socket_ends_the_worker(daemon: Daemon) -> None:
    daemon.send(load(), generate(1, max_tokens=0))
    daemon.socket.close()
    assert daemon.ends()
    assert daemon.errors == []


@pytest.mark.parametrize(
    "data",
    [
        encode(Ping(id=1)),
        encode(load()) + encode(load()),
        b"\x00\x00\x00\x01\xc1",
        b"\xff\xff\xff\xff",
    ],
)
def test_what_is_no_proper_frame_ends_the_worker(daemon: Daemon, data: bytes) -> None:
    daemon.socket.sendall(data)
    assert daemon.ends()
    assert len(daemon.errors) == 1
