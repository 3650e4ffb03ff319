"""`make bench-engine`: the engine against llama-server, on the same llama.cpp, in turn with it.

    python -m tests.bench.llama --binaries FOLDER [--json FILE] [--quick] [--only ROWS]
        [--pairs N] [--threads N] [--cores LIST]

docs/benchmarks.md says how each row is taken.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.bench.engine_setup import default_threads, write_model
from tests.bench.llama import (
    constrained,
    decode,
    hops,
    python_server,
    real,
    restart,
    speculation,
    stall,
    turns,
)
from tests.bench.llama.aims import BY_NAME, MIN_PAIRS, is_reached, verdicts
from tests.bench.llama.bench import Bench
from tests.bench.llama.scale import FULL, QUICK
from tests.bench.machine import describe
from tests.bench.report import Row, some_of, table, to_json
from tests.bench.streams import BenchError, now

PARTS = (decode, turns, stall, hops, restart, speculation, constrained, python_server, real)
ALONE_LIMIT_S = 300


def main() -> int:
    """Measure, print, keep."""
    options = _arguments()
    # An end by signal must pass the blocks that end the daemon and the server.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if options.cores:
        os.sched_setaffinity(0, options.cores)
    print(describe(), flush=True)
    if options.quick:
        print("quick: too small and too few to mean anything")
    began = now()
    rows: list[Row] = []
    failure = ""
    try:
        with tempfile.TemporaryDirectory(prefix="clawd-bench-") as folder:
            for row in _measure(_bench(Path(folder), options), options.only):
                rows.append(row)
                print("\n".join(verdicts([row])), flush=True)
    except BenchError as error:
        failure = f"no result: {error}"
    _tell(rows, now() - began)
    if options.json is not None:
        options.json.write_bytes(to_json(rows))
    if failure:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failure else 0


def _tell(rows: list[Row], elapsed_s: float) -> None:
    reached = sum(is_reached(row) for row in rows)
    print(f"\n{table(rows)}\n")
    print("\n".join(verdicts(rows)))
    print(f"\n{reached} of {len(rows)} rows reached their aim, in {elapsed_s:.0f} s.")


def _bench(folder: Path, options: argparse.Namespace) -> Bench:
    scale = QUICK if options.quick else FULL
    if options.pairs:
        scale = msgspec.structs.replace(scale, pairs=options.pairs)
    _say(f"writing a random model of {scale.layers} layers")
    model = write_model(folder / "random.gguf", layers=scale.layers)
    bench = Bench(
        folder=folder,
        binaries=options.binaries,
        model=model,
        scale=scale,
        threads=options.threads,
        real=options.real.resolve() if options.real is not None else None,
        say=_say,
    )
    print(_alone(bench), flush=True)
    return bench


def _measure(bench: Bench, wanted: tuple[str, ...]) -> Iterator[Row]:
    for part in PARTS:
        chosen = [name for name in part.ROWS if name in wanted]
        if chosen:
            yield from part.rows(bench, chosen)


def _alone(bench: Bench) -> str:
    """Return what llama.cpp does without a server, by llama-bench: what no server can exceed."""
    command = [str(bench.binaries / "llama-bench"), "--model", str(bench.model)]
    command += ["--threads", str(bench.threads), "--flash-attn", "1", "--output", "json"]
    command += ["--n-prompt", "512", "--n-gen", "64", "--repetitions", "3"]
    try:
        done = subprocess.run(
            command, capture_output=True, check=True, timeout=ALONE_LIMIT_S, text=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BenchError(f"llama-bench in {bench.binaries} did not run: {error}") from error
    found = msgspec.json.decode(done.stdout, type=list[_Alone])
    rates = {"prefill" if each.n_prompt else "decode": each.avg_ts for each in found}
    figures = ", ".join(f"{name} {rate:.1f} tok/s" for name, rate in rates.items())
    return f"llama-bench alone, threads {bench.threads}: {figures}"


class _Alone(msgspec.Struct, frozen=True, kw_only=True):
    n_prompt: int
    avg_ts: float


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.bench.llama", description="Measure the engine against llama-server."
    )
    parser.add_argument(
        "--binaries",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="holds llama-server and llama-bench",
    )
    parser.add_argument(
        "--real",
        type=Path,
        metavar="FILE",
        help="the real model; without it, its rows are left out",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument(
        "--only",
        type=some_of(tuple(BY_NAME)),
        default=tuple(BY_NAME),
        metavar="ROWS",
        help=f"of {', '.join(BY_NAME)}",
    )
    parser.add_argument(
        "--pairs", type=int, default=0, metavar="N", help=f"of each row; {MIN_PAIRS} by default"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=default_threads(),
        metavar="N",
        help="threads of either engine; half of the cores by default",
    )
    parser.add_argument(
        "--cores",
        type=_cores,
        default=(),
        metavar="LIST",
        help="cores that everything is pinned to, as 0,1; all by default",
    )
    return parser.parse_args()


def _cores(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
