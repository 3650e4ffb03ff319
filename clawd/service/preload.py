"""The default model, loaded at the start, and what its prompts begin with, read ahead of the first.

It is looked at anew when a worker is ready and when the tools change. Nothing here is waited for,
and nothing fails by it: a model that cannot be loaded says so to whoever asks it something.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from clawd.engine.models import size_bytes
from clawd.engine.supervisor import Engine
from clawd.errors import ClawError
from clawd.providers.abilities import Warming, able
from clawd.providers.base import ChatRequest
from clawd.runtime.preparation import Preparation
from clawd.security.principal import Principal
from clawd.service.state import State
from clawd.tools.registry import Registry

# Changes often come in a row, as when servers connect one after the other.
SETTLE_S = 0.2
# A model that takes more of the memory that is free is loaded when it is asked for.
MEMORY_SHARE = 0.5

# What is told of the time changes with the hour, what is told of the workspace with its files.
LOOKED_AFTER_S = 60.0

_log = logging.getLogger(__name__)


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
