"""Tasks that run as long as the daemon: one that ends early makes it unhealthy, and is told."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from clawd.memory.store import Memory
from clawd.receipts.chain import ReceiptChain

Watch = Callable[[asyncio.Task[Any], str], None]

_log = logging.getLogger(__name__)


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
