"""A Debian on which the package is installed, as a folder to boot machines on.

Installing takes ten seconds and booting one, so it is installed once for each package, in a machine
whose root is kept. Tests of the installation itself begin with the bare root.

    .setup/rootfs/root               bare; `make test` makes it
    .setup/rootfs/installed-<key>/   the same with the package and its users, made here

CLAWD_TEST_ROOTFS and CLAWD_TEST_DEB name another bare root and another package.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.booted import Machine, problem

CHECKOUT = Path(__file__).parents[2]
PACKAGE = "/root/clawd.deb"
# Two members, one who is an admin as well, and one who is neither.
GROUPS = {
    "alice": "clawd-ctl",
    "bob": "clawd-ctl",
    "carol": "clawd-ctl,clawd-admin",
    "mallory": "",
}
INSTALL_LIMIT_S = 240.0
IDLE = ("/bin/sleep", "infinity")


@functools.cache
def no_machine() -> str:
    """Return why the package cannot be installed on a booted machine; empty where it can."""
    if not package().exists():
        return f"there is no package in {package().parent}; `make deb` makes it"
    return problem(bare_root())


def bare_root() -> Path:
    """Return the folder of a Debian without the package."""
    given = os.environ.get("CLAWD_TEST_ROOTFS")
    return Path(given) if given else CHECKOUT / ".setup" / "rootfs" / "root"


def package() -> Path:
    """Return the newest package that was made here."""
    given = os.environ.get("CLAWD_TEST_DEB")
    if given:
        return Path(given)
    folder = CHECKOUT / "build" / "deb"
    made = sorted(folder.glob("clawd_*.deb"), key=lambda path: path.stat().st_mtime)
    return made[-1] if made else folder / "clawd.deb"


def installed_root() -> Path:
    """Return the folder of a Debian with the package; makes it where it is missing."""
    parent = bare_root().parent
    with _lock(parent / "installed.lock"):
        wanted = parent / f"installed-{_key()}"
        if not wanted.exists():
            for old in parent.glob("installed-*"):
                shutil.rmtree(old)
            partial = parent / "installing"
            shutil.rmtree(partial, ignore_errors=True)
            subprocess.run(["cp", "-a", str(bare_root()), str(partial)], check=True)
            with Machine(partial, is_kept=True) as machine:
                machine.boot()
                install(machine)
                add_users(machine)
                machine.out("systemctl", "stop", "clawd.service")
                machine.power_off()
            partial.rename(wanted)
        return wanted


def install(machine: Machine, deb: Path | None = None) -> str:
    """Install the package as an administrator does, and return what apt said."""
    shutil.copyfile(deb or package(), machine.path(PACKAGE))
    words = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y"]
    words += [
        "-o",
        "DPkg::Options::=--force-unsafe-io",
        PACKAGE,
    ]  # no sync after each of 9,000 files
    said = machine.out(*words, limit_s=INSTALL_LIMIT_S)
    machine.path(PACKAGE).unlink()
    return said


def add_users(machine: Machine) -> None:
    """Make the users of the tests, in the groups that the package brought."""
    for name, groups in GROUPS.items():
        member = ["-G", groups] if groups else []
        machine.out("useradd", "--create-home", "--shell", "/bin/bash", *member, name)


def _key() -> str:
    """Name the bare root, the package and what is done with them."""
    made_from = hashlib.sha256(package().read_bytes())
    made_from.update(Path(__file__).read_bytes())
    made_from.update(str(bare_root().stat().st_ino).encode())
    return made_from.hexdigest()[:16]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
