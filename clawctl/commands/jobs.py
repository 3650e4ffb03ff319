"""`clawctl jobs`: commands that go on after the call that began them."""

import sys

import click

from clawctl.app import App, ListingGroup, Name, conversation_option, json_command
from clawctl.render import (
    duration,
    emit,
    emit_json,
    fields,
    note,
    show_fields,
    size,
    table,
)
from clawd.wire.safe_text import terminal_safe
from clawd.wire.tools import JobLine, JobOutput, ListJobs, ShowJob, StopJob

TAIL_BYTES = 4_096
WHOLE_BYTES = 1_048_576


@click.group(cls=ListingGroup)
def command() -> None:
    """List, show and stop jobs: commands of a conversation that take long and go on.

    Without a word more they are listed. A job ends by itself, with its time, with its conversation,
    under the emergency stop and with the daemon; its end has a receipt.
    """


@command.command("list")
@conversation_option("-c", help="Of this one; a beginning will do.")
@json_command(list[JobLine])
def list_(app: App, conversation: str, *, as_json: bool) -> None:
    """List jobs, those that run first."""
    found = app.call(ListJobs(conversation_id=conversation)).items
    emit(
        found,
        table(
            ("ID", "STATE", "TIME", "FOLDER", "COMMAND"),
            [
                (
                    job.id,
                    job.state,
                    duration(job.duration_s),
                    job.workspace,
                    job.command,
                )
                for job in found
            ],
            nothing="No jobs: no command went on after its call since the daemon began.",
        ),
        as_json=as_json,
    )


@command.command()
@click.argument("job", type=Name("jobs"), metavar="ID")
@json_command(JobOutput)
def show(app: App, job: str, *, as_json: bool) -> None:
    """Show a job and the end of what it printed."""
    found = app.call(ShowJob(job_id=job, max_bytes=TAIL_BYTES))
    if as_json:
        emit_json(found)
        return
    show_fields(_facts(found.job))
    if found.output:
        print()
        _print(f"… {found.output}" if found.is_cut else found.output)


@command.command()
@click.argument("job", type=Name("jobs"), metavar="ID")
@json_command(JobOutput)
def output(app: App, job: str, *, as_json: bool) -> None:
    """Print what a job printed so far."""
    found = app.call(ShowJob(job_id=job, max_bytes=WHOLE_BYTES))
    if as_json:
        emit_json(found)
        return
    if found.is_cut:
        note(f"● the last {size(WHOLE_BYTES)} of {size(found.job.output_bytes)}")
    _print(found.output)


@command.command()
@click.argument("job", type=Name("jobs"), metavar="ID")
@json_command(JobLine)
def stop(app: App, job: str, *, as_json: bool) -> None:
    """End a job that runs; when this returns nothing of it is alive."""
    line = app.call(StopJob(job_id=job))
    emit(line, fields(_facts(line)), as_json=as_json)


def _facts(job: JobLine) -> list[tuple[str, object]]:
    took = duration(job.duration_s)
    state = f"runs since {took}, at most {duration(job.limit_s)}"
    if job.state != "running":
        code = "" if job.exit_code is None else f", exit code {job.exit_code}"
        state = f"{job.state} after {took}{code}"
    receipts = " and ".join(filter(None, (job.receipt_id, job.end_receipt_id)))
    return [
        ("job", job.id),
        ("command", job.command),
        ("state", state),
        ("since", job.started_at),
        ("folder", job.workspace),
        ("conversation", job.conversation_id),
        ("output", size(job.output_bytes)),
        ("receipts", receipts or "none: receipts are switched off"),
    ]


def _print(text: str) -> None:
    sys.stdout.write(terminal_safe(text if text.endswith("\n") or not text else f"{text}\n"))
