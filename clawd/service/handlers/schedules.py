"""Handlers about schedules."""

import logging
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.errors import ForbiddenError, InvalidRequestError
from clawd.memory.rows import visible_to
from clawd.memory.schedules import MAX_INPUT, Cause, Delivery, JobRun, Schedule, ScheduledJob
from clawd.runtime.incoming import MAX_MESSAGE_BYTES
from clawd.schedules.delivery import check_delivery, shown_address
from clawd.schedules.drops import check_drop
from clawd.schedules.plan import local_zone, read_quiet, read_rule, read_zone
from clawd.schedules.scheduler import origin_of, times_of
from clawd.schedules.server_events import check_event, problems_of
from clawd.security.approvals import meant
from clawd.security.keys import HOOK_START, hook_digest
from clawd.security.risk import Autonomy, autonomy_rank
from clawd.service.build import Daemon
from clawd.service.state import network_rules_of
from clawd.sop.runner import given_inputs
from clawd.tools.base import in_thread
from clawd.wire import schedules
from clawd.wire.codec import mirror
from clawd.wire.method import PAGE_LIMIT, Done
from clawd.wire.safe_text import single_line

MAX_NAME = 64
MAX_PATTERNS = 64
MAX_JITTER_S = 86_400

_log = logging.getLogger(__name__)


async def list_schedules(
    daemon: Daemon, _params: schedules.ListSchedules, call: Call
) -> schedules.ScheduleList:
    """List schedules."""
    found = await daemon.memory.schedules.all(visible_to(call.principal))
    visible = [each for each in found if _may_see(each, call)]
    return schedules.ScheduleList(items=tuple([await _line(daemon, each) for each in visible]))


async def add_schedule(
    daemon: Daemon, params: schedules.AddSchedule, call: Call
) -> schedules.ScheduleLine:
    """Have a prompt run at times, with no more rights than the client has."""
    _check(daemon)
    _check_form(params)
    section, runtime = daemon.state.loaded.config.schedules, daemon.state.runtime
    runtime.agent(params.agent)
    mode: Autonomy = params.mode or _default_mode(daemon)
    daemon.inbox.book.check_mode(mode, call.principal)
    now = int(time.time())
    workspace = runtime.resolve_workspace(params.workspace)
    check_event(params.server, params.on)
    if params.server:
        daemon.mcp.directory.check_configured(params.server)
    if params.sop:
        sop = await in_thread(lambda: daemon.sops.store.review(params.sop, workspace))
        if not sop.problems:
            given_inputs(sop.procedure.inputs, params.inputs)
    job = ScheduledJob(
        **params.terms()
        | {
            "folder": check_drop(params.folder, workspace) if params.folder else "",
            "quiet": params.quiet or section.quiet,
            "grants": _grants(params, call),
        },
        prompt=params.prompt,
        workspace=str(workspace),
        since_ns=time.time_ns(),
        when=params.when.strip(),
        zone=params.zone or section.timezone or local_zone(),
        mode=mode,
        door=call.door,
        key_id=call.principal.key_id,
    )
    hook = HOOK_START + secrets.token_hex(32) if params.hook else ""
    if hook:
        job = msgspec.structs.replace(job, hook=hook_digest(hook))
    check_delivery(job, section, network_rules_of(daemon.state.loaded))
    zone = read_zone(job.zone)
    read_quiet(job.quiet)
    if job.when:
        read_rule(job.when, zone, now)
    made = Schedule(name=params.name, owner=call.principal.uid, job=job, created_at=now)
    made = await daemon.memory.schedules.add(_from(made, now))
    daemon.scheduler.wake()
    _log.info("schedule added", extra=_facts(made, call))
    return msgspec.structs.replace(await _line(daemon, made), hook_secret=hook)


async def pause_schedule(
    daemon: Daemon, params: schedules.PauseSchedule, call: Call
) -> schedules.ScheduleLine:
    """Pause a schedule, or let it go on."""
    found = await _own(daemon, params.name, call)
    now = int(time.time())
    paused = not params.resume
    next_at = _from(found, now).next_at if found.is_paused and params.resume else found.next_at
    await daemon.memory.schedules.change(found.id, paused=paused, next_at=next_at)
    daemon.scheduler.wake()
    _log.info("schedule paused" if paused else "schedule resumed", extra=_facts(found, call))
    return await _line(daemon, await daemon.memory.schedules.find(found.id, None))


async def run_schedule(
    daemon: Daemon, params: schedules.RunSchedule, call: Call
) -> schedules.ScheduleRun:
    """Run a schedule now."""
    _check(daemon)
    if len(params.body) > MAX_INPUT or len(params.key) > MAX_NAME:
        raise InvalidRequestError(f"what begins a schedule has at most {MAX_INPUT} characters")
    found = await _own(daemon, params.name, call)
    cause: Cause = "hook" if params.key else "hand"
    if cause == "hook" and found.is_paused:
        raise ForbiddenError("the schedule is paused")
    key = f"h{params.key}" if params.key else ""
    run = await daemon.scheduler.fire(found, cause, key=key, text=params.body)
    # One that came before is nothing new.
    return (
        schedules.ScheduleRun(number=0, cause=cause, state="merged", due_at="")
        if run is None
        else _run(run)
    )


async def remove_schedule(daemon: Daemon, params: schedules.RemoveSchedule, call: Call) -> Done:
    """Remove a schedule and its history."""
    found = await _own(daemon, params.name, call)
    await daemon.memory.schedules.remove(found.id)
    daemon.scheduler.wake()
    if found.job.sop:
        open_runs = await daemon.sops.listed(
            call.principal, name=found.job.sop, open_only=True, limit=PAGE_LIMIT
        )
        for run in open_runs:
            if run.origin.startswith(origin_of(found)):
                await daemon.sops.cancel(run.id, call.principal)
    _log.info("schedule removed", extra=_facts(found, call))
    return Done(message=f"{found.name} is removed")


