"""What commands and REPL print alike: status, conversations, receipts, the emergency stop."""

from collections.abc import Sequence
from typing import Any

import msgspec

from clawctl.client import Client
from clawctl.render import say, show_fields, show_table
from clawd.errors import InvalidRequestError
from clawd.wire.conversations import CompressionReport, ConversationLine, SessionFileList
from clawd.wire.daemon import EstopReport
from clawd.wire.events import ContextCompressed
from clawd.wire.memory import KnowledgeEntry, KnowledgeOutcome, MemoryHits
from clawd.wire.models import LoadedModel
from clawd.wire.policy import PolicyBoundary, PolicyExplanation
from clawd.wire.receipts import ListReceipts, ReceiptLine
from clawd.wire.safe_text import terminal_safe
from clawd.wire.tools import ChangeList

RECEIPTS_PAGE = 500
ID_END = 10  # characters that tell one receipt from all others


def warm_text(model: LoadedModel) -> str:
    """Return how much is evaluated of what prompts begin with: `1004`, `512/1004`, or a dash."""
    if not model.warm_tokens:
        return "-"
    if model.warm_ready == model.warm_tokens:
        return str(model.warm_tokens)
    return f"{model.warm_ready}/{model.warm_tokens}"


def estop_line(report: EstopReport) -> str:
    """Return one line that says how things stand."""
    if not report.is_set:
        return "The emergency stop is not set."
    return f"EMERGENCY STOP is set{': ' + report.reason if report.reason else ''}"


def show_conversations(items: list[ConversationLine]) -> None:
    """Print a list of conversations."""
    show_table(
        ("ID", "UPDATED", "MESSAGES", "TITLE"),
        [(line.id, line.updated_at[:19], line.messages, line.title) for line in items],
        nothing="No conversations yet.",
    )


def show_compression(report: CompressionReport) -> None:
    """Print how a conversation is shown to its model now."""
    if report.undone:
        times = "1 compression" if report.undone == 1 else f"{report.undone} compressions"
        say(f"{times} taken back; the model is shown {report.messages_shown} messages.")
    else:
        tokens = f", about {report.tokens_before} tokens before and {report.tokens_after} after"
        say(
            f"A summary stands for {report.messages_replaced} messages; the model is shown "
            f"{report.messages_shown}{tokens if report.tokens_before else ''}."
        )
    if report.summary:
        say(f"\n{report.summary}")


def compressed_line(event: ContextCompressed) -> str:
    """Return one line that says what was left out of a context."""
    count = event.messages_replaced
    what = f"{count} messages left out of the context" if count else "old results were shortened"
    if not event.tokens_before:
        return f"● {what}"
    return f"● {what}: {event.tokens_before} → {event.tokens_after} tokens"


def show_hits(hits: MemoryHits) -> None:
    """Print what a search found."""
    show_table(
        ("CONVERSATION", "WHEN", "ROLE", "TEXT"),
        [(hit.conversation_id, hit.timestamp, hit.role, hit.snippet) for hit in hits.items],
        nothing="Nothing found.",
    )


def show_notes(found: KnowledgeOutcome) -> None:
    """Print entries of knowledge; what a call without any has to say is not shown here."""
    show_table(
        ("NAME", "BYTES", "CHANGED", "TEXT"),
        [(e.name, e.size, e.modified_at, _note_line(e)) for e in found.entries],
        nothing=terminal_safe(found.call.output),
    )


def _note_line(entry: KnowledgeEntry) -> str:
    words = ["[fixed]"] if entry.is_fixed else []
    if not entry.keywords:
        words.append("[no keywords: not searched]")
    if entry.untrusted_sources:
        words.append(f"[untrusted text from {', '.join(entry.untrusted_sources)}]")
    return " ".join([*words, entry.text])


