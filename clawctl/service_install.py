"""Installs and uninstalls the service: units, groups, start and hand-over; says how it stands."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from clawctl import systemctl
from clawctl.daemon import clawd_command, start
from clawctl.daemon_finder import reach
from clawctl.daemon_stop import detached_pid, end, environment_of, found_at
from clawctl.render import Palette, duration, note, show_fields, size
from clawd.errors import ClawError, ForbiddenError
from clawd.kernel.files import replace_file
from clawd.paths import Layout

_SERVICE_PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "UnitFileState", "FragmentPath", "DropInPaths"),
    *("MainPID", "StatusText", "Result", "ExecMainCode", "ExecMainStatus", "NRestarts"),
    *("ActiveEnterTimestampMonotonic", "StateChangeTimestamp", "WatchdogUSec"),
    *("WatchdogTimestampMonotonic", "MemoryCurrent", "TasksCurrent", "NeedDaemonReload"),
)
_SOCKET_PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "UnitFileState", "Listen", "NConnections"),
    *("NAccepted", "Result"),
)
_UNKNOWN_NUMBER = 2**64 - 1

_RESULTS = {
    "success": "ended as it should",
    "exit-code": "ended with an error",
    "signal": "was killed by a signal",
    "core-dump": "crashed",
    "watchdog": "hung, and was killed by the watchdog",
    "timeout": "took too long to start or stop",
    "oom-kill": "was killed because memory ran out",
    "start-limit-hit": "failed too often, systemd does not try again",
    "protocol": "did not tell systemd that it was ready",
    "resources": "could not be started by systemd",
    "exec-condition": "was not to be started",
}


_LONG = {"waiting": "waiting: the first client starts it"}


class ServiceState(msgspec.Struct, frozen=True, kw_only=True):
    """How the service stands.

    Attributes:
        state: `running`, `waiting` (for its first client), `starting`, `stopping`, `failed`,
            `stopped`, `not installed`.
        unit: its file; empty where there is none.
        starts: systemd's word: `enabled`, `disabled`, …
        last_result: how it ended last, systemd's word.
        watchdog_s: after how long a silence it is killed; 0 for never.
        watchdog_age_s: how long ago it last gave a sign of life; None while it does not run.
        memory_bytes: of the daemon, its models and tools together; None: not counted here.
        beside: pid of a daemon that runs in the home without systemd; 0 for none.
    """

    scope: str
    state: str
    unit: str
    drop_ins: tuple[str, ...]
    starts: str
    pid: int
    status: str
    since: str
    up_s: float | None
    last_result: str
    last_exit: str
    restarts: int
    watchdog_s: float
    watchdog_age_s: float | None
    memory_bytes: int | None
    tasks: int | None
    socket: str
    socket_path: str
    socket_is_there: bool
    needs_reload: bool
    beside: int


def service_state(manager: systemctl.Manager, where: Layout) -> ServiceState:
    """Ask systemd how the service stands."""
    service = manager.show(systemctl.SERVICE, _SERVICE_PROPERTIES)
    socket = manager.show(systemctl.SOCKET, _SOCKET_PROPERTIES)
    pid = _number(service, "MainPID") or 0
    holder = detached_pid(where) or 0
    path = socket.get("Listen", "").partition(" ")[0]
    is_running = service.get("ActiveState") == "active"
    return ServiceState(
        scope=manager.scope,
        state=_state(service, socket),
        unit=service.get("FragmentPath", ""),
        drop_ins=tuple(service.get("DropInPaths", "").split()),
        starts=service.get("UnitFileState", ""),
        pid=pid,
        status=service.get("StatusText", ""),
        since=service.get("StateChangeTimestamp", ""),
        up_s=_age(service, "ActiveEnterTimestampMonotonic") if is_running else None,
        last_result=service.get("Result", ""),
        last_exit=_last_exit(service),
        restarts=_number(service, "NRestarts") or 0,
        watchdog_s=_seconds(service.get("WatchdogUSec", "")),
        watchdog_age_s=_age(service, "WatchdogTimestampMonotonic") if is_running else None,
        memory_bytes=_number(service, "MemoryCurrent"),
        tasks=_number(service, "TasksCurrent"),
        socket=socket.get("SubState", "") if socket.get("LoadState") == "loaded" else "",
        socket_path=path,
        socket_is_there=bool(path) and Path(path).is_socket(),
        needs_reload=service.get("NeedDaemonReload") == "yes",
        beside=0 if holder == pid else holder,
    )


def is_up(state: ServiceState) -> bool:
    """Return whether a client would be served."""
    return state.state in {"running", "waiting", "starting"} or bool(state.beside)


def show_service(state: ServiceState) -> None:
    """Print how the service stands, at a glance, and what to do where something is wrong."""
    palette = Palette.of(sys.stdout)
    paint = {"running": palette.green, "waiting": palette.green, "failed": palette.red}
    up = f", up {duration(state.up_s)}" if state.up_s is not None else ""
    pid = f", pid {state.pid}" if state.pid else ""
    painted = paint.get(state.state, palette.yellow)(_LONG.get(state.state, state.state))
    fields: list[tuple[str, object]] = [("clawd", painted + pid + up)]
    if state.status:
        fields.append(("says", state.status))
    if state.unit:
        more = f", {len(state.drop_ins)} drop-ins" if state.drop_ins else ""
        fields.append(("unit", f"{state.unit} ({state.starts or 'static'}{more})"))
        fields.append(("socket", _socket_line(state)))
        fields.append(("last end", _last_end(state)))
        fields.append(("watchdog", _watchdog_line(state)))
        fields.append(("memory", _memory_line(state)))
    show_fields(fields)
    for line in advice(state):
        print(f"{palette.yellow('!')} {line}")


def advice(state: ServiceState) -> list[str]:
    """Return what a person should do, a sentence each."""
    lines = []
    scope = f" --{state.scope}"
    if state.state == "not installed":
        lines.append(f"Install it with: clawctl service install{scope}")
    if state.beside:
        lines.append(
            f"A daemon runs without systemd (pid {state.beside}). Hand over to the service with: "
            f"clawctl service install{scope}"
        )
    if state.state == "failed":
        lines.append(f"Why: clawctl service logs{scope} -n 50")
    if state.last_result == "start-limit-hit":
        lines.append(f"When it is mended: clawctl service restart{scope}")
    if state.socket and state.socket_path and not state.socket_is_there:
        lines.append(
            f"{state.socket_path} is gone, nobody can connect: clawctl service restart --socket"
            f"{scope}"
        )
    if state.needs_reload:
        flag = " --user" if state.scope == "user" else ""
        lines.append(f"A unit file was changed: systemctl{flag} daemon-reload, then restart it")
    return lines


def _state(service: dict[str, str], socket: dict[str, str]) -> str:
    if service.get("LoadState") != "loaded":
        return "not installed"
    active = service.get("ActiveState", "")
    if active == "inactive" and socket.get("ActiveState") == "active":
        return "waiting"
    names = {
        "active": "running",
        "reloading": "running",
        "activating": "starting",
        "deactivating": "stopping",
        "failed": "failed",
    }
    return names.get(active, "stopped")


def _last_exit(service: dict[str, str]) -> str:
    # waitid(2): CLD_EXITED is 1, CLD_KILLED 2, CLD_DUMPED 3; 0 means that it never ended.
    how = {"1": "status", "2": "signal", "3": "signal"}.get(service.get("ExecMainCode", ""))
    return f"{how} {service.get('ExecMainStatus', '?')}" if how else ""


def _last_end(state: ServiceState) -> str:
    restarts = f"; restarted {state.restarts} times since it was started" if state.restarts else ""
    if not state.last_exit and state.last_result in {"", "success"}:
        return "never" + restarts
    said = _RESULTS.get(state.last_result, state.last_result)
    return said + (f" ({state.last_exit})" if state.last_exit else "") + restarts


def _socket_line(state: ServiceState) -> str:
    if not state.socket:
        return "none from systemd"
    gone = "" if state.socket_is_there else ", FILE IS GONE"
    return f"{state.socket_path} ({state.socket}{gone})"


def _watchdog_line(state: ServiceState) -> str:
    if not state.watchdog_s:
        return "off"
    age = state.watchdog_age_s
    age_text = "" if age is None else f", last sign of life {age:.0f} s ago"
    return f"every {state.watchdog_s:g} s{age_text}"


def _memory_line(state: ServiceState) -> str:
    if state.memory_bytes is None:
        return "not counted here"
    tasks = f", {state.tasks} tasks" if state.tasks is not None else ""
    return f"{size(state.memory_bytes)} with models and tools{tasks}"


def _number(values: dict[str, str], name: str) -> int | None:
    text = values.get(name, "")
    return int(text) if text.isdigit() and int(text) != _UNKNOWN_NUMBER else None


def _age(values: dict[str, str], name: str) -> float | None:
    """Return how long ago a time of CLOCK_MONOTONIC in microseconds was."""
    at = _number(values, name)
    if not at:
        return None
    return max(0.0, round(time.clock_gettime(time.CLOCK_MONOTONIC) - at / 1e6, 1))


def _seconds(text: str) -> float:
    """Return the seconds of a span as systemctl shows it: `30s`, `1min 30s`, `500ms`."""
    factors = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
    total = 0.0
    for word in text.split():
        digits = word.rstrip("abcdefghijklmnopqrstuvwxyz")
        if digits.replace(".", "", 1).isdigit():
            total += float(digits) * factors.get(word[len(digits) :], 0.0)
    return total


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was done, or would be.

    Attributes:
        what: in words.
        command: as a person would type it; empty for none.
        result: `done`, `unchanged`, `planned` or `skipped`.
    """

    what: str
    command: str = ""
    result: str = "done"


class ServiceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a service, and what a person should know."""

    scope: str
    action: str
    dry_run: bool = False
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()


class Steps:
    """Does steps and remembers them.

    Args:
        manager: runs commands.
        dry_run: tell only.
        quiet: say nothing on the way.
    """

    def __init__(self, manager: systemctl.Manager, *, dry_run: bool, quiet: bool) -> None:
        self._manager = manager
        self._dry_run = dry_run
        self._quiet = quiet
        self.done: list[Step] = []

    def command(self, what: str, command: Sequence[str], *, may_fail: bool = False) -> None:
        """Run a command.

        Raises:
            ClawError: it failed, and it may not.
        """
        shown = " ".join(command)
        if self._dry_run:
            self._note(Step(what=what, command=shown, result="planned"))
            return
        ran = self._manager.run(command)
        if ran.status == 0:
            self._note(Step(what=what, command=shown))
            return
        said = (ran.stderr.strip() or ran.stdout.strip() or f"status {ran.status}").splitlines()
        if not may_fail:
            raise ClawError(
                f"{shown} failed: {said[0]}",
                hint="\n".join([*said[1:6], "See: clawctl service status, clawctl service logs"]),
            )
        self._note(Step(what=f"{what} ({said[0]})", command=shown, result="skipped"))

    def write(self, file: systemctl.UnitFile) -> bool:
        """Write a file if it is not as it is to be; return whether it was written.

        Raises:
            ClawError: there is a file of somebody else, or it cannot be written.
        """
        path = file.path
        if path.exists() and not systemctl.is_ours(path):
            raise ClawError(
                f"{path} is there, and clawctl did not write it",
                hint="Compare it with `clawctl service install --print`, then move it away. What "
                "you want to change belongs in a drop-in: systemctl edit clawd",
            )
        if path.exists() and path.read_text(encoding="utf-8") == file.text:
            self._note(Step(what=f"{path} is as it should be", result="unchanged"))
            return False
        what = f"write {path}"
        if self._dry_run:
            self._note(Step(what=what, result="planned"))
            return True
        try:
            _write(path, file.text)
        except OSError as error:
            raise _not_written(path, error) from error
        self._note(Step(what=what))
        return True

    def remove(self, path: Path) -> bool:
        """Remove a file that `write` wrote; return whether there was one.

        Raises:
            ClawError: it cannot be removed.
        """
        if not systemctl.is_ours(path):
            return False
        if not self._dry_run:
            try:
                path.unlink()
            except OSError as error:
                raise _not_written(path, error) from error
        self._note(Step(what=f"remove {path}", result="planned" if self._dry_run else "done"))
        return True

    def act(self, what: str, action: Callable[[], None]) -> None:
        """Do something that is no command."""
        if not self._dry_run:
            action()
        self._note(Step(what=what, result="planned" if self._dry_run else "done"))

    def report(self, action: str, *notes: str) -> ServiceReport:
        """Return what was done, and what a person should know."""
        return ServiceReport(
            scope=self._manager.scope,
            action=action,
            dry_run=self._dry_run,
            steps=tuple(self.done),
            notes=notes,
        )

    def _note(self, step: Step) -> None:
        self.done.append(step)
        if not self._quiet:
            sign = {"done": "✓", "unchanged": "=", "planned": "·", "skipped": "!"}[step.result]
            command = f"  [{step.command}]" if step.command else ""
            note(f"{sign} {step.what}{command}")


def _write(path: Path, text: str) -> None:
    """Put the file in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode(), mode=0o644)


