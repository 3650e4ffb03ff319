"""The statistics, the table and the JSON of the benchmark; its measurements are not judged."""

import json

from tests.bench.report import Row, measured_in_turn, quantile, row_of, shortfalls, table, to_json

FASTER = Row(name="tokens", ours=120.0, peer=100.0, ratio=1.2, spread=(1.1, 1.3), unit="tok/s")
SLOWER = Row(name="status", ours=60.0, peer=50.0, ratio=1.2, spread=(1.1, 1.3), unit="ms")
UNSURE = Row(name="receipts", ours=98.0, peer=100.0, ratio=0.98, spread=(0.9, 1.1), unit="/s")


def test_both_sides_are_measured_in_turn() -> None:
    order: list[str] = []

    def side(name: str) -> str:
        order.append(name)
        return name

    pairs = measured_in_turn(lambda n: side(f"ours {n}"), lambda n: side(f"peer {n}"), 2)
    assert order == ["ours 0", "peer 0", "ours 1", "peer 1"]
    assert pairs == [("ours 0", "peer 0"), ("ours 1", "peer 1")]


def test_a_ratio_is_the_median_of_the_pairs_and_not_of_the_sides() -> None:
    row = row_of("x", "ms", [(10.0, 5.0), (10.0, 10.0), (40.0, 10.0)])
    assert row == Row(
        name="x",
        ours=10.0,
        peer=10.0,
        ratio=2.0,
        spread=(quantile([1.0, 2.0, 4.0], 0.05), quantile([1.0, 2.0, 4.0], 0.95)),
        unit="ms",
    )


def test_a_quantile_lies_between_its_neighbours_in_proportion() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.0) == 1.0
    assert quantile([3.0, 1.0, 2.0], 0.75) == 2.5
    assert quantile([3.0, 1.0, 2.0], 1.0) == 3.0
    assert quantile([7.0], 0.95) == 7.0


def test_columns_are_aligned() -> None:
    assert table([FASTER, SLOWER]).splitlines() == [
        "        ours  peer  ratio        spread  unit",
        "tokens   120   100   1.20  1.10 to 1.30  tok/s",
        "status    60    50   1.20  1.10 to 1.30  ms",
    ]


def test_a_rate_falls_short_below_the_peer_and_a_time_above_it() -> None:
    assert shortfalls([FASTER, SLOWER, UNSURE]) == [
        "status: 1.20 times the peer's time (1.10 to 1.30)",
        "receipts: 0.98 times the peer's rate (0.90 to 1.10); the spread includes a draw",
    ]


def test_the_json_has_one_object_for_each_row() -> None:
    assert json.loads(to_json([SLOWER])) == {
        "rows": [
            {
                "name": "status",
                "ours": 60.0,
                "peer": 50.0,
                "ratio": 1.2,
                "spread": [1.1, 1.3],
                "unit": "ms",
            }
        ]
    }
