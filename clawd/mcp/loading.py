"""Loading the MCP SDK: off the loop, and never by two threads at once.

Its modules import each other in circles. Two threads that begin at different ends would each find
a module of the other half made, and both would fail.
"""

import asyncio
import importlib
import threading
from types import ModuleType

_one_at_a_time = threading.Lock()


async def load(name: str) -> ModuleType:
    """Return a module that imports the SDK; it takes up to seconds in which others are answered.

    Raises:
        ImportError: it cannot be loaded.
    """
    return await asyncio.to_thread(_load, name)


def _load(name: str) -> ModuleType:
    with _one_at_a_time:
        return importlib.import_module(name)
