"""Installs and uninstalls the service: units, groups, the start, and the hand-over."""

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from clawctl.client import is_nobody
from clawctl.reach import reach
from clawctl.steps import Step, Steps
from clawctl.systemctl import Manager
from clawctl.unit_files import SERVICE, SOCKET, files_of, folder_of, packaged
from clawd.errors import ClawError
from clawd.paths import Layout
from clawd.wire.methods import Shutdown

HAND_OVER_S = 60.0
_RETRY_S = 0.05


class ServiceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a service, and what a person should know."""

    scope: str
    action: str
    dry_run: bool = False
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()


class Choice(msgspec.Struct, frozen=True, kw_only=True):
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
    manager: Manager, where: Layout, environ: Mapping[str, str], choice: Choice
) -> ServiceReport:
    """Write the units where no package brought them, and start the service.

    Raises:
        ClawError: a step failed; those before it stand, and doing it again goes on.
    """
    if not choice.is_image:
        manager.require()
    steps = Steps(manager, dry_run=choice.dry_run, quiet=choice.quiet)
    from_package = packaged(manager.scope, choice.root)
    notes = []
    if from_package is not None:
        notes.append(f"{from_package} comes from a package and is used; no second one is written.")
    else:
        for file in files_of(manager.scope, choice.root, environ, where):
            steps.write(file)
        if manager.scope == "system":
            _make_groups(steps, choice)
    if not choice.is_image:
        steps.command("let systemd read the units", manager.command("daemon-reload"))
        end_beside(steps, where)
        _start(steps, manager, enable=choice.enable)
    elif choice.enable:
        root = f"--root={choice.root}"
        steps.command("start it with the machine", ["systemctl", root, "enable", SOCKET, SERVICE])
    notes += _advice(manager, where, choice)
    return ServiceReport(
        scope=manager.scope,
        action="install",
        dry_run=choice.dry_run,
        steps=tuple(steps.done),
        notes=tuple(notes),
    )


def uninstall(
    manager: Manager, where: Layout, environ: Mapping[str, str], choice: Choice
) -> ServiceReport:
    """Stop the service and remove the units that `install` wrote. Data stays.

    Raises:
        ClawError: a step failed, or the units are a package's.
    """
    from_package = packaged(manager.scope, choice.root)
    folder = folder_of(manager.scope, choice.root, environ)
    if from_package is not None and not (folder / SERVICE).exists():
        raise ClawError(
            f"{from_package} comes from a package, which alone removes it",
            hint="To stop and not start it again: clawctl service disable. To remove it: apt "
            "remove clawd",
        )
    steps = Steps(manager, dry_run=choice.dry_run, quiet=choice.quiet)
    if not choice.is_image:
        manager.require()
        if (folder / SERVICE).exists():
            command = manager.command("disable", "--now", SOCKET, SERVICE)
            steps.command("stop it, and start it no more", command, may_fail=True)
    paths = [folder / SERVICE, folder / SOCKET]
    if manager.scope == "system":
        paths += [choice.root / f"etc/{each}.d/clawd.conf" for each in ("sysusers", "tmpfiles")]
    removed = [steps.remove(path) for path in paths]
    if not choice.is_image and any(removed):
        steps.command("let systemd forget it", manager.command("daemon-reload"))
        failed = manager.command("reset-failed", SERVICE)
        steps.command("forget that it failed", failed, may_fail=True)
    notes = [] if any(removed) else ["Nothing was installed."]
    notes.append(f"Your data stays: {where.home}" + _config_note(where))
    if manager.scope == "system":
        notes.append("The groups clawd-ctl and clawd-admin stay, with their members.")
    return ServiceReport(
        scope=manager.scope,
        action="uninstall",
        dry_run=choice.dry_run,
        steps=tuple(steps.done),
        notes=tuple(notes),
    )


def detached_pid(where: Layout) -> int | None:
    """Return the pid of whoever holds the home, under systemd or not; None for nobody."""
    try:
        descriptor = os.open(where.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.read(descriptor, 32).decode(errors="replace").strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(descriptor)
    return None


def _make_groups(steps: Steps, choice: Choice) -> None:
    root = (f"--root={choice.root}",) if choice.is_image else ()
    groups = ["systemd-sysusers", *root, str(choice.root / "etc/sysusers.d/clawd.conf")]
    steps.command("make the groups clawd-ctl and clawd-admin", groups)
    folders = ["systemd-tmpfiles", "--create", *root]
    folders.append(str(choice.root / "etc/tmpfiles.d/clawd.conf"))
    steps.command("make /etc/clawd", folders)


def end_beside(steps: Steps, where: Layout) -> bool:
    """End a daemon that runs in the home without systemd; tell whether there was one.

    Raises:
        ClawError: it refuses, or does not end in time.
    """
    pid = detached_pid(where)
    if not pid or _is_service(pid):
        return False

    def end() -> None:
        try:
            with reach(str(where.socket), may_start=False) as client:
                client.call(Shutdown())
        except ClawError as error:
            if not is_nobody(error):
                raise
        deadline = time.monotonic() + HAND_OVER_S
        while detached_pid(where) is not None:
            if time.monotonic() > deadline:
                raise ClawError(
                    f"the daemon that runs already (pid {pid}) does not end",
                    hint=f"End it with: kill {pid}; then run this again.",
                )
            time.sleep(_RETRY_S)

    steps.act(f"end the daemon that runs without systemd (pid {pid}); turns may finish", end)
    return True


def _is_service(pid: int) -> bool:
    """Whether the process runs in the unit already, as the kernel says."""
    try:
        cgroup = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except OSError:
        return False
    return f"/{SERVICE}" in cgroup


def _start(steps: Steps, manager: Manager, *, enable: bool) -> None:
    if enable:
        when = "with the machine" if manager.scope == "system" else "when you log in"
        steps.command(f"start it {when}", manager.command("enable", SOCKET, SERVICE))
    steps.command("open its socket", manager.command("start", SOCKET))
    steps.command("start it, or the new version of it", manager.command("restart", SERVICE))


def _advice(manager: Manager, where: Layout, choice: Choice) -> list[str]:
    notes = []
    if manager.scope == "user" and not choice.dry_run and manager.lingers() is False:
        notes.append(
            "It ends when you log out, and starts when you log in. To keep it running: loginctl "
            "enable-linger"
        )
    if manager.scope == "system":
        notes.append(
            "Who may use it: sudo usermod -aG clawd-ctl USER (then log in again). Who may also see "
            "and stop what others do: both clawd-ctl and clawd-admin."
        )
        notes.append("Keys for providers: see docs/service.md, Credentials.")
    if not where.config.exists() and not choice.is_image:
        notes.append(f"There is no config yet: the defaults are in force ({where.config}).")
    return notes


def _config_note(where: Layout) -> str:
    inside = where.config.is_relative_to(where.home)
    return "" if inside else f" and {where.config.parent}"
