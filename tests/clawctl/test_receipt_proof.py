"""`clawctl receipt verify` with what is known from elsewhere, and `receipt head` that shows it."""

import json
from pathlib import Path
from typing import Any

import pytest

from clawctl.main import main
from clawd.receipts.verify import verify
from clawd.wire.receipts import HeadOfReceipts, ReceiptHead, Verification, VerifyReceipts
from tests.clawctl.conftest import Capture
from tests.receipts.samples import FIRST_KEY, receipts, signed_chain, write
from tests.support.fake_daemon import FakeDaemon

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "chain.log", signed_chain(9, (4, 8)))


def _json(capsys: Capture, *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["receipt", *arguments, "--json"]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def _head(log: Path) -> str:
    found = verify(log)
    return f"{found.head_seq}:{found.head_hash}"


def test_each_level_is_named(log: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "kept.pub").write_text(FIRST_KEY.upper() + "\n")
    at = ("verify", "--path", str(log))
    assert _json(capsys, *at)["level"] == "chain"
    for given in (FIRST_KEY, str(tmp_path / "kept.pub")):
        found = _json(capsys, *at, "--public-key", given)
        assert (found["level"], found["signed"], found["receipts"]) == ("signed", 8, 9)
    found = _json(capsys, *at, "--public-key", FIRST_KEY, "--anchor", _head(log))
    assert (found["level"], found["signed"]) == ("anchored", 8)


def test_how_many_are_signed_is_shown(log: Path, capsys: Capture) -> None:
    assert main(["receipt", "verify", "--path", str(log), "--public-key", FIRST_KEY]) == 0
    out = capsys.readouterr().out
    assert "valid chain of 9 receipts" in out
    assert "8 of 9 signed, checked from the public key given" in out


def test_a_chain_written_anew_fails_with_the_key_and_with_the_head(
    log: Path, tmp_path: Path, capsys: Capture
) -> None:
    known = _head(log)
    anew = write(tmp_path / "anew.log", signed_chain(9, (4, 8), word="forged", first_key=5))
    at = ("verify", "--path", str(anew))
    assert _json(capsys, *at)["ok"] is True
    found = _json(capsys, *at, "--public-key", FIRST_KEY, code=1)
    assert (found["first_bad"], found["kind"]) == (4, "bad signature")
    found = _json(capsys, *at, "--anchor", known, code=1)
    assert (found["first_bad"], found["kind"]) == (9, "edited")


def test_a_cut_tail_fails_with_the_head(log: Path, capsys: Capture) -> None:
    known = _head(log)
    write(log, signed_chain(9, (4, 8))[:6])
    found = _json(capsys, "verify", "--path", str(log), "--anchor", known, code=1)
    assert (found["first_bad"], found["kind"]) == (6, "cut tail")


def test_a_key_that_proves_nothing_yet_is_a_failure(tmp_path: Path, capsys: Capture) -> None:
    log = write(tmp_path / "chain.log", receipts(3))
    at = ("verify", "--path", str(log))
    assert _json(capsys, *at)["ok"] is True
    found = _json(capsys, *at, "--public-key", FIRST_KEY, code=1)
    assert (found["ok"], found["level"]) == (True, "chain")
    assert main(["receipt", *at, "--public-key", FIRST_KEY]) == 1
    told = capsys.readouterr()
    assert "The public key proves nothing yet" in told.out + told.err


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("--public-key", "abc", "64 hexadecimal digits"),
        ("--public-key", "/no/such/file", "64 hexadecimal digits"),
        ("--anchor", "9", "SEQ:HASH"),
        ("--anchor", f"0:{'a' * 64}", "SEQ:HASH"),
        ("--anchor", f"9:{'g' * 64}", "SEQ:HASH"),
    ],
)
def test_what_is_no_key_or_head_is_refused(
    log: Path, capsys: Capture, option: str, value: str, hint: str
) -> None:
    assert main(["receipt", "verify", "--path", str(log), option, value]) == 1
    assert hint in capsys.readouterr().err


def test_the_daemon_is_told_what_is_known(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["verify_receipts"] = Verification(
        ok=True, receipts=3, level="anchored", message="m", head_seq=3, head_hash="ab", signed=2
    )
    anchor = f"3:{'a' * 64}"
    found = _json(capsys, "verify", "--public-key", FIRST_KEY, "--anchor", anchor)
    assert (found["checked_by"], found["signed"]) == ("daemon", 2)
    wanted = VerifyReceipts(public_key=FIRST_KEY, anchor=anchor)
    assert daemon.calls_of(VerifyReceipts) == [wanted]


def test_the_head_comes_from_the_daemon_that_runs(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["head_of_receipts"] = ReceiptHead(
        seq=3,
        receipt_hash="ab",
        first_public_key=FIRST_KEY,
        signed=2,
        signed_at="2026-01-02T03:04:05Z",
    )
    assert main(["receipt", "head"]) == 0
    out = capsys.readouterr().out
    for part in ("3:ab", FIRST_KEY, "up to receipt 2, 2026-01-02T03:04:05Z"):
        assert part in out
    assert len(daemon.calls_of(HeadOfReceipts)) == 1


def test_the_head_comes_from_the_file_without_a_daemon(home: Path, capsys: Capture) -> None:
    assert main(["receipt", "head"]) == 1
    assert "no receipts at" in capsys.readouterr().err
    log = write(home / "tool_receipts.log", receipts(2))
    (home / "checkpoint.pub").write_text(FIRST_KEY + "\n")
    found = _json(capsys, "head")
    assert (found["seq"], found["signed"], found["first_public_key"]) == (2, 0, FIRST_KEY)
    (home / "checkpoint.pub").unlink()
    write(log, signed_chain(9, (4, 8)))
    found = _json(capsys, "head")
    assert (found["seq"], found["signed"], found["first_public_key"]) == (9, 8, FIRST_KEY)
    assert f"{found['seq']}:{found['receipt_hash']}" == _head(log)
