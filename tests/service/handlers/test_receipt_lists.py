"""Receipts on the socket: what a list holds, what is shown, and that nobody sees another's."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.receipts.record import Receipt, sha256_hex
from clawd.security.principal import Principal
from clawd.service.handlers.receipts import SHOWN_CONTENT_BYTES, list_receipts, show_receipt
from clawd.wire.receipts import ListReceipts, ShowReceipt
from tests.receipts.samples import draft
from tests.security.fakes import ADA, BOB, ROOT
from tests.service.handlers.daemons import daemon_of
from tests.support.dispatching import Bench, bench_in
from tests.support.rows import each_row

CALLS: list[dict[str, Any]] = [
    {"tool": "file_list", "uid": ADA.uid, "timestamp": "2026-11-21T08:00:00Z"}
    | {"contacted": "get.example.org:443 192.0.2.1 10/20 proxy", "workspace": "/w/a"},
    {"tool": "shell", "uid": BOB.uid, "timestamp": "2026-11-21T09:00:00Z", "status": "denied"},
    {"tool": "file_read", "uid": ADA.uid, "timestamp": "2026-11-21T10:00:00Z", "status": "failed"}
    | {"risk": "high", "refused": "evil.test:80,[2001:db8::1]:443"},
    {
        "tool": "file_list",
        "uid": ADA.uid,
        "timestamp": "2026-11-21T11:00:00Z",
        "workspace": "/w/ab",
    },
]


class Desk:
    """A log of four receipts of two people, and the handlers that show them."""

    def __init__(self, bench: Bench, receipts: list[Receipt]) -> None:
        self.bench, self.receipts = bench, receipts
        self.daemon = daemon_of(bench)

    async def listed(self, who: Principal = ADA, **wanted: Any) -> list[int]:
        call: Any = SimpleNamespace(principal=who)
        page = await list_receipts(self.daemon, ListReceipts(**wanted), call)
        return [line.seq for line in page.items]

    async def shown(self, key: str, who: Principal = ADA) -> Any:
        call: Any = SimpleNamespace(principal=who)
        return await show_receipt(self.daemon, ShowReceipt(receipt_id=key), call)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with bench_in(tmp_path) as bench:
        yield Desk(bench, [await bench.chain.append(draft(**call)) for call in CALLS])


@each_row(
    ("wanted", "found"),
    [
        ({}, [4, 3, 1]),
        ({"tool": "file_list"}, [4, 1]),
        ({"tool": "file_*"}, [4, 3, 1]),
        ({"tool": "list"}, []),
        ({"status": "failed"}, [3]),
        ({"status": "denied"}, []),
        ({"since": "2026-11-21T10:00:00Z"}, [4, 3]),
        ({"until": "2026-11-21T10:00:00Z"}, [1]),
        ({"since": "2026-11-21T08:00:01Z", "until": "2026-11-21T10:59:59Z"}, [3]),
        ({"conversation_id": "conv-01", "tool": "file_list", "limit": 1}, [4]),
        ({"conversation_id": "conv"}, []),
        ({"risk": "high"}, [3]),
        ({"workspace": "/w/a/"}, [1]),
        ({"workspace": "/w"}, [4, 1]),
        ({"host": "*.Example.org"}, [1]),
        ({"host": "example.org"}, []),
        ({"host": "evil.test"}, [3]),
        ({"cursor": "4", "tool": "file_*", "limit": 1}, [3]),
    ],
    fresh=["desk"],
)
async def test_a_list_holds_what_fits_of_ones_own(
    desk: Desk, wanted: dict[str, Any], found: list[int]
) -> None:
    assert await desk.listed(**wanted) == found


async def test_an_admin_sees_everybodys_and_another_user_only_theirs(desk: Desk) -> None:
    assert await desk.listed(ROOT) == [4, 3, 2, 1]
    assert await desk.listed(ROOT, status="denied") == [2]
    assert await desk.listed(BOB) == [2]
    assert await desk.listed(BOB, tool="file_*") == []


@each_row(
    "wanted",
    [
        {"status": "lost"},
        {"risk": "odd"},
        {"since": "yesterday"},
        {"until": "2026-11-21"},
        {"since": "2026-11-21T"},
    ],
    fresh=["desk"],
)
async def test_what_no_receipt_can_have_is_refused(desk: Desk, wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        await desk.listed(**wanted)


async def test_one_is_shown_with_its_neighbours_and_its_place(desk: Desk) -> None:
    third = await desk.shown("3")
    assert third.receipt["previous_hash"] == desk.receipts[1].receipt_hash
    assert (third.next_hash, third.head_seq) == (desk.receipts[3].receipt_hash, 4)
    last = await desk.shown(desk.receipts[3].id)
    assert (last.receipt["seq"], last.next_hash, last.head_seq) == (4, "", 4)


async def test_anothers_is_not_there(desk: Desk) -> None:
    for key in ("2", desk.receipts[1].id, desk.receipts[1].id[-10:]):
        with pytest.raises(NotFoundError):
            await desk.shown(key)
        assert (await desk.shown(key, BOB)).receipt["seq"] == 2
        assert (await desk.shown(key, ROOT)).receipt["seq"] == 2
    with pytest.raises(NotFoundError, match="3 receipts"):
        await desk.shown("receipt-")


async def test_contents_that_are_gone_empty_or_long_are_told_apart(desk: Desk) -> None:
    long = b"x" * (SHOWN_CONTENT_BYTES + 1)
    ledger = desk.bench.memory.ledger
    for content in (b"", long):
        await ledger.store_content(content, sha256_hex(content))
    hashes = {"args_hash": sha256_hex(b""), "result_hash": sha256_hex(long)}
    await desk.bench.chain.append(draft(uid=ADA.uid, **hashes))
    gone, kept = await desk.shown("4"), await desk.shown("5")
    assert (gone.arguments, gone.arguments_bytes, gone.result_bytes) == ("", None, None)
    assert (kept.arguments, kept.arguments_bytes) == ("", 0)
    assert (len(kept.result), kept.result_bytes) == (SHOWN_CONTENT_BYTES, len(long))
