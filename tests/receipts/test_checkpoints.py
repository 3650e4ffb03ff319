"""The writer signs the chain, and the key that signed is gone for good."""

import asyncio
import json
import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clawd.errors import ReceiptError
from clawd.receipts import keys
from clawd.receipts.chain import ReceiptChain
from clawd.receipts.keys import first_public_key
from clawd.receipts.logfiles import rotated_files
from clawd.receipts.record import ReceiptCheckpoint, parse_checkpoint, public_key_of
from clawd.receipts.verify import read_head, read_public_key, verify
from tests.receipts.samples import draft, receipts, write
from tests.support import second_verifier
from tests.support.rows import each_row


async def _append(path: Path, count: int, *, key_path: Path | None = None) -> None:
    chain = await ReceiptChain.open(path, key_path=key_path)
    await asyncio.gather(*(chain.append(draft()) for _ in range(count)))
    await chain.close()


def _checkpoints(path: Path) -> list[ReceiptCheckpoint]:
    files = [*rotated_files(path), path]
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    return [parse_checkpoint(line) for line in lines if line.startswith(b'{"checkpoint_hash"')]


def _first_key(path: Path) -> str:
    return read_public_key(path.with_name("checkpoint.pub"))


def _failing(_path: Path) -> None:
    raise OSError(5, "Input/output error")


@contextmanager
def _signing_seen() -> Iterator[threading.Event]:
    """Give an event that is set when a checkpoint is on disk."""
    seen = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.msg == "receipts signed":
                seen.set()

    log, watch = logging.getLogger("clawd.receipts.chain"), Watch()
    level = log.level
    log.addHandler(watch)
    log.setLevel(logging.INFO)
    try:
        yield seen
    finally:
        log.removeHandler(watch)
        log.setLevel(level)


async def test_every_256_receipts_and_the_close_are_signed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path)
    first_key = _first_key(path)
    await asyncio.gather(*(chain.append(draft()) for _ in range(600)))
    assert [one.seq for one in _checkpoints(path)] == [256, 512]
    await chain.close()
    assert [one.seq for one in _checkpoints(path)] == [256, 512, 600]
    found = verify(path, public_key=first_key)
    assert (found.ok, found.level, found.signed, found.receipts) == (True, "signed", 600, 600)
    assert second_verifier.verify(path, None, first_key) == (600, 600, None, None)
    assert _checkpoints(path)[0].public_key == first_key


async def test_a_close_without_news_signs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    await _append(path, 2)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    await _append(path, 0)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@each_row("interval_s", [0.0, 0.05])
async def test_receipts_that_waited_long_enough_are_signed_without_more_news(
    tmp_path: Path, interval_s: float
) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path, checkpoint_interval_s=interval_s)
    with _signing_seen() as seen:
        await chain.append(draft())
        assert await asyncio.to_thread(seen.wait, 60)
    assert verify(path).signed == 1
    assert (await chain.append(draft())).checkpoint_hash == _checkpoints(path)[0].checkpoint_hash
    await chain.close()
    assert verify(path).ok


async def test_receipts_wait_for_their_hour(tmp_path: Path) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path)
    await chain.append(draft())
    await chain.append(draft())
    assert _checkpoints(path) == []
    await chain.close()


async def test_a_full_file_ends_with_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path, max_file_bytes=3_000)
    for _ in range(20):
        await chain.append(draft())
    await chain.close()
    full = rotated_files(path)
    assert len(full) >= 2
    for file in full:
        assert file.read_bytes().splitlines()[-1].startswith(b'{"checkpoint_hash"')
    assert verify(path, public_key=_first_key(path)).signed == 20


async def test_a_chain_from_before_checkpoints_goes_on_and_is_signed(tmp_path: Path) -> None:
    path = write(tmp_path / "log", receipts(300))
    with _signing_seen() as seen:
        chain = await ReceiptChain.open(path)
        assert await asyncio.to_thread(seen.wait, 60)
    await chain.append(draft())
    await chain.close()
    found = verify(path, public_key=_first_key(path))
    assert (found.ok, found.level, found.signed) == (True, "signed", 301)
    assert "the first 300 stood without a signature" in found.signatures


async def test_the_key_that_signed_is_nowhere_any_more(tmp_path: Path) -> None:
    path, key = tmp_path / "log", tmp_path / "checkpoint.key"
    used = []
    for _ in range(4):
        chain = await ReceiptChain.open(path)
        used.append(key.read_bytes())
        with key.open("rb") as held:
            await chain.append(draft())
            await chain.close()
            # The very blocks are written over, not only their name taken away.
            assert held.read() == bytes(32)
    assert len(set(used)) == 4
    assert [public_key_of(one) for one in used] == [one.public_key for one in _checkpoints(path)]
    for file in tmp_path.rglob("*"):
        content = file.read_bytes()
        for old in used:
            assert old not in content and old.hex().encode() not in content, file
    assert public_key_of(key.read_bytes()) == _checkpoints(path)[-1].next_public_key
    assert not (tmp_path / "checkpoint.key.next").exists()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_crash_before_any_step_leaves_one_valid_key_and_a_chain_that_goes_on(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.receipts.crash_points", str(tmp_path)],
        capture_output=True,
        cwd=Path(__file__).parents[2],
        text=True,
        check=True,
    )
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) > 12
    for number, report in enumerate(reports, start=1):
        assert report == {
            "step": number,
            "valid_keys": 1,
            "goes_on": True,
            "keys_left": ["checkpoint.key"],
            "ok": True,
            "level": "signed",
            "is_all_signed": True,
        }


