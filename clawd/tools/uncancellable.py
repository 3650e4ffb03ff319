"""Awaiting what must not be broken off: a receipt half-written is none."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def cancel_is_wanted() -> bool:
    """Tell whether the running task was cancelled, also when that came while it was clearing up."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def settled(work: Coroutine[Any, Any, _T]) -> tuple[_T, bool]:
    """Await work that must not be broken off; tell whether the caller was cancelled meanwhile.

    Raises:
        Exception: whatever the work raises.
    """
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled
