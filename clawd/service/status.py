"""What a daemon is and does, as `status` reports it."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from clawd import __version__
from clawd.engine.supervisor import Engine
from clawd.errors import StorageError
from clawd.memory.rows import Counts, visible_to
from clawd.memory.store import Memory
from clawd.receipts.chain import ReceiptChain
from clawd.runtime.inbox import Inbox
from clawd.security.approval_rules import RuleBook
from clawd.security.approvals import Approvals
from clawd.security.estop import EmergencyStop
from clawd.security.principal import Principal
from clawd.security.sandbox import Sandbox
from clawd.service.background import Background
from clawd.service.last_run import LastRun, restored_from
from clawd.service.receipts import Anchor
from clawd.service.state import State
from clawd.tools.jobs import Jobs
from clawd.wire.daemon import MeaningLine, StatusReport, WorkerLine

if TYPE_CHECKING:
    from clawd.service.embedding import MeaningIndex


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Began(msgspec.Struct, frozen=True, kw_only=True):
    """When a daemon began: seconds of the monotonic clock, and the time in UTC."""

    monotonic_s: float = msgspec.field(default_factory=time.monotonic)
    at: str = msgspec.field(default_factory=_now)


@dataclass(frozen=True, kw_only=True)
class DaemonStatus:
    """Reports on a daemon's parts."""

    state: State
    began: Began
    memory: Memory
    sandbox: Sandbox
    chain: ReceiptChain | None
    anchor: Anchor | None
    estop: EmergencyStop
    engine: Engine
    inbox: Inbox
    jobs: Jobs
    approvals: Approvals
    rules: RuleBook
    gateway: Callable[[], str]
    last_run: LastRun
    background: Background
    meaning: "MeaningIndex | None"

    async def report(self, principal: Principal) -> StatusReport:
        """Return what the daemon is and does; of what has an owner, what the principal may see."""
        config, layout = self.state.loaded.config, self.state.loaded.layout
        problem = self.memory.failure or self.background.problem
        try:
            counts = await self.memory.conversations.counts(owner=visible_to(principal))
        except StorageError as error:  # the one who asks wants to know what is wrong
            counts, problem = Counts(conversations=0, messages=0), problem or error.message
        stop, sandbox = self.estop.state(), self.sandbox.status
        running, queued = self.inbox.turns
        head = self.chain.head() if self.chain is not None else None
        model, model_note = await asyncio.to_thread(self.state.answering)
        return StatusReport(
            pid=os.getpid(),
            version=__version__,
            home=str(layout.home),
            socket=str(layout.socket),
            gateway=self.gateway(),
            workspace=str(config.workspace_dir),
            config=str(self.state.loaded.path),
            started_at=self.began.at,
            found_at_start=self.last_run.found,
            uptime_s=round(time.monotonic() - self.began.monotonic_s, 3),
            autonomy=config.security.autonomy,
            sandbox=sandbox.level if sandbox is not None else "none",
            sandbox_reason=sandbox.reason if sandbox is not None else "",
            sandbox_layers=sandbox.layers if sandbox is not None else (),
            sandbox_unbounded=sandbox.unbounded if sandbox is not None else (),
            estop=stop.is_set,
            estop_reason=stop.reason,
            default_provider=config.default_provider,
            default_model=config.default_model,
            model=model,
            model_note=model_note,
            receipts_enabled=self.chain is not None,
            receipts=head.seq if head is not None else 0,
            receipts_head=head.receipt_hash if head is not None else "",
            receipts_problem=self._receipts_problem(),
            problem=problem,
            restored=restored_from(layout.home),
            reload_refused=self.state.reload_refused,
            conversations=counts.conversations,
            meaning=await self._meaning(principal),
            turns_running=running,
            turns_queued=queued,
            jobs_running=sum(job.state == "running" for job in self.jobs.seen_by(principal)),
            approvals_pending=len(self.approvals.pending(principal)),
            rules=len(self.rules.rules(principal)),
            rules_problem=self.rules.problem,
            workers=self._workers(),
        )

    def _workers(self) -> tuple[WorkerLine, ...]:
        return tuple(
            WorkerLine(
                alias=each.alias,
                pid=each.pid,
                state=each.state,
                running=each.running,
                context_size=each.info.n_ctx if each.info is not None else 0,
                fence=each.info.fence if each.info is not None else "",
            )
            for each in self.engine.status()
        )

    async def _meaning(self, principal: Principal) -> MeaningLine | None:
        if self.meaning is None:
            return None
        problem = self.meaning.indexer.problem
        try:
            counted = await self.meaning.counts(owner=visible_to(principal))
        except StorageError as error:
            return MeaningLine(model=self.meaning.named, problem=error.message)
        return MeaningLine(
            model=self.meaning.named,
            indexed=counted.indexed,
            messages=counted.wanted,
            problem=problem,
        )

    def _receipts_problem(self) -> str:
        failure = self.chain.failure if self.chain is not None else ""
        return failure or (self.anchor.problem if self.anchor is not None else "")
