"""Commands about the daemon: its state, the emergency stop, approvals, policy, MCP servers."""

import shlex
from collections.abc import Sequence
from typing import get_args

import click
import msgspec

from clawctl.agent_options import Mode
from clawctl.render import note, say, show_error, show_table
from clawctl.repl.host import Host
from clawctl.status_view import show_status
from clawctl.views import (
    check_arguments,
    estop_line,
    newest_receipts,
    show_boundary,
    show_explanation,
    show_receipts,
)
from clawctl.workspace_trust import real_folder
from clawd.errors import ClawError, NotFoundError
from clawd.wire.conversations import ShowConversation
from clawd.wire.daemon import ClearEstop, EstopState, SetEstop, Status, StatusReport
from clawd.wire.policy import ExplainPolicy, ListRules, ShowPolicy
from clawd.wire.receipts import ListReceipts


def status(host: Host, _rest: str) -> None:
    """Show what the daemon is and does, and where and in which mode tools act here."""
    report = host.call(Status())
    folder, mode = standing_of(host, report)
    show_status(report, here=(("folder", folder), ("mode", mode)))


def standing_of(host: Host, report: StatusReport) -> tuple[str, str]:
    """Return the folder in which tools act and the mode, as the daemon knows them."""
    folder, mode = host.workspace or report.workspace, str(host.mode)
    if host.conversation_id:
        asked = ShowConversation(conversation_id=host.conversation_id, limit=1)
        try:
            line = host.call(asked).conversation
        except NotFoundError:  # it was deleted: the next message says so
            return real_folder(folder), mode or report.autonomy
        folder, mode = line.workspace or folder, line.mode
    return real_folder(folder), mode or report.autonomy


def estop(host: Host, rest: str) -> None:
    """Set, clear or show the emergency stop."""
    match rest:
        case "clear" | "--clear":
            report = host.call(ClearEstop())
        case "status" | "--status":
            report = host.call(EstopState())
        case _:
            report = host.call(SetEstop(reason=rest))
    host.is_stopped = report.is_set
    say(estop_line(report))


def mode(host: Host, rest: str) -> None:
    """Show how far the model may go without a person, or set it for this conversation."""
    if rest:
        try:
            host.set_mode(msgspec.convert(rest, Mode))
        except msgspec.ValidationError:
            note(f"{rest} is not a mode; there are {', '.join(filter(None, get_args(Mode)))}")
            return
    others = "" if rest else f"   (/mode {'|'.join(filter(None, get_args(Mode)))}, Shift-Tab)"
    say(f"mode {standing_of(host, host.call(Status()))[1]}{others}")


def receipts(host: Host, _rest: str) -> None:
    """Show the newest receipts."""
    show_receipts(newest_receipts(host.client(), 10, ListReceipts()))


def policy(host: Host, rest: str) -> None:
    """Show what is allowed, or what a call would be answered."""
    if not rest:
        report = host.call(Status())
        show_boundary(
            host.call(ShowPolicy(workspace=host.workspace)),
            first=[("mode", f"{standing_of(host, report)[1]} (of this conversation)")],
            last=[("emergency stop", "SET" if report.estop else "not set")],
        )
        rules = host.call(ListRules()).items
        show_table(
            ("RULE", "TOOL", "EXPIRES", "MATCHES"),
            [(rule.id, rule.tool, rule.expires_at, rule.pattern) for rule in rules],
            nothing="No standing rules.",
        )
        return
    tool, _, arguments = rest.partition(" ")
    check_arguments(arguments or "{}", example='/policy shell {"command": "ls"}')
    asked = ExplainPolicy(tool=tool, arguments=arguments or "{}", workspace=host.workspace)
    if host.conversation_id:
        asked = msgspec.structs.replace(asked, conversation_id=host.conversation_id)
    elif host.mode:
        asked = msgspec.structs.replace(asked, autonomy=host.mode)
    show_explanation(host.call(asked))


def mcp(host: Host, rest: str) -> None:
    """Do what `clawctl mcp` does."""
    words = _words(rest)
    if words and words[0] == "serve":
        note("An MCP client starts `clawctl mcp serve` by itself; it is of no use in here.")
        return
    _run(host, "mcp", words or ["list"])


def skill(host: Host, rest: str) -> None:
    """Do what `clawctl skill` does, in the folder of the conversation."""
    words = _words(rest) or ["list"]
    at_place = words[0] in {"list", "show", "trust"} and host.workspace
    _run(host, "skill", [*words, "-C", host.workspace] if at_place else words)


def sop(host: Host, rest: str) -> None:
    """Do what `clawctl sop` does, in the folder of the conversation."""
    words = _words(rest) or ["list"]
    at_place = words[0] in {"list", "show", "validate", "enable", "dry-run", "run"}
    _run(host, "sop", [*words, "-C", host.workspace] if at_place and host.workspace else words)


def approvals(host: Host, rest: str) -> None:
    """Do what `clawctl approval` does."""
    words = _words(rest)
    if words and words[0] == "approve":
        words[0] = "allow"
    _run(host, "approval", words or ["list"])
    if not words:
        print()
        _run(host, "approval", ["rules"])


def jobs(host: Host, rest: str) -> None:
    """Do what `clawctl jobs` does."""
    _run(host, "jobs", _words(rest))


def doctor(host: Host, _rest: str) -> None:
    """Do what `clawctl doctor` does."""
    _run(host, "doctor", [])


def _words(rest: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError:
        return rest.split()


def _run(host: Host, name: str, arguments: Sequence[str]) -> None:
    """Run a command of clawctl in here."""
    try:
        host.app.command_of(name).main(
            list(arguments), prog_name=f"/{name}", standalone_mode=False, obj=host.app
        )
    except click.ClickException as error:
        show_error(ClawError(error.format_message(), hint=f"See: clawctl {name} --help"))
    except click.exceptions.Exit:
        pass
