"""The files of a model, looked at before llama.cpp opens them, and why one cannot be loaded.

The part of llama.cpp that computes, where it was built apart from the rest.

A build for one processor has it inside. One for many (GGML_BACKEND_DL, GGML_CPU_ALL_VARIANTS) has a
module for each generation beside the library, as `libggml-cpu-haswell.so`; the fastest that runs
here is to be loaded before anything else is asked (ggml-backend.h).
"""

import ctypes
import hashlib
import math
import os
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from clawd.engine.protocol import ModelConfig

_MAGIC = b"GGUF"
MAX_TEXT_BYTES = 1 << 20


class LoadError(Exception):
    """The model cannot be loaded; `code` is model_not_found, out_of_memory or model_load."""

    def __init__(self, message: str, *, code: str = "model_load") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def check_file(name: str, path: Path, *, missing_code: str = "model_load") -> None:
    """Make sure that a file is there, can be read and is GGUF; `name` is what to call it.

    Raises:
        LoadError: it is not; `missing_code` is its code where there is no file.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise LoadError(f"{name} does not exist", code=missing_code) from None
    except OSError as error:
        raise LoadError(f"{name} cannot be read: {error.strerror}") from None
    if magic != _MAGIC:
        raise LoadError(f"{name} is no GGUF file: it begins with {magic!r}")


def read_text(name: str) -> str:
    """Return a text that belongs to a model, as its chat template.

    Raises:
        LoadError: it is not there, cannot be read, is empty or too long.
    """
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise LoadError(f"the chat template {name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LoadError(f"the chat template {name} is no text in UTF-8") from None
    if not text.strip() or len(data) > MAX_TEXT_BYTES:
        told = f"has {len(data)} bytes" if text.strip() else "is empty"
        raise LoadError(f"the chat template {name} {told}; expected 1 to {MAX_TEXT_BYTES}")
    return text


_SAMPLE_BYTES = 1024 * 1024
# What changes speed, place or policy, but not what a token's keys and values are.
_IRRELEVANT = frozenset({
    "path", "alias", "template_file", "mmproj", "n_ctx", "n_batch", "n_ubatch", "n_threads",
    "n_parallel", "mlock", "mmap", "max_queue", "prefill_chunk", "speculation", "seed",
    "prefix_cache_ram_mb", "prefix_cache_disk_mb", "prefix_cache_folder",
    "prefix_cache_conversations", "fence", "kv_unified",
})  # fmt: skip


def fingerprint(
    config: ModelConfig, *, library: str, architecture: str, n_ctx: int, streams: int = 1
) -> str:
    """Return the fingerprint of a model that is loaded.

    The file counts by its size, its time of change and a hash of its first and last megabyte:
    hashing all of a large one would take longer than what the cache saves. So does each LoRA
    adapter's, with its scale. Options that are not known to be harmless count too, those added
    later included. Of `streams`, sequences with cells of their own, a state says the number.

    Raises:
        OSError: the model file, or an adapter's, cannot be read.
    """
    options = {
        name: value
        for name, value in msgspec.to_builtins(config).items()
        if name not in _IRRELEVANT and name != "lora"
    }
    adapters = [(_file_facts(adapter.path), adapter.scale) for adapter in config.lora]
    described = (
        library,
        architecture,
        n_ctx,
        streams,
        sorted(options.items()),
        _file_facts(config.path),
        adapters,
    )
    return hashlib.sha256(msgspec.json.encode(described)).hexdigest()


def _file_facts(name: str) -> tuple[int, int, str]:
    path = Path(name)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(_SAMPLE_BYTES))
        size = file.seek(0, 2)
        file.seek(max(size - _SAMPLE_BYTES, 0))
        digest.update(file.read(_SAMPLE_BYTES))
    return size, path.stat().st_mtime_ns, digest.hexdigest()


_OWN_PROCESS = Path("/proc/self/maps")
_MODULE = re.compile(r"/libggml-cpu-([\w.]+)\.so$", re.MULTILINE)


def load_backends(library: Any) -> None:
    """Load what computes from beside the library, unless it is inside.

    Args:
        library: the binding's low-level module.

    Raises:
        LoadError: there is nothing in it that runs on this processor.
    """
    name, pointer = ctypes.c_char_p, ctypes.c_void_p
    try:
        by_name = library.ctypes_function("ggml_backend_reg_by_name", [name], pointer)(_declared)
        load_all = library.ctypes_function("ggml_backend_load_all_from_path", [name], None)(
            _declared
        )
    except AttributeError:
        return  # older than modules
    if by_name(b"CPU"):
        return
    folder = library_folder(library)
    load_all(os.fsencode(folder))
    if not by_name(b"CPU"):
        raise LoadError(
            f"llama.cpp in {folder} has nothing that computes on this processor; install "
            "llama-cpp-python anew"
        )


def library_folder(library: Any) -> Path:
    """Return where the binding takes the library from."""
    chosen = os.environ.get("LLAMA_CPP_LIB_PATH")
    return Path(chosen) if chosen else Path(library.__file__).parent / "lib"


def loaded_variant() -> str:
    """Return for which processors the loaded module is, as `zen4`; "" when it is inside."""
    try:
        maps = _OWN_PROCESS.read_text("utf-8", errors="replace")
    except OSError:
        return ""
    found = _MODULE.search(maps)
    return found[1] if found else ""


def _declared() -> None:
    """Stand in for a function that the binding declares by its signature alone."""


# Devices of other machines: llama.cpp's RPC servers, which a model's layers are spread over too.
#
# The binding knows nothing of them. A llama.cpp built with GGML_RPC names the way in by its
# registry of backends (ggml-backend.h, ggml-rpc.h); any other build has none, which is an error
# here.

CONNECT_LIMIT_S = 5.0

_ADD_SERVER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)


def add_rpc_servers(library: Any, servers: Sequence[str]) -> None:
    """Make the devices of RPC servers known to llama.cpp, before a model is loaded.

    Args:
        library: the binding's low-level module.
        servers: `host:port` each; none changes nothing.

    Raises:
        LoadError: this build cannot, or a server does not answer.
    """
    if not servers:
        return
    add, register = _entry_points(library, servers)
    for server in servers:
        _check_reachable(server)
        devices = add(server.encode())
        if not devices:
            raise LoadError(f"the RPC server {server} offers no device")
        register(devices)


def _entry_points(
    library: Any, servers: Sequence[str]
) -> tuple[Callable[[bytes], int | None], Callable[[int], None]]:
    refusal = LoadError(
        f"rpc_servers ({', '.join(servers)}) cannot be used: this build of llama.cpp has no RPC. "
        'Install llama-cpp-python built with CMAKE_ARGS="-DGGML_RPC=on", or take rpc_servers '
        "out of the config"
    )
    if not library.llama_supports_rpc():
        raise refusal
    name, pointer = ctypes.c_char_p, ctypes.c_void_p
    try:
        by_name = _function(library, "ggml_backend_reg_by_name", [name], pointer)
        lookup = _function(library, "ggml_backend_reg_get_proc_address", [pointer, name], pointer)
        register = _function(library, "ggml_backend_register", [pointer], None)
    except AttributeError as error:
        raise refusal from error
    address = lookup(by_name(b"RPC"), b"ggml_backend_rpc_add_server")
    if not address:
        raise refusal
    return _ADD_SERVER(address), register


def _function(library: Any, name: str, arguments: list[Any], result: Any) -> Any:
    """Return a function of the library, or of one that it was linked with."""
    return library.ctypes_function(name, arguments, result)(lambda: None)


def _check_reachable(server: str) -> None:
    """Say what is wrong before llama.cpp, which ends the process when there is no server."""
    host, _, port = server.rpartition(":")
    try:
        # llama.cpp's own connection is IPv4 too.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_LIMIT_S)
            connection.connect((host, int(port)))
    except (OSError, ValueError) as error:
        raise LoadError(
            f"the RPC server {server} cannot be reached: {error}. Start rpc-server there, or take "
            "it out of rpc_servers"
        ) from None


_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_OWN_CGROUP = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")


def usable_cores() -> int:
    """Return the number of physical cores this process may run on, at least 1.

    Two threads of one core share the units that multiply, so more threads only get in each
    other's way. A cgroup that limits the time of processors (`cpu.max`) has that many.
    """
    cpus = os.sched_getaffinity(0)
    cores = set()
    for cpu in cpus:
        try:
            cores.add(Path(_SIBLINGS.format(cpu)).read_text("ascii"))
        except OSError:
            cores = {str(cpu) for cpu in cpus}
            break
    return max(min(len(cores), _cores_of_time()), 1)


def _cores_of_time() -> int:
    """Return how many cores' time the cgroups of this process get, as cgroup v2's cpu.max says."""
    least = math.inf
    for folder in _own_cgroups():
        try:
            quota, period = (folder / "cpu.max").read_text("ascii").split()
            least = min(least, math.ceil(int(quota) / int(period)))
        except (OSError, ValueError):
            continue  # the root has none, and "max" is no number
    return int(min(least, len(os.sched_getaffinity(0))))


def available_memory() -> int:
    """Return how many bytes can be taken without others having to go; 0 where nothing says."""
    free = 0
    try:  # not psutil: this is behind the fence, and loading it takes the worker 30 ms
        for line in _MEMORY.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return 0
    for folder in _own_cgroups():
        try:
            limit = int((folder / "memory.max").read_text("ascii"))
            used = int((folder / "memory.current").read_text("ascii"))
        except (OSError, ValueError):
            continue
        free = min(free, max(limit - used, 0))
    return free


def _own_cgroups() -> list[Path]:
    """Return the folders of the cgroup that this process is in and of those around it (v2)."""
    try:
        lines = _OWN_CGROUP.read_text("utf-8").splitlines()
    except OSError:
        return []
    paths = [line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")]
    found: list[Path] = []
    for path in paths:
        inner = _CGROUPS / path
        found += [inner, *(each for each in inner.parents if _CGROUPS in each.parents)]
    return found
