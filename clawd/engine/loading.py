"""How far the load of a model is, seen from outside: its worker's memory beside the files' size.

llama.cpp tells nothing while the kernel maps a file and reads it in, which is most of a load.
"""

import asyncio
from pathlib import Path

import msgspec

from clawd.engine.client import WorkerClient
from clawd.engine.parts import files_of
from clawd.engine.protocol import ModelConfig

TOLD_EVERY_S = 0.25
WORKER_BYTES = 64 << 20  # what a worker takes before it has a model (measured)


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A load goes on: bytes of the model that are in memory, of its files' bytes in all."""

    loaded_bytes: int
    total_bytes: int


async def progress_of(config: ModelConfig, worker: WorkerClient) -> LoadProgress | None:
    """Return how far a worker's load is; None where that cannot be seen, or is over at once."""
    return await asyncio.to_thread(_progress, config, worker)


def total_bytes(config: ModelConfig) -> int:
    """Return the size of a model's files, 0 where they cannot be seen."""
    try:
        return sum(path.stat().st_size for path in files_of(Path(config.path)))
    except OSError:
        return 0


def _progress(config: ModelConfig, worker: WorkerClient) -> LoadProgress | None:
    total = total_bytes(config)
    if total < WORKER_BYTES:
        return None
    loaded = min(max(worker.memory_bytes() - WORKER_BYTES, 0), total)
    return LoadProgress(loaded_bytes=loaded, total_bytes=total)
