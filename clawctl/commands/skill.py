"""`clawctl skill`: list skills, look at them, add, check and trust them."""

from pathlib import Path
from typing import get_args

import click

from clawctl.app import App, Exit, Name, json_command, workspace_of
from clawctl.commands.plugin import asked, yes_option
from clawctl.render import emit, emit_json, note, say, show_fields, show_table, size
from clawd.wire import skills
from clawd.wire.safe_text import visible_line

BODY_LINES = 200
directory_option = click.option(
    "-C",
    "workspace",
    metavar="DIR",
    callback=lambda _context, _parameter, value: workspace_of(value, here=False),
    help="Of the workspace in this folder.",
)
kind_option = click.option(
    "--kind",
    type=click.Choice(get_args(skills.SkillKind)),
    default="skill",
    help="Skills, or the agents or the commands that Markdown files define.",
)
source_argument = click.argument("path", type=click.Path(exists=True, path_type=Path))


@click.group()
def command() -> None:
    """List, look at, add, check and trust skills."""


@command.command("list")
@directory_option
@kind_option
@json_command(skills.SkillList)
def list_(app: App, *, workspace: str, kind: skills.SkillKind, as_json: bool) -> None:
    """List the skills, which of them a model is offered, and what is wrong with the others."""
    with app.client() as client:
        found = client.call(skills.ListSkills(workspace=workspace, kind=kind))
    if as_json:
        emit_json(found)
        return
    show_table(
        ("NAME", "STATE", "OF", "DESCRIPTION"),
        [
            (s.name, s.state, "home" if s.is_own else "workspace", s.description)
            for s in found.items
        ],
        nothing=f"There are no {kind}s.",
    )
    for each in found.items:
        if each.state in {"untrusted", "changed"}:
            flag = "" if kind == "skill" else f" --kind {kind}"
            say(visible_line(f"{each.name}: look at it with clawctl skill trust {each.name}{flag}"))
        if each.shadowed_by:
            say(visible_line(f"{each.name} in {each.folder} gives way to {each.shadowed_by}"))
        _show_problems(each)
    if found.left_out:
        note(f"{found.left_out} more folders were not looked at; a place has at most 256.")


@command.command()
@click.argument("name", type=Name("skills"))
@directory_option
@kind_option
@json_command(skills.SkillReview)
def show(app: App, name: str, *, workspace: str, kind: skills.SkillKind, as_json: bool) -> None:
    """Show what a skill is, its files and its text."""
    found = app.call(skills.InspectSkill(name=name, workspace=workspace, kind=kind))
    emit(found, _show, as_json=as_json)


@command.command()
@source_argument
@yes_option
@json_command(skills.SkillLine | skills.SkillReview)
def add(app: App, path: Path, *, yes: bool, as_json: bool) -> int:
    """Show the skill in folder or archive PATH, ask, and copy it into the home.

    Nothing of it is run. What lies in the home is yours: a model is offered it everywhere.
    """
    source = str(path.absolute())
    with app.client() as client:
        found = client.call(skills.InspectSkill(path=source))
        question = "Replace the one of the home?" if found.replaces else "Add it?"
        if not _is_agreed(found, question, yes=yes, as_json=as_json):
            return Exit.FAILED
        done = client.call(skills.AddSkill(path=source, digest=found.skill.digest))
    _report(done.message, found, as_json=as_json)
    return Exit.DONE


@command.command()
@click.argument("name", type=Name("skills"))
@directory_option
@kind_option
@click.option("--revoke", is_flag=True, help="Trust it no longer.")
@yes_option
@json_command(skills.SkillLine | skills.SkillReview)
def trust(app: App, /, name: str, *, workspace: str, kind: skills.SkillKind, **flags: bool) -> int:
    """Show a workspace's skill and what changed in it, ask, and trust it as it is now."""
    as_json = flags["as_json"]
    with app.client() as client:
        found = client.call(skills.InspectSkill(name=name, workspace=workspace, kind=kind))
        revoke, digest = flags["revoke"], found.skill.digest
        if not revoke and not _is_agreed(found, "Trust it?", yes=flags["yes"], as_json=as_json):
            return Exit.FAILED
        request = skills.TrustSkill(
            name=name, workspace=workspace, kind=kind, digest=digest, revoke=revoke
        )
        done = client.call(request)
    _report(done.message, found, as_json=as_json)
    return Exit.DONE


@command.command()
@source_argument
@kind_option
@json_command(skills.SkillReview)
def lint(app: App, path: Path, *, kind: skills.SkillKind, as_json: bool) -> int:
    """Say all that is wrong with the skill in folder or archive PATH, by the standard."""
    found = app.call(skills.InspectSkill(path=str(path.absolute()), kind=kind))
    if as_json:
        emit_json(found)
    elif found.skill.problems:
        _show_problems(found.skill)
    else:
        what = "a skill by the standard" if kind == "skill" else f"good as {kind}"
        say(visible_line(f"{found.skill.name} is {what}."))
    return Exit.FAILED if found.skill.problems else Exit.DONE


def _is_agreed(found: skills.SkillReview, question: str, *, yes: bool, as_json: bool) -> bool:
    """Show a skill and find out whether it is wanted; a broken one never is."""
    if not as_json:
        _show(found)
    if found.skill.problems:
        if as_json:
            emit_json(found)
        note("Nothing was done: this is not a skill by the standard.")
        return False
    return yes or asked(question, as_json=as_json)


def _report(message: str, found: skills.SkillReview, *, as_json: bool) -> None:
    emit(found.skill, visible_line(message), as_json=as_json)


def _show_problems(skill: skills.SkillLine) -> None:
    for each in skill.problems:
        where = f"SKILL.md:{each.line}: " if each.line else ""
        say(visible_line(f"{skill.name or skill.folder}: {where}{each.text}"))


def _show(found: skills.SkillReview) -> None:
    skill = found.skill
    programs = ", ".join(each.path for each in found.files if each.is_program)
    total = sum(each.size_bytes for each in found.files)
    fields = (
        ("skill", skill.name),
        ("state", skill.state),
        ("description", skill.description),
        ("arguments", skill.hint),
        ("license", found.license),
        ("compatibility", found.compatibility),
        ("metadata", ", ".join(f"{key}: {value}" for key, value in found.metadata.items())),
        (
            "asks for",
            ", ".join(found.allowed_tools)
            and f"{', '.join(found.allowed_tools)} (gets nothing by it; others are asked about)",
        ),
        ("folder", skill.folder),
        ("hash", skill.digest),
        ("files", f"{len(found.files)}, {size(total)}; programs: {programs or 'none'}"),
    )
    show_fields([(key, value) for key, value in fields if value])
    _show_problems(skill)
    if found.changes:
        print("What is different:")
        for line in found.changes:
            say(f"  {visible_line(line)}")
    if found.body:
        lines = found.body.splitlines()
        print()
        say("\n".join(lines[:BODY_LINES]))
        if len(lines) > BODY_LINES:
            note(f"{len(lines) - BODY_LINES} more lines are in {visible_line(skill.folder)}.")
