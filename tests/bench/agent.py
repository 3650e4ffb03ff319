"""`make bench-agent`: what models get done, what prompts cost, how fast memory is searched.

    python -m tests.bench.agent [--json FILE] [--quick] [--only ROWS] [--tasks WORDS]
        [--models MODELS] [--requests FILE] [--misses FILE]

docs/benchmarks.md says how each row is taken.
"""

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from tests.bench.agent_first import FirstMessage, first_messages
from tests.bench.agent_helpers import Helped, helped_pairs
from tests.bench.agent_memory import Samples, hybrid_pairs, percentiles, search_pairs
from tests.bench.agent_prompts import PromptTokens, prompt_tokens, templates_in
from tests.bench.agent_quality import EMBEDDED, OFFERS, Score, score
from tests.bench.agent_quality import TASKS as QUALITY_TASKS
from tests.bench.agent_requests import FILE, Judged, give_assistant, judged, load
from tests.bench.agent_tasks import TASKS, Task
from tests.bench.agent_world import Pages, world
from tests.bench.machine import describe
from tests.bench.report import Row, row_of, some_of, table, to_json
from tests.bench.security_calls import undo_pairs
from tests.memory.embedders import MiniLM

ROWS = (
    "embedded_tasks_pass",
    "memory_search_p50",
    "memory_search_p95",
    "memory_search_hybrid",
    "first_message_ttft",
    "prompt_overhead_tokens",
    "prompt_families",
    "tasks_core",
    "tasks_all",
    "undo_overhead",
    "assistant_requests",
    "helpers_together",
    "helpers_prefix",
)
ASSISTANT = "assistant"
ASSISTANT_AIMS = {"tool": 0.97, "arguments": 0.93, "end": 0.92}
ASSISTANT_NONE = ("false_done", "overwrote")
TALKS = ("small talk", "knowledge")
FIRST_AIM = 1.2
FIRST_STARTS, QUICK_STARTS = 9, 1
OVERHEAD_AIM = 1_200
PASS_AIM = 0.9
SEARCH_AIM = 2.0
HELPERS_AIM, PREFIX_AIM = 1.8, 1.5
HELPER_TURNS, QUICK_HELPER_TURNS = 5, 1
UNDO_AIM_MS = 150.0
UNDO_FILES, UNDO_CALLS = 10_000, 40
QUICK_UNDO_FILES, QUICK_UNDO_CALLS = 200, 2
HYBRID_AIM_MS = 100.0  # what nobody notices before an answer
MESSAGES, QUERIES = 100_000, 400
HYBRID_MESSAGES, HYBRID_QUERIES = 10_000, 100
QUICK_MESSAGES, QUICK_QUERIES, QUICK_TASKS = 2_000, 40, 3
_Verdict = Callable[[Row, Sequence[Row]], tuple[bool, str]]


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
    print("\n".join(["", table(rows), *side_by_side(rows), *verdicts(rows)]))
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
    if {"first_message_ttft", "prompt_overhead_tokens"} & set(options.only):
        yield from (row for row in _first(folder, options) if row.name in options.only)
    if "undo_overhead" in options.only:
        quick = (QUICK_UNDO_FILES, QUICK_UNDO_CALLS)
        files, calls = quick if options.quick else (UNDO_FILES, UNDO_CALLS)
        _say(f"undo_overhead: {calls} commands in a repository of {files:,} files")
        (folder / "undo").mkdir()
        yield undo_row(asyncio.run(undo_pairs(folder / "undo", files, calls)))
    if "memory_search_hybrid" in options.only:
        if options.embedder is None:
            _say("memory_search_hybrid is left out: it wants --embedder, as make gives it")
            return
        size = (
            (QUICK_MESSAGES, QUICK_QUERIES) if options.quick else (HYBRID_MESSAGES, HYBRID_QUERIES)
        )
        _say(f"memory_search_hybrid: {size[1]} queries over {size[0]:,} messages")
        yield hybrid_row(asyncio.run(_hybrid(folder, options.embedder, *size)))
    if "prompt_families" in options.only:
        yield from _families(folder, options)
    offers = [offer for offer in OFFERS if f"tasks_{offer}" in options.only]
    if offers:
        yield from _quality(folder, options, offers)
    if "assistant_requests" in options.only:
        yield from _requests(folder, options)
    if {"helpers_together", "helpers_prefix"} & set(options.only):
        rows = _helpers(folder, options)
        yield from (row for row in rows if row.name.split()[0] in options.only)


