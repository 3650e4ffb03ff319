"""No example is a failure because the machine was slow."""

import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@settings(max_examples=3)
@given(st.integers())
def test_an_example_may_take_longer_than_most(_number: int) -> None:
    time.sleep(0.3)


def test_finding_an_example_may_take_long_as_well() -> None:
    assert HealthCheck.too_slow in settings().suppress_health_check
