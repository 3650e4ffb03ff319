"""Checks that llama.cpp computes what was trained: the same texts through both.

    python -m training.assistant.check BASE.gguf ADAPTER.gguf HELD.jsonl

llama.cpp runs in a child process: it and torch each bring an OpenMP runtime of their own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

COMPARED = 12
# llama.cpp multiplies with rounded activations (Q8), training with float32.
LARGEST_DIVERGENCE = 0.02
LEAST_SAME = 0.97


def dump(base: Path, adapter: Path, held: Path, out: Path) -> None:
    """Writes tokens and llama.cpp's logits of some conversations."""
    from training.assistant.runner import Runner
    from training.assistant.texts import Texts

    runner, texts = Runner(base, adapter), Texts()
    kept: dict[str, np.ndarray] = {}
    for index, line in enumerate(held.read_text("utf-8").splitlines()[:COMPARED]):
        row = json.loads(line)
        head, parts = texts.parts(row["messages"], row["tools"])
        pieces = [runner.tokens(head), *(runner.tokens(text) for text, _ in parts)]
        tokens = [token for piece in pieces for token in piece]
        if tokens != runner.tokens(head + "".join(text for text, _ in parts)):
            raise SystemExit(f"its tokens depend on where it is cut: {head}{parts}")
        kept[f"tokens_{index}"] = np.array(tokens)
        first = len(pieces[0])
        kept[f"logits_{index}"] = runner.logits(tokens)[first:].astype(np.float32)
    np.savez(out, **kept)


def compare(base: Path, adapter: Path, dumped: Path) -> dict[str, float]:
    """Returns how far the two are apart, over all positions behind the heads."""
    import torch

    from training.assistant.model import Llama
    from training.assistant.train import ALPHA, RANK

    torch.set_num_threads(1)
    data = np.load(dumped)
    model = Llama(base, rank=RANK, alpha=ALPHA)
    model.load_adapter(adapter)
    divergences, same = [], []
    for index in range(len(data.files) // 2):
        ids, theirs = torch.from_numpy(data[f"tokens_{index}"]), data[f"logits_{index}"]
        with torch.no_grad():
            hidden, _ = model.hidden(ids[None])
            ours = model.logits(hidden[0, -len(theirs) :])
        p, q = ours.log_softmax(-1), torch.from_numpy(theirs).log_softmax(-1)
        divergences.append((p.exp() * (p - q)).sum(-1))
        same.append(p.argmax(-1) == q.argmax(-1))
    every, agreed = torch.cat(divergences), torch.cat(same)
    return {
        "positions": len(every),
        "divergence": round(every.mean().item(), 5),
        "same_choice": round(agreed.float().mean().item(), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("adapter", type=Path)
    parser.add_argument("held", type=Path)
    parser.add_argument("--dump", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--llama-python", default=sys.executable, help="the Python with llama.cpp")
    given = parser.parse_args()
    if given.dump:
        dump(given.base, given.adapter, given.held, given.dump)
        return
    with tempfile.TemporaryDirectory() as folder:
        dumped = Path(folder) / "dumped.npz"
        command = [given.llama_python, "-m", "training.assistant.check"]
        command += [str(given.base), str(given.adapter), str(given.held), "--dump", str(dumped)]
        subprocess.run(command, check=True)
        found = compare(given.base, given.adapter, dumped)
    print(json.dumps(found))
    if found["divergence"] > LARGEST_DIVERGENCE or found["same_choice"] < LEAST_SAME:
        raise SystemExit("llama.cpp does not compute what was trained")


if __name__ == "__main__":
    main()