@each_row("harm", ["missing", "another", "short", "destroyed", "a folder"])
async def test_a_chain_does_not_go_on_without_the_key_it_names(tmp_path: Path, harm: str) -> None:
    path, key = tmp_path / "log", tmp_path / "checkpoint.key"
    await _append(path, 1)
    genuine, before = key.read_bytes(), path.read_bytes()
    key.unlink()
    match harm:
        case "missing":
            pass
        case "a folder":
            key.mkdir()
        case _:
            content = {"another": b"\7" * 32, "short": genuine[:9], "destroyed": bytes(32)}[harm]
            key.write_bytes(content)
            key.chmod(0o600)
    with pytest.raises(ReceiptError, match=r"checkpoint\.key|Is a directory"):
        await ReceiptChain.open(path)
    assert path.read_bytes() == before
    if harm == "a folder":
        key.rmdir()
    key.write_bytes(genuine)
    key.chmod(0o600)
    await _append(path, 1)
    assert verify(path).signed == 2


@each_row("mode", [0o640, 0o604, 0o622])
async def test_a_key_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    await _append(tmp_path / "log", 1)
    (tmp_path / "checkpoint.key").chmod(mode)
    with pytest.raises(ReceiptError, match="mode 0600") as caught:
        await ReceiptChain.open(tmp_path / "log")
    assert "who may have read it" in caught.value.hint


async def test_a_link_in_the_place_of_the_key_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "checkpoint.key"
    (tmp_path / "elsewhere").write_bytes(b"\7" * 32)
    key.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReceiptError, match="cannot open the receipt chain"):
        await ReceiptChain.open(tmp_path / "log")
    assert (tmp_path / "elsewhere").read_bytes() == b"\7" * 32


async def test_an_edited_checkpoint_at_the_end_takes_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "log"
    await _append(path, 1)
    before = path.read_bytes()
    for old, new in ((b'"seq":1,"sig', b'"seq":2,"sig'), (b'"type":"check', b'"type": "check')):
        path.write_bytes(before.replace(old, new))
        assert path.read_bytes() != before
        with pytest.raises(ReceiptError, match="is no valid checkpoint"):
            await ReceiptChain.open(path)


async def test_a_key_that_cannot_be_replaced_stops_the_chain_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path, max_file_bytes=1)
    with monkeypatch.context() as patched:
        patched.setattr(keys, "_overwrite", _failing)
        receipt = await chain.append(draft())
        assert "was not replaced: Input/output error" in chain.failure
        with pytest.raises(ReceiptError, match="since a write failed"):
            await chain.append(draft())
    assert receipt.seq == 1
    await chain.reopen()
    await chain.append(draft())
    await chain.close()
    found = verify(path, public_key=_first_key(path))
    assert (found.ok, found.signed, found.receipts) == (True, 2, 2)


async def test_a_next_key_that_cannot_be_written_writes_no_receipt(tmp_path: Path) -> None:
    path = tmp_path / "log"
    chain = await ReceiptChain.open(path, max_file_bytes=1)
    (tmp_path / "checkpoint.key.next").mkdir()
    with pytest.raises(ReceiptError, match="cannot write the receipt"):
        await chain.append(draft())
    assert path.read_bytes() == b""
    (tmp_path / "checkpoint.key.next").rmdir()
    await chain.reopen()
    await chain.append(draft())
    await chain.close()
    assert verify(path).signed == 1


async def test_a_torn_checkpoint_is_set_aside_and_made_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    await _append(path, 1)
    key = (tmp_path / "checkpoint.key").read_bytes()
    chain = await ReceiptChain.open(path)
    await chain.append(draft())
    await chain.close()
    os.truncate(path, path.stat().st_size - 40)
    (tmp_path / "checkpoint.key.next").write_bytes((tmp_path / "checkpoint.key").read_bytes())
    (tmp_path / "checkpoint.key.next").chmod(0o600)
    (tmp_path / "checkpoint.key").write_bytes(key)
    await _append(path, 0)
    found = verify(path, public_key=_first_key(path))
    assert (found.ok, found.signed) == (True, 2)
    assert (tmp_path / "log.torn").read_bytes().count(b'{"checkpoint_hash"') == 1


