"""The trainer: one stage, from start weights to a checkpoint.

    python -m training.train STAGE --out OUT.pt [--start IN.pt | IN.gguf] [--threads N] [--scale F]
        [--minutes M]

A checkpoint is a dict of float32 master weights. Optimizer state starts fresh in every stage.
"""

import argparse
import itertools
import math
import random
import time
from pathlib import Path
from statistics import mean

import torch
import torch.nn.functional as F

from training.batches import Batches, copying_batch
from training.copying_start import build_copying_circuit
from training.gguf_file import Shape, read_weights
from training.model import Model
from training.optimizer import Optimizer
from training.stages import STAGES, Stage

REPORT_EVERY_S = 20
COPYING_EVERY = 4


def start_weights(start: Path | None, shape: Shape) -> dict[str, torch.Tensor]:
    """Returns the weights of a checkpoint or a GGUF file, or new ones that can copy."""
    if start is not None and start.suffix == ".gguf":
        return {
            name: torch.from_numpy(value.copy())
            for name, value in read_weights(start, shape).items()
        }
    if start is not None:
        return torch.load(start, weights_only=True)
    torch.manual_seed(0)
    model = Model(shape)
    build_copying_circuit(model)
    return {name: weight.data.clone() for name, weight in model.named_parameters()}


def train(
    stage: Stage,
    start: Path | None,
    out: Path,
    *,
    scale: float = 1.0,
    limit_s: float = math.inf,
) -> None:
    """Runs a stage and writes its checkpoint.

    `scale` shortens the stage for a trial. Where `limit_s` ends before the tokens do, the learning
    rate falls with the time instead, so that the stage still ends at its lowest rate.
    """
    shape = Shape()
    masters = start_weights(start, shape)
    first = {name: weight.clone() for name, weight in masters.items()}
    torch.manual_seed(0)
    model = Model(shape).bfloat16()
    optimizer = Optimizer(model, masters)
    batches = iter(Batches(stage.seed, stage.max_tokens))
    rng = random.Random(stage.seed)
    total, seen = int(stage.tokens * scale), 0
    progress = Progress(total)
    for step in itertools.count():
        done = max(seen / total, progress.elapsed_s / limit_s)
        if done >= 1:
            break
        copying = seen < stage.copying_tokens * scale and step % COPYING_EVERY == 0
        ids, mask = copying_batch(rng, shape.vocab) if copying else next(batches)
        loss, accuracy = _backward(model, ids, mask)
        optimizer.step(stage.rate_at(done))
        seen += ids.numel()
        if not copying:
            progress.add(step, seen, loss, accuracy)
    averaged = {name: end.lerp(first[name], stage.kept) for name, end in masters.items()}
    torch.save(averaged, out)
    print(f"{stage.name}: {seen} tokens in {progress.elapsed_s:.0f} s -> {out}", flush=True)


def _backward(model: Model, ids: torch.Tensor, mask: torch.Tensor) -> tuple[float, float]:
    learnt = mask.reshape(-1).nonzero()[:, 0]
    targets = ids.roll(-1, 1).reshape(-1)[learnt]
    hidden = model.hidden(ids).reshape(-1, model.shape.width)[learnt]
    logits = model.logits(hidden).float()
    loss = F.cross_entropy(logits, targets)
    loss.backward()
    return loss.item(), (logits.argmax(-1) == targets).float().mean().item()


class Progress:
    """Prints loss and token accuracy now and then."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._started = self._reported = time.monotonic()
        self._figures: list[tuple[float, float]] = []

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def add(self, step: int, seen: int, loss: float, accuracy: float) -> None:
        self._figures.append((loss, accuracy))
        if time.monotonic() - self._reported < REPORT_EVERY_S:
            return
        self._reported = time.monotonic()
        losses, accuracies = zip(*self._figures, strict=True)
        done = f"{self.elapsed_s:.0f} s  step {step}  {seen / 1e6:.2f}/{self._total / 1e6:.2f} M"
        learnt = f"loss {mean(losses):.4f}  accuracy {mean(accuracies):.4f}"
        print(f"{done}  {learnt}  {seen / self.elapsed_s:.0f} tokens/s", flush=True)
        self._figures = []


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("stage", choices=[stage.name for stage in STAGES])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    stage = next(stage for stage in STAGES if stage.name == given.stage)
    train(stage, given.start, given.out, scale=given.scale, limit_s=60 * given.minutes)


if __name__ == "__main__":
    main()
