"""How the service stands, as systemd tells it: read with `systemctl show`, put in words."""

import sys
import time
from pathlib import Path

import msgspec

from clawctl.daemon_stop import detached_pid
from clawctl.render import Palette, duration, show_fields, size
from clawctl.systemctl import Manager
from clawctl.unit_files import SERVICE, SOCKET
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


def service_state(manager: Manager, where: Layout) -> ServiceState:
    """Ask systemd how the service stands."""
    service = manager.show(SERVICE, _SERVICE_PROPERTIES)
    socket = manager.show(SOCKET, _SOCKET_PROPERTIES)
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
    """Whether a client would be served."""
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
    told = "" if age is None else f", last sign of life {age:.0f} s ago"
    return f"every {state.watchdog_s:g} s{told}"


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
