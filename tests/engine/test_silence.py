"""A worker's silence: what counts as a sign of life, and as time without one."""

import asyncio
import signal
import time
from collections.abc import Callable

import msgspec
from typing_extensions import override

from clawd.engine.client import Silence, WorkerClient
from clawd.engine.process import WorkerDeath, WorkerProcess
from clawd.engine.protocol import (
    FromWorker,
    Generate,
    GenerationStarted,
    Load,
    ModelInfo,
    ModelReady,
    Ping,
    Pong,
    Tokens,
    ToWorker,
)
from tests.support.engines import FAST, LIMIT_S, model, prompt

STEP_S = 0.3
SETTINGS = msgspec.structs.replace(
    FAST, step_timeout_s=STEP_S, template_timeout_s=LIMIT_S, ping_interval_s=0.01
)
INFO = ModelInfo(
    alias="near",
    architecture="none",
    description="",
    n_params=1,
    size_bytes=1,
    n_ctx=1,
    n_ctx_train=1,
    n_vocab=1,
    n_parallel=1,
    chat_template="",
    load_ms=0.0,
)


class Near(WorkerProcess):
    """A worker within this process: it never gets less of a processor than who watches it.

    A frame of it is read some rounds of the loop after it has come.
    """

    def __init__(self, *, answers_pings: bool) -> None:
        self._answers_pings = answers_pings
        self._said: asyncio.Queue[FromWorker | None] = asyncio.Queue()
        self.was_overdue = False

    @property
    @override
    def pid(self) -> int:
        return 0

    def say(self, frame: FromWorker) -> None:
        self._said.put_nowait(frame)

    @override
    def post(self, *frames: ToWorker) -> None:
        for frame in frames:
            match frame:
                case Load():
                    self.say(ModelReady(info=INFO))
                case Generate():
                    self.say(
                        GenerationStarted(id=frame.id, tokens=1, cached=0, elapsed_ms=1.0, n_ctx=1)
                    )
                case Ping() if self._answers_pings:
                    self.say(Pong(id=frame.id, running=1, queued=0, cached_sequences=0))
                case _:
                    pass

    @override
    async def flush(self) -> None:
        return

    @override
    async def read(self, take: Callable[[list[FromWorker]], None]) -> None:
        while frame := await self._said.get():
            for _ in range(5):
                await asyncio.sleep(0)
            take([frame])

    @override
    async def collect_stderr(self) -> None:
        return

    @override
    def stderr_lines(self) -> tuple[str, ...]:
        return ()

    @override
    def cpu_s(self) -> float:
        return 0.0

    @override
    def kill(self) -> None:
        self._said.put_nowait(None)

    @override
    async def finish(self, grace_s: float) -> int:
        return -signal.SIGKILL


class Watched:
    """A client of such a worker, and the one answer that runs on it."""

    def __init__(self, worker: Near) -> None:
        self.worker = worker
        self.deaths: list[WorkerDeath] = []
        self._client = WorkerClient(worker, model(), SETTINGS, self.deaths.append)
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Watched":
        self._running = asyncio.create_task(self._client.run())
        await self._client.load()
        self._events = self._client.generate(msgspec.structs.replace(prompt("x"), id=1))
        assert isinstance(await anext(self._events), GenerationStarted)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._events.aclose()
        self.worker.kill()
        assert self._running is not None
        async with asyncio.timeout(LIMIT_S):
            await self._running

    def next(self) -> "asyncio.Task[object]":
        """Return the wait for the next event."""

        async def wait() -> object:
            return await anext(self._events)

        return asyncio.create_task(wait())


async def test_an_answered_ping_is_a_sign_of_life() -> None:
    async with Watched(Near(answers_pings=True)) as watched:
        waiting = watched.next()
        assert not (await asyncio.wait({waiting}, timeout=5 * STEP_S))[0]
        watched.worker.say(Tokens(id=1, text="at last", count=1))
        assert await waiting == Tokens(id=1, text="at last", count=1)
    assert [death.cause for death in watched.deaths] == ["exited"]


async def test_no_answer_is_none() -> None:
    async with Watched(Near(answers_pings=False)) as watched:
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(watched.next(), return_exceptions=True)
    assert [death.cause for death in watched.deaths] == ["step"]


async def test_time_in_which_the_watcher_stood_still_is_no_silence_of_the_worker() -> None:
    async with Watched(Near(answers_pings=False)) as watched:
        waiting = watched.next()
        await asyncio.sleep(0)
        time.sleep(2 * STEP_S)
        watched.worker.say(Tokens(id=1, text="meanwhile", count=1))
        assert await waiting == Tokens(id=1, text="meanwhile", count=1)
    assert [death.cause for death in watched.deaths] == ["exited"]


def test_silence_is_counted_look_by_look() -> None:
    silence = Silence()
    assert silence.look(10.0, 9.5, 1.0) == 0.5
    assert silence.look(11.0, 9.5, 1.0) == 1.5
    assert silence.look(90.0, 9.5, 1.0) == 2.5
    assert silence.look(90.0, 9.5, 0.0) == 2.5
    assert silence.look(91.0, 90.5, 1.0) == 0.5
