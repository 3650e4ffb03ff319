"""Backups of a real home, made while its daemon works, and put back."""

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home

pytestmark = pytest.mark.daemon


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a conversation, receipts, a note and a model; its daemon has ended."""
    home = Home(tmp_path_factory.mktemp("seed"))
    home.configure({"text": "remembered forever"})
    home.start()
    try:
        assert home.ctl("agent", "-m", "hello").returncode == 0
        assert home.ctl("tool", "run", "cwd").returncode == 0
    finally:
        home.close()
    (home.path / "knowledge").mkdir(mode=0o700, exist_ok=True)
    note = home.path / "knowledge" / "blue.md"
    note.write_text("keywords: blue\n\nThe sky.\n", encoding="utf-8")
    os.utime(note, ns=(1_700_000_000_000_000_123, 1_700_000_000_000_000_123))
    (home.path / "models").mkdir(exist_ok=True)
    (home.path / "models" / "big.gguf").write_bytes(b"GGUF")
    return home


@pytest.fixture
def used(seed: Home, tmp_path: Path) -> Iterator[Home]:
    """A copy of the seed, to do anything with."""
    made = Home(tmp_path)
    shutil.copytree(seed.path, made.path)
    text = made.config.read_text(encoding="utf-8")
    made.config.write_text(text.replace(str(seed.path.parent), str(tmp_path)), encoding="utf-8")
    yield made
    made.close()


@pytest.fixture(scope="module")
def plain(seed: Home) -> tuple[Path, dict[str, Any]]:
    """A backup of the seed with nothing that has to be asked for, and what was told of it."""
    file = seed.path.parent / "plain.tar.gz"
    return file, seed.json("backup", "create", str(file))


@pytest.fixture
def backup(plain: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of it, to do anything with."""
    return Path(shutil.copy(plain[0], tmp_path / "b.tar.gz"))


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Home]:
    """The place where a backup is put back."""
    (tmp_path / "other").mkdir()
    made = Home(tmp_path / "other")
    yield made
    made.close()


def names(file: Path) -> set[str]:
    with tarfile.open(file) as tar:
        return set(tar.getnames())


def restored(other: Home, file: Path, *options: str) -> dict[str, object]:
    found = other.json("backup", "restore", str(file), *options)
    assert isinstance(found, dict)
    return found


def test_a_backup_holds_what_cannot_be_made_again_and_no_private_key(
    seed: Home, plain: tuple[Path, dict[str, Any]]
) -> None:
    backup, told = plain
    assert names(backup) == {
        "manifest.json",
        "home/memory.sqlite",
        "home/tool_receipts.log",
        "home/checkpoint.pub",
        "home/config.toml",
        "home/script.json",
        "home/knowledge/blue.md",
    } | {each for each in names(backup) if each.startswith("home/undo/")}
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert [each.partition(" ")[0] for each in told["left_out"]] == ["the", "the", "private"]
    facts = seed.json("backup", "list", str(backup))
    assert facts["files"] == 6
    assert facts["receipts"]["seq"] == len(seed.receipt_lines())
    assert "home/memory.sqlite" in seed.ctl("backup", "list", str(backup), "--files").stdout


def test_all_but_a_link_can_be_asked_for(used: Home, tmp_path: Path) -> None:
    (used.path / "knowledge" / "shadow.md").symlink_to("/etc/hostname")
    (used.workspace / "code.py").write_text("print()\n", encoding="utf-8")
    file = tmp_path / "all.tar.gz"
    made = used.json("backup", "create", str(file), "--keys", "--models", "--workspace")
    (left_out,) = made["left_out"]
    assert "shadow.md: no plain file" in left_out
    assert "home/knowledge/shadow.md" not in names(file)
    assert names(file) >= {
        "home/checkpoint.key",
        "home/receipts.key",
        "home/models/big.gguf",
        "workspace/code.py",
    }


def test_nothing_is_overwritten_and_nothing_half_is_left(used: Home, backup: Path) -> None:
    before = backup.read_bytes()
    assert used.ctl("backup", "create", str(backup)).returncode == 1
    assert backup.read_bytes() == before
    assert used.ctl("backup", "create", str(backup), "--force").returncode == 0
    missing = backup.parent / "no" / "folder.tar.gz"
    assert used.ctl("backup", "create", str(missing)).returncode == 1
    assert not [each for each in backup.parent.iterdir() if each.name.startswith(".")]


def test_a_backup_goes_through_a_pipe(used: Home, other: Home) -> None:
    command = [sys.executable, "-m", "clawctl", "backup"]
    made = subprocess.run(
        [*command, "create", "-"], env=used.environ, stdout=subprocess.PIPE, check=True
    )
    done = subprocess.run([*command, "restore", "-"], env=other.environ, input=made.stdout)
    assert done.returncode == 0
    assert (other.path / "knowledge" / "blue.md").exists()


