"""Copies, checks and erasing through the real clawctl and daemon."""

import json
import shutil
import stat

import pytest

from tests.support.home import Home
from tests.support.lent_home import LentHome

pytestmark = pytest.mark.daemon


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def test_a_backup_is_made_while_it_runs_and_can_take_memorys_place(own_home: Home) -> None:
    own_home.configure({"text": "noted"})
    own_home.start()
    assert own_home.ctl("agent", "-m", "the walrus sleeps").returncode == 0
    copy = own_home.workspace / "copy.sqlite"
    done = own_home.ctl("memory", "backup", "copy.sqlite")
    assert (done.returncode, "wrote" in done.stdout) == (0, True), done.stderr
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    again = own_home.ctl("memory", "backup", "copy.sqlite")
    assert again.returncode == 1
    assert "name a new file" in again.stderr
    assert own_home.ctl("memory", "clear", "--yes").returncode == 0
    assert own_home.json("memory", "search", "walrus") == []
    own_home.close()
    for stale in own_home.path.glob("memory.sqlite-*"):
        stale.unlink()
    shutil.copyfile(copy, own_home.path / "memory.sqlite")
    (hit,) = own_home.json("memory", "search", "walrus")
    assert hit["snippet"] == "the walrus sleeps"


def test_all_conversations_are_written_out_oldest_first(home: Home) -> None:
    home.configure({"text": "noted"})
    home.start()
    for text in ("the first walrus", "the second seal"):
        assert home.ctl("agent", "-m", text).returncode == 0
    lines = home.ctl("memory", "export").stdout.splitlines()
    said = [line for line in lines if "walrus" in line or "seal" in line]
    assert all(json.loads(line) for line in lines)
    assert [("walrus" in line, "seal" in line) for line in (said[0], said[-1])] == [
        (True, False),
        (False, True),
    ]
    done = home.ctl("memory", "export", "--format", "markdown", "-o", "all.md")
    assert done.returncode == 0, done.stderr
    text = (home.workspace / "all.md").read_text()
    assert text.index("the first walrus") < text.index("the second seal")
    assert home.ctl("memory", "export", "-o", "all.md").returncode == 1


def test_memory_is_checked_and_tells_how_large_it_is(home: Home) -> None:
    home.configure({"text": "noted"})
    home.start()
    assert home.ctl("agent", "-m", "hello").returncode == 0
    found = home.json("memory", "check")
    assert found["problems"] == []
    assert found["used_bytes"] > 0
    assert "is good" in home.ctl("memory", "check").stdout


def test_a_deleted_conversation_is_in_no_file_when_the_daemon_has_ended(own_home: Home) -> None:
    own_home.configure({"text": "noted"})
    own_home.start()
    for text in ("stay here", "xyloquartz"):
        assert own_home.ctl("agent", "-m", text).returncode == 0
    (hit,) = own_home.json("memory", "search", "xyloquartz")
    assert own_home.ctl("memory", "clear", hit["conversation_id"], "--yes").returncode == 0
    own_home.close()
    files = list(own_home.path.glob("memory.sqlite*"))
    assert files
    assert not [path for path in files if b"xyloquartz" in path.read_bytes()]
    (kept,) = own_home.json("memory", "search", "stay")
    assert kept["snippet"] == "stay here"
