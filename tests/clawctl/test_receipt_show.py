"""`receipt show` and `receipt list`: what a person sees of a receipt, made safe for a terminal."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawctl.app import utc_time
from clawctl.main import main
from clawd.wire.receipts import ListReceipts, ReceiptDetail, ReceiptLine, ReceiptPage
from tests.clawctl.conftest import Capture
from tests.receipts.samples import receipts
from tests.support.fake_daemon import FakeDaemon

pytestmark = pytest.mark.usefixtures("own_home")


CHAIN = receipts(3)


def detail(arguments: str = "{}", result: str = "", **fields: Any) -> ReceiptDetail:
    second = msgspec.structs.asdict(CHAIN[1])
    changes = {name: fields.pop(name) for name in list(fields) if name in second}
    kept: dict[str, Any] = {
        "arguments_bytes": len(arguments.encode()),
        "result_bytes": len(result.encode()),
        "next_hash": CHAIN[2].receipt_hash,
        "head_seq": 3,
    }
    return ReceiptDetail(
        receipt=second | changes, arguments=arguments, result=result, **kept | fields
    )


def shown(daemon: FakeDaemon, capsys: Capture, told: ReceiptDetail) -> dict[str, str]:
    """Return the fields that were printed, and what came after them under their titles."""
    daemon.handlers["show_receipt"] = told
    assert main(["receipt", "show", "2"]) == 0
    fields, *parts = capsys.readouterr().out.split("\n\n")
    found = dict(line.split("  ", 1) for line in fields.splitlines())
    found |= dict(part.split("\n", 1) for part in parts)
    return {name.strip(): value.strip("\n").strip() for name, value in found.items()}


def test_it_tells_who_let_it_run_where_it_ran_and_its_place(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    told = detail(approval="user", approved_by="uid 1000", sandbox="bwrap", exit_code=7)
    found = shown(daemon, capsys, told)
    assert found["receipt"] == "2 of 3"
    assert found["approval"] == "user: a person let it run (uid 1000)"
    assert (found["sandbox"], found["exit code"]) == ("bwrap", "7")
    assert found["previous hash"] == f"{CHAIN[0].receipt_hash} (receipt 1)"
    assert found["its hash"] == CHAIN[1].receipt_hash
    assert found["next hash"] == f"{CHAIN[2].receipt_hash} (receipt 3)"


def test_a_denied_call_and_the_ends_of_a_chain_are_told(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    told = detail(seq=1, status="denied", approval="none", approved_by="", sandbox="", next_hash="")
    found = shown(daemon, capsys, told)
    assert found["approval"] == "none: nobody let it run"
    assert found["sandbox"] == "- (starts no process)"
    assert found["previous hash"] == "- (it is the first)"
    assert found["next hash"] == "- (it is the last)"


def test_arguments_are_laid_out_and_the_result_is_as_it_was(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    found = shown(daemon, capsys, detail('{"path":"a","deep":{"b":[1,2]}}', "two\nlines"))
    assert json.loads(found["arguments"]) == {"path": "a", "deep": {"b": [1, 2]}}
    assert '\n  "path": "a"' in found["arguments"]
    assert found["result"] == "two\nlines"
    assert shown(daemon, capsys, detail("{no json"))["arguments"] == "{no json"


def test_what_is_gone_empty_or_cut_is_told_apart(daemon: FakeDaemon, capsys: Capture) -> None:
    gone = shown(daemon, capsys, detail(arguments_bytes=None, result_bytes=0))
    assert gone["arguments"] == "(no longer kept: only its hash is left)"
    assert gone["result"] == "(empty)"
    cut = shown(daemon, capsys, detail(result="beginning", result_bytes=5_000_000))
    assert cut["result"] == "beginning\n(cut: 5.0 MB in all)"


def test_nothing_that_a_terminal_acts_on_gets_through(daemon: FakeDaemon, capsys: Capture) -> None:
    hostile = "\x1b]0;owned\x07 \x9b31m \u202etxt \u200b \x1b]8;;http://x\x07"
    told = detail(
        json.dumps({"a": hostile}, ensure_ascii=False), hostile, tool=hostile, reason=hostile
    )
    daemon.handlers["show_receipt"] = told
    main(["receipt", "show", "2"])
    out = capsys.readouterr().out
    assert not set(out) & set("\x1b\x07\x9b\u202e\u200b")
    assert "‹U+202E›" in out


def test_json_is_the_answer_whole(daemon: FakeDaemon, capsys: Capture) -> None:
    told = detail('{"a":1}', "x")
    daemon.handlers["show_receipt"] = told
    main(["receipt", "show", "2", "--json"])
    assert json.loads(capsys.readouterr().out) == msgspec.to_builtins(told)


def test_a_key_is_a_text_or_a_file(daemon: FakeDaemon, capsys: Capture, tmp_path: Path) -> None:
    for key, told in {"x" * 5_000: "key", str(tmp_path): "Is a directory"}.items():
        assert main(["receipt", "verify", "--public-key", key]) == 1
        assert told in capsys.readouterr().err


def test_a_list_fits_into_a_terminal(
    daemon: FakeDaemon, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = msgspec.structs.asdict(CHAIN[1]) | {"reason": "a word and " * 9}
    line = msgspec.convert(fields, ReceiptLine, strict=False)
    daemon.handlers["list_receipts"] = ReceiptPage(items=(line,))
    monkeypatch.setattr("clawctl.safe_stream.columns", lambda _stream: 80)
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stdout.isatty", lambda found=is_terminal: found)
        assert main(["receipt", "list"]) == 0
        _, *rows = capsys.readouterr().out.splitlines()
        assert (max(map(len, rows)) <= 80) == is_terminal
        assert (line.id in rows[0]) == (not is_terminal)
        assert line.id[-10:] in rows[0]


def test_a_list_asks_for_what_was_wanted(
    daemon: FakeDaemon, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.handlers["list_receipts"] = ReceiptPage(items=())
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    for named in (".", "link"):
        assert main(["receipt", "list", "--workspace", named]) == 0
        assert daemon.calls_of(ListReceipts)[-1].workspace == str(tmp_path.resolve())
    wanted = ["--tool", "file_*", "--status", "denied", "--conversation", "conv-1"]
    times = ["--since", "2026-11-21", "--until", "2026-11-21T08:30Z"]
    assert main(["receipt", "list", *wanted, *times]) == 0
    assert daemon.calls_of(ListReceipts)[2:] == [
        ListReceipts(
            limit=50,
            tool="file_*",
            status="denied",
            conversation_id="conv-1",
            since="2026-11-21T00:00:00Z",
            until="2026-11-21T08:30:00Z",
        )
    ]
    assert main(["receipt", "list", "--since", "yesterday"]) == 2
    assert "'yesterday' is not a time" in capsys.readouterr().err


def test_times_are_absolute_or_ago() -> None:
    assert utc_time("") == ""
    assert utc_time("2h", now=7_260.0) == "1970-01-01T00:01:00Z"
    assert utc_time("9d", now=60.0) == "1970-01-01T00:00:00Z"
    assert utc_time("2026-02-28T23:59:59Z") == "2026-02-28T23:59:59Z"
    for wrong in ("2026-02-30", "2h ", "08:00", "-1h"):
        with pytest.raises(Exception, match="is not a time"):
            utc_time(wrong)
