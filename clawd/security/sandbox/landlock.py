"""The words of the sandbox where namespaces are refused: Landlock for files, seccomp for the rest.

The same paths as in `plan`, at their own places: nothing can be put over them. What this
level does not do that bubblewrap does:

- a command may ask whether a file outside is there, how large and how old it is (stat, readlink);
- /tmp is a folder of the call's own on the disk, without a size limit; there is no /dev/shm;
- /proc and /sys are closed, terminals too; users have no names;
- every process stays in one group (setsid fails), so that one signal ends all of them.
"""

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from clawd.errors import SandboxUnavailableError
from clawd.kernel import landlock, seccomp
from clawd.kernel.landlock import EXECUTE, LIST, READ, WRITE
from clawd.kernel.syscalls import NUMBERS
from clawd.security.sandbox import confine_program, plan
from clawd.security.sandbox.confine import ASKED
from clawd.security.sandbox.home import KEPT, home_links, make_home

MIN_ABI = 6
"""Linux 6.12: below it a command could signal every process of the user, the daemon too."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_STREAM_KINDS, _KIND_BITS = (1, 5), 0xF  # SOCK_STREAM, SOCK_SEQPACKET

# What namespaces keep apart in the other level.
_DENIED = (
    "shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd",
    "msgrcv", "msgctl", "mq_open", "mq_unlink", "setpgid", "setsid", "inotify_add_watch",
    "fanotify_init",
)  # fmt: skip
# Landlock does not ask about a file's attributes and flags, by its path or through what is open for
# reading. Nor about modes, owners and times; these, which all programs change, are changed by
# `confine_broker` where they are within bounds.
_DENIED_METADATA = ("utime", "utimes", "futimesat", "file_setattr")
_UNSUPPORTED_METADATA = (
    "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr",
    "fremovexattr", "removexattrat",
)  # fmt: skip
# linux/fs.h: FS_IOC_SETFLAGS, its 32-bit form, FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY.
_FLAG_IOCTLS = (0x40086602, 0x40046602, 0x401C5820, 0x40806685)
# Each acts on the process of its first argument, 0 being the caller.
_OF_PROCESSES = (
    "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr", "prlimit64",
)  # fmt: skip
# And these on the processes of their second, by what kind it is: never all those of a user.
_OF_KINDS = {"setpriority": (0, 1), "ioprio_set": (1, 2)}


def landlock_problem(machine: str) -> str:
    """Return why this level cannot be had here; empty when it can."""
    if machine not in NUMBERS:
        return f"there is no system call filter for {machine}"
    version = landlock.abi()
    if not version:
        return "this kernel has no Landlock, or it is switched off"
    if version < MIN_ABI:
        return f"this kernel's Landlock is version {version}; {MIN_ABI} (Linux 6.12) is needed"
    return ""


def landlock_plan(
    command: plan.ChildCommand,
    host: plan.HostFacts,
    *,
    machine: str,
    interpreter: str,
    folder: Path,
) -> plan.SandboxPlan:
    """Plan a run that shares the host's namespaces and can open nothing but what it may.

    Args:
        command: what to run.
        host: of its programs only `prlimit` is used.
        machine: as `platform.machine()` names it; one without a problem.
        interpreter: path of a Python.
        folder: its /tmp, empty and its own.

    Raises:
        InvalidRequestError: the command cannot be meant.
        SandboxUnavailableError: the workspace cannot be had, or holds what no command may see:
            rules only add, so nothing in a visible folder can be hidden.
    """
    workspace = plan.checked_workspace(command, host)
    shown = [workspace, *(path.resolve() for path in command.readonly_paths)]
    for path in plan.hidden_paths(host):
        if path.exists() and any(path == root or root in path.parents for root in shown):
            raise SandboxUnavailableError(
                f"{path} is forbidden, and the Landlock sandbox cannot hide it within a folder "
                "that the command sees",
                hint="Install bubblewrap, or take it out of the workspace.",
            )
    options: list[str | plan.DescriptorSlot] = ["--chdir", str(command.cwd or workspace)]
    for name in ("status", "gate"):
        options += [f"--{name}", plan.DescriptorSlot(name=name)]
    # git ends when it may not read a file that is there.
    own = {"HOME": str(folder), "TMPDIR": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    if command.toolchains:
        own["HOME"] = str(_made_home(folder, workspace, host))
    for name, value in (plan.environment(command, host) | own | command.env).items():
        options += ["--setenv", name, value]
    for path_, rights in _rules(command, workspace, folder, host):
        options += ["--rule", path_, str(rights)]
    files = {"seccomp": host.seccomp, "seccomp-more": _filter(machine)}
    for name in files:
        options += ["--seccomp", plan.DescriptorSlot(name=name)]
    files["seccomp-asking"] = _asking(machine)
    options += ["--asking", plan.DescriptorSlot(name="seccomp-asking"), "--changed", str(folder)]
    options += ["--changed", str(workspace)] if command.workspace_writable else []
    options += ["--changed", str(host.kept)] if command.toolchains and host.kept else []
    limits = msgspec.structs.replace(host.limits, processes=host.limits.processes + _tasks())
    return plan.SandboxPlan(
        argv=plan.limited_argv(command, msgspec.structs.replace(host, limits=limits)),
        bwrap=confine_program.__file__,
        interpreter=(interpreter, "-I", "-S", "-E"),
        options=tuple(options),
        files=files,
        is_group=True,
        umask=host.umask,
    )


def make_folder() -> Path:
    """Make an empty folder for one call, which only this user may enter."""
    return Path(tempfile.mkdtemp(prefix="clawd-call-")).resolve()


def remove_folder(folder: Path) -> None:
    """Remove a call's folder with all that it left there; every process of it must be dead."""
    # By descriptors: a command may have nested folders deeper than any path can be long.
    with contextlib.suppress(OSError):
        folder.chmod(stat.S_IRWXU)
        for _, names, _, top in os.fwalk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    if stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                        os.chmod(name, stat.S_IRWXU, dir_fd=top)
    shutil.rmtree(folder, ignore_errors=True)


