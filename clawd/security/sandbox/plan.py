"""The words of a sandbox: what a command sees, may use and may change. Pure; starts nothing.

`bubblewrap_plan` and `bare_plan` turn a command into arguments and the bytes of the files that
bubblewrap reads from descriptors; `process` opens these and starts it.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from clawd.errors import InvalidRequestError, SandboxUnavailableError
from clawd.kernel import landlock, landlock_exec
from clawd.security.risk import Opening
from clawd.security.sandbox.home import INNER_HOME, KEPT, etc_files, home_links, inner_id
from clawd.security.sandbox.neighbours import check_place, marked
from clawd.security.sandbox.secrets import direct_secrets

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

_STARTER = "starter"

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30

# Read-only, where the host has them; nothing else of /etc is visible.
SYSTEM_TREES = ("/usr", "/nix/store")
USR_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC_PARTS = (
    "/etc/alternatives", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/ld.so.cache",
    "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias", "/etc/localtime", "/etc/magic",
    "/etc/mime.types", "/etc/pki/ca-trust", "/etc/pki/tls/certs", "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf", "/etc/terminfo",
)  # fmt: skip
MACHINE_FACTS = tuple(
    f"/proc/{name}"
    for name in ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems")
)
"""What programs ask of the machine as a whole; nothing of any process."""
_COPIED_BYTES = 1 << 20
OWN_DEVICES = "/dev/clawd"
# What bubblewrap's --dev shows of the host's own /dev.
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
_RESERVED = tuple(
    Path(p) for p in ("/usr", "/etc", "/proc", "/sys", "/dev", "/boot", "/run", *USR_LINKS)
)


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one command may use.

    Attributes:
        memory_bytes: private writable memory of each process.
        address_space_bytes: address space of each process; bounds shared mappings.
        processes: processes and threads at once. Does not bind a daemon that runs as root.
        open_files: descriptors of each process.
        file_bytes: size of one file that it writes.
        cpu_s: processor time of each process.
        tmp_bytes: size of its /tmp.
        shm_bytes: size of its /dev/shm.
        disk_bytes: what it writes to the workspace in all; it is killed soon after.
        new_files: how many files it makes in all; likewise.
        total_memory_bytes: memory of all its processes, where the daemon has a cgroup.
    """

    memory_bytes: int = 2 * _GIB
    address_space_bytes: int = 64 * _GIB
    processes: int = 256
    open_files: int = 1024
    file_bytes: int = _GIB
    cpu_s: int = 300
    tmp_bytes: int = 256 * _MIB
    shm_bytes: int = 64 * _MIB
    disk_bytes: int = 4 * _GIB
    new_files: int = 500_000
    total_memory_bytes: int = 4 * _GIB


class Toolchains(msgspec.Struct, frozen=True, kw_only=True):
    """What commands see of the toolchains of a person, and what they know of the person.

    Attributes:
        path: folders for PATH, in the person's order.
        shown: files and folders that are shown read-only; real paths, none within another.
        secrets: what lies in them and may not be read; real paths.
        variables: for the environment of a command.
        links: what a home in the sandbox links to: names in it, and what of `shown` they stand for.
        settings: files of a home there that say who the person is and where packages come from.
        left_out: folders of PATH that are not shown, and why, for people.
    """

    path: tuple[str, ...] = ()
    shown: tuple[Path, ...] = ()
    secrets: tuple[Path, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, Path], ...] = ()
    settings: tuple[tuple[str, bytes], ...] = ()
    left_out: tuple[str, ...] = ()


class ChildCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run.

    Attributes:
        argv: program and arguments; no shell reads them.
        workspace: the one folder of the host that it may change; absolute.
        cwd: where it starts, in the workspace or in a folder of `readonly_paths`; None for the
            workspace itself.
        workspace_writable: False shows the workspace read-only.
        readonly_paths: further files and folders that it sees.
        env: variables beside the fixed ones; nothing of the daemon's own environment is seen.
        stdin: what it reads; empty is end of file at once.
        timeout_s: wall-clock limit; then the whole tree is killed.
        max_output_bytes: how much output is kept; the rest is read and dropped.
        separate_errors: keep standard error apart from the output.
        grace_s: at the time limit it is asked to end (SIGTERM), and killed that much later.
        toolchains: whether it sees the person's toolchains and has a home with the project's
            caches; see `home`.
        apart: it is a program of others, which stays: its caches are its own, by this name, and it
            does not learn who the person is; empty for one of the workspace's project.
        opens: what that programs outside run later it may make; see `auto_exec_guard`.
        project: the workspace whose caches it has; None for its own.
    """

    argv: tuple[str, ...]
    workspace: Path
    cwd: Path | None = None
    workspace_writable: bool = True
    readonly_paths: tuple[Path, ...] = ()
    env: dict[str, str] = {}
    stdin: bytes = b""
    timeout_s: float = 15.0
    max_output_bytes: int = _MIB
    separate_errors: bool = False
    grace_s: float = 0.0
    toolchains: bool = False
    apart: str = ""
    opens: tuple[Opening, ...] = ()
    project: Path | None = None


class DescriptorSlot(msgspec.Struct, frozen=True, kw_only=True):
    """Stands for the number of a descriptor that is opened at the start.

    `name` is that of a file of the plan, or `status` (bubblewrap reports there) or `gate`
    (bubblewrap waits there before it runs the command).
    """

    name: str


class SandboxPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a command.

    Attributes:
        argv: the command; behind its limits where `limits` is empty.
        limits: what the held sandbox is limited to before it is let go, by prlimit(1)'s names.
        bwrap: path of bubblewrap, or of what takes its place; empty to run `argv` as it is.
        options: bubblewrap's; they go through a descriptor, so that no process inside sees them.
        files: contents for the slots, by name.
        cwd: where the outer process starts.
        env: all of its environment.
        is_group: the command and all that it starts stay in one process group, its own, and no
            namespace ends with it.
        interpreter: what runs `bwrap` where that is a script.
        starter: which of `files` is the program that starts `argv` in the sandbox; empty for none.
        umask: that of the command.
    """

    argv: tuple[str, ...]
    umask: int = 0o077
    limits: dict[str, int] = {}
    bwrap: str = ""
    options: tuple[str | DescriptorSlot, ...] = ()
    files: dict[str, bytes] = {}
    cwd: str = "/"
    env: dict[str, str] = {}
    is_group: bool = False
    interpreter: tuple[str, ...] = ()
    starter: str = ""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan needs to know of the host.

    Attributes:
        bwrap: path of bubblewrap.
        prlimit: path of prlimit (util-linux).
        disables_userns: whether this bubblewrap knows `--disable-userns`.
        home: clawd's own home, which no command may see; None when there is none.
        forbidden_paths: absolute paths that no command may see.
        limits: what a command may use.
        seccomp: the filter program for this machine; empty for none.
        landlock: the version of Landlock that holds a command within bubblewrap as well, 0 for
            none; and the machine whose starter begins commands, empty for none.
        umask: permissions that files do not get which a command makes.
        closed: files of /proc that only the daemon's user may read, and that tell of the host.
        devices: a folder with devices for commands, in the place of the host's own; empty for none.
        toolchains: what commands see that want any.
        kept: the caches of the project at hand; None for none.
    """

    bwrap: str
    prlimit: str
    disables_userns: bool = True
    home: Path | None = None
    forbidden_paths: tuple[Path, ...] = ()
    limits: ResourceLimits = ResourceLimits()
    seccomp: bytes = b""
    landlock: tuple[int, str] = (0, "")
    umask: int = 0o077
    closed: tuple[str, ...] = ()
    devices: str = ""
    toolchains: Toolchains = Toolchains()
    kept: Path | None = None


def bubblewrap_plan(
    command: ChildCommand, host: HostFacts, guarded: Sequence[tuple[bool, str]] = ()
) -> SandboxPlan:
    """Plan a run in new namespaces that hold the system read-only and the workspace.

    Args:
        command: what to run.
        host: what the plan needs to know of the host.
        guarded: paths in the workspace, parents first, that no command may move or, unless the
            flag says that it stays writable, change.

    Raises:
        InvalidRequestError: the command cannot be meant (NUL, no argv, cwd elsewhere).
        SandboxUnavailableError: the workspace is a system folder or lies under a forbidden path.
    """
    workspace = checked_workspace(command, host)
    bind = "--bind" if command.workspace_writable else "--ro-bind"
    files: dict[str, bytes] = {}
    options = [*_isolation(command, host), *_system(host), *_etc(files)]
    options += _home(command, workspace, host, files)
    for path in command.readonly_paths:
        options += ["--ro-bind", str(path), str(path)]
    options += [bind, str(workspace), str(workspace), *_masks(command, workspace, host, guarded)]
    files |= etc_files()
    for name in files:
        options += ["--perms", "0644", "--file", DescriptorSlot(name=name), name]
    if host.seccomp:
        files["seccomp"] = host.seccomp
        options += ["--seccomp", DescriptorSlot(name="seccomp")]
    options += ["--remount-ro", "/dev", "--remount-ro", "/"]
    options += ["--chdir", str(command.cwd or workspace)]
    # While a set-user-ID bubblewrap is at work it is root's, and its limits are not ours to set.
    is_inside = _is_setuid(host.bwrap)
    argv = limited_argv(command, host) if is_inside else command.argv
    if starter := _starter(command, workspace, host):
        files[_STARTER] = starter
        argv = landlock_exec.start_words(argv, environment(command, host)["PATH"])
    return SandboxPlan(
        argv=argv,
        limits={} if is_inside else _limits(host.limits),
        bwrap=host.bwrap,
        options=tuple(options),
        files=files,
        env=marked(host.home),
        starter=_STARTER if starter else "",
        umask=host.umask,
    )


def bare_plan(command: ChildCommand, host: HostFacts) -> SandboxPlan:
    """Plan a run without namespaces: limits and a clean environment only.

    Raises:
        InvalidRequestError: the command cannot be meant.
    """
    _check_command(command)
    env = environment(command, host, home=bare_home(host))
    return SandboxPlan(
        argv=limited_argv(command, host),
        cwd=str(command.cwd or command.workspace),
        env=env,
        umask=host.umask,
    )


def limited_argv(command: ChildCommand, host: HostFacts) -> tuple[str, ...]:
    """Return the command behind `prlimit`."""
    words = (f"--{name}={value}" for name, value in _limits(host.limits).items())
    return (host.prlimit, *words, "--", *command.argv)


def _limits(limits: ResourceLimits) -> dict[str, int]:
    """Return the limits by prlimit(1)'s names.

    They are set in the sandbox: the kernel counts processes for each user namespace there, so that
    what else the user runs does not eat the limit.
    """
    return {
        "core": 0,
        "cpu": limits.cpu_s,
        "data": limits.memory_bytes,
        "as": limits.address_space_bytes,
        "fsize": limits.file_bytes,
        "nofile": limits.open_files,
        "nproc": limits.processes,
    }


def _isolation(command: ChildCommand, host: HostFacts) -> list[str | DescriptorSlot]:
    words: list[str | DescriptorSlot] = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
    ]
    words += ["--unshare-net", "--unshare-cgroup-try", "--hostname", "sandbox", "--new-session"]
    words += ["--die-with-parent"]
    words += ["--disable-userns"] if host.disables_userns else []
    words += ["--uid", str(inner_id(os.getuid())), "--gid", str(inner_id(os.getgid()))]
    words += ["--cap-drop", "ALL", "--clearenv"]
    words += [
        "--json-status-fd",
        DescriptorSlot(name="status"),
        "--block-fd",
        DescriptorSlot(name="gate"),
    ]
    for name, value in environment(command, host).items():
        words += ["--setenv", name, value]
    return words


def _starter(command: ChildCommand, workspace: Path, host: HostFacts) -> bytes:
    """Return the program that begins a command when all that holds it is in force.

    It lets the command write where it may by the mounts, and nowhere else: a mount that shows too
    much is no way out then, the kernel would have to fail twice.
    """
    version, machine = host.landlock
    rules = [(path, landlock.WRITE) for path in ("/tmp", "/dev/shm", "/dev/pts", *_DEVICES)]  # noqa: S108 - the sandbox's own
    rules += [(str(workspace), landlock.WRITE)] if command.workspace_writable else []
    name = command.argv[0]
    waits = bool(host.seccomp)
    return landlock_exec.starter(machine, rules, landlock.WRITE, version, name=name, waits=waits)


def _etc(files: dict[str, bytes]) -> Iterator[str]:
    """Show parts of the host's /etc. Small files are copied into `files`: a mount takes time."""
    for name in ETC_PARTS:
        path = Path(name)
        target = os.path.realpath(name)
        if path.is_symlink() and any(_is_under(Path(target), Path(t)) for t in SYSTEM_TREES):
            yield from ("--symlink", target, name)
        elif path.is_file() and path.stat().st_size <= _COPIED_BYTES:
            files[name] = path.read_bytes()
        else:
            yield from ("--ro-bind-try", name, name)