def newest_receipts(client: Client, limit: int, wanted: ListReceipts) -> list[ReceiptLine]:
    """Return the newest receipts that fit what is wanted."""
    items: list[ReceiptLine] = []
    cursor: str | None = ""
    while cursor is not None and len(items) < limit:
        count = min(RECEIPTS_PAGE, limit - len(items))
        page = client.call(msgspec.structs.replace(wanted, cursor=cursor, limit=count))
        items += page.items
        cursor = page.cursor or None
    return items


def show_receipts(items: list[ReceiptLine]) -> None:
    """Print a list of receipts."""
    at = [r.timestamp[5:16].replace("T", " ") for r in items]
    short = [
        (r.seq, r.id[-ID_END:], when, r.tool, r.status, r.reason)
        for r, when in zip(items, at, strict=True)
    ]
    show_table(
        ("NO", "ID", "WHEN", "TOOL", "STATUS", "RISK", "APPROVAL", "REASON"),
        [(r.seq, r.id, r.timestamp, r.tool, r.status, r.risk, r.approval, r.reason) for r in items],
        nothing="No receipts yet.",
        narrow=(("NO", "ID ENDS", "WHEN", "TOOL", "STATUS", "REASON"), short),
    )


def show_changes(found: ChangeList) -> None:
    """Print what undo can take back."""
    show_table(
        ("WHEN", "TOOL", "DID", "BYTES", "CALL", "PATH"),
        [
            (c.at[:19], c.tool, c.action, f"{c.size_before} → {c.size_after}", c.receipt_id, c.path)
            for c in found.items
        ],
        nothing="Nothing can be taken back here.",
        narrow=(
            ("WHEN", "DID", "CALL", "PATH"),
            [(c.at[5:16], c.action, c.receipt_id, c.path) for c in found.items],
        ),
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
            f"{arguments!r} is not a JSON object: {error}", hint=f"As in: {example}"
        ) from error


def show_explanation(found: PolicyExplanation) -> None:
    """Print a verdict for a person."""
    fields = [("verdict", found.verdict), ("risk", found.risk), ("reason", found.reason)]
    fields += [("rule", found.rule), ("hint", found.hint), ("hooks", _lines(found.hooks))]
    show_fields([(name, value) for name, value in fields if value])


def show_boundary(
    found: PolicyBoundary,
    *,
    first: Sequence[tuple[str, object]] = (),
    last: Sequence[tuple[str, object]] = (),
) -> None:
    """Print what tools may touch and reach, and what they never may; a name a line."""
    inside = "file tools stay in it" if found.workspace_only else "file tools may leave it, or ask"
    fields = [
        ("autonomy", found.autonomy),
        ("sandbox", found.sandbox),
        ("workspace", f"{found.workspace} ({inside})"),
        ("workspaces under", _lines(found.workspace_roots)),
        ("forbidden paths", _lines(found.forbidden_paths)),
        ("forbidden commands", _words(found.forbidden_commands)),
        ("allowed commands", f"{_words(found.allowed_commands)}; and those built in"),
        (
            "allowed domains",
            _words(found.allowed_domains, "none: each other host asks or is refused"),
        ),
        ("allowed addresses", _words(found.allowed_addresses, "none that is private or loopback")),
        ("commands reach", _reached(found)),
        ("untrusted paths", _words(found.untrusted_paths)),
        ("may be written though run later", _words(found.writable_run_later)),
    ]
    show_fields([*first, *fields, *last])


def _reached(found: PolicyBoundary) -> str:
    if found.egress == "off":
        return "no host"
    return f"{_words(found.egress_hosts, 'no host unasked')} ({found.egress})"


def _lines(values: tuple[str, ...]) -> str:
    return "\n".join(values) or "none"


def _words(values: tuple[str, ...], nothing: str = "none") -> str:
    return ", ".join(values) or nothing


def show_session_files(found: SessionFileList) -> None:
    """Print the files of a conversation."""
    show_table(
        ("NAME", "TYPE", "BYTES", "CHANGED", "WHAT"),
        [(f.name, f.mime, f.size, f.updated_at[:19], f.summary) for f in found.items],
        nothing="No files.",
    )
