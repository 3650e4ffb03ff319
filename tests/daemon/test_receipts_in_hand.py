"""Receipts of a real daemon in people's hands: shown, filtered, exported; and a cut log."""

import json
import stat
from pathlib import Path

import pytest

from tests.support.home import Home
from tests.support.second_verifier import verify as verify_again

pytestmark = pytest.mark.daemon


def run(home: Home, tool: str, **arguments: object) -> None:
    home.ctl("tool", "run", tool, "--json", json.dumps(arguments))


def verified(home: Home, *arguments: str) -> tuple[int, str]:
    done = home.ctl("receipt", "verify", *arguments)
    return done.returncode, done.stdout + done.stderr


def test_calls_are_listed_shown_and_exported(home: Home, tmp_path: Path) -> None:
    home.configure()
    home.start()
    run(home, "calculator", expression="1+1")
    run(home, "file_read", path="/etc/shadow")
    run(home, "nothing_of_this_name")
    run(home, "file_list", path=".")
    lines = home.json("receipt", "list")
    assert [line["seq"] for line in lines] == [4, 3, 2, 1]
    assert [line["tool"] for line in home.json("receipt", "list", "--tool", "file_*")] == [
        "file_list", "file_read",
    ]  # fmt: skip
    assert [line["seq"] for line in home.json("receipt", "list", "--status", "denied")] == [2]
    assert home.json("receipt", "list", "--since", "2999-01-01") == []
    assert len(home.json("receipt", "list", "--until", "2999-01-01", "--since", "1h")) == 4
    shown = home.json("receipt", "show", "1")
    assert (shown["arguments"], shown["head_seq"]) == ('{"expression":"1+1"}', 4)
    assert shown["next_hash"] == home.json("receipt", "show", "2")["receipt"]["receipt_hash"]
    for folder, options in ((tmp_path / "whole", []), (tmp_path / "bare", ["--redact"])):
        done = home.ctl("receipt", "export", str(folder), *options)
        assert done.returncode == 0, done.stderr
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert verify_again(folder / "tool_receipts.log") == verify_again(home.receipts)
        assert verified(home, "--path", str(folder))[0] == 0
    assert "1+1" in (tmp_path / "whole" / "contents.jsonl").read_text()
    assert not any("1+1" in path.read_text() for path in (tmp_path / "bare").iterdir())


def test_a_log_that_was_cut_is_told_until_somebody_accepts_it(home: Home) -> None:
    home.configure()
    home.start()
    for number in range(3):
        run(home, "calculator", expression=f"{number}+1")
    assert "valid chain of 3" in verified(home)[1]
    home.kill()
    assert "level anchored" in verified(home)[1]
    lines = home.receipts.read_bytes().splitlines(keepends=True)
    home.receipts.write_bytes(lines[0])
    code, told = verified(home)
    assert (code, "cut tail" in told) == (1, True), told
    home.start()
    assert "the receipt log was cut or replaced" in home.json("status")["receipts_problem"]
    assert "PROBLEM: the receipt log was cut" in home.ctl("status").stdout
    assert "ERROR clawd.service.receipts: the receipt log was cut" in home.log()
    for _ in range(3):
        run(home, "calculator", expression="2+2")
    assert home.json("receipt", "list")[0]["seq"] == 4
    code, told = verified(home)
    assert (code, "invalid chain at receipt 3" in told) == (1, True), told
    done = home.ctl("receipt", "accept", "--yes")
    assert (done.returncode, done.stdout) == (
        0,
        "the receipt log counts as it stands: 4 receipts\n",
    )
    assert home.json("status")["receipts_problem"] == ""
    assert verified(home)[0] == 0
    last = home.json("receipt", "list", "--limit", "1")[0]["receipt_hash"]
    home.close()
    assert f"receipt head seq=4 hash={last}" in home.log()
