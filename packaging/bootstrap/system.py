"""What the machine offers: interpreters, packages, and whether we may install some."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap.steps import SetupError, run_step

MINORS = ("3.11", "3.12", "3.13")
PROBE_LIMIT_S = 30
NO_SANDBOX = "the sandbox; without it every tool that starts a process is refused"
PROBE = (
    "import importlib.util, platform, sysconfig;"
    "print(platform.python_version(), int(importlib.util.find_spec('ensurepip') is not None),"
    " int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python that answered when it was run."""

    path: str
    version: str
    has_venv: bool

    @property
    def minor(self) -> str:
        """The version without its patch level, as `3.12`."""
        return ".".join(self.version.split(".")[:2])


@dataclass(frozen=True)
class Need:
    """Something the system should have: Debian's names for it, and how to see that it is there."""

    packages: str
    why: str
    is_present: Callable[[], bool]
    is_required: bool = False


def probe(python: str) -> Interpreter | None:
    """Runs a python to learn its version; None when it does not run, as a pyenv shim may not."""
    try:
        answer = subprocess.run(
            [python, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    if len(answer) != 3 or answer[2] == "1":  # a free-threaded build has no wheels to install
        return None
    return Interpreter(path=python, version=answer[0], has_venv=answer[1] == "1")


def find_interpreter(minor: str) -> Interpreter | None:
    """Finds a Python of this minor version that can make environments, on PATH or under pyenv."""
    for candidate in interpreter_candidates(minor):
        found = probe(candidate)
        if found is not None and found.minor == minor and found.has_venv:
            return found
    return None


def interpreter_candidates(minor: str) -> Iterator[str]:
    """Gives the places where an interpreter of this minor version may be."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = Path(folder) / f"python{minor}"
        if candidate.exists():
            yield str(candidate)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob(f"versions/{minor}.*/bin/python{minor}"), reverse=True))


def ensure_packages(*, builds_engine: bool, notes: Path) -> None:
    """Installs what the system lacks when we may; else says what is missing and the line to run.

    A line that was tried once is not tried again, so that a machine without network is not asked
    for an optional package at every start.

    Raises:
        SetupError: clawd cannot be set up without something that is still missing.
    """
    ensure_needs(system_needs(builds_engine=builds_engine), notes=notes)


def ensure_needs(needs: Sequence[Need], *, notes: Path) -> None:
    """Installs what of these is missing, in the same way.

    Raises:
        SetupError: one that is required is still missing.
    """
    missing = [need for need in needs if not need.is_present()]
    if not missing:
        return
    packages = sorted({package for need in missing for package in need.packages.split()})
    line = "apt-get install -y " + " ".join(packages)
    tried = notes / "packages-tried"
    was_tried = tried.exists() and tried.read_text(encoding="utf-8") == line
    prefix = None if was_tried and not any(need.is_required for need in missing) else root_prefix()
    if prefix is not None:
        notes.mkdir(parents=True, exist_ok=True)
        install_packages(prefix, packages, log=notes / "apt.log")
        tried.write_text(line, encoding="utf-8")
        missing = [need for need in missing if not need.is_present()]
    tell_missing(missing, line)


def install_packages(prefix: Sequence[str], packages: Sequence[str], *, log: Path) -> None:
    """Installs Debian packages; a failure is told, and what it means is the caller's to judge."""
    quiet = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y"]
    try:
        run_step("reading the package lists", [*prefix, "apt-get", "update"], log=log)
        command = [*quiet, "--no-install-recommends", *packages]
        run_step(f"installing {' '.join(packages)}", command, log=log)
    except SetupError as error:
        print(error, file=sys.stderr)


def tell_missing(missing: Sequence[Need], line: str) -> None:
    """Says what each missing thing is for.

    Raises:
        SetupError: clawd cannot be set up without one of them.
    """
    if not missing:
        return
    reasons = "\n".join(f"  {need.packages}: {need.why}" for need in missing)
    how = f"  sudo {line}"
    if shutil.which("apt-get") is None:
        how = f"  {line}    (Debian's names; use your system's package manager)"
    if any(need.is_required for need in missing):
        raise SetupError(f"This machine lacks\n{reasons}\nRun this line, then make again:\n{how}")
    print(f"Going on without\n{reasons}\nTo add it later:\n{how}", flush=True)


def system_needs(*, builds_engine: bool) -> list[Need]:
    """Lists what the system should have."""
    needs = [
        Need("python3-venv", "makes the virtual environment", has_ensurepip, is_required=True),
        Need("bubblewrap", NO_SANDBOX, lambda: has_programs("bwrap")),
    ]
    if builds_engine:
        compilers = Need("gcc g++", "compile the local engine", has_compilers, is_required=True)
        needs += [
            compilers,
            Need("cmake", "configures that build", lambda: has_programs("cmake")),
            Need("ninja-build", "runs that build", lambda: has_programs("ninja")),
        ]
    if os.environ.get("CI"):
        why = "tests of what web pages can do to the gateway"
        needs.append(Need("chromium", why, lambda: has_programs("chromium")))
        why = "a Debian root, in which tests boot a systemd"
        needs.append(Need("debootstrap", why, lambda: has_programs("debootstrap")))
    return needs


def has_programs(*names: str) -> bool:
    """Tells whether all of these are on PATH."""
    return all(shutil.which(name) for name in names)


def has_compilers() -> bool:
    """Tells whether C and C++ can be compiled."""
    return has_programs("cc", "c++")


def has_ensurepip() -> bool:
    """Tells whether this interpreter can make environments, asking anew after an install."""
    found = probe(sys.executable)
    return found is not None and found.has_venv


def root_prefix() -> list[str] | None:
    """Gives the words that make a command run as root; None where we may not, or without apt."""
    if not has_programs("apt-get"):
        return None
    if os.geteuid() == 0:
        return []
    asks_nothing = ["sudo", "-n", "true"]
    if has_programs("sudo") and subprocess.call(asks_nothing, stderr=subprocess.DEVNULL) == 0:
        return ["sudo", "-n"]
    return None
