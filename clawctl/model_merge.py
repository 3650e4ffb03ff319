"""Makes one file of a model and a LoRA adapter over it, its matrices as Q8_0.

An adapter costs its products beside the model's own at every step; in the weights it costs nothing.
llama.cpp's `llama-export-lora` does the same but for the quantisation. Of a matrix W with the pair
`W.lora_a` (rank × columns) and `W.lora_b` (rows × rank) becomes W + alpha / rank · B · A, as
llama-adapter.cpp reckons it. What was made of what is in the file's values (`clawd.wire.models`).
"""

import contextlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clawd
from clawctl import modelfile
from clawctl.progress import ProgressLine
from clawd.errors import (
    ClawError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    StorageError,
)
from clawd.kernel.files import sync_folder
from clawd.paths import install_line
from clawd.wire.models import MERGED_ASSISTANT, MERGED_FROM, ModelPin

Q8_0_FILE = 7  # llama.h `LLAMA_FTYPE_MOSTLY_Q8_0`
BLOCK = 32  # numbers that Q8_0 quantises together, all of one row
_BLOCK_BYTES = 34
_ROOM_BESIDE = 1 << 20  # of the values and the table of tensors
_PIECE_NUMBERS = 4 << 20
_A, _B = ".lora_a", ".lora_b"

Digests = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What is to become one file: base, adapter, and where it goes."""

    base: Path
    adapter: Path
    target: Path


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What is in the folder now, its SHA-256, and what is noted of where it is from."""

    added: modelfile.Added
    sha256: str
    source: str


@dataclass(frozen=True, kw_only=True)
class _Made:
    """One tensor of the result: the base's, and what is added to it.

    Attributes:
        delta: the pair B and A, the scale in B; None for what stays as it is.
        is_quantised: whether it becomes Q8_0; else its bytes are the base's.
    """

    tensor: Any
    delta: tuple[Any, Any] | None
    is_quantised: bool

    @property
    def rows(self) -> int:
        """How many rows it has, those of all its matrices."""
        return int(self.tensor.n_elements) // int(self.tensor.shape[0])

    @property
    def size_bytes(self) -> int:
        """Its size in the result."""
        if not self.is_quantised:
            return int(self.tensor.n_bytes)
        return int(self.tensor.n_elements) // BLOCK * _BLOCK_BYTES


def of_assistant(folder: Path) -> tuple[Merge, Digests]:
    """Return what is merged for the packaged assistant, and the digests of its card.

    Raises:
        NotFoundError: its base is not there, or the package lacks its adapter.
    """
    places = [each / f"{modelfile.ASSISTANT}.gguf" for each in (folder, modelfile.SHARED)]
    base = next((path for path in places if path.is_file()), None)
    if base is None:
        raise NotFoundError(
            f"the base of the assistant is not here: no {places[0].name} in {folder}",
            hint="Get it (98 MB): clawctl model pull assistant",
        )
    package = Path(clawd.__file__).parent / "engine" / "embedded"
    try:
        card = tomllib.loads((package / "assistant-card.toml").read_text("utf-8"))
        digests = str(card["base"]["sha256"]), str(card["adapter"]["sha256"])
    except (OSError, ValueError, KeyError) as error:
        raise NotFoundError(
            f"this installation lacks the card of the assistant: {error}",
            hint="Install clawd anew.",
        ) from error
    adapter = package / "assistant-adapter.gguf"
    return Merge(base=base, adapter=adapter, target=folder / f"{MERGED_ASSISTANT}.gguf"), digests


