"""A server with stub handlers, in a throwaway folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.channels.rpc.rig import Rig, serving


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with serving(tmp_path / "run" / "clawd.sock") as running:
        yield running
