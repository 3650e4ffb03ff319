"""Installs and uninstalls the service: units, groups, the start, and the hand-over."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from clawctl.daemon import clawd_command, start
from clawctl.daemon_finder import reach
from clawctl.daemon_stop import detached_pid, end, environment_of, found_at
from clawctl.render import note
from clawctl.systemctl import Manager
from clawctl.unit_files import SERVICE, SOCKET, UnitFile, files_of, folder_of, is_ours, packaged
from clawd.errors import ClawError, ForbiddenError
from clawd.paths import Layout


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


class Steps:
    """Does steps and remembers them.

    Args:
        manager: runs commands.
        dry_run: tell only.
        quiet: say nothing on the way.
    """

    def __init__(self, manager: Manager, *, dry_run: bool, quiet: bool) -> None:
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

    def write(self, file: UnitFile) -> bool:
        """Write a file if it is not as it is to be; return whether it was written.

        Raises:
            ClawError: there is a file of somebody else, or it cannot be written.
        """
        path = file.path
        if path.exists() and not is_ours(path):
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
        if not is_ours(path):
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

    def _note(self, step: Step) -> None:
        self.done.append(step)
        if not self._quiet:
            sign = {"done": "✓", "unchanged": "=", "planned": "·", "skipped": "!"}[step.result]
            command = f"  [{step.command}]" if step.command else ""
            note(f"{sign} {step.what}{command}")


def _write(path: Path, text: str) -> None:
    """Put the file in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("x", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _not_written(path: Path, error: OSError) -> ClawError:
    return ForbiddenError(
        f"{path} cannot be changed: {error.strerror}",
        hint="The machine's service is installed by root: sudo clawctl service … --system. "
        "Your own: clawctl service … --user",
    )


class ServiceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a service, and what a person should know."""

    scope: str
    action: str
    dry_run: bool = False
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()


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
    manager: Manager, where: Layout, environ: Mapping[str, str], choice: InstallChoice
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
    manager: Manager, where: Layout, environ: Mapping[str, str], choice: InstallChoice
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


def _start(steps: Steps, manager: Manager, *, enable: bool) -> None:
    if enable:
        when = "with the machine" if manager.scope == "system" else "when you log in"
        steps.command(f"start it {when}", manager.command("enable", SOCKET, SERVICE))
    steps.command("open its socket", manager.command("start", SOCKET))
    steps.command("start it, or the new version of it", manager.command("restart", SERVICE))


def _advice(manager: Manager, where: Layout, choice: InstallChoice) -> list[str]:
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
