"""An export of receipts that is checked without a daemon: a folder of three files.

    tool_receipts.log   every line of the receipt log, byte by byte, oldest first
    contents.jsonl      what the receipts hashed; not there in a redacted export
    bundle.json         what was exported, and the last receipt

A line of contents.jsonl is `{"seq":3,"arguments":{"text":"…"},"result":{"base64":"…"}}`: bytes that
are no UTF-8 are in Base64, and null stands for what the daemon no longer keeps.

Here, too, is read which head of the log the daemon's memory remembers, while no daemon runs.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from clawctl.client import Client
from clawd import __version__
from clawd.errors import ProtocolError, ReceiptError
from clawd.receipts.record import Receipt, parse
from clawd.receipts.verify import read_receipts
from clawd.wire.receipts import GENESIS_HASH, LoadContents, ReadReceiptLog

LOG, CONTENTS, ABOUT = "tool_receipts.log", "contents.jsonl", "bundle.json"
HASHES_AT_ONCE = 200
CALL_LIMIT_S = 120.0


class ExportSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Whose contents are exported; the log goes whole, for parts of a chain prove nothing."""

    conversation_id: str = ""
    since: str = ""
    until: str = ""

    def holds(self, receipt: Receipt) -> bool:
        """Return whether the contents of this receipt are wanted."""
        return (
            self.conversation_id in {"", receipt.conversation_id}
            and self.since <= receipt.timestamp
            and (not self.until or receipt.timestamp < self.until)
        )


class About(msgspec.Struct, frozen=True, kw_only=True):
    """bundle.json.

    Attributes:
        first_public_key: of the log's first checkpoint (hex), to compare with one from elsewhere.
        contents: how many lines contents.jsonl has, and `missing` how many nulls are in them.
    """

    format: Literal["clawd-export/1"] = "clawd-export/1"
    clawd: str
    created_at: str
    is_redacted: bool
    selection: ExportSelection
    receipts: int
    head_seq: int
    head_hash: str
    first_public_key: str = ""
    contents: int = 0
    missing: int = 0

    def summary(self, folder: Path) -> str:
        """Return what lies in the folder."""
        what = "no contents (redacted)" if self.is_redacted else f"contents of {self.contents}"
        if self.missing:
            what += f", {self.missing} arguments or results no longer kept"
        head = f"  last: receipt {self.head_seq}, {self.head_hash}"
        return f"{folder}: {self.receipts} receipts, {what}\n{head}"


class EncodedBytes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes: as text where they are UTF-8, else in Base64."""

    text: str | None = None
    base64: str | None = None

    @classmethod
    def of(cls, data: bytes | None) -> "EncodedBytes | None":
        """Return the form of the bytes; None for None."""
        if data is None:
            return None
        try:
            return cls(text=data.decode())
        except UnicodeDecodeError:
            return cls(base64=base64.b64encode(data).decode())

    def data(self) -> bytes:
        """Return the bytes.

        Raises:
            ValueError: it holds neither form.
        """
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode(self.base64 or "", validate=True)


class ContentsLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of contents.jsonl."""

    seq: int
    arguments: EncodedBytes | None
    result: EncodedBytes | None


class _Checkpoint(msgspec.Struct, frozen=True):
    public_key: str
    type: Literal["checkpoint"]


_encoder = msgspec.json.Encoder()
_lines: msgspec.json.Decoder[ContentsLine] = msgspec.json.Decoder(ContentsLine)
_checkpoint: msgspec.json.Decoder[_Checkpoint] = msgspec.json.Decoder(_Checkpoint)
_about: msgspec.json.Decoder[About] = msgspec.json.Decoder(About)


# --- writing


