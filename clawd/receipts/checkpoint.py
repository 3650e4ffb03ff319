"""One checkpoint: a signed line between the receipts. Its fields, hash and signature; no files.

A checkpoint says: receipt `seq` has the hash `head_hash`, and who wrote this had the private key of
`public_key`. It names the key that signs next; the one that signed is destroyed:

    {"checkpoint_hash":"…","format":"clawd-checkpoint/1","head_hash":"…","next_public_key":"…",
    "public_key":"…","seq":256,"signature":"…","timestamp":"…","type":"checkpoint"}

It is canonical JSON like a receipt. The signature (Ed25519, RFC 8032) is over the canonical form
without `signature` and `checkpoint_hash`; `checkpoint_hash` is SHA-256 over the canonical form
without itself. The receipt on the next line names that hash, so that the line cannot vanish.
"""

import hashlib
from typing import Final, Literal

import msgspec

from clawd.errors import ReceiptError
from clawd.receipts.record import utc_timestamp

CHECKPOINT_FORMAT: Final = "clawd-checkpoint/1"
CHECKPOINT_RECEIPTS = 256
LINE_START = b'{"checkpoint_hash":"'
KEY_BYTES = 32
SIGNATURE_BYTES = 64


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


_encoder = msgspec.json.Encoder(order="sorted")
_decoder: msgspec.json.Decoder[ReceiptCheckpoint] = msgspec.json.Decoder(ReceiptCheckpoint)
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
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReceiptError(f"not a checkpoint: {error}") from error


def unknown_type(line: bytes) -> str:
    """Return the type of a line that names one which this clawd does not know, else ""."""
    found = _type_of(line)
    return "" if found is None or _is_ours(found) else found.type


def claims_checkpoint(line: bytes) -> bool:
    """Tell whether the line, however broken, says that it is a checkpoint of our format."""
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
    """Tell whether the signature is that of the checkpoint's own public key."""
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
