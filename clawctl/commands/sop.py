"""`clawctl sop`: list procedures, look at them, run them, and answer what their runs wait for."""

from pathlib import Path
from typing import Any

import click

from clawctl.app import App, Exit, Name, json_command
from clawctl.approve import Terminal
from clawctl.commands.plugin import asked, yes_option
from clawctl.commands.skill import directory_option
from clawctl.render import emit, emit_json, note, say, show_fields, show_table, table
from clawctl.request_follower import follow_calls
from clawctl.turn import ViewOptions
from clawd.wire import sops
from clawd.wire.safe_text import visible_line

OUTPUT_LINES = 40
_ENDED_WELL = "succeeded"
_WAITS = frozenset({"waiting", "unsure"})

run_argument = click.argument("run", type=Name("sop_runs"))
detach_option = click.option("--detach", is_flag=True, help="Return at once; it goes on by itself.")
inputs_option = click.option(
    "-i", "--input", "given", multiple=True, metavar="NAME=VALUE", help="An input; repeatable."
)


@click.group()
def command() -> None:
    """List, check, enable and run procedures, and answer what their runs wait for."""


@command.command("list")
@directory_option
@json_command(sops.SopList)
def list_(app: App, *, workspace: str, as_json: bool) -> None:
    """List the procedures, which of them can be run, and what is wrong with the others."""
    found = app.call(sops.ListSops(workspace=workspace))
    if as_json:
        emit_json(found)
        return
    show_table(
        ("NAME", "STATE", "OF", "STEPS", "DESCRIPTION"),
        [
            (s.name, s.state, "home" if s.is_own else "workspace", s.steps, s.description)
            for s in found.items
        ],
        nothing="There are no procedures.",
    )
    for each in found.items:
        if each.state in {"untrusted", "changed"}:
            say(visible_line(f"{each.name}: look at it with clawctl sop enable {each.name}"))
        if each.shadowed_by:
            say(visible_line(f"{each.name} in {each.folder} gives way to {each.shadowed_by}"))
        _show_problems(each)
    if found.left_out:
        note(f"{found.left_out} more folders were not looked at; a place has at most 64.")


@command.command()
@click.argument("what", type=Name("sops"))
@directory_option
@json_command(sops.SopReview)
def validate(app: App, what: str, *, workspace: str, as_json: bool) -> int:
    """Say all that is wrong with the procedure WHAT, a name or a path, each with line and key."""
    found = app.call(_inspection(what, workspace))
    if as_json:
        emit_json(found)
    elif found.sop.problems:
        _show_problems(found.sop)
    else:
        say(visible_line(f"{found.sop.name} is a procedure of {found.sop.steps} steps."))
    return Exit.FAILED if found.sop.problems else Exit.DONE


@command.command()
@click.argument("name", type=Name("sops"))
@directory_option
@click.option("--graph", is_flag=True, help="Draw the steps.")
@click.option("--mermaid", is_flag=True, help="Print the steps as a Mermaid flowchart.")
@json_command(sops.SopReview)
def show(app: App, /, name: str, *, workspace: str, **flags: bool) -> int:
    """Show what a procedure is and does, step by step."""
    found = app.call(_inspection(name, workspace))
    if flags["as_json"]:
        emit_json(found)
    elif found.sop.problems:
        _show_problems(found.sop)
        return Exit.FAILED
    elif flags["mermaid"]:
        say(found.mermaid.rstrip("\n"))
    elif flags["graph"]:
        _draw(found)
    else:
        _show(found)
    return Exit.DONE


@command.command()
@click.argument("name", type=Name("sops"))
@directory_option
@click.option("--revoke", is_flag=True, help="Let it run no longer.")
@yes_option
@json_command(sops.SopLine)
def enable(app: App, /, name: str, *, workspace: str, **flags: bool) -> int:
    """Show a workspace's procedure and what changed in it, ask, and let it run as it is now."""
    as_json = flags["as_json"]
    with app.client() as client:
        found = client.call(sops.InspectSop(name=name, workspace=workspace))
        if not as_json:
            _show(found)
            say(found.source)
        if found.sop.problems and not flags["revoke"]:
            emit(found.sop, _show_problems, as_json=as_json)
            note("Nothing was done: it is not a procedure.")
            return Exit.FAILED
        if not (flags["revoke"] or flags["yes"] or asked("Enable it?", as_json=as_json)):
            return Exit.FAILED
        request = sops.EnableSop(
            name=name, workspace=workspace, digest=found.sop.digest, revoke=flags["revoke"]
        )
        done = client.call(request)
    emit(found.sop, visible_line(done.message), as_json=as_json)
    return Exit.DONE


