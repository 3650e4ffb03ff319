"""The one writer of the chain: durable, in order, alone, and honest about failures."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clawd.errors import ReceiptError
from clawd.receipts.chain import Head, ReceiptChain
from clawd.receipts.logfiles import rotated_files
from clawd.receipts.record import canonical, seal
from clawd.receipts.verify import BadLine, read_receipts, verify
from clawd.wire.receipts import GENESIS_HASH
from tests.receipts.samples import draft, files_no_longer_than, forged, line, receipts, write
from tests.support.rows import each_row


async def _append(path: Path, count: int) -> None:
    chain = await ReceiptChain.open(path)
    for number in range(count):
        await chain.append(draft(reason=f"call {number}"))
    await chain.close()


async def test_a_receipt_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path)
    assert chain.head() == Head(seq=0, receipt_hash=GENESIS_HASH)
    made = draft()
    first = await chain.append(made)
    assert first == seal(made, seq=1, previous_hash=GENESIS_HASH)
    assert path.read_bytes() == canonical(first) + b"\n"
    second = await chain.append(draft())
    assert (second.seq, second.previous_hash) == (2, first.receipt_hash)
    assert chain.head() == Head(seq=2, receipt_hash=second.receipt_hash)
    assert verify(path).receipts == 2
    await chain.close()
    await chain.close()


async def test_concurrent_appends_make_one_chain_in_fewer_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = await ReceiptChain.open(tmp_path / "log")
    syncs = []
    sync = os.fsync

    def counted(descriptor: int) -> None:
        syncs.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    made = await asyncio.gather(*(chain.append(draft()) for _ in range(500)))
    assert [receipt.seq for receipt in made] == list(range(1, 501))
    assert 2 <= len(syncs) <= 100
    await chain.close()
    assert verify(tmp_path / "log").receipts == 500


async def test_a_chain_goes_on_where_it_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    await _append(path, 3)
    await _append(path, 2)
    assert verify(path).receipts == 5


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, [*receipts(1), b"{torn"])
    path.chmod(0o644)
    before = os.umask(0)
    try:
        await _append(path, 1)
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    names = {"checkpoint.key", "checkpoint.pub", "log", "log.lock", "log.torn"}
    assert modes == dict.fromkeys(names, 0o600)


async def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    chain = await ReceiptChain.open(tmp_path / "log")
    with pytest.raises(ReceiptError, match="another process has it locked"):
        await ReceiptChain.open(tmp_path / "log")
    await chain.close()
    await _append(tmp_path / "log", 1)


async def test_a_torn_last_line_is_set_aside_and_reported(tmp_path: Path) -> None:
    chain = receipts(3)
    torn = line(chain[2])[:100]
    path = write(tmp_path / "log", [*chain[:2], torn])
    opened = await ReceiptChain.open(path)
    assert opened.torn is not None
    assert (opened.torn.length, opened.torn.file) == (100, tmp_path / "log.torn")
    assert opened.head().seq == 2
    assert (await opened.append(draft())).seq == 3
    await opened.close()
    assert verify(path).ok
    note, kept = (tmp_path / "log.torn").read_bytes().splitlines()
    assert kept == torn
    assert b'"offset":%d,"length":100' % len(line(chain[0]) + line(chain[1])) in note


async def test_a_second_torn_line_is_kept_beside_the_first(tmp_path: Path) -> None:
    path = write(tmp_path / "log", [b"{one"])
    await _append(path, 1)
    with path.open("ab") as file:
        file.write(b"\0\0\0")
    await _append(path, 1)
    assert verify(path).receipts == 2
    assert (tmp_path / "log.torn").read_bytes().count(b'"length"') == 2


async def test_an_invalid_last_line_is_refused_and_kept(tmp_path: Path) -> None:
    chain = receipts(2)
    edited = line(chain[1]).replace(b"call 2", b"call 9")
    for last in (edited, b"hello\n", b'{"type":"checkpoint"}\n', line(chain[1])[:-1] + b" \n"):
        path = write(tmp_path / "log", [chain[0], last])
        before = path.read_bytes()
        with pytest.raises(ReceiptError, match="is no valid receipt"):
            await ReceiptChain.open(path)
        assert path.read_bytes() == before


@each_row("content", [b"text", b"\x89PNG" * 999, b"{" * (2 << 20)])
async def test_a_file_that_is_no_log_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(ReceiptError, match="no receipt log"):
        await ReceiptChain.open(path)
    assert path.read_bytes() == content


async def test_links_and_pipes_and_missing_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing/log"):
        with pytest.raises(ReceiptError, match="cannot open the receipt chain"):
            await ReceiptChain.open(tmp_path / name)


async def test_a_failed_open_leaves_no_lock(tmp_path: Path) -> None:
    path = write(tmp_path / "log", [b"hello\n"])
    for _ in range(2):
        with pytest.raises(ReceiptError, match="is no valid receipt"):
            await ReceiptChain.open(path)
    path.unlink()
    await _append(path, 1)


async def test_a_full_disk_fails_every_waiter_and_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path)
    await chain.append(draft())
    before = path.read_bytes()
    with files_no_longer_than(len(before) + 100):
        answers = await asyncio.gather(
            *(chain.append(draft()) for _ in range(5)), return_exceptions=True
        )
    assert all(isinstance(answer, ReceiptError) for answer in answers)
    assert "cannot write the receipt" in str(answers[0])
    assert path.read_bytes() == before
    assert chain.failure
    with pytest.raises(ReceiptError, match="since a write failed"):
        await chain.append(draft())
    assert path.read_bytes() == before
    await chain.reopen()
    assert chain.failure == ""
    assert (await chain.append(draft())).seq == 2
    await chain.close()
    assert verify(path).receipts == 2


async def test_a_sync_that_fails_takes_the_lines_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path)

    def failing(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        with pytest.raises(ReceiptError, match="Input/output error"):
            await chain.append(draft())
    assert path.read_bytes() == b""
    await chain.close()


@each_row("harm", ["remove", "replace", "truncate", "append"])
async def test_a_file_changed_by_somebody_else_takes_nothing_more(
    tmp_path: Path, harm: str
) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path)
    await chain.append(draft())
    content = path.read_bytes()
    match harm:
        case "remove":
            path.unlink()
        case "replace":
            path.rename(tmp_path / "old")
            path.write_bytes(content)
        case "truncate":
            os.truncate(path, 10)
        case _:
            path.write_bytes(content + b"more\n")
    left = path.read_bytes() if path.exists() else None
    with pytest.raises(ReceiptError, match="cannot write the receipt"):
        await chain.append(draft())
    assert (path.read_bytes() if path.exists() else None) == left
    with pytest.raises(ReceiptError, match="since a write failed"):
        await chain.append(draft())
    await chain.close()


async def test_a_draft_that_is_no_receipt_fails_alone(tmp_path: Path) -> None:
    chain = await ReceiptChain.open(tmp_path / "log")
    good, bad = await asyncio.gather(
        chain.append(draft()), chain.append(draft(risk="huge")), return_exceptions=True
    )
    assert isinstance(bad, ReceiptError)
    assert not isinstance(good, BaseException)
    assert (await chain.append(draft())).seq == 2
    await chain.close()


async def test_a_closed_chain_takes_nothing(tmp_path: Path) -> None:
    chain = await ReceiptChain.open(tmp_path / "log")
    await chain.close()
    with pytest.raises(ReceiptError, match="not open"):
        await chain.append(draft())


async def test_rotation_keeps_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for _ in range(2):
        chain = await ReceiptChain.open(path, max_file_bytes=2_000)
        for _ in range(10):
            await chain.append(draft())
        await chain.close()
    assert [file.name for file in rotated_files(path)][:2] == ["log.000001", "log.000002"]
    assert len(rotated_files(path)) >= 4
    found = verify(path)
    assert (found.ok, found.receipts) == (True, 20)
    assert len(list(read_receipts(path))) == 20


async def test_a_crash_between_the_two_steps_of_a_rotation_is_survived(tmp_path: Path) -> None:
    path = tmp_path / "log"
    await _append(path, 3)
    path.rename(tmp_path / "log.000001")
    await _append(path, 1)
    assert verify(path).receipts == 4


async def test_a_chain_can_be_verified_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path, max_file_bytes=30_000)
    await chain.append(draft())
    writing = asyncio.gather(*(chain.append(draft(reason="x" * 3000)) for _ in range(300)))
    checks = 0
    while not writing.done() or checks < 3:
        found = await asyncio.to_thread(verify, path)
        assert found.ok, found.message
        checks += 1
    await writing
    await chain.close()


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    acknowledged: list[list[str]] = []
    for lines in (1, 30, 100):
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.receipts.crash_writer", str(path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        assert writer.stdout is not None
        acknowledged += [writer.stdout.readline().split() for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += [x.split() for x in writer.stdout.read().split("\n")[:-1]]
        writer.stdout.close()
        writer.wait(timeout=60)
        asyncio.run(_append(path, 1))
        found = verify(path)
        assert found.ok, found.message
    hashes = {
        entry.seq: entry.receipt_hash
        for entry in read_receipts(path)
        if not isinstance(entry, BadLine)
    }
    assert len(acknowledged) >= 131
    assert all(hashes[int(seq)] == receipt_hash for seq, receipt_hash in acknowledged)


@each_row("tasks", [1, 8])
async def test_how_many_receipts_a_second_are_appended(tmp_path: Path, tasks: int) -> None:
    chain = await ReceiptChain.open(tmp_path / "log")
    count = 100

    async def append_all() -> None:
        for _ in range(count):
            await chain.append(draft())

    began = time.perf_counter()
    await asyncio.gather(*(append_all() for _ in range(tasks)))
    elapsed_s = time.perf_counter() - began
    print(f"{tasks} tasks append {tasks * count / elapsed_s:,.0f} receipts/s")
    await chain.close()
    assert verify(tmp_path / "log").receipts == tasks * count


async def test_a_forged_end_with_a_fitting_hash_is_continued_and_then_found(
    tmp_path: Path,
) -> None:
    chain = receipts(3)
    path = write(tmp_path / "log", [*chain[:2], forged(chain[2], seq=7)])
    await _append(path, 1)
    assert verify(path).first_bad == 3
