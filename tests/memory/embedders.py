"""Models of embeddings to test with: by a table of subjects, and the real one."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clawd.engine.protocol import Embed, ModelConfig
from clawd.engine.supervisor import Engine
from clawd.errors import ClawError, InvalidRequestError
from clawd.memory.vectors import TEXT_LIMIT

SUBJECTS = (
    {"car", "vehicle", "brakes", "motorway"},
    {"soup", "onions", "cooking"},
    {"cello", "concert", "violin"},
)
UNREADABLE = "unreadable"


class Subjects:
    """Texts are near where they are about the same subject; any other text is near itself only.

    Attributes:
        error: what it fails with, while it is not None.
        held: it answers nothing while this is not set.
        seen: what it was asked for.
    """

    def __init__(self, named: str = "fake/subjects", *, size: int = 64) -> None:
        self.named = named
        self.size = size
        self.error: ClawError | None = None
        self.held = asyncio.Event()
        self.held.set()
        self.begun = asyncio.Event()
        self.seen: list[list[str]] = []

    async def identity(self) -> str:
        return self.named

    async def vectors(self, texts: Sequence[str]) -> list[bytes]:
        self.seen.append(list(texts))
        self.begun.set()
        await self.held.wait()
        if self.error is not None:
            raise self.error
        if any(UNREADABLE in text for text in texts):
            raise InvalidRequestError("an input has no tokens")
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes:
        values = np.zeros(self.size, dtype="<f4")
        words = {word.strip(".,!?").lower() for word in text.split()}
        for axis, subject in enumerate(SUBJECTS):
            values[axis] = len(subject & words)
        if not values.any():
            seed = int.from_bytes(text.encode()[:64], "little") % 2**32
            values[len(SUBJECTS) :] = np.random.default_rng(seed).standard_normal(
                self.size - len(SUBJECTS)
            )
        return bytes((values / np.linalg.norm(values)).astype("<f4").tobytes())


class MiniLM:
    """all-MiniLM-L6-v2 in a worker of its own; end it with `close()`."""

    def __init__(self, path: Path) -> None:
        self.named = "local/minilm"
        self._engine = Engine()
        self._config = ModelConfig(path=str(path), alias="minilm", n_threads=1)

    async def identity(self) -> str:
        return self.named

    async def vectors(self, texts: Sequence[str]) -> list[bytes]:
        cut = tuple(text[: TEXT_LIMIT // 2] for text in texts)
        return list((await self._engine.embed(self._config, Embed(id=0, inputs=cut))).vectors)

    async def close(self) -> None:
        await self._engine.close()
