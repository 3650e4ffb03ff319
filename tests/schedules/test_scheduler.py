"""Jobs over a simulated year: none twice, none lost, each missed one on record; by two daemons."""

import asyncio
import os
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import msgspec
import pytest
from typing_extensions import override

from clawd.config.sections import SchedulesSection
from clawd.errors import InvalidRequestError, NotFoundError, StorageError
from clawd.memory.schedules import (
    MAX_HELD,
    MAX_INPUT,
    Cause,
    JobRun,
    RunClaim,
    RunState,
    Schedule,
    ScheduledJob,
    Schedules,
    admitted,
)
from clawd.memory.store import Memory
from clawd.schedules.plan import MAX_CATCH_UP
from clawd.schedules.scheduler import (
    RECHECK_S,
    JobScheduler,
    RunEnd,
    daemon_name,
    is_alive,
    times_of,
)
from clawd.wire.schedules import Overlap
from tests.support.rows import each_row, thorough

BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
DAY_S = 86_400
LIMIT_S = 30.0


class Clock:
    """What the schedulers take for the time."""

    def __init__(self) -> None:
        self.now = float(BEGIN)

    def __call__(self) -> float:
        return self.now


class Switch:
    """An emergency stop."""

    def __init__(self) -> None:
        self.set_ = False

    def is_set(self) -> bool:
        return self.set_


class Hands:
    """A worker that notes what it is given; `busy` holds it up."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.busy: asyncio.Event | None = None
        self.end = RunEnd(state="finished", detail="stop")

    async def run(
        self, schedule: Schedule, run: JobRun, begun: Callable[[str], Awaitable[None]]
    ) -> RunEnd:
        self.done.append((schedule.name, run.key))
        await begun(f"conv-{run.number}")
        if self.busy is not None:
            await self.busy.wait()
        return self.end

    async def goes_on(self, _schedule: Schedule, _run: JobRun) -> bool:
        return False


class FullDisk(Schedules):
    """Those of a memory whose disk takes no time that has come, until `takes` is set."""

    takes = False

    @override
    async def fire(
        self, schedule: Schedule, cause: Cause, claim: RunClaim, *, key: str = "", text: str = ""
    ) -> JobRun | None:
        if not self.takes:
            raise StorageError("the disk is full")
        return await super().fire(schedule, cause, claim, key=key, text=text)


class Bench:
    """Two daemons on one database, with one clock."""

    def __init__(self, memories: list[Memory]) -> None:
        self.memories = memories
        self.store = memories[0].schedules
        self.clock, self.stop, self.hands = Clock(), Switch(), Hands()
        self.section = SchedulesSection(max_running=64)
        self.daemons = [self.daemon(each) for each in memories]

    def daemon(
        self, memory: Memory, wakes_at: Path | None = None, store: Schedules | None = None
    ) -> JobScheduler:
        return JobScheduler(
            store or memory.schedules,
            self.hands,
            settings=lambda: self.section,
            stop=self.stop,
            now=self.clock,
            wakes_at=wakes_at,
        )

    async def add(self, name: str = "job", when: str = "every 1h", **facts: object) -> Schedule:
        job = msgspec.convert(
            {"prompt": "p", "workspace": "/w", "when": when} | facts, ScheduledJob
        )
        made = Schedule(name=name, owner=7, job=job, created_at=int(self.clock.now))
        next_at = times_of(made).after(int(self.clock.now)) if when else None
        return await self.store.add(msgspec.structs.replace(made, next_at=next_at))

    async def look(self) -> float:
        """Have both look at once; return in how many seconds the first wants to look again."""
        waits = await asyncio.gather(*(each.look() for each in self.daemons))
        return min(waits)

    async def idle(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            while running := [task for each in self.daemons for task in each._running.values()]:
                await asyncio.wait(running)

    async def told(self, daemon: JobScheduler, schedule: Schedule, count: int) -> list[str]:
        """Have a daemon look until a job was told so many times; return what, oldest first."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                await daemon.look()
                await self.idle()
                runs = await self.store.history(schedule.id, 9)
                if len(runs) >= count:
                    return [run.input for run in reversed(runs)]
                await asyncio.sleep(0.01)

    async def states(self, schedule: Schedule) -> Counter[str]:
        runs = await self.store.history(schedule.id, 1_000)
        return Counter(state for run in runs for state in [run.state] * run.times)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    # In memory, where there is such a place: a simulated year waits for no disk.
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    folder = tempfile.TemporaryDirectory(dir=fast)
    memories = [await Memory.open(Path(folder.name, "memory.sqlite")) for _ in range(2)]
    made = Bench(memories)
    yield made
    if made.hands.busy is not None:
        made.hands.busy.set()
    for daemon in made.daemons:
        await daemon.close()
    for memory in memories:
        await memory.close()
    folder.cleanup()