def _not_written(path: Path, error: OSError) -> ClawError:
    return ForbiddenError(
        f"{path} cannot be changed: {error.strerror}",
        hint="The machine's service is installed by root: sudo clawctl service … --system. "
        "Your own: clawctl service … --user",
    )


class InstallChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants of an installation."""

    root: Path = Path("/")
    enable: bool = True
    dry_run: bool = False
    quiet: bool = False

    @property
    def is_image(self) -> bool:
        """Whether units go into another root, where nothing runs."""
        return self.root != Path("/")


def install(
    manager: systemctl.Manager, where: Layout, environ: Mapping[str, str], choice: InstallChoice
) -> ServiceReport:
    """Write the units where no package brought them, and start the service.

    Raises:
        ClawError: a step failed; those before it stand, and doing it again goes on.
    """
    if not choice.is_image:
        manager.require()
    steps = Steps(manager, dry_run=choice.dry_run, quiet=choice.quiet)
    from_package = systemctl.packaged(manager.scope, choice.root)
    notes = []
    if from_package is not None:
        notes.append(f"{from_package} comes from a package and is used; no second one is written.")
    else:
        for file in systemctl.files_of(manager.scope, choice.root, environ, where):
            steps.write(file)
        if manager.scope == "system":
            _make_groups(steps, choice)
    if not choice.is_image:
        steps.command("let systemd read the units", manager.command("daemon-reload"))
        end_beside(steps, where)
        _start(steps, manager, enable=choice.enable)
    elif choice.enable:
        root = f"--root={choice.root}"
        steps.command(
            "start it with the machine",
            ["systemctl", root, "enable", systemctl.SOCKET, systemctl.SERVICE],
        )
    notes += _advice(manager, where, choice)
    return steps.report("install", *notes)


def uninstall(
    manager: systemctl.Manager, where: Layout, environ: Mapping[str, str], choice: InstallChoice
) -> ServiceReport:
    """Stop the service and remove the units that `install` wrote. Data stays.

    Raises:
        ClawError: a step failed, or the units are a package's.
    """
    from_package = systemctl.packaged(manager.scope, choice.root)
    folder = systemctl.folder_of(manager.scope, choice.root, environ)
    if from_package is not None and not (folder / systemctl.SERVICE).exists():
        raise ClawError(
            f"{from_package} comes from a package, which alone removes it",
            hint="To stop and not start it again: clawctl service disable. To remove it: apt "
            "remove clawd",
        )
    steps = Steps(manager, dry_run=choice.dry_run, quiet=choice.quiet)
    if not choice.is_image:
        manager.require()
        if (folder / systemctl.SERVICE).exists():
            command = manager.command("disable", "--now", systemctl.SOCKET, systemctl.SERVICE)
            steps.command("stop it, and start it no more", command, may_fail=True)
    paths = [folder / systemctl.SERVICE, folder / systemctl.SOCKET]
    if manager.scope == "system":
        paths += [choice.root / f"etc/{each}.d/clawd.conf" for each in ("sysusers", "tmpfiles")]
    else:
        paths += [folder / systemctl.WAKE_SERVICE, folder / systemctl.WAKE_TIMER]
    removed = [steps.remove(path) for path in paths]
    if not choice.is_image and any(removed):
        steps.command("let systemd forget it", manager.command("daemon-reload"))
        failed = manager.command("reset-failed", systemctl.SERVICE)
        steps.command("forget that it failed", failed, may_fail=True)
    notes = [] if any(removed) else ["Nothing was installed."]
    notes.append(f"Your data stays: {where.home}" + _config_note(where))
    if manager.scope == "system":
        notes.append("The groups clawd-ctl and clawd-admin stay, with their members.")
    return steps.report("uninstall", *notes)


def _make_groups(steps: Steps, choice: InstallChoice) -> None:
    root = (f"--root={choice.root}",) if choice.is_image else ()
    groups = ["systemd-sysusers", *root, str(choice.root / "etc/sysusers.d/clawd.conf")]
    steps.command("make the groups clawd-ctl and clawd-admin", groups)
    folders = ["systemd-tmpfiles", "--create", *root]
    folders.append(str(choice.root / "etc/tmpfiles.d/clawd.conf"))
    steps.command("make /etc/clawd", folders)


def runs_beside(where: Layout) -> bool:
    """Return whether a daemon runs in the home without systemd."""
    pid = detached_pid(where)
    return bool(pid) and not found_at(pid or 0, where).unit


def restart_beside(steps: Steps, where: Layout, environ: Mapping[str, str]) -> None:
    """End a daemon that runs in the home without systemd, and start it anew.

    Raises:
        ClawError: it does not end, or does not come up.
    """
    found = found_at(detached_pid(where) or 0, where)
    end_beside(steps, where)
    own = environment_of(found, environ)

    def act() -> None:
        start(where, own, [*clawd_command(), *found.command]).close()

    steps.act("start it anew", act)


def end_beside(steps: Steps, where: Layout) -> bool:
    """End a daemon that runs in the home without systemd; return whether there was one.

    Raises:
        ClawError: it refuses, or does not end.
    """
    pid = detached_pid(where)
    found = found_at(pid, where) if pid else None
    if found is None or found.unit:
        return False

    def act() -> None:
        end(found, lambda: reach(str(where.socket), may_start=False), note)

    steps.act(f"end the daemon that runs without systemd (pid {pid}); turns may finish", act)
    return True


def _start(steps: Steps, manager: systemctl.Manager, *, enable: bool) -> None:
    if enable:
        when = "with the machine" if manager.scope == "system" else "when you log in"
        steps.command(
            f"start it {when}", manager.command("enable", systemctl.SOCKET, systemctl.SERVICE)
        )
    steps.command("open its socket", manager.command("start", systemctl.SOCKET))
    steps.command(
        "start it, or the new version of it", manager.command("restart", systemctl.SERVICE)
    )


def _advice(manager: systemctl.Manager, where: Layout, choice: InstallChoice) -> list[str]:
    notes = []
    if manager.scope == "user" and not choice.dry_run and manager.lingers() is False:
        notes.append(
            "It ends when you log out, and starts when you log in. To keep it running: loginctl "
            "enable-linger"
        )
    if manager.scope == "system":
        notes.append(
            "To let a user in: sudo usermod -aG clawd-ctl USER (then log in again). To let one "
            "also see and stop what others do: both clawd-ctl and clawd-admin."
        )
        notes.append("Keys for providers: see docs/service.md, Credentials.")
    if not where.config.exists() and not choice.is_image:
        notes.append(f"There is no config yet: the defaults are in force ({where.config}).")
    return notes


def _config_note(where: Layout) -> str:
    inside = where.config.is_relative_to(where.home)
    return "" if inside else f" and {where.config.parent}"
