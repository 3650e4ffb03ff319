"""`make bench-security`: the emergency stop, what a call costs, and receipts a second.

    python -m tests.bench.security [--json FILE] [--quick] [--only ROWS] [--rounds N] [--pairs N]

docs/benchmarks.md says how each row is taken.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

from tests.bench.llama.aims import median_interval
from tests.bench.machine import describe
from tests.bench.report import Row, row_of, some_of, table, to_json
from tests.bench.security_calls import Pairs, call_pairs, receipt_pairs
from tests.bench.security_stop import stop_pairs
from tests.bench.streams import BenchError

ROWS = (
    "estop_median_ms",
    "estop_max_ms",
    "call_overhead",
    "call_overhead_minimal",
    "receipts_per_s",
    "receipts_per_s_1",
)
CALL_AIM = 1.5
CALLERS = 8


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured: stops, pairs of the other rows, and receipts of one caller."""

    rounds: int = 100
    pairs: int = 101
    receipt_pairs: int = 15
    receipts: int = 400


QUICK = Scale(rounds=2, pairs=5, receipt_pairs=3, receipts=50)


def main() -> int:
    """Measure, print, keep."""
    options = _arguments()
    scale = QUICK if options.quick else Scale()
    changes = {"rounds": options.rounds, "pairs": options.pairs}
    scale = msgspec.structs.replace(scale, **{key: n for key, n in changes.items() if n})
    # An end by signal must pass the blocks that end the daemon.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    print(describe(), flush=True)
    if options.quick:
        print("quick: too few to mean anything")
    rows: list[Row] = []
    failure = ""
    try:
        with tempfile.TemporaryDirectory(prefix="clawd-bench-") as folder:
            print(f"files on {_file_system(Path(folder))}", flush=True)
            rows.extend(_measure(Path(folder), scale, options.only))
    except BenchError as error:
        failure = f"no result: {error}"
    print("\n".join(["", table(rows), *_verdicts(rows)]))
    if options.json is not None:
        options.json.write_bytes(to_json(rows))
    if failure:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failure else 0


def _measure(folder: Path, scale: Scale, wanted: Sequence[str]) -> Iterator[Row]:
    if {"estop_median_ms", "estop_max_ms"} & set(wanted):
        _say(f"estop: {scale.rounds} stops of 20 processes in 4 tools")
        pairs = asyncio.run(stop_pairs(folder / "estop", scale.rounds, _say))
        found = (_row("estop_median_ms", "ms", pairs), _longest("estop_max_ms", pairs))
        yield from (row for row in found if row.name in wanted)
    for name, is_minimal in (("call_overhead", False), ("call_overhead_minimal", True)):
        if name in wanted:
            _say(f"{name}: {scale.pairs} pairs of calls around `true`")
            place = _made(folder / name)
            pairs = asyncio.run(call_pairs(place, scale.pairs, is_minimal=is_minimal))
            yield _row(name, "ms", pairs)
    for name, callers in (("receipts_per_s", CALLERS), ("receipts_per_s_1", 1)):
        if name in wanted:
            _say(f"{name}: {scale.receipt_pairs} pairs, callers: {callers}")
            place, each = _made(folder / name), scale.receipts
            pairs = asyncio.run(
                receipt_pairs(place, scale.receipt_pairs, callers=callers, each=each)
            )
            yield _row(name, "receipts/s", pairs)


def _row(name: str, unit: str, pairs: Pairs) -> Row:
    """Return the row of these pairs, its spread being the 90 % interval of the median ratio."""
    interval = median_interval([ours / peer for ours, peer in pairs])
    return msgspec.structs.replace(row_of(name, unit, pairs), spread=interval)


def _longest(name: str, pairs: Pairs) -> Row:
    """Return the row of the longest times, which have one ratio and so no interval."""
    ours, peer = max(ours for ours, _ in pairs), max(peer for _, peer in pairs)
    ratio = ours / peer
    return Row(name=name, ours=ours, peer=peer, ratio=ratio, spread=(ratio, ratio), unit="ms")


def _verdicts(rows: Sequence[Row]) -> list[str]:
    """Return what the rows show, in sentences."""
    told = []
    for row in rows:
        low, high = row.spread
        if row.name == "call_overhead":
            reached = "reached" if row.ratio <= CALL_AIM else "NOT reached"
            what = f"{row.ratio:.2f} times bare bubblewrap ({low:.2f} to {high:.2f})"
            told.append(f"call_overhead: {what}, aim ≤ {CALL_AIM:g}: {reached}")
        if row.name == "estop_median_ms":
            told.append("estop: every stop left no survivor and one receipt for each call")
    return ["", *told] if told else []


def _file_system(path: Path) -> str:
    """Return the kind of file system that what is measured lies on: an fsync on tmpfs is free."""
    mounts = [part for part in psutil.disk_partitions(all=True) if part.mountpoint]
    holding = [m for m in mounts if path.is_relative_to(m.mountpoint)]
    best = max(holding, key=lambda mount: len(mount.mountpoint))
    return f"{best.fstype} ({best.mountpoint}); TMPDIR chooses another"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.bench.security", description="Measure the emergency stop, calls and receipts."
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument(
        "--only", type=some_of(ROWS), default=ROWS, metavar="ROWS", help=f"of {', '.join(ROWS)}"
    )
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="stops; 100 by default")
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="calls; 101 by default")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