def test_a_restored_home_answers_and_says_where_it_came_from(
    used: Home, backup: Path, other: Home
) -> None:
    told = restored(other, backup)
    assert "a new chain begins" in str(told["receipts"])
    assert "remembered forever" in other.ctl("memory", "search", "remembered").stdout
    status = other.json("status")
    assert status["restored"].startswith("the backup of 20")
    assert status["receipts_problem"] == ""
    assert other.ctl("tool", "run", "cwd").returncode == 0
    assert other.ctl("receipt", "verify").returncode == 0
    assert "this home was restored" in other.log()
    # The old log lies whole beside it, and verifies with the key that it began with.
    (old_log,) = (other.path / "receipts-restored").glob("*/tool_receipts.log")
    assert str(old_log) in status["restored"]
    assert old_log.read_bytes() == used.receipts.read_bytes()
    kept = old_log.with_name("checkpoint.pub").read_text(encoding="utf-8")
    assert kept == (used.path / "checkpoint.pub").read_text(encoding="utf-8")
    assert kept != (other.path / "checkpoint.pub").read_text(encoding="utf-8")
    assert other.ctl("receipt", "verify", "--path", str(old_log)).returncode == 0
    note = other.path / "knowledge" / "blue.md"
    assert note.stat().st_mtime_ns == 1_700_000_000_000_000_123


def test_with_its_keys_the_chain_goes_on(used: Home, other: Home, tmp_path: Path) -> None:
    file = tmp_path / "keys.tar.gz"
    assert used.ctl("backup", "create", str(file), "--keys").returncode == 0
    assert "its own key" in str(restored(other, file)["receipts"])
    before = len(other.receipt_lines())
    assert before
    assert other.ctl("tool", "run", "cwd").returncode == 0
    assert other.json("status")["receipts_problem"] == ""
    other.close()
    key = (used.path / "checkpoint.pub").read_text(encoding="utf-8").strip()
    found = other.json("receipt", "verify", "--public-key", key)
    assert (found["ok"], found["level"], found["signed"]) == (True, "anchored", before + 1)


def test_a_backup_under_load_is_consistent(used: Home, other: Home, tmp_path: Path) -> None:
    used.start()
    load = subprocess.Popen(
        ["sh", "-c", f"while '{sys.executable}' -m clawctl tool run cwd; do :; done"],
        env=used.environ,
        cwd=used.workspace,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        files = [tmp_path / f"{number}.tar.gz" for number in range(2)]
        for file in files:
            assert used.ctl("backup", "create", str(file), "--keys").returncode == 0
    finally:
        # With the clawctl that it runs, which would start a daemon of its own later.
        os.killpg(load.pid, signal.SIGKILL)
        load.wait(timeout=60)
    for file in files:
        found = other.json("backup", "verify", str(file))
        assert found["chain"].startswith("valid chain")
    restored(other, files[-1])
    assert other.json("status")["receipts_problem"] == ""


def test_a_running_daemon_and_a_used_home_are_not_overwritten(used: Home, backup: Path) -> None:
    used.start()
    done = used.ctl("backup", "restore", str(backup), "--replace")
    assert done.returncode == 1
    assert f"pid {used.pid()}" in done.stderr
    used.close()
    done = used.ctl("backup", "restore", str(backup))
    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert (used.path / "checkpoint.key").exists()


def test_replace_keeps_what_was_there(used: Home, backup: Path) -> None:
    told = restored(used, backup, "--replace")
    old = Path(str(told["old_home"]))
    assert (old / "models" / "big.gguf").exists()
    assert (old / "checkpoint.key").exists()
    assert not (used.path / "checkpoint.key").exists()
    assert (used.path / "restored.json").exists()


def test_a_damaged_backup_changes_nothing(used: Home, backup: Path, other: Home) -> None:
    data = bytearray(backup.read_bytes())
    data[len(data) // 2] ^= 1
    backup.write_bytes(data)
    assert other.ctl("backup", "verify", str(backup)).returncode == 1
    assert other.ctl("backup", "restore", str(backup)).returncode == 1
    assert not other.path.exists()
    assert {each.name for each in other.path.parent.iterdir()} <= {"project", ".cache"}


def test_a_file_that_others_may_write_is_not_trusted(backup: Path, other: Home) -> None:
    backup.chmod(0o666)
    done = other.ctl("backup", "restore", str(backup))
    assert done.returncode == 1
    assert "somebody else may have changed it" in done.stderr


def test_a_call_that_was_running_is_closed_once(used: Home, backup: Path, other: Home) -> None:
    """An intent in memory whose receipt made it into the log is not closed a second time."""
    line = used.receipt_lines()[-1]
    with closing(sqlite3.connect(used.path / "memory.sqlite")) as connection, connection:
        connection.execute(
            "INSERT INTO intents (id, uid, intent) VALUES (?, 0, ?)", (line["id"], json.dumps({}))
        )
    file = backup.with_name("again.tar.gz")
    assert used.ctl("backup", "create", str(file)).returncode == 0
    restored(other, file)
    with closing(sqlite3.connect(other.path / "memory.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM intents").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM head").fetchone() == (0,)
