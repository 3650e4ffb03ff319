"""How long after its time a job begins on an idle machine, against a bare timer of asyncio.

The jobs are in a memory on the disk, so the claim of each is in the figure. The peer waits for the
same moments in the same loop.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from clawd.config.sections import SchedulesSection
from clawd.memory.schedules import JobRun, Schedule, ScheduledJob
from clawd.memory.store import Memory
from clawd.schedules.scheduler import JobScheduler, RunEnd
from clawd.security.estop import EmergencyStop
from tests.bench.report import Row, quantile, row_of
from tests.bench.scale import Scale

FIRST_S = 2
TAIL = 0.99


class _Hands:
    """Notes when a job is begun that was due at a moment."""

    def __init__(self) -> None:
        self.late_ms: dict[int, float] = {}

    async def run(
        self, _schedule: Schedule, run: JobRun, _begun: Callable[[str], Awaitable[None]]
    ) -> RunEnd:
        self.late_ms[run.due_at] = (time.time() - run.due_at) * 1_000
        return RunEnd(state="finished")

    async def goes_on(self, _schedule: Schedule, _run: JobRun) -> bool:
        return False


def rows(folder: Path, scale: Scale, say: Callable[[str], None]) -> Iterator[Row]:
    """Measure one job a second."""
    pairs = asyncio.run(_pairs(folder, scale.schedule_starts))
    late = [ours for ours, _ in pairs]
    say(f"schedule_start_ms: p99 {quantile(late, TAIL):.1f} ms, longest {max(late):.1f} ms")
    yield row_of("schedule_start_ms", "ms", pairs)


async def _pairs(folder: Path, count: int) -> list[tuple[float, float]]:
    memory, hands = await Memory.open(folder / "schedules.sqlite"), _Hands()
    scheduler = JobScheduler(
        memory.schedules, hands, settings=SchedulesSection, stop=EmergencyStop(folder)
    )
    begin = int(time.time()) + FIRST_S
    moments = range(begin, begin + count)
    for at in moments:
        when = f"at {datetime.fromtimestamp(at, UTC).isoformat()}"
        job = ScheduledJob(prompt="p", workspace="/", when=when)
        await memory.schedules.add(
            Schedule(name=str(at), owner=0, job=job, created_at=begin - FIRST_S, next_at=at)
        )
    scheduler.start(lambda _task, _name: None)
    peer: dict[int, float] = {}
    for at in moments:
        await asyncio.sleep(max(at - time.time(), 0))
        peer[at] = (time.time() - at) * 1_000
    while len(hands.late_ms) < count or scheduler.running:
        await asyncio.sleep(0.01)
    await scheduler.close()
    await memory.close()
    return [(hands.late_ms[at], max(peer[at], 0.001)) for at in moments]
