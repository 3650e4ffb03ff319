"""Asks a model for a short text about a conversation: a summary, a title. Bounded in every way."""

import asyncio
from collections.abc import Callable

from clawd.errors import ClawError
from clawd.providers.base import ChatRequest, Provider
from clawd.runtime.model_request import run_hop
from clawd.runtime.transcript import has_looping_stretch
from clawd.wire.events import Event, TextDelta
from clawd.wire.safe_text import paragraph, shortened

BYTES_PER_TOKEN = 8  # of the longest words; a bound, not an estimate

THINKING_BYTES = 32 * 1024
LOOKED_AT_CHARACTERS = 100  # new ones, before loops are sought again


class NoTextError(ClawError, code="provider"):
    """The model gave no text; the message says why."""


class EmptyTextError(NoTextError):
    """The model answered, and said nothing."""


class Summariser:
    """Asks models for short texts. One of a daemon.

    Args:
        without_secrets: replaces the secrets in a text that is to be stored.
    """

    def __init__(self, without_secrets: Callable[[str], str]) -> None:
        self.without_secrets = without_secrets
        self._running: set[asyncio.Task[str]] = set()

    async def ask(
        self, provider: Provider, request: ChatRequest, *, limit_tokens: int, limit_s: float
    ) -> str:
        """Return what the model answers, without secrets, of bounded length.

        Raises:
            NoTextError: it failed, said nothing, took too long or was stopped.
        """
        limit_bytes = limit_tokens * BYTES_PER_TOKEN
        task = asyncio.create_task(_answer(provider, request, limit_bytes + THINKING_BYTES))
        self._running.add(task)
        try:
            done, _ = await asyncio.wait({task}, timeout=limit_s)
            if not done:
                raise NoTextError(f"the model took longer than {limit_s:g} s")
            if task.cancelled():
                raise NoTextError(
                    "the emergency stop was set while the model was answering",
                    hint="An admin clears it with: clawctl estop --clear",
                    code="estop",
                )
            text = self.without_secrets(paragraph(task.result())).strip()
        finally:
            self._running.discard(task)
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if not text:
            raise EmptyTextError("the model said nothing")
        return shortened(text, limit_bytes)

    def stop(self) -> None:
        """End what runs because of the emergency stop; who asked goes on without."""
        for task in self._running:
            task.cancel()


class _LoopError(Exception):
    """What is being written repeats itself."""


async def _answer(provider: Provider, request: ChatRequest, limit_bytes: int) -> str:
    """Return what a model writes; a loop is not waited for, since the caller refuses it."""
    said, looked_at = "", 0

    def take(event: Event) -> None:
        # None of it is shown: it is no answer.
        nonlocal said, looked_at
        if isinstance(event, TextDelta):
            said += event.text
            if len(said) - looked_at >= LOOKED_AT_CHARACTERS:
                looked_at = len(said)
                if has_looping_stretch(said):
                    raise _LoopError

    try:
        result = await run_hop(provider, request, take, limit_bytes=limit_bytes)
    except _LoopError:
        return said
    if result.failure is not None:
        raise NoTextError(f"{result.failure}") from result.failure
    return result.text
