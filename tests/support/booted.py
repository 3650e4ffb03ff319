"""A real systemd, booted in namespaces of its own on a throwaway layer over a Debian root.

    with Machine(root) as machine:
        machine.boot()
        machine.run("systemctl", "start", "clawd")
        machine.run("clawctl", "status", user="alice")

It has no network, no controllers of its own beyond what the host's cgroup2 hands down, and no login
manager. What ends this process, ends the machine: mounts and processes belong to namespaces that
die with it. Only its empty cgroup and a log can be left behind, and the next machine removes them.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

STAGE = Path(__file__).with_name("booted_stage.py")
NAMESPACES = ("--mount", "--pid", "--cgroup", "--ipc", "--uts", "--net")
INIT = ("/lib/systemd/systemd", "--system", "--unit=multi-user.target", "--show-status=no")
PROGRAMS = ("unshare", "nsenter")
PREFIX = "clawd-booted-"
BOOT_LIMIT_S = 60.0
STOP_LIMIT_S = 60.0
RUN_LIMIT_S = 90.0
TICK_S = 0.02

Done = subprocess.CompletedProcess[str]


class Machine:
    """One machine from power-on to power-off; `close` leaves nothing of it.

    Args:
        root: the folder with its system.
        is_kept: whether what it writes stays in the root, instead of in memory.
    """

    def __init__(self, root: Path, *, is_kept: bool = False) -> None:
        self._root = root
        self._is_kept = is_kept
        _remove_left(Path(tempfile.gettempdir()), shutil.rmtree)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._unshare: subprocess.Popen[bytes] | None = None
        self._cgroup: Path | None = None
        self.pid = 0

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def boot(self) -> None:
        """Start systemd and wait until it has started everything."""
        self.start(*INIT)
        self.wait_for(INIT[0])
        private = self.path("/run/systemd/private")
        self.wait_until(private.is_socket, "systemd answers", BOOT_LIMIT_S)
        state = self.run("systemctl", "is-system-running", "--wait").stdout.strip()
        assert state == "running", self.run("systemctl", "--failed", "--no-pager").stdout

    def start(self, *init: str) -> None:
        """Start another first process in the same surroundings."""
        cgroup = _new_cgroup()
        self._cgroup = cgroup
        place = self._folder / "place"
        place.mkdir(exist_ok=True)
        stage = [sys.executable, "-I", str(STAGE)]
        unshare = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--propagation", "private"]
        layer = "" if self._is_kept else "layer"
        build = [*stage, "build", str(self._root), str(place), layer, *init]
        with self._console.open("ab") as console:
            self._unshare = subprocess.Popen(
                [*stage, "enter", str(cgroup), *unshare, "--", *build],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )

    def wait_for(self, program: str) -> None:
        """Wait until the first process has become this program."""
        name = Path(program).name

        def is_there() -> bool:
            assert self._unshare is not None
            with contextlib.suppress(psutil.Error):
                children = psutil.Process(self._unshare.pid).children()
                found = [child.pid for child in children if child.name() == name]
                self.pid = found[0] if found else 0
            return self.pid > 0

        self.wait_until(is_there, f"{name} runs", BOOT_LIMIT_S)

    def wait(self) -> int:
        """Wait for the end of the first process and give its exit status."""
        assert self._unshare is not None
        return self._unshare.wait(timeout=STOP_LIMIT_S)

    def power_off(self) -> None:
        """End everything in order, as an administrator would."""
        self.run("systemctl", "poweroff")
        self.wait()

    def close(self) -> None:
        """End everything by force and remove what is left; idempotent."""
        if self._unshare is not None:
            self._unshare.kill()  # --kill-child ends the first process, and so the namespace
            self._unshare.wait()
            self._unshare = None
        if self._cgroup is not None:
            _remove_cgroup(self._cgroup)
            self._cgroup = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def words(
        self, *argv: str, user: str = "root", environ: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return the command, for this machine, that runs one in there as a user of that one."""
        home = "/root" if user == "root" else f"/home/{user}"
        variables = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": home,
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **(environ or {}),
        }
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]
        entered = ["nsenter", "-t", str(self.pid), "-m", "-p", "-C", "-i", "-u", "-n", "-r", "-w"]
        pairs = [f"{name}={value}" for name, value in variables.items()]
        inside = ["env", "-i", f"--chdir={home}", *pairs, *argv]
        return [*entered, "--", *(become if user != "root" else []), *inside]

    def run(
        self,
        *argv: str,
        user: str = "root",
        environ: Mapping[str, str] | None = None,
        stdin: str | None = None,
        limit_s: float = RUN_LIMIT_S,
    ) -> Done:
        """Run a command to its end, away from any terminal."""
        return subprocess.run(
            self.words(*argv, user=user, environ=environ),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            start_new_session=True,
            check=False,
        )

    def out(self, *argv: str, user: str = "root", limit_s: float = RUN_LIMIT_S) -> str:
        """Run a command that must succeed and return what it printed."""
        done = self.run(*argv, user=user, limit_s=limit_s)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def path(self, inside: str) -> Path:
        """Return where a file of the machine is seen from here; links in it lead elsewhere."""
        return Path(f"/proc/{self.pid}/root") / inside.lstrip("/")

    def put(self, inside: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the machine, and the folders that it lacks."""
        target = self.path(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        target.chmod(mode)

    def wait_until(
        self, condition: Callable[[], bool], what: str, limit_s: float = STOP_LIMIT_S
    ) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert self._unshare is not None
            assert self._unshare.poll() is None, f"the machine ended:\n{self.console()}"
            assert time.monotonic() < deadline, f"not in {limit_s:g} s: {what}\n{self.console()}"
            time.sleep(TICK_S)

    def console(self) -> str:
        """Return what the first process wrote before it had a journal."""
        return self._console.read_text(encoding="utf-8", errors="replace")

    @property
    def _console(self) -> Path:
        return self._folder / "console.log"


def problem(root: Path) -> str:
    """Return why no machine can be booted here; empty where one can."""
    if os.geteuid() != 0:
        return "booting a machine in namespaces needs root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} (util-linux) are not installed"
    if not (root / "lib/systemd/systemd").exists():
        return f"there is no Debian root in {root}; CLAWD_TEST_BOOTED=1 make test as root makes it"
    try:
        with Machine(root) as machine:
            machine.start("/bin/true")
            status = machine.wait()
            return f"the namespaces cannot be made: {machine.console()}" if status else ""
    except (OSError, subprocess.SubprocessError) as error:
        return f"no cgroup can be made for a machine: {error}"


def _new_cgroup() -> Path:
    """Make a cgroup for one machine, and remove those whose makers are gone."""
    top = _cgroup2()
    _remove_left(top, _remove_cgroup)
    cgroup = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=top))
    cgroup.chmod(0o755)
    return cgroup


def _remove_left(parent: Path, remove: Callable[[Path], None]) -> None:
    """Remove what machines left whose makers were killed; names begin with their makers' pids."""
    for left in parent.glob(f"{PREFIX}*-*"):
        maker = left.name.removeprefix(PREFIX).partition("-")[0]
        if maker.isdigit() and not psutil.pid_exists(int(maker)):
            with contextlib.suppress(OSError):
                remove(left)


def _cgroup2() -> Path:
    """Return where this machine's cgroup2 is: all there is, or beside those of version 1."""
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise FileNotFoundError("cgroup2 is not mounted")


def _remove_cgroup(cgroup: Path) -> None:
    """End what may still run in a cgroup and remove it with all below it."""
    deadline = time.monotonic() + STOP_LIMIT_S
    with contextlib.suppress(OSError):
        (cgroup / "cgroup.kill").write_text("1", encoding="ascii")
    while cgroup.exists() and time.monotonic() < deadline:
        folders = [Path(folder) for folder, _, _ in os.walk(cgroup, topdown=False)]
        with contextlib.suppress(OSError):
            for folder in folders:
                folder.rmdir()
            return
        time.sleep(TICK_S)
