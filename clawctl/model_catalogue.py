"""The catalogue of models that can be pulled by name, and which of them this machine can run.

How fast a model answers is bound by how fast its weights are read: each token reads all of them
once, or the share that a mixture of experts takes. So memory bandwidth, measured here for two
seconds, over those bytes is about what it can give at the most. Long contexts, weak processors and
other programs make it less; those that run during the measurement are in it already.
"""

import contextlib
import ctypes
import os
import threading
import time
import tomllib
from pathlib import Path

import msgspec

from clawd.errors import NotFoundError
from clawd.paths import has_module
from clawd.wire.codec import mirror

CATALOGUE = Path(__file__).parent / "models.toml"
CONTEXT = 8_192
"""The context that memory is counted for; more takes more."""
PROBE_S = 2.0
ENGINE_GB = 0.4  # what the engine takes beside weights and context, of a small model (measured)
SPARE = 0.85  # of what is free: the rest is for all else
_PROBE_BYTES = 64 << 20
_GPU_LIBRARIES = ("cuda", "hip", "vulkan", "sycl", "metal")


class CatalogueModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalogue; what its fields mean stands in models.toml."""

    source: str
    size_gb: float
    kv_kib: float
    context: int
    family: str
    licence: str
    good_for: tuple[str, ...]
    active: float = 1.0
    file: str = ""
    sha256: str = ""
    name: str = ""

    @property
    def memory_gb(self) -> float:
        """Return what it takes with a context of CONTEXT tokens, or its own if that is shorter."""
        context = min(CONTEXT, self.context)
        return round(self.size_gb + ENGINE_GB + self.kv_kib * 1024 * context / 1e9, 1)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a model may take here, in GB, and how fast memory is read, in GB/s; 0 for unknown.

    Attributes:
        ram_gb: free memory of the machine, or what its cgroup still allows.
        vram_gb: free memory of the largest GPU that the installed llama.cpp can use.
        gpu: what that GPU is called, or why none is used.
    """

    ram_gb: float
    ram_gb_per_s: float = 0.0
    vram_gb: float = 0.0
    vram_gb_per_s: float = 0.0
    gpu: str = ""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A model that fits: where it would run, and about the most tokens a second that it can give.

    `tokens_per_s` is 0 where nothing was measured.
    """

    name: str
    source: str
    size_gb: float
    memory_gb: float
    context: int
    family: str
    licence: str
    good_for: tuple[str, ...]
    place: str
    tokens_per_s: float


class Recommended(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine has, and the models that fit, the best first."""

    machine: Machine
    models: list[Fit]


class _Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    models: dict[str, CatalogueModel]


def catalogue() -> list[CatalogueModel]:
    """Return all models of the catalogue, as they stand there."""
    parsed = msgspec.convert(tomllib.loads(CATALOGUE.read_text("utf-8")), _Catalogue)
    return [msgspec.structs.replace(entry, name=name) for name, entry in parsed.models.items()]


def entry_of(name: str) -> CatalogueModel:
    """Return the model of a name, in any case.

    Raises:
        NotFoundError: the catalogue has none.
    """
    for entry in catalogue():
        if entry.name == name.lower():
            return entry
    raise NotFoundError(
        f"the catalogue has no model {name!r}",
        hint="See what there is with `clawctl model list --available`, or name where it is: "
        "hf:ORG/REPO[:QUANT], ollama:NAME[:TAG], https://…, or a path.",
    )


def fitting(entries: list[CatalogueModel], machine: Machine, good_for: str = "") -> list[Fit]:
    """Return the models that fit, those that use the machine best first; embeddings last."""
    fits = []
    for entry in entries:
        if good_for and good_for not in entry.good_for:
            continue
        if entry.memory_gb <= machine.vram_gb * SPARE:
            place, speed = "gpu", machine.vram_gb_per_s
        elif entry.memory_gb <= machine.ram_gb * SPARE:
            place, speed = "cpu", machine.ram_gb_per_s
        else:
            continue
        fits.append(
            mirror(
                Fit,
                entry,
                place=place,
                tokens_per_s=round(speed / (entry.size_gb * entry.active), 1),
            )
        )
    return sorted(fits, key=_worth, reverse=True)


def _worth(fit: Fit) -> tuple[bool, bool, bool, float]:
    """Return how much a model is worth: quick enough to read, calling tools, large; else quick."""
    is_quick = not fit.tokens_per_s or fit.tokens_per_s >= READABLE_PER_S
    size = fit.size_gb if is_quick else fit.tokens_per_s
    return "embeddings" not in fit.good_for, is_quick, bool(fit.family), size


