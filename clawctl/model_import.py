"""Finds the models that other programs keep on this machine, to be linked instead of copied.

Ollama      MODELS/manifests/HOST/NAMESPACE/NAME/TAG names layers of MODELS/blobs/sha256-DIGEST
LM Studio   MODELS/PUBLISHER/REPOSITORY/FILE.gguf
the hub     HUB/models--ORG--REPO/snapshots/COMMIT/FILE.gguf -> ../../blobs/DIGEST
llama.cpp   CACHE/ORG_REPO_FILE.gguf
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clawctl import modelfile
from clawctl.modelfile import Progress as Draw
from clawd.errors import NotFoundError
from clawd.kernel.files import changed_at
from clawd.paths import expanded
from clawd.wire.models import ModelPin

MAX_MANIFEST_BYTES = 1 << 20
MAX_MODELS = 2_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SHARD = re.compile(r"-(\d{5})-of-\d{5}$")
_DEPTH = 4


@dataclass(frozen=True, kw_only=True)
class ForeignModel:
    """A model of another program.

    Attributes:
        name: how it would be called here.
        sha256: as that program knows it, "" where it does not.
        projector: what it needs for images, if that is there.
    """

    name: str
    path: Path
    program: str
    size_bytes: int
    sha256: str = ""
    projector: Path | None = None


def find_models(environ: Mapping[str, str], folder: Path | None = None) -> list[ForeignModel]:
    """Return the models of other programs, or of one folder that is laid out as theirs are."""
    found: dict[str, ForeignModel] = {}
    for program, place in [("", folder)] if folder is not None else _places(environ):
        if (place / "blobs").is_dir() and any(place.glob("manifests*")):
            models = _of_ollama(place)
        elif any(place.glob("models--*--*")):
            models = _of_hub(place)
        else:
            models = _of_tree(place, program or "a folder")
        for each in models:
            if len(found) < MAX_MODELS:
                found.setdefault(each.name, each)
    return sorted(found.values(), key=lambda each: (each.program, each.name.lower()))


def import_model(found: ForeignModel, folder: Path, *, force: bool, draw: Draw) -> modelfile.Added:
    """Link a model into the folder, and note its digest.

    Raises:
        ClawError: its name is taken, or it cannot be read or linked.
    """
    options = modelfile.AddOptions(name=found.name, force=force, symlink=True)
    added = modelfile.add_model(found.path, folder, options, draw)
    source = f"{found.program}: {found.path}"
    if found.sha256:
        # Not read here: the daemon reads it when it loads it, and sees whether that is true.
        modelfile.write_pin(added.path, ModelPin(sha256=found.sha256, source=source), is_seen=False)
    else:
        parts = sorted(found.path.parent.glob(f"{_SHARD.sub('', found.path.stem)}-*-of-*.gguf"))
        is_split = _SHARD.search(found.path.stem) is not None
        files = parts if is_split else [found.path]
        modelfile.pin_parts(added.path, [modelfile.digest_of(file, draw) for file in files], source)
    if found.projector is not None:
        eyes = modelfile.AddOptions(
            name=f"{modelfile.PROJECTOR}-{added.name}", force=force, symlink=True
        )
        modelfile.add_model(found.projector, folder, eyes, draw)
    return added


def named(found: list[ForeignModel], name: str) -> ForeignModel:
    """Return the model of a name, in any case.

    Raises:
        NotFoundError: there is none; says which are there.
    """
    for each in found:
        if each.name.lower() == name.lower():
            return each
    there = ", ".join(each.name for each in found) or "none"
    raise NotFoundError(
        f"no other program here has a model named {name!r}; there are: {there}",
        hint="Another folder is looked through with --from DIR.",
    )


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield where the programs keep models, those that were moved by a variable first."""
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    hub = environ.get("HF_HUB_CACHE") or f"{environ.get('HF_HOME') or f'{cache}/huggingface'}/hub"
    for program, place in (
        ("Ollama", environ.get("OLLAMA_MODELS") or "~/.ollama/models"),
        ("Ollama", "/usr/share/ollama/.ollama/models"),
        ("Ollama", "/var/lib/ollama/models"),
        ("LM Studio", "~/.lmstudio/models"),
        ("LM Studio", "~/.cache/lm-studio/models"),
        ("Hugging Face", hub),
        ("llama.cpp", environ.get("LLAMA_CACHE") or f"{cache}/llama.cpp"),
    ):
        path = expanded(place)
        if path.is_dir() and os.access(path, os.R_OK | os.X_OK):
            yield program, path


