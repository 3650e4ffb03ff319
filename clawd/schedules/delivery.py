"""The result of a job, taken where its schedule names: a file, an address, a mail; nowhere else.

The file is written by a call of `file_write` through the gate, which leaves a receipt and brings
the conversation's untrusted sources along. The address is judged as those of the web tools are, and
what is posted is signed where the config names a secret. Mail goes through a program of the owner.
What fails is tried again later and later, over ends of the daemon, and then given up; the job's
history says how it stands, and a notice that it was given up.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import NamedTuple

import msgspec
import yarl

from clawd import errors
from clawd.config.secrets import schedules_secret
from clawd.config.sections import SchedulesSection
from clawd.memory.schedules import (
    MAX_UNDELIVERED,
    Delivery,
    JobRun,
    Schedule,
    ScheduledJob,
    Schedules,
    Way,
)
from clawd.providers.reliable import is_passing
from clawd.receipts.record import new_ulid
from clawd.runtime.calls import Calls, ClientCall, new_call_id
from clawd.runtime.conversation import ConversationBook
from clawd.runtime.hub import DaemonEvent
from clawd.schedules.scheduler import JobWorker, RunEnd, TurnWorker
from clawd.security.estop import Stop
from clawd.security.network import NetworkRules, judge_url, resolve_and_judge
from clawd.security.principal import Principal
from clawd.tools.outcome import CallRequest
from clawd.wire.events import Notice
from clawd.wire.safe_text import shortened, single_line

SEND_LIMIT_S = 30.0
MAX_TEXT = 256 * 1024
_PASSED = ("PATH", "HOME", "LANG")
_ADDRESS = re.compile(r"[A-Za-z0-9._+=-]{1,64}@[A-Za-z0-9.-]{1,253}")
_FIRST_ERROR, _FIRST_SERVER_ERROR = 400, 500
_PASSING_STATUS = {408, 425, 429}
RECHECK_S = 15.0
MAX_SIDE_BY_SIDE = 8

_log = logging.getLogger(__name__)


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is reported of one time of a job; `text` is the last answer of its turn."""

    schedule: str
    run: int
    due_at: str
    state: str
    detail: str
    text: str
    conversation_id: str


class DeliveryMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What deliveries work with; all but the book are as they are when one is made.

    Attributes:
        calls: returns what makes calls of tools.
        section: returns the section of the config in force.
        rules: returns where an address may lead.
        environ: of the daemon.
        redact: replaces secrets.
    """

    book: ConversationBook
    calls: Callable[[], Calls]
    section: Callable[[], SchedulesSection]
    rules: Callable[[], NetworkRules]
    environ: Mapping[str, str]
    redact: Callable[[str], str]
    stop: Stop


class Deliverer:
    """Runs jobs by another worker, and delivers what came of them, again until it is there.

    A result is in memory, with how its time ended, before it goes anywhere; a try that was under
    way when the daemon was killed is made again, with the same key.

    Args:
        worker: runs them.
        turns: knows as whom a job runs.
        store: keeps what is on its way.
        means: what deliveries work with.
    """

    def __init__(
        self, worker: JobWorker, turns: TurnWorker, store: Schedules, means: DeliveryMeans
    ) -> None:
        self._worker = worker
        self._turns = turns
        self._store = store
        self._means = means
        self._task: asyncio.Task[None] | None = None
        self._tries: dict[int, asyncio.Task[None]] = {}
        # Tried, and what came of that not known to be on record: the next daemon goes on with them.
        self._unnoted = set[int]()

    def start(self, watch: Callable[[asyncio.Task[None], str], None]) -> None:
        """Begin to deliver; `watch` is called with the task and its name."""
        self._task = asyncio.create_task(self._go_on())
        watch(self._task, "deliveries of schedules")

    async def close(self) -> None:
        """End; what is on its way goes on in the next daemon. Idempotent."""
        tasks = [each for each in (self._task, *self._tries.values()) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run(
        self, schedule: Schedule, run: JobRun, begun: Callable[[str], Awaitable[None]]
    ) -> RunEnd:
        """Run one time of a job to its end, and say where its result goes.

        Raises:
            ClawError: its owner may not do this any more.
        """
        at = run

        async def noted(conversation_id: str) -> None:
            nonlocal at
            at = msgspec.structs.replace(run, conversation_id=conversation_id)
            await begun(conversation_id)

        await self._turns.principal_of(schedule)
        try:
            end = await self._worker.run(schedule, run, noted)
        except errors.ClawError as error:
            end = RunEnd(state="failed", detail=error.message)
        if end.state == "running":
            return end
        return msgspec.structs.replace(end, to=self._places(schedule, at, end))

    async def goes_on(self, schedule: Schedule, run: JobRun) -> bool:
        """Return whether what another daemon began goes on in this one."""
        return await self._worker.goes_on(schedule, run)

    def _places(self, schedule: Schedule, run: JobRun, end: RunEnd) -> tuple[Delivery, ...]:
        """Return a delivery for each place that a job names."""
        job, redact = schedule.job, self._means.redact
        result = JobResult(
            schedule=schedule.name,
            run=run.number,
            due_at=f"{datetime.fromtimestamp(run.due_at, UTC):%Y-%m-%dT%H:%M:%SZ}",
            state=end.state,
            detail=redact(end.detail),
            text=shortened(redact(end.text), MAX_TEXT),
            conversation_id=run.conversation_id,
        )
        ways: dict[Way, str] = {"file": job.to_file, "webhook": job.webhook, "mail": job.mail}
        return tuple(
            Delivery(
                schedule_id=schedule.id,
                run=run.number,
                way=way,
                key=f"clawd-{new_ulid()}",
                result=msgspec.json.encode(result).decode(),
            )
            for way, where in ways.items()
            if where
        )

    async def _go_on(self) -> None:
        while True:
            self._store.to_deliver.clear()
            wait_s = RECHECK_S
            try:
                if not self._means.stop.is_set():
                    wait_s = min(wait_s, await self._look())
            except errors.ClawError as error:
                _log.error("what is to be delivered cannot be looked at: %s", error.message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._store.to_deliver.wait()

    async def _look(self) -> float:
        """Try what is due; return in how many seconds something is due again."""
        waiting, now, wait_s = await self._store.undelivered(), time.time(), RECHECK_S
        # One that is under way may be delivered, or given up, by now.
        left_out = self._tries.keys() | self._unnoted
        waiting = [each for each in waiting if each.number not in left_out]
        waits = Counter(each.schedule_id for each in waiting)
        for each in sorted(waiting, key=lambda one: one.number):
            is_too_many = waits[each.schedule_id] > MAX_UNDELIVERED
            waits[each.schedule_id] -= is_too_many
            if len(self._tries) >= MAX_SIDE_BY_SIDE:
                break
            if is_too_many or each.next_at <= now:
                why = f"{MAX_UNDELIVERED} newer ones wait" if is_too_many else ""
                task = asyncio.create_task(self._try(each.number, why))
                self._tries[each.number] = task
            else:
                wait_s = min(wait_s, each.next_at - now)
        return wait_s

    async def _try(self, number: int, why_not: str) -> None:
        """Try a delivery once, and note what came of that."""
        try:
            delivery = await self._store.delivery(number)
            if delivery is not None:
                schedule = await self._store.find(delivery.schedule_id, None)
                result = msgspec.json.decode(delivery.result, type=JobResult)
                tried = Tried(why_not, is_final=True)
                if not why_not:
                    self._unnoted.add(number)
                    tried = await self._tried(schedule, result, delivery)
                await self._note(schedule, result, delivery, tried)
                self._unnoted.discard(number)
        except errors.NotFoundError:
            pass  # its job was removed, and what it had on its way
        except errors.ClawError as error:
            _log.error("what became of a delivery is not on record: %s", error.message)
            return  # to the next look: a disk that is full now is so at once again
        finally:
            del self._tries[number]
        self._store.to_deliver.set()

    async def _tried(self, schedule: Schedule, result: JobResult, delivery: Delivery) -> "Tried":
        """Deliver a result; return why that failed, "" where it did not."""
        ways: dict[Way, Callable[[_Parcel], Awaitable[str]]] = {
            "file": self._write,
            "webhook": self._post,
            "mail": self._send_mail,
        }
        try:
            principal = await self._turns.principal_of(schedule)
            parcel = _Parcel(schedule.job, result, principal, delivery.key)
            if delivery.way == "file" and await self._is_old(delivery):
                return Tried("a newer result stands there", is_final=True)
            async with asyncio.timeout(SEND_LIMIT_S):
                return Tried(await ways[delivery.way](parcel))
        except TimeoutError:
            # A call that takes so long waits for a person, who was asked once.
            return Tried(f"it took over {SEND_LIMIT_S:g} s", is_final=delivery.way == "file")
        except errors.ClawError as error:
            why = single_line(_hidden(error.message, schedule.job), 200)
            is_passing_by = isinstance(error, errors.BusyError | errors.StorageError) or is_passing(
                error
            )
            return Tried(why, is_final=not is_passing_by)
        except Exception as error:  # noqa: BLE001 - whatever it is, it may be another next time
            # Only what kind it is: addresses and programs may hold secrets.
            return Tried(type(error).__name__)

    async def _is_old(self, delivery: Delivery) -> bool:
        """Return whether a later time of the job has a result for the same file."""
        others = await self._store.deliveries(delivery.schedule_id)
        return any(each.way == delivery.way and each.run > delivery.run for each in others)

    async def _note(
        self, schedule: Schedule, result: JobResult, delivery: Delivery, tried: "Tried"
    ) -> None:
        """Keep what came of a try; tell a person what is given up."""
        delays, tries = self._means.section().retry_after_s, delivery.tries + 1
        if not tried.problem:
            delivery = msgspec.structs.replace(delivery, state="delivered", tries=tries, problem="")
        elif tried.is_final or tries > len(delays):
            delivery = msgspec.structs.replace(
                delivery, state="given_up", tries=tries, problem=tried.problem
            )
        else:
            delay_s = delays[tries - 1] * random.uniform(0.9, 1.1)  # noqa: S311 - spreads tries
            delivery = msgspec.structs.replace(
                delivery, tries=tries, problem=tried.problem, next_at=time.time() + delay_s
            )
        await self._store.tried(delivery)
        if delivery.state == "delivered":
            return
        why = f"not delivered: {delivery.way}: {tried.problem}"
        facts = {"schedule": schedule.id, "run": delivery.run, "tries": tries}
        if delivery.state == "waiting":
            _log.info("%s: %s; it is tried again", schedule.name, why, extra=facts)
            return
        _log.warning("%s: %s", schedule.name, why, extra=facts)
        told = (
            f"schedule {schedule.name}: its result was not delivered by {delivery.way}, tries: "
            f"{tries}; clawctl schedule history {schedule.name} says why"
        )
        self._means.book.hub.emit(
            DaemonEvent(
                event=Notice(level="warning", text=told),
                owner=schedule.owner,
                conversation_id=result.conversation_id,
                is_news=True,
            )
        )

    async def _write(self, parcel: "_Parcel") -> str:
        job, result, principal, _ = parcel
        text = result.text or f"{result.state}: {result.detail}"
        arguments = {"path": job.to_file, "content": text.rstrip("\n") + "\n"}
        request = CallRequest(
            id=new_call_id(), tool="file_write", arguments=msgspec.json.encode(arguments).decode()
        )
        with self._means.book.beside(result.conversation_id) as lent:
            visit = ClientCall(conversation_id=lent, workspace=job.workspace)
            outcome = await self._means.calls().visit(
                request, principal, visit, lambda _event: None
            )
        if outcome.status == "failed":
            return single_line(outcome.text, 200)
        if outcome.status != "allowed":
            raise errors.InvalidRequestError(outcome.text)
        return ""

    async def _post(self, parcel: "_Parcel") -> str:
        job, result, _, key = parcel
        body = msgspec.json.encode(result)
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        secret = schedules_secret(self._means.section(), self._means.environ)
        if secret:
            headers["X-Clawd-Signature"] = signature(secret, body, int(time.time()))
        status = await post(job.webhook, body, headers, self._means.rules())
        why = f"the address answered {status}"
        if status >= _FIRST_SERVER_ERROR or status in _PASSING_STATUS:
            return why
        if status >= _FIRST_ERROR or status // 100 == 3:
            raise errors.InvalidRequestError(why)
        return ""

    async def _send_mail(self, parcel: "_Parcel") -> str:
        job, result, _, key = parcel
        command = self._means.section().mail_command
        if not command:
            raise errors.ConfigError("no mail_command in [schedules] of the config")
        mail = EmailMessage()
        mail["To"] = job.mail
        mail["Subject"] = single_line(f"clawd: {result.schedule}: {result.state}", 120)
        mail["Auto-Submitted"] = "auto-generated"
        mail["Message-ID"] = f"<{key}@clawd>"
        mail.set_content(
            f"{result.text}\n\n-- \n{result.state}: {result.detail}\n"
            f"clawctl conversation show {result.conversation_id}\n"
        )
        environ = {
            name: self._means.environ[name] for name in _PASSED if name in self._means.environ
        }
        code = await run_program(command, mail.as_bytes(), environ)
        return f"mail_command ended with {code}" if code else ""


class Tried(NamedTuple):
    """Why a try failed, "" where it did not, and whether another one is of no use."""

    problem: str
    is_final: bool = False


class _Parcel(NamedTuple):
    """What is delivered, as whom, and the key that no other delivery has."""

    job: ScheduledJob
    result: JobResult
    principal: Principal
    key: str


def check_delivery(job: ScheduledJob, section: SchedulesSection, rules: NetworkRules) -> None:
    """Refuse places for a result that cannot be meant.

    Raises:
        ClawError: the address leads nowhere that it may, or mail cannot be sent.
    """
    if job.webhook:
        judge_url(job.webhook, rules)
    if job.mail and not _ADDRESS.fullmatch(job.mail):
        raise errors.InvalidRequestError(f"{single_line(job.mail, 80)!r} is no address of mail")
    if job.mail and not section.mail_command:
        raise errors.ConfigError(
            "mail needs mail_command in [schedules] of the config",
            hint='As mail_command = ["/usr/sbin/sendmail", "-t", "-i"].',
        )


def shown_address(url: str) -> str:
    """Return an address without what of it may be a secret: all behind the host."""
    if not url:
        return ""
    try:
        found = yarl.URL(url)
        return f"{found.scheme}://{found.raw_host}" + ("" if found.path in {"", "/"} else "/…")
    except ValueError:
        return "…"


def signature(secret: str, body: bytes, at: int) -> str:
    """Return what shows that a body is clawd's and how old it is: `t=1767225600,v1=HEX`."""
    signed = f"{at}.".encode() + body
    return f"t={at},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


async def post(url: str, body: bytes, headers: Mapping[str, str], rules: NetworkRules) -> int:
    """Post to an address, through the checks of the web tools; return the status of the answer.

    Redirects are not followed, and of the answer nothing else is read.

    Raises:
        ClawError: it may not be asked.
        OSError, aiohttp.ClientError: it could not be.
    """
    from clawd.security.pinned_http import pinned_session

    pinned = await resolve_and_judge(url, rules)
    async with (
        pinned_session(pinned, timeout_s=SEND_LIMIT_S) as session,
        session.post(
            yarl.URL(pinned.target.url, encoded=True),
            data=body,
            headers={**headers, "User-Agent": "clawd"},
            allow_redirects=False,
        ) as answer,
    ):
        return answer.status


async def run_program(argv: Sequence[str], data: bytes, environ: Mapping[str, str]) -> int:
    """Run a program with data on its standard input, and return its exit status.

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.defpath, **environ},
        start_new_session=True,
    )
    try:
        await process.communicate(data)
        return process.returncode or 0
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _hidden(message: str, job: ScheduledJob) -> str:
    """Return a reason without the address, which may hold a secret."""
    return message.replace(job.webhook, shown_address(job.webhook)) if job.webhook else message
