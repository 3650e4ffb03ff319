"""The knowledge of one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.memory.knowledge.rig import Notes


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    made = Notes(tmp_path / "knowledge")
    yield made
    made.knowledge.close()
