"""The virtual environments of a checkout and what is in them.

What was done is noted inside each environment, so that a second run does nothing and needs no
network:

    .venv/clawd-setup.json    {"project": "<key>", "engine": "<key>", "dev": "<key>"}
    .setup/*.log              what pip, the compiler and apt said

What takes minutes to compile is kept per user, so that the next checkout does not compile it:

    ~/.cache/clawd/build/<key>/   the llama-cpp-python wheel (XDG_CACHE_HOME is honoured)
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bootstrap.steps import SetupError, run_step
from bootstrap.system import MINORS, Interpreter, ensure_packages, probe

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / ".setup"
ENGINE = "llama-cpp-python"
GUIDANCE = "llguidance"
GGUF = "gguf"  # reads and writes models: `clawctl model merge`
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"  # torch alone, 190 MB
# For this CPU; with libmtmd, which reads pictures, but films, for which it starts ffmpeg.
CPU_BUILD = "-DGGML_NATIVE=ON -DLLAVA_BUILD=ON -DMTMD_VIDEO=OFF"
LEAN_BUILD = ROOT / "packaging" / "engine.cmake"  # the libraries alone
BUILD_JOB_BYTES = 1 << 30  # what one compiler takes at its worst on llama.cpp, rounded up


def prepare(
    parts: Sequence[str], venv: Path = ROOT / ".venv", base: Interpreter | None = None
) -> Path:
    """Makes an environment that holds the parts, and gives its python.

    A part whose note still matches is left alone. Without a base, an environment that runs stays
    as it is, unless PYTHON asks for another version.

    Raises:
        SetupError: a step failed, or something of the system is missing.
    """
    if base is None and os.environ.get("PYTHON"):
        base = probe(sys.executable)
    python = venv / "bin" / "python"
    notes = venv / "clawd-setup.json"
    with setup_lock():
        present = usable_environment(python, base)
        done = read_notes(notes)
        if present is not None and all(done.get(part) == part_key(part, present) for part in parts):
            return python
        must_build = "engine" in parts and not built_wheels() and not has_engine(python)
        ensure_packages(builds_engine=must_build, notes=SETUP)
        if present is None:
            present, done = make_environment(venv, base), {}
        for part in parts:
            key = part_key(part, present)
            if done.get(part) != key:
                INSTALLERS[part](python)
                done[part] = key
                notes.write_text(json.dumps(done, indent=1), encoding="utf-8")
    return python


@contextmanager
def setup_lock(name: str = "lock") -> Iterator[None]:
    """Lets one make at a time change what of this checkout a lock stands for.

    Args:
        name: a file in `.setup`. Without one it is that of the environments to work and test in.
    """
    SETUP.mkdir(exist_ok=True)
    with (SETUP / name).open("w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another make is setting up here; waiting for it.", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def usable_environment(python: Path, base: Interpreter | None) -> Interpreter | None:
    """Gives the interpreter of an environment that runs and is of the right version."""
    present = probe(str(python)) if python.exists() else None
    if present is None or present.minor not in MINORS:
        return None
    return present if base is None or base.minor == present.minor else None


def make_environment(venv: Path, base: Interpreter | None) -> Interpreter:
    """Makes an environment from nothing; one that has stopped working is replaced."""
    executable = base.path if base is not None else sys.executable
    command = [executable, "-m", "venv", "--clear", str(venv)]
    run_step(f"making {venv.name}", command, log=SETUP / "venv.log")
    made = probe(str(venv / "bin" / "python"))
    if made is None:
        raise SetupError(f"{venv}/bin/python does not run, though {executable} just made it.")
    return made


def install_project(python: Path) -> None:
    """Installs clawd itself, editable, and what it depends on."""
    pip(python, "installing clawd and its dependencies", "install", "-e", ".")


def install_dev(python: Path) -> None:
    """Installs what the checks and tests use."""
    pip(python, "installing the development tools", "install", "-e", ".[dev]")


def install_bench(python: Path) -> None:
    """Installs what the benchmark compares clawd with."""
    pip(python, "installing what the benchmark compares with", "install", "-e", ".[bench]")


def install_training(python: Path) -> None:
    """Installs what training uses; torch for processors, without the gigabytes of CUDA.

    `TORCH_INDEX` names another index for torch; where it is empty, PyPI's torch comes, with CUDA.
    """
    requirements = ROOT / "training" / "requirements.txt"
    lines = requirements.read_text(encoding="utf-8").splitlines()
    torch = next(line for line in lines if line.startswith("torch"))
    index = os.environ.get("TORCH_INDEX", TORCH_INDEX)
    # That index holds other packages, too, which are taken from where everything else is.
    more = ["--extra-index-url", index, "--retries", "1"] if index else []
    pip(python, "installing torch", "install", "--only-binary", "torch", *more, torch)
    pip(python, "installing what training uses", "install", "-r", str(requirements))


def install_engine(python: Path) -> None:
    """Installs llama-cpp-python: the one already there, the wheel built before, or a new build.

    And what goes with it.
    """
    beside = [local_requirement(name) for name in (GUIDANCE, GGUF)]
    pip(python, "installing what holds answers to schemas and merges models", "install", *beside)
    found = engine_version(python)
    if has_engine(python) and not os.environ.get("CMAKE_ARGS"):
        return
    wheels = built_wheels() or [build_engine(python)]
    if found:
        pip(python, f"removing {ENGINE} {found}", "uninstall", "-y", ENGINE)
    pip(python, f"installing {ENGINE}", "install", str(wheels[-1]))


def build_engine(python: Path) -> Path:
    """Builds the engine's wheel with as many cores as the memory allows, and gives its path."""
    folder = wheel_folder()
    folder.mkdir(parents=True, exist_ok=True)
    # Verbose, because only then pip passes on ninja's count, which the progress line shows.
    # As a setting, because CMAKE_ARGS is split at blanks and a checkout's path may have some.
    lean = f"--config-settings=cmake.define.CMAKE_PROJECT_INCLUDE={LEAN_BUILD}"
    # Not from pip's cache, which cannot tell builds by their arguments.
    arguments = ["wheel", "-v", "--no-deps", "--no-cache-dir", lean, "--wheel-dir", str(folder)]
    arguments.append(engine_requirement())
    environ = {"CMAKE_BUILD_PARALLEL_LEVEL": str(build_jobs()), "CMAKE_ARGS": cmake_arguments()}
    pip(python, f"building {ENGINE} (once, some minutes)", *arguments, environ=environ)
    wheels = built_wheels()
    if not wheels:
        raise SetupError(f"pip left no {ENGINE} wheel in {folder}; see {SETUP / 'pip.log'}")
    return wheels[-1]


