"""A bare Debian in a folder, on which tests boot a systemd and install the package.

Made once by debootstrap, as root, from the mirror that this machine's own apt uses:

    .setup/rootfs/root    the system: what a minimal install has, and what the package depends on
    .setup/rootfs/key     what it was made from; written last, so a root cut short is made again
    .setup/rootfs.log     what debootstrap said
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile

from bootstrap.environment import SETUP, digest, setup_lock
from bootstrap.steps import SetupError, run_step
from bootstrap.system import has_programs

SUITE = "bookworm"
PACKAGES = (
    "bubblewrap",
    "ca-certificates",
    "dbus",
    "libgomp1",
    "libstdc++6",
    "procps",
    "python3",
    "python3-systemd",
    "systemd",
    "systemd-sysv",
)
ROOTFS = SETUP / "rootfs"
LOG = SETUP / "rootfs.log"
ASKED_FOR = "CLAWD_TEST_BOOTED"
AT_ANOTHER_PLACE = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def prepare_rootfs() -> None:
    """Makes the root where it is wanted and missing; without it, tests are left out or fail.

    It is wanted in CI, and where CLAWD_TEST_BOOTED is set.
    """
    if not (os.environ.get("CI") or os.environ.get(ASKED_FOR)):
        return
    if os.geteuid() != 0:
        print("Not root: tests that boot a machine are left out.")
        return
    with setup_lock("rootfs.lock"):
        try:
            make_rootfs()
        except SetupError as error:
            print(f"{error}\nGoing on without; tests that need it say so.", file=sys.stderr)


def make_rootfs() -> None:
    """Makes the root, unless the one that is there was made from the same.

    Raises:
        SetupError: debootstrap is missing or failed.
    """
    noted, key = ROOTFS / "key", digest([SUITE, PACKAGES, platform.machine()])
    if noted.exists() and noted.read_text(encoding="utf-8") == key:
        return
    if not has_programs("debootstrap"):
        line = "sudo apt-get install -y debootstrap"
        raise SetupError(f"A Debian root is made by debootstrap, which is missing here:\n  {line}")
    shutil.rmtree(ROOTFS, ignore_errors=True)
    ROOTFS.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="clawd-rootfs-") as place:
        # What debootstrap mounts for its scripts is gone with the namespace, whatever ends it.
        # Its own scripts break at blanks, so it sees the folder at a path that has none.
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", AT_ANOTHER_PLACE]
        command += ["sh", str(ROOTFS), place, "debootstrap", "--variant=minbase"]
        command += [f"--include={','.join(PACKAGES)}", SUITE, f"{place}/root", *mirrors()]
        run_step(f"making a Debian root ({SUITE}, once, about a minute)", command, log=LOG)
    # Without lists apt knows of no package that it could fetch, as on a machine without a network.
    for folder in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(ROOTFS / "root" / folder)
    noted.write_text(key, encoding="utf-8")


def mirrors() -> list[str]:
    """Gives the address that this machine's apt gets the suite from; none leaves the choice."""
    words = ["apt-get", "indextargets", "--no-release-info", "--format", "$(SITE) $(RELEASE)"]
    try:
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    pairs = [line.rsplit(" ", 1) for line in listed.splitlines()]
    return [pair[0] for pair in pairs if pair[-1] == SUITE and "security" not in pair[0]][:1]
