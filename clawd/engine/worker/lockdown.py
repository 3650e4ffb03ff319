"""What the worker gives up before it opens a file of the model: it may be hostile.

After `raise_fence` this process reads the model's files, its own code and libraries, and what
drivers ask of the machine; it writes the folder of kept sequences alone; it reaches no network but
the RPC servers of its config, starts no program, and signals nobody else. Graphics devices stay
open to it. Threads that exist before are not held: it comes before the imports that start them.
"""

import contextlib
import errno
import os
import platform
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from clawd.engine.gguf import files_of
from clawd.engine.protocol import ModelConfig
from clawd.kernel import landlock, seccomp, syscalls
from clawd.kernel.landlock import CHANGE, IOCTL_DEVICE, READ, WRITE
from clawd.kernel.syscalls import NUMBERS

# Out of memory, the kernel takes a worker before the daemon and all that do not ask for it.
OOM_SCORE_ADJ = 500
# Between two looks at what the bounded thread has used.
_LEAST_PAUSE_S = 0.01


def harden() -> bool:
    """Tie this process to its parent and keep its memory to itself; False if the parent is gone.

    The kernel kills it when the parent's starting thread ends (prctl(2), PR_SET_PDEATHSIG), so no
    worker outlives a daemon that was killed. Conversations in memory stay out of core dumps and
    out of other processes' reach (PR_SET_DUMPABLE).
    """
    parent = os.getppid()
    _volunteer_for_oom()
    syscalls.set_death_signal(signal.SIGKILL)
    syscalls.set_not_dumpable()
    # An abort in llama.cpp would start a debugger to print a trace of this process.
    os.environ["GGML_NO_BACKTRACE"] = "1"
    # Threads of one computation wait for each other in a loop, by default for milliseconds: when
    # another process needs a core, a token took ten times as long as with this limit (measured).
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # Ctrl-C in the daemon's terminal reaches its whole process group; the daemon decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return os.getppid() == parent


@contextlib.contextmanager
def memory_bound(extra_bytes: int) -> Iterator[None]:
    """Let the process's memory grow by no more than this; what wants more gets a MemoryError.

    Only while one thread works: another that allocates meanwhile is bound too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = _address_space_bytes()
    bound = size + extra_bytes if size else soft
    if soft != resource.RLIM_INFINITY:
        bound = min(bound, soft)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class _ProcessorTimeError(BaseException):
    """A block has used the processor time that it may."""


@contextlib.contextmanager
def processor_bound(limit_s: float) -> Iterator[None]:
    """Let Python code take no more processor time than this, then TimeoutError is raised in it.

    Only the main thread runs handlers of signals; in another one there is no bound. And it has to
    get the signal itself: one for the whole process (setitimer(2)) may be given to a thread of a
    library, which computes on, and the main thread does not see it before that one is back.
    What is raised is no Exception before it leaves the block: code that catches, or explains, all
    of them (as Jinja does) would make another error of it, or none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    bounded = threading.get_ident()
    clock = time.pthread_getcpuclockid(bounded)
    ends_at = time.clock_gettime(clock) + limit_s
    is_over = threading.Event()

    def watch() -> None:
        while (left_s := ends_at - time.clock_gettime(clock)) > 0:
            if is_over.wait(max(left_s, _LEAST_PAUSE_S)):
                return
        signal.pthread_kill(bounded, signal.SIGPROF)

    def end(_number: int, _frame: FrameType | None) -> None:
        if not is_over.is_set():
            raise _ProcessorTimeError

    watcher = threading.Thread(target=watch, daemon=True)
    before = signal.signal(signal.SIGPROF, end)
    try:
        try:
            watcher.start()
            yield
        finally:
            is_over.set()
    except _ProcessorTimeError:
        raise TimeoutError from None
    finally:
        is_over.set()
        watcher.join()
        signal.signal(signal.SIGPROF, before)


