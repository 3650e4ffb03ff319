"""`clawctl stop` and `clawctl restart`: end the daemon, with systemd or without, and start it."""

import contextlib
import os
from typing import Literal

import click
import msgspec

from clawctl.app import App, Exit, json_command
from clawctl.daemon_stop import HAND_OVER_S, How, Running, end, environment_of, running
from clawctl.render import emit, note
from clawd.errors import ClawError, ForbiddenError
from clawd.paths import layout

_TIMEOUT = click.option(
    "--timeout",
    "limit_s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=HAND_OVER_S,
    show_default=True,
    help="How long turns may go on before it is killed.",
)


class StopReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a daemon.

    Attributes:
        pid: of the one that ended; 0 when none ran.
        how: `asked` and ended by itself, `terminated` or `killed` by a signal, by its `service`
            manager; empty when none ran.
        started: pid of the one that runs now, after `restart`; 0 for none.
    """

    home: str
    pid: int = 0
    how: Literal["", "asked", "terminated", "killed", "service"] = ""
    started: int = 0


@click.command()
@_TIMEOUT
@json_command(StopReport)
def command(app: App, *, limit_s: float, as_json: bool) -> int:
    """End the daemon: turns may finish, nothing is lost. Works with and without systemd.

    One that does not end in time is killed. Unlike `estop` this stops no tool at once, and the
    next command that needs a daemon starts one again; `status` does not.
    """
    daemon = running(app.running_client, layout())
    if daemon is None:
        return _report(StopReport(home=str(layout().home)), "No daemon runs.", as_json=as_json)
    report = _ended(app, daemon, limit_s)
    with contextlib.suppress(OSError):  # it has ended, also where nothing can be written
        layout({"CLAWD_HOME": str(daemon.home)}).stopped.touch()
    how = {"killed": " It had to be killed.", "terminated": " It had to be ended by a signal."}
    text = f"The daemon (pid {daemon.pid}) has ended.{how.get(report.how, '')}"
    return _report(report, text, as_json=as_json)


@click.command()
@_TIMEOUT
@json_command(StopReport)
def restart(app: App, *, limit_s: float, as_json: bool) -> int:
    """End the daemon and start it anew, with this environment. Works with and without systemd.

    Turns may finish first. One that systemd runs is started by systemd, with its environment.
    """
    daemon = running(app.running_client, layout())
    if daemon is not None and daemon.unit:
        _systemctl(daemon, "restart")
        report = StopReport(home=str(daemon.home), pid=daemon.pid, how="service")
        with app.running_client() as client:
            report = msgspec.structs.replace(report, started=client.welcome.pid)
    else:
        report = _started(app, daemon, limit_s)
    before = f" in place of pid {report.pid}" if report.pid else ""
    return _report(report, f"The daemon runs (pid {report.started}){before}.", as_json=as_json)


def _started(app: App, daemon: Running | None, limit_s: float) -> StopReport:
    from clawctl.daemon import clawd_command, start

    if daemon is None:
        with app.client() as client:
            return StopReport(home=client.welcome.home, started=client.welcome.pid)
    if daemon.home.stat().st_uid != os.geteuid():
        raise ForbiddenError(
            f"the daemon in {daemon.home} belongs to uid {daemon.home.stat().st_uid}, who alone "
            "can start it anew",
            hint="Run it as that user: sudo -u USER clawctl restart",
        )
    report = _ended(app, daemon, limit_s)
    environ = environment_of(daemon, os.environ)
    with start(layout(environ), environ, [*clawd_command(), *daemon.command]) as client:
        return msgspec.structs.replace(report, started=client.welcome.pid)


def _ended(app: App, daemon: Running, limit_s: float) -> StopReport:
    how: How | Literal["service"]
    if daemon.unit:
        _systemctl(daemon, "stop")
        how = "service"
    else:
        how = end(daemon, app.running_client, note, limit_s=limit_s)
    return StopReport(home=str(daemon.home), pid=daemon.pid, how=how)


def _systemctl(daemon: Running, verb: Literal["stop", "restart"]) -> None:
    """Let the manager that runs it do it; a socket that stays would start it again at once."""
    from clawctl.systemctl import SERVICE, SOCKET, Manager

    assert daemon.unit
    if daemon.unit == "system" and os.geteuid() != 0:
        raise ForbiddenError(
            f"the daemon (pid {daemon.pid}) is the machine's service, which belongs to root",
            hint=f"sudo clawctl {verb}",
        )
    manager = Manager(daemon.unit, os.environ)
    units = (SOCKET, SERVICE) if verb == "stop" else (SERVICE,)
    words = manager.command(verb, *units)
    ran = manager.run(words)
    if ran.status != 0:
        said = (ran.stderr.strip() or f"status {ran.status}").splitlines()[0]
        raise ClawError(f"{' '.join(words)} failed: {said}", hint="See: clawctl service status")


def _report(report: StopReport, text: str, *, as_json: bool) -> int:
    emit(report, text, as_json=as_json)
    return Exit.DONE
