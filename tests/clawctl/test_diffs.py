"""What a call would change in files, as far as it can be read here."""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from clawctl.diffs import diffs_of
from tests.support.rows import each_row


def _open_files() -> set[str]:
    """Return what this process has open; what others of its threads close meanwhile is left out."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(link.readlink()))
    return found


@each_row("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_shows_the_arguments_alone_and_is_not_left_open(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "there")
    arguments = json.dumps({"path": "there", "content": "text"})
    (diff,) = diffs_of("file_write", arguments, str(tmp_path))
    assert str(tmp_path / "there") not in _open_files()
    assert [(line.mark, line.text) for line in diff.lines] == [("+", "text")]
    assert not diff.is_new
