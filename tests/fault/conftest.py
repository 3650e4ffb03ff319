"""One home for each test of a fault, ended with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    folder = tmp_path / "a user"
    folder.mkdir()
    made = Home(folder)
    try:
        yield made
    finally:
        made.close()
