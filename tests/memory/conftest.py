"""An open memory in a throwaway folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clawd.memory.store import Memory


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    opened = await Memory.open(tmp_path / "memory.sqlite")
    yield opened
    await opened.close()