def _of_ollama(place: Path) -> Iterator[ForeignModel]:
    for manifest in sorted(place.glob("manifests*/*/*/*/*"))[:MAX_MODELS]:
        _host, space, name, tag = manifest.parts[-4:]
        layers = _layers(manifest)
        path = _blob(place, layers.get(modelfile.MODEL_LAYER, ""))
        if path is None:
            continue
        words = [name] if space == "library" else [space, name]
        yield ForeignModel(
            name="-".join(words if tag == "latest" else [*words, tag]),
            path=path,
            program="Ollama",
            size_bytes=path.stat().st_size,
            sha256=path.name[-64:],
            projector=_blob(place, layers.get(modelfile.PROJECTOR_LAYER, "")),
        )


def _layers(manifest: Path) -> dict[str, str]:
    """Return the digest of the first layer of each kind; nothing of what is no manifest."""
    try:
        with manifest.open("rb") as file:
            parsed = json.loads(file.read(MAX_MANIFEST_BYTES))
        layers = [each for each in parsed["layers"] if isinstance(each, dict)]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    pairs = reversed([(str(each.get("mediaType")), str(each.get("digest"))) for each in layers])
    return dict(pairs)


def _blob(place: Path, digest: str) -> Path | None:
    hexadecimal = digest.removeprefix("sha256:")
    if not _DIGEST.fullmatch(hexadecimal):
        return None
    path = place / "blobs" / f"sha256-{hexadecimal}"
    return path if path.is_file() else None


def _of_hub(place: Path) -> Iterator[ForeignModel]:
    for repository in sorted(place.glob("models--*--*")):
        # The newest one last: a name that is there twice is its.
        snapshots = sorted(repository.glob("snapshots/*"), key=changed_at)
        for snapshot in reversed(snapshots):
            for found in _of_tree(snapshot, "Hugging Face"):
                real = found.path.resolve()
                digest = real.name if _DIGEST.fullmatch(real.name) else ""
                is_whole = _SHARD.search(found.path.stem) is None
                yield ForeignModel(
                    name=found.name,
                    path=found.path,
                    program=found.program,
                    size_bytes=found.size_bytes,
                    sha256=digest if is_whole else "",
                    projector=found.projector,
                )


def _of_tree(place: Path, program: str) -> Iterator[ForeignModel]:
    """Yield the GGUF files in a folder and some levels below it."""
    for base, folders, names in os.walk(place):
        folders.sort()
        if len(Path(base).relative_to(place).parts) >= _DEPTH:
            folders.clear()
        files = [Path(base) / name for name in sorted(names) if name.lower().endswith(".gguf")]
        eyes = [file for file in files if modelfile.PROJECTOR in file.name.lower()]
        for file in files:
            shard = _SHARD.search(file.stem)
            if file in eyes or (shard is not None and int(shard[1]) != 1) or not file.is_file():
                continue
            parts = [file]
            if shard is not None:
                parts = list(file.parent.glob(f"{file.stem[: shard.start()]}-*-of-*.gguf"))
            yield ForeignModel(
                name=_SHARD.sub("", file.stem),
                path=file,
                program=program,
                size_bytes=sum(part.stat().st_size for part in parts if part.is_file()),
                projector=eyes[0] if eyes else None,
            )
