"""`receipt export`: what a bundle holds, that it verifies alone, and that a broken one does not."""

import base64
import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawctl.main import main
from clawd.errors import ForbiddenError
from clawd.receipts.record import Receipt, seal
from clawd.wire.method import Done
from clawd.wire.receipts import (
    GENESIS_HASH,
    AcceptReceipts,
    ContentPiece,
    ContentPieces,
    LoadContents,
    ReceiptLogChunk,
)
from tests.clawctl.conftest import Capture
from tests.receipts.samples import draft, line
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.second_verifier import verify as verify_again

CONTENTS = [b'{"a":1}', b"ok", b'{"a":2}', b"\xff\xfe bytes", b'{"a":3}', b"gone", b"{}", b"x" * 50]
GONE = b"gone"
PIECE = 20


pytestmark = pytest.mark.usefixtures("own_home")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def chain() -> list[Receipt]:
    """Return receipts of the contents, two to each, one an hour and the last of another talk."""
    made: list[Receipt] = []
    for number in range(len(CONTENTS) // 2):
        fields = draft(
            id=f"receipt-{number}",
            timestamp=f"2026-11-21T0{number}:00:00Z",
            conversation_id="conv-2" if number == 3 else "conv-1",
            args_hash=digest(CONTENTS[2 * number]),
            result_hash=digest(CONTENTS[2 * number + 1]),
        )
        previous = made[-1].receipt_hash if made else GENESIS_HASH
        made.append(seal(fields, seq=number + 1, previous_hash=previous))
    return made


def serve(daemon: FakeDaemon, receipts: list[Receipt], *others: bytes) -> bytes:
    """Let the daemon hand out this log, a line at a time, and the contents; return the log."""
    lines = [*[line(receipt) for receipt in receipts], *others]

    def read(call: Call) -> ReceiptLogChunk:
        at = call.params.file
        data = lines[at] if at < len(lines) else b""
        return ReceiptLogChunk(data=data, file=at + 1, offset=0, is_end=at >= len(lines))

    def load(call: Call) -> ContentPieces:
        params: LoadContents = call.params
        kept = {digest(content): content for content in CONTENTS if content != GONE}
        pieces: list[ContentPiece] = []
        for wanted in params.hashes[:3]:
            data = kept.get(wanted)
            start = 0 if pieces else params.offset
            part = (data or b"")[start : start + PIECE]
            size = None if data is None else len(data)
            pieces.append(ContentPiece(hash=wanted, size=size, data=part))
        return ContentPieces(items=tuple(pieces))

    daemon.handlers |= {"read_receipt_log": read, "load_contents": load}
    return b"".join(lines)


def contents_of(bundle: Path) -> dict[int, tuple[bytes | None, bytes | None]]:
    def data(part: dict[str, str] | None) -> bytes | None:
        if part is None:
            return None
        return part["text"].encode() if "text" in part else base64.b64decode(part["base64"])

    found = {}
    for text in (bundle / "contents.jsonl").read_text().splitlines():
        each = json.loads(text)
        found[each["seq"]] = (data(each["arguments"]), data(each["result"]))
    return found


def verified(bundle: Path, capsys: Capture) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["receipt", "verify", "--path", str(bundle), "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return int(code), document


@pytest.fixture
def bundle(daemon: FakeDaemon, tmp_path: Path) -> Path:
    serve(daemon, chain())
    assert main(["receipt", "export", str(tmp_path / "bundle")]) == 0
    return tmp_path / "bundle"


def test_it_holds_log_and_contents_and_verifies_without_a_daemon(
    daemon: FakeDaemon, bundle: Path, capsys: Capture
) -> None:
    log = serve(daemon, chain())
    daemon.close()
    assert sorted(path.name for path in bundle.iterdir()) == [
        "bundle.json", "contents.jsonl", "tool_receipts.log",
    ]  # fmt: skip
    assert (bundle / "tool_receipts.log").read_bytes() == log
    pairs = [
        (None if a == GONE else a, None if b == GONE else b)
        for a, b in zip(CONTENTS[::2], CONTENTS[1::2], strict=True)
    ]
    assert contents_of(bundle) == dict(enumerate(pairs, start=1))
    about = json.loads((bundle / "bundle.json").read_text())
    assert (about["receipts"], about["contents"], about["missing"]) == (4, 4, 1)
    assert (about["head_seq"], about["head_hash"]) == (4, chain()[-1].receipt_hash)
    code, verdict = verified(bundle, capsys)
    assert (code, verdict["ok"], verdict["receipts"]) == (0, True, 4)
    assert verify_again(bundle / "tool_receipts.log")[0] == 4


def test_only_its_owner_may_read_it(bundle: Path) -> None:
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (bundle, *bundle.iterdir())]
    assert modes == [0o700, 0o600, 0o600, 0o600]


def test_a_redacted_one_has_no_contents_and_verifies(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture
) -> None:
    serve(daemon, chain())
    bundle = tmp_path / "redacted"
    assert main(["receipt", "export", str(bundle), "--redact"]) == 0
    assert sorted(path.name for path in bundle.iterdir()) == ["bundle.json", "tool_receipts.log"]
    assert daemon.calls_of(LoadContents) == []
    code, verdict = verified(bundle, capsys)
    assert (code, verdict["ok"], verdict["receipts"]) == (0, True, 4)
    assert verify_again(bundle / "tool_receipts.log")[-1] is None


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["--conversation", "conv-2"], [4]),
        (["--since", "2026-11-21T01:00Z"], [2, 3, 4]),
        (["--until", "2026-11-21T01:00Z"], [1]),
        (["--since", "2026-11-21T01:00Z", "--until", "2026-11-21T03:00Z"], [2, 3]),
    ],
)
def test_options_choose_whose_contents_go_and_the_log_stays_whole(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture, options: list[str], kept: list[int]
) -> None:
    serve(daemon, chain())
    bundle = tmp_path / "part"
    assert main(["receipt", "export", str(bundle), *options]) == 0
    assert list(contents_of(bundle)) == kept
    assert verified(bundle, capsys)[1]["receipts"] == 4


