"""`make bench-http`: what the HTTP gateway costs over the socket, many streams, llama-server.

    python -m tests.bench.http --binaries FOLDER [--json FILE] [--quick] [--only ROWS]
        [--pairs N] [--threads N]

docs/benchmarks.md says how each row is taken.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.bench.engine_setup import default_threads
from tests.bench.http import beside_llama, many, overhead
from tests.bench.http.rows import LLAMA, MANY, ROWS, chosen, verdict
from tests.bench.http.scale import FULL, QUICK, Scale
from tests.bench.machine import describe
from tests.bench.report import Row, table, to_json
from tests.bench.streams import BenchError, now


def main() -> int:
    """Measure, print, keep."""
    options = _arguments()
    # An end by signal must pass the blocks that end the daemon and the server.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    print(describe(), flush=True)
    scale = QUICK if options.quick else FULL
    if options.quick:
        print("quick: too small and too few to mean anything")
    if options.pairs:
        scale = msgspec.structs.replace(scale, pairs=options.pairs, stream_rounds=options.pairs)
    began = now()
    rows: list[Row] = []
    failure = ""
    try:
        with tempfile.TemporaryDirectory(prefix="clawd-bench-") as folder:
            for row in _measure(Path(folder), scale, options):
                rows.append(row)
                print(verdict(row), flush=True)
    except BenchError as error:
        failure = f"no result: {error}"
    print(f"\n{table(rows)}\n\n{len(rows)} rows in {now() - began:.0f} s")
    if options.json is not None:
        options.json.write_bytes(to_json(rows))
    if failure:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failure else 0


def _measure(folder: Path, scale: Scale, options: argparse.Namespace) -> Iterator[Row]:
    wanted = options.only
    yield from overhead.rows(folder, scale, wanted)
    if some := [name for name in MANY if name in wanted]:
        yield from many.rows(folder, scale, some, _say)
    if some := [name for name in LLAMA if name in wanted]:
        peer = beside_llama.Peers(
            folder=folder, binaries=options.binaries, threads=options.threads, scale=scale
        )
        yield from beside_llama.rows(peer, some)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.bench.http", description="Measure the HTTP gateway."
    )
    parser.add_argument(
        "--binaries", type=Path, required=True, metavar="FOLDER", help="holds llama-server"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument(
        "--only",
        type=chosen,
        default=ROWS,
        metavar="ROWS",
        help=f"rows by the beginning of their names: {', '.join(ROWS)}",
    )
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="of each row")
    parser.add_argument(
        "--threads",
        type=int,
        default=default_threads(),
        metavar="N",
        help="threads of either engine; half of the cores by default",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