FEW_ZONES = [
    "Europe/Berlin", "America/New_York", "America/Havana", "America/St_Johns", "Africa/Casablanca",
    "Antarctica/Troll", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Chatham",
]  # fmt: skip
DAYS = 365 if thorough() else 40
WATCHED = BEGIN + 60 * DAY_S  # clocks are put on in March
END = WATCHED + DAYS * DAY_S


def changes(zone: str) -> tuple[tuple[int, int], ...]:
    """Return when clocks of a zone are put on or back, each with their seconds from UTC then."""
    where = ZoneInfo(zone)

    def offset(at: int) -> int:
        found = datetime.fromtimestamp(at, where).utcoffset()
        assert found is not None
        return int(found.total_seconds())

    found = [(BEGIN, offset(BEGIN))]
    for hour in range(BEGIN + 3_600, END + 10 * DAY_S, 3_600):
        if offset(hour) != found[-1][1]:
            at = next(
                each for each in range(hour - 3_599, hour + 1) if offset(each) == offset(hour)
            )
            found.append((at, offset(at)))
    return tuple(found)


def kinds() -> dict[tuple[tuple[int, int], ...], list[str]]:
    """Return the zones by what their clocks do until the end; those of a kind show the same."""
    found: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for zone in sorted(available_timezones()) if thorough() else FEW_ZONES:
        found.setdefault(changes(zone), []).append(zone)
    return found


def awkward(kind: tuple[tuple[int, int], ...]) -> set[str]:
    """Return times of the day that clocks skip or show twice when they are put on or back."""
    found = {
        f"{datetime.fromtimestamp(at + (before + after) // 2, UTC):%H:%M}"
        for (_, before), (at, after) in pairwise(kind)
    }
    return found or {"02:30"}


def wanted(kind: tuple[tuple[int, int], ...], when: str) -> list[int]:
    """Return when clocks first show a time of the day, or a later one where they skip it."""
    hour, minute = when.split(":")
    ends = [at for at, _ in kind[1:]] + [END + 10 * DAY_S]
    found = []
    for day in range(BEGIN - DAY_S, END + 2 * DAY_S, DAY_S):
        wall = day + int(hour) * 3_600 + int(minute) * 60
        firsts = [
            first
            for (begin, offset), end in zip(kind, ends, strict=True)
            if (first := max(wall - offset, begin)) < end
        ]
        found.append(min(firsts))
    return [at for at in found if BEGIN < at <= END]


def due_of(job: Schedule) -> list[int]:
    """Return the times of a job up to the end."""
    times, found = times_of(job), list[int]()
    at = times.after(BEGIN)
    while at is not None and at <= END:
        found.append(at)
        at = times.after(at)
    return found


