"""What a start finds in a home that somebody or something damaged while no daemon ran."""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault.conftest import copied
from tests.support.home import Home
from tests.support.second_verifier import verify as verify_again

pytestmark = [pytest.mark.fault, pytest.mark.daemon]

PAGE = 4096
NOISE = random.Random(7).randbytes(PAGE)
APPEND = {"name": "file_append", "arguments": {"path": "a.txt", "content": "x\n"}}
WRITE = {"when": "write", "tool_calls": [APPEND]}
ANSWER = {"text": "answer to {{last_user}}"}
FULL = '[security]\nautonomy = "full"\n'

Damage = Callable[[Home], object]


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with conversations and receipts, whose daemon has ended; for copies."""
    home = Home(tmp_path_factory.mktemp("a user"))
    home.configure(WRITE, ANSWER, tables=FULL)
    home.start()
    try:
        for number in range(3):
            said = home.ctl("agent", "-m", f"write {number} {'aardvark ' * 300}")
            assert said.returncode == 0, said.stderr
    finally:
        home.close()
    assert len(home.receipt_lines()) == 3
    return home


def memory(home: Home) -> Path:
    return home.path / "memory.sqlite"


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def halve(home: Home) -> None:
    path = memory(home)
    os.truncate(path, path.stat().st_size // 2)


def middle_page(home: Home) -> None:
    pages = memory(home).stat().st_size // PAGE
    overwrite(memory(home), pages // 2 * PAGE, NOISE)


def last_checkpoint(home: Home) -> None:
    text = home.receipts.read_bytes()
    home.receipts.write_bytes(text[:-30] + b"0" * 28 + text[-2:])


def key_for_all(home: Home) -> None:
    (home.path / "receipts.key").chmod(0o644)


def signing_key_for_all(home: Home) -> None:
    (home.path / "checkpoint.key").chmod(0o644)


def config_errors(home: Home) -> None:
    text = home.config.read_text().replace('"full"', '"godmode"')
    home.config.write_text(text + "[limits]\nno_such_limit = 1\n")


def lock_is_a_folder(home: Home) -> None:
    (home.path / "clawd.lock").unlink()
    (home.path / "clawd.lock").mkdir()


def undo_is_a_file(home: Home) -> None:
    shutil.rmtree(home.path / "undo")
    (home.path / "undo").write_text("")


REFUSED: dict[str, tuple[Damage, tuple[str, ...]]] = {
    "header of memory": (
        lambda home: overwrite(memory(home), 0, NOISE[:100]),
        ("its beginning is damaged, or it is no SQLite file", "put a backup in its place", "-wal"),
    ),
    "page of memory": (middle_page, ("the file is damaged", "put a backup in its place", "-shm")),
    "half of memory": (halve, ("the file is damaged", "clawctl memory backup")),
    "last line of the receipts": (
        last_checkpoint,
        ("is no valid checkpoint", "nothing may follow it", "clawctl receipt verify"),
    ),
    "receipts gone": (
        lambda home: home.receipts.unlink(),
        ("that log is not there or lost its end", "Put the log back"),
    ),
    "receipts emptied": (
        lambda home: home.receipts.write_bytes(b""),
        ("that log is not there or lost its end", "Put the log back"),
    ),
    "receipts are something else": (
        lambda home: home.receipts.write_bytes(home.receipts.read_bytes() + NOISE[:300]),
        ("it is no receipt log", "move this one away"),
    ),
    "key for redaction open": (key_for_all, ("mode 0644", "chmod 600", "who may have read it")),
    "key for signing open": (signing_key_for_all, ("checkpoint.key", "0600")),
    "socket's folder open": (
        lambda home: (home.path / "run").chmod(0o777),
        ("is open to others (mode 0777)", "chmod 700"),
    ),
    "socket is a file": (
        lambda home: (home.path / "run" / "clawd.sock").write_text(""),
        ("is there and is no socket", "Move it away"),
    ),
    "lock is a folder": (
        lock_is_a_folder,
        ("cannot be opened: Is a directory", "the lock is a file"),
    ),
    "config broken": (
        config_errors,
        ("godmode", "readonly, supervised, edits, full", "no_such_limit"),
    ),
    "undo is a file": (undo_is_a_file, ("the folder for undo", "cannot be had")),
}


@pytest.mark.parametrize("damage", REFUSED)
def test_a_start_is_refused_and_says_what_to_do(
    damage: str, lived_in: Home, tmp_path: Path
) -> None:
    home = copied(lived_in, tmp_path)
    act, words = REFUSED[damage]
    act(home)
    before = {path: path.read_bytes() for path in (memory(home), home.receipts) if path.exists()}
    code, said = run_to_its_end(home)
    assert code == 1, said
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in said
    # What is damaged stays as it is: it may be the only copy.
    assert {path: path.read_bytes() for path in before} == before


def test_a_home_of_somebody_else_is_refused(lived_in: Home, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    home = copied(lived_in, tmp_path)
    os.chown(home.path, 5001, 5001)
    code, said = run_to_its_end(home)
    assert code == 1, said
    assert "belongs to uid 5001, and clawd runs as uid 0" in said
    assert "chown -R 0" in said


def run_to_its_end(home: Home) -> tuple[int, str]:
    """Start a daemon that ends at once; return its status and what it said."""
    before = len(home.log())
    home.spawn()
    assert home.daemon is not None
    return home.daemon.wait(timeout=180), home.log()[before:]


def answers(home: Home) -> None:
    """Make sure that a daemon serves: a turn with a call, the chain, and what it recorded."""
    said = home.ctl("--no-start", "agent", "-m", "write again")
    assert (said.returncode, said.stdout.splitlines()[0]) == (0, "answer to write again")
    assert home.receipt_lines()[-1]["status"] == "allowed"


def found(home: Home) -> str:
    return "\n".join(home.json("--no-start", "status")["found_at_start"])


def test_what_can_be_put_right_is_put_right_and_told(lived_in: Home, tmp_path: Path) -> None:
    home = copied(lived_in, tmp_path)
    try:
        (home.path / "memory.sqlite-wal").write_bytes(NOISE * 10)
        with home.receipts.open("ab") as log:
            log.write(b'{"approval":"auto","appr')
        (home.path / "approval_rules.json").write_text("{")
        (home.path / "approval_rules.json").chmod(0o600)
        home.path.chmod(0o777)
        (home.path / "last_run.json").write_text("half of")
        (home.path / "last_run.json").chmod(0o600)
        home.start()
        told = found(home)
        assert "the last clawd of this home did not end in order" in told
        assert "half a receipt (24 bytes)" in told
        assert (home.path / "tool_receipts.log.torn").read_text().endswith('"appr\n')
        assert "could be written by others (mode 0777): it was closed" in home.log()
        assert home.path.stat().st_mode & 0o777 == 0o700
        assert "no stored rule is in force" in home.ctl("--no-start", "status").stdout
        answers(home)
        assert len(home.json("memory", "list")) == 4
    finally:
        home.close()
    assert verify_again(home.receipts)[-1] is None
    home.start()
    assert found(home) == "", "an end in order was told as a crash"
    home.close()


@pytest.mark.parametrize(("is_there", "word"), [(True, "is empty"), (False, "is gone")])
def test_a_memory_that_begins_anew_over_receipts_says_so(
    lived_in: Home, tmp_path: Path, *, is_there: bool, word: str
) -> None:
    home = copied(lived_in, tmp_path)
    if is_there:
        memory(home).write_bytes(b"")
    else:
        memory(home).unlink()
    home.start()
    try:
        told = found(home)
        assert f"memory {memory(home)} {word}, though there are receipts" in told
        assert "put a backup in its place" in told
        shown = home.ctl("--no-start", "status").stdout
        assert "begins anew" in shown
        answers(home)
        assert home.ctl("receipt", "verify").returncode == 0
    finally:
        home.close()
    assert verify_again(home.receipts)[-1] is None


def test_a_home_whose_config_is_gone_says_so(lived_in: Home, tmp_path: Path) -> None:
    home = copied(lived_in, tmp_path)
    home.config.unlink()
    home.start()
    try:
        assert f"there is no config file {home.config}" in found(home)
        assert "clawctl init" in found(home)
    finally:
        home.close()


def test_an_edited_receipt_is_found_by_both_verifiers(lived_in: Home, tmp_path: Path) -> None:
    home = copied(lived_in, tmp_path)
    text = home.receipts.read_text()
    home.receipts.write_text(text.replace('"risk":"medium"', '"risk":"low"', 1))
    home.start()
    try:
        done = home.ctl("receipt", "verify")
        assert done.returncode == 1
        assert "invalid chain at receipt 1" in done.stdout
    finally:
        home.close()
    assert verify_again(home.receipts)[2] == 1


def test_a_broken_search_index_is_named_and_made_anew(lived_in: Home, tmp_path: Path) -> None:
    home = copied(lived_in, tmp_path)
    connection = sqlite3.connect(memory(home))
    connection.execute("DELETE FROM messages_fts_data WHERE id > 10")
    connection.commit()
    connection.close()
    home.start()
    try:
        answers(home)
        lost = home.ctl("memory", "search", "aardvark")
        assert lost.returncode == 1
        assert "its search index is damaged" in lost.stderr
        assert "clawctl memory check --repair" in lost.stderr
        repaired = home.ctl("memory", "check", "--repair")
        assert repaired.returncode == 0, repaired.stderr
        assert "aardvark" in home.ctl("memory", "search", "aardvark").stdout
    finally:
        home.close()
