"""From a folder to a booted machine: joins a cgroup, builds the root, becomes its first process.

Started by tests/support/booted.py as a program of its own, in two steps, because a process
enters new namespaces only by being started in them:

    booted_stage.py enter CGROUP WORD...
                                                joins the cgroup and becomes WORD... (unshare)
    booted_stage.py build ROOT PLACE LAYER WORD...
                                                makes the machine's root and becomes WORD... (init)

LAYER is empty where the machine's writes are to stay in ROOT.

All mounts are made in a mount namespace of its own: they are gone with its last process, whatever
that one died of.
"""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_SHARED = 4096, 16384, 1 << 20
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
HOSTNAME = "clawd-test"
ENVIRONMENT = {
    "container": "clawd-test",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "TERM": "dumb",
}

libc = ctypes.CDLL(None, use_errno=True)


def enter(cgroup: Path, words: Sequence[str]) -> None:
    """Join the cgroup and become another program, which dies with whoever started this."""
    parent = os.getppid()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("whoever started this is gone")
    (cgroup / "cgroup.procs").write_text("0", encoding="ascii")
    os.execvp(words[0], list(words))


def build(root: Path, place: Path, layer: str, words: Sequence[str]) -> None:
    """Lay a writable layer over the root, fill in what a kernel gives, and become the init."""
    top = lay_over(root, place) if layer else place
    if not layer:
        mount(str(root), place, "", MS_BIND)
    mount("proc", top / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("sysfs", top / "sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("cgroup2", top / "sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    fill_dev(top / "dev")
    mount("tmpfs", top / "run", "tmpfs", MS_NOSUID | MS_NODEV, data="mode=755")
    socket.sethostname(HOSTNAME)
    become_root(top)
    os.execve(words[0], list(words), ENVIRONMENT)


def lay_over(root: Path, place: Path) -> Path:
    """Return the root with a writable layer in memory."""
    mount("tmpfs", place, "tmpfs", data="mode=755")
    for name in ("upper", "work", "root"):
        (place / name).mkdir()
    layers = f"lowerdir={root},upperdir={place}/upper,workdir={place}/work"
    mount("overlay", place / "root", "overlay", data=layers)
    return place / "root"


def fill_dev(dev: Path) -> None:
    """Give the few devices that a container has."""
    mount("tmpfs", dev, "tmpfs", MS_NOSUID, data="mode=755")
    for name in DEVICES:
        (dev / name).touch()
        mount(f"/dev/{name}", dev / name, "", MS_BIND)
    (dev / "shm").mkdir(mode=0o1777)
    mount("tmpfs", dev / "shm", "tmpfs", MS_NOSUID | MS_NODEV, data="mode=1777")
    (dev / "pts").mkdir()
    mount("devpts", dev / "pts", "devpts", MS_NOSUID, data="newinstance,ptmxmode=0666,mode=620")
    (dev / "ptmx").symlink_to("pts/ptmx")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (dev / name).symlink_to(f"/proc/self/fd/{number}")
    (dev / "fd").symlink_to("/proc/self/fd")


def become_root(top: Path) -> None:
    """Make the folder the root of this namespace, and let go of the old one."""
    os.chdir(top)
    # With both names the same the old root lies over the new one, until it is taken off.
    checked(libc.pivot_root(b".", b"."), f"pivot_root {top}")
    checked(libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")
    # As on a real machine; systemd hands credentials to services through shared mounts.
    checked(libc.mount(None, b"/", None, MS_REC | MS_SHARED, None), "making / shared")


def mount(source: str, target: Path, kind: str, flags: int = 0, *, data: str = "") -> None:
    """Mount something; ends the program with a sentence where the kernel refuses."""
    words = [os.fsencode(part) for part in (source, target, kind)]
    status = libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(data) or None)
    checked(status, f"mounting {kind or source} at {target}")


def checked(status: int, what: str) -> None:
    """End the program unless a system call went well."""
    if status:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    step, *rest = sys.argv[1:]
    if step == "enter":
        enter(Path(rest[0]), rest[1:])
    else:
        build(Path(rest[0]), Path(rest[1]), rest[2], rest[3:])
