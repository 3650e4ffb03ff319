"""Handlers about receipts."""

import asyncio
import fnmatch
import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, get_args

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.errors import InvalidRequestError, NotFoundError, ReceiptError, StorageError
from clawd.receipts.logfiles import rotated_files
from clawd.receipts.record import Receipt, RiskWord, Status
from clawd.receipts.verify import parse_anchor, parse_public_key, read_head, read_receipts, verify
from clawd.security.principal import Principal
from clawd.service.build import Daemon
from clawd.service.handlers.shared import CHUNK_BYTES, cursor_number
from clawd.wire.method import PAGE_LIMIT, Done
from clawd.wire.receipts import (
    AcceptReceipts,
    ContentPiece,
    ContentPieces,
    HeadOfReceipts,
    ListReceipts,
    LoadContents,
    ReadReceiptLog,
    ReceiptDetail,
    ReceiptHead,
    ReceiptLine,
    ReceiptLogChunk,
    ReceiptPage,
    ShowReceipt,
    Verification,
    VerifyReceipts,
)

PIECE_BYTES = 8 << 20
MAX_NUMBER = 1 << 53
SHOWN_CONTENT_BYTES = 1024 * 1024
MIN_KEY = 4
STATUSES: tuple[str, ...] = get_args(Status)
RISKS: tuple[str, ...] = get_args(RiskWord)
_PORT = re.compile(r":[0-9]+$")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_Wanted = Callable[[Receipt], bool]


async def read_receipt_log(daemon: Daemon, params: ReadReceiptLog, _call: Call) -> ReceiptLogChunk:
    """Return the next lines of the log."""
    if not (0 <= params.file <= MAX_NUMBER and 0 <= params.offset <= MAX_NUMBER):
        raise InvalidRequestError(f"no log has file {params.file}, offset {params.offset}")
    return await asyncio.to_thread(
        _read_chunk, daemon.loaded.config.receipts.path, params.file, params.offset
    )


async def load_contents(daemon: Daemon, params: LoadContents, _call: Call) -> ContentPieces:
    """Return contents by their hashes."""
    if len(params.hashes) > PAGE_LIMIT or params.offset < 0:
        raise InvalidRequestError(
            f"{len(params.hashes)} hashes from byte {params.offset}: at most {PAGE_LIMIT} "
            "hashes, and no byte below 0"
        )
    found = await daemon.memory.ledger.load_contents(params.hashes, limit_bytes=CHUNK_BYTES)
    items: list[ContentPiece] = []
    left = PIECE_BYTES
    for content_hash, content in found:
        start = params.offset if not items else 0
        piece = (content or b"")[start : start + PIECE_BYTES]
        if items and len(piece) > left:
            break
        left -= len(piece)
        size = None if content is None else len(content)
        items.append(ContentPiece(hash=content_hash, size=size, data=piece))
    return ContentPieces(items=tuple(items))


async def accept_receipts(daemon: Daemon, _params: AcceptReceipts, call: Call) -> Done:
    """Take the receipt log as it stands."""
    return Done(message=await daemon.accept_receipts(call.principal))


async def list_receipts(daemon: Daemon, params: ListReceipts, call: Call) -> ReceiptPage:
    """List receipts, newest first; the cursor is the number to go on below."""
    if not 1 <= params.limit <= PAGE_LIMIT:
        raise InvalidRequestError(f"limit is {params.limit}; it must be 1 to {PAGE_LIMIT}")
    wanted = _wanted(params)
    found = await asyncio.to_thread(_page, daemon, wanted, params, call.principal)
    more = len(found) > params.limit
    shown = found[: params.limit]
    return ReceiptPage(
        items=msgspec.convert(shown, tuple[ReceiptLine, ...], from_attributes=True),
        cursor=str(shown[-1].seq) if more else "",
    )