def _made_home(folder: Path, workspace: Path, host: plan.HostFacts) -> Path:
    """Make the home of a command in its folder, and return it."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    links = home_links(workspace, host.toolchains.links, kept=host.kept)
    make_home(home, links | ({KEPT: str(host.kept)} if host.kept else {}))
    for name, text in host.toolchains.settings:
        place = home / name
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.write_bytes(text)
    return home


def _beside(path: Path, secrets: set[Path]) -> Iterator[landlock.Rule]:
    """Grant what is shown of toolchains, but for its secrets: rules only add.

    A folder around a secret may be listed; each thing in it is granted by itself.
    """
    if path in secrets:
        return
    if not any(path in secret.parents for secret in secrets):
        yield str(path), READ | EXECUTE
        return
    yield str(path), LIST
    with contextlib.suppress(OSError):
        for each in sorted(path.iterdir()):
            if not each.is_symlink():  # what it leads to is granted, or not, where that lies
                yield from _beside(each, secrets)


def _rules(
    command: plan.ChildCommand, workspace: Path, folder: Path, host: plan.HostFacts
) -> Iterator[landlock.Rule]:
    for name in (*plan.SYSTEM_TREES, *plan.USR_LINKS):
        yield name, READ | EXECUTE
    for name in plan.ETC_PARTS:
        yield name, READ
    for name in _DEVICES:
        yield name, READ | WRITE
    for name in plan.MACHINE_FACTS:
        yield name, READ
    for path in command.readonly_paths:
        yield str(path), READ | EXECUTE
    if command.toolchains:
        secrets = plan.shown_secrets(workspace, host) | set(plan.hidden_paths(host))
        for path in plan.shown_toolchains(workspace, host):
            yield from _beside(path, secrets)
        if host.kept is not None:
            yield str(host.kept), READ | WRITE | EXECUTE
    yield str(folder), READ | WRITE | EXECUTE
    yield str(workspace), READ | EXECUTE | (WRITE if command.workspace_writable else 0)


def _filter(machine: str) -> bytes:
    """Return what namespaces do in the other level, as far as a filter can, as a program."""
    known = NUMBERS[machine]
    lines = seccomp.beginning(machine)
    lines += seccomp.denied(machine, [*_DENIED, *_DENIED_METADATA])
    lines += seccomp.denied(machine, _UNSUPPORTED_METADATA, errno.ENOTSUP)
    first, second = seccomp.argument(0), seccomp.argument(1)
    flags = [seccomp.statement(seccomp.LOAD, second)]
    for request in _FLAG_IOCTLS:
        flags += seccomp.denied_if(seccomp.JUMP_EQUAL, request)
    flags.append(seccomp.statement(seccomp.RETURN, seccomp.ALLOW))
    lines += seccomp.only_for(known["ioctl"], flags)
    for name in _OF_PROCESSES:
        lines += seccomp.only_for(known[name], seccomp.allowed_if_one_of(first, (0,)))
    for name, kinds in _OF_KINDS.items():
        own = [
            seccomp.statement(seccomp.LOAD, second),
            seccomp.jump(seccomp.JUMP_EQUAL, 0, then=1, otherwise=0),
            seccomp.statement(seccomp.RETURN, seccomp.ERRNO | errno.EPERM),
            *seccomp.allowed_if_one_of(first, kinds),
        ]
        lines += seccomp.only_for(known[name], own)
    # One end of a pair of datagram sockets could be connected anew, to any path.
    allowed = seccomp.allowed_if_one_of(second, _STREAM_KINDS, mask=_KIND_BITS)
    lines += seccomp.only_for(known["socketpair"], allowed)
    lines += seccomp.denied(machine, ["socket"])
    return b"".join([*lines, seccomp.statement(seccomp.RETURN, seccomp.ALLOW)])


def _asking(machine: str) -> bytes:
    """Return the filter that asks the broker."""
    known = NUMBERS[machine]
    lines = seccomp.beginning(machine)
    # What this changes lies in memory too; programs know how to do without it.
    lines += seccomp.denied_if(seccomp.JUMP_EQUAL, known["fchmodat2"], errno.ENOSYS)
    ask = [seccomp.statement(seccomp.RETURN, seccomp.ASK)]
    for name in ASKED:
        lines += seccomp.only_for(known[name], ask) if name in known else []
    return b"".join([*lines, seccomp.statement(seccomp.RETURN, seccomp.ALLOW)])


def _tasks() -> int:
    """Return how many threads this user has: without a namespace, the kernel counts them all."""
    uid, count = str(os.getuid()), 0
    if uid == "0":
        return 0  # no such limit binds root
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            fields = dict(
                line.split(":\t", 1)
                for line in status.read_text("utf-8", "replace").splitlines()
                if line.startswith(("Uid:", "Threads:"))
            )
            count += int(fields["Threads"]) if fields["Uid"].split()[0] == uid else 0
    return count
