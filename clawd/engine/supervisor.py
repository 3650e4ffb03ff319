"""The engine: one supervised worker process per loaded model. Which runs, for how long, for whom.

Loads on first use, shares a load between all that wait for it, unloads what was idle too long or
what is least recently used, restarts after a death with a growing wait, refuses a prompt that
killed its worker again and again. One worker's frames are `client.py`, its process `process.py`,
what is remembered of a model `slot.py`.

llama.cpp reports nothing while the kernel maps a file and reads it in, which is most of a load: how
far it is shows in its worker's memory beside the files' size.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from clawd.counts import Tally
from clawd.engine import protocol
from clawd.engine.client import EngineSettings, ErrorFactory, GenerationEvent, WorkerClient
from clawd.engine.gguf import files_of
from clawd.engine.models import check_pins
from clawd.engine.process import Launcher, failure, no_room, start_worker, unfenced, worker_argv
from clawd.engine.slot import ModelSlot, ModelStatus, Run, file_mark, fingerprint
from clawd.errors import (
    CancelledByUserError,
    ClawError,
    EngineError,
    ModelLoadError,
)

_T = TypeVar("_T")
_R = TypeVar("_R", bound=protocol.Reply)
_log = logging.getLogger(__name__)
_TOLD_EVERY_S = 0.25
WORKER_BYTES = 64 << 20  # what a worker takes before it has a model (measured)


def total_bytes(config: protocol.ModelConfig) -> int:
    """Return the size of a model's files, 0 where they cannot be seen."""
    try:
        files = [*files_of(Path(config.path)), *([Path(config.mmproj)] if config.mmproj else [])]
        return sum(path.stat().st_size for path in files)
    except OSError:
        return 0


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A load goes on: bytes of the model that are in memory, of its files' bytes in all."""

    loaded_bytes: int
    total_bytes: int