def _system(host: HostFacts) -> list[str]:
    words: list[str] = []
    for tree in SYSTEM_TREES:
        words += ["--ro-bind-try", tree, tree]
    for name in USR_LINKS:
        path = Path(name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            words += ["--ro-bind", name, name]
    # The kernel lets the host's root write below /proc/sys without any capability; to it a command
    # of a daemon that runs as root is that root.
    words += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    for device in _DEVICES if host.devices else ():
        words += ["--dev-bind", host.devices + device, device]
    for file in host.closed:
        words += ["--ro-bind-try", "/dev/null", file]
    limits = host.limits
    words += ["--size", str(limits.tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's own
    words += ["--size", str(limits.shm_bytes), "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108 - likewise
    return words


def _home(
    command: ChildCommand, workspace: Path, host: HostFacts, files: dict[str, bytes]
) -> list[str]:
    """Show toolchains, and make a home with the project's caches.

    Nothing is mounted in what commands of two calls can write: the home is new for each, and its
    caches are one folder, to which it has links.
    """
    if not command.toolchains:
        return []
    words: list[str] = []
    for path in shown_toolchains(workspace, host):
        words += ["--ro-bind-try", str(path), str(path)]
    words += ["--perms", "0700", "--dir", INNER_HOME]
    if host.kept is not None:
        words += ["--bind", str(host.kept), f"{INNER_HOME}/{KEPT}"]
    for name, target in home_links(workspace, host.toolchains.links, kept=host.kept).items():
        words += ["--symlink", target, f"{INNER_HOME}/{name}"]
    for name, text in host.toolchains.settings:
        files[f"{INNER_HOME}/{name}"] = text
    return words


def shown_toolchains(workspace: Path, host: HostFacts) -> list[Path]:
    """Return what is shown of toolchains beside a workspace; what lies in it is there as it is."""
    return [path for path in host.toolchains.shown if not _is_under(path, workspace)]


def shown_secrets(workspace: Path, host: HostFacts) -> set[Path]:
    """Return what lies in the shown toolchains and may not be read, new ones right in them too."""
    shown = shown_toolchains(workspace, host)
    found = set(host.toolchains.secrets)
    for folder in shown:
        found.update(direct_secrets(folder))
    return {path for path in found if not _is_under(path, workspace)}


def _masks(
    command: ChildCommand, workspace: Path, host: HostFacts, guarded: Sequence[tuple[bool, str]]
) -> Iterator[str]:
    """Cover what lies in a visible folder and must not be seen, or not be changed.

    The folders between the workspace and a mask become mount points as well: a mount point cannot
    be renamed, so that no command can carry a hidden file out from under its mask for the next.
    Masks come last, so that no bind of a folder uncovers what is hidden in it.
    """
    shown = [workspace, *(path.resolve() for path in command.readonly_paths)]
    shown += [Path(tree) for tree in SYSTEM_TREES]
    masked: list[str] = []
    covered = hidden_paths(host)
    if command.toolchains:
        shown += shown_toolchains(workspace, host)
        more = shown_secrets(workspace, host)
        covered += sorted(p for p in more if not any(_is_under(p, each) for each in covered))
    for hidden in covered:
        root = next((root for root in shown if root in hidden.parents), None)
        if root is None or not hidden.exists():
            continue
        if root == workspace:
            bind = "--bind" if command.workspace_writable else "--ro-bind"
            between = list(hidden.parents)[: hidden.parents.index(workspace)]
            for folder in reversed(between):
                yield from (bind, str(folder), str(folder))
        if hidden.is_dir():
            masked += ["--perms", "0000", "--tmpfs", str(hidden), "--remount-ro", str(hidden)]
        else:
            masked += ["--ro-bind", "/dev/null", str(hidden)]
    for stays_writable, path in guarded:
        yield from ("--bind" if stays_writable else "--ro-bind", path, path)
    yield from masked


def own_devices() -> str:
    """Make devices for commands, where we are root; return their folder, or nothing.

    The kernel lets root change the modes of root's files, and to it a command is that root; the
    host's `/dev/null` must not be closed to others by one. They lie beside the host's, and not in a
    home: who copies a home would read `/dev/zero` to no end. All daemons of root share them.
    """
    if os.getuid() != 0:
        return ""
    try:
        for device in map(Path, _DEVICES):
            copy, about = Path(f"{OWN_DEVICES}{device}"), device.stat()
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (copy.is_char_device() and copy.stat().st_rdev == about.st_rdev):
                copy.unlink(missing_ok=True)
                os.mknod(copy, about.st_mode, about.st_rdev)
        mend_devices(OWN_DEVICES)
        # They work on no file system that is mounted without devices.
        os.close(os.open(f"{OWN_DEVICES}/dev/null", os.O_RDWR))
    except OSError:
        return ""
    return OWN_DEVICES


def mend_devices(folder: str) -> None:
    """Open the devices to everybody again; a command may have closed them to the next."""
    for device in _DEVICES if folder else ():
        Path(folder + device).chmod(0o666)


def closed_files() -> tuple[str, ...]:
    """Return the files right below /proc that root reads and others do not, where we are root."""
    if os.getuid() != 0:
        return ()
    with os.scandir("/proc") as entries:
        found = [
            entry.path
            for entry in entries
            if not entry.name.isdigit()
            and entry.is_file(follow_symlinks=False)
            and not entry.stat(follow_symlinks=False).st_mode & stat.S_IROTH
        ]
    return tuple(sorted(found))


def hidden_paths(host: HostFacts) -> list[Path]:
    """Return what no command may see, sorted; what lies in a hidden folder is left out."""
    paths = {path.expanduser().resolve() for path in host.forbidden_paths}
    paths |= {host.home.resolve()} if host.home else set()
    return sorted(path for path in paths if not any(other in path.parents for other in paths))


def checked_workspace(command: ChildCommand, host: HostFacts) -> Path:
    """Return the workspace, in whose path there are no links.

    Raises:
        InvalidRequestError: the command cannot be meant.
        SandboxUnavailableError: the workspace is not what was judged, is a system folder or lies
            under a forbidden path.
    """
    _check_command(command)
    workspace = command.workspace
    check_place(workspace)
    if workspace == Path("/") or any(_is_under(workspace, folder) for folder in _RESERVED):
        raise SandboxUnavailableError(
            f"workspace {workspace} is a system folder, which no command may change",
            hint="Choose a folder of your own, for example ~/clawd-workspace.",
        )
    for path in host.forbidden_paths:
        if _is_under(workspace, path.expanduser().resolve()):
            raise SandboxUnavailableError(f"workspace {workspace} lies under forbidden path {path}")
    if host.home and workspace == host.home.resolve():
        raise SandboxUnavailableError(f"workspace {workspace} is clawd's own home")
    return workspace


def _check_command(command: ChildCommand) -> None:
    words = [*command.argv, *command.env, *command.env.values(), *map(str, command.readonly_paths)]
    if not command.argv or not command.argv[0]:
        raise InvalidRequestError("a command needs a program to run")
    if any("\0" in word for word in words):
        raise InvalidRequestError("a command cannot hold NUL characters")
    if bad := [name for name in command.env if not name or "=" in name]:
        raise InvalidRequestError(f"{bad[0]!r} is no name of an environment variable")
    cwd = command.cwd or command.workspace
    seen = (command.workspace, *command.readonly_paths)
    if not any(_is_under(cwd.resolve(), folder.resolve()) for folder in seen):
        raise InvalidRequestError(f"{cwd} is not in the workspace {command.workspace}")


def bare_home(host: HostFacts) -> str:
    """Return the home of a command that has no sandbox: the project's caches."""
    return str(host.kept or "/tmp")  # noqa: S108 - where there is nothing else


def environment(
    command: ChildCommand, host: HostFacts, *, home: str = INNER_HOME
) -> dict[str, str]:
    """Return all variables of a command: fixed ones, those of toolchains, and its own."""
    fixed = {
        "PATH": DEFAULT_PATH,
        "HOME": "/tmp",  # noqa: S108 - the sandbox's own tmpfs
        "TMPDIR": "/tmp",  # noqa: S108 - likewise
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
    if command.toolchains:
        fixed |= dict(host.toolchains.variables)
        place, folders = command.workspace, host.toolchains.path
        fixed["PATH"] = (
            ":".join(p for p in folders if not _is_under(Path(p), place)) or DEFAULT_PATH
        )
        fixed["HOME"] = home
    return fixed | command.env


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """What of the file system a command in the sandbox finds, by absolute paths as it spells them.

    Attributes:
        workspace: absolute and resolved.
        workspace_writable: whether the command may change it.
        own: folders of the sandbox's own, new for each command and gone with it.
        shown: files and folders that are shown read-only.
        hidden: what is covered in any of these.
        is_bare: nothing is hidden and nothing its own: there is no sandbox.
    """

    workspace: Path
    workspace_writable: bool = True
    own: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    is_bare: bool = False

    def writable_inside(self, path: Path) -> bool:
        """Return whether a command may write there: in its workspace or on what is its own."""
        workspace = (self.workspace,) if self.workspace_writable else ()
        if self._is_in(path, workspace):
            return True
        return not self._is_in(path, (self.workspace,)) and self.is_own(path)

    def is_own(self, path: Path) -> bool:
        """Return whether a path lies in the sandbox alone: nothing of the host is there."""
        place = Path(os.path.normpath(path))
        mounted = (*self.shown, self.workspace)
        if any(_is_under(place, each) for each in mounted):
            return False
        return any(_is_under(place, each) for each in self.own)

    def _is_in(self, path: Path, folders: tuple[Path, ...]) -> bool:
        if self.is_bare:
            return True
        real = Path(os.path.realpath(path))
        if any(_is_under(real, each) for each in self.hidden):
            return False
        return any(_is_under(real, each) for each in folders)


def inside_of(command: ChildCommand, host: HostFacts, level: str) -> Inside:
    """Return what a command finds at a level (`bwrap`, `landlock`, `none`)."""
    if level == "none":
        return Inside(workspace=command.workspace, is_bare=True)
    hidden = hidden_paths(host)
    shown = [*command.readonly_paths, *map(Path, (*SYSTEM_TREES, *USR_LINKS, *ETC_PARTS))]
    own: list[Path] = []
    if level == "bwrap":
        # A made-up /etc, and what the kernel shows of the sandbox's own processes.
        shown += [Path(name) for name in (*etc_files(), "/proc")]
        own = [Path(name) for name in ("/tmp", "/dev/shm", *_DEVICES)]  # noqa: S108 - the sandbox's own
    else:
        shown += [Path(name) for name in MACHINE_FACTS]
    if command.toolchains:
        shown += shown_toolchains(command.workspace, host)
        hidden += sorted(shown_secrets(command.workspace, host))
    return Inside(
        workspace=command.workspace,
        workspace_writable=command.workspace_writable,
        own=tuple(own),
        shown=tuple(shown),
        hidden=tuple(each for each in hidden if each != command.workspace),
    )


def _is_under(path: Path, folder: Path) -> bool:
    return path.parts[: len(folder.parts)] == folder.parts


def _is_setuid(program: str) -> bool:
    try:
        return bool(Path(program).stat().st_mode & stat.S_ISUID)
    except OSError:
        return False
