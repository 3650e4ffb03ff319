"""`clawctl approval`: answer what waits for a person, and manage the rules that `always` made."""

import copy
import sys
from typing import Literal

import click

from clawctl.app import App, json_option, pass_app
from clawctl.approve import argument_lines, show_changes, show_lookalikes
from clawctl.client import Client
from clawctl.render import Palette, emit_json, say, show_table
from clawd.errors import NotFoundError
from clawd.wire.codec import to_builtins
from clawd.wire.methods import AnswerApproval, ListApprovals, ListRules, RevokeRule
from clawd.wire.reports import ApprovalLine
from clawd.wire.safe_text import visible_line

MIN_ID_PART = 4

Word = Literal["deny", "once", "conversation", "always"]


@click.group()
def command() -> None:
    """List, answer and revoke approvals."""


@command.command("list")
@json_option
@pass_app
def list_(app: App, *, as_json: bool) -> None:
    """List what waits for an answer, with the arguments whole."""
    with app.client() as client:
        pending = client.call(ListApprovals()).items
    if as_json:
        emit_json(pending)
        return
    if not pending:
        print("Nothing waits for an approval.")
    for line in pending:
        _show(line)


@command.command()
@click.argument("approval_id", metavar="ID")
@click.option("--conversation", "scope", flag_value="conversation", help="For this conversation.")
@click.option("--always", "scope", flag_value="always", help="From now on, by the rule shown.")
@click.option("--days", type=click.IntRange(1), help="With --always: how long the rule holds.")
@json_option
@pass_app
def approve(
    app: App, approval_id: str, scope: str | None, days: int | None, *, as_json: bool
) -> None:
    """Let a pending call run: once, unless an option says more."""
    if days is not None and scope != "always":
        raise click.UsageError("--days goes with --always")
    word: Word = "once"
    if scope == "conversation":
        word = "conversation"
    elif scope == "always":
        word = "always"
    _answer(app, approval_id, word, days=days or 0, as_json=as_json)


# A second name for it: what an answer on the terminal is called, too.
_allow = copy.copy(approve)
_allow.hidden = True
command.add_command(_allow, "allow")


@command.command()
@click.argument("approval_id", metavar="ID")
@json_option
@pass_app
def deny(app: App, approval_id: str, *, as_json: bool) -> None:
    """Refuse a pending call."""
    _answer(app, approval_id, "deny", as_json=as_json)


@command.command()
@click.option("--revoke", "rule_id", metavar="ID", help="Remove this rule.")
@json_option
@pass_app
def rules(app: App, rule_id: str | None, *, as_json: bool) -> None:
    """List the rules in force and what they match, or remove one."""
    if rule_id is not None:
        _revoke(app, rule_id, as_json=as_json)
        return
    with app.client() as client:
        found = client.call(ListRules()).items
    if as_json:
        emit_json(found)
        return
    show_table(
        ("ID", "TOOL", "WHERE", "EXPIRES", "MATCHES"),
        [
            (
                rule.id,
                rule.tool,
                rule.conversation_id or "everywhere",
                rule.expires_at,
                rule.pattern,
            )
            for rule in found
        ],
        nothing="No rules.",
    )


@command.command()
@click.argument("rule_id", metavar="RULE")
@json_option
@pass_app
def revoke(app: App, rule_id: str, *, as_json: bool) -> None:
    """Remove a rule; from then on it allows nothing."""
    _revoke(app, rule_id, as_json=as_json)


def _revoke(app: App, rule_id: str, *, as_json: bool) -> None:
    with app.client() as client:
        done = client.call(RevokeRule(rule_id=rule_id))
    if as_json:
        emit_json(done)
    else:
        say(done.message or f"rule {rule_id} removed")


def _answer(app: App, approval_id: str, word: Word, *, days: int = 0, as_json: bool) -> None:
    with app.client() as client:
        line = _find(client, approval_id)
        if not as_json:
            _show(line)
            sys.stdout.flush()
        done = client.call(
            AnswerApproval(approval_id=line.id, digest=line.digest, answer=word, days=days)
        )
    if as_json:
        emit_json({"approval": to_builtins(line), "answer": word, "message": done.message})
    else:
        say(done.message or ("denied" if word == "deny" else f"approved ({word})"))


def _find(client: Client, approval_id: str) -> ApprovalLine:
    pending = client.call(ListApprovals()).items
    found = [line for line in pending if line.id == approval_id]
    if len(approval_id) >= MIN_ID_PART:
        found = found or [line for line in pending if line.id.endswith(approval_id)]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(line.id for line in found or pending) or "none"
    what = "is ambiguous" if found else "is not pending (answered, run out, or never asked)"
    raise NotFoundError(f"approval {approval_id} {what}; pending: {ids}")


def _show(line: ApprovalLine) -> None:
    print(visible_line(f"{line.id}  {line.tool}  risk {line.risk}"))
    print(visible_line(f"  reason     {line.reason}"))
    print(visible_line(f"  workspace  {line.workspace}"))
    print(visible_line(f"  asked      {line.asked_at}, denied in {line.expires_in_s:.0f} s"))
    for name, value in sorted(line.environment.items()):
        print(visible_line(f"  with       {name}={value}"))
    if line.rule:
        print(visible_line(f"  always     {line.rule}"))
    lines, palette = argument_lines(line.arguments), Palette.of(sys.stdout)
    for argument in lines:
        print(f"    {argument}")
    show_changes(print, palette, line.changes)
    show_lookalikes(print, palette, lines)
