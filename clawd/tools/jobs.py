"""Jobs: commands of a conversation that take longer than anybody waits for them, and go on.

A command begins as the call of a tool. When its first wait is over the call ends, with a receipt
and what was printed so far, and the command goes on as a job: until its own end, its time limit,
the emergency stop, the end of its conversation or of the daemon. Its end has a receipt of its own,
whose intent is on disk since the call ended; what it writes is followed as if the call still ran.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from clawd.errors import ClawError
from clawd.receipts.record import utc_timestamp
from clawd.security.principal import Principal
from clawd.security.sandbox.process import ChildResult
from clawd.tools.base import Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.changes import CommandChanges, CommandLog, call_facts
from clawd.tools.child_outcome import told_of
from clawd.tools.journal import CANONICAL, Entry, Journal
from clawd.tools.taint_tracking import Passage, TaintTracking, touched_by
from clawd.wire.safe_text import shortened, single_line
from clawd.wire.tools import JobLine, JobState

MAX_WAIT_S = 600.0
MAX_RUNNING = 8
"""So many jobs of one conversation may run at once."""
MAX_RUNNING_IN_ALL = 32
MAX_ENDED = 64
"""So many that have ended are remembered."""
_REASON_LIMIT = 400
_COMMAND_SHOWN = 200

Run = Callable[[Callable[[str], None], Callable[[], Awaitable[None]]], Awaitable[ChildResult]]
"""Runs a command: takes who is told its output, and what is awaited before it begins."""

_log = logging.getLogger(__name__)


class Job:
    """One command; `Jobs` makes them."""

    def __init__(self, identity: str, command: str, context: ToolContext, limit_s: float) -> None:
        self.id = identity
        self.command = command
        self.context = context
        self.limit_s = limit_s
        self.state: JobState = "running"
        self.result: ChildResult | None = None
        self.end_receipt_id = ""
        self.stopped_by = ""
        self.began, self.started_at = time.monotonic(), utc_timestamp()
        self.ended_after_s = 0.0
        self.is_kept = False
        self.entry: Entry | None = None
        self.passage: Passage | None = None
        self.visit: CommandChanges | None = None
        self.settled = asyncio.Event()  # its intent is on disk, or cannot be put there
        self.cleared = asyncio.Event()
        self.task: asyncio.Task[ChildResult] | None = None
        self._parts: list[str] = []
        self._told = 0

    def add(self, text: str) -> None:
        """Take a piece of its output, which the sandbox bounds."""
        self._parts.append(text)
        if not self.is_kept:
            self.context.report(text)

    def news(self) -> str:
        """Return what it has printed since this was asked last."""
        text = "".join(self._parts[self._told :])
        self._told = len(self._parts)
        return text

    @property
    def duration_s(self) -> float:
        """How long it has run, or ran."""
        return self.ended_after_s or time.monotonic() - self.began

    @property
    def output(self) -> str:
        """All that it has printed, as far as the sandbox keeps it."""
        return "".join(self._parts)

    def line(self, clean: Callable[[str], str]) -> JobLine:
        """Return what people are told of it; `clean` takes secrets out."""
        context = self.context
        return JobLine(
            id=self.id,
            command=shortened(single_line(clean(self.command)), _COMMAND_SHOWN),
            conversation_id=context.conversation_id,
            workspace=str(context.workspace),
            owner=context.principal.uid,
            state=self.state,
            started_at=self.started_at,
            duration_s=round(self.duration_s, 1),
            limit_s=self.limit_s,
            output_bytes=sum(len(part.encode(errors="replace")) for part in self._parts),
            exit_code=self.result.exit_code if self.result is not None else None,
            receipt_id=context.receipt_id,
            end_receipt_id=self.end_receipt_id,
        )


class Jobs:
    """The jobs of a daemon. Use from its event loop only.

    Args:
        journal: keeps the trail.
        flow: follows untrusted text through what they write.
        commands: keeps what they change, for undo; None keeps nothing.
        output_limit_bytes: how much of a job's output its receipt stands for.
    """

    def __init__(
        self,
        journal: Journal,
        flow: TaintTracking,
        commands: CommandLog | None = None,
        *,
        output_limit_bytes: int = 65_536,
    ) -> None:
        self._journal = journal
        self._flow = flow
        self._commands = commands
        self._output_limit_bytes = output_limit_bytes
        self._jobs: dict[str, Job] = {}
        self._last = 0

    def has_room(self, conversation_id: str) -> bool:
        """Return whether one more command of a conversation may become a job."""
        running = [job for job in self._jobs.values() if job.state == "running"]
        own = sum(job.context.conversation_id == conversation_id for job in running)
        return own < MAX_RUNNING and len(running) < MAX_RUNNING_IN_ALL

    async def run(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: ToolContext,
        *,
        run: Run,
        wait_s: float,
        limit_s: float,
    ) -> ToolResult:
        """Run a command for a call; return its result, or that it goes on as a job.

        Args:
            tool: whose call it is.
            arguments: of the call, with `command`.
            context: of the call.
            run: runs it.
            wait_s: how long the call waits for it.
            limit_s: how long it may take in all.

        Raises:
            ClawError: it cannot be run, or not be kept; nothing of it is alive.
        """
        self._last += 1
        job = Job(f"job-{self._last}", str(arguments["command"]), context, limit_s)
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._live(job, run))
        try:
            result = await self._first_wait(job, wait_s)
            if result is not None:
                return told_of(result, limit_s)
            await self._keep(job, tool, arguments)
        except BaseException:
            job.is_kept = False
            await _end(job)
            raise
        finally:
            if not job.is_kept:
                del self._jobs[job.id]
        text = f"{job.news()}\n[{_goes_on(job)}]".lstrip("\n")
        return succeeded(text, job=job.id, running=True, duration_ms=int(job.duration_s * 1000))

    def of(self, conversation_id: str, identity: str = "") -> Job | None:
        """Return a job of a conversation; without a name the newest that runs, or that there is."""
        own = [job for job in self._jobs.values() if job.context.conversation_id == conversation_id]
        if identity:
            return next((job for job in own if job.id == identity), None)
        running = [job for job in own if job.state == "running"]
        return next(reversed(running or own), None)

    def named(self, identity: str) -> Job | None:
        """Return a job of any conversation."""
        return self._jobs.get(identity)

    def seen_by(self, principal: Principal) -> list[Job]:
        """Return the jobs that a principal may see, those that run first, then the newest."""
        seen = [
            job
            for job in self._jobs.values()
            if job.is_kept
            and principal.may_see(job.context.principal.uid, job.context.principal.key_id)
        ]
        return sorted(seen, key=lambda job: (job.state != "running", -job.began))

    async def wait(self, job: Job, wait_s: float) -> None:
        """Wait for the end of a job and its receipt, at most so long."""
        if job.task is not None:
            await asyncio.wait([job.task], timeout=min(max(wait_s, 0.0), MAX_WAIT_S))

    async def stop(self, job: Job, by: str) -> None:
        """End a job; on return nothing of it is alive and its end has a receipt."""
        if job.state == "running":
            job.stopped_by = job.stopped_by or by
            await _end(job)

    async def stop_of(self, conversation_id: str, by: str) -> None:
        """End the jobs of a conversation; on return nothing of them is alive."""
        for job in tuple(self._jobs.values()):
            if job.context.conversation_id == conversation_id:
                await self.stop(job, by)

    def stop_all(self, by: str) -> int:
        """End all jobs, without waiting for it; return how many ran."""
        running = [job for job in self._jobs.values() if job.state == "running" and job.is_kept]
        for job in running:
            job.stopped_by = job.stopped_by or by
            assert job.task is not None
            job.task.cancel()
        return len(running)

    def forget(self, conversation_id: str) -> None:
        """End the jobs of a conversation that is no more."""
        for job in self._jobs.values():
            if job.context.conversation_id == conversation_id and job.state == "running":
                job.stopped_by = job.stopped_by or "the end of its conversation"
                assert job.task is not None
                job.task.cancel()

    async def close(self) -> None:
        """End all jobs, as the daemon does; every end has its receipt."""
        self.stop_all("the end of the daemon")
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def _first_wait(self, job: Job, wait_s: float) -> ChildResult | None:
        """Wait for a command as long as its call does; None when it goes on."""
        assert job.task is not None
        # What is not cleared has not begun, and is nothing that could go on.
        clearing = asyncio.create_task(job.cleared.wait())
        try:
            await asyncio.wait([job.task, clearing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            clearing.cancel()
        done, _ = await asyncio.wait([job.task], timeout=wait_s)
        return job.task.result() if done else None

    async def _keep(self, job: Job, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Let a command go on as a job: from now on its end has an intent on disk.

        Raises:
            ReceiptError, StorageError: its end could not be recorded.
        """
        context = job.context
        job.is_kept = True
        words = {"command": job.command, "id": job.id, "receipt": context.receipt_id}
        job.entry = entry = Entry(
            conversation_id=context.conversation_id,
            tool="job",
            arguments=CANONICAL.encode(words),
            uid=context.principal.uid,
            key=context.principal.key_id,
            workspace=str(context.workspace),
            approval="auto",
            reason=f"the end of {job.id}, which {context.receipt_id or 'a call'} began",
            started_at=job.began,
        )
        try:
            job.passage = await self._flow.begin(
                context.conversation_id, touched_by(tool, arguments, context)
            )
            if self._commands is not None:
                job.visit = await self._commands.enter(call_facts(context, tool.name))
            await self._journal.begin(entry)
        except BaseException:
            job.entry = None
            raise
        finally:
            job.settled.set()
        while len(self._jobs) > MAX_ENDED + MAX_RUNNING_IN_ALL:
            ended = next(key for key, each in self._jobs.items() if each.state != "running")
            del self._jobs[ended]

    async def _live(self, job: Job, run: Run) -> ChildResult:
        """Run a command to its end and, where it became a job, write down how it ended."""

        async def cleared() -> None:
            await job.context.cleared()
            job.cleared.set()

        try:
            job.result = await run(job.add, cleared)
        except asyncio.CancelledError:
            await self._see_off(job, failed(f"it was ended by {job.stopped_by or 'its call'}"))
            raise
        except ClawError as error:
            await self._see_off(job, failed(error.message))
            raise
        await self._see_off(job, told_of(job.result, job.limit_s))
        return job.result

    async def _see_off(self, job: Job, result: ToolResult) -> None:
        job.ended_after_s = time.monotonic() - job.began
        if job.is_kept:
            await job.settled.wait()
        job.state = "ended" if result.success else "failed"
        job.state = "stopped" if job.stopped_by else job.state
        if self._commands is not None and job.visit is not None:
            await self._commands.leave(job.visit)
        if job.entry is None:
            return
        if (hosts := job.context.hosts) is not None:
            result = hosts.told(result)
            job.entry.contacted, job.entry.refused = hosts.contacted(), hosts.refused()
        if not result.success:
            said = self._journal.without_secrets(job.stopped_by or result.error)
            job.entry.reason += f"; {shortened(said, _REASON_LIMIT)}"
        text = "".join(filter(None, (result.output, result.error)))
        kept = text.encode(errors="replace")[: self._output_limit_bytes].decode(errors="ignore")
        code = job.result.exit_code if job.result is not None else None
        try:
            job.end_receipt_id = await self._journal.finish(
                job.entry,
                "allowed" if result.success else "failed",
                self._journal.without_secrets(kept),
                exit_code=code,
            )
            if job.passage is not None:
                await self._flow.end(job.passage, result)
        except ClawError as error:
            # The chain says so itself to all that follows; what ran has ended in any case.
            _log.error("the end of a job has no receipt: %s", error.message)


