"""What is left when `clawctl model add` is killed, and who clears it away."""

import os
import subprocess
import sys
from pathlib import Path

from clawctl.modelfile import AddOptions, add_model

HEAD = b"GGUF\x03\0\0\0"


def dead_pid() -> int:
    """Return the number of a process that is gone."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_the_next_one_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "new.gguf"
    source.write_bytes(HEAD)
    folder = tmp_path / "models"
    folder.mkdir()
    left = folder / f".big.gguf.{dead_pid()}.part"
    kept = [
        folder / f".big.gguf.{os.getpid()}.part",
        folder / f"mine.gguf.{dead_pid()}.part",
        folder / ".mine.part",
        folder / "old.gguf",
    ]
    for path in (left, *kept):
        path.write_bytes(b"half")
    added = add_model(source, folder, AddOptions(copy=True), lambda _done, _total: None)
    assert {*folder.iterdir()} == {*kept, added.path}


def test_a_number_that_is_no_process_is_no_running_one(tmp_path: Path) -> None:
    source = tmp_path / "new.gguf"
    source.write_bytes(HEAD)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / f".big.gguf.{'9' * 30}.part").write_bytes(b"half")
    added = add_model(source, folder, AddOptions(), lambda _done, _total: None)
    assert [*folder.iterdir()] == [added.path]
