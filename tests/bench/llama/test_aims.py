"""The interval of a median, and when a row counts as reached."""

import pytest

from tests.bench.llama.__main__ import PARTS
from tests.bench.llama.aims import AIMS, MIN_PAIRS, is_reached, median_interval, row, verdicts
from tests.bench.llama.scale import FULL


def test_every_row_has_a_name_of_its_own_and_enough_pairs() -> None:
    assert len({aim.name for aim in AIMS}) == len(AIMS)
    assert FULL.pairs >= MIN_PAIRS


def test_every_row_is_measured_by_one_part() -> None:
    measured = [name for part in PARTS for name in part.ROWS]
    assert sorted(measured) == sorted(aim.name for aim in AIMS)


@pytest.mark.parametrize(
    ("count", "left_out"),
    # Binomial: 9 throws have at most one head, or at least eight, with 3.9 %; 2 and 7 with 18 %.
    [(1, 0), (4, 0), (5, 0), (8, 1), (9, 1), (11, 2), (15, 3)],
)
def test_an_interval_of_the_median_covers_nine_times_in_ten(count: int, left_out: int) -> None:
    values = [float(value) for value in range(count)]
    assert median_interval(values[::-1]) == (float(left_out), float(count - 1 - left_out))


def test_one_wild_pair_does_not_widen_the_interval_of_nine() -> None:
    ratios = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 9.0]
    assert median_interval(ratios) == (1.01, 1.07)


@pytest.mark.parametrize(
    ("name", "ratio", "expected"),
    [
        ("decode_1_fresh", 0.97, True),
        ("decode_1_fresh", 1.5, True),
        ("decode_1_fresh", 0.96, False),
        ("second_turn_ttft", 1.0, True),
        ("second_turn_ttft", 0.5, True),
        ("second_turn_ttft", 1.01, False),
        ("stall_p95", 0.1, True),
        ("stall_p95", 0.11, False),
    ],
)
def test_a_rate_is_to_be_at_least_its_aim_and_a_time_at_most(
    name: str, ratio: float, *, expected: bool
) -> None:
    assert is_reached(row(name, [(ratio, 1.0)] * 9)) is expected


def test_a_row_is_reached_when_its_interval_includes_the_aim() -> None:
    pairs = [(0.90 + place / 100, 1.0) for place in range(9)]
    found = row("decode_1_fresh", pairs)
    assert (found.spread, found.unit) == ((0.91, 0.97), "tok/s")
    assert is_reached(found)
    assert not is_reached(row("decode_4_fresh", pairs))


def test_each_row_is_told_with_its_aim() -> None:
    slow = row("stall_p95", [(1.0, 2.0)] * 9)
    (line,) = verdicts([slow])
    told = " ".join(line.split())
    assert told.startswith("stall_p95 0.50 (0.50 to 0.50) aim ≤ 0.1 NOT reached ")
