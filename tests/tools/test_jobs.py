"""Commands that take longer than their call: real ones, with a real chain and memory."""

import asyncio
import json
import secrets
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from clawd.errors import StorageError
from clawd.receipts.record import Receipt
from clawd.security.network import NetworkRules
from clawd.security.policy import PolicySettings
from clawd.security.principal import Principal
from clawd.security.sandbox.egress import Egress
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.security.taint import TaintBook
from clawd.tools import jobs as jobs_module
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.shell import JobTool, ShellTool
from clawd.tools.call_hosts import ReachSettings
from clawd.tools.dispatch import Dispatcher
from clawd.tools.jobs import Job, Jobs
from clawd.tools.journal import Journal
from clawd.tools.outcome import CallOutcome
from clawd.tools.taint_tracking import TaintTracking
from clawd.wire.events import ToolFinished
from tests.security.fakes import ADA, BOB, ROOT
from tests.security.test_sandbox_process import processes_with
from tests.support.dispatching import LIMIT_S, Bench, bench_in, request

pytestmark = pytest.mark.sandbox

_WAIT_S = 0.2


class World:
    """A dispatcher with `shell` and `job` over a sandbox, and the jobs."""

    def __init__(self, bench: Bench, folder: Path, *, max_command_s: float = 300.0) -> None:
        self.bench = bench
        bench.workspace = folder / "ws"
        bench.workspace.mkdir(exist_ok=True)
        bench.policy = PolicySettings(autonomy="full")
        journal = Journal(bench.chain, bench.memory.ledger, bench.redactor)
        self.jobs = Jobs(journal, TaintTracking(bench.taint))
        deps = BuiltinDeps(
            policy=bench.policy,
            home=None,
            sandbox=Sandbox(SandboxSettings(home=folder / "home")),
            jobs=self.jobs,
            shell_timeout_s=_WAIT_S,
            max_command_s=max_command_s,
        )
        self.dispatcher: Dispatcher = bench.dispatcher(
            [ShellTool(deps), JobTool(deps)], sandbox_level="bwrap"
        )
        self._calls = 0
        self.told_first = ""  # what the call that began the last job told of it

    async def call(self, tool: str, **arguments: object) -> CallOutcome:
        self._calls += 1
        made = request(tool, json.dumps(arguments), f"call-{self._calls}")
        async with asyncio.timeout(LIMIT_S):
            return await self.dispatcher.call(made, self.bench.scope())

    async def begun(self, script: str) -> Job:
        """Begin a command that becomes a job."""
        outcome = await self.call("shell", command=script)
        assert outcome.metadata.get("running"), outcome.text
        self.told_first = outcome.text
        job = self.jobs.named(outcome.metadata["job"])
        assert job is not None
        return job

    async def said(self, job: Job, word: str) -> None:
        """Wait until a job has printed a word."""
        async with asyncio.timeout(LIMIT_S):
            while word not in job.output:
                await asyncio.sleep(0.01)

    async def go_on(self) -> None:
        """Let a job go on that waits for words from the pipe `go`, which is there."""
        await asyncio.to_thread((self.bench.workspace / "go").write_text, "word\n")

    async def is_over(self, job: Job) -> Receipt:
        """Wait for a job's end; return the receipt of it."""
        async with asyncio.timeout(LIMIT_S):
            assert job.task is not None
            await asyncio.wait([job.task])
        (receipt,) = [each for each in self.bench.receipts() if each.id == job.end_receipt_id]
        return receipt


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with bench_in(tmp_path) as bench:
        made = World(bench, tmp_path)
        yield made
        await made.jobs.close()


