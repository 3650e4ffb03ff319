"""What `clawctl service` does, a step at a time: told, then done, or only told."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from clawctl.render import note
from clawctl.systemctl import Manager
from clawctl.units import UnitFile, is_ours
from clawd.errors import ClawError, ForbiddenError


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
