"""Homes for sessions that meet a real daemon."""

import pytest

from tests.daemon.conftest import home_for_all, lent_home
from tests.support.home import Home
from tests.support.lent_home import LentHome

__all__ = ["home_for_all", "lent_home"]


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    """A home that is lent for the test."""
    return lent_home