async def test_p2_a_command_that_takes_long_goes_on_as_a_job_with_a_receipt_at_both_ends(
    world: World,
) -> None:
    fifo = "mkfifo go; echo begun; cat go; echo ended; exit 3"
    job = await world.begun(fifo)
    (begin,) = world.bench.receipts()
    assert (begin.tool, begin.status, begin.id) == ("shell", "allowed", job.context.receipt_id)
    await world.said(job, "begun")
    first = await world.call("job", action="output", id=job.id)
    assert (world.told_first + first.text).count("begun\n") == 1
    ends = [event.job for event in world.bench.events if isinstance(event, ToolFinished)]
    assert ends == [job.id, job.id]
    (intent,) = await world.bench.memory.ledger.open_intents()
    assert intent.tool == "job"
    await world.go_on()
    end = await world.is_over(job)
    assert (end.tool, end.status, end.exit_code) == ("job", "failed", 3)
    assert begin.id in end.reason
    arguments, result = await world.bench.stored(end)
    assert json.loads(arguments or b"") == {"command": fifo, "id": job.id, "receipt": begin.id}
    assert b"ended" in (result or b"")
    told = await world.call("job", action="wait", id=job.id)
    assert told.text.count("ended") == 1
    assert "exited with code 3" in told.text
    last = world.bench.events[-1]
    assert isinstance(last, ToolFinished)
    assert last.job == ""
    assert await world.bench.memory.ledger.open_intents() == []


async def test_what_is_done_in_time_is_no_job(world: World) -> None:
    outcome = await world.call("shell", command="echo quick", timeout_s=LIMIT_S)
    assert (outcome.text, world.jobs.seen_by(ADA)) == ("quick", [])
    failed = await world.call("shell", command="exit 4", timeout_s=LIMIT_S)
    assert (failed.status, world.jobs.seen_by(ADA)) == ("failed", [])
    assert (await world.call("job", action="wait")).status == "failed"


async def test_a_job_is_waited_for_and_says_each_word_once(world: World) -> None:
    job = await world.begun("mkfifo go; echo one; cat go; echo two")
    await world.said(job, "one")
    short = await world.call("job", action="wait", id=job.id, wait_s=0)
    assert (short.status, short.metadata["running"]) == ("allowed", True)
    await world.go_on()
    last = await world.call("job", action="wait", wait_s=LIMIT_S)
    told = world.told_first + short.text + last.text
    assert (told.count("one"), told.count("two")) == (1, 1)
    assert "ended with exit code 0" in told
    assert job.line(str).state == "ended"


async def test_whatever_ends_a_job_leaves_nothing_alive_and_a_receipt_that_says_it(
    world: World, tmp_path: Path
) -> None:
    """Rows: what ends it, and what its receipt says."""
    length = f"300.{secrets.randbelow(10**12)}"  # of this test alone, on this machine
    script = f"sleep {length} & echo begun; sleep {length}"

    async def by_model(job: Job) -> None:
        stopped = await world.call("job", action="stop", id=job.id)
        assert f"{job.id} was ended by the model" in stopped.text

    async def by_estop(_job: Job) -> None:
        assert world.jobs.stop_all("the emergency stop") == 1

    async def by_conversation(_job: Job) -> None:
        world.jobs.forget("conv-1")

    async def by_daemon(_job: Job) -> None:
        await world.jobs.close()

    for end, says in (
        (by_model, "the model"),
        (by_estop, "the emergency stop"),
        (by_conversation, "the end of its conversation"),
        (by_daemon, "the end of the daemon"),
    ):
        job = await world.begun(script)
        await world.said(job, "begun")
        await end(job)
        receipt = await world.is_over(job)
        assert (receipt.status, says in receipt.reason) == ("failed", True), receipt.reason
        assert job.line(str).state == "stopped"
        assert processes_with(length) == []
    limited = World(world.bench, tmp_path, max_command_s=1.0)
    job = await limited.begun("sleep 300")
    receipt = await limited.is_over(job)
    assert "ended after 1 s" in receipt.reason


async def test_a_cancelled_call_leaves_no_job(world: World) -> None:
    task = asyncio.create_task(
        world.call("shell", command="touch begun; sleep 300; touch ended", timeout_s=LIMIT_S)
    )
    async with asyncio.timeout(LIMIT_S):
        while not (world.bench.workspace / "begun").exists():
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.jobs.seen_by(ADA) == []
    assert [each.status for each in world.bench.receipts()] == ["failed"]


async def test_where_no_intent_can_be_kept_the_command_ends_with_its_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, real = world.bench.memory.ledger, world.bench.memory.ledger.open_intent

    async def full(intent: object, arguments: bytes) -> None:
        if getattr(intent, "tool", "") == "job":
            raise StorageError("the disk is full")
        await real(intent, arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "open_intent", full)
    outcome = await world.call("shell", command="sleep 300")
    assert (outcome.status, world.jobs.seen_by(ADA)) == ("failed", [])
    assert "disk is full" in outcome.text


