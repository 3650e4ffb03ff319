"""A storm: a home whose daemon is worked by many clients and killed, again and again.

All that is chosen follows from the seed; what the kernel and the threads make of it does not.
"""

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from clawctl.client import Client, connect
from clawd.errors import ClawError
from clawd.wire.daemon import CreateKey, Status
from clawd.wire.models import ListLoadedModels
from tests.fault.lanes import LANES, blow, script
from tests.fault.oracle import Oracle
from tests.fault.told import Place, Told
from tests.support.home import DEADLINE_S, Home

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
TORN = b'{"approval":"auto","approved_by":"","args_hash":"ab'
LONGEST_S = 1.0
WORKERS_S = 6.0
MEASURES = ("calls", "turns")

Process = tuple[int, float]


class Storm:
    """Kills one daemon after the other, and checks what the next one finds.

    Args:
        home: where.
        seed: what the choices follow from.
        has_model: whether a real model is worked, and its worker killed, too.

    Attributes:
        kills: how many daemons were killed.
        worker_kills: how many workers.
        torn: how often half a receipt was left.
    """

    def __init__(self, home: Home, seed: int, *, has_model: bool) -> None:
        self.told = Told()
        self.oracle = Oracle(home, self.told)
        self.kills = 0
        self.worker_kills = 0
        self.torn = 0
        self._home = home
        self._seed = seed
        self._has_model = has_model
        self._dice = random.Random(seed)
        self._number = 0
        self._key = ""
        self._killed: set[int] = set()
        self._gates: set[Process] = set()
        self._is_torn: bool | None = False

    @property
    def all_kills(self) -> int:
        """How many processes were killed."""
        return self.kills + self.worker_kills

    def blow(self, wanted: int) -> None:
        """Go on until so many processes were killed, and more than so much work was done between.

        The daemon of the last check runs on.
        """
        self._start_and_check()
        while self.all_kills < wanted or min(map(self.told.done, MEASURES)) <= wanted:
            self._work_and_kill()
            if self._dice.random() < 0.15:
                self._kill_at_start()
            self._start_and_check()

    def _start_and_check(self) -> None:
        self._number += 1
        is_asking = self._number % 3 == 0
        self._home.configure(*script(self._number), tables=_tables(is_asking=is_asking))
        self._home.spawn()
        with self._answering() as client:
            self.oracle.check(client, killed=self._killed, is_torn=self._is_torn)
            self._is_torn = False
            wait_for(lambda: not [each for each in self._gates if _is_running(each)], self._gates)
            self._gates.clear()
            if not self._key:
                self._key = client.call(CreateKey(name="storm", scopes=("chat", "tools"))).key
            report = client.call(Status())
        self._place = Place(
            socket=report.socket,
            gateway=report.gateway,
            key=self._key,
            number=self._number,
            is_asking=is_asking,
            has_model=self._has_model,
            told=self.told,
        )

    def _work_and_kill(self) -> None:
        lanes = [
            threading.Thread(
                target=blow,
                args=(lane, self._place, f"{self._seed}-{self._number}-{lane.__name__}"),
                name=lane.__name__,
            )
            for lane in LANES
        ]
        for lane in lanes:
            lane.start()
        ends_at = time.monotonic() + self._dice.uniform(0.05, LONGEST_S)
        if self._has_model and self._dice.random() < 0.5:
            self._kill_workers(ends_at + WORKERS_S)
        time.sleep(max(0.0, ends_at - time.monotonic()))  # the point is random: no event marks it
        self._kill()
        for lane in lanes:
            lane.join(DEADLINE_S)
            assert not lane.is_alive(), (lane.name, self._home.log()[-4000:])
        if self._dice.random() < 0.2:
            self._tear()

    def _kill_workers(self, until: float) -> None:
        """Kill workers as they come, at random points."""
        wanted = self._dice.randrange(2, 7)
        with contextlib.suppress(ClawError), connect(self._home.path / "run/clawd.sock") as client:
            while wanted and time.monotonic() < until:
                for model in client.call(ListLoadedModels()).items:
                    if model.pid and wanted:
                        time.sleep(self._dice.uniform(0, 0.1))
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(model.pid, signal.SIGKILL)
                            self.worker_kills += 1
                            wanted -= 1
                time.sleep(0.02)

    def _kill_at_start(self) -> None:
        self._home.spawn()
        time.sleep(self._dice.uniform(0.1, 0.9))
        self._kill()
        self._is_torn = None if self._is_torn else False  # that start may have seen to it

    def _kill(self) -> None:
        daemon = self._home.daemon
        assert daemon is not None
        below = _below(daemon.pid)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait(DEADLINE_S)
        assert daemon.returncode == -signal.SIGKILL, self._home.log()[-4000:]
        self._home.daemon = None
        self.kills += 1
        self._killed.add(daemon.pid)
        # A sandbox whose command has not begun waits at its gate until the next start ends it. It
        # has its name from its exec on, which may be yet to come.
        wait_for(
            lambda: not [each for each in below if _is_running(each) and not _waits(each)], below
        )
        self._gates |= {each for each in below if _is_running(each)}

    def _tear(self) -> None:
        """Leave what a machine leaves that went down in the middle of a write."""
        with self._home.receipts.open("ab") as log:
            log.write(TORN)
        self._is_torn = True
        self.torn += 1

    @contextlib.contextmanager
    def _answering(self) -> Iterator[Client]:
        socket = self._home.path / "run" / "clawd.sock"
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(ClawError):
                client = connect(socket)
                break
            assert self._home.daemon is not None
            assert self._home.daemon.poll() is None, self._home.log()[-4000:]
            assert time.monotonic() < deadline, self._home.log()[-4000:]
            time.sleep(0.01)
        with client:
            yield client


def wait_for(claim: Callable[[], bool], about: object) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + DEADLINE_S
    while not claim():
        assert time.monotonic() < deadline, about
        time.sleep(0.01)


def _tables(*, is_asking: bool) -> str:
    words = json.dumps([sys.executable, str(SERVER)])
    seen = json.dumps([str(SERVER.parent), sys.prefix, sys.base_prefix])
    autonomy = "supervised" if is_asking else "full"
    return (
        f'[security]\nautonomy = "{autonomy}"\nworkspace_roots = ["/"]\n'
        "[channels.http]\nenabled = true\nport = 0\n"
        f"[mcp.servers.hand]\ncommand = {words}\nreadonly_paths = {seen}\n"
    )


def _below(pid: int) -> list[Process]:
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(pid).children(recursive=True)
        return [(child.pid, child.create_time()) for child in children]
    return []


def _waits(process: Process) -> bool:
    """Return whether a process is a sandbox, which may wait at its gate."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process[0]}/comm").read_text(encoding="utf-8").strip() == "bwrap"
    return False


def _is_running(process: Process) -> bool:
    pid, created = process
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid)
        is_same: bool = found.create_time() == created
        return is_same and found.status() != psutil.STATUS_ZOMBIE
    return False
