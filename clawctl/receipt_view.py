"""How one receipt is shown: what was done, by whose word, and its place in the chain."""

import sys
from typing import Any

import msgspec

from clawctl.render import Palette, show_fields, size
from clawd.wire.reports import ReceiptDetail
from clawd.wire.safe_text import visible

_APPROVED = {
    "auto": "the policy let it run",
    "rule": "a standing approval let it run",
    "user": "a person let it run",
    "none": "nobody let it run",
}


def show_receipt(detail: ReceiptDetail) -> None:
    """Print a receipt with what it hashed; control and invisible characters are written out."""
    show_fields([(name, visible(str(value))) for name, value in _fields(detail)])
    for title, text, kept in (
        ("arguments", detail.arguments, detail.arguments_bytes),
        ("result", detail.result, detail.result_bytes),
    ):
        _show_content(title, text, kept)


def _fields(detail: ReceiptDetail) -> list[tuple[str, object]]:
    receipt = detail.receipt
    seq: int = receipt["seq"]
    exit_code, ran_in = receipt.get("exit_code"), receipt.get("sandbox")
    before = f"{receipt['previous_hash']} (receipt {seq - 1})"
    after = f"{detail.next_hash} (receipt {seq + 1})"
    return [
        ("receipt", f"{seq} of {max(detail.head_seq, seq)}"),
        ("id", receipt["id"]),
        ("when", receipt["timestamp"]),
        ("tool", receipt["tool"]),
        ("status", receipt["status"]),
        ("reason", receipt.get("reason") or "-"),
        ("risk", receipt["risk"]),
        ("approval", _approval(receipt)),
        ("sandbox", ran_in or "- (starts no process)"),
        ("exit code", "-" if exit_code is None else exit_code),
        ("took", f"{receipt.get('duration_ms', 0)} ms"),
        ("conversation", receipt["conversation_id"] or "- (outside of one)"),
        ("workspace", receipt["workspace"]),
        ("uid", receipt["uid"]),
        ("previous hash", before if seq > 1 else "- (it is the first)"),
        ("its hash", receipt["receipt_hash"]),
        ("next hash", after if detail.next_hash else "- (it is the last)"),
        ("args hash", receipt["args_hash"]),
        ("result hash", receipt["result_hash"]),
    ]


def _approval(receipt: dict[str, Any]) -> str:
    word, by = receipt["approval"], receipt.get("approved_by")
    told = f"{word}: {_APPROVED.get(word, '')}"
    return f"{told} ({by})" if by else told


def _show_content(title: str, text: str, kept: int | None) -> None:
    palette = Palette.of(sys.stdout)
    print(f"\n{palette.bold(title)}")
    if kept is None:
        print(palette.dim("(no longer kept: only its hash is left)"))
        return
    if kept == 0:
        print(palette.dim("(empty)"))
        return
    shown = visible(pretty(text))
    print(shown.rstrip("\n"))
    shown_bytes = len(text.encode(errors="surrogatepass"))
    if shown_bytes < kept:
        print(palette.dim(f"(cut: {size(kept)} in all)"))


def pretty(text: str) -> str:
    """Return JSON over several lines; other text as it is."""
    if not text.startswith(("{", "[")):
        return text
    try:
        msgspec.json.decode(text)
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
