"""The receipt log and its contents in pieces: whole, in order, and for admins only."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from clawd.errors import InvalidRequestError, ReceiptError
from clawd.receipts.chain import ReceiptChain
from clawd.receipts.logfiles import rotated_files
from clawd.service.handlers import receipts
from clawd.wire.receipts import LoadContents, ReadReceiptLog
from tests.receipts.samples import draft
from tests.service.handlers.daemons import daemon_of
from tests.support.dispatching import Bench, bench_in
from tests.support.rows import each_row

CALL: Any = None


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_in(tmp_path) as made:
        yield made


async def read_all(bench: Bench, between: Callable[[], Any] | None = None) -> bytes:
    data = b""
    at = ReadReceiptLog()
    while True:
        chunk = await receipts.read_receipt_log(daemon_of(bench), at, CALL)
        data += chunk.data
        if chunk.is_end:
            return data
        at = ReadReceiptLog(file=chunk.file, offset=chunk.offset)
        if between is not None:
            await between()


async def rotated(bench: Bench, count: int) -> ReceiptChain:
    """Give the bench a chain whose every file holds one batch of receipts."""
    await bench.chain.close()
    bench.chain = await ReceiptChain.open(bench.log, max_file_bytes=1)
    for _ in range(count):
        await bench.chain.append(draft())
    return bench.chain


def on_disk(bench: Bench) -> bytes:
    return b"".join(file.read_bytes() for file in [*rotated_files(bench.log), bench.log])


@each_row("size", [1000, 1 << 20], fresh=["bench"])
async def test_the_log_comes_whole_whatever_the_size_of_a_piece(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(receipts, "CHUNK_BYTES", size)
    await rotated(bench, 7)
    assert len(rotated_files(bench.log)) == 6
    assert await read_all(bench) == on_disk(bench)


async def test_a_log_that_is_rotated_meanwhile_has_no_gap(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "CHUNK_BYTES", 1000)
    chain = await rotated(bench, 2)
    left = [3]

    async def one_more() -> None:
        if left[0]:
            left[0] -= 1
            await chain.append(draft())

    data = await read_all(bench, one_more)
    assert data == on_disk(bench)
    assert len(rotated_files(bench.log)) == 4


async def test_a_line_that_is_being_written_is_left_out(bench: Bench) -> None:
    await bench.chain.append(draft())
    whole = bench.log.read_bytes()
    with bench.log.open("ab") as file:
        file.write(b'{"half')
    assert await read_all(bench) == whole


async def test_a_damaged_log_is_handed_out_as_it_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "CHUNK_BYTES", 100)
    await bench.chain.close()
    bench.log.with_name(bench.log.name + ".000001").write_bytes(b"x" * 250)
    bench.log.write_bytes(b"y" * 150 + b"\n")
    assert await read_all(bench) == b"x" * 250 + b"y" * 150 + b"\n"


async def test_no_log_and_no_such_place_are_told(bench: Bench) -> None:
    for at in (ReadReceiptLog(file=-1), ReadReceiptLog(offset=-1), ReadReceiptLog(offset=1 << 63)):
        with pytest.raises(InvalidRequestError):
            await receipts.read_receipt_log(daemon_of(bench), at, CALL)
    bench.log.unlink()
    with pytest.raises(ReceiptError, match="cannot read the receipts"):
        await receipts.read_receipt_log(daemon_of(bench), ReadReceiptLog(), CALL)


async def stored(bench: Bench, *contents: bytes) -> list[str]:
    hashes = [hashlib.sha256(content).hexdigest() for content in contents]
    for content_hash, content in zip(hashes, contents, strict=True):
        await bench.memory.ledger.store_content(content, content_hash)
    return hashes


async def test_contents_come_in_the_order_asked_for(bench: Bench) -> None:
    hashes = await stored(bench, b"", b"\xff\0", b"text")
    asked = (hashes[2], "0" * 64, hashes[0], hashes[1], hashes[2])
    found = (await receipts.load_contents(daemon_of(bench), LoadContents(hashes=asked), CALL)).items
    assert [(each.hash, each.size, each.data) for each in found] == [
        (hashes[2], 4, b"text"),
        ("0" * 64, None, b""),
        (hashes[0], 0, b""),
        (hashes[1], 2, b"\xff\0"),
        (hashes[2], 4, b"text"),
    ]


async def test_an_answer_holds_what_fits_and_a_long_content_comes_in_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "CHUNK_BYTES", 10)
    monkeypatch.setattr(receipts, "PIECE_BYTES", 20)
    hashes = await stored(bench, b"a" * 6, b"b" * 15, b"c" * 50)

    async def ask(*wanted: str, offset: int = 0) -> list[bytes]:
        params = LoadContents(hashes=wanted, offset=offset)
        return [
            each.data
            for each in (await receipts.load_contents(daemon_of(bench), params, CALL)).items
        ]

    assert await ask(*hashes) == [b"a" * 6]
    assert await ask(*hashes[1:]) == [b"b" * 15]
    assert await ask(hashes[2]) == [b"c" * 20]
    assert await ask(hashes[2], offset=40) == [b"c" * 10]
    for wrong in (LoadContents(hashes=(), offset=-1), LoadContents(hashes=("a",) * 1001)):
        with pytest.raises(InvalidRequestError):
            await receipts.load_contents(daemon_of(bench), wrong, CALL)


async def test_reading_does_not_hinder_writing(bench: Bench) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(bench.chain.append(draft()))
            tasks.create_task(read_all(bench))
    assert await read_all(bench) == on_disk(bench)
