"""One home for each test of a fault, ended with it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.conftest import home_for_all, lent_home
from tests.support.home import Home

__all__ = ["home_for_all", "lent_home"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    folder = tmp_path / "a user"
    folder.mkdir()
    made = Home(folder)
    try:
        yield made
    finally:
        made.close()


def copied(home: Home, folder: Path) -> Home:
    """Return a home of its own with all that a home holds whose daemon has ended."""
    made = Home(folder)
    made.workspace.rmdir()
    shutil.copytree(home.workspace, made.workspace)
    shutil.copytree(home.path, made.path, symlinks=True)
    made.config.write_text(
        home.config.read_text().replace(str(home.path.parent), str(made.path.parent))
    )
    made.config.chmod(0o600)
    return made
