"""What commands and REPL print alike: status, conversations, receipts, the emergency stop."""

from typing import Any

import msgspec

from clawctl.client import Client
from clawctl.render import duration, show_fields, show_table
from clawd.errors import InvalidRequestError
from clawd.wire.methods import ListReceipts
from clawd.wire.reports import (
    ConversationLine,
    EstopReport,
    MemoryHits,
    PolicyExplanation,
    ReceiptLine,
    StatusReport,
)

RECEIPTS_PAGE = 500


def show_status(report: StatusReport) -> None:
    """Print a report for people."""
    stop = f"SET: {report.estop_reason or 'no reason given'}" if report.estop else "not set"
    if not report.receipts_enabled:
        receipts = "OFF: nothing is recorded"
    elif report.receipts_problem:
        receipts = f"{report.receipts}, PROBLEM: {report.receipts_problem}"
    else:
        receipts = f"{report.receipts}, head {report.receipts_head[:16]}"
    sandbox = report.sandbox + (f" ({report.sandbox_reason})" if report.sandbox_reason else "")
    model = f" ({report.default_model})" if report.default_model else ""
    show_fields(
        [
            ("clawd", f"{report.version}, pid {report.pid}, up {duration(report.uptime_s)}"),
            ("home", report.home),
            ("socket", report.socket),
            ("config", report.config),
            ("workspace", report.workspace),
            ("provider", f"{report.default_provider}{model}"),
            ("autonomy", report.autonomy),
            ("sandbox", sandbox),
            ("estop", stop),
            ("receipts", receipts),
            ("conversations", report.conversations),
            ("turns", f"{report.turns_running} running, {report.turns_queued} waiting"),
            ("approvals", f"{report.approvals_pending} pending"),
        ]
    )
    if report.workers:
        print()
        show_table(
            ("MODEL", "PID", "STATE", "RUNNING", "CONTEXT", "FENCE"),
            [(w.alias, w.pid, w.state, w.running, w.context_size, w.fence) for w in report.workers],
        )


def estop_line(report: EstopReport) -> str:
    """Return one line that says how things stand."""
    if not report.is_set:
        return "The emergency stop is not set."
    return f"EMERGENCY STOP is set{': ' + report.reason if report.reason else ''}"


def show_conversations(items: list[ConversationLine]) -> None:
    """Print a list of conversations."""
    show_table(
        ("ID", "UPDATED", "MESSAGES", "TITLE"),
        [(line.id, line.updated_at, line.messages, line.title) for line in items],
        nothing="No conversations yet.",
    )


def show_hits(hits: MemoryHits) -> None:
    """Print what a search found."""
    show_table(
        ("CONVERSATION", "WHEN", "ROLE", "TEXT"),
        [(hit.conversation_id, hit.timestamp, hit.role, hit.snippet) for hit in hits.items],
        nothing="Nothing found.",
    )


def newest_receipts(client: Client, limit: int, conversation: str = "") -> list[ReceiptLine]:
    """Return the newest receipts."""
    items: list[ReceiptLine] = []
    cursor = ""
    while len(items) < limit:
        wanted = min(RECEIPTS_PAGE, limit - len(items))
        page = client.call(ListReceipts(cursor=cursor, limit=wanted, conversation_id=conversation))
        items += page.items
        cursor = page.cursor
        if not cursor:
            break
    return items


def show_receipts(items: list[ReceiptLine]) -> None:
    """Print a list of receipts."""
    show_table(
        ("NO", "ID", "WHEN", "TOOL", "STATUS", "RISK", "APPROVAL", "REASON"),
        [(r.seq, r.id, r.timestamp, r.tool, r.status, r.risk, r.approval, r.reason) for r in items],
        nothing="No receipts yet.",
    )


def check_arguments(arguments: str, *, example: str) -> None:
    """Make sure that arguments are a JSON object.

    Raises:
        InvalidRequestError: they are not.
    """
    try:
        msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidRequestError(
            f"{arguments!r} is no JSON object: {error}", hint=f"As in: {example}"
        ) from error


def show_explanation(found: PolicyExplanation) -> None:
    """Print a verdict for a person."""
    fields = [("verdict", found.verdict), ("risk", found.risk), ("reason", found.reason)]
    fields += [("rule", found.rule), ("hint", found.hint)]
    show_fields([(name, value) for name, value in fields if value])
