"""What goes into the Debian package of others: pinned, each file by its hash, for both machines.

    packaging/debian/requirements.txt    name==version, the wheels for amd64 and arm64

pip resolves what pyproject.toml asks for; `sh packaging/bootstrap.sh deb-lock` writes it anew.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bootstrap.environment import (
    GUIDANCE,
    ROOT,
    engine_requirement,
    local_requirement,
    read_project,
)
from bootstrap.environment import pip as run_pip
from bootstrap.steps import SetupError

LOCK = ROOT / "packaging" / "debian" / "requirements.txt"
# glibc of Debian 12; pip wants every platform tag named.
GLIBC_MINORS = (36, 35, 34, 31, 28, 27, 26, 24, 17)
MACHINES = ("x86_64", "aarch64")
# sqlite-utils installs plugins with it, which nothing here does.
LEFT_OUT = frozenset({"pip"})
# llama-cpp-python's own dependency that clawd does not have.
ENGINE_NEEDS = ("diskcache",)
HEADER = """\
# Made by `sh packaging/bootstrap.sh deb-lock`. The wheels that the Debian package carries, for
# amd64 and arm64, and the source of the engine.
"""


def write_lock(python: Path) -> None:
    """Asks pip what satisfies pyproject.toml today, and writes it down.

    Raises:
        SetupError: pip failed, or found other versions for one machine than for the other.
    """
    ours = read_project()["project"]["dependencies"]
    wanted = [*ours, *ENGINE_NEEDS, local_requirement(GUIDANCE)]
    found: dict[str, dict[str, str]] = {}
    versions: dict[str, str] = {}
    for machine in MACHINES:
        report = resolve(python, wanted, machine)
        for name, version, digest in installs(report):
            if versions.setdefault(name, version) != version:
                raise SetupError(f"{name} is {versions[name]} on one machine, {version} on another")
            found.setdefault(name, {})[machine] = digest
    name, version, digest = resolve_engine(python)
    versions[name], found[name] = version, {"source": digest}
    lines = []
    for name in sorted(found):
        hashes = [f"    --hash=sha256:{digest}" for digest in sorted(set(found[name].values()))]
        lines.append(" \\\n".join([f"{name}=={versions[name]}", *hashes]) + "\n")
    LOCK.write_text(HEADER + "".join(lines), encoding="utf-8")


def resolve(python: Path, wanted: list[str], machine: str) -> dict[str, Any]:
    """Lets pip choose wheels for Debian 12's Python on a machine; gives its report."""
    options = ["--python-version", "3.11", "--implementation", "cp", "--only-binary", ":all:"]
    for abi in ("cp311", "abi3", "none"):
        options += ["--abi", abi]
    for minor in GLIBC_MINORS:
        options += ["--platform", f"manylinux_2_{minor}_{machine}"]
    options += ["--platform", f"manylinux2014_{machine}"]
    return report_of(python, machine, *options, *wanted)


def resolve_engine(python: Path) -> tuple[str, str, str]:
    """Gives name, version and hash of the engine's source."""
    options = ["--no-binary", ":all:", "--no-deps", "--no-build-isolation"]
    report = report_of(python, "the engine", *options, engine_requirement())
    return next(installs(report))


def report_of(python: Path, what: str, *arguments: str) -> dict[str, Any]:
    """Runs pip dry and gives what it would have installed."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "report.json"
        dry = ["install", "--dry-run", "--ignore-installed", "--report", str(target)]
        place = ["--target", str(Path(folder) / "site")]
        run_pip(python, f"resolving for {what}", *dry, *place, *arguments)
        answer: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return answer


def installs(report: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields name, version and sha256 of what a report names."""
    for item in report["install"]:
        name = normalized(item["metadata"]["name"])
        if name not in LEFT_OUT:
            digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
            yield name, item["metadata"]["version"], digest


def normalized(name: str) -> str:
    """Gives the one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries() -> list[str]:
    """Reads the lock: each package with its hashes, in one line."""
    lines = LOCK.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pinned() -> dict[str, str]:
    """Reads the lock: each name with its version."""
    return dict(entry.split()[0].split("==") for entry in entries())
