"""Backups that were made to harm whoever looks at them or puts them back."""

import io
import os
from pathlib import Path

import pytest

from clawctl.backup_restore import restore
from clawd.errors import ForbiddenError
from clawd.paths import layout
from tests.clawctl.test_backup_archive import archive, entry, manifest, member, refusal
from tests.support.rows import each_row

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be tricked so")


def put_back(home: Path, *, replace: bool = False) -> tuple[str, ...]:
    data = archive(manifest(entry()), member())
    where = layout({"CLAWD_HOME": str(home)})
    return restore(io.BytesIO(data), where, replace=replace, progress=lambda *_: None).notes


@each_row("name", ["memory.sqlite-journal", "memory.sqlite-wal", "memory.sqlite/x"])
def test_what_would_be_played_into_memory_is_refused(name: str) -> None:
    path = f"home/{name}"
    assert "played into memory" in refusal(archive(manifest(entry(path)), member(path)))


@NEEDS_ROOT
def test_root_puts_nothing_where_somebody_else_could_swap_it(tmp_path: Path) -> None:
    theirs = tmp_path / "ada"
    theirs.mkdir()
    os.chown(theirs, 12_345, 12_345)
    with pytest.raises(ForbiddenError) as caught:
        put_back(theirs / ".clawd")
    assert "uid 12345" in caught.value.message
    assert "sudo -u '#12345'" in caught.value.hint
    assert list(theirs.iterdir()) == []


@NEEDS_ROOT
def test_root_puts_nothing_where_everybody_writes(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(ForbiddenError):
        put_back(shared / ".clawd")
    shared.chmod(0o1777)  # as /tmp: nobody renames what is not theirs
    assert put_back(shared / ".clawd") is not None


def test_putting_back_does_not_end_an_emergency_stop(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "ESTOP").touch()
    notes = put_back(home, replace=True)
    assert (home / "ESTOP").exists()
    assert any("still set" in note for note in notes)
