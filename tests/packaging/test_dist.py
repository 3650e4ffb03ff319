"""sdist and wheel: what is in them, that they install and that they come out the same again."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath

import pytest
from bootstrap import dist
from bootstrap.environment import release

ROOT = Path(__file__).resolve().parents[2]
NAME = "clawd-0.1.0"
SETUPTOOLS = (77, 0, 0)
# A part of the checkout that make reads, or a person who has nothing but the sdist.
NEEDED = (
    "Makefile",
    "README.md",
    "LICENSE",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "pyproject.toml",
    "packaging/bootstrap.sh",
    "packaging/bootstrap/__main__.py",
    "packaging/debian/rules",
    "packaging/debian/requirements.txt",
    "etc/grafana/clawd.json",
    "packaging/debian/install-docs",
    "systemd/clawd.service",
    "systemd/drop-ins/memory.conf",
    "systemd/clawd.sysusers",
    "systemd/user/clawd.socket",
    "etc/config.toml",
    "docs/README.md",
    "docs/install.md",
    "tests/conftest.py",
    "training/README.md",
    ".ci/run",
)
PACKAGE_DATA = (
    "py.typed",
    "engine/embedded/clawd-tiny.gguf",
    "engine/embedded/assistant.jinja",
    "engine/embedded/assistant-adapter.gguf",
    "engine/embedded/assistant-card.toml",
)
TOP_LEVEL = {
    ".ci", ".editorconfig", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
    "MANIFEST.in", "Makefile", "PKG-INFO", "README.md", "SECURITY.md", "clawctl", "clawd",
    "clawd.egg-info", "docs", "etc", "packaging", "pyproject.toml", "setup.cfg", "systemd",
    "tests", "training", "web",
}  # fmt: skip


def setuptools_release() -> tuple[int, ...]:
    try:
        return release(version("setuptools"))
    except PackageNotFoundError:
        return (0,)


pytestmark = [
    pytest.mark.skipif(
        setuptools_release() < SETUPTOOLS, reason="setuptools 77 or newer is not installed here"
    ),
    pytest.mark.timeout(400),  # what is built first is built within a test
]


def copy_sources(target: Path) -> Path:
    """Copies what git would hold, found without it, to a folder of another name."""
    left_out = shutil.ignore_patterns(
        ".git", ".venv*", ".setup", "build", "dist", "*.egg-info", "__pycache__", ".*_cache",
        ".hypothesis", "htmlcov", ".coverage*",
    )  # fmt: skip
    shutil.copytree(ROOT, target, ignore=left_out)
    return target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """The sdist and the wheel of it, from a copy in a path with a space."""
    folder = tmp_path_factory.mktemp("dist")
    source = copy_sources(folder / "a copy")
    # What a person may have lying about must not get in.
    (source / ".env").write_text("x", encoding="utf-8")
    (source / "clawd" / "notes.txt").write_text("x", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1795000000")
        yield dist.build_both(Path(sys.executable), source, folder / "out")


def sdist_names(path: Path) -> list[PurePosixPath]:
    with tarfile.open(path) as archive:
        names = [PurePosixPath(name) for name in archive.getnames()]
    assert {name.parts[0] for name in names} == {NAME}
    return [name.relative_to(NAME) for name in names if len(name.parts) > 1]


def test_sdist_holds_all_that_make_needs(built: tuple[Path, Path]) -> None:
    names = {str(name) for name in sdist_names(built[0])}
    assert [name for name in NEEDED if name not in names] == []


def test_sdist_holds_nothing_else(built: tuple[Path, Path]) -> None:
    names = sdist_names(built[0])
    assert {name.parts[0] for name in names} - TOP_LEVEL == set()
    odd = [
        str(name)
        for name in names
        if name.suffix in {".pyc", ".so", ".log", ".db"} or "__pycache__" in name.parts
    ]
    assert odd == []
    assert PurePosixPath("clawd/notes.txt") not in names


def test_every_module_of_the_checkout_is_in_the_wheel(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in ("clawd", "clawctl")
        for path in (ROOT / package).rglob("*.py")
    }
    assert modules - names == set()
    assert {f"clawd/{path}" for path in PACKAGE_DATA} <= names
    units = {
        f"clawctl/units/{path.relative_to(ROOT / 'systemd').as_posix()}"
        for path in (ROOT / "systemd").rglob("*")
        if path.is_file()
    }
    assert (len(units) > 6, units - names) == (True, set())
    outside = {name.split("/")[0] for name in names} - {"clawd", "clawctl"}
    assert outside == {f"{NAME}.dist-info"}


def test_same_sources_give_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    source = copy_sources(tmp_path / "elsewhere")
    for path in source.rglob("*.py"):
        os.utime(path, (1, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1795000000")
        patch.setenv("TZ", "Asia/Tokyo")
        again = dist.build_both(Path(sys.executable), source, tmp_path / "out")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment with the wheel, which borrows the tests' libraries."""
    venv = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    python = venv / "bin" / "python"
    options = ["--no-index", "--no-deps", "--quiet", "--disable-pip-version-check"]
    command = [str(python), "-m", "pip", "install", *options, str(built[1])]
    subprocess.run(command, check=True, timeout=120)
    site = next(venv.glob("lib/python*/site-packages"))
    # Behind its own, so that clawd is the one of the wheel.
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
    return venv / "bin"


def run(program: Path, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(home), "CLAWD_HOME": str(home / "clawd")}
    return subprocess.run(
        [program, *arguments], env=environ, capture_output=True, text=True, timeout=60, cwd=home
    )


def test_wheel_runs_from_a_fresh_environment(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "python", "-c", "import clawd; print(clawd.__file__)", home=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(installed.parent)
    answer = run(installed / "clawctl", "version", home=tmp_path)
    assert (answer.returncode, "0.1.0" in answer.stdout) == (0, True), answer
    checked = run(installed / "clawd", "--check-config", home=tmp_path)
    assert checked.returncode == 0, checked
