"""Machines for the tests here: booted afresh for each, a second apiece."""

from collections.abc import Iterator

import pytest

from tests.support.booted import Machine
from tests.support.installed import bare_root, installed_root


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine with the package and its users; the daemon has never run."""
    with Machine(installed_root()) as machine:
        machine.boot()
        yield machine


@pytest.fixture
def bare_machine() -> Iterator[Machine]:
    """A machine without the package."""
    with Machine(bare_root()) as machine:
        machine.boot()
        yield machine