@pytest.mark.timeout(0 if thorough() else 300)
async def test_a_year_of_jobs_with_jumps_and_sleep_by_two_daemons(bench: Bench) -> None:
    # One zone of each kind is played; of the others is shown that they have the same times.
    due: dict[str, set[str]] = {}
    jobs = list[Schedule]()
    for kind, (zone, *others) in kinds().items():
        for when in sorted(awkward(kind)):
            missed = ("once", "skip", "all")[len(jobs) % 3]
            job = await bench.add(f"{zone} {when}", when, zone=zone, missed=missed)
            times = wanted(kind, when)
            for each in (zone, *others):
                there = msgspec.structs.replace(job.job, zone=each)
                assert due_of(msgspec.structs.replace(job, job=there)) == times, each
            due[job.name] = {f"t{at}" for at in times}
            jobs.append(job)
    bench.clock.now, dice = float(WATCHED), random.Random(20_261_124)
    while bench.clock.now < END:
        await bench.look()
        await bench.idle()
        # It wakes in time; now and then the machine sleeps for days, or its clock is put back.
        known = [each.next_at for each in await bench.store.all() if each.next_at is not None]
        wakes_at = max(min(known), bench.clock.now + 1)
        roll, rarely = dice.random(), 0.15 * (wakes_at - bench.clock.now) / DAY_S
        jump = 3 * DAY_S if roll < rarely else -7_200
        bench.clock.now = bench.clock.now + jump if roll < 2 * rarely else wakes_at
    bench.clock.now = float(END)
    for _ in range(MAX_CATCH_UP):
        await bench.look()
        await bench.idle()
    ran = Counter(bench.hands.done)
    assert max(ran.values()) == 1  # no run twice
    for job in jobs:
        runs = await bench.store.history(job.id, 1_000)
        told = {run.key for run in runs if run.state in {"finished", "missed", "merged"}}
        assert told == due[job.name]  # none lost, each missed one is on record
        finished = {(job.name, run.key) for run in runs if run.state == "finished"}
        assert finished == {each for each in ran if each[0] == job.name}
        assert len(finished) > DAYS // 2


@each_row(
    "overlap, live, held, has_room, state",
    [
        ("coalesce", 0, 0, True, "claimed"),
        ("coalesce", 0, 0, False, "held"),
        ("coalesce", 1, 0, True, "held"),
        ("coalesce", 1, 1, True, "merged"),
        ("drop", 0, 0, True, "claimed"),
        ("drop", 1, 0, True, "dropped"),
        ("hold", 1, 5, True, "held"),
        ("hold", 1, MAX_HELD, True, "dropped"),
        ("parallel", 5, 0, True, "claimed"),
        ("parallel", 5, 0, False, "held"),
        ("parallel", 5, MAX_HELD, False, "dropped"),
    ],
)
def test_what_comes_while_the_last_one_runs_is_admitted_as_its_job_says(
    overlap: Overlap, live: int, held: int, has_room: bool, state: RunState
) -> None:
    assert admitted(overlap, live=live, held=held, has_room=has_room) == state


@each_row(
    "overlap, began, states",
    [
        ("parallel", 3, {"finished": 3}),
        ("hold", 3, {"finished": 3}),
        ("coalesce", 2, {"finished": 2, "merged": 1}),
        ("drop", 1, {"finished": 1, "dropped": 2}),
    ],
)
async def test_three_times_while_the_first_runs(
    bench: Bench, overlap: Overlap, began: int, states: dict[str, int]
) -> None:
    bench.hands.done.clear()
    job = await bench.add(overlap, "every 1h", overlap=overlap)
    bench.hands.busy = asyncio.Event()
    for _ in range(3):
        bench.clock.now += 3_600
        await bench.look()
    bench.hands.busy.set()
    await bench.idle()
    for _ in range(3):  # what was held goes on when the one before has ended
        await bench.daemons[0].look()
        await bench.idle()
    assert len(bench.hands.done) == began
    assert await bench.states(job) == states
    await bench.store.remove(job.id)


async def test_no_more_run_side_by_side_than_the_config_allows(bench: Bench) -> None:
    bench.section = SchedulesSection(max_running=2)
    bench.hands.busy = asyncio.Event()
    for number in range(5):
        await bench.add(f"job {number}")
    bench.clock.now += 3_600
    await bench.look()
    assert len(bench.hands.done) == 2
    bench.hands.busy.set()
    for _ in range(5):
        await bench.idle()
        await bench.daemons[1].look()
    await bench.idle()
    assert len(bench.hands.done) == 5
    assert len(set(bench.hands.done)) == 5


async def test_what_a_dead_daemon_had_claimed_is_lost_and_told_and_not_run_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    job = await bench.add()
    due = BEGIN + 3_600
    dead = RunClaim(by="another-boot:1:1", at=due, max_running=4)
    (run,) = await bench.store.move_on(job, due + 3_600, runs=[due], missed=[], claim=dead)
    bench.clock.now = due + 1
    await bench.daemons[0].recover()
    await bench.look()
    await bench.idle()
    assert bench.hands.done == []
    (kept,) = await bench.store.history(job.id, 5)
    assert (kept.number, kept.state) == (run.number, "lost")
    assert "before it is known to have begun" in kept.detail
    assert "was lost" in caplog.text
    assert bench.daemons[0]._me == daemon_name()
    assert is_alive(daemon_name())