async def test_p2_hosts_that_a_job_reaches_after_its_call_stand_in_the_receipt_of_its_end(
    world: World, tmp_path: Path
) -> None:
    bench = world.bench
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        threading.Thread(target=_hello, args=(server,), daemon=True).start()
        name = f"good.test:{server.getsockname()[1]}"

        async def resolve(_host: str, _port: int) -> list[str]:
            return ["127.0.0.1"]

        egress = Egress(lambda: NetworkRules(allowed_addresses=(name,)), resolve=resolve)
        bench.reach = ReachSettings(egress=egress, listed=lambda: (name,))
        reaching = World(bench, tmp_path)
        script = (
            f"mkfifo go; echo there; cat go; curl -sS http://{name}/; "
            "curl -sS -o kept http://bad.test/; cat go; cp kept more"
        )
        try:
            job = await reaching.begun(script)
            await reaching.said(job, "there")
            await reaching.go_on()
            async with asyncio.timeout(LIMIT_S):
                while "hello" not in job.output or "bad.test:80" not in str(_refused(job)):
                    await asyncio.sleep(0.02)
            looked = await reaching.call("job", action="output", id=job.id)
            assert "[clawd refused a connection: " in looked.text
            assert "bad.test" in looked.text
            assert f"host {name}" in bench.taint.sources("conv-1")
            await reaching.go_on()
            end = await reaching.is_over(job)
            begin = next(each for each in bench.receipts() if each.id in end.reason)
            assert (begin.contacted, begin.refused) == ("", "")
            assert end.contacted.startswith(f"{name} 127.0.0.1 ")
            assert end.contacted.endswith(" config")
            assert end.refused == "bad.test:80"
            assert f"host {name}" in await bench.taint.files.sources((bench.workspace / "more",))
        finally:
            await reaching.jobs.close()
            await egress.close()


def _hello(server: socket.socket) -> None:
    client, _ = server.accept()
    with client:
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


def _refused(job: Job) -> object:
    assert job.context.way_out is not None
    return job.context.way_out.refused


async def test_people_see_their_own_jobs_and_admins_all_without_secrets(world: World) -> None:
    token = "ghp_" + "a1B2c3D4" * 5
    job = await world.begun(f"echo {token}; sleep 300 # é\x1b[2J")
    other = Principal(uid=ADA.uid, gid=1, pid=1, key_id="key-2")
    seen = [len(world.jobs.seen_by(each)) for each in (ADA, BOB, ROOT, other)]
    assert seen == [1, 0, 1, 0]
    line = job.line(world.bench.redactor.text)
    assert token not in line.command
    assert line.command.startswith("echo [") and "\x1b" not in line.command
    assert (line.owner, line.state, line.conversation_id) == (ADA.uid, "running", "conv-1")
    assert line.workspace == str(world.bench.workspace)


async def test_other_conversations_see_no_job_of_this_one(world: World) -> None:
    job = await world.begun("sleep 300")
    assert world.jobs.of("conv-1", job.id) is job
    assert world.jobs.of("conv-2", job.id) is None
    assert world.jobs.of("conv-2") is None


async def test_with_as_many_jobs_as_may_be_a_command_ends_with_its_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "MAX_RUNNING", 1)
    await world.begun("sleep 300")
    outcome = await world.call("shell", command="echo begun; sleep 300")
    assert (outcome.status, len(world.jobs.seen_by(ADA))) == ("failed", 1)
    assert f"ended after {_WAIT_S} s" in outcome.text


async def test_what_a_job_of_a_tainted_conversation_writes_is_untrusted(world: World) -> None:
    taint: TaintBook = world.bench.taint
    taint.mark("conv-1", "https://example.org/")
    job = await world.begun("mkfifo go; echo there; cat go > later.txt")
    await world.said(job, "there")
    await world.go_on()
    await world.is_over(job)
    found = await taint.files.sources((world.bench.workspace / "later.txt",))
    assert "https://example.org/" in found
