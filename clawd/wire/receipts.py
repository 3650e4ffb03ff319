"""Methods about receipts, and what they report."""

from typing import Any, ClassVar

import msgspec

from clawd.wire.method import Done, Method

GENESIS_HASH = "0" * 64  # stands for the hash before the first receipt


class ReceiptLine(msgspec.Struct, frozen=True, kw_only=True):
    """One receipt for people: fields of `receipts.record.Receipt`."""

    seq: int
    id: str
    timestamp: str
    conversation_id: str
    tool: str
    status: str
    risk: str
    approval: str
    reason: str
    duration_ms: int
    receipt_hash: str


class ReceiptPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of receipts, newest first."""

    items: tuple[ReceiptLine, ...]
    cursor: str = ""


class ListReceipts(Method[ReceiptPage], frozen=True, kw_only=True):
    """List the receipts that fit, newest first.

    `tool` is a name or a pattern such as `file_*`. `since` is included and `until` is not; both
    are in UTC, as receipts give it: `2026-11-21T08:00:00Z`. `workspace` is a folder, with all below
    it; `host` a name or a pattern of one that the call reached or was refused.
    """

    cursor: str = ""
    limit: int = 50
    conversation_id: str = ""
    tool: str = ""
    status: str = ""
    since: str = ""
    until: str = ""
    risk: str = ""
    workspace: str = ""
    host: str = ""


class ReceiptDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt whole, with what it hashed (redacted, at most 1 MiB of each), and its place.

    The sizes are those of the whole, or None for what is no longer kept. `next_hash` is empty for
    the last receipt, `head_seq` is its number.
    """

    receipt: dict[str, Any]
    arguments: str
    result: str
    arguments_bytes: int | None = None
    result_bytes: int | None = None
    next_hash: str = ""
    head_seq: int = 0


class ShowReceipt(Method[ReceiptDetail], frozen=True, kw_only=True):
    """Show one receipt, by id, a unique end or beginning of it, or its number."""

    receipt_id: str


class ReceiptLogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of the receipt log as they are, and where to go on; `is_end`: nothing follows now."""

    data: bytes
    file: int
    offset: int
    is_end: bool


class ReadReceiptLog(Method[ReceiptLogChunk], frozen=True, kw_only=True):
    """Read whole lines of the receipt log as they are; go on with what the chunk before says.

    `file` is the number of a file of the log, 0 for the oldest.
    """

    admin: ClassVar[bool] = True
    file: int = 0
    offset: int = 0


class ContentPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that were kept by their hash, or a part; `size` is of the whole, None: not kept."""

    hash: str
    size: int | None
    data: bytes = b""


class ContentPieces(msgspec.Struct, frozen=True, kw_only=True):
    """Contents, in the order asked for; those of the end may be missing, ask for them again."""

    items: tuple[ContentPiece, ...]


class LoadContents(Method[ContentPieces], frozen=True, kw_only=True):
    """Return arguments and results by their hashes, as many of the first ones as fit an answer.

    `offset` is where to go on in the first, when it is longer than one answer.
    """

    admin: ClassVar[bool] = True
    hashes: tuple[str, ...]
    offset: int = 0


class AcceptReceipts(Method[Done], frozen=True, kw_only=True):
    """Take the receipt log as it stands, though memory remembers another head."""

    admin: ClassVar[bool] = True


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What came of verifying a chain.

    Attributes:
        receipts: how many stand in unbroken order from the first.
        level: what is proven: none, chain, signed or anchored; see `receipts.verify`.
        first_bad: where the chain breaks: the number of the first receipt that is broken, or that
            should follow there; of a bad signature, the receipt that it signs. None when it holds.
        kind: what was done there, or "".
        message: one sentence; a broken chain's begins with `invalid chain at receipt N`.
        head_seq: number of the last receipt in unbroken order, 0 for none; and its hash.
        checkpoints: how many stand between those receipts.
        signed: how many receipts they sign, from the first.
        signatures: one sentence that says so, and with which keys that was checked.
    """

    ok: bool
    receipts: int
    level: str
    message: str
    head_seq: int = 0
    head_hash: str = GENESIS_HASH
    first_bad: int | None = None
    kind: str = ""
    checkpoints: int = 0
    signed: int = 0
    signatures: str = ""


class VerifyReceipts(Method[Verification], frozen=True, kw_only=True):
    """Verify the chain as the daemon holds it, against the head that memory remembers.

    Attributes:
        public_key: its first one, known from elsewhere (hex), or "".
        anchor: a head known from elsewhere (`SEQ:HASH`), or "".
    """

    public_key: str = ""
    anchor: str = ""


class ReceiptHead(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the chain, unverified.

    Attributes:
        seq: number of the last receipt, 0 for none; and its hash.
        first_public_key: hex; "" when it is not known.
        signed: number of the receipt that the last checkpoint signs, 0 without one; and when (UTC).
    """

    seq: int = 0
    receipt_hash: str = GENESIS_HASH
    first_public_key: str = ""
    signed: int = 0
    signed_at: str = ""


class HeadOfReceipts(Method[ReceiptHead], frozen=True, kw_only=True):
    """Show the end of the chain and its first public key, to keep elsewhere."""
