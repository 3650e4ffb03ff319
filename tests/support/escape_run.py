"""Runs the escape attempts as an ordinary user, in the sandbox and without, and prints how it went.

    python -m tests.support.escape_run FOLDER        (a JSON object on standard output)
    python -m tests.support.escape_run FOLDER landlock         (the other level, no control)

Started as root it becomes another user first, so that root is never what an attempt had. Each
attempt has a place of its own: a workspace, a canary beside it and, in the home, a stand-in daemon
of the same user that listens, holds secrets and can be killed.
"""

import asyncio
import contextlib
import json
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from clawd.errors import SandboxUnavailableError
from clawd.security.sandbox.egress import Denial, Egress, WayOut
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.process import Level
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from tests.support.escape_attempts import ESCAPES, PASSWORD, SECRET, SUCCESS, Attempt
from tests.support.escape_deletions import SPELLINGS
from tests.support.escape_planted import PLANTED
from tests.support.escape_resources import RESOURCES

ORDINARY_USER = 5001
AT_ONCE = 4
# What Landlock does not stop: whether a file outside is there, and its size, can be asked.
NOT_STOPPED = {"read-shadow"}
# All of them fail by the same rule; at the second level some will do.
_FEW_DELETIONS = 10
_LIMIT_S = 15.0
_OTHERS_LIMIT_S = 100.0
_PYTHON = "/usr/bin/python3"
_SECRET_NAME = "STANDIN_API_KEY"

# Plain enough for any python under /usr; ends when its standard input does.
_STAND_IN = """
import os, select, socket, sys
home, abstract, password = sys.argv[1:]
password = password[::-1]
os.chdir(home)
key = open("receipts.key")
def listening(family, kind, address):
    s = socket.socket(family, kind)
    s.bind(address)
    if kind == socket.SOCK_STREAM: s.listen()
    return s
U, S, D = socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_DGRAM
path = listening(U, S, "control.sock")
tcp = listening(socket.AF_INET, S, ("127.0.0.1", 0))
udp = listening(socket.AF_INET, D, ("127.0.0.1", 0))
streams = [path, tcp, listening(U, S, "\\0" + abstract)]
waiting = [sys.stdin, *streams, udp, listening(U, D, "\\0" + abstract + ".dgram")]
print(tcp.getsockname()[1], udp.getsockname()[1], flush=True)
while True:
    for s in select.select(waiting, [], [])[0]:
        if s is sys.stdin:
            if not s.readline(): sys.exit()
            print("seen", flush=True); continue
        if s in streams: waiting.append(s.accept()[0]); continue
        data = s.recv(100)
        if data: open("inbox", "ab").write(data)
        elif s.type == S: waiting.remove(s)
"""


class Verdict(NamedTuple):
    """What came of one run: the ways in which it got out, and the end of what it printed."""

    found: list[str]
    output: str


class _Place:
    """The surroundings of one attempt, on the host."""

    def __init__(self, folder: Path, attempt: Attempt) -> None:
        self.folder = folder
        self.workspace = folder / "work"
        self.canary = folder / "canary"
        self.home = (self.workspace / "home") if attempt.inside else (folder / "home")
        for made in (self.workspace, self.canary, self.home):
            made.mkdir(parents=True)
        (self.canary / "one").write_text("alive")
        (self.canary / "two").write_text("alive too")
        (self.canary / ".hidden").write_text("alive as well")
        (self.home / "receipts.key").write_text(SECRET)
        (self.home / "ESTOP").write_text("stopped")
        self.tool = folder / "person" / ".tool"
        _make_toolchain(self.tool)
        self.abstract = f"stand-in-{secrets.token_hex(8)}"

    def variables(self, pid: int, ports: tuple[str, str]) -> dict[str, str]:
        return {
            "KEY": str(self.home / "receipts.key"),
            "CANARY": str(self.canary),
            "TOOL": str(self.tool),
            "DAEMON": str(self.home),
            "SOCK": str(self.home / "control.sock"),
            "ABSTRACT": self.abstract,
            "TCP": ports[0],
            "UDP": ports[1],
            "DPID": str(pid),
        }

    def state(self) -> list[str]:
        """Everything outside the workspace but what is in the home's inbox: names, modes, bytes."""
        return sorted(_described(self.folder, self.workspace)) + sorted(_described(self.home, None))