@command.command()
@click.argument("name", type=Name("sops"))
@directory_option
@inputs_option
@detach_option
@json_command(sops.SopRunReport)
def run(app: App, /, name: str, *, workspace: str, given: tuple[str, ...], **flags: bool) -> int:
    """Run a procedure, and follow it until it ends or waits.

    It goes on without this command, too. At a terminal, approvals of its calls are asked here.
    """
    request = sops.RunSop(
        name=name, workspace=workspace, inputs=inputs_of(given), detach=flags["detach"]
    )
    return _follow(app, request, as_json=flags["as_json"])


@command.command("dry-run")
@click.argument("name", type=Name("sops"))
@directory_option
@inputs_option
@json_command(sops.SopPlan)
def dry_run(app: App, name: str, *, workspace: str, given: tuple[str, ...], as_json: bool) -> None:
    """Say what a run would do and what the policy answers to each step; nothing is done."""
    found = app.call(sops.DryRunSop(name=name, workspace=workspace, inputs=inputs_of(given)))
    if as_json:
        emit_json(found)
        return
    show_table(
        ("STEP", "KIND", "VERDICT", "DOES"),
        [(each.id, each.kind, each.verdict or "-", each.does) for each in found.items],
    )
    for each in found.items:
        if each.verdict != "allow" and each.reason:
            note(visible_line(f"{each.id}: {each.reason}"))


@command.command()
@run_argument
@json_command(sops.SopRunReport)
def status(app: App, run: str, *, as_json: bool) -> None:
    """Show how far a run is, step by step."""
    found = app.call(sops.ShowSopRun(run=run))
    emit(found, _report, as_json=as_json)


@command.command()
@run_argument
@click.option("--deny", is_flag=True, help="Say no: the step fails.")
@detach_option
@json_command(sops.SopRunReport)
def approve(app: App, run: str, *, deny: bool, detach: bool, as_json: bool) -> int:
    """Approve the step that a run waits at, and follow it on."""
    request = sops.ResumeSop(run=run, answer="deny" if deny else "approve", detach=detach)
    return _follow(app, request, as_json=as_json)


@command.command()
@run_argument
@click.option(
    "--step",
    "answer",
    type=click.Choice(("repeat", "done", "failed")),
    help="What is true of a step of which nobody knows whether it happened.",
)
@detach_option
@json_command(sops.SopRunReport)
def resume(app: App, run: str, *, answer: Any, detach: bool, as_json: bool) -> int:
    """Let a run go on that was stopped, or whose call nobody approved."""
    request = sops.ResumeSop(run=run, answer=answer or "", detach=detach)
    return _follow(app, request, as_json=as_json)


@command.command()
@run_argument
@json_command(sops.SopRunReport)
def cancel(app: App, run: str, *, as_json: bool) -> None:
    """End a run for good, and what it is doing; nothing is taken back."""
    found = app.call(sops.CancelSop(run=run))
    emit(found, visible_line(f"{found.run.id} is cancelled"), as_json=as_json)


@command.command()
@click.argument("name", type=Name("sops"), default="")
@click.option("--open", "open_only", is_flag=True, help="Those that have not ended.")
@click.option("--limit", default=20, show_default=True, help="At most so many.")
@json_command(sops.SopRunList)
def history(app: App, name: str, *, open_only: bool, limit: int, as_json: bool) -> None:
    """List runs, newest first."""
    found = app.call(sops.ListSopRuns(name=name, open_only=open_only, limit=limit))
    emit(
        found,
        table(
            ("RUN", "NAME", "STATUS", "STEP", "STARTED", "BY", "REASON"),
            [
                (r.id, r.name, r.status, r.step, r.created_at[:19], r.origin, r.reason)
                for r in found.items
            ],
            nothing="There are no runs.",
        ),
        as_json=as_json,
    )


def _inspection(what: str, workspace: str) -> sops.InspectSop:
    """Return the question about a name, or about what lies at a path."""
    if "/" in what or what.endswith(".toml"):
        return sops.InspectSop(path=str(Path(what).absolute()))
    return sops.InspectSop(name=what, workspace=workspace)