async def test_what_a_living_daemon_has_claimed_is_left_to_it(bench: Bench) -> None:
    job = await bench.add()
    bench.hands.busy = asyncio.Event()
    bench.clock.now += 3_600
    await bench.daemons[0].look()
    await bench.daemons[1].recover()
    bench.hands.busy.set()
    await bench.idle()
    assert await bench.states(job) == {"finished": 1}


async def test_under_the_emergency_stop_nothing_begins_and_what_was_due_was_missed(
    bench: Bench,
) -> None:
    job = await bench.add(missed="skip")
    bench.stop.set_ = True
    for _ in range(2):
        bench.clock.now += 3_600
        await bench.look()
    assert bench.hands.done == []
    bench.stop.set_ = False
    bench.clock.now += 600
    await bench.look()
    assert bench.hands.done == []
    assert await bench.states(job) == {"missed": 2}


async def test_a_paused_job_does_not_come_and_a_failed_one_comes_again(bench: Bench) -> None:
    job = await bench.add()
    await bench.store.change(job.id, paused=True, next_at=job.next_at)
    bench.clock.now += 3_600
    await bench.look()
    assert bench.hands.done == []
    await bench.store.change(job.id, paused=False, next_at=job.next_at)
    bench.hands.end = RunEnd(state="failed", detail="no model")
    for _ in range(2):
        await bench.look()
        await bench.idle()
        bench.clock.now += 3_600
    assert await bench.states(job) == {"failed": 2}


@each_row("overlap, waits", [("hold", 1), ("coalesce", 1), ("drop", 0)])
async def test_what_waits_begins_when_a_paused_job_is_resumed_and_by_hand_it_begins_meanwhile(
    bench: Bench, overlap: Overlap, waits: int
) -> None:
    bench.hands.done.clear()
    daemon, job = bench.daemons[0], await bench.add(overlap, "", overlap=overlap)
    bench.hands.busy = asyncio.Event()
    await daemon.fire(job, "hook", text="one")
    await daemon.fire(job, "hook", text="two")
    await bench.store.change(job.id, paused=True, next_at=None)
    await daemon.fire(job, "hand")
    bench.hands.busy.set()
    for begun in (1 + waits, 2 + waits):
        for _ in range(3):
            await bench.idle()
            await daemon.look()
        assert len(bench.hands.done) == begun
        assert [
            run.input for run in await bench.store.history(job.id, 9) if run.state == "held"
        ] == (["two"] * waits)
        again = await daemon.fire(job, "hand")
        assert again is not None
        assert again.state == "claimed"
    await bench.store.change(job.id, paused=False, next_at=None)
    await bench.idle()
    await daemon.look()
    await bench.idle()
    assert len(bench.hands.done) == 3 + 2 * waits
    await bench.store.remove(job.id)


async def test_when_the_next_job_begins_is_written_down_for_who_starts_the_daemon(
    bench: Bench, tmp_path: Path
) -> None:
    place = tmp_path / "wakes_at"
    daemon = bench.daemon(bench.memories[0], place)
    await daemon.look()
    assert not place.exists()
    job = await bench.add()
    await bench.add("later", "every 2h")
    await daemon.look()
    assert place.read_text() == f"{BEGIN + 3_600}\n"
    await bench.store.change(job.id, paused=True, next_at=job.next_at)
    await daemon.look()
    assert place.read_text() == f"{BEGIN + 7_200}\n"
    for each in await bench.store.all():
        await bench.store.remove(each.id)
    await daemon.look()
    assert not place.exists()


async def test_what_was_missed_just_before_quiet_hours_waits_for_their_end(
    bench: Bench, tmp_path: Path
) -> None:
    place = tmp_path / "wakes_at"
    daemon = bench.daemon(bench.memories[0], place)
    bench.daemons.append(daemon)
    await bench.add(when="21:55", quiet="22:00-07:00")
    bench.clock.now += 23 * 3_600  # the machine slept from 21:55 on
    assert await daemon.look() == RECHECK_S
    assert place.read_text() == f"{BEGIN + DAY_S + 7 * 3_600}\n"
    assert bench.hands.done == []
    bench.clock.now += 8 * 3_600
    await daemon.look()
    await bench.idle()
    assert bench.hands.done == [("job", f"t{BEGIN + 21 * 3_600 + 55 * 60}")]


