"""The one reader of the receipt chain: tells how far it holds, and what its receipts are.

It needs the files alone, no daemon. The level says what is proven:

- `chain`: nobody changed a part of it without writing all of the rest anew. Checkpoints are
  checked with the keys that the file itself names.
- `signed`: with the first public key from elsewhere. As far as its checkpoints go, nobody wrote it
  anew who had not the private keys of that time, and those are destroyed.
- `anchored`: with a head from elsewhere. Nobody cut its end or wrote it anew before that head.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from clawd.errors import ReceiptError
from clawd.receipts.checkpoint import CHECKPOINT_RECEIPTS, LINE_START, parse_checkpoint, unhex
from clawd.receipts.diagnosis import ChainWalk, Fault, diagnose
from clawd.receipts.logfiles import read_lines, read_lines_backwards
from clawd.receipts.record import Receipt, parse
from clawd.wire.receipts import ReceiptHead, Verification

PROGRESS_LINES = 2_000

Level = Literal["none", "chain", "signed", "anchored"]


class BadLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log that is no receipt, and why."""

    problem: str


def verify(
    path: Path,
    *,
    anchor: tuple[int, str] | None = None,
    public_key: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Verification:
    """Read the whole chain, in constant memory, and judge it.

    Args:
        path: the current file; its rotated files beside it are read first.
        anchor: a head (seq, hash) known from elsewhere, which the chain must contain.
        public_key: the chain's first one, known from elsewhere, in lower-case hex.
        progress: told from time to time how many bytes were read.

    Raises:
        ReceiptError: there is no chain at the path, or it cannot be read.
    """
    lines = read_lines(path)
    if progress is not None:
        lines = _counted(lines, progress)
    walk = ChainWalk(next_key=public_key)
    for line in lines:
        if not walk.take(line):
            return _broken(walk, diagnose(path, walk, line, lines))
        if anchor is not None and walk.seq == anchor[0] and walk.head != anchor[1]:
            why = f"its hash is {walk.head}, and the known head there is {anchor[1]}"
            fault = Fault(number=walk.seq, kind="edited", why=why)
            return _broken(walk.before_last(), fault, level="chain")
    return _unbroken(walk, anchor, is_key_known=public_key is not None)


def _counted(lines: Iterator[bytes], progress: Callable[[int], None]) -> Iterator[bytes]:
    done = 0
    for number, line in enumerate(lines):
        done += len(line)
        if number % PROGRESS_LINES == 0:
            progress(done)
        yield line


def parse_public_key(text: str) -> str:
    """Return the public key that a person gave in hex.

    Raises:
        ReceiptError: it is none.
    """
    key = text.strip().lower()
    if len(unhex(key)) != 32:
        raise ReceiptError(
            "a public key is 64 hexadecimal digits",
            hint="`clawctl receipt head` shows the first public key of the chain.",
        )
    return key


def parse_anchor(text: str) -> tuple[int, str]:
    """Return the head (seq, hash) that a person gave as SEQ:HASH.

    Raises:
        ReceiptError: it is none.
    """
    number, _, known = text.strip().lower().partition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 16 and int(number) > 0):
        number = ""
    if not number or len(unhex(known)) != 32:
        raise ReceiptError(
            "a head is SEQ:HASH, the number of a receipt and its hash of 64 hexadecimal digits",
            hint="`clawctl receipt head` shows the present one.",
        )
    return int(number), known


def read_head(path: Path, *, first_public_key_path: Path) -> ReceiptHead:
    """Return what stands at the end of the log, and its first public key; nothing is verified.

    Args:
        path: the current file.
        first_public_key_path: where the key is while the chain has no checkpoint.

    Raises:
        ReceiptError: there is no chain at the path, or it cannot be read.
    """
    head = ReceiptHead()
    for line in read_lines_backwards(path):
        try:
            if line.startswith(LINE_START):
                last = parse_checkpoint(line)
                head = msgspec.structs.replace(head, signed=last.seq, signed_at=last.timestamp)
                if not head.seq:
                    head = msgspec.structs.replace(head, seq=last.seq, receipt_hash=last.head_hash)
                break
            if not head.seq:
                receipt = parse(line)
                head = msgspec.structs.replace(
                    head, seq=receipt.seq, receipt_hash=receipt.receipt_hash
                )
        except ReceiptError:
            continue
    first = _first_public_key(path) if head.signed else read_public_key(first_public_key_path)
    return msgspec.structs.replace(head, first_public_key=first)


