"""`clawctl approval`: answer what waits for a person, and manage the rules that `always` made."""

import copy
import sys
from typing import Literal

import click
import msgspec

from clawctl.app import App, Name, json_command
from clawctl.approve import (
    Terminal,
    argument_lines,
    change_lines,
    edited_arguments,
    lookalike_lines,
)
from clawctl.client import Client
from clawctl.render import Palette, emit, emit_json, table
from clawctl.views import check_arguments
from clawd.errors import InvalidRequestError, NotFoundError
from clawd.wire import policy
from clawd.wire.method import Done
from clawd.wire.safe_text import visible_line

MIN_ID_PART = 4

Word = Literal["deny", "once", "conversation", "project", "always", "edit"]


class ApprovalSettled(msgspec.Struct, frozen=True, kw_only=True):
    """An approval, the word that was given, and what came of it."""

    approval: policy.ApprovalLine
    answer: str
    message: str


@click.group()
def command() -> None:
    """List, answer and revoke approvals."""


@command.command("list")
@json_command(list[policy.ApprovalLine])
def list_(app: App, *, as_json: bool) -> None:
    """List what waits for an answer, with the arguments whole.

    What timed out and can still be answered is among it.
    """
    pending = app.call(policy.ListApprovals()).items
    if as_json:
        emit_json(pending)
        return
    if not pending:
        print("Nothing waits for an approval.")
    for line in pending:
        _show(line)


@command.command()
@click.argument("approval_id", type=Name("approvals"), metavar="ID")
@click.option("--conversation", "scope", flag_value="conversation", help="For this conversation.")
@click.option("--project", "scope", flag_value="project", help="In this project from now on.")
@click.option("--always", "scope", flag_value="always", help="From now on, by the rule shown.")
@click.option("--days", type=click.IntRange(1), help="How long the rule of the last two holds.")
@json_command(ApprovalSettled)
def approve(
    app: App, approval_id: str, scope: str | None, days: int | None, *, as_json: bool
) -> None:
    """Let a pending call run: once, unless an option says more.

    One that timed out is judged anew and runs as it was shown; its turn goes on with the result.
    """
    if days is not None and scope not in {"project", "always"}:
        raise click.UsageError("--days goes with --project or --always")
    words: tuple[Word, ...] = ("conversation", "project", "always")
    word: Word = next((each for each in words if each == scope), "once")
    _answer(app, approval_id, word, days=days or 0, as_json=as_json)


# A second name for it: what an answer on the terminal is called, too.
_allow = copy.copy(approve)
_allow.hidden = True
command.add_command(_allow, "allow")


@command.command()
@click.argument("approval_id", type=Name("approvals"), metavar="ID")
@json_command(ApprovalSettled)
def deny(app: App, approval_id: str, *, as_json: bool) -> None:
    """Refuse a pending call."""
    _answer(app, approval_id, "deny", as_json=as_json)


@command.command()
@click.argument("approval_id", type=Name("approvals"), metavar="ID")
@click.option("--arguments", metavar="JSON", default="", help="What they shall be, all of them.")
@json_command(ApprovalSettled)
def edit(app: App, approval_id: str, arguments: str, *, as_json: bool) -> None:
    """Change the arguments of a pending call in your editor, or with --arguments.

    The call is judged anew as it is then, and asks again: look at what it does then and approve it.
    """
    if arguments:
        check_arguments(arguments, example=f"clawctl approval edit {approval_id}")
    _answer(app, approval_id, "edit", arguments=arguments, as_json=as_json)


@command.command()
@click.option("--revoke", "rule_id", type=Name("rules"), metavar="ID", help="Remove this rule.")
@json_command(list[policy.RuleLine] | Done)
def rules(app: App, rule_id: str | None, *, as_json: bool) -> None:
    """List the rules in force and what they match, or remove one."""
    if rule_id is not None:
        _revoke(app, rule_id, as_json=as_json)
        return
    found = app.call(policy.ListRules()).items
    emit(
        found,
        table(
            ("ID", "TOOL", "CONVERSATION", "EXPIRES", "MATCHES"),
            [
                (
                    rule.id,
                    rule.tool,
                    rule.conversation_id or "any",
                    rule.expires_at,
                    rule.pattern,
                )
                for rule in found
            ],
            nothing="No rules.",
        ),
        as_json=as_json,
    )


@command.command()
@click.argument("rule_id", metavar="RULE")
@json_command(Done)
def revoke(app: App, rule_id: str, *, as_json: bool) -> None:
    """Remove a rule; from then on it allows nothing."""
    _revoke(app, rule_id, as_json=as_json)


def _revoke(app: App, rule_id: str, *, as_json: bool) -> None:
    done = app.call(policy.RevokeRule(rule_id=rule_id))
    emit(done, done.message or f"rule {rule_id} removed", as_json=as_json)


def _answer(
    app: App,
    approval_id: str,
    word: Word,
    *,
    days: int = 0,
    arguments: str = "",
    as_json: bool,
) -> None:
    with app.client() as client:
        line = _find(client, approval_id)
        if not as_json:
            _show(line)
            sys.stdout.flush()
        if word == "edit":
            arguments = arguments or _edited(line)
        answer = policy.AnswerApproval(
            approval_id=line.id, digest=line.digest, answer=word, days=days, arguments=arguments
        )
        done = client.call(answer)
    emit(
        ApprovalSettled(approval=line, answer=word, message=done.message),
        done.message or ("denied" if word == "deny" else f"approved ({word})"),
        as_json=as_json,
    )


def _edited(line: policy.ApprovalLine) -> str:
    """Return the arguments as the person writes them in their editor."""
    with Terminal.opened() as terminal:
        if terminal is None:
            raise InvalidRequestError(
                "there is no terminal to edit at",
                hint=f"clawctl approval edit {line.id} --arguments JSON",
            )
        outcome = edited_arguments(line.arguments, terminal.descriptor)
    if outcome.problem:
        raise InvalidRequestError(f"not edited: {outcome.problem}")
    return outcome.arguments


def _find(client: Client, approval_id: str) -> policy.ApprovalLine:
    pending = client.call(policy.ListApprovals()).items
    found = [line for line in pending if line.id == approval_id]
    if len(approval_id) >= MIN_ID_PART:
        found = found or [line for line in pending if line.id.endswith(approval_id)]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(line.id for line in found or pending) or "none"
    what = "is ambiguous" if found else "is not pending (answered, run out, or never asked)"
    raise NotFoundError(f"approval {approval_id} {what}; pending: {ids}")


def _state(line: policy.ApprovalLine) -> str:
    """Return how long an answer is waited for."""
    if line.timed_out:
        return f"timed out, can still be answered until {line.answerable_until}"
    if not line.expires_in_s:
        return "waits until somebody answers"
    return f"denied in {line.expires_in_s:.0f} s"


def _show(line: policy.ApprovalLine) -> None:
    print(visible_line(f"{line.id}  {line.tool}  risk {line.risk}"))
    print(visible_line(f"  reason     {line.reason}"))
    print(visible_line(f"  workspace  {line.workspace}"))
    print(visible_line(f"  asked      {line.asked_at}, {_state(line)}"))
    for name, value in sorted(line.environment.items()):
        print(visible_line(f"  with       {name}={value}"))
    if line.rule:
        print(visible_line(f"  project    {line.rule}"))
    lines, palette = argument_lines(line.arguments), Palette.of(sys.stdout)
    rows = [f"    {argument}" for argument in lines]
    rows += change_lines(palette, line.changes) + lookalike_lines(palette, lines)
    print("\n".join(rows))
