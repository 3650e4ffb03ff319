"""The files of a plugin: one hash for all of it, bounds, and nothing but plain files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError
from clawd.plugins import files
from clawd.plugins.files import read_tree, stamp, write_tree
from tests.plugins.plugin_files import plugin
from tests.support.rows import each_row


def put_away(folder: Path) -> None:
    (folder / "run").unlink()


def write_more(folder: Path) -> None:
    (folder / "run").write_text("#!/bin/sh\n")


def add_file(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "new").write_text("")


def add_folder(folder: Path) -> None:
    (folder / "empty").mkdir()


def make_program(folder: Path) -> None:
    (folder / "manifest.toml").chmod(0o755)


def open_up(folder: Path) -> None:
    (folder / "run").chmod(0o777)


def rename(folder: Path) -> None:
    (folder / "run").rename(folder / "ran")


CHANGES = [put_away, write_more, add_file, add_folder, make_program, open_up, rename]


@each_row("change", CHANGES)
def test_every_change_gives_another_hash_and_another_stamp(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    folder = plugin(tmp_path / "p")
    before, facts = read_tree(folder, is_installed=True).digest, stamp(folder)
    assert read_tree(folder, is_installed=True).digest == before
    assert stamp(folder) == facts
    change(folder)
    assert read_tree(folder, is_installed=True).digest != before
    assert stamp(folder) != facts


def test_a_change_that_is_taken_back_has_the_old_hash_and_another_stamp(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "p")
    run = folder / "run"
    before, facts, text, times = (
        read_tree(folder, is_installed=True).digest,
        stamp(folder),
        run.read_text(),
        run.stat(),
    )
    run.write_text("other")
    run.write_text(text)
    os.utime(run, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert read_tree(folder, is_installed=True).digest == before
    assert stamp(folder) != facts


def test_what_is_written_out_is_what_was_read(tmp_path: Path) -> None:
    source = plugin(tmp_path / "p")
    add_file(source)
    tree = read_tree(source, is_installed=False)
    target = tmp_path / "copy"
    target.mkdir()
    write_tree(tree, target, is_durable=True)
    assert read_tree(target, is_installed=True) == tree
    assert (target / "run").stat().st_mode & 0o777 == 0o700
    assert (target / "manifest.toml").stat().st_mode & 0o777 == 0o600


def test_version_control_and_caches_are_not_installed_but_count_where_they_are(
    tmp_path: Path,
) -> None:
    folder = plugin(tmp_path / "p")
    clean = read_tree(folder, is_installed=False).digest
    for name in (".git", "__pycache__"):
        (folder / name).mkdir()
        (folder / name / "x").write_text("x")
    assert read_tree(folder, is_installed=False).digest == clean
    paths = {each.path for each in read_tree(folder, is_installed=True).files}
    assert "__pycache__/x" in paths


@each_row("is_installed", [True, False])
@each_row("kind", ["file link", "folder link", "dangling", "pipe", "odd name"])
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: str, *, is_installed: bool) -> None:
    folder = plugin(tmp_path / "p")
    odd = folder / "odd"
    if kind == "file link":
        odd.symlink_to("run")
    elif kind == "folder link":
        odd.symlink_to("/usr")
    elif kind == "dangling":
        odd.symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(odd)
    else:
        (folder / "a\nb").write_text("")
    with pytest.raises(InvalidRequestError):
        read_tree(folder, is_installed=is_installed)


def test_size_number_and_depth_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = plugin(tmp_path / "p")
    size = sum(each.stat().st_size for each in folder.iterdir())
    monkeypatch.setattr(files, "MAX_BYTES", size)
    monkeypatch.setattr(files, "MAX_FILES", 2)
    assert len(read_tree(folder, is_installed=True).files) == 2
    monkeypatch.setattr(files, "MAX_BYTES", size - 1)
    with pytest.raises(InvalidRequestError, match="bytes in all"):
        read_tree(folder, is_installed=True)
    monkeypatch.setattr(files, "MAX_FILES", 1)
    with pytest.raises(InvalidRequestError, match="at most 1 files"):
        read_tree(folder, is_installed=True)
    monkeypatch.undo()
    deep = folder
    for _ in range(17):
        deep /= "d"
        deep.mkdir()
    with pytest.raises(InvalidRequestError, match="more than 16 deep"):
        read_tree(folder, is_installed=True)


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name in ("file", "none", "empty"):
        with pytest.raises(InvalidRequestError):
            read_tree(tmp_path / name, is_installed=False)
