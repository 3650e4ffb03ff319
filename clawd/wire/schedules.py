"""Methods about schedules, and what they report."""

from typing import Any, Literal

import msgspec

from clawd.wire.method import Done, Method

MissedWord = Literal["once", "skip", "all"]
Overlap = Literal["parallel", "hold", "coalesce", "drop"]


class ScheduleTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule is made of, wherever it stands.

    Attributes:
        quiet: hours in which nothing begins, `22:00-07:00`; "" for none.
        jitter_s: it begins up to so many seconds later, always as many.
        missed: of times that were missed: run the last one, none, or all.
        overlap: what is done while the time before still runs.
        tools: patterns of the tools that it may use; () for all that the door offers.
        grants: patterns of calls that need no approval; no standing rule of its owner allows any.
        to_file: that its result is written to, in the workspace; "" for none.
        webhook: an address that its result is posted to; it may hold a secret.
        mail: an address that its result is mailed to.
        folder: where a finished file begins it; "" for none.
        pattern: of the names of these files.
        server: of MCP, by its alias, that begins it by what it tells; "" for none.
        on: what that is: `resource URI`, `resources`, `tools`, `log LEVEL` or `log LEVEL LOGGER`.
        sop: the procedure that it starts instead of a prompt; "" for none.
        inputs: of the procedure.
    """

    quiet: str = ""
    jitter_s: int = 0
    missed: MissedWord = "once"
    overlap: Overlap = "coalesce"
    tools: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    agent: str = ""
    provider: str = ""
    model: str = ""
    to_file: str = ""
    webhook: str = ""
    mail: str = ""
    folder: str = ""
    pattern: str = "*"
    server: str = ""
    on: str = ""
    sop: str = ""
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)

    def terms(self) -> dict[str, Any]:
        """Return these fields alone, by name."""
        return {name: getattr(self, name) for name in ScheduleTerms.__struct_fields__}


class ScheduleDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """Where a result goes, and how that stands.

    Attributes:
        way: file, webhook or mail.
        state: waiting (to be tried, or tried again), delivered or given_up.
        tries: how often it was tried.
        next_at: when it is tried next; UTC, ISO 8601, "" for at once and for never.
        problem: why the last try failed, or why it was given up.
    """

    way: str
    state: str
    tries: int = 0
    next_at: str = ""
    problem: str = ""


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """One time of a schedule; moments are UTC, ISO 8601, "" for never.

    Attributes:
        cause: time, hand, file, hook or mcp.
        state: held, claimed, running, finished, unanswered (an approval that nobody gave was in
            its way), failed, lost, missed, dropped or merged.
        due_at: when it should have begun.
        times: how many times this line stands for, which were all missed.
        detail: how it ended, or why it did not begin.
        deliveries: where its result goes.
    """

    number: int
    cause: str
    state: str
    due_at: str
    times: int = 1
    began_at: str = ""
    ended_at: str = ""
    conversation_id: str = ""
    detail: str = ""
    deliveries: tuple[ScheduleDelivery, ...] = ()


class ScheduleLine(ScheduleTerms, frozen=True, kw_only=True):
    """One schedule; `last` is its newest time, and `wakes_at` when it begins next, or "".

    `has_hook` is whether requests over HTTP begin it; `hook_secret` stands in the report of its
    making alone. `zone` is that of quiet hours, and of `when` where that names none. Of `webhook`
    nothing stands here but the host: the rest may be a secret. `problem` is why it cannot be read,
    or why `server` begins nothing now.
    """

    id: str
    name: str
    owner: int
    when: str
    zone: str
    prompt: str
    workspace: str
    mode: str
    is_paused: bool = False
    wakes_at: str = ""
    has_hook: bool = False
    hook_secret: str = ""
    problem: str = ""
    last: ScheduleRun | None = None


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that a client may see."""

    items: tuple[ScheduleLine, ...]


class ListSchedules(Method[ScheduleList], frozen=True, kw_only=True):
    """List schedules, those of all owners for an admin."""


class AddSchedule(ScheduleTerms, Method[ScheduleLine], frozen=True, kw_only=True):
    """Have a prompt run at times, as a conversation of its own, or the procedure `sop`.

    `when` is a calendar expression of systemd, `every 2h`, `at 2026-12-24 18:00` or `in 20m`; empty
    for a schedule that is run by hand or by files: `folder` is one of the workspace in which a
    finished file begins it whose name matches `pattern`; `server` and `on` have a server of MCP
    begin it that is configured; with `hook` requests over HTTP begin it
    that show the secret which is reported now and never again. `zone` and `quiet` are as configured
    where they are empty, `mode` is the configured autonomy, at most supervised. `tools` are
    patterns of the tools that it may use; none takes nothing out. `grants` are patterns of calls
    that need no approval, as of rules; standing rules of its owner allow nothing there. Its result
    goes to `to_file` in the workspace, to `webhook` and to `mail`, where they are named. A
    procedure takes no tools, agent, provider, model or folder.
    """

    name: str
    prompt: str = ""
    when: str = ""
    zone: str = ""
    workspace: str = ""
    mode: Literal["", "readonly", "supervised", "edits", "full"] = ""
    hook: bool = False


class PauseSchedule(Method[ScheduleLine], frozen=True, kw_only=True):
    """Pause a schedule, or let it go on (`resume`); times in between do not count as missed."""

    name: str
    resume: bool = False


class RunSchedule(Method[ScheduleRun], frozen=True, kw_only=True):
    """Run a schedule now, beside its times.

    `key` makes a hook of it: what came with the same one is not run again. `body` is untrusted
    text that began it.
    """

    name: str
    key: str = ""
    body: str = ""


class RemoveSchedule(Method[Done], frozen=True, kw_only=True):
    """Remove a schedule and its history; its procedures are cancelled, its conversations stay."""

    name: str


class ScheduleHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The newest times of a schedule, newest first."""

    items: tuple[ScheduleRun, ...]


class ListScheduleRuns(Method[ScheduleHistory], frozen=True, kw_only=True):
    """List times of a schedule: run, waiting, missed, lost; newest first."""

    name: str
    limit: int = 50
