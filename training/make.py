"""Remakes the embedded model: all stages of training, the GGUF file, the evaluation.

    python -m training.make [--threads 2] [--scale 1.0] [--only STAGE --start FILE] [--install]

A finished stage leaves STAGE.pt in the work folder and is not run again. `--scale 0.01` is a trial
of the whole path. `--only refine --start clawd/engine/embedded/clawd-tiny.gguf` goes on from the
shipped weights. `--install` puts the result and its hash into clawd/engine/embedded.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from clawd.engine import embedded
from training.gguf_file import Shape, write_weights
from training.stages import STAGES
from training.train import train

WORK = Path("build") / "training"
MODEL_NAME = "clawd-tiny.gguf"


def run_stages(given: argparse.Namespace) -> Path:
    """Runs the stages that have no checkpoint yet and returns the last checkpoint."""
    checkpoint: Path | None = given.start
    for stage in STAGES:
        if given.only and stage.name != given.only:
            continue
        target = given.work / f"{stage.name}.pt"
        if not target.exists():
            train(stage, checkpoint, target, scale=given.scale)
        checkpoint = target
    if checkpoint is None:
        raise SystemExit(f"no stage is called {given.only!r}; stages.py lists them")
    return checkpoint


def export(checkpoint: Path, target: Path) -> str:
    """Writes the GGUF file and returns its sha256."""
    weights = torch.load(checkpoint, weights_only=True)
    write_weights(target, {name: value.float().numpy() for name, value in weights.items()}, Shape())
    return hashlib.sha256(target.read_bytes()).hexdigest()


def install(model: Path, digest: str) -> None:
    """Replaces the package's weights and the hash beside them."""
    shutil.copyfile(model, embedded.embedded_model_path())
    face = Path(embedded.__file__)
    text = re.sub(r'(?<=SHA256 = ")[0-9a-f]{64}', digest, face.read_text("utf-8"))
    face.write_text(text, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", choices=[stage.name for stage in STAGES])
    parser.add_argument("--start", type=Path)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--install", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.work.mkdir(parents=True, exist_ok=True)
    model = given.work / MODEL_NAME
    digest = export(run_stages(given), model)
    print(f"{model}: sha256 {digest}", flush=True)
    # processes of their own: torch and llama.cpp each bring an OpenMP runtime
    for module in ("training.check", "training.evaluate"):
        subprocess.run([sys.executable, "-m", module, str(model)], check=True)
    if given.install:
        install(model, digest)


if __name__ == "__main__":
    main()
