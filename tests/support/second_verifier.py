"""A second verifier of receipt logs, by the format alone; it shares no code with clawd."""

import functools
import hashlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

NUMBERS = dict.fromkeys(("seq", "uid", "duration_ms"), (int,)) | {"exit_code": (int, type(None))}
TEXTS = "id timestamp conversation_id tool args_hash result_hash workspace approved_by reason"
TEXTS += " sandbox previous_hash receipt_hash checkpoint_hash key contacted refused"
LEFT_OUT = ("checkpoint_hash", "key", "contacted", "refused")  # where they are empty
SIGNED = "timestamp head_hash public_key next_public_key signature checkpoint_hash"
WORDS = {"status": ["allowed", "denied", "failed"], "risk": ["low", "medium", "high"]}
WORDS |= {"approval": ["auto", "user", "rule", "none"], "format": ["clawd-receipt/1"]}
RECEIPT = dict.fromkeys(TEXTS.split(), (str,)) | NUMBERS | WORDS
CHECKPOINT = dict.fromkeys(SIGNED.split(), (str,)) | {"seq": (int,), "type": ["checkpoint"]}
CHECKPOINT |= {"format": ["clawd-checkpoint/1"]}
SHAPES: dict[str, dict[str, Any]] = {"receipt": RECEIPT, "checkpoint": CHECKPOINT}  # of values
Place = tuple[int, str, str]  # the last receipt (seq, hash); the checkpoint's hash after it, or ""


class Entry(NamedTuple):
    kind: str = ""  # that of a shape, typed, broken or nothing
    is_sound: bool = False
    place: Place = (-1, "", "")  # before it
    hash: str = ""
    keys: tuple[str, ...] = ()  # whose signature it has, and the next key


def verify(log: Path, head: tuple[int, str] | None = None, key: str | None = None) -> Any:
    """Tell how many receipts hold, how many of them are signed, where it breaks, and how."""
    files = sorted(log.parent.glob(log.name + ".[0-9]*"), key=lambda file: int(file.suffix[1:]))
    files += [log] if log.exists() else []
    lines = [line for file in files for line in io.BytesIO(file.read_bytes())]
    entries, seq, last, mark, signed = [*map(read, lines)], 0, "0" * 64, "", 0
    for index, (line, entry) in enumerate(zip(lines, entries, strict=True)):
        is_signer = bool(entry.keys and entry.keys[0]) and key in {None, entry.keys[0]}
        may_sign = is_signer if entry.keys else not 0 < signed <= seq - 256
        if not (entry.is_sound and entry.place == (seq, last, mark) and may_sign):
            if index == len(lines) - 1 and not line.endswith(b"\n") and len(line) < 1 << 20:
                return seq, signed, seq + 1, "torn tail"
            return seq, signed, *_explain(entries, index, (seq, last, mark), may_sign=may_sign)
        if entry.keys:
            mark, key, signed = entry.hash, entry.keys[1], seq
            continue
        seq, last, mark = seq + 1, entry.hash, ""
        if head is not None and head[0] == seq and head[1] != last:
            return seq - 1, signed, seq, "edited"
    return seq, signed, *((seq + 1, "cut tail") if head and head[0] > seq else (None, None))


@functools.lru_cache(maxsize=4096)
def read(line: bytes) -> Entry:
    """Take one line apart; a tuple stands for an object, so that keys that come twice show."""
    try:
        value = json.loads(line.decode(), object_pairs_hook=tuple, parse_constant=int)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
        pairs = value if isinstance(value, tuple) else ()
        found: dict[str, Any] = dict(pairs)
    except (ValueError, RecursionError):
        return Entry()
    for kind, shape in SHAPES.items():
        all_of = dict.fromkeys(LEFT_OUT, "") | found if kind == "receipt" else found
        fits = (x in shape[name] or type(x) in shape[name] for name, x in pairs)
        if set(all_of) == set(shape) and all(fits):
            own, seq, named = all_of[f"{kind}_hash"], all_of["seq"], all_of["checkpoint_hash"]
            is_sound = hashlib.sha256(_canonical(all_of, f"{kind}_hash")).hexdigest() == own
            is_sound = is_sound and line == _canonical(all_of) + b"\n"
            if kind == "receipt":
                return Entry(kind, is_sound, (seq - 1, all_of["previous_hash"], named), own)
            keys = _signer(all_of), all_of["next_public_key"]
            return Entry(kind, is_sound, (seq or -1, all_of["head_hash"], ""), own, keys)
    if "type" not in found or not all(isinstance(x, str) for name, x in pairs if name == "type"):
        return Entry()
    is_ours = (found["type"], found.get("format")) == ("checkpoint", "clawd-checkpoint/1")
    return Entry("broken" if is_ours else "typed")


def _signer(fields: dict[str, Any]) -> str:
    key, signature = fields["public_key"], fields["signature"]
    try:
        signer = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        signer.verify(bytes.fromhex(signature), _canonical(fields, "signature", "checkpoint_hash"))
    except (ValueError, InvalidSignature):
        return ""
    return key if key + signature == (key + signature).lower() else ""


def _canonical(fields: dict[str, Any], *out: str) -> bytes:
    kept = {x: y for x, y in fields.items() if x not in out and (y or x not in LEFT_OUT)}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _explain(entries: list[Entry], at: int, end: Place, *, may_sign: bool) -> tuple[int, str]:
    entry, (seq, last, mark), due = entries[at], end, end[0] + 1
    after = [other for other in entries[at + 1 :] if other.kind in SHAPES]
    later, is_put_in = [x for x in after if not x.keys], bool(after) and after[0].place == end
    names_it = bool(later) and later[0].place[1] == entry.hash
    if not entry.is_sound:
        word = {"": "not a receipt", "typed": "unknown line type"}.get(entry.kind, "edited")
        return due, "inserted" if is_put_in and entry.kind != "typed" else word
    if entry.place[0] > seq:
        is_due = any(other.place[:2] == (seq, last) for other in later)
        has_parent = any(other.hash == entry.place[1] for other in later)
        return due, "removed" if not is_due else "reordered" if has_parent else "inserted"
    if entry.place[0] < seq or (entry.keys and mark):
        is_copy = any(other.hash == entry.hash for other in entries[:at])
        is_rival = names_it and entry.place[0] == seq - 1 and not is_copy
        return due - is_rival, "duplicated" if is_copy else "inserted"
    if entry.keys or entry.place == end:
        return seq, "edited" if may_sign else "bad signature"
    if entry.place[1] != last:
        return due - (seq > 0 and (names_it or not later)), "edited"
    is_later = any(other.keys and other.hash == entry.place[2] for other in after)
    word = "edited" if mark else "reordered" if is_later else "removed"
    return due, "inserted" if (is_put_in and not after[0].keys) or not entry.place[2] else word
