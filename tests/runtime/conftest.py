"""A dispatcher with its real parts, in a throwaway folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.dispatching import Bench, bench_in


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_in(tmp_path) as made:
        yield made
