"""A second verifier of receipt logs, by the format alone; it shares no code with clawd."""

import functools
import hashlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = "clawd-receipt/1"
WORDS = {
    "approval": ("auto", "user", "rule", "none"),
    "format": (FORMAT,),
    "risk": ("low", "medium", "high"),
    "status": ("allowed", "denied", "failed"),
}
LONGEST = 1 << 20
NUMBERS = ("seq", "uid", "duration_ms", "exit_code")
TEXTS = (
    *("id", "timestamp", "conversation_id", "tool", "args_hash", "result_hash", "workspace"),
    *("approved_by", "reason", "sandbox", "previous_hash", "receipt_hash"),
)


class Finding(NamedTuple):
    """How many receipts stand in unbroken order, and the first that does not, if any."""

    receipts: int
    number: int | None = None
    kind: str | None = None


class Entry(NamedTuple):
    """One line: of a receipt, of another type, or neither; sound if hash and bytes fit."""

    is_receipt: bool = False
    is_typed: bool = False
    is_sound: bool = False
    seq: int = 0
    previous: str = ""
    hash: str = ""


def verify(log: Path, head: tuple[int, str] | None = None) -> Finding:
    """Judge the log and its rotated files; `head` is a receipt known from elsewhere."""
    files = sorted(log.parent.glob(log.name + ".[0-9]*"), key=lambda file: int(file.suffix[1:]))
    files += [log] if log.exists() else []
    lines = [line for file in files for line in io.BytesIO(file.read_bytes())]
    entries, last = [read(line) for line in lines], "0" * 64
    for index, entry in enumerate(entries):
        if not entry.is_sound or (entry.seq, entry.previous) != (index + 1, last):
            is_cut = len(lines[index]) < LONGEST and not lines[index].endswith(b"\n")
            if is_cut and index == len(lines) - 1:
                return Finding(index, index + 1, "torn tail")
            return Finding(index, *_explain(entries, index, last))
        last = entry.hash
        if head is not None and head[0] == entry.seq and head[1] != last:
            return Finding(index, index + 1, "edited")
    if head is not None and head[0] > len(entries):
        return Finding(len(entries), len(entries) + 1, "cut tail")
    return Finding(len(entries))


@functools.lru_cache(maxsize=4096)
def read(line: bytes) -> Entry:
    """Take one line apart."""
    try:
        # A tuple stands for an object, so that keys that come twice stay in sight.
        pairs = json.loads(line.decode(), object_pairs_hook=tuple, parse_constant=_refuse)
        json.dumps(pairs, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return Entry()
    if not isinstance(pairs, tuple):
        return Entry()
    fields: dict[str, Any] = {"format": FORMAT, **dict(pairs)}
    if len(fields) != len((*WORDS, *NUMBERS, *TEXTS)) or not all(_fits(*pair) for pair in pairs):
        return Entry(is_typed=isinstance(fields.get("type"), str))
    claimed = fields["receipt_hash"]
    content = {name: value for name, value in fields.items() if name != "receipt_hash"}
    is_sound = hashlib.sha256(_canonical(content)).hexdigest() == claimed
    is_sound = is_sound and line == _canonical(fields) + b"\n"
    return Entry(True, False, is_sound, fields["seq"], fields["previous_hash"], claimed)


def _canonical(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _fits(name: str, value: object) -> bool:
    if name in NUMBERS:
        return type(value) is int or (name == "exit_code" and value is None)
    return isinstance(value, str) and (name in TEXTS or value in WORDS.get(name, ()))


def _explain(entries: list[Entry], index: int, last: str) -> tuple[int, str]:
    """Name what was done where the chain breaks, from what stands there and after it."""
    entry, due = entries[index], index + 1
    later = [other for other in entries[index + 1 :] if other.is_receipt]
    follower = later[0] if later else None
    if not entry.is_sound:
        if entry.is_typed:
            return due, "unknown line type"
        if follower and (follower.seq, follower.previous) == (due, last):
            return due, "inserted"
        return due, "edited" if entry.is_receipt else "not a receipt"
    if entry.seq > due:
        if not any((other.seq, other.previous) == (due, last) for other in later):
            return due, "removed"
        has_parent = any(other.hash == entry.previous for other in later)
        return due, "reordered" if has_parent else "inserted"
    names_it = bool(follower and follower.previous == entry.hash)
    if 0 < entry.seq < due and entries[entry.seq - 1].hash == entry.hash:
        return due, "duplicated"
    if entry.seq < due:
        return (index if names_it and entry.seq == index else due), "inserted"
    return (index if index and (names_it or follower is None) else due), "edited"
