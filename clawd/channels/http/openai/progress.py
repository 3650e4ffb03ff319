"""How the evaluation of a prompt is told: from what is cached to the whole, never backward."""

import time
from typing import Any

from clawd.providers.base import Evaluated, Progress


class ProgressTold:
    """What was told of the evaluation so far; an agent's later prompts are told anew."""

    def __init__(self) -> None:
        self._last: Progress | None = None
        self._started = time.monotonic()

    def take(self, event: Progress) -> list[Progress]:
        """Return the steps up to an event; the first has what was cached, and no more."""
        told: list[Progress] = []
        if self._last is None and event.processed > event.cached:
            told.append(Progress(processed=event.cached, cached=event.cached, total=event.total))
        if self._last is None or event.processed > self._last.processed:
            told.append(event)
        if told:
            self._last = told[-1]
        return told

    def finish(self, event: Evaluated) -> list[Progress]:
        """Return the steps that are missing up to the whole prompt; the next begins anew."""
        whole = Progress(processed=event.tokens, cached=event.cached, total=event.tokens)
        told = self.take(whole)
        self._last = None
        return told

    def value(self, event: Progress) -> dict[str, Any]:
        """Return a step in llama.cpp's words."""
        return {
            "total": event.total,
            "cache": event.cached,
            "processed": event.processed,
            "time_ms": round((time.monotonic() - self._started) * 1000, 3),
        }
