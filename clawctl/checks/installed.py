"""Whether what clawd is made of is there: Python, its libraries, llama.cpp and what it runs on."""

import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from clawctl.checks.finding import Found, noted, ok, wrong
from clawd import __version__
from clawd.paths import install_line

PYTHONS = ((3, 11), (3, 13))
BINDING = "llama-cpp-python"
BACKENDS = {"cuda": "NVIDIA CUDA", "hip": "AMD ROCm", "vulkan": "Vulkan", "sycl": "Intel SYCL"}

_GPU = (
    'Build it for the GPU, as in: CMAKE_ARGS="-DGGML_CUDA=on" '
    f"pip install --no-binary :all: {BINDING}"
)
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def findings() -> Iterator[Found]:
    """Judge the installation."""
    python = platform.python_version()
    where = Path(__file__).parents[1]
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        yield ok("install", f"clawctl {__version__} on Python {python}, in {where}")
    else:
        yield noted(
            "install",
            f"clawctl {__version__} on Python {python}, which it is not tested with",
            "Use Python 3.11, 3.12 or 3.13.",
        )
    yield _libraries()
    yield _engine()


def _libraries() -> Found:
    try:
        wanted = metadata.requires("clawd") or []
    except metadata.PackageNotFoundError:
        return noted("libraries", "clawd runs from a checkout that is not installed")
    missing = [name for name in map(_plain_name, wanted) if name and not _is_there(name)]
    if not missing:
        return ok("libraries", f"all {sum(map(bool, map(_plain_name, wanted)))} are there")
    return wrong(
        "libraries",
        f"not installed: {', '.join(missing)}",
        "Install clawd anew, with its dependencies.",
    )


def _plain_name(requirement: str) -> str:
    """Return the package that a requirement names; "" for one of an extra or another platform."""
    if ";" in requirement:
        return ""
    found = _NAME.match(requirement)
    return found[0] if found else ""


def _is_there(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _engine() -> Found:
    spec = find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        return noted(
            "llama.cpp",
            f"{BINDING} is not installed: no model can answer on this machine",
            f"Install it with: {install_line('local')}, or use a server as provider.",
        )
    try:
        version = metadata.version(BINDING)
    except metadata.PackageNotFoundError:
        version = "of unknown version"
    folder = Path(next(iter(spec.submodule_search_locations))) / "lib"
    libraries = " ".join(path.name for path in folder.glob("libggml-*"))
    built = [label for key, label in BACKENDS.items() if f"libggml-{key}" in libraries]
    card = Path("/proc/driver/nvidia/version").exists() or Path("/dev/kfd").exists()
    says = f"{BINDING} {version}, built for {', '.join(['the CPU', *built])}"
    if card and not built:
        return noted("llama.cpp", f"{says}; this machine has a GPU that it does not use", _GPU)
    return ok("llama.cpp", says)