def _address_space_bytes() -> int:
    """Return the size of the process, or 0 where the kernel does not show it."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def _volunteer_for_oom() -> None:
    """Raise the score by which the kernel chooses; must come before PR_SET_DUMPABLE (proc(5))."""
    path = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        if int(path.read_text("ascii")) < OOM_SCORE_ADJ:
            path.write_text(str(OOM_SCORE_ADJ), "ascii")


OFF, NONE = "off", "none"

_LIBRARIES = (
    "/usr", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/run/opengl-driver",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/OpenCL", "/etc/vulkan",
)  # fmt: skip
_MACHINE = (
    "/sys", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/devices",
    "/proc/modules", "/proc/version", "/proc/filesystems", "/proc/driver", "/proc/sys/vm",
)  # fmt: skip
_FILES_OF_NAMES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf")
_PLAIN_DEVICES = ("null", "zero", "random", "urandom")
# NVIDIA; AMD and Intel (DRM, compute, accelerators); WSL; Mali; Ascend.
_GRAPHICS = (
    "nvidia*", "dri", "kfd", "accel", "dxg", "mali*", "davinci*", "devmm_svm", "hisi_hdc",
)  # fmt: skip
_DNS_PORT = 53

_CLONE_THREAD = 0x10000
_INET_FAMILIES = (2, 10)  # AF_INET, AF_INET6

# What no model needs.
_DENIED = (
    "execve", "execveat", "fork", "vfork", "setsid", "setpgid", "kill", "tkill",
    "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal", "pidfd_getfd",
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease",
    "kcmp", "migrate_pages", "move_pages", "setpriority", "ioprio_set",
    "socketpair", "bind", "listen", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl",
    "shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd",
    "msgrcv", "msgctl", "mq_open", "mq_unlink", "inotify_add_watch", "fanotify_init",
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat",
    "utime", "utimes", "futimesat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
    "removexattr", "lremovexattr", "fremovexattr",
    "removexattrat", "file_setattr", "mknod", "mknodat", "mount", "umount2", "pivot_root",
    "chroot", "unshare", "setns", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount",
    "fspick", "mount_setattr", "init_module", "finit_module", "delete_module", "kexec_load",
    "kexec_file_load", "acct", "name_to_handle_at", "open_by_handle_at",
)  # fmt: skip


def raise_fence(config: ModelConfig) -> str:
    """Confine this process for good to what this model needs.

    Returns:
        What is in force: `landlock+seccomp`, one of these, `none` where the kernel has neither,
        `off` when the config wants none. What fails is told on standard error.
    """
    if config.fence == "off":
        return OFF
    parts = []
    version, machine = landlock.abi(), platform.machine()
    if version:
        with _told("landlock"):
            # Held open for good: its rule hangs on what the kernel may forget otherwise.
            os.open("/proc/self", os.O_PATH | os.O_CLOEXEC)
            landlock.restrict(rules_of(config), version, ports=_ports(config))
            parts.append("landlock")
    if machine in NUMBERS:
        with _told("seccomp"):
            networked = bool(config.rpc_servers)
            seccomp.load(filter_program(machine, os.getpid(), is_networked=networked), machine)
            parts.append("seccomp")
    return "+".join(parts) or NONE


def rules_of(config: ModelConfig) -> list[landlock.Rule]:
    """Return which files a worker with this config may use; makes the folder that it writes."""
    rules = [(str(path), READ) for path in _code()]
    rules += [(name, READ) for name in (*_LIBRARIES, *_MACHINE)]
    rules += [(f"/dev/{name}", READ | CHANGE) for name in _PLAIN_DEVICES]
    for pattern in _GRAPHICS:
        rules += [(str(path), READ | CHANGE | IOCTL_DEVICE) for path in Path("/dev").glob(pattern)]
    if Path("/dev/kfd").exists():
        rules.append(("/dev/shm", READ | WRITE))  # noqa: S108 - AMD's driver shares memory there
    for path in (*files_of(Path(config.path)), *(Path(each.path) for each in config.lora)):
        rules.append((str(path), READ))
    rules += [(name, READ) for name in (config.template_file, config.mmproj) if name]
    if config.rpc_servers:
        rules += [(name, READ) for name in _FILES_OF_NAMES]
    for folder in _written(config):
        rules.append((str(folder), READ | WRITE))
    return rules


def filter_program(machine: str, pid: int, *, is_networked: bool) -> bytes:
    """Return the filter of a worker that is this process."""
    known = NUMBERS[machine]
    lines = seccomp.beginning(machine)
    # glibc takes ENOSYS as "not there" and uses clone, whose flags can be looked at.
    lines += seccomp.denied_if(seccomp.JUMP_EQUAL, known["clone3"], errno.ENOSYS)
    lines += seccomp.denied(machine, _DENIED)
    lines += seccomp.denied(machine, () if is_networked else ("socket",))
    first, second = seccomp.argument(0), seccomp.argument(1)
    allowed = {
        "socket": seccomp.allowed_if_one_of(first, _INET_FAMILIES),
        "clone": seccomp.allowed_if_one_of(first, (_CLONE_THREAD,), mask=_CLONE_THREAD),
        "tgkill": seccomp.allowed_if_one_of(first, (pid,)),
        "prlimit64": seccomp.allowed_if_one_of(first, (0, pid)),
        "utimensat": seccomp.allowed_if_zero(second, second + 4),
    }
    for name, rest in allowed.items():
        lines += seccomp.only_for(known[name], rest)
    return b"".join([*lines, seccomp.statement(seccomp.RETURN, seccomp.ALLOW)])


def _code() -> Iterator[Path]:
    """Yield where Python, clawd and their libraries lie."""
    named = [*sys.path, sys.prefix, sys.base_prefix, sys.exec_prefix]
    named += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for path in {Path(name).resolve() for name in named if name}:
        if path != Path("/"):
            yield path


def _written(config: ModelConfig) -> Iterator[Path]:
    if config.prefix_cache_folder and config.prefix_cache_disk_mb > 0:
        folder = Path(config.prefix_cache_folder)
        # A rule needs something to hold on to; where it cannot be made, nothing is kept.
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield folder
    if cache := os.environ.get("CUDA_CACHE_PATH"):
        yield Path(cache)


def _ports(config: ModelConfig) -> list[int]:
    """Return the ports that the config connects to; a bad one is told when it is used."""
    found = [server.rpartition(":")[2] for server in config.rpc_servers]
    ports = [int(port) for port in found if port.isascii() and port.isdigit()]
    return [*ports, _DNS_PORT] if found else []


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        print(f"the worker runs without {name}: {error}", file=sys.stderr)  # noqa: T201
