"""Homes for sessions that meet a real daemon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A throwaway home; its daemon ends with the test."""
    folder = tmp_path / "daemon"
    folder.mkdir()
    made = Home(folder)
    yield made
    made.close()
