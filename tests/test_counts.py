"""Counters and histograms: what they add up to, and that they stay small."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.counts import LONG_S, MAX_SERIES, OTHER, Histogram, Tally


def test_counts_are_kept_by_label() -> None:
    tally = Tally("tool", "status")
    tally.add("time", "allowed")
    tally.add("time", "allowed", by=2)
    tally.add("shell", "denied")
    assert tally.values() == {("time", "allowed"): 3.0, ("shell", "denied"): 1.0}
    assert (tally.total(), tally.total(status="denied"), tally.total(tool="x")) == (4.0, 1.0, 0.0)
    with pytest.raises(ValueError):
        tally.add("time")


@given(st.lists(st.tuples(st.text(max_size=3), st.floats(-1, 5))))
def test_a_counter_never_goes_down(steps: list[tuple[str, float]]) -> None:
    tally, before = Tally("name"), 0.0
    for name, by in steps:
        tally.add(name, by=by)
        assert tally.total() >= before
        before = tally.total()


def test_names_without_end_become_one_series() -> None:
    tally = Tally("name")
    for number in range(10 * MAX_SERIES):
        tally.add(f"name {number}")
    assert len(tally.values()) == MAX_SERIES + 1
    assert tally.total() == 10 * MAX_SERIES
    assert tally.values()[(OTHER,)] == 9 * MAX_SERIES


@given(st.lists(st.floats(0, 10_000)))
def test_buckets_hold_what_is_at_or_below_their_bound(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    expected = tuple((bound, sum(value <= bound for value in values)) for bound in LONG_S)
    assert histogram.cumulative() == expected
    assert histogram.count == len(values)
    assert histogram.sum == pytest.approx(sum(values))
