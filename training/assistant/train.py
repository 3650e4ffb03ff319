"""Trains the adapter, and goes on where it was stopped.

    python -m training.assistant.train BASE.gguf DATA.npz FOLDER [--tokens N] [--workers 2]
        [--device cuda --batch 16384] [--start ADAPTER.gguf] [--minutes M] [--rate 1e-3] [--seed 1]

FOLDER keeps `checkpoint.pt`, `log.jsonl` and `adapter.gguf`, written every few minutes and at the
end; SIGTERM and Ctrl-C end a run in the same way. Started again, it goes on from the checkpoint.

On a CPU each worker is a process with one thread and its own batch; they meet once a step to add
up gradients. Two threads of one process wait for each other in every matrix product instead.

Conversations that offer the same tools begin alike. The keys and values of such a head are computed
once for a few steps, without gradient, and all conversations of those steps look at them.
"""

import argparse
import hashlib
import itertools
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

from training.assistant.mask import CALL, CHOICE
from training.assistant.model import KeysAndValues, Llama

RANK, ALPHA = 16, 32.0
BETAS = (0.9, 0.98)
WARM_UP_STEPS = 20
DECAY_SHARE = 0.8  # of the tokens or minutes, at the end
LOWEST_RATE = 0.02
LARGEST_GRADIENT = 1.0
SAME_HEAD_STEPS = 4
LENGTH_NOISE = 8  # tokens; batches hold conversations of about the same length
AVERAGED_STEPS = 60  # the adapter that is written is an average over about so many last steps
HELD_OUT_BATCH = 2048
# By what the mask says: given, an answer, a call, an answer of the base's own. The last are as long
# and as hard to foretell as they are unimportant: at full weight they drown what calls teach.
WEIGHTS = (0.0, 1.0, 1.5, 0.2)
CHOICE_WEIGHT = 2.0  # of what is chosen, beside its sort
FIRST_WEIGHT = 2.5  # of the token by which an assistant begins: it decides between call and answer

Row = tuple[np.ndarray, np.ndarray]


class Data:
    """Rows by the head that they begin with."""

    def __init__(self, path: Path, seed: int) -> None:
        data = np.load(path)
        self.digest = _digest(path)
        ids, mask, starts = data["ids"].astype(np.int64), data["mask"], data["starts"]
        rows = [(ids[a:b], mask[a:b]) for a, b in itertools.pairwise(starts)]
        heads = data["heads"].astype(np.int64)
        self.heads = [
            torch.from_numpy(heads[a:b])[None] for a, b in itertools.pairwise(data["head_starts"])
        ]
        self._by_head: dict[bool, list[list[Row]]] = {
            held: [[] for _ in self.heads] for held in (False, True)
        }
        for row, head, held in zip(rows, data["head_of"], data["held_out"], strict=True):
            self._by_head[bool(held)][head].append(row)
        self._seed = seed

    def epoch(self, number: int, tokens: int, workers: int) -> list[tuple[int, list[Row]]]:
        """Returns heads and batches of about so many tokens, the same for the same seed."""
        steps = SAME_HEAD_STEPS * workers
        rng = random.Random(f"{self._seed} {number}")
        runs = []
        for head, rows in enumerate(self._by_head[False]):
            batches = _batches(rows, tokens, rng)
            rng.shuffle(batches)
            runs += [
                [(head, batch) for batch in batches[at : at + steps]]
                for at in range(0, len(batches), steps)
            ]
        rng.shuffle(runs)
        return list(itertools.chain.from_iterable(runs))

    def held_out(self) -> Iterator[tuple[int, list[Row]]]:
        rng = random.Random(0)
        for head, rows in enumerate(self._by_head[True]):
            for batch in _batches(rows, HELD_OUT_BATCH, rng):
                yield head, batch


def _batches(rows: list[Row], tokens: int, rng: random.Random) -> list[list[Row]]:
    order = sorted(rows, key=lambda row: len(row[0]) + rng.random() * LENGTH_NOISE)
    batches: list[list[Row]] = []
    for row in order:
        if not batches or len(row[0]) * (len(batches[-1]) + 1) > tokens:
            batches.append([])
        batches[-1].append(row)
    return batches


