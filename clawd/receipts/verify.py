"""The one reader of the receipt chain: finds the first broken receipt and says what was done to it.

It needs the files alone, no daemon. A chain that passes has reached the level `chain`: nobody
changed a part of it without writing all of the rest anew. With a head from elsewhere (`anchor`)
it reaches `anchored`: nobody cut its end or wrote it anew before that head.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from clawd.errors import ReceiptError
from clawd.receipts.logfiles import read_lines, read_lines_backwards
from clawd.receipts.record import GENESIS_HASH, MAX_LINE_BYTES, Receipt, canonical, line_hash, parse

Kind = Literal[
    "edited",
    "removed",
    "reordered",
    "inserted",
    "duplicated",
    "cut tail",
    "torn tail",
    "not a receipt",
    "unknown line type",
]
Level = Literal["none", "chain", "anchored"]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What came of verifying a chain.

    Attributes:
        receipts: how many stand in unbroken order from the first.
        level: what is proven.
        first_bad: the first broken receipt, counted from 1, or None.
        kind: what was done to it, or None.
        message: one sentence; a broken chain's begins with `invalid chain at receipt N`.
        head_seq: number of the last receipt in unbroken order, 0 for none; and its hash.
    """

    ok: bool
    receipts: int
    level: Level
    first_bad: int | None = None
    kind: Kind | None = None
    message: str
    head_seq: int = 0
    head_hash: str = GENESIS_HASH


class BadLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log that is no receipt, and why."""

    problem: str


class _Fault(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    kind: Kind
    why: str


class _LineType(msgspec.Struct, frozen=True):
    type: str


_line_type: msgspec.json.Decoder[_LineType] = msgspec.json.Decoder(_LineType)


def verify(path: Path, *, anchor: tuple[int, str] | None = None) -> Verification:
    """Read the whole chain, in constant memory, and judge it.

    Args:
        path: the current file; its rotated files beside it are read first.
        anchor: a head (seq, hash) known from elsewhere, which the chain must contain.

    Raises:
        ReceiptError: there is no chain at the path, or it cannot be read.
    """
    lines = read_lines(path)
    seq = 0
    head = GENESIS_HASH
    for line in lines:
        receipt, why = _judge(line)
        if receipt is None or why or receipt.seq != seq + 1 or receipt.previous_hash != head:
            walk = _Walk(path=path, seq=seq, head=head)
            return _broken(walk, walk.diagnose(line, lines))
        seq += 1
        head = receipt.receipt_hash
        if anchor is not None and seq == anchor[0] and head != anchor[1]:
            why = f"its hash is {head}, and the known head there is {anchor[1]}"
            walk = _Walk(path=path, seq=seq - 1, head=receipt.previous_hash)
            return _broken(walk, _Fault(number=seq, kind="edited", why=why), level="chain")
    return _unbroken(_Walk(path=path, seq=seq, head=head), anchor)


def read_receipts(path: Path, *, newest_first: bool = False) -> Iterator[Receipt | BadLine]:
    """Yield what the log's lines hold, without judging the chain.

    Raises:
        ReceiptError: there is no chain at the path, or it cannot be read.
    """
    for line in read_lines_backwards(path) if newest_first else read_lines(path):
        try:
            yield parse(line)
        except ReceiptError as error:
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


def _unbroken(walk: "_Walk", anchor: tuple[int, str] | None) -> Verification:
    if anchor is not None and walk.seq < anchor[0]:
        why = f"the chain ends at receipt {walk.seq}, and its known head is receipt {anchor[0]}"
        return _broken(walk, _Fault(number=walk.seq + 1, kind="cut tail", why=why), level="chain")
    noun = "receipt" if walk.seq == 1 else "receipts"
    return Verification(
        ok=True,
        receipts=walk.seq,
        level="chain" if anchor is None else "anchored",
        message=f"valid chain of {walk.seq} {noun}",
        head_seq=walk.seq,
        head_hash=walk.head,
    )


def _broken(walk: "_Walk", fault: _Fault, *, level: Level = "none") -> Verification:
    return Verification(
        ok=False,
        receipts=walk.seq,
        level=level,
        first_bad=fault.number,
        kind=fault.kind,
        message=f"invalid chain at receipt {fault.number}: {fault.kind}: {fault.why}",
        head_seq=walk.seq,
        head_hash=walk.head,
    )


def _judge(line: bytes) -> tuple[Receipt | None, str]:
    """Return the receipt of a line and what is wrong with it in itself."""
    try:
        receipt = parse(line)
    except ReceiptError as error:
        return None, error.message
    text = canonical(receipt)
    # The newline counts: any other blank in its place would be as good JSON.
    if len(line) != len(text) + 1 or not line.startswith(text) or not line.endswith(b"\n"):
        return receipt, "its bytes are not in canonical form"
    if line_hash(text, receipt) != receipt.receipt_hash:
        return receipt, "its hash does not match its content"
    return receipt, ""


class _Walk(msgspec.Struct, frozen=True, kw_only=True):
    """How far a chain was unbroken: `seq` receipts, the last with the hash `head`."""

    path: Path
    seq: int
    head: str

    def diagnose(self, line: bytes, rest: Iterator[bytes]) -> _Fault:
        """Tell what was done, from the first line that does not fit and those after it."""
        receipt, why = _judge(line)
        number = self.seq + 1
        if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
            following = next(rest, None)
            if following is None:
                why = f"the last line is not complete ({len(line)} bytes): "
                why += "a crash tore it or it was cut"
                return _Fault(number=number, kind="torn tail", why=why)
            rest = itertools.chain([following], rest)
        if receipt is None or why:
            return self._unsound(line, receipt, why, rest)
        if receipt.seq > number:
            return self._ahead(receipt, rest)
        if receipt.seq < number:
            return self._behind(receipt, rest)
        return self._unlinked(receipt, rest)

    def _unsound(
        self, line: bytes, receipt: Receipt | None, why: str, rest: Iterator[bytes]
    ) -> _Fault:
        """The line is broken in itself."""
        number = self.seq + 1
        if receipt is None and (line_type := _type_of(line)):
            why = (
                f"this clawd does not know lines of type {line_type!r}; "
                "verify with the version that wrote them"
            )
            return _Fault(number=number, kind="unknown line type", why=why)
        following = next(_receipts(rest), None)
        if following is not None and self._continues(following):
            why = f"a line that is no part of the chain stands before it ({why})"
            return _Fault(number=number, kind="inserted", why=why)
        return _Fault(number=number, kind="edited" if receipt else "not a receipt", why=why)

    def _ahead(self, receipt: Receipt, rest: Iterator[bytes]) -> _Fault:
        """A later receipt stands here: the one due was moved, removed, or this one put in."""
        number = self.seq + 1
        is_due_later = is_parent_later = False
        for later in _receipts(rest):
            is_due_later = is_due_later or self._continues(later)
            is_parent_later = is_parent_later or later.receipt_hash == receipt.previous_hash
            if is_due_later and is_parent_later:
                why = f"receipt {receipt.seq} stands in the place of receipt {number}"
                return _Fault(number=number, kind="reordered", why=why)
        if is_due_later:
            why = f"a receipt numbered {receipt.seq} was put in; receipt {number} follows it"
            return _Fault(number=number, kind="inserted", why=why)
        why = f"receipt {receipt.seq} follows receipt {self.seq}"
        return _Fault(number=number, kind="removed", why=why)

    def _behind(self, receipt: Receipt, rest: Iterator[bytes]) -> _Fault:
        """An earlier number comes a second time: a copy, or one of the two was put in."""
        number = self.seq + 1
        if self._hash_at(receipt.seq) == receipt.receipt_hash:
            why = f"receipt {receipt.seq} comes a second time"
            return _Fault(number=number, kind="duplicated", why=why)
        why = f"there are two receipts numbered {receipt.seq}"
        following = next(_receipts(rest), None)
        is_genuine = following is not None and following.previous_hash == receipt.receipt_hash
        if is_genuine and receipt.seq == self.seq:
            number = self.seq
        return _Fault(number=number, kind="inserted", why=why)

    def _unlinked(self, receipt: Receipt, rest: Iterator[bytes]) -> _Fault:
        """The number is right and the link is not: this receipt or the one before was rewritten."""
        following = next(_receipts(rest), None)
        is_genuine = following is None or following.previous_hash == receipt.receipt_hash
        if is_genuine and self.seq:
            why = f"receipt {receipt.seq} names another hash for it, so it was written anew"
            return _Fault(number=self.seq, kind="edited", why=why)
        why = "it does not name the hash of the receipt before it"
        return _Fault(number=self.seq + 1, kind="edited", why=why)

    def _continues(self, receipt: Receipt) -> bool:
        return receipt.seq == self.seq + 1 and receipt.previous_hash == self.head

    def _hash_at(self, seq: int) -> str:
        """Return the hash of an earlier receipt, all of which stand in order."""
        for number, receipt in enumerate(_receipts(read_lines(self.path)), start=1):
            if number == seq:
                return receipt.receipt_hash
        return ""


def _receipts(lines: Iterator[bytes]) -> Iterator[Receipt]:
    for line in lines:
        try:
            yield parse(line)
        except ReceiptError:
            continue


def _type_of(line: bytes) -> str:
    try:
        return _line_type.decode(line).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