def _make_toolchain(tool: Path) -> None:
    """Make a toolchain with credentials in it, in a home with more of them."""
    for name in (".npmrc", "etc/credentials.toml", ".aws/config", "share/.netrc", "../.ssh/id"):
        (tool / name).parent.mkdir(parents=True, exist_ok=True)
        (tool / name).write_text(SECRET)
    (tool.parent / ".bashrc").write_text(f"export PASSWORD={SECRET}")
    (tool / "share" / "linked").symlink_to("../.npmrc")
    (tool / "share" / ".pypirc").symlink_to("../../.ssh/id")
    (tool / "bin").mkdir()
    (tool / "bin" / "hello").write_text("#!/bin/sh\necho hello\n")
    (tool / "bin" / "hello").chmod(0o755)


def _described(folder: Path, left_out: Path | None) -> Iterator[str]:
    for path in folder.iterdir() if os.access(folder, os.R_OK | os.X_OK) else ():
        if path == left_out:
            continue
        about = path.lstat()
        held = ""
        if stat.S_ISREG(about.st_mode):
            held = path.read_text() if os.access(path, os.R_OK) else "?"
        kept_time = about.st_mtime_ns if stat.S_ISREG(about.st_mode) else 0
        yield f"{path} {about.st_mode:o} {about.st_ino} {kept_time} {held}"
        if stat.S_ISDIR(about.st_mode) and not path.is_symlink():
            yield from _described(path, left_out)


