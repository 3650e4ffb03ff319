"""Pictures from the command line to the model: a restart, a tool, an export, a deletion."""

import re
import sqlite3
from pathlib import Path

import pytest

from tests.support.home import Home
from tests.support.pictures import png

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox, pytest.mark.timeout(300)]

SEEN = re.compile(r"image/png (\d+x\d+) ([0-9a-f]{64})")
READ = {"name": "file_read", "arguments": {"path": "shot.png"}}


def kept(home: Home) -> int:
    connection = sqlite3.connect(home.path / "memory.sqlite")
    (count,) = connection.execute("SELECT count(*) FROM pictures").fetchone()
    connection.close()
    return int(count)


def test_a_picture_lives_and_goes_with_its_conversation(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.configure(
        {"when": "read it", "after": "tool", "text": "{{pictures}}"},
        {"when": "read it", "tool_calls": [READ]},
        {"text": "{{pictures}}"},
    )
    (tmp_path / "photo.png").write_bytes(png(3, 2))
    (home.workspace / "shot.png").write_bytes(png(5, 4))
    try:
        home.start()
        photo = str(tmp_path / "photo.png")
        first = home.json("agent", "--attach", photo, "-m", "what is it?")
        name = first["conversation_id"]
        ((size, digest),) = SEEN.findall(first["text"])
        assert size == "3x2"
        home.kill()
        home.start()
        again = home.json("agent", "--conversation", name, "-m", "and now?")
        assert SEEN.findall(again["text"]) == [(size, digest)]
        shown = home.json("agent", "--conversation", name, "-m", "read it")
        assert [each[0] for each in SEEN.findall(shown["text"])] == ["3x2", "5x4"]
        other = SEEN.findall(shown["text"])[1][1]
        (call,) = shown["tool_calls"]
        assert f"sha256 {other}" in call["output"]
        assert home.json("receipt", "verify")["ok"]
        exported = home.ctl("conversation", "export", name).stdout
        assert digest in exported
        assert kept(home) == 2
        home.ctl("conversation", "delete", name, "--yes")
        assert kept(home) == 0
    finally:
        home.close()
