"""Makes the assistant's adapter: conversations, training, the check against llama.cpp, judging.

    make train ARGS="[--tokens 5000000] [--workers 2] [--install] [options of train]"
    python -m training.assistant.make BASE.gguf [the same]

A GPU takes one process: `--workers 1 --device cuda --batch 16384 --rate 3e-3`. Each stage is a
process of its own, as torch and llama.cpp bring an OpenMP runtime each. The work folder keeps the
conversations and a checkpoint every few minutes; started again, training goes on from there.
`--install` puts adapter and card into the package.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from clawd.engine import embedded

WORK = Path("build") / "training" / "assistant"
PACKAGE = Path(embedded.__file__).parent
ADAPTER, CARD = "assistant-adapter.gguf", "assistant-card.toml"
LICENCE = "Apache-2.0"
BASE_NAME = "SmolLM2-135M-Instruct Q4_1"
CALLS = {"first": 0.3, "further": 0.9, "change": 0.25}
"""From which probability on calls are made; `decisions` shows what the first two cost."""


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stage(name: str, *arguments: object) -> None:
    """Runs a module in a process of its own."""
    command = [sys.executable, "-m", f"training.assistant.{name}", *map(str, arguments)]
    print("==", name, flush=True)
    status = subprocess.call(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if status:
        raise SystemExit(f"{name} failed with exit status {status}")


def card(
    base: Path, run: Path, data: Path, note: str = "", *, is_default: bool = False
) -> dict[str, Any]:
    """Returns what the card says, from the log of the run."""
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    trained = next(row for row in reversed(rows) if "step" in row)
    held = next(row for row in reversed(rows) if row.get("event") == "held out")
    judged = next((row for row in reversed(rows) if row.get("event") == "judged"), {})
    begun = next(row for row in reversed(rows) if row.get("event") == "begin")
    kept = ("calls", "tool", "exact", "texts", "uncalled", "conversations", "whole")
    return {
        "name": "assistant",
        "is_default": is_default,
        "base": {"name": BASE_NAME, "sha256": sha256(base), "licence": LICENCE},
        "adapter": {
            "sha256": sha256(run / "adapter.gguf"),
            "licence": LICENCE,
            "rank": 16,
            "alpha": 32,
        },
        "calls": CALLS,
        "training": {
            "data": "conversations of training/assistant, invented, no person's",
            "data_sha256": sha256(data),
            "start_sha256": begun["start"],
            "seed": begun["seed"],
            "steps": trained["step"],
            "tokens": trained["tokens"],
            "learnt_tokens": trained["learnt"],
            "seconds": trained["seconds"],
            **({"note": note} if note else {}),
        },
        "held_out": {key: held[key] for key in ("loss", "right", "calls", "calls_right")},
        "judged": {key: judged[key] for key in kept if key in judged},
    }


def as_toml(values: dict[str, Any]) -> str:
    """Returns a table of strings, numbers and tables as TOML."""
    lines = ["# What the adapter beside this file is; written by training/assistant/make.py."]
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    for key, value in values.items():
        if key not in tables:
            lines.append(f"{key} = {json.dumps(value)}")
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    text = "\n".join(lines) + "\n"
    tomllib.loads(text)
    return text


def install(base: Path, run: Path, data: Path, note: str, *, is_default: bool) -> None:
    """Replaces adapter and card of the package."""
    shutil.copyfile(run / "adapter.gguf", PACKAGE / ADAPTER)
    (PACKAGE / CARD).write_text(
        as_toml(card(base, run, data, note, is_default=is_default)), "utf-8"
    )
    print(f"installed {PACKAGE / ADAPTER} and {CARD}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("--tokens", type=int, default=5_000_000)
    parser.add_argument("--data", type=Path, help="conversations made before, by prepare")
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="processes that train")
    parser.add_argument("--judged", type=int, default=150, help="conversations to judge by")
    parser.add_argument("--note", default="", help="what the card is to say beside its figures")
    parser.add_argument(
        "--default",
        action="store_true",
        help="it answers unasked: it was judged good enough",
    )
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--only-install", action="store_true", help="what was trained before")
    given, training = parser.parse_known_args()
    given.work.mkdir(parents=True, exist_ok=True)
    data = given.data or given.work / f"data-{given.seed}.npz"
    held, run = data.with_suffix(".held.jsonl"), given.work / "run"
    if not data.exists():
        stage("prepare", given.base, data, "--tokens", given.tokens, "--seed", given.seed)
    if not given.only_install:
        more = ["--tokens", given.tokens, "--seed", given.seed, "--workers", given.workers]
        more += training
        stage("train", given.base, data, run, *more)
    adapter = run / "adapter.gguf"
    stage("check", given.base, adapter, held)
    asked = ["--adapter", adapter, "--count", given.judged, "--talk", "--log", run / "log.jsonl"]
    stage("judge", given.base, held, *asked)
    if given.install or given.only_install:
        install(given.base, run, data, given.note, is_default=given.default)


if __name__ == "__main__":
    main()
