"""Jobs that begin by themselves, and every time that one of them came: run, held, missed or lost.

A time is claimed in the write that moves its job on, so that of two daemons one runs it. What was
claimed and has no end, and whose daemon is gone, is lost: it is reported, and not run again.
"""

import asyncio
import hmac
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.memory.rows import clean, encode
from clawd.memory.writer import Database
from clawd.receipts.record import new_ulid
from clawd.wire.safe_text import visible_line
from clawd.wire.schedules import Overlap, ScheduleTerms

RunState = Literal[
    "held",
    "claimed",
    "running",
    "finished",
    "unanswered",
    "failed",
    "lost",
    "missed",
    "dropped",
    "merged",
]
Cause = Literal["time", "hand", "file", "hook", "mcp"]

MAX_JOBS = 200  # of each owner
MAX_INPUT = 16_384
MAX_HELD = 24  # of each job
MAX_UNDELIVERED = 100  # of each job; older ones are given up
MAX_KEPT = 500  # times of each job; the oldest go
MAX_MISSED = 100  # times that are rows of their own; older ones are one row
_LIVE = "('claimed', 'running')"
# Of what is held: while its job is paused it stays there, but for what a person began by hand.
_MAY_BEGIN = "(cause = 'hand' OR NOT (SELECT is_paused FROM schedules WHERE id = schedule_id))"
_RUN = (
    "number, schedule_id, key, cause, state, due_at, times, claimed_by, began_at, ended_at, "
    "conversation_id, detail, input"
)

_DELIVERY = "number, schedule_id, run, way, key, result, state, tries, next_at, problem"
_UNREAD = "'' AS result"

# Every f-string of SQL here is made of constants; values go in as parameters.
# ruff: noqa: S608


class ScheduledJob(ScheduleTerms, frozen=True, kw_only=True):
    """What is to be run, when, and what it may do.

    Attributes:
        when: as a person wrote it; "" where only a trigger begins it.
        zone: of the clocks by which `when` and `quiet` count.
        mode: how far the model may go; never further than who made the job may set.
        since_ns: files that were there before are not told.
        hook: SHA-256 of the secret by which a request over HTTP begins it; "" for none.
        door: where it was made; each door has tools of its own.
        key_id: of the key of the HTTP gateway that it was made with; "" for none.
    """

    prompt: str
    workspace: str
    when: str = ""
    zone: str = "UTC"
    mode: Literal["readonly", "supervised", "edits", "full"] = "supervised"
    since_ns: int = 0
    hook: str = ""
    door: Literal["socket", "http"] = "socket"
    key_id: str = ""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A job and how it stands; times are seconds since 1970.

    Attributes:
        next_at: the first time that was not looked at; None for none.
    """

    name: str
    owner: int
    job: ScheduledJob
    id: str = ""
    created_at: int = 0
    is_paused: bool = False
    next_at: int | None = None


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """One time of a job; moments are seconds since 1970, 0 for never.

    Attributes:
        key: of its job no two are alike.
        due_at: when it should have begun.
        times: how many times stand in this row, which were all missed.
        claimed_by: the daemon that runs it.
        input: untrusted text that began it.
    """

    number: int
    schedule_id: str
    key: str
    cause: Cause
    state: RunState
    due_at: int
    times: int = 1
    claimed_by: str = ""
    began_at: float = 0.0
    ended_at: float = 0.0
    conversation_id: str = ""
    detail: str = ""
    input: str = ""


Way = Literal["file", "webhook", "mail"]


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A result on its way to one place.

    Attributes:
        run: the number of the time that it is of.
        key: the same at every try, and of no other delivery.
        result: what is delivered, as JSON; "" once it has come to an end.
        tries: how often it was tried.
        next_at: when it is tried next, in seconds since 1970.
        problem: why the last try failed, or it was given up.
    """

    number: int = 0
    schedule_id: str
    run: int
    way: Way
    key: str
    result: str
    state: Literal["waiting", "delivered", "given_up"] = "waiting"
    tries: int = 0
    next_at: float = 0.0
    problem: str = ""


class RunClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Who claims, when, and how many may run side by side."""

    by: str
    at: float
    max_running: int


class Schedules:
    """Those in memory. Every method raises `StorageError` when the disk fails.

    Attributes:
        to_deliver: set when there is a new delivery.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.to_deliver = asyncio.Event()

    async def add(self, schedule: Schedule) -> Schedule:
        """Keep a new job; return it with its id.

        Raises:
            InvalidRequestError: its owner has one of that name, or too many.
        """
        made = msgspec.structs.replace(schedule, id=f"schedule-{new_ulid()}")
        owner, name = made.owner, clean(made.name)
        text = encode(made.job)

        def act(connection: sqlite3.Connection) -> None:
            names = {
                str(each)
                for (each,) in connection.execute(
                    "SELECT name FROM schedules WHERE owner = ?", (owner,)
                )
            }
            if name in names:
                raise InvalidRequestError(
                    f"there is a schedule {visible_line(name, 64)!r} already",
                    hint="Give it another name, or remove that one first.",
                )
            if len(names) >= MAX_JOBS:
                raise InvalidRequestError(f"{len(names)} schedules; {MAX_JOBS} are the most")
            row = (made.id, owner, name, made.created_at, made.is_paused, made.next_at, text)
            connection.execute("INSERT INTO schedules VALUES (?, ?, ?, ?, ?, ?, ?)", row)

        await self._database.write(act)
        return made

    async def all(self, owner: int | None = None) -> list[Schedule]:
        """Return the jobs of an owner, or all (None), by name."""
        query = (
            "SELECT id, owner, name, created_at, is_paused, next_at, job FROM schedules "
            "WHERE owner = ? OR ? IS NULL ORDER BY name, owner"
        )
        rows = await self._database.read(lambda c: c.execute(query, (owner, owner)).fetchall())
        return [_schedule(row) for row in rows]

    async def find(self, name: str, owner: int | None) -> Schedule:
        """Return a job by its name or id, of an owner or of anybody (None).

        Raises:
            NotFoundError: there is none, or of several owners.
        """
        found = [each for each in await self.all(owner) if name in {each.name, each.id}]
        if len(found) != 1:
            several = "several owners have" if found else "there is no"
            raise NotFoundError(
                f"{several} schedule {visible_line(name, 64)!r}",
                hint="clawctl schedule list displays them; an id names one.",
            )
        return found[0]

    async def of_hook(self, digest: str) -> Schedule | None:
        """Return the job whose hook has this digest, in a time that does not tell how alike any is.

        Digests are those of 256 random bits, and every job is looked at.
        """
        found: Schedule | None = None
        for each in await self.all():
            if hmac.compare_digest(each.job.hook, digest):
                found = each
        return found

    async def change(self, schedule_id: str, *, paused: bool, next_at: int | None) -> None:
        """Pause a job or let it go on from a time on."""
        query = "UPDATE schedules SET is_paused = ?, next_at = ? WHERE id = ?"
        await self._database.write(
            lambda c: c.execute(query, (paused, next_at, schedule_id)).rowcount
        )

    async def remove(self, schedule_id: str) -> None:
        """Forget a job and its times."""
        query = "DELETE FROM schedules WHERE id = ?"
        await self._database.write(lambda c: c.execute(query, (schedule_id,)).rowcount)

    async def move_on(
        self,
        schedule: Schedule,
        next_at: int | None,
        *,
        runs: Sequence[int],
        missed: Sequence[int],
        claim: RunClaim,
    ) -> list[JobRun]:
        """Claim the times of a job that are due, note those that were missed; return the claimed.

        Nothing is done, and nothing returned, if the job has moved on meanwhile. Times that are
        made up for are run one after the other.
        """
        of, job = schedule, schedule.job
        if len(runs) > 1 and job.overlap == "coalesce":
            job = msgspec.structs.replace(job, overlap="hold")
            of = msgspec.structs.replace(schedule, job=job)

        def act(connection: sqlite3.Connection) -> list[JobRun]:
            moved = connection.execute(
                "UPDATE schedules SET next_at = ? WHERE id = ? AND next_at IS ? AND NOT is_paused",
                (next_at, schedule.id, schedule.next_at),
            )
            if not moved.rowcount:
                return []
            for each in _missed_rows(schedule.id, missed):
                _insert(connection, each)
            found = [
                _admit(connection, of, _new(schedule.id, f"t{at}", "time", at), claim)
                for at in runs
            ]
            _prune(connection, schedule.id)
            return [run for run in found if run is not None and run.state == "claimed"]

        return await self._database.write(act)

    async def fire(
        self, schedule: Schedule, cause: Cause, claim: RunClaim, *, key: str = "", text: str = ""
    ) -> JobRun | None:
        """Let a job come now; return what became of that, None for a key that came before."""
        new = _new(schedule.id, key or f"{cause}-{new_ulid()}", cause, int(claim.at), clean(text))

        def act(connection: sqlite3.Connection) -> JobRun | None:
            found = _admit(connection, schedule, new, claim)
            _prune(connection, schedule.id)
            return found

        return await self._database.write(act)

    async def file_mark(self, schedule_id: str) -> int:
        """Return the mark of the newest files that a job was told of; 0 for none."""
        query = (
            "SELECT key FROM schedule_runs WHERE schedule_id = ? AND cause = 'file' "
            "ORDER BY number DESC LIMIT 1"
        )
        row = await self._database.read(lambda c: c.execute(query, (schedule_id,)).fetchone())
        return int(row[0][1:]) if row is not None else 0

    async def release(self, claim: RunClaim) -> list[JobRun]:
        """Claim what was held and may begin by now, oldest first."""

        def act(connection: sqlite3.Connection) -> list[JobRun]:
            query = (
                f"SELECT {_RUN}, s.job FROM schedule_runs r JOIN schedules s "
                f"ON s.id = r.schedule_id WHERE r.state = 'held' AND {_MAY_BEGIN} ORDER BY r.number"
            ).replace("number,", "r.number,", 1)
            taken = list[JobRun]()
            for *row, job in connection.execute(query).fetchall():
                run = _run(tuple(row))
                if _live(connection) >= claim.max_running:
                    break
                is_parallel = msgspec.json.decode(job, type=ScheduledJob).overlap == "parallel"
                if is_parallel or not _live(connection, run.schedule_id):
                    run = msgspec.structs.replace(
                        run, state="claimed", claimed_by=claim.by, began_at=claim.at
                    )
                    _update(connection, run)
                    taken.append(run)
            return taken

        return await self._database.write(act)

    async def begun(self, run: JobRun, conversation_id: str) -> JobRun:
        """Note the conversation in which a claimed time runs."""
        running = msgspec.structs.replace(run, state="running", conversation_id=conversation_id)
        await self._database.write(lambda c: _update(c, running), durable=False)
        return running

    async def ended(
        self, run: JobRun, state: RunState, detail: str, at: float, to: Sequence[Delivery] = ()
    ) -> None:
        """Note how a time ended, and in the same write where its result goes."""
        done = msgspec.structs.replace(run, state=state, detail=clean(detail), ended_at=at)

        def act(connection: sqlite3.Connection) -> None:
            if _update(connection, done):
                for each in to:
                    facts = msgspec.structs.astuple(each)[1:]
                    connection.execute(
                        f"INSERT INTO schedule_deliveries ({_DELIVERY.removeprefix('number, ')}) "
                        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        facts,
                    )

        await self._database.write(act)
        if to:
            self.to_deliver.set()

    async def undelivered(self) -> list[Delivery]:
        """Return what waits to be delivered, first what is due first; without what it holds."""
        query = (
            f"SELECT {_DELIVERY.replace('result', _UNREAD)} FROM schedule_deliveries "
            "WHERE state = 'waiting' ORDER BY next_at, number"
        )
        return list(
            map(_delivery, await self._database.read(lambda c: c.execute(query).fetchall()))
        )

    async def delivery(self, number: int) -> Delivery | None:
        """Return a delivery that waits; None where it does no more."""
        query = (
            f"SELECT {_DELIVERY} FROM schedule_deliveries WHERE number = ? AND state = 'waiting'"
        )
        row = await self._database.read(lambda c: c.execute(query, (number,)).fetchone())
        return _delivery(row) if row is not None else None

    async def tried(self, delivery: Delivery) -> None:
        """Note what came of a try; what came to an end holds nothing any more."""
        result = delivery.result if delivery.state == "waiting" else ""
        facts = (delivery.state, delivery.tries, delivery.next_at, clean(delivery.problem), result)
        query = (
            "UPDATE schedule_deliveries SET state = ?, tries = ?, next_at = ?, problem = ?, "
            "result = ? WHERE number = ?"
        )
        await self._database.write(lambda c: c.execute(query, (*facts, delivery.number)).rowcount)

    async def deliveries(self, schedule_id: str) -> list[Delivery]:
        """Return where the results of a job went, oldest first; without what they hold."""
        query = (
            f"SELECT {_DELIVERY.replace('result', _UNREAD)} FROM schedule_deliveries "
            "WHERE schedule_id = ? ORDER BY number"
        )
        rows = await self._database.read(lambda c: c.execute(query, (schedule_id,)).fetchall())
        return list(map(_delivery, rows))

    async def lose(self, is_alive: Callable[[str], bool], at: float) -> list[JobRun]:
        """Note the times as lost whose daemon is gone; return them."""

        def act(connection: sqlite3.Connection) -> list[JobRun]:
            query = f"SELECT {_RUN} FROM schedule_runs WHERE state IN {_LIVE} ORDER BY number"
            found = [_run(row) for row in connection.execute(query).fetchall()]
            lost = [
                msgspec.structs.replace(
                    run,
                    state="lost",
                    ended_at=at,
                    detail="the daemon ended while it ran"
                    if run.state == "running"
                    else "the daemon ended before it is known to have begun",
                )
                for run in found
                if not is_alive(run.claimed_by)
            ]
            for run in lost:
                _update(connection, run)
            return lost

        return await self._database.write(act)

    async def history(self, schedule_id: str, limit: int) -> list[JobRun]:
        """Return the newest times of a job, newest first."""
        query = (
            f"SELECT {_RUN} FROM schedule_runs WHERE schedule_id = ? "
            "ORDER BY due_at DESC, number DESC LIMIT ?"
        )
        given = (schedule_id, limit)
        rows = await self._database.read(lambda c: c.execute(query, given).fetchall())
        return [_run(row) for row in rows]