@contextlib.contextmanager
def _stand_in(place: _Place) -> Iterator[tuple[subprocess.Popen[str], tuple[str, str]]]:
    argv = [_PYTHON, "-I", "-c", _STAND_IN, str(place.home), place.abstract]
    with subprocess.Popen(
        [*argv, PASSWORD[::-1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        tcp, udp = process.stdout.readline().split()
        try:
            yield process, (tcp, udp)
        finally:
            process.kill()


def _let_it_read(process: subprocess.Popen[str]) -> None:
    """Have the stand-in write down what is in its sockets: accepted, received, and one to spare."""
    assert process.stdin and process.stdout
    for _ in range(3):
        with contextlib.suppress(BrokenPipeError):
            os.write(process.stdin.fileno(), b"look\n")
        if not process.stdout.readline():
            process.wait(_OTHERS_LIMIT_S)


async def _probed(level: Level, base: Path) -> Sandbox:
    """Return a sandbox of a level, which each attempt adopts its own place into."""
    home = base / "no-home"
    home.mkdir(exist_ok=True)
    sandbox = Sandbox(SandboxSettings(home=home, levels=(level,), python=_PYTHON))
    status = await sandbox.probe()
    assert status.level == level, status
    assert level != "bwrap" or not status.reason, status
    return sandbox


class _Guard:
    """A sandbox, and a way out of it that leads nowhere: every host is refused."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._egress = Egress(python=_PYTHON)

    def way_out(self) -> WayOut:
        async def decide(host: str, port: int) -> Denial | None:
            return Denial(reason=f"{host}:{port} is not granted")

        return self._egress.way_out(decide)

    async def close(self) -> None:
        await self._egress.close()


async def _judged(attempt: Attempt, folder: Path, guard: _Guard | None) -> Verdict:
    """Run one; None is without a sandbox."""
    way_out = guard.way_out() if guard is not None else None
    place = _Place(folder, attempt)
    with _stand_in(place) as (process, ports), (place.home / "receipts.key").open() as leaked:
        os.set_inheritable(leaked.fileno(), True)
        env = place.variables(process.pid, ports)
        if attempt.before:
            await asyncio.to_thread(_as_owner, attempt.before, place, env)
        before = place.state()
        if guard is not None:
            # A sandbox keeps the home that it was made with; no command sees this one either.
            guard.sandbox.adopt(
                SandboxSettings(
                    forbidden_paths=(place.home,),
                    limits=attempt.limits,
                    python=_PYTHON,
                    toolchains=(place.tool,),
                    person=place.tool.parent,
                    caches=folder.parent.parent / "caches",
                )
            )
            command = ChildCommand(
                argv=attempt.argv,
                workspace=place.workspace,
                env=env,
                timeout_s=_LIMIT_S,
                toolchains=True,
            )
            try:
                output = (await guard.sandbox.run(command, way_out=way_out)).output
            except SandboxUnavailableError as error:  # refused, not run
                output = error.message
        else:
            output = await asyncio.to_thread(_run_bare, attempt, place, env, leaked.fileno())
        if attempt.wait_s:
            # What it did while the command had not ended yet is no survival.
            (place.workspace / "survived").unlink(missing_ok=True)
            await asyncio.sleep(attempt.wait_s)
        if attempt.owner:
            await asyncio.to_thread(_as_owner, attempt.owner, place, env)
        _let_it_read(process)
        signs = {
            "it printed the secret": SECRET in output or PASSWORD in output,
            "it says so": SUCCESS in output,
            "outside was changed": place.state() != before,
            "the stand-in was told": (place.home / "inbox").exists(),
            "the stand-in is dead": process.poll() is not None,
            "it reached a host": way_out is not None and bool(way_out.contacts),
            "it lives on": (place.workspace / "survived").exists(),
        }
        return Verdict([sign for sign, seen in signs.items() if seen], output[-300:])


def _run_bare(attempt: Attempt, place: _Place, env: dict[str, str], leaked: int) -> str:
    """The control: the same words in the same place with nothing around them."""
    ran = subprocess.run(
        attempt.argv,
        cwd=place.workspace,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_OTHERS_LIMIT_S,
        pass_fds=(leaked,),
        start_new_session=True,
    )
    return ran.stdout.decode(errors="replace")


def _as_owner(script: str, place: _Place, env: dict[str, str]) -> None:
    """Do what the owner does in the workspace, where programs run what they find."""
    subprocess.run(
        ["bash", "-c", script],
        cwd=place.workspace,
        env={**os.environ, **env, "HOME": str(place.folder), "GIT_CONFIG_NOSYSTEM": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_OTHERS_LIMIT_S,
    )


def attempts(*, landlock: bool = False, few: bool = False) -> dict[str, Attempt]:
    """All of them by name, or those for Landlock: without what namespaces and binds are for.

    `few` are every second one, and what is known to succeed.
    """
    kinds = (ESCAPES,) if landlock else (ESCAPES, PLANTED, RESOURCES)
    every = {attempt.name: attempt for kind in kinds for attempt in kind}
    for number, spelling in enumerate(SPELLINGS[:_FEW_DELETIONS] if landlock else SPELLINGS, 1):
        name = f"deletion-{number}"
        every[name] = Attempt(name, ("bash", "-c", spelling))
    names = [name for at, name in enumerate(every) if not few or at % 2 == 0 or name in NOT_STOPPED]
    return {name: every[name] for name in names}


async def run_all(
    base: Path, level: Level = "bwrap", *, few: bool = False
) -> dict[str, dict[str, Verdict]]:
    """Run every attempt in the sandbox; with bubblewrap, the safe ones without it too.

    `few` are every second one with Landlock, and every third of those without a sandbox.
    """
    controls = 3 if few else 1
    # Named here, because a module that is found only later may be out of the new user's reach.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE))
    lanes: asyncio.Queue[_Guard] = asyncio.Queue()
    for _ in range(AT_ONCE):
        lanes.put_nowait(_Guard(await _probed(level, base)))
    results: dict[str, dict[str, Verdict]] = {"sandbox": {}, "control": {}}

    async def one(kind: str, attempt: Attempt) -> None:
        guard = await lanes.get()
        try:
            folder = base / kind / attempt.name
            results[kind][attempt.name] = await _judged(
                attempt, folder, guard if kind == "sandbox" else None
            )
        finally:
            lanes.put_nowait(guard)

    async with asyncio.TaskGroup() as group:
        chosen = attempts(landlock=level == "landlock", few=few and level == "landlock")
        for number, attempt in enumerate(chosen.values()):
            group.create_task(one("sandbox", attempt))
            if attempt.control and level == "bwrap" and number % controls == 0:
                group.create_task(one("control", attempt))
    while not lanes.empty():
        await lanes.get_nowait().close()
    return results


def main() -> None:
    """Become an ordinary user, run everything, or a part of it (`few`), print the verdicts."""
    base = Path(sys.argv[1])
    if os.getuid() == 0:
        os.chown(base, ORDINARY_USER, ORDINARY_USER)
        os.setgroups([])
        os.setgid(ORDINARY_USER)
        os.setuid(ORDINARY_USER)
    os.chdir("/")
    os.environ[_SECRET_NAME] = SECRET
    level: Level = "landlock" if "landlock" in sys.argv[2:] else "bwrap"
    results = asyncio.run(run_all(base, level, few="few" in sys.argv[2:]))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