async def test_a_job_that_cannot_be_read_is_told_once_and_holds_up_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    good = await bench.add()
    gone = msgspec.structs.replace(good.job, zone="Europe/Atlantis")
    bad = msgspec.structs.replace(good, name="a bad one", job=gone)
    bad = await bench.store.add(bad)
    bench.clock.now += 3_600
    for _ in range(3):
        assert await bench.daemons[0].look() == RECHECK_S
    await bench.idle()
    assert await bench.states(good) == {"finished": 1}
    assert await bench.states(bad) == {}
    (told,) = [each.getMessage() for each in caplog.records if bad.id in each.getMessage()]
    assert "Europe/Atlantis" in told
    assert "add it anew" in told


async def test_a_key_that_came_before_does_not_come_again(bench: Bench) -> None:
    job = await bench.add(when="")
    first = await bench.daemons[0].fire(job, "hook", key="h1", text="x")
    again = await bench.daemons[1].fire(job, "hook", key="h1", text="x")
    assert first is not None
    assert again is None
    await bench.idle()
    assert len(bench.hands.done) == 1


async def test_names_are_of_one_owner_and_not_too_many(bench: Bench) -> None:
    job = await bench.add()
    with pytest.raises(InvalidRequestError, match="already"):
        await bench.add()
    other = await bench.store.add(Schedule(name="job", owner=8, job=job.job))
    assert [each.id for each in await bench.store.all(7)] == [job.id]
    with pytest.raises(NotFoundError, match="several"):
        await bench.store.find("job", None)
    assert (await bench.store.find(other.id, None)).owner == 8
    with pytest.raises(NotFoundError):
        await bench.store.find(other.id, 7)


async def test_the_oldest_of_many_missed_times_are_one_row(bench: Bench) -> None:
    job = await bench.add(when="minutely")
    bench.clock.now += DAY_S
    await bench.look()
    await bench.idle()
    runs = await bench.store.history(job.id, 1_000)
    assert len(runs) == 102
    assert sum(run.times for run in runs) == 1_440


async def test_texts_that_came_in_between_are_told_to_the_one_that_they_are_merged_into(
    bench: Bench,
) -> None:
    job = await bench.add(when="")
    bench.hands.busy = asyncio.Event()
    daemon = bench.daemons[0]
    states = []
    for text in ("one", "two", "three", "x" * MAX_INPUT):
        run = await daemon.fire(job, "hook", text=text)
        states.append(run.state if run is not None else "")
    assert states == ["claimed", "held", "merged", "merged"]
    held = next(run for run in await bench.store.history(job.id, 9) if run.state == "held")
    assert held.input.startswith("two\nthree\nxxx")
    assert len(held.input) == MAX_INPUT


async def test_a_file_that_is_closed_after_a_newer_one_begins_its_job_too(
    bench: Bench, tmp_path: Path
) -> None:
    daemon, job = bench.daemons[0], await bench.add(when="", folder=str(tmp_path))
    await daemon.look()
    with (tmp_path / "older").open("w") as file:
        file.write("whole")
        file.flush()
        (tmp_path / "newer").write_text("x")
        assert [each.splitlines()[1:] for each in await bench.told(daemon, job, 1)] == [["newer"]]
    told = await bench.told(daemon, job, 2)
    assert [each.splitlines()[1:] for each in told] == [["newer"], ["older"]]


async def test_a_file_that_came_while_the_disk_was_full_begins_its_job_later(
    bench: Bench, tmp_path: Path
) -> None:
    store = FullDisk(bench.memories[0]._database)
    daemon = bench.daemon(bench.memories[0], store=store)
    job = await bench.add(when="", folder=str(tmp_path))
    bench.daemons.append(daemon)
    await daemon.look()
    (tmp_path / "a").write_text("x")
    with pytest.raises(StorageError):
        await bench.told(daemon, job, 1)
    store.takes = True
    assert [each.splitlines()[1:] for each in await bench.told(daemon, job, 1)] == [["a"]]