def admitted(overlap: Overlap, *, live: int, held: int, has_room: bool) -> RunState:
    """Return what becomes of a time that has come, by what of its job runs and waits."""
    if overlap == "parallel" or not (live or held):
        if has_room:
            return "claimed"
        return "held" if held < MAX_HELD else "dropped"
    match overlap:
        case "hold":
            return "held" if held < MAX_HELD else "dropped"
        case "coalesce":
            return "merged" if held else "held"
        case "drop":
            return "dropped"


def _admit(
    connection: sqlite3.Connection, schedule: Schedule, new: JobRun, claim: RunClaim
) -> JobRun | None:
    """Store a time as what becomes of it; None if it came before and was not missed."""
    query = "SELECT number, state FROM schedule_runs WHERE schedule_id = ? AND key = ?"
    known = connection.execute(query, (schedule.id, new.key)).fetchone()
    if known is not None and known[1] != "missed":
        return None
    held = connection.execute(
        "SELECT count(*) FROM schedule_runs WHERE schedule_id = ? AND state = 'held' "
        f"AND {_MAY_BEGIN}",
        (schedule.id,),
    ).fetchone()[0]
    state = admitted(
        schedule.job.overlap,
        live=_live(connection, schedule.id),
        held=held,
        has_room=_live(connection) < claim.max_running,
    )
    run = msgspec.structs.replace(new, state=state)
    if state == "merged" and new.input:
        connection.execute(
            "UPDATE schedule_runs SET input = substr(trim(input || char(10) || ?, char(10)), 1, ?) "
            f"WHERE schedule_id = ? AND state = 'held' AND {_MAY_BEGIN}",
            (new.input, MAX_INPUT, schedule.id),
        )
    if state == "claimed":
        run = msgspec.structs.replace(run, claimed_by=claim.by, began_at=claim.at)
    if known is None:
        return msgspec.structs.replace(run, number=_insert(connection, run))
    run = msgspec.structs.replace(run, number=known[0])
    _update(connection, run)
    return run


