"""The Python side of the Debian package: an environment below /usr/lib/clawd, made by debian/rules.

    usr/lib/clawd/bin/python3 -> /usr/bin/python3
    usr/lib/clawd/pyvenv.cfg        what makes it see its own libraries and no others
    usr/lib/clawd/lib/python3.11/site-packages/

Run as `python -m bootstrap.package_site ROOT WHEELS`: ROOT is the package's tree, WHEELS a folder.
"""

import compileall
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from py_compile import PycInvalidationMode

PREFIX = Path("usr/lib/clawd")
SITE = PREFIX / "lib/python3.11/site-packages"
SYSTEM_PYTHON = "/usr/bin/python3"
# Debian's own python3-systemd, seen from SITE: it goes with the libsystemd of the machine.
SYSTEMD = "../../../../python3/dist-packages/systemd"
CONFIG = "home = /usr/bin\ninclude-system-site-packages = false\n"
# Programs of the environment: one each, because -I must stand in the first line.
PROGRAMS = {"clawd": "clawd.service.main", "clawctl": "clawctl.main"}
PROGRAM = """\
#!/usr/lib/clawd/bin/python3 -I
import sys

from {module} import main

sys.exit(main())
"""

COMPILE = "--compile"
# What pip notes about itself; the rest of the metadata is read at run time.
NOTES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
SOURCES = (".pyx", ".pxd", ".pxi", ".c", ".cpp", ".h", ".hpp", ".rst", ".in", ".pyi", ".a", ".npz")
NOT_USED = (
    "bin",
    "*.libs/*.debug",
    "*/tests",
    "*/test",
    "*/*/tests",
    "*/*/*/tests",
    "numpy/_pyinstaller",
    "numpy/f2py",
    "numpy/distutils",
    "numpy/doc",
    "numpy/_core/include",
    "numpy/_core/lib",
    "numpy/_core/_*_tests.*.so",
    "numpy/random/lib",
    "multidict/_testcapi.*.so",
    "lxml/includes",
    "lxml/isoschematron",
    "sqlite_utils/docs",
    "regex/test_regex.py",
    "cffi/recompiler_test.py",
    "diskcache/djangocache.py",
)


def main() -> int:
    """Makes the environment, or compiles a part of it in a process of its own."""
    if sys.argv[1] == COMPILE:
        compile_part(*sys.argv[2:])
        return 0
    root, wheels = (Path(argument) for argument in sys.argv[1:3])
    site = root / SITE
    install(wheels, site)
    prune(site)
    link_interpreter(root)
    compile_all(site)
    (site / "systemd").symlink_to(SYSTEMD)
    return 0


def install(wheels: Path, site: Path) -> None:
    """Unpacks every wheel, asking nobody for anything."""
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    files = sorted(str(path) for path in wheels.glob("*.whl"))
    where = ["--no-index", "--no-deps", "--no-compile", "--no-warn-script-location", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *where, "--target", str(site), *files]
    subprocess.run(command, check=True)


def prune(site: Path) -> None:
    """Takes out tests, sources of extensions, and what only a compiler or pip would read."""
    found = [path for pattern in NOT_USED for path in site.glob(pattern)]
    found += [path for path in site.glob("*.dist-info/*") if path.name in NOTES]
    found += [path for path in site.rglob("*") if path.suffix in SOURCES and path.is_file()]
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for folder in sorted((path for path in site.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    for path in site.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def link_interpreter(root: Path) -> None:
    """Makes the environment's own interpreter and the two programs."""
    prefix = root / PREFIX
    (prefix / "bin").mkdir(parents=True, exist_ok=True)
    (prefix / "pyvenv.cfg").write_text(CONFIG, encoding="utf-8")
    link = prefix / "bin" / "python3"
    link.unlink(missing_ok=True)
    link.symlink_to(SYSTEM_PYTHON)
    programs = root / "usr/bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name, module in PROGRAMS.items():
        path = programs / name
        path.write_text(PROGRAM.format(module=module), encoding="utf-8")
        path.chmod(0o755)


def compile_all(site: Path) -> None:
    """Compiles every module for its place on the installed system.

    Each folder in a process of its own with a fixed hash seed: what was compiled before in one
    process shows in the bytes. The hash of the source is stored and never compared, so that
    starting reads no source, whatever the times of the files are.
    """
    parts = sorted(path for path in site.iterdir() if path.is_dir() or path.suffix == ".py")
    environ = {**os.environ, "PYTHONHASHSEED": "0"}

    def compile_in_child(part: Path) -> None:
        command = [sys.executable, "-P", __file__, COMPILE, str(part), str(site)]
        subprocess.run(command, check=True, env=environ)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(compile_in_child, parts))


def compile_part(part: str, site: str) -> None:
    """Compiles one folder or file; one that is no Python 3.11 is left as it is."""
    path = Path(part)
    for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        compileall.compile_file(
            source,
            quiet=2,
            force=True,
            stripdir=site,
            prependdir=f"/{SITE}",
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )


if __name__ == "__main__":
    sys.exit(main())