READABLE_GB = 6.0
"""What most processors read often enough a second for a person to read along."""
READABLE_PER_S = 8
"""Fewer tokens a second are slower than people read."""


def look_at_machine(*, probe_s: float = PROBE_S) -> Machine:
    """Measure what a model may take here; takes `probe_s`."""
    ram_gb = free_ram_bytes() / 1e9
    speed = read_rate(probe_s) / 1e9 if probe_s else 0.0
    free, rate, name = _gpu()
    if not has_gpu_engine():
        why = "the installed llama.cpp has no GPU code" if name else "none was found"
        return Machine(ram_gb=ram_gb, ram_gb_per_s=speed, gpu=why)
    return Machine(
        ram_gb=ram_gb,
        ram_gb_per_s=speed,
        vram_gb=free / 1e9,
        vram_gb_per_s=rate / 1e9,
        gpu=name or "none was found",
    )


def free_ram_bytes(root: Path = Path("/")) -> int:
    """Return how much memory may still be taken: what is free, within what the cgroups allow."""
    import psutil

    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, IndexError):
        place = (root / "proc/self/cgroup").read_text("utf-8").splitlines()[0].rpartition(":")[2]
        base = root / "sys/fs/cgroup"
        here = base / place.lstrip("/")
        for folder in [here, *here.parents]:
            if folder == base.parent:
                break
            with contextlib.suppress(OSError, ValueError):
                most = int((folder / "memory.max").read_text("ascii"))
                used = int((folder / "memory.current").read_text("ascii"))
                free = min(free, max(most - used, 0))
    return free


def read_rate(seconds: float) -> float:
    """Return how many bytes a second all processors together read from memory."""
    import numpy as np

    count = len(os.sched_getaffinity(0))
    blocks = [np.ones(_PROBE_BYTES // 8, dtype=np.int64) for _ in range(count)]
    done = [0] * count
    end = time.monotonic() + seconds

    def read(number: int) -> None:
        # The largest of integers lets other threads run, and does next to nothing but read.
        while not done[number] or time.monotonic() < end:
            blocks[number].max()
            done[number] += _PROBE_BYTES

    began = time.monotonic()
    threads = [threading.Thread(target=read, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.monotonic() - began)


def has_gpu_engine() -> bool:
    """Return whether the installed llama.cpp brings code for a GPU."""
    if not has_module("llama_cpp"):
        return False
    from importlib.util import find_spec

    spec = find_spec("llama_cpp")
    folder = Path(spec.origin).parent / "lib" if spec and spec.origin else Path()
    return any(list(folder.glob(f"libggml-{name}*")) for name in _GPU_LIBRARIES)


class _NvmlMemory(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


_MEMORY_CLOCK = 2  # nvml.h NVML_CLOCK_MEM


def _gpu() -> tuple[int, float, str]:
    """Return free bytes, bytes a second by its own figures, and name of the largest GPU."""
    best = _amd_gpu()
    with contextlib.suppress(OSError, AttributeError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0:
            try:
                count = ctypes.c_uint()
                nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
                found = [_nvidia_gpu(nvml, number) for number in range(count.value)]
                best = max([best, *found])
            finally:
                nvml.nvmlShutdown()
    return best


def _nvidia_gpu(nvml: ctypes.CDLL, number: int) -> tuple[int, float, str]:
    handle, memory = ctypes.c_void_p(), _NvmlMemory()
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(handle)):
        return 0, 0.0, ""
    name = ctypes.create_string_buffer(96)
    nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(96))
    if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
        return 0, 0.0, ""
    clock_mhz, width_bits = ctypes.c_uint(), ctypes.c_uint()
    rate = 0.0
    if not nvml.nvmlDeviceGetMaxClockInfo(
        handle, ctypes.c_uint(_MEMORY_CLOCK), ctypes.byref(clock_mhz)
    ) and not nvml.nvmlDeviceGetMemoryBusWidth(handle, ctypes.byref(width_bits)):
        # Both edges of the clock carry a bit of every line.
        rate = 2.0 * clock_mhz.value * 1e6 * width_bits.value / 8
    return int(memory.free), rate, name.value.decode("utf-8", "replace")


def _amd_gpu() -> tuple[int, float, str]:
    best = (0, 0.0, "")
    for place in Path("/sys/class/drm").glob("card*/device"):
        with contextlib.suppress(OSError, ValueError):
            total = int((place / "mem_info_vram_total").read_text("ascii"))
            used = int((place / "mem_info_vram_used").read_text("ascii"))
            best = max(best, (total - used, 0.0, "AMD GPU"))
    return best
