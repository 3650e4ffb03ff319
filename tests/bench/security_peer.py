"""What the security rows are held against: bubblewrap started by hand, with no clawd around it."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from clawd.security.sandbox.child import joined, memory_file
from clawd.security.sandbox.plan import ChildCommand, DescriptorSlot, SandboxPlan, bubblewrap_plan
from clawd.security.sandbox.run import Sandbox
from tests.bench.streams import BenchError

# Ours alone: they are the handshake by which a stop reaches everything that runs.
_HANDSHAKE = ("--json-status-fd", "--block-fd")


class Bare:
    """Commands in bubblewrap with the options that clawd gives it, without its limits on resources.

    With `is_minimal` the options are the fewest that isolate at all.
    """

    def __init__(self, sandbox: Sandbox, workspace: Path, *, is_minimal: bool = False) -> None:
        if sandbox._host is None or not sandbox._host.bwrap:
            raise BenchError(f"no sandbox here: {sandbox.status}")
        self._host = sandbox._host
        self._workspace = workspace
        self._is_minimal = is_minimal

    @contextlib.contextmanager
    def prepared(self, *command: str) -> Iterator["Prepared"]:
        """Make everything ready that a start needs."""
        plan = bubblewrap_plan(
            ChildCommand(argv=command, workspace=self._workspace, timeout_s=600), self._host
        )
        if self._is_minimal:
            yield Prepared([plan.bwrap, *_minimal(self._workspace), *command], plan, [])
            return
        files = {name: memory_file(data) for name, data in plan.files.items()}
        try:
            files["options"] = memory_file(joined(_without_handshake(plan), files))
            argv = [plan.bwrap, "--args", str(files["options"]), "--", *command]
            yield Prepared(argv, plan, list(files.values()))
        finally:
            for descriptor in files.values():
                os.close(descriptor)


class Prepared:
    """A command that can be started once."""

    def __init__(self, argv: list[str], plan: SandboxPlan, descriptors: list[int]) -> None:
        self._argv = argv
        self._plan = plan
        self._descriptors = descriptors

    def run(self) -> None:
        """Run it to its end."""
        with self.start() as process:
            output, _ = process.communicate()
            if process.returncode:
                raise BenchError(f"bare bubblewrap ended with {process.returncode}: {output!r}")

    def start(self) -> subprocess.Popen[bytes]:
        """Start it."""
        return subprocess.Popen(
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._plan.env,
            pass_fds=self._descriptors,
            start_new_session=True,
        )


def _without_handshake(plan: SandboxPlan) -> list[str | DescriptorSlot]:
    words: list[str | DescriptorSlot] = []
    rest = iter(plan.options)
    for word in rest:
        if word in _HANDSHAKE:
            next(rest)
        else:
            words.append(word)
    return words


def _minimal(workspace: Path) -> list[str]:
    words = ["--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/lib", "/lib64"):
        path = Path(name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            words += ["--ro-bind", name, name]
    return [*words, "--proc", "/proc", "--dev", "/dev", "--bind", str(workspace), str(workspace)]
