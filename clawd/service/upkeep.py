"""The daemon's housekeeping of memory: what is too old or too much goes, what is gone is erased."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from clawd.errors import ClawError
from clawd.memory.upkeep import KeepLimits, Upkeep
from clawd.runtime.conversation import ConversationBook
from clawd.security.approval_rules import RuleBook
from clawd.service.background import Watch

INTERVAL_S = 3600.0
DAY_S = 86_400
JUMP_S = DAY_S

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
        """Tell whether the clock has not jumped ahead since the last look.

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
