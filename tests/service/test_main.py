"""The command line of clawd, where it cannot start."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.rows import each_row


@each_row("what", ["home", "workspace"])
def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path, what: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    home = Path("/proc/home") if what == "home" else tmp_path / "home"
    blocked = home if what == "home" else file / "work"
    done = subprocess.run(
        [sys.executable, "-m", "clawd"],
        env={**os.environ, "CLAWD_HOME": str(home), "CLAWD_WORKSPACE_DIR": str(file / "work")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"clawd: the folder {blocked} cannot be made: ")
    assert "Traceback" not in done.stderr
