"""`clawctl schedule`: have prompts run by themselves at times; list, pause, run and remove them."""

from datetime import datetime
from typing import Any

import click
import msgspec

from clawctl.agent_options import answering_options
from clawctl.app import App, ListingGroup, Name, json_command
from clawctl.commands.skill import directory_option
from clawctl.commands.sop import inputs_of, inputs_option
from clawctl.render import emit, emit_json, show_fields, show_table, table
from clawd.wire import schedules
from clawd.wire.method import Done
from clawd.wire.safe_text import visible_line

name_argument = click.argument("name", type=Name("schedules"))


@click.group(cls=ListingGroup)
def command() -> None:
    """Have prompts run by themselves at times, and see what became of them.

    Without a word more the schedules are listed. Each time is a conversation of its own, in the
    mode and with the tools that the schedule names; what it asks waits in clawctl approval list.
    """


@command.command("list")
@json_command(schedules.ScheduleList)
def list_(app: App, *, as_json: bool) -> None:
    """List schedules, when each begins next and how its last time ended."""
    found = app.call(schedules.ListSchedules())
    if as_json:
        emit_json(found)
        return
    headers = ("NAME", "NEXT", "LAST", "WHEN", "MODE", "FOLDER")
    rows = [(*_row(each), each.mode, each.workspace) for each in found.items]
    narrow = headers[:4], [_row(each, slice(5, 16)) for each in found.items]
    show_table(headers, rows, nothing="There are no schedules.", narrow=narrow)


def _row(line: schedules.ScheduleLine, part: slice = slice(None)) -> tuple[str, ...]:
    """Return a schedule's first cells, with so much of its moments."""
    return (
        line.name,
        "paused" if line.is_paused else line.problem or _local(line.wakes_at)[part],
        f"{line.last.state} {_local(line.last.due_at)[part]}" if line.last else "-",
        line.when or _other_trigger(line),
    )


@command.command()
@click.argument("name")
@click.option("-m", "--message", "prompt", default="", help="What the model is asked each time.")
@click.option("--sop", default="", metavar="NAME", help="A procedure to start instead.")
@inputs_option
@click.option(
    "--when",
    default="",
    metavar="TIMES",
    help="As 'Mon..Fri 07:00', 'every 2h', 'at 2026-12-24 18:00' or 'in 20m'; without: by hand.",
)
@click.option("--drop", "folder", default="", metavar="FOLDER", help="When a file comes in there.")
@click.option("--pattern", default="*", metavar="GLOB", help="Only files of such names.")
@click.option(
    "--mcp", "server", default="", metavar="SERVER", help="When it tells what --on names."
)
@click.option(
    "--on",
    default="",
    metavar="EVENT",
    help="Of an MCP server: 'resource URI', 'resources', 'tools' or 'log LEVEL [LOGGER]'.",
)
@click.option("--hook", is_flag=True, help="When a request over HTTP shows a secret of its own.")
@click.option("--zone", default="", help="Time zone of its clocks, as Europe/Berlin.")
@click.option("--quiet", default="", metavar="HOURS", help="Begin nothing in 22:00-07:00.")
@click.option(
    "--jitter",
    "jitter_s",
    type=int,
    default=0,
    metavar="SECONDS",
    help="Begin up to so much later.",
)
@click.option(
    "--missed",
    type=click.Choice(["once", "skip", "all"]),
    default="once",
    help="Of times that were missed: run the last, none, or all.",
)
@click.option(
    "--overlap",
    type=click.Choice(["parallel", "hold", "coalesce", "drop"]),
    default="coalesce",
    help="While the last one runs: beside it, after it, once after it, or not at all.",
)
@click.option(
    "--mode",
    type=click.Choice(["readonly", "supervised", "edits", "full"]),
    default=None,
    help="How far the model may go unasked.",
)
@click.option(
    "--tools", multiple=True, metavar="PATTERN", help="Only tools of these patterns; repeatable."
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="PATTERN",
    help="Ask about no such call, as 'git commit *' or 'file_write out/**'; repeatable.",
)
@click.option("--to-file", default="", metavar="PATH", help="Write the result there.")
@click.option("--to-webhook", "webhook", default="", metavar="URL", help="Post the result there.")
@click.option("--to-mail", "mail", default="", metavar="ADDRESS", help="Mail the result there.")
@answering_options
@directory_option
@json_command(schedules.ScheduleLine)
def add(app: App, /, *, as_json: bool, **options: Any) -> None:
    """Have a prompt or a procedure run at times as schedule NAME."""
    options["inputs"] = inputs_of(options.pop("given"))
    options["mode"] = options["mode"] or ""
    request = msgspec.convert(options, schedules.AddSchedule)
    _show(app.call(request), as_json=as_json)


