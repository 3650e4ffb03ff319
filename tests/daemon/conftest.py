"""The stories' homes: one of its own for each test, or one daemon for many."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.home import Home
from tests.support.lent_home import LentHome


def of_its_own(tmp_path: Path) -> Iterator[Home]:
    folder = tmp_path / "a user"
    folder.mkdir()
    made = Home(folder)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home of this test alone, ended with it."""
    yield from of_its_own(tmp_path)


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[Home]:
    """The same, in a file where `home` is the one for all."""
    yield from of_its_own(tmp_path)


@pytest.fixture(scope="session")
def home_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LentHome]:
    """A home whose daemon goes on from story to story."""
    made = LentHome(tmp_path_factory.mktemp("a user "))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def lent_home(home_for_all: LentHome) -> Iterator[LentHome]:
    """That home, for one story."""
    home_for_all.lend()
    yield home_for_all
    home_for_all.take_back()
