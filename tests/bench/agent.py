"""`make bench-agent`: what the embedded model gets done, and how fast memory is searched.

    python -m tests.bench.agent [--json FILE] [--quick] [--only ROWS] [--tasks WORDS]

docs/benchmarks.md says how each row is taken.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.agent_memory import percentiles, search_pairs
from tests.bench.agent_tasks import TASKS, Task
from tests.bench.agent_world import Pages, world
from tests.bench.machine import describe
from tests.bench.report import Row, row_of, some_of, table, to_json

ROWS = ("embedded_tasks_pass", "memory_search_p50", "memory_search_p95")
PASS_AIM = 0.9
SEARCH_AIM = 2.0
MESSAGES, QUERIES = 100_000, 400
QUICK_MESSAGES, QUICK_QUERIES, QUICK_TASKS = 2_000, 40, 3


def main() -> int:
    """Measure, print, keep."""
    options = _arguments()
    # An end by signal must pass the blocks that end the daemons.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    print(describe(), flush=True)
    if options.quick:
        print("quick: too few to mean anything")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as folder:
        rows.extend(_measure(Path(folder), options))
    print("\n".join(["", table(rows), *verdicts(rows)]))
    if options.json is not None:
        options.json.write_bytes(to_json(rows))
    return 0


def _measure(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    if "embedded_tasks_pass" in options.only:
        chosen = [task for task in TASKS if options.tasks in task.name]
        yield tasks_row(done(folder, chosen[:QUICK_TASKS] if options.quick else chosen))
    if {"memory_search_p50", "memory_search_p95"} & set(options.only):
        size = (QUICK_MESSAGES, QUICK_QUERIES) if options.quick else (MESSAGES, QUERIES)
        _say(f"memory_search: {size[1]} queries over {size[0]:,} messages")
        found = search_rows(asyncio.run(search_pairs(folder, *size)))
        yield from (row for row in found if row.name in options.only)


def done(folder: Path, tasks: Sequence[Task]) -> list[bool]:
    """Do the tasks, each in a home of its own; tell of each whether it was done."""
    results = []
    for number, task in enumerate(tasks):
        with (
            Pages() as pages,
            world(folder / f"task-{number}", pages, is_reachable=task.is_reachable) as place,
        ):
            for step in task.steps:
                step(place)
            wrong = task.grade(place)
        results.append(not wrong)
        _say(f"{task.name}: {wrong or 'done'}")
    return results


def tasks_row(results: Sequence[bool]) -> Row:
    """Return how many tasks were done, of how many; the ratio is the pass rate."""
    passed, count = sum(results), len(results)
    rate = passed / count if count else 0.0
    return Row(
        name="embedded_tasks_pass",
        ours=passed,
        peer=count,
        ratio=rate,
        spread=(rate, rate),
        unit="tasks",
    )


def search_rows(samples: Sequence[tuple[float, float]]) -> Iterator[Row]:
    """Return the middle and the slow end of our search against the bare query's."""
    pairs = row_of("memory_search_p50", "ms", samples)
    ours, peer = (percentiles([pair[side] for pair in samples]) for side in (0, 1))
    for name, mine, its in zip(ROWS[1:], ours, peer, strict=True):
        yield Row(name=name, ours=mine, peer=its, ratio=mine / its, spread=pairs.spread, unit="ms")


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Return what the rows show against their aims, in sentences."""
    told = [""]
    for row in rows:
        if row.name == "embedded_tasks_pass":
            reached = "reached" if row.ratio >= PASS_AIM else "NOT reached"
            what = f"{row.ours:g} of {row.peer:g} tasks, {row.ratio:.0%}, aim ≥ {PASS_AIM:.0%}"
        else:
            reached = "reached" if row.ratio <= SEARCH_AIM else "NOT reached"
            what = f"{row.ratio:.2f} times the bare query, aim ≤ {SEARCH_AIM:g}"
        told.append(f"{row.name}: {what}: {reached}")
    return told


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.bench.agent", description="Let the embedded model work, and search memory."
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument(
        "--only", type=some_of(ROWS), default=ROWS, metavar="ROWS", help=f"of {', '.join(ROWS)}"
    )
    parser.add_argument("--tasks", default="", metavar="WORDS", help="tasks with these words only")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
