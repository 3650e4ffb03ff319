"""`make dist`: the sdist and, from it, the wheel, into dist/; the same sources give the same bytes.

.setup/dist/venv/    an environment with setuptools alone
dist/                clawd-X.tar.gz, clawd-X-py3-none-any.whl
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bootstrap.environment import ROOT, SETUP, make_environment, pip, read_project, setup_lock
from bootstrap.page import prepare_page
from bootstrap.peer import unpack
from bootstrap.steps import run_step

OUTPUT = ROOT / "dist"
# Of the time when nothing says it; zip files know none before 1980.
FALLBACK_EPOCH = 1_577_836_800
LOG = SETUP / "dist.log"


def build_distributions() -> int:
    """Builds both.

    Raises:
        SetupError: a step failed.
    """
    prepare_page(Path(sys.executable))
    with setup_lock():
        venv = SETUP / "dist" / "venv"
        python = venv / "bin" / "python"
        if not python.exists():
            make_environment(venv, None)
        pip(python, "installing setuptools", "install", *read_project()["build-system"]["requires"])
        for path in build_both(python, ROOT, OUTPUT):
            print(path.relative_to(ROOT))
    return 0


def build_both(python: Path, source: Path, target: Path) -> tuple[Path, Path]:
    """Builds the sdist of a source tree, and the wheel of that sdist, with python's setuptools.

    Raises:
        SetupError: setuptools failed.
    """
    target.mkdir(parents=True, exist_ok=True)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or commit_time(source))
    environ = {"SOURCE_DATE_EPOCH": str(epoch)}
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        run_backend(python, "sdist", source, made, environ)
        sdist = normalize(next(made.glob("*.tar.gz")), target, epoch)
        unpacked = made / "unpacked"
        unpack(sdist, unpacked)
        run_backend(python, "wheel", unpacked, made, environ)
        built = next(made.glob("*.whl"))
        wheel = Path(shutil.copy(built, target))
    return sdist, wheel


def run_backend(
    python: Path, what: str, source: Path, target: Path, environ: Mapping[str, str]
) -> None:
    """Lets setuptools build one of both, in the folder of the sources."""
    code = (
        "import os, sys; from setuptools import build_meta; "
        f"os.chdir(sys.argv[1]); build_meta.build_{what}(sys.argv[2])"
    )
    command = [str(python), "-c", code, str(source), str(target)]
    run_step(f"building the {what}", command, log=LOG, environ=environ)


def normalize(archive: Path, target: Path, epoch: int) -> Path:
    """Writes an archive anew without what differs between machines: times, owners, modes, order."""
    result = target / archive.name
    plain = io.BytesIO()
    with (
        tarfile.open(archive) as source,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as sink,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            member.mtime, member.pax_headers = epoch, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            sink.addfile(member, source.extractfile(member) if member.isfile() else None)
    with result.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as packed:
        packed.write(plain.getvalue())
    return result


def commit_time(source: Path) -> int:
    """Gives the time of the last commit, or a fixed one where this is no checkout."""
    command = ["git", "-C", str(source), "log", "-1", "--format=%ct"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return FALLBACK_EPOCH
    return int(answer or FALLBACK_EPOCH)
