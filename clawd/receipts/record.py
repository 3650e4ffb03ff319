"""The lines of the receipt log, receipts and checkpoints: fields, bytes, hashes. No files.

The log holds one receipt a line, in the canonical form (RFC 8785: keys sorted, no blanks):

    {"approval":"auto","approved_by":"","args_hash":"…","conversation_id":"…",…,"tool":"file_list"}

`receipt_hash` is SHA-256 over the canonical form without `receipt_hash`. Values are strings,
integers, booleans and null only, so that a sorted msgspec encoding is that form. `checkpoint_hash`
stands in the first receipt after a checkpoint line and in no other, `key` in those of calls that
came with a key of the HTTP gateway, `contacted` and `refused` in those of calls whose process
reached hosts, or was refused them.

Between the receipts stand checkpoints, each a signed line. It says: receipt `seq` has the hash
`head_hash`, and its writer had the private key of `public_key`. It names the key that signs
next; the one that signed is destroyed:

    {"checkpoint_hash":"…","format":"clawd-checkpoint/1","head_hash":"…","next_public_key":"…",
    "public_key":"…","seq":256,"signature":"…","timestamp":"…","type":"checkpoint"}

It is canonical JSON like a receipt. The signature (Ed25519, RFC 8032) is over the canonical form
without `signature` and `checkpoint_hash`; `checkpoint_hash` is SHA-256 over the canonical form
without itself. The receipt on the next line names that hash, so that the line cannot vanish.
"""

import hashlib
import os
import time
from typing import Final, Literal

import msgspec

from clawd.errors import ReceiptError

FORMAT: Literal["clawd-receipt/1"] = "clawd-receipt/1"
MAX_TEXT_CHARS = 4096
MAX_LINE_BYTES = 1 << 20  # more than the text fields of one receipt can make, all of it escaped

Status = Literal["allowed", "denied", "failed"]
Approval = Literal["auto", "user", "rule", "none"]
RiskWord = Literal["low", "medium", "high"]