async def show_receipt(daemon: Daemon, params: ShowReceipt, call: Call) -> ReceiptDetail:
    """Show one receipt, its place in the chain and what it hashed."""
    found = await asyncio.to_thread(_find, daemon, params.receipt_id, call.principal)
    receipt, ledger = found.receipt, daemon.memory.ledger
    arguments = await ledger.load_content(receipt.args_hash)
    result = await ledger.load_content(receipt.result_hash)
    return ReceiptDetail(
        receipt=msgspec.structs.asdict(receipt),
        arguments=_shown(arguments),
        result=_shown(result),
        arguments_bytes=None if arguments is None else len(arguments),
        result_bytes=None if result is None else len(result),
        next_hash=found.next_hash,
        head_seq=found.head_seq,
    )


async def verify_receipts(daemon: Daemon, params: VerifyReceipts, _call: Call) -> Verification:
    """Verify the chain against the head that memory remembers, and what else is known."""
    try:
        public_key = parse_public_key(params.public_key) if params.public_key else None
        anchor = parse_anchor(params.anchor) if params.anchor else None
    except ReceiptError as error:
        raise InvalidRequestError(error.message, hint=error.hint) from error
    remembered, unread = None, ""
    try:
        remembered = await daemon.memory.ledger.last_head()
    except StorageError as error:  # the log stands by itself; so much less is known of its end
        unread = f"; it was not held against memory: {error.message}"
    found = await asyncio.to_thread(_verified, daemon, remembered, anchor, public_key)
    return msgspec.structs.replace(found, message=found.message + unread)


async def head_of_receipts(daemon: Daemon, _params: HeadOfReceipts, _call: Call) -> ReceiptHead:
    """Show the end of the chain and its first public key."""
    return await asyncio.to_thread(
        read_head,
        daemon.loaded.config.receipts.path,
        first_public_key_path=daemon.loaded.layout.checkpoint_public_key,
    )


def _read_chunk(path: Path, number: int, offset: int) -> ReceiptLogChunk:
    try:
        return _chunk_of(path, number, offset)
    except OSError as error:
        raise ReceiptError(
            f"cannot read the receipts at {path}: {error.strerror or error}",
            hint="Check [receipts] path and its permissions.",
        ) from error


def _chunk_of(path: Path, number: int, offset: int) -> ReceiptLogChunk:
    # The current file is held before the others are listed: when it is rotated in between, it is
    # one of them too, under the number that it had anyway.
    with path.open("rb") as current:
        full = {int(file.name.rpartition(".")[2]): file for file in rotated_files(path)}
        number = max(number, min(full, default=1))
        if number in full and not _is_same(full[number], current):
            with full[number].open("rb") as file:
                data = _lines(file, offset)
            if data:
                return _chunk(data, number, offset)
            following = min((each for each in full if each > number), default=max(full) + 1)
            return ReceiptLogChunk(data=b"", file=following, offset=0, is_end=False)
        data = _lines(current, offset, is_growing=True)
        return _chunk(data, number, offset, is_end=not data)


def _chunk(data: bytes, number: int, offset: int, *, is_end: bool = False) -> ReceiptLogChunk:
    return ReceiptLogChunk(data=data, file=number, offset=offset + len(data), is_end=is_end)


def _lines(file: BinaryIO, offset: int, *, is_growing: bool = False) -> bytes:
    """Return what ends in a newline, or all there is where nothing does and nothing is written."""
    file.seek(offset)
    data = file.read(CHUNK_BYTES)
    whole = data[: data.rfind(b"\n") + 1]
    is_written = is_growing and len(data) < CHUNK_BYTES
    return whole if whole or is_written else data


def _is_same(file: Path, opened: BinaryIO) -> bool:
    return os.path.samestat(file.stat(), os.fstat(opened.fileno()))


def _verified(
    daemon: Daemon,
    remembered: tuple[int, str] | None,
    given: tuple[int, str] | None,
    public_key: str | None,
) -> Verification:
    found = verify(daemon.loaded.config.receipts.path, anchor=remembered, public_key=public_key)
    if given is None or not found.ok:
        return found
    return verify(daemon.loaded.config.receipts.path, anchor=given, public_key=public_key)


