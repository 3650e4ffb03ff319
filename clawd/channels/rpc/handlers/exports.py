"""Handlers that hand the receipt log and its contents out, in pieces that fit a frame."""

import asyncio
import os
from pathlib import Path
from typing import BinaryIO

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.errors import InvalidRequestError, ReceiptError
from clawd.receipts.logfiles import rotated_files
from clawd.wire.exports import ContentPiece, ContentPieces, ReceiptLogChunk
from clawd.wire.method import PAGE_LIMIT
from clawd.wire.receipt_methods import AcceptReceipts, LoadContents, ReadReceiptLog
from clawd.wire.reports import Done

CHUNK_BYTES = 4 << 20
PIECE_BYTES = 8 << 20
MAX_NUMBER = 1 << 53


class ExportHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def read_receipt_log(self, params: ReadReceiptLog, _call: Call) -> ReceiptLogChunk:
        """Return the next lines of the log."""
        if not (0 <= params.file <= MAX_NUMBER and 0 <= params.offset <= MAX_NUMBER):
            raise InvalidRequestError(f"no log has file {params.file}, offset {params.offset}")
        return await asyncio.to_thread(
            _read_chunk, self.parts.receipts_path, params.file, params.offset
        )

    async def load_contents(self, params: LoadContents, _call: Call) -> ContentPieces:
        """Return contents by their hashes."""
        if len(params.hashes) > PAGE_LIMIT or params.offset < 0:
            raise InvalidRequestError(
                f"{len(params.hashes)} hashes from byte {params.offset}: at most {PAGE_LIMIT} "
                "hashes, and no byte below 0"
            )
        found = await self.parts.memory.ledger.load_contents(params.hashes, limit_bytes=CHUNK_BYTES)
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

    async def accept_receipts(self, _params: AcceptReceipts, call: Call) -> Done:
        """Take the receipt log as it stands."""
        return Done(message=await self.parts.accept_receipts(call.principal))


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