class Trainer:
    """A model with its optimizer, on one device."""

    def __init__(self, given: argparse.Namespace, data: Data) -> None:
        torch.manual_seed(given.seed)
        self.data, self.device = data, given.device
        self.model = Llama(
            given.base,
            rank=RANK,
            alpha=ALPHA,
            device=given.device,
            dtype=getattr(torch, given.precision or fastest(given.device)),
        )
        if given.start:
            self.model.load_adapter(given.start)
        self.parameters = self.model.parameters()
        self.optimizer = torch.optim.Adam(self.parameters, lr=given.rate, betas=BETAS, fused=True)
        self.average = [p.detach().clone() for p in self.parameters]
        self._weights = torch.tensor(WEIGHTS, device=given.device)
        self.seen = self.learnt = self.step = 0
        self.seconds = 0.0
        self.position = (0, 0)  # the epoch, and how many of its batches are done
        self._head, self._age, self._prefix = -1, 0, list[KeysAndValues]()

    def load(self, path: Path) -> None:
        """Goes on from a checkpoint; with other data from the beginning of these."""
        kept = torch.load(path, weights_only=True, map_location=self.device)
        with torch.no_grad():
            for target, source in zip(self.parameters, kept["parameters"], strict=True):
                target.copy_(source)
        self.average = kept["average"]
        self.optimizer.load_state_dict(kept["optimizer"])
        self.seen, self.learnt, self.step = kept["seen"], kept["learnt"], kept["step"]
        self.seconds = kept["seconds"]
        if kept["data"] == self.data.digest:
            self.position = tuple(kept["position"])
            self._head, self._age, self._prefix = kept.get("prefix", (-1, 0, []))

    def save(self, folder: Path) -> None:
        """Writes the checkpoint, and the average as an adapter."""
        kept = {
            "parameters": [p.detach() for p in self.parameters],
            "average": self.average,
            "optimizer": self.optimizer.state_dict(),
            "seen": self.seen,
            "learnt": self.learnt,
            "step": self.step,
            "seconds": self.seconds,
            "position": list(self.position),
            "prefix": (self._head, self._age, self._prefix),
            "data": self.data.digest,
        }
        part = folder / "checkpoint.part"
        torch.save(kept, part)
        part.replace(folder / "checkpoint.pt")
        with _Averaged(self):
            self.model.save_adapter(folder / "adapter.gguf")

    def gradients(self, head: int, batch: list[Row]) -> list[float]:
        """Returns weighted loss and right tokens, the weights, tokens and learnt ones."""
        if head != self._head or self._age >= SAME_HEAD_STEPS:
            self._head, self._age, self._prefix = head, 0, self._prefix_of(head)
        self._age += 1
        ids, mask = self._tensors(batch)
        hidden, _ = self.model.hidden(ids[:, :-1], self._prefix)
        wanted = mask[:, 1:] > 0
        sorts = mask[:, 1:].long()
        weights = self._weights[sorts % CHOICE] * (1 + (sorts >= CHOICE) * (CHOICE_WEIGHT - 1))
        # Whether to call is learnt from what is known, too: the first token has no lower weight.
        first = weights.clamp(min=1) * FIRST_WEIGHT
        weights = torch.where(mask[:, :-1] > 0, weights, first)[wanted]
        loss, right = self.model.loss(hidden[wanted], ids[:, 1:][wanted], weights)
        loss.backward()
        return [loss.item(), right.item(), weights.sum().item(), ids.numel(), len(weights)]

    def update(self, rate: float) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters, LARGEST_GRADIENT)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        with torch.no_grad():
            kept = min(self.step / (self.step + 1), 1 - 1 / AVERAGED_STEPS)
            torch._foreach_lerp_(self.average, self.parameters, 1 - kept)
        self.model.merge()

    @torch.no_grad()
    def judge(self) -> dict[str, float]:
        """Returns how the averaged adapter does on held-out conversations.

        A call counts as right where each of its tokens is the likeliest after those before it:
        that is when greedy generation would have written it to the letter.
        """
        loss, sums, calls = 0.0, [0, 0], [0, 0]
        with _Averaged(self):
            for head, group in itertools.groupby(self.data.held_out(), lambda each: each[0]):
                prefix = self._prefix_of(head)
                for _, batch in group:
                    ids, mask = self._tensors(batch)
                    hidden, _ = self.model.hidden(ids[:, :-1], prefix)
                    wanted = mask[:, 1:] > 0
                    logits, targets = self.model.logits(hidden[wanted]), ids[:, 1:][wanted]
                    loss += F.cross_entropy(logits, targets, reduction="sum").item()
                    right = torch.ones_like(wanted)
                    right[wanted] = logits.argmax(-1) == targets
                    sums[0] += int(right[wanted].sum())
                    sums[1] += len(targets)
                    sorts_of = (mask[:, 1:] % CHOICE).tolist()
                    for row, sorts in zip(right.tolist(), sorts_of, strict=True):
                        for sort, run in itertools.groupby(
                            zip(sorts, row, strict=True), lambda x: x[0]
                        ):
                            if sort == CALL:
                                calls[0] += all(each for _, each in run)
                                calls[1] += 1
        return {
            "loss": round(loss / sums[1], 4),
            "right": round(sums[0] / sums[1], 4),
            "calls_right": calls[0],
            "calls": calls[1],
        }

    @torch.no_grad()
    def _prefix_of(self, head: int) -> list[KeysAndValues]:
        return self.model.hidden(self.data.heads[head].to(self.device))[1]

    def _tensors(self, batch: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
        length = max(len(ids) for ids, _ in batch)
        ids = torch.zeros(len(batch), length, dtype=torch.long)
        mask = torch.zeros(len(batch), length, dtype=torch.uint8)
        for index, (row, sorts) in enumerate(batch):
            ids[index, : len(row)] = torch.from_numpy(row)
            mask[index, : len(row)] = torch.from_numpy(sorts)
        return ids.to(self.device), mask.to(self.device)


class _Averaged:
    """The model holds the average of its last steps, for as long as this is entered."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *_raised: object) -> None:
        self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for parameter, average in zip(self._trainer.parameters, self._trainer.average, strict=True):
            kept = parameter.clone()
            parameter.copy_(average)
            average.copy_(kept)
        self._trainer.model.merge()


class Log:
    """Appends rows to log.jsonl and prints them; the other workers say nothing."""

    def __init__(self, folder: Path, is_first: bool) -> None:
        self._path = folder / "log.jsonl" if is_first else None

    def write(self, **row: object) -> None:
        if self._path is not None:
            text = json.dumps({"time": time.strftime("%H:%M:%S"), **row})
            print(text, flush=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text + "\n")


def _digest(path: Path | None) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path else ""


def rate_at(step: int, done: float, rate: float) -> float:
    """Returns the learning rate: up at first, flat, then down to almost nothing."""
    fallen = max(LOWEST_RATE, min(1.0, (1 - done) / DECAY_SHARE))
    return rate * min((step + 1) / WARM_UP_STEPS, fallen)


def fastest(device: str) -> str:
    """Returns the precision of products that the device computes fastest.

    A processor that has instructions for bfloat16 may still be slower with them (an EPYC is twice
    as fast, a Xeon of 2023 half as fast), so products of a step's size are timed.
    """
    if device != "cpu":
        return "bfloat16"
    has = torch.cpu.get_capabilities()
    if not (has.get("avx512_bf16") or has.get("amx_bf16")):
        return "float32"
    return min(("float32", "bfloat16"), key=_seconds_of_products)


def _seconds_of_products(precision: str) -> float:
    """Returns the processor time of the quickest of some products in that precision."""
    inputs, weights = torch.randn(512, 576), torch.randn(1536, 576)
    inputs, weights = (each.to(getattr(torch, precision)) for each in (inputs, weights))
    times = []
    for _ in range(12):
        begun = time.thread_time()
        torch.mm(inputs, weights.t())
        times.append(time.thread_time() - begun)
    return min(times)


def work(rank: int, given: argparse.Namespace, meet: str) -> None:
    """Trains as one of the workers."""
    if given.workers > 1:
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=given.workers)
    torch.set_num_threads(given.threads)
    torch.set_float32_matmul_precision("medium")
    stopped = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_given: stopped.append(True))
    given.folder.mkdir(parents=True, exist_ok=True)
    log = Log(given.folder, rank == 0)
    trainer = Trainer(given, Data(given.data, given.seed))
    checkpoint = given.folder / "checkpoint.pt"
    if checkpoint.exists():
        trainer.load(checkpoint)
    trainer.model.merge()
    log.write(
        event="begin", tokens=trainer.seen, data=trainer.data.digest,
        start=_digest(given.start), rate=given.rate, total=given.tokens,
        batch=given.batch, workers=given.workers, device=given.device, seed=given.seed,
    )  # fmt: skip
    if rank == 0 and not trainer.step:
        log.write(event="held out", tokens=trainer.seen, **trainer.judge())
    begun = reported = saved = judged = time.monotonic()
    earlier, recent, began = trainer.seconds, np.zeros(5), trainer.step
    epoch, skipped = trainer.position
    for number in itertools.count(epoch):
        batches = trainer.data.epoch(number, given.batch, given.workers)
        for at in range(skipped, len(batches), given.workers):
            mine = batches[at + rank] if at + rank < len(batches) else batches[at]
            elapsed = time.monotonic() - begun
            is_over = (
                bool(stopped)
                or elapsed > 60 * given.minutes
                or trainer.step + 1 - began >= given.steps
                or trainer.seen + given.batch >= given.tokens
            )
            figures = _meet(trainer, [*trainer.gradients(*mine), float(is_over)], given.workers)
            recent += figures[:5]
            trainer.seen += int(figures[3])
            trainer.learnt += int(figures[4])
            done = min(1.0, max(trainer.seen / given.tokens, elapsed / (60 * given.minutes)))
            trainer.update(rate_at(trainer.step, done, given.rate))
            trainer.position = (number, at + given.workers)
            now = time.monotonic()
            trainer.seconds = earlier + now - begun
            ends = figures[5] > 0
            if rank == 0 and (ends or now - reported > given.report):
                log.write(
                    step=trainer.step, tokens=trainer.seen, learnt=trainer.learnt, epoch=number,
                    loss=round(recent[0] / recent[2], 4), right=round(recent[1] / recent[2], 4),
                    tokens_per_second=round(recent[3] / (now - reported), 1),
                    load=os.getloadavg()[0], seconds=round(trainer.seconds),
                )  # fmt: skip
                reported, recent = now, np.zeros(5)
            if rank == 0 and (ends or now - judged > 60 * given.judge):
                log.write(event="held out", tokens=trainer.seen, **trainer.judge())
                judged = reported = time.monotonic()
            if rank == 0 and (ends or now - saved > 60 * given.save):
                trainer.save(given.folder)
                saved = time.monotonic()
            if ends:
                log.write(event="end", tokens=trainer.seen, seconds=round(trainer.seconds))
                if given.workers > 1:
                    dist.barrier()
                    dist.destroy_process_group()
                return
        skipped = 0


def _meet(trainer: Trainer, figures: list[float], workers: int) -> list[float]:
    """Adds up gradients and figures of all workers, and divides by the weights."""
    parameters = trainer.parameters
    if workers > 1:
        meeting = torch.cat([*(p.grad.reshape(-1) for p in parameters), torch.tensor(figures)])
        dist.all_reduce(meeting)
        *grads, sums = meeting.split([*(p.numel() for p in parameters), len(figures)])
        figures = sums.tolist()
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad.copy_(grad.view_as(parameter))
    torch._foreach_div_([p.grad for p in parameters], max(1.0, figures[2]))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="of all runs together")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of this run at most")
    parser.add_argument("--steps", type=int, default=sys.maxsize, help="of this run at most")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--batch", type=int, default=512, help="tokens of each worker in a step")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("bfloat16", "float32"), help="of the products")
    parser.add_argument("--start", type=Path, help="an adapter to begin from")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=float, default=30, help="seconds between rows of the log")
    parser.add_argument("--judge", type=float, default=8, help="minutes between held-out figures")
    parser.add_argument("--save", type=float, default=4, help="minutes between checkpoints")
    given = parser.parse_args()
    if given.workers == 1:
        work(0, given, "")
        return
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (given, f"file://{folder}/meet"), given.workers)


if __name__ == "__main__":
    main()