def read_public_key(path: Path) -> str:
    """Return the public key in a file, "" where there is none."""
    try:
        return parse_public_key(path.read_text("ascii"))
    except (OSError, UnicodeDecodeError, ReceiptError):
        return ""


def read_receipts(path: Path, *, newest_first: bool = False) -> Iterator[Receipt | BadLine]:
    """Yield what the log's lines hold, but for checkpoints, without judging the chain.

    Raises:
        ReceiptError: there is no chain at the path, or it cannot be read.
    """
    for line in read_lines_backwards(path) if newest_first else read_lines(path):
        try:
            yield parse(line)
        except ReceiptError as error:
            if not _is_checkpoint(line):
                yield BadLine(problem=error.message)


def find_receipt(path: Path, receipt_id: str) -> Receipt | None:
    """Return the newest receipt with the id, or None.

    Raises:
        ReceiptError: there is no chain at the path, or it cannot be read.
    """
    if not receipt_id.isascii():
        return None
    wanted = msgspec.json.encode(receipt_id)
    for line in read_lines_backwards(path):
        if wanted in line:
            try:
                receipt = parse(line)
            except ReceiptError:
                continue
            if receipt.id == receipt_id:
                return receipt
    return None


def _first_public_key(path: Path) -> str:
    for line in read_lines(path):
        if line.startswith(LINE_START) and _is_checkpoint(line):
            return parse_checkpoint(line).public_key
    return ""


def _is_checkpoint(line: bytes) -> bool:
    try:
        parse_checkpoint(line)
    except ReceiptError:
        return False
    return True


def _unbroken(
    walk: ChainWalk, anchor: tuple[int, str] | None, *, is_key_known: bool
) -> Verification:
    if anchor is not None and walk.seq < anchor[0]:
        why = f"the chain ends at receipt {walk.seq}, and its known head is receipt {anchor[0]}"
        fault = Fault(number=walk.seq + 1, kind="cut tail", why=why)
        return _broken(walk, fault, level="chain")
    level: Level = "signed" if is_key_known and walk.checkpoints else "chain"
    noun = "receipt" if walk.seq == 1 else "receipts"
    return Verification(
        ok=True,
        receipts=walk.seq,
        level=level if anchor is None else "anchored",
        message=f"valid chain of {walk.seq} {noun}",
        head_seq=walk.seq,
        head_hash=walk.head,
        checkpoints=walk.checkpoints,
        signed=walk.signed,
        signatures=_signatures(walk, is_key_known=is_key_known),
    )


def _signatures(walk: ChainWalk, *, is_key_known: bool) -> str:
    if not walk.checkpoints:
        return "no checkpoint signs them yet" if walk.seq else ""
    whose = "from the public key given" if is_key_known else "with the keys that the file names"
    text = f"{walk.signed} of {walk.seq} signed, checked {whose}"
    if walk.first_signed > CHECKPOINT_RECEIPTS:
        text += (
            f"; the first {walk.first_signed} stood without a signature until its first checkpoint"
        )
    return text


def _broken(walk: ChainWalk, fault: Fault, *, level: Level = "none") -> Verification:
    return Verification(
        ok=False,
        receipts=walk.seq,
        level=level,
        first_bad=fault.number,
        kind=fault.kind,
        message=f"invalid chain at receipt {fault.number}: {fault.kind}: {fault.why}",
        head_seq=walk.seq,
        head_hash=walk.head,
        checkpoints=walk.checkpoints,
        signed=walk.signed,
    )
