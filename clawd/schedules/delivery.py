"""The result of a job, taken where its schedule names: a file, an address, a mail; nowhere else.

The file is written by a call of `file_write` through the gate, which leaves a receipt and brings
the conversation's untrusted sources along. The address is judged as those of the web tools are, and
what is posted is signed where the config names a secret. Mail goes through a program of the owner.
What fails is in the job's history, in the log, and a notice in the conversation.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage

import msgspec
import yarl

from clawd.config.secrets import schedules_secret
from clawd.config.sections import SchedulesSection
from clawd.errors import ClawError, ConfigError, InvalidRequestError, StoppedError
from clawd.memory.schedules import JobRun, Schedule, ScheduledJob
from clawd.runtime.calls import Calls, ClientCall, new_call_id
from clawd.runtime.conversation import ConversationBook
from clawd.runtime.hub import DaemonEvent
from clawd.schedules.scheduler import JobWorker, RunEnd, TurnWorker
from clawd.security.estop import ESTOP_REASON, Stop
from clawd.security.network import NetworkRules, judge_url, resolve_and_judge
from clawd.security.principal import Principal
from clawd.tools.outcome import CallRequest
from clawd.wire.events import Notice
from clawd.wire.safe_text import shortened, single_line

SEND_LIMIT_S = 30.0
MAX_TEXT = 256 * 1024
_PASSED = ("PATH", "HOME", "LANG")
_ADDRESS = re.compile(r"[A-Za-z0-9._+=-]{1,64}@[A-Za-z0-9.-]{1,253}")
_FIRST_ERROR = 400

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
    """Runs jobs by another worker, and delivers what came of them.

    Args:
        worker: runs them.
        turns: knows as whom a job runs.
        means: what deliveries work with.
    """

    def __init__(self, worker: JobWorker, turns: TurnWorker, means: DeliveryMeans) -> None:
        self._worker = worker
        self._turns = turns
        self._means = means

    async def run(
        self, schedule: Schedule, run: JobRun, begun: Callable[[str], Awaitable[None]]
    ) -> RunEnd:
        """Run one time of a job to its end, and deliver its result.

        Raises:
            ClawError: its owner may not do this any more.
        """
        at = run

        async def noted(conversation_id: str) -> None:
            nonlocal at
            at = msgspec.structs.replace(run, conversation_id=conversation_id)
            await begun(conversation_id)

        principal = await self._turns.principal_of(schedule)
        try:
            end = await self._worker.run(schedule, run, noted)
        except ClawError as error:
            end = RunEnd(state="failed", detail=error.message)
        if end.state == "running":
            return end
        problems = await self._deliver(schedule, at, end, principal)
        if not problems:
            return end
        why = f"not delivered: {'; '.join(problems)}"
        _log.warning(
            "%s: %s", schedule.name, why, extra={"schedule": schedule.id, "run": at.number}
        )
        self._means.book.hub.emit(
            DaemonEvent(
                event=Notice(level="warning", text=f"schedule {schedule.name}: {why}"),
                owner=schedule.owner,
                conversation_id=at.conversation_id,
            )
        )
        return msgspec.structs.replace(end, detail=f"{end.detail}; {why}")

    async def goes_on(self, schedule: Schedule, run: JobRun) -> bool:
        """Return whether what another daemon began goes on in this one."""
        return await self._worker.goes_on(schedule, run)

    async def _deliver(
        self, schedule: Schedule, run: JobRun, end: RunEnd, principal: Principal
    ) -> list[str]:
        """Deliver a result everywhere that its schedule names; return what failed, and why."""
        job, problems = schedule.job, list[str]()
        redact = self._means.redact
        result = JobResult(
            schedule=schedule.name,
            run=run.number,
            due_at=f"{datetime.fromtimestamp(run.due_at, UTC):%Y-%m-%dT%H:%M:%SZ}",
            state=end.state,
            detail=redact(end.detail),
            text=shortened(redact(end.text), MAX_TEXT),
            conversation_id=run.conversation_id,
        )
        ways = (
            ("file", job.to_file, self._write),
            ("webhook", job.webhook, self._post),
            ("mail", job.mail, self._send_mail),
        )
        for name, where, deliver in ways:
            if not where:
                continue
            try:
                if self._means.stop.is_set():
                    raise StoppedError(ESTOP_REASON)
                async with asyncio.timeout(SEND_LIMIT_S):
                    await deliver(job, result, principal)
            except TimeoutError:
                problems.append(f"{name}: it took over {SEND_LIMIT_S:g} s")
            except ClawError as error:
                problems.append(f"{name}: {single_line(_hidden(error.message, job), 200)}")
            except Exception as error:  # noqa: BLE001 - the other ways are taken all the same
                # Only what kind it is: addresses and programs may hold secrets.
                problems.append(f"{name}: {type(error).__name__}")
        return problems

    async def _write(self, job: ScheduledJob, result: JobResult, principal: Principal) -> None:
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
        if outcome.status != "allowed":
            raise InvalidRequestError(outcome.text)

    async def _post(self, job: ScheduledJob, result: JobResult, _principal: Principal) -> None:
        body, headers = msgspec.json.encode(result), {"Content-Type": "application/json"}
        secret = schedules_secret(self._means.section(), self._means.environ)
        if secret:
            headers["X-Clawd-Signature"] = signature(secret, body, int(time.time()))
        status = await post(job.webhook, body, headers, self._means.rules())
        if status >= _FIRST_ERROR or status // 100 == 3:
            raise InvalidRequestError(f"the address answered {status}")

    async def _send_mail(self, job: ScheduledJob, result: JobResult, _principal: Principal) -> None:
        command = self._means.section().mail_command
        if not command:
            raise ConfigError("no mail_command in [schedules] of the config")
        mail = EmailMessage()
        mail["To"] = job.mail
        mail["Subject"] = single_line(f"clawd: {result.schedule}: {result.state}", 120)
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(
            f"{result.text}\n\n-- \n{result.state}: {result.detail}\n"
            f"clawctl conversation show {result.conversation_id}\n"
        )
        environ = {
            name: self._means.environ[name] for name in _PASSED if name in self._means.environ
        }
        code = await run_program(command, mail.as_bytes(), environ)
        if code:
            raise InvalidRequestError(f"mail_command ended with {code}")


def check_delivery(job: ScheduledJob, section: SchedulesSection, rules: NetworkRules) -> None:
    """Refuse places for a result that cannot be meant.

    Raises:
        ClawError: the address leads nowhere that it may, or mail cannot be sent.
    """
    if job.webhook:
        judge_url(job.webhook, rules)
    if job.mail and not _ADDRESS.fullmatch(job.mail):
        raise InvalidRequestError(f"{single_line(job.mail, 80)!r} is no address of mail")
    if job.mail and not section.mail_command:
        raise ConfigError(
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