INSTALLERS: Mapping[str, Callable[[Path], None]] = {
    "project": install_project,
    "engine": install_engine,
    "dev": install_dev,
    "bench": install_bench,
    "training": install_training,
}


def pip(
    python: Path, title: str, *arguments: str, environ: Mapping[str, str] | None = None
) -> None:
    """Runs the environment's pip as a step."""
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off"}
    command = [str(python), "-m", "pip", *arguments]
    run_step(title, command, log=SETUP / "pip.log", environ={**quiet, **(environ or {})})


def part_key(part: str, interpreter: Interpreter) -> str:
    """Names a state: what is asked for, by which version of these scripts, for which Python."""
    project = read_project()
    scripts = sorted(Path(__file__).parent.glob("*.py"))
    asked: list[Any] = [part, interpreter.version, str(ROOT)]
    asked += [path.read_text(encoding="utf-8") for path in scripts]
    asked += [project["build-system"], project["project"], project["tool"].get("setuptools")]
    if part == "engine":
        asked.append(cmake_arguments())
    return digest(asked)


def read_notes(path: Path) -> dict[str, str]:
    """Reads which parts an environment holds; nothing when the note is missing or damaged."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def read_project() -> dict[str, Any]:
    """Reads pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def digest(value: object) -> str:
    """Gives a short name to a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def engine_requirement() -> str:
    """Gives the requirement on llama-cpp-python, as pyproject.toml has it."""
    return local_requirement(ENGINE)


def local_requirement(name: str) -> str:
    """Gives a requirement of the extra for local models, as pyproject.toml has it."""
    requirements: list[str] = read_project()["project"]["optional-dependencies"]["local"]
    return next(text for text in requirements if text.startswith(name))


def engine_version(python: Path) -> str:
    """Gives the version of llama-cpp-python in an environment; empty when it has none."""
    folders = python.parents[1].glob("lib/python*/site-packages/llama_cpp_python-*.dist-info")
    return next((folder.name.split("-")[1].removesuffix(".dist") for folder in folders), "")


def has_engine(python: Path) -> bool:
    """Tells whether an environment has a llama-cpp-python that satisfies the requirement.

    One without libmtmd does not: earlier versions of these scripts built it so.
    """
    found = engine_version(python)
    library = python.parents[1].glob("lib/python*/site-packages/llama_cpp/lib/libmtmd.so")
    return bool(found) and any(library) and satisfies(found, engine_requirement())


def satisfies(version: str, requirement: str) -> bool:
    """Compares a version with the lowest one that a requirement such as `name>=1.2` allows."""
    lowest = re.search(r">=\s*([\d.]+)", requirement)
    return lowest is None or release(version) >= release(lowest[1])


def release(version: str) -> tuple[int, ...]:
    """Gives the numbers of a version: `0.3.36` as (0, 3, 36)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def built_wheels() -> list[Path]:
    """Gives the wheels built before with the present requirement, machine and arguments."""
    return sorted(wheel_folder().glob("*.whl"))


def wheel_folder() -> Path:
    """Gives the folder of the wheel that fits what is asked for now, on this processor."""
    lean = LEAN_BUILD.read_text(encoding="utf-8")
    key = digest([engine_requirement(), processor(), cmake_arguments(), lean])
    return build_cache() / f"engine-{key}"


def build_cache() -> Path:
    """Gives the folder that keeps what was compiled, for every checkout of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(base) / "clawd" / "build"


def processor() -> list[str]:
    """Names what code for this very processor may use, as a home can be on several machines."""
    found = re.search(r"^(?:flags|Features)\s*: (.*)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    return [platform.machine(), *sorted(found[1].split() if found else ())]


def read_text(path: str) -> str:
    """Reads a file of the kernel's; nothing where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def cmake_arguments() -> str:
    """Gives what the engine is built with; CMAKE_ARGS in the environment comes first."""
    return os.environ.get("CMAKE_ARGS") or CPU_BUILD


def build_jobs() -> int:
    """Gives the number of compilers to run at once."""
    cores = len(os.sched_getaffinity(0))
    available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text("utf-8"))
    fitting = int(available[1]) * 1024 // BUILD_JOB_BYTES if available else cores
    return max(1, min(cores, fitting))