def checked(wanted: Merge, expected: Digests, progress: modelfile.Progress) -> Digests:
    """Return the SHA-256 of base and adapter; `expected` is "" where none is known.

    Raises:
        ClawError: one is not there, is no GGUF file, or another than is expected or was noted.
    """
    found = []
    for path, digest in zip((wanted.base, wanted.adapter), expected, strict=True):
        pin = modelfile.noted_pin(path)
        digests = modelfile.checked_digests(path, "", progress)
        if len(digests) > 1:
            raise InvalidRequestError(
                f"{path.name} is one of {len(digests)} parts, and only whole files are merged",
                hint="Join them first: llama-gguf-split --merge",
            )
        if digests[0] != (digest or (pin.sha256 if pin else digests[0])):
            raise InvalidRequestError(
                f"{path} is not what it was, or not what it should be: it has SHA-256 "
                f"{digests[0]}, expected {digest or (pin.sha256 if pin else '')}",
                hint="Get it anew, or take it as it is: clawctl model accept NAME",
            )
        found.append(digests[0])
    return found[0], found[1]


def merge(wanted: Merge, digests: Digests, bar: ProgressLine, *, force: bool) -> Merged:
    """Make the file in one step: whole and on the disk, or not at all.

    Args:
        wanted: the files.
        digests: of base and adapter, as they were found just now.
        bar: draws how many bytes are written.
        force: whether another file of that name goes. One that was made of these two stays.

    Raises:
        NotFoundError: the package `gguf` is not there.
        InvalidRequestError: these two cannot be merged; says why.
        StorageError: there is no room, or the disk failed.
    """
    gguf, target = _library(), wanted.target
    is_there = os.path.lexists(target)
    if is_there and (sha256 := _made_before(target, digests)):
        return _merged(wanted, sha256, how="there already")
    if is_there and not force:
        raise modelfile.taken_error(target)
    base, adapter = _read(gguf, wanted.base), _read(gguf, wanted.adapter)
    made = list(_plan(gguf, base, _deltas(gguf, wanted, base, adapter)))
    with _placed(target) as fresh, bar:
        _check_room(fresh.parent, sum(each.size_bytes for each in made))
        with closing(_writer(gguf, fresh, base, made, digests)) as writer:
            _write(gguf, writer, made, bar)
        sha256 = modelfile.digest_of(fresh, lambda _done, _total: None)
    done = _merged(wanted, sha256, how="merged", replaced=is_there)
    modelfile.write_pin(target, ModelPin(sha256=sha256, source=done.source))
    return done


def _made_before(target: Path, digests: Digests) -> str:
    """Return the SHA-256 of a file that is whole and was made of these two, "" of another."""
    pin = modelfile.noted_pin(target)
    with contextlib.suppress(OSError, ClawError):
        if pin and modelfile.digest_of(target, lambda _done, _total: None) == pin.sha256:
            fields = _read(_library(), target).fields
            if tuple(_field_text(fields.get(key)) for key in MERGED_FROM) == digests:
                return pin.sha256
    return ""


def _field_text(field: Any) -> str:
    return str(field.contents()) if field is not None else ""


def _merged(wanted: Merge, sha256: str, *, how: str, replaced: bool = False) -> Merged:
    target = wanted.target
    added = modelfile.Added(
        name=modelfile.model_name(target),
        path=target,
        size_bytes=target.stat().st_size,
        how=how,
        replaced=replaced,
    )
    source = f"{wanted.base.name} merged with {wanted.adapter.name}"
    return Merged(added=added, sha256=sha256, source=source)


def _library() -> Any:
    """Return the package `gguf`, which nothing else of clawd needs.

    Raises:
        NotFoundError: it is not there.
    """
    try:
        import gguf
    except ImportError as error:
        raise NotFoundError(
            f"merging wants the Python package gguf, which cannot be loaded: {error}",
            hint=f"Install it with: {install_line('local')}",
        ) from error
    return gguf


def _read(gguf: Any, path: Path) -> Any:
    try:
        return gguf.GGUFReader(path)
    except OSError as error:
        raise ForbiddenError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise InvalidRequestError(
            f"{path} is not a whole GGUF file: {error}", hint="Was it downloaded whole?"
        ) from error


