"""A daemon under load for the emergency stop: twenty stubborn processes in four tools at once.

Two of the tools run in turns (one of them detached), two by `tool run`. Beside them an approval
waits, a call is queued behind a running one, and a model is answering.
"""

import contextlib
import os
import secrets
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from clawctl.client import Client, Stream, connect
from clawd.errors import ClawError
from clawd.security.approval_rules import ApprovalRule, JsonRuleStore
from clawd.wire.daemon import ClearEstop
from clawd.wire.events import Event, ToolStarted, TurnStarted
from clawd.wire.policy import ListApprovals
from clawd.wire.tools import RunTool, ToolOutcome
from clawd.wire.turns import SendMessage
from tests.support.home import Home

TOOLS = 4
PROCESSES = 20
LIMIT_S = 60.0
STOPPED = "emergency stop is set"
# Out of the session and of the parent's care, deaf to polite signals, holding the tool's output.
# The quotes in the name keep the shells, whose command lines hold this text, from bearing it too.
_SCRIPT = (
    "for i in $(seq EACH); do setsid bash -c "
    '\'((trap "" TERM HUP INT; exec -a TAG""-leaf sleep 600) &)\' & done; wait; exec sleep 600'
)


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """What one stop did.

    Attributes:
        elapsed_ms: from `touch ESTOP` to the death of the last process of all tools.
        processes: how many of them there were, shells and bubblewrap's own included.
        survivors: command lines of those alive after every call had ended.
        receipts: what the round added to the chain: (tool, status, reason) and how many.
        answer: how the turn ended whose model was answering.
        told: what the two `tool run` got.
    """

    elapsed_ms: float
    processes: int
    survivors: tuple[str, ...]
    receipts: Counter[tuple[str, str, str]]
    answer: str
    told: tuple[tuple[str, str, str], ...]


EXPECTED = Counter(
    {
        ("shell", "failed", STOPPED): TOOLS,  # what ran
        ("time", "denied", STOPPED): 2,  # what was queued behind it in the two turns
        ("file_write", "denied", STOPPED): 1,  # what waited for an approval
    }
)


class Load:
    """The load on one home. The home is configured here; the caller starts and closes it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.tag = f"clawd-estop-{secrets.token_hex(6)}"
        script = _SCRIPT.replace("TAG", self.tag).replace("EACH", str(PROCESSES // TOOLS))
        self.arguments = {"command": script}
        write = {"path": "never", "content": "x"}
        home.configure(
            {"when": "load", "tool_calls": [self._call("shell"), self._call("time", {})]},
            {"when": "write", "tool_calls": [self._call("file_write", write)]},
            {"when": "talk", "text": "never said", "delay_s": 600},
            {"after": "tool", "text": "told: {{last_tool_result}}"},
            {"text": "only text"},
            tables="[limits]\nshell_timeout_s = 600",
        )
        JsonRuleStore(home.path / "approval_rules.json").save((self._rule(),))

    def round(self) -> Stopped:
        """Load the daemon, stop it, see what became of everything and clear the stop."""
        before = len(self.home.receipt_lines())
        with contextlib.ExitStack() as stack:
            clients = self._clients(stack)
            talking = next(clients).stream(SendMessage(text="talk"))
            _until(talking, TurnStarted)
            asking = next(clients)
            waiting = asking.stream(SendMessage(text="write", interactive=True))
            turn = next(clients).stream(SendMessage(text="load"))
            _until(turn, ToolStarted)
            with connect(asking.path) as detached:
                _until(detached.stream(SendMessage(text="load", detach=True)), ToolStarted)
            arguments = msgspec.json.encode(self.arguments).decode()
            runs = [next(clients).stream(RunTool(name="shell", arguments=arguments)) for _ in "ab"]
            watching = next(clients)
            wait_for(lambda: len(watching.call(ListApprovals()).items) == 1)
            wait_for(lambda: len(tagged(f"{self.tag}-leaf")) == PROCESSES)
            processes = [stack.enter_context(pidfd) for pidfd in held(self.tag)]
            elapsed_s = self._touch(processes)
            answer = _failure(talking)
            told = tuple(_told(_result(run)) for run in runs)
            _result(turn)
            _result(waiting)
            wait_for(lambda: len(self.home.receipt_lines()) >= before + EXPECTED.total())
            added = self.home.receipt_lines()[before:]
            survivors = tuple(_command_line(pid) for pid in tagged(self.tag))
            wait_for(lambda: watching.call(ListApprovals()).items == ())
            watching.call(ClearEstop())
        return Stopped(
            elapsed_ms=elapsed_s * 1e3,
            processes=len(processes),
            survivors=survivors,
            receipts=Counter((r["tool"], r["status"], r["reason"]) for r in added),
            answer=answer,
            told=told,
        )

    def _touch(self, processes: list[int]) -> float:
        """Touch the file; return the seconds until all of the processes were dead."""
        began = time.perf_counter()
        (self.home.path / "ESTOP").touch()
        wait_for_death(processes)
        return time.perf_counter() - began

    def _clients(self, stack: contextlib.ExitStack) -> Iterator[Client]:
        socket = Path(self.home.json("status")["socket"])
        while True:
            yield stack.enter_context(connect(socket))

    def _call(self, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        return {"name": tool, "arguments": self.arguments if arguments is None else arguments}

    def _rule(self) -> ApprovalRule:
        """Return the standing approval under which the load runs in supervised autonomy."""
        now = datetime.now(UTC)
        return ApprovalRule(
            id="rule-of-the-load",
            tool="shell",
            fixed=msgspec.json.encode(self.arguments, order="sorted").decode(),
            free=(),
            workspace=str(self.home.workspace.resolve()),
            environment={},
            max_risk="high",
            owner=os.geteuid(),
            created_at=now,
            expires_at=now + timedelta(hours=1),
        )


def tagged(word: str) -> list[int]:
    """Return the processes of this machine whose command line holds the word."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def held(word: str) -> Iterator[contextlib.AbstractContextManager[int]]:
    """Return pidfds, to be closed, of the processes whose command line holds the word."""
    for pid in tagged(word):
        with contextlib.suppress(ProcessLookupError):  # a shell that was on its way out
            yield _closing(os.pidfd_open(pid))


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def wait_for_death(pidfds: list[int]) -> None:
    """Wait until all of these processes are dead, or the limit is over."""
    poll = select.poll()
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    alive = set(pidfds)
    deadline = time.monotonic() + LIMIT_S
    while alive and (left_s := deadline - time.monotonic()) > 0:
        for pidfd, _ in poll.poll(left_s * 1e3):
            poll.unregister(pidfd)
            alive.discard(pidfd)


def wait_for(claim: Callable[[], bool]) -> None:
    """Wait until the claim holds."""
    deadline = time.monotonic() + LIMIT_S
    while not claim():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.005)


def _until(stream: Stream[Any], wanted: type[Event]) -> None:
    for event in stream:
        if isinstance(event, wanted):
            return
    raise AssertionError(f"no {wanted.__name__}")


def _result(stream: Stream[Any]) -> Any:
    for _event in stream:
        pass
    return stream.result


def _failure(stream: Stream[Any]) -> str:
    try:
        return f"answered: {_result(stream).text}"
    except ClawError as error:
        return error.code


def _told(outcome: ToolOutcome) -> tuple[str, str, str]:
    return outcome.kind, outcome.status, outcome.output


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