class Engine:
    """All local models of the daemon. Belongs to one event loop; end it with `close()`."""

    def __init__(
        self,
        settings: EngineSettings | None = None,
        *,
        launcher: Launcher = unfenced,
        argv: tuple[str, ...] | None = None,
    ) -> None:
        self._settings = settings or EngineSettings()
        self._launcher = launcher
        self._argv = argv or worker_argv()
        self._slots: dict[protocol.ModelConfig, ModelSlot] = {}
        self._leaving: dict[protocol.ModelConfig, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._last_number = 0
        self._is_closed = False
        self._watchers: list[Callable[[], None]] = []
        self.generating = 0  # what runs or waits, of all models
        self.on_ready: Callable[[protocol.ModelConfig], None] = lambda _config: None
        self.deaths = Tally("model")  # of workers, for good: no unloading forgets them

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        """Call it when a generation begins, so that work which can wait gives way."""
        self._watchers.append(watcher)

    def has_room(self, config: protocol.ModelConfig) -> bool:
        """Return whether a model is loaded, or could be without another one having to go."""
        slot = self._slots.get(config)
        if slot is not None and slot.is_occupied:
            return True
        occupied = sum(each.is_occupied for each in self._slots.values())
        return occupied < max(1, self._settings.max_loaded)

    async def load(self, config: protocol.ModelConfig) -> protocol.ModelInfo:
        """Load a model if it is not loaded, and return what it is.

        Raises:
            EngineError: it cannot be loaded; BusyError: all others are in use.
        """
        slot, run = self._begin(config, b"")
        try:
            client = await self._ready(slot, run)
        finally:
            self._end(slot, run)
        if client.info is None:
            raise EngineError(f"the worker of model {slot.name} is ready but did not say of what")
        return client.info

    async def loading(self, config: protocol.ModelConfig) -> AsyncGenerator[LoadProgress, None]:
        """Load a model if it is not loaded, and yield from time to time how far that is.

        Raises:
            EngineError: it cannot be loaded; BusyError: all others are in use.
        """
        slot, run = self._begin(config, b"")
        ready = self._spawn(self._ready(slot, run))
        try:
            while not (await asyncio.wait({ready}, timeout=_TOLD_EVERY_S))[0]:
                if slot.starting and (step := await _progress_of(config, slot.starting)):
                    yield step
            ready.result()
        finally:
            ready.cancel()
            self._end(slot, run)

    async def generate(
        self, config: protocol.ModelConfig, request: protocol.Generate
    ) -> AsyncGenerator[GenerationEvent, None]:
        """Yield the events of one generation; the last is GenerationDone or GenerationFailed.

        The request's id is replaced. Closing the iterator, or cancelling the task that waits for
        it, stops the worker within a decode step and does not wait for that.

        Raises:
            WorkerDiedError: the worker died; says how, with its last lines.
            BusyError: every loaded model is generating and no other may be loaded.
            EngineError: the model cannot be loaded, or the prompt is refused.
            ClawError: whatever `cancel_all` was given.
        """
        slot, run = self._begin(config, fingerprint(request))
        self.generating += 1
        try:
            for watcher in self._watchers:
                watcher()
            if refusal := slot.refusal(run, self._settings):
                raise refusal
            client = await self._ready(slot, run)
            numbered = msgspec.structs.replace(request, id=run.number)
            async with aclosing(client.generate(numbered)) as events:
                async for event in events:
                    if isinstance(event, protocol.GenerationDone):
                        slot.note_success(run, event)
                    yield event
        finally:
            self.generating -= 1
            self._end(slot, run)

    async def warm(self, config: protocol.ModelConfig, request: protocol.Generate) -> None:
        """Load a model if it is not loaded, and have it read ahead what such prompts begin with.

        Nobody waits for that; `status` tells how far it is.

        Raises:
            EngineError: it cannot be loaded; BusyError: all others are in use.
        """
        slot, run = self._begin(config, b"")
        try:
            client = await self._ready(slot, run)
            client.warm(request)
        finally:
            self._end(slot, run)

    async def count_tokens(
        self, config: protocol.ModelConfig, texts: Sequence[str]
    ) -> tuple[int, ...]:
        """Return the number of tokens of each text; loads the model if need be.

        Raises:
            EngineError: as `load` and `generate`.
        """
        reply = await self._ask(
            config, protocol.CountTokens(id=0, texts=tuple(texts)), protocol.TokenCounts
        )
        return reply.counts

    async def tokenize(
        self, config: protocol.ModelConfig, question: protocol.Tokenize
    ) -> protocol.TokenPieces:
        """Return a text's tokens; loads the model if need be, as do the next three.

        Raises:
            InvalidRequestError: the text is too long.
            EngineError: as `load` and `generate`.
        """
        return await self._ask(config, question, protocol.TokenPieces)

    async def detokenize(self, config: protocol.ModelConfig, tokens: Sequence[int]) -> bytes:
        """Return the text of tokens; it need be no whole UTF-8.

        Raises:
            InvalidRequestError: a number is no token.
            EngineError: as `load` and `generate`.
        """
        question = protocol.Detokenize(id=0, tokens=tuple(tokens))
        return (await self._ask(config, question, protocol.TokenText)).data

    async def render(
        self, config: protocol.ModelConfig, question: protocol.RenderPrompt
    ) -> protocol.Rendered:
        """Return the prompt that a generation with the same fields would get.

        Raises:
            InvalidRequestError: it can never fit, or a number is no token.
            EngineError: as `load` and `generate`.
        """
        return await self._ask(config, question, protocol.Rendered)

    async def embed(
        self, config: protocol.ModelConfig, question: protocol.Embed
    ) -> protocol.Embedded:
        """Return a vector of each input; cancelling it stops the worker behind the next one.

        Raises:
            InvalidRequestError: the model makes none, or an input has no tokens.
            ContextFullError: an input is too long; its data gives the counts.
            EngineError: as `load` and `generate`.
        """
        return await self._ask(config, question, protocol.Embedded)

    async def working(self, config: protocol.ModelConfig) -> protocol.Pong | None:
        """Return what a loaded model is doing, None for one that is not loaded; never loads.

        Raises:
            WorkerDiedError: the worker died meanwhile.
        """
        slot = self._slots.get(config)
        client = slot.ready_client() if slot else None
        if client is None or client.info is None:
            return None
        return await client.state()

    async def _ask(
        self, config: protocol.ModelConfig, question: protocol.Question, kind: type[_R]
    ) -> _R:
        is_risky = isinstance(question, protocol.RenderPrompt | protocol.Embed)
        slot, run = self._begin(config, fingerprint(question) if is_risky else b"")
        try:
            if is_risky and (refusal := slot.refusal(run, self._settings)):
                raise refusal
            client = await self._ready(slot, run)
            reply = await client.ask(msgspec.structs.replace(question, id=run.number))
        finally:
            self._end(slot, run)
        if isinstance(reply, protocol.QuestionFailed):
            raise failure(reply)
        if not isinstance(reply, kind):
            raise EngineError(f"the worker of model {slot.name} answered something else")
        return reply

    def info(self, config: protocol.ModelConfig) -> protocol.ModelInfo | None:
        """Return what is loaded for this config, or None; never loads."""
        slot = self._slots.get(config)
        client = slot.ready_client() if slot else None
        return client.info if client else None

    def status(self) -> list[ModelStatus]:
        """Return the models that are loaded, are being loaded, or died."""
        return [s.status() for s in self._slots.values() if s.is_occupied or s.deaths]

    def cancel_all(self, error: ErrorFactory | None = None) -> int:
        """End all generations and waits at once with this error; return how many there were."""
        return sum(self._stop(slot, error or _cancelled) for slot in self._slots.values())

    async def unload(self, alias: str) -> bool:
        """Unload a model and forget its deaths; what runs on it ends as cancelled.

        Returns:
            Whether there was one of this alias.
        """
        slots = [slot for slot in self._slots.values() if slot.name == alias]
        found = any(slot.is_occupied or slot.deaths for slot in slots)
        for slot in slots:
            self._stop(slot, lambda: CancelledByUserError(f"model {alias} was unloaded"))
            del self._slots[slot.config]
        await _all_done([task for slot in slots if (task := self._dismiss(slot))])
        return found

    async def close(self) -> None:
        """End everything and return when no worker is left; idempotent."""
        self._is_closed = True
        self.cancel_all(lambda: CancelledByUserError("the engine is shutting down"))
        for slot in self._slots.values():
            self._dismiss(slot)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, config: protocol.ModelConfig, fingerprint: bytes) -> tuple[ModelSlot, Run]:
        if self._is_closed:
            raise CancelledByUserError("the engine is shutting down")
        slot = self._slots.setdefault(config, ModelSlot(config, self.deaths))
        self._renew(slot)
        self._last_number += 1
        run = Run(self._last_number, fingerprint)
        slot.runs[run.number] = run
        slot.used_at = time.time()
        slot.stop_timer()
        return slot, run

    def _renew(self, slot: ModelSlot) -> None:
        """Let go of what was loaded from a file that is no longer there, if nobody uses it."""
        if slot.runs or slot.loading is not None or not slot.has_other_file():
            return
        _log.info("the file of model %s was replaced: it is loaded anew", slot.name)
        self._dismiss(slot)
        slot.forget()

    def _end(self, slot: ModelSlot, run: Run) -> None:
        del slot.runs[run.number]
        slot.used_at = time.time()
        self._note_idle(slot)

    async def _ready(self, slot: ModelSlot, run: Run) -> WorkerClient:
        """Return the slot's worker; all that wait for one load share it."""
        run.check()
        if client := slot.ready_client():
            return client
        if slot.loading is None:
            leaving = self._claim_room(slot)
            if (before := self._leaving.get(slot.config)) is not None:
                # What it saves now is what this one begins with.
                leaving.append(before)
            slot.loading = self._spawn(self._load(slot, leaving))
        loading = slot.loading
        either: set[asyncio.Future[Any]] = {loading, run.stopped}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        run.check()
        outcome = loading.result()
        if isinstance(outcome, ClawError):
            raise outcome
        return outcome

    def _claim_room(self, slot: ModelSlot) -> list[asyncio.Task[None]]:
        """Send away what is least recently used; return the tasks to wait for."""
        others = [s for s in self._slots.values() if s is not slot and s.is_occupied]
        excess = len(others) + 1 - max(1, self._settings.max_loaded)
        if excess <= 0:
            return []
        idle = sorted((s for s in others if not s.runs), key=lambda s: s.used_at)
        if len(idle) < excess:
            raise no_room(slot.name, [s.name for s in others], self._settings.max_loaded)
        return [task for s in idle[:excess] if (task := self._dismiss(s))]

    async def _load(
        self, slot: ModelSlot, leaving: list[asyncio.Task[None]]
    ) -> WorkerClient | ClawError:
        """Start a worker and load the model; a failure is a value, for nobody may be waiting."""
        try:
            await _all_done(leaving)
            await asyncio.sleep(max(0.0, slot.start_after - time.monotonic()))
            slot.client = await self._start(slot)
        except ClawError as error:
            _log.warning("model %s was not loaded: %s", slot.name, error.code)
            return error
        else:
            return slot.client
        finally:
            if slot.loading is asyncio.current_task():
                slot.loading = None
            self._note_idle(slot)

    async def _start(self, slot: ModelSlot) -> WorkerClient:
        path = Path(slot.config.path)
        mark = slot.mark = file_mark(slot.config.path)
        await asyncio.to_thread(check_pins, path, slot.name, lambda: self._is_closed)
        if slot.config.mmproj:
            eyes = Path(slot.config.mmproj)
            await asyncio.to_thread(check_pins, eyes, eyes.stem, lambda: self._is_closed)
        process = await start_worker(self._argv, launcher=self._launcher, model_path=path)
        settings = self._settings
        client = WorkerClient(
            process, slot.config, settings, lambda death: slot.note_death(death, settings)
        )
        _ = self._spawn(client.run())
        slot.starting = client
        is_loaded = False
        try:
            info = await client.load()
            if file_mark(slot.config.path) not in {None, mark}:
                raise ModelLoadError(
                    f"model {slot.name} is not used: its file changed while it was loaded "
                    f"({slot.config.path})",
                    hint="Is it still being copied? Ask again when it is whole.",
                )
            is_loaded = True
        finally:
            slot.starting = None
            if not is_loaded:
                _ = self._spawn(client.close())
        self.on_ready(slot.config)
        _log.info("model %s loaded in %.0f ms (pid %d)", slot.name, info.load_ms, client.pid)
        return client

    def _note_idle(self, slot: ModelSlot) -> None:
        keep_alive_s = self._settings.keep_alive_s
        if slot.runs or slot.ready_client() is None or keep_alive_s < 0 or self._is_closed:
            return
        slot.stop_timer()
        slot.idle_timer = asyncio.get_running_loop().call_later(keep_alive_s, self._expire, slot)

    def _expire(self, slot: ModelSlot) -> None:
        slot.idle_timer = None
        if not slot.runs:
            _log.info("model %s unloaded after %g s idle", slot.name, self._settings.keep_alive_s)
            self._dismiss(slot)

    def _dismiss(self, slot: ModelSlot) -> asyncio.Task[None] | None:
        client = slot.detach()
        if client is None:
            return None
        task = self._leaving[slot.config] = self._spawn(client.close())
        task.add_done_callback(lambda done: self._forget_leaving(slot.config, done))
        return task

    def _forget_leaving(self, config: protocol.ModelConfig, done: asyncio.Task[None]) -> None:
        if self._leaving.get(config) is done:
            del self._leaving[config]

    def _stop(self, slot: ModelSlot, error: ErrorFactory) -> int:
        stopped = len(slot.runs)
        for run in slot.runs.values():
            run.stop(error)
        if client := slot.ready_client():
            client.fail_generations(error)
        return stopped

    def _spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _all_done(tasks: list[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


def _cancelled() -> ClawError:
    return CancelledByUserError("the generation was cancelled")


async def _progress_of(config: protocol.ModelConfig, worker: WorkerClient) -> LoadProgress | None:
    """Return how far a worker's load is; None where that cannot be seen, or is over at once."""
    return await asyncio.to_thread(_progress, config, worker)


def _progress(config: protocol.ModelConfig, worker: WorkerClient) -> LoadProgress | None:
    total = total_bytes(config)
    if total < WORKER_BYTES:
        return None
    loaded = min(max(worker.memory_bytes() - WORKER_BYTES, 0), total)
    return LoadProgress(loaded_bytes=loaded, total_bytes=total)