def _deltas(gguf: Any, wanted: Merge, base: Any, adapter: Any) -> Mapping[str, tuple[Any, Any]]:
    """Return the pairs of the adapter by the tensor that they change, the scale in the second.

    Raises:
        InvalidRequestError: it is not a plain LoRA adapter of this base.
    """
    what = f"{wanted.adapter} cannot be merged into {wanted.base.name}"
    kinds = [_field_text(adapter.fields.get(key)) for key in ("general.type", "adapter.type")]
    if kinds != ["adapter", "lora"] or any("alora" in key for key in adapter.fields):
        raise InvalidRequestError(f"{what}: it is not a plain LoRA adapter")
    ours, its = (_field_text(each.fields.get("general.architecture")) for each in (base, adapter))
    if ours != its:
        raise InvalidRequestError(f"{what}: it is for {its or 'nothing'}, and that is {ours}")
    if _field_text(base.fields.get("general.type")) not in {"", "model"}:
        raise InvalidRequestError(f"{what}: that is not a model")
    alpha = adapter.fields.get("adapter.lora.alpha")
    tensors = {each.name: each for each in base.tensors}
    parts = {each.name: each for each in adapter.tensors}
    names = {name.removesuffix(_A).removesuffix(_B) for name in parts}
    pairs: dict[str, tuple[Any, Any]] = {}
    for name in sorted(names):
        of, a, b = tensors.get(name), parts.get(name + _A), parts.get(name + _B)
        if of is None or a is None or b is None:
            raise InvalidRequestError(f"{what}: {name} is not there, or has no pair")
        if name.startswith("token_embd"):
            raise InvalidRequestError(f"{what}: it changes the embeddings of tokens")
        _check_shapes(what, of, a, b)
        first, second = (_floats(gguf, each, what) for each in (a, b))
        scale = float(alpha.contents()) / len(first) if alpha and alpha.contents() else 1.0
        pairs[name] = first, second * scale
    return pairs


def _check_shapes(what: str, of: Any, a: Any, b: Any) -> None:
    """See that a pair fits a matrix whose rows Q8_0 can hold; GGUF names columns first."""
    shapes = [list(map(int, each.shape)) for each in (of, a, b)]
    fits = [len(shape) for shape in shapes] == [2, 2, 2]
    (columns, rows), (its_columns, rank), (its_rank, its_rows) = shapes if fits else [[0, 0]] * 3
    if not fits or (columns, rows, rank) != (its_columns, its_rows, its_rank) or not rank:
        shown = ", ".join("×".join(map(str, shape)) for shape in shapes)
        raise InvalidRequestError(f"{what}: the shapes of {of.name} do not fit: {shown}")
    if columns % BLOCK:
        raise InvalidRequestError(
            f"{what}: rows of {of.name} have {columns} numbers, not a multiple of 32"
        )


def _floats(gguf: Any, tensor: Any, what: str) -> Any:
    try:
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("float32")
    except NotImplementedError as error:
        raise InvalidRequestError(f"{what}: {tensor.name}: {error}") from error


def _plan(gguf: Any, base: Any, deltas: Mapping[str, tuple[Any, Any]]) -> Iterator[_Made]:
    """Yield how each tensor is made; what the adapter leaves alone and Q8_0 cannot hold stays.

    Raises:
        InvalidRequestError: one that changes is of a type that cannot be read.
    """
    kinds = gguf.GGMLQuantizationType
    for tensor in base.tensors:
        delta = deltas.get(tensor.name)
        is_apt = len(tensor.shape) > 1 and int(tensor.shape[0]) % BLOCK == 0
        wants = is_apt and tensor.tensor_type not in {kinds.F32, kinds.Q8_0}
        try:
            if wants or delta is not None:
                _floats(gguf, _rows(tensor, 0, 1), "the base cannot be merged")
        except InvalidRequestError:
            if delta is not None:
                raise
            wants = False
        yield _Made(tensor=tensor, delta=delta, is_quantised=wants or delta is not None)