async def list_schedule_runs(
    daemon: Daemon, params: schedules.ListScheduleRuns, call: Call
) -> schedules.ScheduleHistory:
    """List times of a schedule."""
    found = await _own(daemon, params.name, call)
    limit = min(max(params.limit, 1), PAGE_LIMIT)
    runs = await daemon.memory.schedules.history(found.id, limit)
    deliveries = await daemon.memory.schedules.deliveries(found.id)
    return schedules.ScheduleHistory(items=tuple(_run(run, deliveries) for run in runs))


async def _own(daemon: Daemon, name: str, call: Call) -> Schedule:
    """Return a schedule by its name or id: the client's own first, then one of anybody's.

    Raises:
        NotFoundError: there is none that the client may see.
    """
    store, uid = daemon.memory.schedules, call.principal.uid
    own = [each for each in await store.all(uid) if each.name == name and _may_see(each, call)]
    found = own[0] if own else await store.find(name, visible_to(call.principal))
    if not _may_see(found, call):
        raise ForbiddenError("this schedule was made with another key")
    return found


def _may_see(schedule: Schedule, call: Call) -> bool:
    return call.principal.may_see(schedule.owner, schedule.job.key_id)


def _check(daemon: Daemon) -> None:
    if not daemon.state.loaded.config.schedules.enabled:
        raise ForbiddenError(
            "schedules are switched off", hint="Set enabled = true in [schedules] of the config."
        )


def _check_form(params: schedules.AddSchedule) -> None:
    if not params.name or len(params.name) > MAX_NAME or single_line(params.name) != params.name:
        raise InvalidRequestError(f"a schedule has a name of at most {MAX_NAME} characters")
    if (
        not 0 <= params.jitter_s <= MAX_JITTER_S
        or max(len(params.tools), len(params.grants)) > MAX_PATTERNS
        or len(params.pattern) > MAX_NAME
    ):
        raise InvalidRequestError(
            f"jitter is at most {MAX_JITTER_S} s, and there are at most {MAX_PATTERNS} patterns"
        )
    if bool(params.prompt.strip()) == bool(params.sop):
        raise InvalidRequestError("a schedule has either a prompt or a procedure")
    if len(params.prompt.encode()) > MAX_MESSAGE_BYTES // 16:
        raise InvalidRequestError("a prompt of a schedule has at most 256 KiB")
    of_turns = (params.tools, params.agent, params.provider, params.model, params.folder)
    if params.sop and any(of_turns):
        raise InvalidRequestError(
            "a procedure takes no tools, agent, provider, model or folder of a schedule",
            hint="Its steps name what they use.",
        )
    if params.inputs and not params.sop:
        raise InvalidRequestError("only a procedure has inputs")


def _grants(params: schedules.AddSchedule, call: Call) -> tuple[str, ...]:
    """Return the patterns that need no approval.

    Raises:
        InvalidRequestError: one of them is none.
        ForbiddenError: the client may not make rules.
    """
    if params.grants and call.door == "http":
        raise ForbiddenError("grants are made on the machine itself: clawctl schedule add --grant")
    for pattern in params.grants:
        meant(pattern)
    return params.grants


def _default_mode(daemon: Daemon) -> Autonomy:
    """Return the configured autonomy, but none that goes further than supervised."""
    configured = daemon.state.policy.autonomy
    return configured if autonomy_rank(configured) < autonomy_rank("supervised") else "supervised"


def _from(schedule: Schedule, now: int) -> Schedule:
    """Return a schedule whose next time is the first after now."""
    next_at = times_of(schedule).after(now) if schedule.job.when else None
    return msgspec.structs.replace(schedule, next_at=next_at)


async def _line(daemon: Daemon, schedule: Schedule) -> schedules.ScheduleLine:
    job = schedule.job
    last = await daemon.memory.schedules.history(schedule.id, 1)
    wakes_at = problem = ""
    try:
        if schedule.next_at is not None and not schedule.is_paused:
            wakes_at = _moment(times_of(schedule).wakes_at(schedule.next_at, time.time()))
    except InvalidRequestError as error:
        problem = f"{error.message}; remove it and add it anew"
    if job.server and not problem:
        of_servers = problems_of(daemon.mcp.directory.states())
        why = of_servers.get(job.server, "is not configured")
        problem = f"the MCP server {job.server} {why}" if why else ""
    return schedules.ScheduleLine(
        **job.terms() | {"webhook": shown_address(job.webhook)},
        id=schedule.id,
        name=schedule.name,
        owner=schedule.owner,
        when=job.when,
        zone=job.zone,
        prompt=job.prompt,
        workspace=job.workspace,
        mode=job.mode,
        is_paused=schedule.is_paused,
        wakes_at=wakes_at,
        has_hook=bool(job.hook),
        problem=problem,
        last=_run(last[0]) if last else None,
    )


def _run(run: JobRun, deliveries: Sequence[Delivery] = ()) -> schedules.ScheduleRun:
    moments = {name: _moment(getattr(run, name)) for name in ("due_at", "began_at", "ended_at")}
    return mirror(
        schedules.ScheduleRun,
        run,
        **moments,
        deliveries=tuple(
            schedules.ScheduleDelivery(
                way=each.way,
                state=each.state,
                tries=each.tries,
                next_at=_moment(each.next_at) if each.state == "waiting" else "",
                problem=each.problem,
            )
            for each in deliveries
            if each.run == run.number
        ),
    )


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" if at else ""


def _facts(schedule: Schedule, call: Call) -> dict[str, object]:
    return {"schedule": schedule.id, "owner": schedule.owner, "by": call.principal.uid}
