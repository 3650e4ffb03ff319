"""What `make bench-engine` holds clawd against: llama-server and llama-bench, built once.

They come from the llama.cpp sources that the sdist of the installed llama-cpp-python carries, with
the arguments that the engine's wheel is built with:

    .setup/peer/<key>/source/     the sdist, unpacked
    .setup/peer/<key>/build/bin/  llama-server and llama-bench
    .setup/peer.log               what tar, cmake and the compiler said

A build that was interrupted goes on where it was.
"""

import platform
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from bootstrap.environment import (
    ENGINE,
    SETUP,
    build_jobs,
    cmake_arguments,
    digest,
    engine_version,
    pip,
    setup_lock,
)
from bootstrap.steps import SetupError, run_step
from bootstrap.system import ensure_packages, has_programs

CHAT_CASES = ("models/templates", "tests/test-chat.cpp")  # the one that tells it is whole, last
PROGRAMS = ("llama-server", "llama-bench")
LOG = SETUP / "peer.log"
# Nothing that the server could fetch or that the measurement does not use, and no shared library
# that could be mistaken for the wheel's.
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_CURL": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
}


def build_peer(python: Path) -> Path:
    """Builds the programs where they are missing, and gives the folder that holds them.

    Raises:
        SetupError: a step failed, or this machine lacks what compiles.
    """
    version = engine_version(python)
    if not version:
        raise SetupError(f"{python.parents[1]} has no {ENGINE}; `make setup` installs it.")
    folder = peer_folder(version)
    binaries = folder / "build" / "bin"
    with setup_lock():
        if not is_built(binaries):
            ensure_packages(builds_engine=True, notes=SETUP)
            source = fetch_source(python, version, folder)
            compile_programs(source, folder / "build")
    if not is_built(binaries):
        raise SetupError(f"cmake left no {' and '.join(PROGRAMS)} in {binaries}; see {LOG}")
    return binaries


def peer_folder(version: str) -> Path:
    """Gives the folder of the build that fits this version, machine and arguments."""
    return SETUP / "peer" / digest([version, platform.machine(), cmake_arguments()])


def is_built(binaries: Path) -> bool:
    """Tells whether all programs are there."""
    return all((binaries / name).is_file() for name in PROGRAMS)


def fetch_source(python: Path, version: str, folder: Path) -> Path:
    """Downloads and unpacks the sdist where that was not done, and gives llama.cpp's folder."""
    source = folder / "source"
    if not source.exists():
        requirement = f"{ENGINE}=={version}"
        options = ["--no-deps", "--no-binary", ENGINE, "--dest", str(folder)]
        pip(python, f"downloading the sources of {ENGINE}", "download", *options, requirement)
        archives = sorted(folder.glob("*.tar.gz"))
        if not archives:
            raise SetupError(f"pip left no sdist of {requirement} in {folder}")
        unpack(archives[-1], source)
    return source / "vendor" / "llama.cpp"


def fetch_chat_cases(python: Path) -> Path:
    """Keeps llama.cpp's chat templates and chat cases, which tests read, and gives their folder.

    .setup/llama.cpp/models/templates/  one file for each template
    .setup/llama.cpp/tests/             the cases
    """
    kept = SETUP / "llama.cpp"
    version = engine_version(python)
    with setup_lock():
        if not version or (kept / "tests" / "test-chat.cpp").is_file():
            return kept
        folder = peer_folder(version)
        folder.mkdir(parents=True, exist_ok=True)
        source = fetch_source(python, version, folder)
        for name in CHAT_CASES:
            target = kept / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (source / name).is_dir() else shutil.copy
            copy(source / name, target)
    return kept


def unpack(archive: Path, target: Path) -> None:
    """Unpacks an archive without its outer folder; what was cut short is never taken for whole."""
    partial = target.with_name(f"{target.name}.partial")
    partial.mkdir(exist_ok=True)
    command = ["tar", "-xzf", str(archive), "-C", str(partial), "--strip-components=1"]
    run_step(f"unpacking {archive.name}", command, log=LOG)
    partial.rename(target)


def compile_programs(source: Path, build: Path) -> None:
    """Configures and compiles, at the lowest priority."""
    if not has_programs("cmake"):
        line = "sudo apt-get install -y cmake ninja-build"
        raise SetupError(f"llama-server is built with cmake, which is missing here:\n  {line}")
    generator = ["-G", "Ninja"] if has_programs("ninja") else []
    configure = ["cmake", "-S", str(source), "-B", str(build), *generator, *definitions()]
    run_step("configuring llama-server", configure, log=LOG)
    compiling = ["cmake", "--build", str(build), "--parallel", str(build_jobs())]
    title = "building llama-server (once, some minutes)"
    run_step(title, ["nice", "-n", "19", *compiling, "--target", *PROGRAMS], log=LOG)


def definitions() -> Sequence[str]:
    """Gives what cmake is told; what concerns this build comes after the wheel's arguments."""
    own = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    return [*shlex.split(cmake_arguments()), *own]