def _helpers(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    if options.real is None:
        _say("helpers_together and helpers_prefix are left out: they want --real")
        return
    turns = QUICK_HELPER_TURNS if options.quick else HELPER_TURNS
    base = options.real.resolve()
    for name, model in ((ASSISTANT, ASSISTANT), ("base", str(base))):
        place = folder / f"helpers-{name}"
        give_assistant(place / "home" / "models", base, options.merged)
        _say(f"helpers_together {name}: {turns} turns with four helpers, and as many in turn")
        yield from helper_rows(name, asyncio.run(helped_pairs(place, model, turns)))


def _families(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    if options.real is None or options.templates is None:
        _say("prompt_families is left out: it wants --real and --templates")
        return
    templates = templates_in(options.templates)
    _say(f"prompt_families: two words in {len(templates)} chat templates")
    yield from family_rows(prompt_tokens(folder / "prompts", options.real.resolve(), templates))


def _quality(folder: Path, options: argparse.Namespace, offers: Sequence[str]) -> Iterator[Row]:
    tasks = [task for task in QUALITY_TASKS if options.tasks in task.text]
    tasks = tasks[:: len(tasks) // QUICK_TASKS] if options.quick else tasks
    models = [EMBEDDED]
    if options.real is None:
        _say("tasks are done by the embedded model alone: others want --real")
    else:
        models.append(str(options.real.resolve()))
    for model in models:
        for is_held in (False, True):
            for offer in offers:
                _say(f"tasks_{offer}: {model}{', held' if is_held else ''}")
                found = score(folder / "quality", model, offer, tasks, _say, is_held=is_held)
                yield quality_row(found)


def _requests(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    requests = [each for each in load(options.requests) if options.tasks in each.say]
    requests = requests[:: len(requests) // QUICK_TASKS] if options.quick else requests
    models = {EMBEDDED: EMBEDDED}
    base = None
    if options.real is None:
        _say("assistant_requests: the assistant and the bare base are left out: they want --real")
    else:
        base = options.real.resolve()
        models = {ASSISTANT: ASSISTANT, **models, "base": str(base)}
    missed = []
    for name in [name for name in models if name in (options.models or models)]:
        _say(f"assistant_requests: {name}, {len(requests)} requests")
        found = judged(
            folder / "requests" / name, models[name], requests, _say, base, options.merged
        )
        missed += [miss_of(name, each) for each in found if each.missed]
        yield from request_rows(name, found)
    if options.misses is not None:
        options.misses.write_bytes(msgspec.json.format(msgspec.json.encode(missed), indent=2))


def _first(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    if options.real is None:
        _say("first_message_ttft and prompt_overhead_tokens are left out: they want --real")
        return
    starts = QUICK_STARTS if options.quick else FIRST_STARTS
    _say(f"first_message_ttft: {starts} starts of a daemon")
    yield from first_rows(list(first_messages(folder / "first", options.real, starts)))


async def _hybrid(folder: Path, model: Path, messages: int, count: int) -> Samples:
    embedder = MiniLM(model.resolve())
    try:
        return await hybrid_pairs(folder, messages, count, embedder)
    finally:
        await embedder.close()


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
    for name, mine, its in zip(ROWS[1:3], ours, peer, strict=True):
        yield Row(name=name, ours=mine, peer=its, ratio=mine / its, spread=pairs.spread, unit="ms")


def hybrid_row(samples: Sequence[tuple[float, float]]) -> Row:
    """Return the middle of searches by words and meaning against those by words."""
    return row_of("memory_search_hybrid", "ms", samples)


def undo_row(samples: Sequence[tuple[float, float]]) -> Row:
    """Return the middle of commands that undo covers against those that it does not."""
    return row_of("undo_overhead", "ms", samples)


def first_rows(found: Sequence[FirstMessage]) -> Iterator[Row]:
    """Return the first message's time against the second's, and its prompt against the aim."""
    yield row_of(
        "first_message_ttft", "ms", [(1e3 * each.first_s, 1e3 * each.second_s) for each in found]
    )
    tokens = [(float(each.tokens), float(OVERHEAD_AIM)) for each in found]
    yield row_of("prompt_overhead_tokens", "tokens", tokens)


def helper_rows(model: str, pairs: Sequence[tuple[Helped, Helped]]) -> Iterator[Row]:
    """Return four helpers at once against in turn, and what the first four read against one."""
    rates = [(together.rate, in_turn.rate) for together, in_turn in pairs]
    yield row_of(f"helpers_together {model}", "tokens/s", rates)
    first = pairs[0][0]  # before it no cache knows their prompt
    read = [(float(first.evaluated), float(first.prompt_tokens))]
    yield row_of(f"helpers_prefix {model}", "tokens", read)


def family_rows(found: Sequence[PromptTokens]) -> Iterator[Row]:
    """Return the prompt of two words in each family, with the core against all tools."""
    for each in found:
        yield row_of(f"prompt {each.family}", "tokens", [(each.core, each.everything)])


def quality_row(found: Score) -> Row:
    """Return how many of the hundred tasks one model did with one offer."""
    rate = len(found.done) / found.count
    return Row(
        name=f"tasks_{found.offer} {found.model}{' held' if found.is_held else ''}",
        ours=len(found.done),
        peer=found.count,
        ratio=rate,
        spread=(rate, rate),
        unit=f"tasks, {found.prompt_tokens:,} tokens a prompt",
    )


def request_rows(model: str, found: Sequence[Judged]) -> Iterator[Row]:
    """Return what one model did with the requests of people, a row for each judge."""
    count = len(found)

    def row(judge: str, ours: float, peer: float, unit: str) -> Row:
        ratio = ours / peer if peer else 0.0
        name = f"assistant_requests {model} {judge}"
        return Row(name=name, ours=ours, peer=peer, ratio=ratio, spread=(ratio, ratio), unit=unit)

    for judge in ("tool", "exact", "arguments", "end", "false_done", "overwrote"):
        yield row(judge, sum(getattr(each, judge) for each in found), count, "requests")
    for kind in TALKS:
        talk = [each for each in found if each.request.kind == kind]
        right = sum(each.end and not each.declined for each in talk)
        yield row(kind, right, len(talk), "answered")
        yield row(f"{kind}, declined", sum(each.declined for each in talk), len(talk), "answers")
    for name, times in (
        ("wall", [each.left.wall_s for each in found]),
        ("processor", [each.left.cpu_s for each in found]),
    ):
        if times:
            yield row(name, statistics.median(times), max(times), "s, the middle and the longest")


def miss_of(model: str, judged_one: Judged) -> dict[str, object]:
    """Return what is kept of a request that missed something."""
    return {
        "model": model,
        "say": judged_one.request.say,
        "kind": judged_one.request.kind,
        "missed": judged_one.missed,
        "calls": judged_one.left.calls,
        "answer": judged_one.left.answer,
    }


def side_by_side(rows: Sequence[Row]) -> list[str]:
    """Return the requests of all models as a table: a line for each judge, a column for each."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        head, _, rest = row.name.partition(" ")
        if head == "assistant_requests":
            model, _, judge = rest.partition(" ")
            cell = (
                f"{row.ours:.2f} s" if row.unit.startswith("s,") else f"{row.ours:g}/{row.peer:g}"
            )
            cells.setdefault(judge, {})[model] = cell
    models = list(dict.fromkeys(name for each in cells.values() for name in each))
    lines = [f"{'':22}" + "".join(f"{name:>12}" for name in models)] if models else []
    for judge, each in cells.items():
        lines.append(f"{judge:22}" + "".join(f"{each.get(name, ''):>12}" for name in models))
    return ["", *lines] if lines else []


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Return what the rows show against their aims, in sentences."""
    said = [""]
    for row in rows:
        verdict = _VERDICTS.get(row.name) or _VERDICTS.get(row.name.partition(" ")[0])
        if verdict is not None:
            is_reached, what = verdict(row, rows)
            said.append(f"{row.name}: {what}: {'reached' if is_reached else 'NOT reached'}")
    families = [row for row in rows if row.name.startswith("prompt ")]
    if families:
        most = max(families, key=lambda row: row.ours)
        within = sum(row.ours <= OVERHEAD_AIM for row in families)
        reached = "reached" if within == len(families) else "NOT reached"
        said.append(
            f"prompt_families: {within} of {len(families)} families within {OVERHEAD_AIM:,} tokens,"
            f" at most {most.ours:,.0f} ({most.name.removeprefix('prompt ')}): {reached}"
        )
    return said


def _pass_rate(row: Row, _rows: Sequence[Row]) -> tuple[bool, str]:
    what = f"{row.ours:g} of {row.peer:g} tasks, {row.ratio:.0%}, aim ≥ {PASS_AIM:.0%}"
    return row.ratio >= PASS_AIM, what


def _first_message(row: Row, _rows: Sequence[Row]) -> tuple[bool, str]:
    return row.ratio <= FIRST_AIM, f"{row.ratio:.2f} times the second turn, aim ≤ {FIRST_AIM:g}"


def _overhead(row: Row, _rows: Sequence[Row]) -> tuple[bool, str]:
    what = f"{row.ours:,.0f} tokens for two words, aim ≤ {OVERHEAD_AIM:,}"
    return row.ours <= OVERHEAD_AIM, what


def _hybrid_search(row: Row, _rows: Sequence[Row]) -> tuple[bool, str]:
    what = f"{row.ours:.1f} ms, {row.ratio:.1f} times words, aim ≤ {HYBRID_AIM_MS:g} ms"
    return row.ours <= HYBRID_AIM_MS, what


def _together(row: Row, _rows: Sequence[Row]) -> tuple[bool, str]:
    return row.ratio >= HELPERS_AIM, f"{row.ratio:.2f} times as fast, aim ≥ {HELPERS_AIM:g}"


def _prefix(row: Row, _rows: Sequence[Row]) -> tuple[bool, str]:
    return row.ratio <= PREFIX_AIM, f"{row.ratio:.2f} prompts read for four, aim ≤ {PREFIX_AIM:g}"


def _search(row: Row, _rows: Sequence[Row]) -> tuple[bool, str]:
    return row.ratio <= SEARCH_AIM, f"{row.ratio:.2f} times the bare query, aim ≤ {SEARCH_AIM:g}"


def _core(row: Row, rows: Sequence[Row]) -> tuple[bool, str]:
    """Judge the core by what all tools come to on the same model."""
    name = row.name.replace("tasks_core", "tasks_all")
    everything = next((other.ours for other in rows if other.name == name), None)
    if everything is None:
        return True, f"{row.ours:g} of {row.peer:g} tasks, nothing to hold it against"
    what = f"{row.ours:g} of {row.peer:g} tasks, {everything:g} with all tools, aim ≥ these"
    return row.ours >= everything, what


def _assistant(row: Row, _rows: Sequence[Row]) -> tuple[bool, str]:
    judge = row.name.rpartition(" ")[2]
    if judge in ASSISTANT_NONE:
        return row.ours == 0, f"{row.ours:g} of {row.peer:g} requests, aim 0"
    aim = ASSISTANT_AIMS[judge]
    what = f"{row.ours:g} of {row.peer:g} requests, {row.ratio:.1%}, aim ≥ {aim:.0%}"
    return row.ratio >= aim, what


def _undo(row: Row, _rows: Sequence[Row]) -> tuple[bool, str]:
    more = row.ours - row.peer
    return more <= UNDO_AIM_MS, f"{more:.0f} ms more for a command, aim ≤ {UNDO_AIM_MS:g} ms"


_VERDICTS: dict[str, _Verdict] = {
    "embedded_tasks_pass": _pass_rate,
    "first_message_ttft": _first_message,
    "prompt_overhead_tokens": _overhead,
    "memory_search_hybrid": _hybrid_search,
    f"helpers_together {ASSISTANT}": _together,
    f"helpers_prefix {ASSISTANT}": _prefix,
    "memory_search_p50": _search,
    "memory_search_p95": _search,
    "tasks_core": _core,
    "undo_overhead": _undo,
    **{
        f"assistant_requests {ASSISTANT} {judge}": _assistant
        for judge in (*ASSISTANT_AIMS, *ASSISTANT_NONE)
    },
}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.bench.agent", description="Let the embedded model work, and search memory."
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--real", type=Path, metavar="FILE", help="SmolLM2, the real model")
    parser.add_argument(
        "--merged", type=Path, metavar="FILE", help="the assistant in one file, with its pin"
    )
    parser.add_argument(
        "--embedder", type=Path, metavar="FILE", help="all-MiniLM-L6-v2 for memory_search_hybrid"
    )
    parser.add_argument("--templates", type=Path, metavar="DIR", help="llama.cpp's chat templates")
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument(
        "--only", type=some_of(ROWS), default=ROWS, metavar="ROWS", help=f"of {', '.join(ROWS)}"
    )
    parser.add_argument(
        "--requests",
        type=Path,
        default=FILE,
        metavar="FILE",
        help="of assistant_requests others than the two hundred",
    )
    parser.add_argument(
        "--misses", type=Path, metavar="FILE", help="write what assistant_requests missed there"
    )
    parser.add_argument(
        "--models",
        type=some_of((ASSISTANT, EMBEDDED, "base")),
        metavar="MODELS",
        help="of assistant_requests only these",
    )
    parser.add_argument("--tasks", default="", metavar="WORDS", help="tasks with these words only")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