class BundleWriter:
    """Copies log and contents from a daemon into an empty folder, in constant memory.

    `progress` is told how many receipts were copied.
    """

    def __init__(
        self,
        client: Client,
        folder: Path,
        selection: ExportSelection,
        *,
        redact: bool,
        progress: Callable[[int], None] = lambda _receipts: None,
    ) -> None:
        self._client = client
        self._folder = folder
        self._selection = selection
        self._is_redacted = redact
        self._progress = progress
        self._last: Receipt | None = None
        self._first_key = ""
        self._receipts = self._written = self._missing = 0

    def write(self) -> About:
        """Write the three files.

        Raises:
            ClawError: the daemon refuses or is gone.
            OSError: a file cannot be written.
        """
        with (self._folder / LOG).open("xb") as log:
            if self._is_redacted:
                for chunk in self._chunks():
                    log.write(chunk)
                    self._take_in(chunk)
            else:
                with (self._folder / CONTENTS).open("xb") as contents:
                    for chunk in self._chunks():
                        log.write(chunk)
                        self._write_contents(contents, self._take_in(chunk))
        about = About(
            clawd=__version__,
            created_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            is_redacted=self._is_redacted,
            selection=self._selection,
            receipts=self._receipts,
            head_seq=self._last.seq if self._last else 0,
            head_hash=self._last.receipt_hash if self._last else GENESIS_HASH,
            first_public_key=self._first_key,
            contents=self._written,
            missing=self._missing,
        )
        text = msgspec.json.format(_encoder.encode(about), indent=2)
        (self._folder / ABOUT).write_bytes(text + b"\n")
        return about

    def _chunks(self) -> Iterator[bytes]:
        at = ReadReceiptLog()
        while True:
            chunk = self._client.call(at, limit_s=CALL_LIMIT_S)
            yield chunk.data
            if chunk.is_end:
                return
            at = ReadReceiptLog(file=chunk.file, offset=chunk.offset)

    def _take_in(self, chunk: bytes) -> list[Receipt]:
        """Return the receipts of whole lines; what is none is in the log all the same."""
        receipts: list[Receipt] = []
        for line in chunk.splitlines():
            try:
                receipts.append(parse(line))
            except ReceiptError:
                self._first_key = self._first_key or _public_key(line)
        self._receipts += len(receipts)
        self._progress(self._receipts)
        self._last = receipts[-1] if receipts else self._last
        return receipts

    def _write_contents(self, file: BinaryIO, receipts: list[Receipt]) -> None:
        wanted = [receipt for receipt in receipts if self._selection.holds(receipt)]
        hashes = [each for r in wanted for each in (r.args_hash, r.result_hash)]
        found = self._load(hashes)
        for receipt in wanted:
            arguments, result = EncodedBytes.of(next(found)), EncodedBytes.of(next(found))
            line = ContentsLine(seq=receipt.seq, arguments=arguments, result=result)
            file.write(_encoder.encode(line) + b"\n")
            self._written += 1
            self._missing += (arguments is None) + (result is None)

    def _load(self, hashes: list[str]) -> Iterator[bytes | None]:
        at = 0
        while at < len(hashes):
            wanted = tuple(hashes[at : at + HASHES_AT_ONCE])
            pieces = self._client.call(LoadContents(hashes=wanted), limit_s=CALL_LIMIT_S).items
            for piece in pieces:
                yield (
                    None if piece.size is None else self._whole(piece.hash, piece.data, piece.size)
                )
            if not pieces:
                raise ProtocolError("the daemon left a question for contents unanswered")
            at += len(pieces)

    def _whole(self, content_hash: str, data: bytes, size: int) -> bytes:
        while len(data) < size:
            rest = LoadContents(hashes=(content_hash,), offset=len(data))
            (piece,) = self._client.call(rest, limit_s=CALL_LIMIT_S).items
            if not piece.data:
                raise ProtocolError(f"the daemon broke off in the content {content_hash}")
            data += piece.data
        return data


def _public_key(line: bytes) -> str:
    try:
        return _checkpoint.decode(line).public_key
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


# --- checking


def check_bundle(folder: Path, *, head_seq: int, head_hash: str) -> str:
    """Hold an export's contents and its own words against its log; return what is wrong or "".

    The head is that of the log, which was verified before.

    Raises:
        ReceiptError: a file of the export cannot be read.
    """
    try:
        about = _about.decode((folder / ABOUT).read_bytes())
        if (about.head_seq, about.head_hash) != (head_seq, head_hash):
            return (
                f"{ABOUT} names receipt {about.head_seq} with the hash {about.head_hash} as the "
                f"last, and the log ends at receipt {head_seq} with the hash {head_hash}"
            )
        has_contents = (folder / CONTENTS).exists()
        if has_contents == about.is_redacted:
            return f"{ABOUT} says redacted: {about.is_redacted}, {CONTENTS} is another matter"
        return _check_contents(folder, about) if has_contents else ""
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReceiptError(
            f"{folder} is not a complete export: {error}",
            hint="An export is a folder made by: clawctl receipt export FOLDER",
        ) from error


def _check_contents(folder: Path, about: About) -> str:
    receipts = (r for r in read_receipts(folder / LOG) if isinstance(r, Receipt))
    count = missing = 0
    with (folder / CONTENTS).open("rb") as file:
        for text in file:
            line = _lines.decode(text)
            receipt = next((each for each in receipts if each.seq == line.seq), None)
            if receipt is None:
                return f"{CONTENTS} has a line of receipt {line.seq} that is not in its place"
            for name, content, wanted in (
                ("arguments", line.arguments, receipt.args_hash),
                ("result", line.result, receipt.result_hash),
            ):
                missing += content is None
                if content is not None and not _has_hash(content, wanted):
                    return f"the {name} in {CONTENTS} are not what receipt {line.seq} hashed"
            count += 1
    if (count, missing) != (about.contents, about.missing):
        return (
            f"{CONTENTS} has {count} lines with {missing} gaps, and {ABOUT} says "
            f"{about.contents} with {about.missing}"
        )
    return ""


def _has_hash(content: EncodedBytes, wanted: str) -> bool:
    try:
        return hashlib.sha256(content.data()).hexdigest() == wanted
    except ValueError:
        return False


def remembered_head(memory: Path) -> tuple[int, str] | None:
    """Return the head (seq, hash) of a memory file; None where there is none to be read."""
    # Imported here: only verifying without a daemon needs it.
    import sqlite3

    try:
        connection = sqlite3.connect(memory.absolute().as_uri() + "?mode=ro", uri=True)
    except sqlite3.Error:
        return None
    try:
        row = connection.execute("SELECT seq, receipt_hash FROM head").fetchone()
    except sqlite3.Error:
        return None
    finally:
        connection.close()
    return None if row is None else (int(row[0]), str(row[1]))