CHECKPOINT_FORMAT: Final = "clawd-checkpoint/1"
CHECKPOINT_RECEIPTS = 256
LINE_START = b'{"checkpoint_hash":"'
KEY_BYTES = 32
SIGNATURE_BYTES = 64

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Receipt(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What became of one attempted call.

    Attributes:
        seq: 1 for the first receipt of a chain, then one more each; 0 before it has its place.
        status: allowed (it ran and succeeded), denied (it never ran), failed (it ran or should
            have, and did not succeed).
        risk: low, medium or high.
        approval: who let it run: auto (the policy), user, rule, or none; `approved_by` names them.
        reason: why it was denied or failed, or the policy's word for why it ran.
        sandbox: the level that was in force; empty for a tool that starts no process.
        exit_code: of the child process, or null.
        previous_hash: the receipt_hash before it; 64 zeros for the first.
        checkpoint_hash: of the checkpoint on the line directly before; left out without one.
        key: id of the key of the HTTP gateway that the call came with; left out without one.
        contacted: the hosts that the call reached through the egress proxy, each as
            `HOST:PORT ADDRESS UP/DOWN BY` (bytes, and by whose word), with commas between them;
            left out where there are none.
        refused: the hosts that it was refused, with commas between them; likewise.
    """

    id: str
    seq: int
    timestamp: str
    conversation_id: str
    tool: str
    args_hash: str
    result_hash: str
    status: Status
    risk: RiskWord
    uid: int
    workspace: str
    approval: Approval
    approved_by: str
    reason: str
    sandbox: str
    duration_ms: int
    exit_code: int | None
    previous_hash: str
    receipt_hash: str
    format: Literal["clawd-receipt/1"]
    checkpoint_hash: str = ""
    key: str = ""
    contacted: str = ""
    refused: str = ""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is about to run; on disk before it does, closed by its receipt.

    Attributes:
        id: the id of the receipt to come (`receipt-` and a ULID).
        timestamp: UTC, seconds, `2026-11-21T08:00:00Z`.
        args_hash: SHA-256 of the stored (redacted, canonical) arguments, lower-case hex.
        risk: low, medium or high.
        approval: auto, user, rule or none, and `approved_by` whom.
        sandbox: the level in force: `bwrap`, `none`, … (empty for a tool that starts nothing).
        key: id of the key of the HTTP gateway that it came with; empty without one.
        answers: the approval that was answered late by it; the same write takes that from those
            that can be answered, so that a call runs once.
    """

    id: str
    timestamp: str
    conversation_id: str
    tool: str
    args_hash: str
    risk: RiskWord
    uid: int
    workspace: str
    approval: Approval
    approved_by: str = ""
    reason: str = ""
    sandbox: str = ""
    key: str = ""
    answers: str = ""

    def receipt(
        self,
        status: Status,
        result_hash: str,
        *,
        duration_ms: int = 0,
        exit_code: int | None = None,
        contacted: str = "",
        refused: str = "",
    ) -> Receipt:
        """Return the receipt of what became of it, which has no place in a chain yet."""
        fields = msgspec.structs.asdict(self)
        del fields["answers"]
        return Receipt(
            **fields,
            status=status,
            result_hash=result_hash,
            duration_ms=duration_ms,
            exit_code=exit_code,
            contacted=contacted,
            refused=refused,
            seq=0,
            previous_hash="",
            receipt_hash="",
            format=FORMAT,
        )


_LEFT_OUT = ("checkpoint_hash", "key", "contacted", "refused")  # where they are empty
_LARGEST_INT = (1 << 53) - 1  # RFC 8785, 3.2.2.3: beyond it, numbers are no longer exact

_HASH_FIELD = b'"receipt_hash":"'
_HASH_FIELD_BYTES = len(_HASH_FIELD) + 64 + len('",')

_encoder = msgspec.json.Encoder(order="sorted")
_decoder: msgspec.json.Decoder[Receipt] = msgspec.json.Decoder(Receipt)


def canonical(receipt: Receipt) -> bytes:
    """Return the receipt's line without the newline (RFC 8785)."""
    return _encoder.encode(receipt)


def compute_hash(receipt: Receipt) -> str:
    """Return the hash that the receipt must carry."""
    fields = msgspec.structs.asdict(receipt)
    del fields["receipt_hash"]
    for name in _LEFT_OUT:
        if not fields[name]:
            del fields[name]
    return hashlib.sha256(_encoder.encode(fields)).hexdigest()


def fitted(receipt: Receipt) -> Receipt:
    """Return the receipt in a form that can be written and read again, whatever a model called.

    A text of over 4,096 characters is cut (and ends in `…`), half a surrogate pair becomes its
    escape, an integer that JSON cannot carry exactly becomes the nearest that it can.

    Raises:
        ReceiptError: a field has a value that no receipt may have.
    """
    fields = msgspec.structs.asdict(receipt)
    for name, value in fields.items():
        if isinstance(value, str):
            text = value.encode("utf-8", "backslashreplace").decode("utf-8")
            is_long = len(text) > MAX_TEXT_CHARS
            fields[name] = text[: MAX_TEXT_CHARS - 1] + "…" if is_long else text
        elif isinstance(value, int):
            fields[name] = max(-_LARGEST_INT, min(value, _LARGEST_INT))
    try:
        return msgspec.convert(fields, Receipt)
    except msgspec.ValidationError as error:
        raise ReceiptError(f"not a receipt: {error}") from error


def seal(receipt: Receipt, *, seq: int, previous_hash: str, checkpoint_hash: str = "") -> Receipt:
    """Return the fitted receipt at this place of the chain, with its own hash."""
    placed = msgspec.structs.replace(
        receipt, seq=seq, previous_hash=previous_hash, checkpoint_hash=checkpoint_hash
    )
    return msgspec.structs.replace(placed, receipt_hash=compute_hash(placed))


def parse(line: bytes) -> Receipt:
    """Decode one line.

    Raises:
        ReceiptError: it is no receipt.
    """
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReceiptError(f"not a receipt: {error}") from error


def line_hash(line: bytes) -> str:
    """Return what `compute_hash` does, from a receipt's canonical line and without encoding it.

    Only for a receipt whose hash has 64 digits, as every right one has. A quote inside a string is
    escaped, so the field's name and its quotes occur only once.
    """
    at = line.find(_HASH_FIELD)
    return hashlib.sha256(line[:at] + line[at + _HASH_FIELD_BYTES :]).hexdigest()


def utc_timestamp() -> str:
    """Return the time now as receipts give it: `2026-11-21T08:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def new_id() -> str:
    """Return `receipt-` and a fresh ULID."""
    return "receipt-" + new_ulid()


def new_ulid() -> str:
    """Return a fresh ULID, in Crockford's base 32: later ones sort after earlier ones.

    Of the 80 bits behind the 48 of milliseconds, the first 20 are the nanoseconds within the
    millisecond and 60 are random.
    """
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    noise = int.from_bytes(os.urandom(8), "big") >> 4
    value = milliseconds << 80 | nanoseconds << 60 | noise
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


def sha256_hex(data: bytes) -> str:
    """Return the lower-case hex SHA-256 of the bytes."""
    return hashlib.sha256(data).hexdigest()


# Checkpoints.


class ReceiptCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signature over the chain as far as receipt `seq`. Keys, hashes, signature: lower-case hex.

    Attributes:
        seq: number of the receipt on the line before.
        head_hash: that receipt's hash.
        public_key: of the private key that signed this.
        next_public_key: of the one that signs the next checkpoint.
    """

    seq: int
    head_hash: str
    timestamp: str
    public_key: str
    next_public_key: str
    signature: str
    checkpoint_hash: str
    type: Literal["checkpoint"]
    format: Literal["clawd-checkpoint/1"]


class _LineType(msgspec.Struct, frozen=True):
    type: str
    format: object = None


_checkpoints: msgspec.json.Decoder[ReceiptCheckpoint] = msgspec.json.Decoder(ReceiptCheckpoint)
_line_type: msgspec.json.Decoder[_LineType] = msgspec.json.Decoder(_LineType)


def canonical_checkpoint(checkpoint: ReceiptCheckpoint) -> bytes:
    """Return the checkpoint's line without the newline (RFC 8785)."""
    return _encoder.encode(checkpoint)


def parse_checkpoint(line: bytes) -> ReceiptCheckpoint:
    """Decode one line.

    Raises:
        ReceiptError: it is no checkpoint.
    """
    try:
        return _checkpoints.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReceiptError(f"not a checkpoint: {error}") from error


def unknown_type(line: bytes) -> str:
    """Return the type of a line that names one which this clawd does not know, else ""."""
    found = _type_of(line)
    return "" if found is None or _is_ours(found) else found.type


def claims_checkpoint(line: bytes) -> bool:
    """Return whether the line, however broken, says that it is a checkpoint of our format."""
    found = _type_of(line)
    return found is not None and _is_ours(found)


def signed(
    private_key: bytes, *, seq: int, head_hash: str, next_public_key: str
) -> ReceiptCheckpoint:
    """Return a checkpoint of now, signed with the private key (32 bytes)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    bare = ReceiptCheckpoint(
        seq=seq,
        head_hash=head_hash,
        timestamp=utc_timestamp(),
        public_key=public_key_of(private_key),
        next_public_key=next_public_key,
        signature="",
        checkpoint_hash="",
        type="checkpoint",
        format=CHECKPOINT_FORMAT,
    )
    signature = Ed25519PrivateKey.from_private_bytes(private_key).sign(_signed_bytes(bare))
    return rehashed(msgspec.structs.replace(bare, signature=signature.hex()))


def rehashed(checkpoint: ReceiptCheckpoint) -> ReceiptCheckpoint:
    """Return the checkpoint with the hash that its other fields give."""
    return msgspec.structs.replace(checkpoint, checkpoint_hash=hash_of(checkpoint))


def hash_of(checkpoint: ReceiptCheckpoint) -> str:
    """Return the hash that the checkpoint must carry."""
    return hashlib.sha256(_without(checkpoint, "checkpoint_hash")).hexdigest()


def is_signed(checkpoint: ReceiptCheckpoint) -> bool:
    """Return whether the signature is that of the checkpoint's own public key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key, signature = unhex(checkpoint.public_key), unhex(checkpoint.signature)
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _signed_bytes(checkpoint))
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key_of(private_key: bytes) -> str:
    """Return the public half of a private key (32 bytes) in hex."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw().hex()


def unhex(text: str) -> bytes:
    """Return the bytes of lower-case hex; none for any other text."""
    try:
        value = bytes.fromhex(text)
    except ValueError:
        return b""
    return value if value.hex() == text else b""


def _signed_bytes(checkpoint: ReceiptCheckpoint) -> bytes:
    return _without(checkpoint, "checkpoint_hash", "signature")


def _without(checkpoint: ReceiptCheckpoint, *names: str) -> bytes:
    fields = msgspec.structs.asdict(checkpoint)
    return _encoder.encode({name: fields[name] for name in fields if name not in names})


def _type_of(line: bytes) -> _LineType | None:
    try:
        line.decode()  # msgspec does not look into the values that it skips
        return _line_type.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_ours(found: _LineType) -> bool:
    return found.type == "checkpoint" and found.format == CHECKPOINT_FORMAT