def _rows(tensor: Any, start: int, stop: int) -> Any:
    """Return a tensor of some rows, whatever lies above them in one row of matrices."""
    data = tensor.data.reshape(-1, tensor.data.shape[-1])[start:stop]
    return tensor._replace(data=data)


def _check_room(folder: Path, size_bytes: int) -> None:
    place = os.statvfs(folder)
    free = place.f_bavail * place.f_frsize
    if free < size_bytes + _ROOM_BESIDE:
        raise StorageError(
            f"{folder} has room for {free} bytes, and the merged model has {size_bytes}",
            hint="Make room. Base and adapter answer as they are, only slower.",
        )


@contextmanager
def _placed(target: Path) -> Iterator[Path]:
    """Give where to write; it goes to its place at the end, and nothing is left without one."""
    fresh = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        modelfile.make_folder(target.parent)
        modelfile.remove_unfinished(target.parent)
        fresh.unlink(missing_ok=True)
        yield fresh
        fresh.replace(target)
        sync_folder(target.parent)
    except PermissionError as error:
        raise ForbiddenError(
            f"{target.parent} may not be written: {error.strerror}",
            hint="Do it as the user whose home it is, or as root.",
        ) from error
    except OSError as error:
        raise StorageError(f"{target} was not made: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def _writer(gguf: Any, path: Path, base: Any, made: list[_Made], digests: Digests) -> Any:
    """Return a writer that has written all but the weights: the base's values, and ours."""
    import numpy

    writer = gguf.GGUFWriter(path, _field_text(base.fields.get("general.architecture")))
    writer.data_alignment = int(base.alignment)
    for field in base.fields.values():
        name, kinds = field.name, field.types
        is_lost = kinds == [gguf.GGUFValueType.ARRAY]  # an empty one: its type was not read
        if is_lost or name.startswith("GGUF.") or name in {"general.architecture", *MERGED_FROM}:
            continue
        value = Q8_0_FILE if name == "general.file_type" else field.contents()
        writer.add_key_value(name, value, kinds[0], kinds[-1] if len(kinds) > 1 else None)
    for name, digest in zip(MERGED_FROM, digests, strict=True):
        writer.add_key_value(name, digest, gguf.GGUFValueType.STRING)
    for each in made:
        tensor = each.tensor
        kind = gguf.GGMLQuantizationType.Q8_0 if each.is_quantised else tensor.tensor_type
        shape = [int(count) for count in reversed(tensor.shape)]
        writer.add_tensor_info(tensor.name, shape, numpy.dtype("f4"), each.size_bytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    return writer


def _write(gguf: Any, writer: Any, made: list[_Made], bar: ProgressLine) -> None:
    total, done = sum(each.size_bytes for each in made), 0
    for each in made:
        writer.write_tensor_data(_quantised(gguf, each) if each.is_quantised else each.tensor.data)
        done += each.size_bytes
        bar.show(done, total)
    (file,) = writer.fout
    file.flush()
    os.fchmod(file.fileno(), 0o644)
    os.fsync(file.fileno())


def _quantised(gguf: Any, made: _Made) -> Any:
    """Return a tensor as Q8_0, made some rows at a time: as floats it may be gigabytes."""
    import numpy

    step = max(1, _PIECE_NUMBERS // int(made.tensor.shape[0]))
    pieces = []
    for start in range(0, made.rows, step):
        some = _rows(made.tensor, start, start + step)
        numbers = gguf.quants.dequantize(some.data, some.tensor_type)
        if made.delta is not None:
            first, second = made.delta
            numbers = numbers + second[start : start + step] @ first
        numbers = numbers.astype("float32")
        pieces.append(gguf.quants.quantize(numbers, gguf.GGMLQuantizationType.Q8_0))
    return numpy.concatenate(pieces)
