"""Time that passes when a test says so: limits are met there, whatever a machine does."""

import asyncio


def pass_time(seconds: float) -> None:
    """Let so many seconds pass on the running loop, for all its limits and timers, at once."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]
