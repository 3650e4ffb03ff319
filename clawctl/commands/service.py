"""`clawctl service`: clawd as a service of systemd, for you or for the machine."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from clawctl import service_install
from clawctl.app import App, Exit, json_command, json_option
from clawctl.render import emit, emit_json, note, say
from clawctl.safe_stream import plain
from clawctl.systemctl import SERVICE, SOCKET, Manager, Scope, files_of
from clawd.errors import ClawError, ForbiddenError
from clawd.paths import SYSTEM_HOME, Layout, layout
from clawd.wire.safe_text import ascii_json

RELOAD_PATIENCE_S = 1.5
_RETRY_S = 0.1

C = TypeVar("C", bound=Callable[..., Any])


class UnitText(msgspec.Struct, frozen=True, kw_only=True):
    """A unit as `install` would write it, and where."""

    path: str
    text: str


class Units(msgspec.Struct, frozen=True, kw_only=True):
    """What `install --print` prints."""

    scope: str
    files: list[UnitText]


@click.group()
def command() -> None:
    """Install, start, stop and watch clawd as a service of systemd.

    Without --user and --system it is the machine's for root and your own for everybody else.
    """


def _scope_option(function: C) -> C:
    system = click.option("--system", "scope", flag_value="system", help="The machine's.")
    return click.option("--user", "scope", flag_value="user", help="Your own.")(system(function))


_dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done.")


def _acting(function: C) -> Callable[..., Any]:
    """Add what all take that act on a service: whose it is, --dry-run and --json."""
    with_json = json_option(service_install.ServiceReport)(function)
    return _scope_option(_dry_run(with_json))


_root = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("/"),
    help="Another root, of an image; nothing is started there.",
)


@command.command("install")
@_scope_option
@_root
@click.option("--no-enable", is_flag=True, help="Start it now, but not by itself later.")
@click.option("--print", "prints", is_flag=True, help="Print the units and write nothing.")
@_dry_run
@json_command(service_install.ServiceReport | Units)
def install_(_app: App, /, scope: Scope | None, root: Path, **flags: bool) -> int:
    """Write the units (where no package did), enable and start them. Doing it again is safe.

    A daemon that runs without systemd ends in order, and the service goes on with its home.
    """
    manager, where = _manager(scope), _layout(scope)
    if flags["prints"]:
        return _print_units(manager, where, root, as_json=flags["as_json"])
    if manager.scope == "system" and root == Path("/"):
        _require_root(flags["dry_run"])
    choice = service_install.InstallChoice(
        root=root.absolute(),
        enable=not flags["no_enable"],
        dry_run=flags["dry_run"],
        quiet=flags["as_json"],
    )
    return _report(
        service_install.install(manager, where, os.environ, choice), as_json=flags["as_json"]
    )


@command.command("uninstall")
@_scope_option
@_root
@_dry_run
@json_command(service_install.ServiceReport)
def uninstall_(_app: App, scope: Scope | None, root: Path, *, dry_run: bool, as_json: bool) -> int:
    """Stop the service and remove the units that `install` wrote. Data stays."""
    manager, where = _manager(scope), _layout(scope)
    if manager.scope == "system" and root == Path("/"):
        _require_root(dry_run)
    choice = service_install.InstallChoice(root=root.absolute(), dry_run=dry_run, quiet=as_json)
    return _report(service_install.uninstall(manager, where, os.environ, choice), as_json=as_json)


@command.command()
@_acting
def start(scope: Scope | None, *, dry_run: bool, as_json: bool) -> int:
    """Start the service and its socket."""
    return _act(scope, "start", (SOCKET, SERVICE), dry_run=dry_run, as_json=as_json)


@command.command()
@_acting
def stop(scope: Scope | None, *, dry_run: bool, as_json: bool) -> int:
    """Stop the service, and its socket: else the next client would start it again.

    A daemon that clawctl started without systemd ends too, also where there is no systemd.
    """
    manager, where = _manager(scope), _layout(scope)
    steps = service_install.Steps(manager, dry_run=dry_run, quiet=as_json)
    ended = [service_install.end_beside(steps, each) for each in _layouts(scope)]
    if not any(ended) or _is_installed(manager, where):
        units, how = (SOCKET, SERVICE), {"dry_run": dry_run, "as_json": as_json}
        return _act(scope, "stop", units, steps=steps, **how)
    return _report(steps.report("stop"), as_json=as_json)


@command.command()
@_scope_option
@click.option("--socket", "with_socket", is_flag=True, help="The socket too, where it is gone.")
@_dry_run
@json_option(service_install.ServiceReport)
def restart(scope: Scope | None, *, with_socket: bool, dry_run: bool, as_json: bool) -> int:
    """Start the service anew. Clients that connect meanwhile wait at the socket.

    A daemon that clawctl started without systemd ends and is started by clawctl again, also where
    there is no systemd.
    """
    manager = _manager(scope)
    beside = [each for each in _layouts(scope) if service_install.runs_beside(each)]
    if beside and not _is_installed(manager, _layout(scope)):
        steps = service_install.Steps(manager, dry_run=dry_run, quiet=as_json)
        for each in beside:
            service_install.restart_beside(steps, each, os.environ)
        return _report(steps.report("restart"), as_json=as_json)
    units = (SOCKET, SERVICE) if with_socket else (SERVICE,)
    return _act(scope, "restart", units, dry_run=dry_run, as_json=as_json)


@command.command()
@_acting
def enable(scope: Scope | None, *, dry_run: bool, as_json: bool) -> int:
    """Let it start by itself: with the machine, or when you log in."""
    return _act(scope, "enable", (SOCKET, SERVICE), dry_run=dry_run, as_json=as_json)


@command.command()
@_acting
def disable(scope: Scope | None, *, dry_run: bool, as_json: bool) -> int:
    """Do not let it start by itself any more; one that runs goes on."""
    return _act(scope, "disable", (SOCKET, SERVICE), dry_run=dry_run, as_json=as_json)


@command.command()
@_acting
def reload(scope: Scope | None, *, dry_run: bool, as_json: bool) -> int:
    """Let it read its config again; one with errors is refused, and the old one stays."""
    code = _act(scope, "reload", (SERVICE,), dry_run=dry_run, as_json=as_json)
    if dry_run:
        return code
    manager = _manager(scope)
    deadline = time.monotonic() + RELOAD_PATIENCE_S
    while time.monotonic() < deadline:
        status = manager.show(SERVICE, ("StatusText",)).get("StatusText", "")
        _, refused, why = status.partition("RELOAD REFUSED, ")
        if refused:
            raise ClawError(why, code="config", hint="Check it with: clawctl config validate")
        time.sleep(_RETRY_S)
    return code


@command.command()
@_scope_option
@json_command(service_install.ServiceState)
def status(_app: App, scope: Scope | None, *, as_json: bool) -> int:
    """Say how the service stands; not 0 when no client would be served."""
    manager = _manager(scope)
    manager.require()
    state = service_install.service_state(manager, _layout(scope))
    emit(state, service_install.show_service, as_json=as_json)
    return Exit.DONE if service_install.is_up(state) else Exit.FAILED


@command.command()
@_scope_option
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come.")
@click.option("-n", "--lines", type=click.IntRange(0), default=100, show_default=True)
@click.option("--since", metavar="TIME", help='As journalctl takes it: "1 hour ago", today.')
@click.option("--until", metavar="TIME", help="The end, in the same words.")
@click.option("-p", "--priority", metavar="LEVEL", help="At least as bad: warning, err.")
@click.option("--tool", metavar="NAME", help="What one tool did.")
@click.option("--event", metavar="NAME", help="One event, as tool_denied.")
@click.option("--conversation", metavar="ID", help="What happened in one conversation.")
@json_command(list[dict[str, Any]])
def logs(_app: App, /, scope: Scope | None, **wanted: Any) -> int:
    """Show the service's log from the journal.

    With --follow, --json prints one entry a line.
    """
    arguments = ["--unit", SERVICE, "--no-pager", f"--lines={wanted['lines']}"]
    options = [name for name in ("since", "until", "priority") if wanted[name]]
    arguments += [f"--{name}={wanted[name]}" for name in options]
    if wanted["follow"]:
        arguments.append("--follow")
    # Terms of one field each; journalctl takes them together as `and`.
    terms = [name for name in ("tool", "event", "conversation") if wanted[name]]
    arguments += [f"CLAWD_{name.upper()}={wanted[name]}" for name in terms]
    if wanted["as_json"]:
        return _print_entries(_manager(scope), arguments, follows=wanted["follow"])
    ended = _manager(scope).follow_journal(arguments)
    if ended in {Exit.DONE, Exit.INTERRUPTED}:
        return ended
    return Exit.FAILED


def _print_entries(manager: Manager, arguments: list[str], *, follows: bool) -> int:
    lines = manager.journal_lines(["--output=json", *arguments])
    entries = (msgspec.json.decode(line, type=dict[str, Any]) for line in lines if line)
    if not follows:
        emit_json(list(entries))
    for entry in entries:  # none are left where it does not follow
        print(ascii_json(msgspec.json.encode(entry).decode()), file=plain(sys.stdout), flush=True)
    return Exit.DONE


def _act(
    scope: Scope | None,
    verb: str,
    units: tuple[str, ...],
    *,
    dry_run: bool,
    as_json: bool,
    steps: service_install.Steps | None = None,
) -> int:
    manager, where = _manager(scope), _layout(scope)
    manager.require()
    if manager.scope == "system":
        _require_root(dry_run)
    if service_install.service_state(manager, where).state == "not installed":
        raise ClawError(
            "the service is not installed",
            code="not_found",
            hint=f"Install it with: clawctl service install --{manager.scope}",
        )
    steps = steps or service_install.Steps(manager, dry_run=dry_run, quiet=as_json)
    steps.command(f"{verb} {' and '.join(units)}", manager.command(verb, *units))
    return _report(steps.report(verb), as_json=as_json)


def _is_installed(manager: Manager, where: Layout) -> bool:
    try:
        manager.require()
    except ClawError:
        return False
    return service_install.service_state(manager, where).state != "not installed"


def _report(report: service_install.ServiceReport, *, as_json: bool) -> int:
    if as_json:
        emit_json(report)
    else:
        for line in report.notes:
            say(line)
    return Exit.DONE


def _print_units(manager: Manager, where: Layout, root: Path, *, as_json: bool) -> int:
    files = files_of(manager.scope, root.absolute(), os.environ, where)
    if as_json:
        shown = [UnitText(path=str(each.path), text=each.text) for each in files]
        emit_json(Units(scope=manager.scope, files=shown))
    for file in () if as_json else files:
        note(f"--- {file.path}")
        say(file.text)
    return Exit.DONE


def _manager(scope: Scope | None) -> Manager:
    return Manager(_scope(scope), os.environ)


def _scope(scope: Scope | None) -> Scope:
    return scope or ("system" if os.geteuid() == 0 else "user")


def _layout(scope: Scope | None) -> Layout:
    if _scope(scope) == "system":
        return layout({**os.environ, "CLAWD_HOME": str(SYSTEM_HOME), "CLAWD_SOCKET": ""})
    return layout(os.environ)


def _layouts(scope: Scope | None) -> list[Layout]:
    """Return where daemons are looked for; for a root who named no scope their own home, too."""
    found = [_layout(scope)]
    if scope is None and layout(os.environ).home != found[0].home:
        found.append(layout(os.environ))
    return found


def _require_root(is_dry: bool) -> None:  # noqa: FBT001 - one question, asked in place
    if os.geteuid() != 0 and not is_dry:
        raise ForbiddenError(
            "the machine's service belongs to root",
            hint="Run it with sudo, or take your own: clawctl service … --user",
        )
