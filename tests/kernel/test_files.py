"""Folders that are removed wholly, whatever was made in them."""

import os
from pathlib import Path

from clawd.kernel.files import remove_tree


def test_a_folder_is_removed_however_deep_and_closed_it_is(tmp_path: Path) -> None:
    top, kept = tmp_path / "top", tmp_path / "kept"
    top.mkdir()
    kept.mkdir()
    (kept / "file").write_text("kept")
    (top / "link").symlink_to(kept)
    os.mkfifo(top / "pipe")
    (top / "line\nbreak").write_text("x")
    folder = os.open(top, os.O_RDONLY)
    for _ in range(3_000):  # a path to it is longer than the system takes
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.symlink(kept, "link", dir_fd=inner)
        os.fchmod(folder, 0o500)
        os.close(folder)
        folder = inner
    os.fchmod(folder, 0)
    os.close(folder)
    remove_tree(top)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept"]
    assert (kept / "file").read_text() == "kept"
    remove_tree(top)  # it is gone
