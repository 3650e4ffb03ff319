"""The one reader of the receipt chain: how far it holds, what was done to it, what is in it.

It needs the files alone, no daemon. The level says what is proven:

- `chain`: nobody changed a part of it without writing all of the rest anew. Checkpoints are
  checked with the keys that the file itself names.
- `signed`: with the first public key from elsewhere. As far as its checkpoints go, nobody wrote it
  anew who had not the private keys of that time, and those are destroyed.
- `anchored`: with a head from elsewhere. Nobody cut its end or wrote it anew before that head.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from clawd.errors import ReceiptError
from clawd.receipts import record
from clawd.receipts.logfiles import read_lines, read_lines_backwards
from clawd.wire.receipts import GENESIS_HASH, ReceiptHead, Verification

PROGRESS_LINES = 2_000

Level = Literal["none", "chain", "signed", "anchored"]
Kind = Literal[
    "edited",
    "removed",
    "reordered",
    "inserted",
    "duplicated",
    "bad signature",
    "cut tail",
    "torn tail",
    "not a receipt",
    "unknown line type",
]


class BadLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log that is no receipt, and why."""

    problem: str


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a chain and where; see `Verification` for the number."""

    number: int
    kind: Kind
    why: str


class ChainWalk(msgspec.Struct, kw_only=True):
    """How far a chain holds: `seq` receipts, the last with the hash `head`.

    Attributes:
        mark: hash of the checkpoint on the last line; "" when that is a receipt.
        next_key: the only key that may sign the next checkpoint; None for any.
        checkpoints: how many there were, and `signed`, what receipt the last one signs.
        first_signed: what receipt the first one signs.
    """

    seq: int = 0
    head: str = GENESIS_HASH
    before_head: str = GENESIS_HASH
    mark: str = ""
    next_key: str | None = None
    checkpoints: int = 0
    signed: int = 0
    first_signed: int = 0

    def take(self, line: bytes) -> bool:
        """Go one line further and return True; stay and return False when it does not fit."""
        if line.startswith(record.LINE_START):
            return self._take_checkpoint(line)
        if self.awaits_checkpoint():
            return False
        receipt, why = _judge_receipt(line)
        if receipt is None or why or not self.continues_with(receipt):
            return False
        self.seq += 1
        self.before_head = self.head
        self.head = receipt.receipt_hash
        self.mark = ""
        return True

    def continues_with(self, entry: record.Receipt | record.ReceiptCheckpoint) -> bool:
        """Return whether the line, sound in itself, stands in its place, whatever its signer."""
        if isinstance(entry, record.Receipt):
            return self.is_due(entry) and entry.checkpoint_hash == self.mark
        is_there = entry.seq == self.seq > 0 and not self.mark
        return is_there and entry.head_hash == self.head

    def is_due(self, receipt: record.Receipt) -> bool:
        """Return whether the receipt is the next one, be there a checkpoint between or not."""
        return receipt.seq == self.seq + 1 and receipt.previous_hash == self.head

    def may_sign(self, checkpoint: record.ReceiptCheckpoint) -> bool:
        """Return whether the checkpoint is signed, and with the key that is due."""
        return self.next_key in {None, checkpoint.public_key} and record.is_signed(checkpoint)

    def awaits_checkpoint(self) -> bool:
        """Return whether no receipt may follow: a daemon that signs never writes more unsigned."""
        return self.signed > 0 and self.seq - self.signed >= record.CHECKPOINT_RECEIPTS

    def before_last(self) -> "ChainWalk":
        """Return how far it held before the last receipt."""
        return msgspec.structs.replace(self, seq=self.seq - 1, head=self.before_head)

    def _take_checkpoint(self, line: bytes) -> bool:
        checkpoint, why = _judge_checkpoint(line)
        if checkpoint is None or why or not self.continues_with(checkpoint):
            return False
        if not self.may_sign(checkpoint):
            return False
        self.mark = checkpoint.checkpoint_hash
        self.next_key = checkpoint.next_public_key
        self.checkpoints += 1
        self.signed = checkpoint.seq
        self.first_signed = self.first_signed or checkpoint.seq
        return True


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
    if len(record.unhex(key)) != 32:
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
    if not number or len(record.unhex(known)) != 32:
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
            if line.startswith(record.LINE_START):
                last = record.parse_checkpoint(line)
                head = msgspec.structs.replace(head, signed=last.seq, signed_at=last.timestamp)
                if not head.seq:
                    head = msgspec.structs.replace(head, seq=last.seq, receipt_hash=last.head_hash)
                break
            if not head.seq:
                receipt = record.parse(line)
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


def read_receipts(path: Path, *, newest_first: bool = False) -> Iterator[record.Receipt | BadLine]:
    """Yield what the log's lines hold, but for checkpoints, without judging the chain.

    Raises:
        ReceiptError: there is no chain at the path, or it cannot be read.
    """
    for line in read_lines_backwards(path) if newest_first else read_lines(path):
        try:
            yield record.parse(line)
        except ReceiptError as error:
            if not _is_checkpoint(line):
                yield BadLine(problem=error.message)


def find_receipt(path: Path, receipt_id: str) -> record.Receipt | None:
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
                receipt = record.parse(line)
            except ReceiptError:
                continue
            if receipt.id == receipt_id:
                return receipt
    return None


def _first_public_key(path: Path) -> str:
    for line in read_lines(path):
        if line.startswith(record.LINE_START) and _is_checkpoint(line):
            return record.parse_checkpoint(line).public_key
    return ""


def _is_checkpoint(line: bytes) -> bool:
    try:
        record.parse_checkpoint(line)
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
    if walk.first_signed > record.CHECKPOINT_RECEIPTS:
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


# Where a chain breaks: what was done to it.


def diagnose(path: Path, walk: ChainWalk, line: bytes, rest: Iterator[bytes]) -> Fault:
    """Return what was done, from the first line that does not fit and those after it."""
    return _Diagnosis(path=path, walk=walk, number=walk.seq + 1).of(line, rest)


def _judge_receipt(line: bytes) -> tuple[record.Receipt | None, str]:
    """Return the receipt of a line and what is wrong with it in itself."""
    try:
        receipt = record.parse(line)
    except ReceiptError as error:
        return None, error.message
    text = record.canonical(receipt)
    if not _is_line(line, text):
        return receipt, "its bytes are not in canonical form"
    if record.line_hash(text) != receipt.receipt_hash:
        return receipt, "its hash does not match its content"
    return receipt, ""


def _judge_checkpoint(line: bytes) -> tuple[record.ReceiptCheckpoint | None, str]:
    try:
        checkpoint = record.parse_checkpoint(line)
    except ReceiptError as error:
        return None, error.message
    if not _is_line(line, record.canonical_checkpoint(checkpoint)):
        return checkpoint, "the bytes of the checkpoint are not in canonical form"
    if record.hash_of(checkpoint) != checkpoint.checkpoint_hash:
        return checkpoint, "the hash of the checkpoint does not match its content"
    return checkpoint, ""


def _is_line(line: bytes, text: bytes) -> bool:
    # The newline counts: any other blank in its place would be as good JSON.
    return line == text + b"\n"


def _judge(line: bytes) -> tuple[record.Receipt | record.ReceiptCheckpoint | None, str]:
    receipt, why = _judge_receipt(line)
    if receipt is not None:
        return receipt, why
    checkpoint, why_not = _judge_checkpoint(line)
    return checkpoint, why_not if checkpoint is not None or record.claims_checkpoint(line) else why


class _Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Finds out what was done where the walk could not go on; `number` is the receipt due."""

    path: Path
    walk: ChainWalk
    number: int

    def of(self, line: bytes, rest: Iterator[bytes]) -> Fault:
        if not line.endswith(b"\n") and len(line) < record.MAX_LINE_BYTES:
            following = next(rest, None)
            if following is None:
                why = f"the last line is not complete ({len(line)} bytes): "
                return self._fault("torn tail", why + "a crash tore it or it was cut")
            rest = itertools.chain([following], rest)
        entry, why = _judge(line)
        if entry is None or why:
            return self._unsound(line, entry, why, rest)
        if isinstance(entry, record.ReceiptCheckpoint):
            return self._checkpoint(entry, rest)
        return self._receipt(entry, rest)

    def _receipt(self, entry: record.Receipt, rest: Iterator[bytes]) -> Fault:
        """A receipt, sound in itself, does not fit here."""
        if entry.seq > self.number:
            return self._ahead(f"receipt {entry.seq}", entry.previous_hash, rest)
        if entry.seq < self.number:
            return self._behind(entry, rest)
        if entry.previous_hash != self.walk.head:
            return self._unlinked(entry, rest)
        if self.walk.continues_with(entry):
            why = "no checkpoint signs it though one was due, so nothing after "
            why += f"receipt {self.walk.signed} is proven"
            return Fault(number=self.walk.seq, kind="bad signature", why=why)
        return self._unmarked(entry, rest)

    def _fault(self, kind: Kind, why: str) -> Fault:
        return Fault(number=self.number, kind=kind, why=why)

    def _unsound(
        self,
        line: bytes,
        entry: record.Receipt | record.ReceiptCheckpoint | None,
        why: str,
        rest: Iterator[bytes],
    ) -> Fault:
        """The line is broken in itself."""
        if entry is None and (line_type := record.unknown_type(line)):
            return self._fault(
                "unknown line type",
                f"this clawd does not know lines of type {line_type!r}; "
                "verify with the version that wrote them",
            )
        following = next(_entries(rest), None)
        if following is not None and self.walk.continues_with(following):
            why = f"a line that is no part of the chain stands before it ({why})"
            return self._fault("inserted", why)
        is_known = entry is not None or record.claims_checkpoint(line)
        return self._fault("edited" if is_known else "not a receipt", why)

    def _checkpoint(self, entry: record.ReceiptCheckpoint, rest: Iterator[bytes]) -> Fault:
        """A checkpoint, sound in itself, does not fit here."""
        walk = self.walk
        what = f"the checkpoint of receipt {entry.seq}"
        if entry.seq > walk.seq:
            return self._ahead(what, entry.head_hash, rest)
        if entry.seq < walk.seq or walk.mark or not walk.seq:
            if self._has_checkpoint(entry.checkpoint_hash):
                return self._fault("duplicated", f"{what} comes a second time")
            return self._fault("inserted", f"{what} was put in after receipt {walk.seq}")
        if not walk.may_sign(entry):
            why = f"{what} is not signed with the key that had to sign it, so nothing after "
            why += f"receipt {walk.signed} is proven"
            return Fault(number=walk.seq, kind="bad signature", why=why)
        why = f"its checkpoint names the hash {entry.head_hash} for it, so it was written anew"
        return Fault(number=walk.seq, kind="edited", why=why)

    def _ahead(self, what: str, parent: str, rest: Iterator[bytes]) -> Fault:
        """A later line stands here: the one due was moved, removed, or this one put in."""
        is_due_later = is_parent_later = False
        for later in _receipts(rest):
            is_due_later = is_due_later or self.walk.is_due(later)
            is_parent_later = is_parent_later or later.receipt_hash == parent
            if is_due_later and is_parent_later:
                return self._fault("reordered", f"{what} stands in the place of {self.number}")
        if is_due_later:
            return self._fault("inserted", f"{what} was put in; receipt {self.number} follows it")
        return self._fault("removed", f"{what} follows receipt {self.walk.seq}")

    def _behind(self, receipt: record.Receipt, rest: Iterator[bytes]) -> Fault:
        """An earlier number comes a second time: a copy, or one of the two was put in."""
        if self._hash_at(receipt.seq) == receipt.receipt_hash:
            return self._fault("duplicated", f"receipt {receipt.seq} comes a second time")
        number = self.number
        following = next(_receipts(rest), None)
        is_genuine = following is not None and following.previous_hash == receipt.receipt_hash
        if is_genuine and receipt.seq == self.walk.seq:
            number = self.walk.seq
        why = f"there are two receipts numbered {receipt.seq}"
        return Fault(number=number, kind="inserted", why=why)

    def _unlinked(self, receipt: record.Receipt, rest: Iterator[bytes]) -> Fault:
        """The number is right and the link is not: this receipt or the one before was rewritten."""
        following = next(_receipts(rest), None)
        is_genuine = following is None or following.previous_hash == receipt.receipt_hash
        if is_genuine and self.walk.seq:
            why = f"receipt {receipt.seq} names another hash for it, so it was written anew"
            return Fault(number=self.walk.seq, kind="edited", why=why)
        return self._fault("edited", "it does not name the hash of the receipt before it")

    def _unmarked(self, receipt: record.Receipt, rest: Iterator[bytes]) -> Fault:
        """The receipt is due and names another checkpoint, or none, than the line before it."""
        seq, mark = self.walk.seq, self.walk.mark
        named = receipt.checkpoint_hash
        entries = _entries(rest)
        following = next(entries, None)
        if isinstance(following, record.Receipt) and self.walk.continues_with(following):
            return self._fault("inserted", f"a second receipt {self.number} follows it")
        if not named:
            return self._fault("inserted", f"it knows nothing of the checkpoint of receipt {seq}")
        if mark:
            return self._fault("edited", f"it names another checkpoint than that of receipt {seq}")
        for later in itertools.chain([following], entries):
            if isinstance(later, record.ReceiptCheckpoint) and later.checkpoint_hash == named:
                return self._fault("reordered", f"the checkpoint of receipt {seq} comes after it")
        return self._fault("removed", f"the checkpoint of receipt {seq} is missing before it")

    def _hash_at(self, seq: int) -> str:
        """Return the hash of an earlier receipt, all of which stand in order."""
        for number, receipt in enumerate(_receipts(read_lines(self.path)), start=1):
            if number == seq:
                return receipt.receipt_hash
        return ""

    def _has_checkpoint(self, checkpoint_hash: str) -> bool:
        """Return whether it is one of the checkpoints before the fault."""
        entries = _entries(read_lines(self.path))
        before = (entry for entry in entries if isinstance(entry, record.ReceiptCheckpoint))
        earlier = itertools.islice(before, self.walk.checkpoints)
        return any(entry.checkpoint_hash == checkpoint_hash for entry in earlier)


def _entries(lines: Iterator[bytes]) -> Iterator[record.Receipt | record.ReceiptCheckpoint]:
    for line in lines:
        try:
            yield record.parse(line)
        except ReceiptError:
            try:
                yield record.parse_checkpoint(line)
            except ReceiptError:
                continue


def _receipts(lines: Iterator[bytes]) -> Iterator[record.Receipt]:
    return (entry for entry in _entries(lines) if isinstance(entry, record.Receipt))