@each_row("failing", [False, True])
async def test_a_checkpoint_that_a_crash_tore_off_is_made_before_the_next_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, failing: bool
) -> None:
    path, key = tmp_path / "log", tmp_path / "checkpoint.key"
    await _append(path, 256)
    chain = await ReceiptChain.open(path)
    await asyncio.gather(*(chain.append(draft()) for _ in range(255)))
    kept = key.read_bytes()
    await chain.append(draft())
    await chain.close()
    os.truncate(path, path.stat().st_size - 40)
    key.write_bytes(kept)
    monkeypatch.setattr(ReceiptChain, "_housekeep", lambda _chain: None)
    chain = await ReceiptChain.open(path)
    assert verify(path).signed == 256
    if failing:
        monkeypatch.setattr(keys, "_overwrite", _failing)
    waiting = [chain.append(draft()) for _ in range(300)]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert {isinstance(answer, ReceiptError) for answer in answers} == {failing}
    await chain.close()
    found = verify(path, public_key=_first_key(path))
    assert (found.ok, found.signed) == (True, 512 if failing else 812)


async def test_a_log_that_is_missing_at_one_start_does_not_cost_its_key(tmp_path: Path) -> None:
    folder, key = tmp_path / "disk", tmp_path / "checkpoint.key"
    folder.mkdir()
    await _append(folder / "log", 1, key_path=key)
    before = key.read_bytes()
    folder.rename(tmp_path / "not mounted")
    folder.mkdir()
    for _ in range(2):
        with pytest.raises(ReceiptError, match="that log is not there or") as caught:
            await ReceiptChain.open(folder / "log", key_path=key)
        assert "mounted" in caught.value.hint
        with pytest.raises(ReceiptError, match="that log is not there or"):
            first_public_key(key)
        assert key.read_bytes() == before
    shutil.rmtree(folder)
    (tmp_path / "not mounted").rename(folder)
    await _append(folder / "log", 1, key_path=key)
    found = verify(folder / "log", public_key=_first_key(key))
    assert (found.ok, found.signed) == (True, 2)


async def test_a_new_chain_begins_when_log_and_key_are_moved_away(tmp_path: Path) -> None:
    path, key = tmp_path / "log", tmp_path / "checkpoint.key"
    await _append(path, 1)
    old = _first_key(path)
    path.rename(tmp_path / "kept")
    key.rename(tmp_path / "kept.key")
    await _append(path, 1)
    assert _first_key(path) != old
    assert verify(path, public_key=_first_key(path)).level == "signed"
    assert verify(path, public_key=old).kind == "bad signature"


async def test_a_chain_that_never_signed_takes_its_first_key_again(tmp_path: Path) -> None:
    first = first_public_key(tmp_path / "checkpoint.key")
    (tmp_path / "checkpoint.key.next").write_bytes(b"\7" * 32)
    (tmp_path / "checkpoint.key.next").chmod(0o600)
    await _append(tmp_path / "log", 1)
    assert verify(tmp_path / "log", public_key=first).signed == 1


async def test_init_makes_the_first_key_once_and_the_chain_begins_with_it(tmp_path: Path) -> None:
    key, public = tmp_path / "checkpoint.key", tmp_path / "checkpoint.pub"
    first = first_public_key(key)
    assert first_public_key(key) == first == public.read_text().strip()
    await _append(tmp_path / "log", 1)
    head = read_head(tmp_path / "log", first_public_key_path=public)
    assert (head.first_public_key, head.seq, head.signed) == (first, 1, 1)
    with pytest.raises(ReceiptError, match="cannot be made"):
        first_public_key(tmp_path / "missing" / "checkpoint.key")


async def test_the_head_of_a_log_shows_what_is_signed(tmp_path: Path) -> None:
    path, public = tmp_path / "log", tmp_path / "checkpoint.pub"
    chain = await ReceiptChain.open(path)
    assert read_head(path, first_public_key_path=public).first_public_key == _first_key(path)
    last = await chain.append(draft())
    head = read_head(path, first_public_key_path=public)
    assert (head.seq, head.receipt_hash, head.signed) == (1, last.receipt_hash, 0)
    await chain.close()
    head = read_head(path, first_public_key_path=public)
    assert (head.seq, head.receipt_hash, head.signed) == (1, last.receipt_hash, 1)
    assert head.signed_at == _checkpoints(path)[0].timestamp


async def test_a_next_key_that_no_checkpoint_names_is_destroyed_at_the_open(tmp_path: Path) -> None:
    path, left = tmp_path / "log", tmp_path / "checkpoint.key.next"
    await _append(path, 1)
    left.write_bytes(b"\7" * 32)
    left.chmod(0o600)
    with left.open("rb") as held:
        chain = await ReceiptChain.open(path)
        assert held.read() == bytes(32)
    assert not left.exists()
    await chain.close()