def _live(connection: sqlite3.Connection, schedule_id: str = "") -> int:
    query = (
        f"SELECT count(*) FROM schedule_runs WHERE state IN {_LIVE} "
        "AND (schedule_id = ?1 OR ?1 = '')"
    )
    return int(connection.execute(query, (schedule_id,)).fetchone()[0])


def _new(schedule_id: str, key: str, cause: Cause, at: int, text: str = "") -> JobRun:
    return JobRun(
        number=0, schedule_id=schedule_id, key=key, cause=cause, state="held", due_at=at, input=text
    )


def _missed_rows(schedule_id: str, missed: Sequence[int]) -> list[JobRun]:
    """Return the rows of missed times; the oldest of many are one."""
    rows = [
        msgspec.structs.replace(_new(schedule_id, f"t{at}", "time", at), state="missed")
        for at in missed[-MAX_MISSED:]
    ]
    older = missed[:-MAX_MISSED]
    if older:
        first = _new(schedule_id, f"t{older[0]}", "time", older[0])
        rows.insert(0, msgspec.structs.replace(first, state="missed", times=len(older)))
    return rows


def _insert(connection: sqlite3.Connection, run: JobRun) -> int:
    query = (
        f"INSERT OR IGNORE INTO schedule_runs ({_RUN.removeprefix('number, ')}) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    return connection.execute(query, msgspec.structs.astuple(run)[1:]).lastrowid or 0


def _update(connection: sqlite3.Connection, run: JobRun) -> int:
    query = (
        "UPDATE schedule_runs SET state = ?, claimed_by = ?, began_at = ?, ended_at = ?, "
        "conversation_id = ?, detail = ? WHERE number = ?"
    )
    facts = (run.state, run.claimed_by, run.began_at, run.ended_at, run.conversation_id, run.detail)
    return connection.execute(query, (*facts, run.number)).rowcount


def _prune(connection: sqlite3.Connection, schedule_id: str) -> None:
    connection.execute(
        f"DELETE FROM schedule_runs WHERE schedule_id = ?1 AND state NOT IN {_LIVE} "
        "AND state != 'held' AND number NOT IN (SELECT run FROM schedule_deliveries WHERE "
        "schedule_id = ?1 AND state = 'waiting') "
        "AND (cause != 'file' OR number < (SELECT max(number) FROM schedule_runs "
        "WHERE schedule_id = ?1 AND cause = 'file')) "
        "AND number <= (SELECT number FROM schedule_runs WHERE schedule_id = ?1 "
        "ORDER BY number DESC LIMIT 1 OFFSET ?2)",
        (schedule_id, MAX_KEPT),
    )


def _schedule(row: tuple[Any, ...]) -> Schedule:
    return Schedule(
        id=row[0],
        owner=row[1],
        name=row[2],
        created_at=row[3],
        is_paused=bool(row[4]),
        next_at=row[5],
        job=msgspec.json.decode(row[6], type=ScheduledJob),
    )


def _delivery(row: tuple[Any, ...]) -> Delivery:
    return msgspec.convert(dict(zip(Delivery.__struct_fields__, row, strict=True)), Delivery)


def _run(row: tuple[Any, ...]) -> JobRun:
    return msgspec.convert(dict(zip(JobRun.__struct_fields__, row, strict=True)), JobRun)
