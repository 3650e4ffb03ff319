"""What a call costs around the program that it runs, and how many receipts a second are on disk."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from typing_extensions import override

from clawd.memory.blobs import Blobs
from clawd.memory.changes import ChangeLimits
from clawd.memory.snapshots import Snapshots
from clawd.memory.store import Memory
from clawd.receipts.chain import ReceiptChain
from clawd.receipts.record import MAX_LINE_BYTES, canonical, new_id
from clawd.security.approval_rules import JsonRuleStore, RuleBook
from clawd.security.approvals import Approvals
from clawd.security.copies import Copies
from clawd.security.estop import EmergencyStop
from clawd.security.gate import Gate
from clawd.security.policy import PolicySettings
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.security.taint import TaintBook
from clawd.tools.audit import DispatchSettings
from clawd.tools.base import Arguments, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.shell import ShellTool
from clawd.tools.dispatch import Dispatcher
from clawd.tools.journal import Journal
from clawd.tools.outcome import CallRequest, CallScope
from clawd.tools.registry import Registry
from tests.bench.security_peer import Bare
from tests.bench.streams import BenchError, now
from tests.receipts.samples import draft

Pairs = list[tuple[float, float]]
_AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b.example")
POLICY = PolicySettings(autonomy="full")


class TrueTool(ShellTool):
    """The shell tool, judged and sandboxed as it is, starting `true` and no shell."""

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        command = ChildCommand(argv=("true",), workspace=context.workspace)
        result = await self._deps.sandbox.run(
            command, on_output=context.report, cleared=context.cleared
        )
        return succeeded("") if result.exit_code == 0 else failed(result.output)


class Desk:
    """A dispatcher with all of its real parts on disk, and the sandbox that its tool uses."""

    def __init__(
        self, dispatcher: Dispatcher, sandbox: Sandbox, workspace: Path, uncovered: Dispatcher
    ) -> None:
        self._dispatcher = dispatcher
        self._uncovered = uncovered
        self.sandbox = sandbox
        self.workspace = workspace

    async def call(self, command: str = "true", *, is_covered: bool = False) -> None:
        """Make one call; `command` is what is judged, and `is_covered` has undo cover it."""

        async def nobody(_pending: object) -> bool:
            return False

        scope = CallScope(
            conversation_id="bench",
            principal=Principal(uid=os.getuid(), gid=os.getgid(), pid=os.getpid()),
            workspace=self.workspace,
            offered=None,
            emit=lambda _event: None,
            deliver=nobody,
        )
        arguments = msgspec.json.encode({"command": command}).decode()
        request = CallRequest(id=new_id(), tool="shell", arguments=arguments)
        dispatcher = self._dispatcher if is_covered else self._uncovered
        outcome = await dispatcher.call(request, scope)
        if outcome.kind != "ok" or not outcome.receipt_id:
            raise BenchError(f"a call ended as {outcome.kind}: {outcome.text}")


@asynccontextmanager
async def desk_in(folder: Path) -> AsyncIterator[Desk]:
    """Open everything that a call passes, as the daemon does."""
    home, workspace = folder / "home", folder / "workspace"
    home.mkdir()
    workspace.mkdir()
    async with AsyncExitStack() as stack:
        memory = await Memory.open(home / "memory.sqlite")
        stack.push_async_callback(memory.close)
        chain = await ReceiptChain.open(home / "tool_receipts.log")
        stack.push_async_callback(chain.close)
        stop = EmergencyStop(home)
        stop.start()
        stack.callback(stop.close)
        sandbox = Sandbox(SandboxSettings(home=home), registry=stop)
        status = await sandbox.probe()
        journal = Journal(chain, memory.ledger, Redactor([], b"k" * 32))
        rules = RuleBook(JsonRuleStore(home / "rules.json"), record=journal.record_rule)
        taint = TaintBook()
        blobs = Blobs(home / "snapshots" / "blobs", lambda: 1 << 30)
        changes = await memory.changes(home / "undo", ChangeLimits, blobs)
        snapshots = Snapshots(
            home / "snapshots", blobs, changes=changes, copies=Copies(home, frozenset)
        )
        covered, uncovered = (
            Dispatcher(
                Registry([TrueTool(BuiltinDeps(policy=POLICY, home=home, sandbox=sandbox))]),
                gate=Gate(lambda: POLICY, estop=stop, taint=taint, rules=rules),
                approvals=Approvals(rules, estop=stop),
                journal=journal,
                taint=taint,
                settings=DispatchSettings(
                    sandbox_level=status.level, audit_log=False, commands=commands
                ),
            )
            for commands in (snapshots, None)
        )
        yield Desk(covered, sandbox, workspace, uncovered)


async def undo_pairs(folder: Path, files: int, count: int) -> Pairs:
    """Return milliseconds of a call that undo covers, and of one that it does not.

    Both run in a repository of so many files, of which the call changes none.
    """
    async with desk_in(folder) as desk:
        for number in range(files):
            file = (
                desk.workspace
                / f"package{number // 400}"
                / f"m{number // 20 % 20}"
                / f"{number}.py"
            )
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"number = {number}\n" * (1 + number % 200))
        for words in ("init -q", "add -A", "commit -qm all", "gc -q --force"):
            command = ["git", "-c", "gc.auto=0", *_AUTHOR, *words.split()]
            await asyncio.to_thread(subprocess.run, command, cwd=desk.workspace, check=True)
        await desk.call("make", is_covered=True)  # the first look reads everything

        async def timed(*, is_covered: bool) -> float:
            began = now()
            await desk.call("make", is_covered=is_covered)
            return 1e3 * (now() - began)

        return await _in_turn(
            lambda: timed(is_covered=True), lambda: timed(is_covered=False), count
        )


async def call_pairs(folder: Path, count: int, *, is_minimal: bool) -> Pairs:
    """Return milliseconds of a call, and of bare bubblewrap, around `true`."""
    async with desk_in(folder) as desk:
        bare = Bare(desk.sandbox, desk.workspace, is_minimal=is_minimal)

        async def peer() -> float:
            with bare.prepared("true") as command:
                return _elapsed_ms(command.run)

        async def ours() -> float:
            began = now()
            await desk.call()
            return 1e3 * (now() - began)

        return await _in_turn(ours, peer, count)


async def receipt_pairs(folder: Path, count: int, *, callers: int, each: int) -> Pairs:
    """Return receipts a second, and lines of their size by one write and fsync after the other."""
    chain = await ReceiptChain.open(folder / "tool_receipts.log")
    line = canonical(await chain.append(draft())) + b"\n"
    assert len(line) < MAX_LINE_BYTES
    descriptor = os.open(folder / "lines", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def append_some() -> None:
        for _ in range(each):
            await chain.append(draft(id=new_id()))

    async def ours() -> float:
        began = now()
        await asyncio.gather(*(append_some() for _ in range(callers)))
        return callers * each / (now() - began)

    async def peer() -> float:
        def write_all() -> None:
            for _ in range(each):
                os.write(descriptor, line)
                os.fsync(descriptor)

        return 1e3 * each / _elapsed_ms(write_all)

    try:
        return await _in_turn(ours, peer, count)
    finally:
        os.close(descriptor)
        await chain.close()


async def _in_turn(
    ours: Callable[[], Awaitable[float]], peer: Callable[[], Awaitable[float]], count: int
) -> Pairs:
    """Measure ours, the peer, ours and so on, after one of each that does not count."""
    measured: Sequence[tuple[float, float]] = [
        (await ours(), await peer()) for _ in range(count + 1)
    ]
    return list(measured[1:])


def _elapsed_ms(act: Callable[[], None]) -> float:
    began = now()
    act()
    return 1e3 * (now() - began)