def change(path: Path, old: bytes, new: bytes) -> None:
    text = path.read_bytes()
    assert old in text
    path.write_bytes(text.replace(old, new, 1))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a result": lambda b: change(b / "contents.jsonl", b'"ok"', b'"no"'),
    "arguments": lambda b: change(b / "contents.jsonl", rb"\"a\":2", rb"\"a\":9"),
    "base64": lambda b: change(b / "contents.jsonl", b'"base64":"', b'"base64":"!'),
    "a null": lambda b: change(b / "contents.jsonl", b'{"text":"ok"}', b"null"),
    "no line": lambda b: change(
        b / "contents.jsonl", (b / "contents.jsonl").read_bytes().splitlines(True)[1], b""
    ),
    "a line again": lambda b: (b / "contents.jsonl").write_bytes(
        (b / "contents.jsonl").read_bytes() * 2
    ),
    "no contents": lambda b: (b / "contents.jsonl").unlink(),
    "a cut log": lambda b: (b / "tool_receipts.log").write_bytes(
        b"".join((b / "tool_receipts.log").read_bytes().splitlines(True)[:3])
    ),
    "an edited log": lambda b: change(b / "tool_receipts.log", b'"allowed"', b'"denied"'),
    "another head": lambda b: change(b / "bundle.json", b'"head_seq": 4', b'"head_seq": 5'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_changed_one_does_not_verify(bundle: Path, capsys: Capture, damage: str) -> None:
    DAMAGES[damage](bundle)
    code, verdict = verified(bundle, capsys)
    assert (code, verdict["ok"]) == (1, False), verdict


@pytest.mark.parametrize("name", ["bundle.json", "contents.jsonl", "tool_receipts.log"])
def test_what_is_no_export_is_told_in_a_sentence(bundle: Path, capsys: Capture, name: str) -> None:
    (bundle / name).write_bytes(b"{\xff}\n")
    assert main(["receipt", "verify", "--path", str(bundle)]) == 1
    (bundle / name).unlink()
    assert main(["receipt", "verify", "--path", str(bundle)]) == 1


def test_what_is_there_is_never_overwritten(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture
) -> None:
    serve(daemon, chain())
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "folder", "link"):
        assert main(["receipt", "export", str(tmp_path / name)]) == 1
        assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"
    assert list((tmp_path / "folder").iterdir()) == []
    assert daemon.requests == []


def test_one_that_fails_half_way_leaves_nothing(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture
) -> None:
    serve(daemon, chain())
    before = set(tmp_path.iterdir())
    daemon.handlers["load_contents"] = lambda call: call.hang_up()
    assert main(["receipt", "export", str(tmp_path / "bundle")]) == 6
    assert set(tmp_path.iterdir()) == before
    assert main(["receipt", "export", str(tmp_path / "no" / "such" / "bundle")]) == 1
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


def test_a_user_who_is_no_admin_is_refused(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture
) -> None:
    def refuse(_call: Call) -> ReceiptLogChunk:
        raise ForbiddenError("read_receipt_log needs an admin")

    daemon.handlers["read_receipt_log"] = refuse
    assert main(["receipt", "export", str(tmp_path / "bundle")]) == 1
    assert "needs an admin" in capsys.readouterr().err
    assert not os.path.lexists(tmp_path / "bundle")


def test_a_broken_chain_is_exported_and_told(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture
) -> None:
    receipts = chain()
    log = serve(daemon, [receipts[0], receipts[2], receipts[3]])
    assert main(["receipt", "export", str(tmp_path / "bundle")]) == 1
    assert "invalid chain at receipt 2" in capsys.readouterr().err
    assert (tmp_path / "bundle" / "tool_receipts.log").read_bytes() == log


def test_the_first_public_key_is_that_of_the_first_checkpoint(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    checkpoints = [
        b'{"public_key":"%b","seq":4,"type":"checkpoint"}\n' % key for key in (b"ab", b"cd")
    ]
    log = serve(daemon, chain(), b'{"type":"news"}\n', *checkpoints)
    main(["receipt", "export", str(tmp_path / "bundle")])
    about = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    assert (about["first_public_key"], about["receipts"]) == ("ab", 4)
    assert (tmp_path / "bundle" / "tool_receipts.log").read_bytes() == log


def test_a_log_is_accepted_only_by_saying_so(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["accept_receipts"] = Done(message="it counts")
    assert main(["receipt", "accept"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert daemon.calls_of(AcceptReceipts) == []
    assert main(["receipt", "accept", "--yes"]) == 0
    assert capsys.readouterr().out == "it counts\n"
