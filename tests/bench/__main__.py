"""`make bench`: measures clawd and, in the same run and in turn with it, what it is held against.

    python -m tests.bench [--json FILE] [--quick] [--threads N] [--only PARTS]

PARTS are some of engine, cancel, status, repl, rpc, receipts, schedules, with commas between them.
docs/benchmarks.md says how each figure is taken.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench import cancel, commands, engine, receipts, repl, rpc, schedules
from tests.bench.engine_setup import default_threads
from tests.bench.machine import describe
from tests.bench.ours import running_daemon
from tests.bench.report import Row, shortfalls, some_of, table, to_json
from tests.bench.scale import FULL, QUICK, Scale
from tests.bench.streams import BenchError

PARTS = ("engine", "cancel", "status", "repl", "rpc", "receipts", "schedules")


def main() -> int:
    """Measure, print, keep."""
    options = _arguments()
    scale = QUICK if options.quick else FULL
    # An end by signal must pass the blocks that end the daemon and the server.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    print(describe(), flush=True)
    if options.quick:
        print("quick: too small and too few to mean anything")
    try:
        with tempfile.TemporaryDirectory(prefix="clawd-bench-") as folder:
            rows = list(_measure(Path(folder), scale, options))
    except BenchError as error:
        print(f"no result: {error}", file=sys.stderr)
        return 1
    print(f"\n{table(rows)}\n\n{_told(shortfalls(rows))}")
    if options.json is not None:
        options.json.write_bytes(to_json(rows))
    return 0


def _measure(folder: Path, scale: Scale, options: argparse.Namespace) -> Iterator[Row]:
    parts: Sequence[str] = options.only
    if "receipts" in parts:
        _say(f"receipts: a chain of {scale.receipts:,}")
        yield from receipts.rows(folder, scale)
    if "schedules" in parts:
        _say(f"schedules: {scale.schedule_starts} starts, one a second")
        yield from schedules.rows(folder, scale, _say)
    if {"status", "repl", "rpc"} & set(parts):
        with running_daemon(folder / "idle") as daemon:
            if "status" in parts:
                _say(f"status: {scale.command_pairs} pairs of commands")
                yield from commands.rows(daemon, scale)
            if "repl" in parts:
                _say(f"repl: {scale.command_pairs} pairs of starts")
                yield from repl.rows(daemon, scale)
            if "rpc" in parts:
                _say(f"rpc: {scale.rpc_pairs} pairs of {scale.rpc_calls} calls")
                yield from rpc.rows(daemon, folder, scale)
    if "cancel" in parts:
        _say("cancel: a place beside four streams")
        yield from cancel.rows(folder, scale, _say, threads=options.threads)
    if "engine" in parts:
        yield from engine.rows(folder, scale, _say, threads=options.threads)


def _told(sentences: list[str]) -> str:
    if not sentences:
        return "Nowhere short of what it is held against."
    return "Where it fell short:\n" + "\n".join(f"  {sentence}" for sentence in sentences)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench", description="Measure this machine.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument(
        "--threads",
        type=int,
        default=default_threads(),
        metavar="N",
        help="threads of either engine; half of the cores by default",
    )
    parser.add_argument(
        "--only",
        type=some_of(PARTS),
        default=PARTS,
        metavar="PARTS",
        help=f"some of {','.join(PARTS)}",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
