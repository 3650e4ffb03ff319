"""A gateway over a local provider: the embedded model, and two that make embeddings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.channels.http.rig import Served, served
from tests.support.embedding_models import write_pooled, write_random_bert

LOCAL = """
[providers.models.local]
kind = "local"
model = "embedded"
[engine]
n_threads = 1
ctx_size = {ctx_size}
"""


@asynccontextmanager
async def served_locally(
    folder: Path, tables: str = "", ctx_size: int = 1024
) -> AsyncIterator[Served]:
    """Serve a daemon with local models `embedded`, `pooled` and `bert`; the default is a mock."""
    models = folder / "home" / "models"
    models.mkdir(parents=True, mode=0o700)
    models.parent.chmod(0o700)
    write_pooled(models / "pooled.gguf")
    write_random_bert(models / "bert.gguf")
    async with served(folder, tables=LOCAL.format(ctx_size=ctx_size) + tables) as door:
        yield door