def _page(
    daemon: Daemon, wanted: "_Wanted", params: ListReceipts, principal: Principal
) -> list[Receipt]:
    below = cursor_number(params.cursor)
    fitting = (
        receipt
        for receipt in _receipts(daemon)
        if (below is None or receipt.seq < below)
        and principal.may_see(receipt.uid, receipt.key)
        and wanted(receipt)
    )
    return list(itertools.islice(fitting, params.limit + 1))


def _find(daemon: Daemon, wanted: str, principal: Principal) -> "_Found":
    """Return the receipt of this number, id, or beginning or end of an id."""
    key = wanted.strip()
    matches: list[_Found] = []
    head_seq, next_hash = 0, ""
    for receipt in _receipts(daemon):
        head_seq = head_seq or receipt.seq
        is_exact = key in {receipt.id, str(receipt.seq)}
        if is_exact or (len(key) >= MIN_KEY and _is_part(key, receipt.id)):
            found = _Found(receipt=receipt, next_hash=next_hash, head_seq=head_seq)
            if principal.may_see(receipt.uid, receipt.key):
                matches = [found] if is_exact else [*matches, found]
            if is_exact:
                break
        next_hash = receipt.receipt_hash
    if len(matches) != 1:
        what = "no receipt" if not matches else f"{len(matches)} receipts"
        raise NotFoundError(
            f"{what} for {wanted!r}", hint="clawctl receipt list shows numbers and ids."
        )
    return matches[0]


def _receipts(daemon: Daemon) -> Iterator[Receipt]:
    for line in read_receipts(daemon.loaded.config.receipts.path, newest_first=True):
        if isinstance(line, Receipt):
            yield line


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    receipt: Receipt
    next_hash: str
    head_seq: int


def _hosts(receipt: Receipt) -> list[str]:
    """Return the names of the hosts that a call reached or was refused, without ports."""
    listed = f"{receipt.contacted},{receipt.refused}".lower().split(",")
    return [_PORT.sub("", each.strip().partition(" ")[0]) for each in listed if each.strip()]


def _wanted(params: ListReceipts) -> _Wanted:
    """Return the test of what a list asks for.

    Raises:
        InvalidRequestError: it asks for what no receipt has.
    """
    if params.status and params.status not in STATUSES:
        raise InvalidRequestError(
            f"status is {params.status!r}; it is one of {', '.join(STATUSES)}"
        )
    for name, time in (("since", params.since), ("until", params.until)):
        if time and _TIMESTAMP.fullmatch(time) is None:
            raise InvalidRequestError(
                f"{name} is {time[:32]!r}; it is a time in UTC as in 2026-11-21T08:00:00Z"
            )
    if params.risk and params.risk not in RISKS:
        raise InvalidRequestError(f"risk is {params.risk!r}; it is one of {', '.join(RISKS)}")
    tool = re.compile(fnmatch.translate(params.tool or "*"))
    host = re.compile(fnmatch.translate(params.host.lower()))
    folder = params.workspace.rstrip("/")

    def fits(receipt: Receipt) -> bool:
        return (
            params.conversation_id in {"", receipt.conversation_id}
            and params.status in {"", receipt.status}
            and params.since <= receipt.timestamp
            and (not params.until or receipt.timestamp < params.until)
            and tool.match(receipt.tool) is not None
            and params.risk in {"", receipt.risk}
            and f"{receipt.workspace}/".startswith(f"{folder}/")
            and (not params.host or any(map(host.match, _hosts(receipt))))
        )

    return fits


def _is_part(key: str, receipt_id: str) -> bool:
    return receipt_id.startswith(key) or receipt_id.endswith(key.upper())


def _shown(content: bytes | None) -> str:
    if content is None:
        return ""
    return content[:SHOWN_CONTENT_BYTES].decode(errors="replace")