@command.command()
@name_argument
@json_command(schedules.ScheduleLine)
def pause(app: App, name: str, *, as_json: bool) -> None:
    """Begin a schedule no more until it is resumed."""
    _show(app.call(schedules.PauseSchedule(name=name)), as_json=as_json)


@command.command()
@name_argument
@json_command(schedules.ScheduleLine)
def resume(app: App, name: str, *, as_json: bool) -> None:
    """Let a schedule go on; the times in between do not count as missed."""
    _show(app.call(schedules.PauseSchedule(name=name, resume=True)), as_json=as_json)


@command.command()
@name_argument
@json_command(schedules.ScheduleRun)
def run(app: App, name: str, *, as_json: bool) -> None:
    """Run a schedule now, beside its times."""
    began = app.call(schedules.RunSchedule(name=name))
    emit(
        began,
        visible_line(f"{name}: {began.state}; clawctl schedule history {name} says how it ended"),
        as_json=as_json,
    )


@command.command()
@name_argument
@json_command(Done)
def remove(app: App, name: str, *, as_json: bool) -> None:
    """Remove a schedule and its history; its conversations stay."""
    done = app.call(schedules.RemoveSchedule(name=name))
    emit(done, visible_line(done.message), as_json=as_json)


@command.command()
@name_argument
@click.option("-n", "limit", type=click.IntRange(1, 1000), default=20, help="At most so many.")
@json_command(schedules.ScheduleHistory)
def history(app: App, name: str, limit: int, *, as_json: bool) -> None:
    """Show the times of a schedule, newest first: run, waiting, missed, lost."""
    found = app.call(schedules.ListScheduleRuns(name=name, limit=limit))
    emit(
        found,
        table(
            ("DUE", "BY", "STATE", "CONVERSATION", "DETAIL"),
            [
                (
                    _local(run.due_at),
                    run.cause,
                    _state(run),
                    run.conversation_id or "-",
                    _detail(run),
                )
                for run in found.items
            ],
            nothing="It has not come yet.",
        ),
        as_json=as_json,
    )


def _detail(run: schedules.ScheduleRun) -> str:
    parts = [run.detail]
    for each in run.deliveries:
        if each.state == "given_up":
            parts.append(f"not delivered: {each.way}: {each.problem}")
        elif each.state == "waiting":
            again = f": {each.problem}; again {_local(each.next_at)}" if each.problem else ""
            parts.append(f"on its way: {each.way}{again}")
    return "; ".join(parts)


def _state(run: schedules.ScheduleRun) -> str:
    return run.state if run.times == 1 else f"{run.state} {run.times} times"


def _other_trigger(line: schedules.ScheduleLine) -> str:
    if line.server:
        return f"by {line.server}"
    return "by files" if line.folder else "by hand"


def _when(line: schedules.ScheduleLine) -> str:
    """Return its times with the zone of their clocks, which may be the last word of them."""
    words = line.when.split()
    names_zone = len(words) > 1 and words[-1][0].isalpha()
    return line.when if names_zone else f"{line.when} ({line.zone})"


def _show(line: schedules.ScheduleLine, *, as_json: bool) -> None:
    if as_json:
        emit_json(line)
        return
    fields = (
        ("schedule", line.name),
        ("when", _when(line) if line.when else _other_trigger(line)),
        ("files", f"{line.folder}/{line.pattern}" if line.folder else ""),
        ("server", f"{line.server}: {line.on}" if line.server else ""),
        ("problem", line.problem),
        ("hook", "POST /hook" if line.has_hook else ""),
        ("secret", line.hook_secret and f"{line.hook_secret} (kept nowhere: note it now)"),
        ("next", "paused" if line.is_paused else _local(line.wakes_at)),
        ("quiet hours", f"{line.quiet} ({line.zone})" if line.quiet else ""),
        ("missed", line.missed),
        ("overlap", line.overlap),
        ("mode", line.mode),
        ("tools", " ".join(line.tools) or "all"),
        ("granted", ", ".join(line.grants)),
        ("result", " ".join(filter(None, (line.to_file, line.webhook, line.mail)))),
        ("folder", line.workspace),
        ("procedure", line.sop),
        ("inputs", ", ".join(f"{name}={value}" for name, value in line.inputs.items())),
        ("prompt", line.prompt),
    )
    show_fields([(key, value) for key, value in fields if value])


def _local(moment: str) -> str:
    """Return a moment by the clock of this machine; what is none as it came."""
    try:
        return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return moment or "-"
