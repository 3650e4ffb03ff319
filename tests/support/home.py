"""A throwaway clawd: a home of its own, the real daemon, the real clawctl."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.fork_server import INTERPRETERS, Forked, fork_program, may_fork

DEADLINE_S = 60.0
_PIPED_CHARACTERS = 16_000


class Home:
    """One home and what runs in it; `close` leaves no process behind."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home"
        self.workspace = folder / "project"
        self.workspace.mkdir()
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CLAWD_HOME": str(self.path),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            # What is not asked anything computes nothing: many daemons run side by side here.
            "CLAWD_ENGINE__PRELOAD": "false",
            **INTERPRETERS,
        }
        self.daemon: subprocess.Popen[str] | Forked | None = None

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def receipts(self) -> Path:
        return self.path / "tool_receipts.log"

    def configure(
        self,
        *replies: dict[str, Any],
        top: str = "",
        tables: str = "",
        provider: str = "mock",
    ) -> None:
        """Write a config on this workspace, and a script of replies for the mock provider."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        script = self.path / "script.json"
        script.write_text(json.dumps({"replies": list(replies)}))
        mock = f'kind = "mock"\nscript = "{script}"\n' if replies else 'kind = "mock"\n'
        self.config.write_text(
            f'workspace_dir = "{self.workspace}"\ndefault_provider = "{provider}"\n{top}\n'
            f"[providers.models.mock]\n{mock}\n"
            '[providers.models.local]\nkind = "local"\nmodel = "embedded"\n'
            f"{tables}\n"
        )
        self.config.chmod(0o600)

    def ctl(
        self,
        *arguments: str,
        stdin: str | None = None,
        timeout_s: float = 60.0,
        before: Sequence[str] = (),
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run clawctl to its end, away from any terminal; `before` are words that start it."""
        folder = cwd or self.workspace
        return run_clawctl(arguments, stdin, self.environ, folder, timeout_s, before=before)

    def json(self, *arguments: str) -> Any:
        """Run clawctl with --json and return what it printed."""
        done = self.ctl(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def spawn(self, *how: str) -> None:
        """Start the daemon, by other arguments of Python if given, and wait for nothing."""
        with (self.path / "daemon.log").open("a") as log:
            if not how and may_fork(self.environ):
                output = log.fileno()
                with Path(os.devnull).open("rb") as nothing:
                    standard = (nothing.fileno(), output, output)
                    self.daemon = fork_program("clawd", (), self.environ, self.workspace, standard)
                return
            self.daemon = subprocess.Popen(
                [sys.executable, *(how or ("-m", "clawd"))],
                env=self.environ,
                cwd=self.workspace,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def start(self, *how: str) -> None:
        """Start the daemon, by other arguments of Python if given; wait until it answers."""
        self.spawn(*how)
        assert self.daemon is not None
        deadline = time.monotonic() + DEADLINE_S
        while not self.is_listening():
            assert self.daemon.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)

    def is_listening(self) -> bool:
        """Return whether the control socket takes a client: the last step of a start."""
        with contextlib.ExitStack() as kept:
            try:
                folder = os.open(self.path / "run", os.O_PATH | os.O_DIRECTORY)
                kept.callback(os.close, folder)
                client = kept.enter_context(socket.socket(socket.AF_UNIX))
                client.connect(f"/proc/self/fd/{folder}/clawd.sock")  # of any length
            except OSError:
                return False
        return True

    def log(self) -> str:
        """Return what the daemon logged, whoever started it."""
        texts = [self.path / "daemon.log", self.path / "clawd.log"]
        return "".join(path.read_text() for path in texts if path.exists())

    def pid(self) -> int | None:
        """Return the pid of the daemon of this home, if one runs."""
        try:
            pid = int((self.path / "clawd.lock").read_text())
            os.kill(pid, 0)
        except (OSError, ValueError):
            return None
        return pid

    def kill(self) -> None:
        """Kill the daemon as a crash would, and wait until it is gone."""
        pid = self.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self._reap(pid)

    def close(self) -> None:
        """End the daemon in order, or by force where it does not end."""
        pid = self.pid()
        if pid is None:
            self._reap(None)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        self._reap(pid)

    def receipt_lines(self) -> list[dict[str, Any]]:
        """Return the receipts of the chain, oldest first; checkpoints are left out."""
        if not self.receipts.exists():
            return []
        lines = map(json.loads, self.receipts.read_text().splitlines())
        return [line for line in lines if "type" not in line]

    def _reap(self, pid: int | None) -> None:
        if self.daemon is not None:
            try:
                self.daemon.wait(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
            self.daemon = None
        deadline = time.monotonic() + DEADLINE_S
        while pid is not None and is_alive(pid):
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def run_clawctl(
    arguments: Sequence[str],
    stdin: str | None,
    environ: Mapping[str, str],
    folder: Path,
    timeout_s: float = DEADLINE_S,
    *,
    before: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run clawctl in a session of its own, so that no terminal can be asked.

    A short input is in the pipe before anybody reads it: whoever may get a text waits but a moment
    for its first letter.

    Raises:
        subprocess.TimeoutExpired: it took longer; it is killed.
    """
    words = [*before, sys.executable, "-m", "clawctl", *arguments]
    if before or not may_fork(environ) or len(stdin or "") > _PIPED_CHARACTERS:
        return subprocess.run(
            words,
            env=environ,
            cwd=folder,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            start_new_session=True,
            check=False,
        )
    with contextlib.ExitStack() as kept:
        out, err = (kept.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        if stdin is None:
            source = kept.enter_context(Path(os.devnull).open("rb")).fileno()
        else:
            source, into = os.pipe()
            kept.callback(os.close, source)
            os.write(into, stdin.encode())  # what a pipe takes without a reader
            os.close(into)
        standard = (source, out.fileno(), err.fileno())
        process = fork_program("clawctl", arguments, environ, folder, standard)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(words, code, *texts)


def is_alive(pid: int) -> bool:
    """Return whether anything of a process runs; the first of its threads may end before the last.

    Until the last one has, its lock is taken and its socket is open. One that ended does not run,
    however long it waits for somebody to collect its status.
    """
    about = Path(f"/proc/{pid}")
    try:
        state = (about / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return state not in {"Z", "X"} or len(list((about / "task").iterdir())) > 1
    except OSError:
        return False
