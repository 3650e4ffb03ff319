"""Streams on one worker of which one is cancelled: what comes between that and the next one's turn.

Used by the tests, which count steps, and by the benchmark, which takes times.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from clawd.engine.protocol import (
    CancelGeneration,
    FromWorker,
    GenerationDone,
    ModelConfig,
    ModelReady,
    Ping,
    Pong,
    PromptStep,
    Sampling,
    Tokens,
)
from tests.support.engine_worker import LIMIT_S, WorkerClient

Place = Literal["decode", "prefill", "queue"]

STREAMS = 4
PREFILL_TOKENS = 4000
# What is evaluated of a prompt before it is cancelled amid it, at least.
BEFORE_CANCEL = 1300
ENDLESS = Sampling(temperature=0)
_WORDS = ["the", "river", "runs", "under", "the", "green", "bridge", "at", "seven"]
_STEPS_BEFORE = 8


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """What one cancel brought about.

    Attributes:
        before: events from the cancel to the cancelled one's end, which is not among them.
        after: events from there to the newcomer's first; None for one cancelled in the queue.
        elapsed_ms: from the cancel to the cancelled one's end, with which its place is free.
        step_ms: a step's time just before; the mean of some, as several may be read at once.
        done: the cancelled one's end.
        processed: tokens of the cancelled one's prompt that were evaluated.
    """

    before: list[FromWorker]
    after: list[FromWorker] | None
    elapsed_ms: float
    step_ms: float
    done: GenerationDone
    processed: int

    def steps(self, running: list[int]) -> int:
        """Return the most steps that a running stream took before the cancelled one's end."""
        ids = [event.id for event in self.before if isinstance(event, Tokens)]
        return max(ids.count(number) for number in running)


class Streams:
    """STREAMS endless answers on one worker; ends with the worker."""

    def __init__(
        self,
        worker: WorkerClient,
        model: Path,
        *,
        threads: int = 1,
        prefill_chunk: int = 128,
        prefill_tokens: int = PREFILL_TOKENS,
    ) -> None:
        self._worker = worker
        self._prefill_tokens = prefill_tokens
        loaded = worker.load(
            ModelConfig(
                path=str(model),
                # Beyond what any round takes, so that no stream ends by itself.
                n_ctx=4 * prefill_tokens,
                n_threads=threads,
                n_parallel=STREAMS + 1,
                prefill_chunk=prefill_chunk,
                speculation="off",
            )
        )
        assert isinstance(loaded, ModelReady), loaded
        self._events: list[tuple[float, FromWorker]] = []
        self._chance = random.Random(1)
        self._pings = 0
        self._rounds = 0
        self.running = [self._start(f"stream {number}") for number in range(STREAMS)]
        for number in self.running:
            self._until(partial(_is_token_of, number=number))

    def cancel(self, place: Place, *, is_stopped: bool) -> Cancelled:
        """Cancel one that decodes, one amid its prompt or one that waits, and let a newcomer in.

        Args:
            place: where the cancelled one is.
            is_stopped: hold the worker until the cancel is in its socket, so that no event that
                was on its way counts.
        """
        self._rounds += 1
        # The place beside the streams is taken by the one that is cancelled, or by one more.
        victim = first = self._start(
            self._long_prompt() if place == "prefill" else f"first {self._rounds}"
        )
        if place == "queue":
            victim = self._start(f"waits {self._rounds}")
        newcomer = self._start(f"newcomer {self._rounds}")
        self._wait_for_queue(2 if place == "queue" else 1)
        if place == "prefill":
            self._until(lambda event: _processed(event, victim) > BEFORE_CANCEL)
        else:
            self._until(partial(_is_token_of, number=first))
            self._take_steps(_STEPS_BEFORE)
        result = self._cancel(victim, None if place == "queue" else newcomer, is_stopped=is_stopped)
        for number in {first, newcomer} - {victim}:
            self._worker.send(CancelGeneration(id=number))
        self._wait_for_idle()
        return result

    def _cancel(self, victim: int, newcomer: int | None, *, is_stopped: bool) -> Cancelled:
        step_ms = self._step_ms()
        if is_stopped:
            _stop(self._worker.process.pid)
            self._drain()
        else:
            # What was waited for came at the end of a step; a cancel comes at any time.
            time.sleep(self._chance.random() * step_ms / 1000)
        begin = len(self._events)
        cancelled_at = time.monotonic()
        self._worker.send(CancelGeneration(id=victim))
        if is_stopped:
            os.kill(self._worker.process.pid, signal.SIGCONT)
        done = self._until(lambda event: _ends(event, victim))
        assert isinstance(done, GenerationDone)
        ended_at, end = self._events[-1][0], len(self._events)
        if newcomer is not None:
            self._until(lambda event: getattr(event, "id", 0) == newcomer)
        events = [event for _, event in self._events]
        return Cancelled(
            before=events[begin : end - 1],
            after=None if newcomer is None else events[end:-1],
            elapsed_ms=(ended_at - cancelled_at) * 1000,
            step_ms=step_ms,
            done=done,
            processed=max(_processed(event, victim) for event in events),
        )

    def _long_prompt(self) -> str:
        # Another beginning each time, so that nothing of it is cached.
        words = [str(self._rounds), *_WORDS * (self._prefill_tokens // len(_WORDS) + 1)]
        return " ".join(words)

    def _start(self, text: str) -> int:
        return self._worker.start(text, ENDLESS)

    def _step_ms(self) -> float:
        times = [at for at, event in self._events if _is_token_of(event, self.running[0])]
        first, *_, last = times[-_STEPS_BEFORE:]
        return (last - first) * 1000 / (_STEPS_BEFORE - 1)

    def _take_steps(self, count: int) -> None:
        for _ in range(count):
            self._until(lambda event: _is_token_of(event, self.running[0]))

    def _wait_for_queue(self, queued: int) -> None:
        while self._pong().queued != queued:
            pass

    def _wait_for_idle(self) -> None:
        while (pong := self._pong()).queued or pong.running != STREAMS:
            pass

    def _pong(self) -> Pong:
        self._pings += 1
        self._worker.send(Ping(id=self._pings))
        pong = self._until(lambda event: isinstance(event, Pong) and event.id == self._pings)
        assert isinstance(pong, Pong)
        return pong

    def _drain(self) -> None:
        try:
            while True:
                self._take(0.05)
        except TimeoutError:
            pass

    def _until(self, claim: Callable[[FromWorker], bool]) -> FromWorker:
        deadline = time.monotonic() + LIMIT_S
        while True:
            event = self._take(deadline - time.monotonic())
            if claim(event):
                return event

    def _take(self, limit_s: float) -> FromWorker:
        event = self._worker.receive(limit_s)
        self._events.append((time.monotonic(), event))
        return event


def _is_token_of(event: FromWorker, number: int) -> bool:
    return isinstance(event, Tokens) and event.id == number


def _ends(event: FromWorker, number: int) -> bool:
    return isinstance(event, GenerationDone) and event.id == number


def _processed(event: FromWorker, number: int) -> int:
    if isinstance(event, PromptStep) and event.id == number:
        return event.progress.processed
    return 0


def _stop(pid: int) -> None:
    """Stop a process and return when it stands still."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + LIMIT_S
    while Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline
        time.sleep(0.001)