def looked_at(job: Job) -> ToolResult:
    """Return what a model is told of a job: what is new of its output, and how it stands.

    What it printed may have come from the hosts that it reached: that is told, too.
    """
    found, hosts = _looked_at(job), job.context.hosts
    return found if hosts is None else hosts.told(found)


def _looked_at(job: Job) -> ToolResult:
    facts = {
        "job": job.id,
        "running": job.state == "running",
        "duration_ms": int(job.duration_s * 1000),
    }
    news = job.news().rstrip("\n")
    if job.state == "running":
        return succeeded(f"{news}\n[{_goes_on(job)}]".lstrip("\n"), **facts)
    if job.stopped_by:
        return succeeded(f"{news}\n[{job.id} was ended by {job.stopped_by}]".lstrip("\n"), **facts)
    if job.result is None:
        return failed(f"{job.id} could not be run to its end", output=news, **facts)
    told = told_of(job.result, job.limit_s)
    metadata = told.metadata | facts
    if not told.success:
        return failed(f"{job.id}: {told.error}", output=news, **metadata)
    return succeeded(f"{news}\n[{job.id} has ended with exit code 0]".lstrip("\n"), **metadata)


def _goes_on(job: Job) -> str:
    return (
        f"it runs since {job.duration_s:.0f} s and goes on as {job.id}, at most {job.limit_s:g} s "
        f'in all; job(action="wait", id="{job.id}") waits for it, action="stop" ends it'
    )


async def _end(job: Job) -> None:
    """Cancel a job and wait until it is gone, even while being cancelled."""
    assert job.task is not None
    job.task.cancel()
    job.settled.set()
    while not job.task.done():
        try:
            await asyncio.wait([job.task])
        except asyncio.CancelledError:
            continue