def inputs_of(given: tuple[str, ...]) -> dict[str, Any]:
    """Return inputs by name; the daemon reads each as the type that it has."""
    values: dict[str, Any] = {}
    for each in given:
        name, mark, value = each.partition("=")
        if not mark:
            raise click.UsageError(f"--input {each}: NAME=VALUE is expected")
        values[name] = value
    return values


def _follow(app: App, request: sops.RunSop | sops.ResumeSop, *, as_json: bool) -> int:
    """Follow a run until it rests, show how far it is, and return the exit code."""
    app.wants_json = as_json
    options = ViewOptions(text=False, rows=not as_json)
    at_terminal = Terminal.opened(wanted=not (as_json or request.detach))
    with at_terminal as terminal, app.client() as client:
        found = follow_calls(client, request, terminal, options)
    emit(found, _report, as_json=as_json)
    return _exit_code(found.run.status, is_detached=request.detach)


def _exit_code(status: str, *, is_detached: bool) -> int:
    if status == _ENDED_WELL or (status == "running" and is_detached):
        return Exit.DONE
    if status in _WAITS:
        return Exit.UNANSWERED
    return Exit.STOPPED if status == "stopped" else Exit.FAILED


def _show_problems(sop: sops.SopLine) -> None:
    for each in sop.problems:
        where = f"SOP.toml:{each.line}: " if each.line else ""
        key = f"{each.key}: " if each.key else ""
        say(visible_line(f"{sop.name or sop.folder}: {where}{key}{each.text}", 400))


def _show(found: sops.SopReview) -> None:
    sop = found.sop
    fields = (
        ("procedure", sop.name),
        ("state", sop.state),
        ("description", sop.description),
        ("inputs", ", ".join(map(_input_text, found.inputs))),
        ("folder", sop.folder),
        ("hash", sop.digest),
    )
    show_fields([(key, value) for key, value in fields if value])
    rows = [
        (each.id, each.kind, each.on_failure, each.does)
        for each in (*found.steps, *found.compensations)
    ]
    show_table(("STEP", "KIND", "ON FAILURE", "DOES"), rows)
    if found.changes:
        print("What is different:")
        for line in found.changes:
            say(f"  {visible_line(line)}")


def _input_text(each: sops.SopInputLine) -> str:
    default = "" if each.default is None else f" = {each.default}"
    return f"{each.name} ({each.type}){default}"


def _draw(found: sops.SopReview) -> None:
    """Draw the steps below each other, with what leads past and back beside them."""
    for number, each in enumerate(found.steps):
        if number:
            say("  │")
            say("  ▼")
        if each.when:
            say(visible_line(f"  ◇ when {each.when}"))
        loop = f"  ⟲ for each of {each.foreach}" if each.foreach else ""
        say(visible_line(f"[{each.id}] {each.kind}{loop}"))
        say(visible_line(f"  {each.does}"))
        if each.on_failure != "abort":
            say(visible_line(f"  ✗ {each.on_failure}"))
        if each.compensation:
            say(visible_line(f"  ↩ {each.compensation}"))


def _report(found: sops.SopRunReport) -> None:
    run = found.run
    fields = (
        ("run", run.id),
        ("procedure", run.name),
        ("status", run.status),
        ("reason", run.reason),
        ("started", f"{run.created_at[:19]} by {run.origin}"),
        ("conversation", run.conversation_id),
    )
    show_fields([(key, value) for key, value in fields if value])
    show_table(
        ("STEP", "KIND", "STATUS", "TRIED", "RECEIPT", "SAYS"),
        [
            (
                each.id,
                each.kind,
                f"{each.status} {each.done}/{each.items}" if each.items else each.status,
                each.attempts,
                each.receipt_id,
                (each.error or each.output).strip().partition("\n")[0],
            )
            for each in found.steps
        ],
    )
    if run.status == _ENDED_WELL and found.output:
        lines = found.output.splitlines()
        say("\n".join(lines[:OUTPUT_LINES]))
    hint = {
        "waiting": f"clawctl sop approve {run.id}, or clawctl sop resume {run.id}",
        "unsure": f"clawctl sop resume {run.id} --step repeat, done or failed",
        "stopped": f"clawctl sop resume {run.id}",
    }.get(run.status)
    if hint:
        note(f"It goes on with: {hint}")
