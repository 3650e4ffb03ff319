"""What a daemon does beside the turns: memory is kept within its limits, a model is read ahead.

In memory what is too old or too much goes, and what is gone is erased. The default model is loaded
at the start, and what its prompts begin with is read ahead of the first. It is looked at anew when
a worker is ready and when the tools change. Nothing of that is waited for, and nothing fails by it:
a model that cannot be loaded says so to the client that asks it something.

Tasks that run as long as the daemon: one that ends early makes it unhealthy, and is told.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import psutil

from clawd.engine.models import size_bytes
from clawd.engine.supervisor import Engine
from clawd.errors import ClawError
from clawd.memory.store import Memory
from clawd.memory.upkeep import KeepLimits, Upkeep
from clawd.providers.base import ChatRequest, Warming, able
from clawd.receipts.chain import ReceiptChain
from clawd.runtime.conversation import ConversationBook
from clawd.runtime.preparation import Preparation
from clawd.security.approval_rules import RuleBook
from clawd.security.principal import Principal
from clawd.service.state import State
from clawd.tools.registry import Registry

Watch = Callable[[asyncio.Task[Any], str], None]


def problem_of(chain: ReceiptChain | None, memory: Memory, background: "Background") -> str:
    """Return why a daemon cannot do its work; empty while it can."""
    if chain is not None and chain.failure:
        return f"receipts cannot be written: {chain.failure}"
    return memory.failure or background.problem


class Background:
    """Watches the long-lived tasks of a daemon. One of a daemon.

    Attributes:
        problem: what has ended that should not have, and why; empty while all is well.
    """

    def __init__(self) -> None:
        self.problem = ""

    def watch(self, task: asyncio.Task[Any], name: str) -> None:
        """Tell it when the task ends otherwise than by being cancelled; its owner cancels it."""

        def ended(done: asyncio.Task[Any]) -> None:
            if done.cancelled():
                return
            error = done.exception()
            why = f"{type(error).__name__}: {error}" if error is not None else "nobody knows why"
            self.problem = f"{name} has ended ({why}); restart clawd"
            _log.error("%s has ended; clawd counts as broken", name, exc_info=error)

        task.add_done_callback(ended)


INTERVAL_S = 3600.0
DAY_S = 86_400
JUMP_S = DAY_S
# Changes often come in a row, as when servers connect one after the other.
SETTLE_S = 0.2
# A model that takes more of the memory that is free is loaded when it is asked for.
MEMORY_SHARE = 0.5

# What is told of the time changes with the hour, what is told of the workspace with its files.
LOOKED_AFTER_S = 60.0

_log = logging.getLogger(__name__)


class MemoryKeeper:
    """Keeps memory within its limits. One of a daemon.

    Args:
        upkeep: of the memory.
        book: the conversations in use, which stay; is told which are gone.
        rules: is told which conversations are gone.
        limits: returns the limits in force.
        interval_s: seconds between two looks.
    """

    def __init__(
        self,
        upkeep: Upkeep,
        *,
        book: ConversationBook,
        rules: RuleBook,
        limits: Callable[[], KeepLimits],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._upkeep = upkeep
        self._book = book
        self._rules = rules
        self._limits = limits
        self._interval_s = interval_s
        self._is_due = False
        self._wakes = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, watch: Watch | None = None) -> None:
        """Begin to look, now and then every hour; `watch` is told of the task and its name."""
        self._task = asyncio.create_task(self._keep())
        if watch is not None:
            watch(self._task, "memory's housekeeping")

    def erase_soon(self) -> None:
        """Erase what was just deleted as soon as there is time; never blocks."""
        self._is_due = True
        self._wakes.set()

    async def close(self) -> None:
        """Stop; what was deleted and not yet erased is erased first. Idempotent."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        if self._is_due:
            await self._tried(self._erase())

    async def look(self) -> int:
        """Delete what the limits do not allow; return how many conversations are gone.

        Raises:
            StorageError: memory cannot be read or written.
        """
        limits = self._limits()
        if limits.max_age_days and not await self._is_clock_settled():
            limits = msgspec.structs.replace(limits, max_age_days=0)
        try:
            pruned = await self._upkeep.prune(limits, in_use=self._book.in_use_ids)
        except BaseException:
            self.erase_soon()  # some may be gone already
            raise
        for identity in pruned.conversations:
            self._book.forget(identity)
            self._rules.end_conversation(identity)
        if pruned.conversations or pruned.contents:
            _log.info(
                "old conversations were deleted, as [memory] says",
                extra={"conversations": len(pruned.conversations), "contents": pruned.contents},
            )
            self.erase_soon()
        return len(pruned.conversations)

    async def _is_clock_settled(self) -> bool:
        """Return whether the clock has not jumped ahead since the last look.

        A machine whose clock is wrong while it boots must not lose what is young. One that was
        switched off for days looks alike, so nothing goes until the next look finds the clock
        where it should be.
        """
        now = time.time()
        before = await self._upkeep.looked_at()
        await self._upkeep.note_look(now)
        if before is None or now - before <= JUMP_S + self._interval_s:
            return True
        _log.warning(
            "the clock is %d days ahead of the last look at memory: nothing is deleted for its "
            "age before the next one",
            (now - before) // DAY_S,
            extra={"next_look_s": self._interval_s},
        )
        return False

    async def _resume(self) -> None:
        """Erase what a daemon before this one deleted and did not get to erase."""
        if await self._upkeep.is_erase_due():
            self._is_due = True

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        next_look = loop.time()
        await self._tried(self._resume())
        while True:
            if loop.time() >= next_look:
                await self._tried(self.look())
                next_look = loop.time() + self._interval_s
            self._wakes.clear()
            if self._is_due:
                await self._tried(self._erase())
            try:
                async with asyncio.timeout_at(next_look):
                    await self._wakes.wait()
            except TimeoutError:
                continue

    async def _erase(self) -> None:
        """Erase; what fails or is cancelled stays due, for the next look or the end."""
        self._is_due = False
        try:
            await self._upkeep.erase()
        except BaseException:
            self._is_due = True
            raise

    async def _tried(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except ClawError as error:
            _log.warning("memory could not be kept in order: %s", error.message)
        except Exception:  # noqa: BLE001 - the task must go on: there is no other housekeeping
            _log.exception("memory could not be kept in order, by a defect; it is tried again")


class Preloader:
    """Keeps the default model's beginning of prompts read ahead.

    Args:
        engine: says when a worker is ready.
        state: the providers and settings in force.
        preparation: makes the beginning of prompts.
        registry: the tools that are told in it.
    """

    def __init__(
        self, engine: Engine, state: State, preparation: Preparation, registry: Registry
    ) -> None:
        self._engine = engine
        self._state = state
        self._preparation = preparation
        self._registry = registry
        self._owner = Principal(uid=os.geteuid(), gid=os.getegid(), pid=os.getpid(), role="admin")
        self._due = asyncio.Event()
        self._read: tuple[ChatRequest, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._stop: Callable[[], None] = lambda: None

    def start(self, watch: Callable[[asyncio.Task[Any], str], None]) -> None:
        """Begin; the model is loaded now where the config says so."""
        self._engine.on_ready = lambda _config: self._note_worker()
        self._stop = self._registry.on_change(self._due.set)
        self._task = asyncio.get_running_loop().create_task(self._run())
        watch(self._task, "reading prompts ahead")

    async def close(self) -> None:
        """End; what is being loaded is the engine's."""
        self._stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _note_worker(self) -> None:
        self._read = ()
        self._due.set()

    async def _run(self) -> None:
        if self._state.loaded.config.engine.preload and await self._has_room():
            await self._read_ahead(may_load=True)
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), LOOKED_AFTER_S)
            await asyncio.sleep(SETTLE_S)
            self._due.clear()
            await self._read_ahead(may_load=False)

    async def _has_room(self) -> bool:
        """Return whether the default model is a file of this machine that surely fits into it."""
        try:
            found = self._found(self._state.runtime.default_model)
            size = await asyncio.to_thread(_size, found) if found is not None else 0
        except (ClawError, OSError):
            return False
        free = int(psutil.virtual_memory().available * MEMORY_SHARE)
        if size > free:
            _log.info(
                "the default model is loaded when it is asked for: it has %d bytes, and half of "
                "the free memory is %d",
                size,
                free,
            )
        return 0 < size <= free

    async def _read_ahead(self, *, may_load: bool) -> None:
        try:
            first = self._found(self._state.runtime.default_model)
            if first is None or not (may_load or first[0].is_loaded(first[1])):
                return
            wanted = await self._preparation.beginnings(self._owner)
            if wanted == self._read:
                return
            for request in wanted:
                found = self._found(request.model)
                if found is None:
                    return
                await found[0].warm(msgspec.structs.replace(request, model=found[1]))
            self._read = wanted
        except ClawError as error:
            _log.info("nothing is read ahead: %s", error.message)

    def _found(self, model: str) -> tuple[Warming, str] | None:
        """Return who reads ahead where the default provider is asked, and its name of a model."""
        provider = self._state.providers.get(self._state.runtime.default_provider)
        if provider is None:
            return None
        return able(provider, Warming, model)  # type: ignore[type-abstract]


def _size(found: tuple[Warming, str]) -> int:
    provider, model = found
    return size_bytes(Path(provider.file_of(model)))
