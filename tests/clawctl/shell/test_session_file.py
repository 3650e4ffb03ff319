"""`.clawd_session`: written for the person alone, believed only where it can be."""

import os
from pathlib import Path

import pytest

from clawctl.shell.session_file import NAME, read_session, write_session
from clawd.errors import ClawError
from tests.support.rows import each_row


def test_what_is_written_is_read_and_private(tmp_path: Path) -> None:
    write_session(tmp_path, "conv-1")
    write_session(tmp_path, "conv-2")
    assert read_session(tmp_path) == "conv-2"
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_no_file_is_no_conversation(tmp_path: Path) -> None:
    assert read_session(tmp_path) == ""
    assert read_session(tmp_path / "gone") == ""


@each_row(
    "content",
    [
        b"",
        b"\n",
        b"conv 1\n",
        b"conv-1\nconv-2\n",
        b"../../etc/passwd\n",
        b"--help\n",
        b"conv-1\x1b[2J\n",
        b"\xff\xfe\n",
        b"c" * 5_000,
    ],
)
def test_hostile_contents_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    (tmp_path / NAME).chmod(0o600)
    with pytest.raises(ClawError, match="holds no id"):
        read_session(tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.write_text("conv-1\n")
    aim.chmod(0o600)
    (tmp_path / NAME).symlink_to(aim)
    with pytest.raises(ClawError, match="symbolic link"):
        read_session(tmp_path)
    write_session(tmp_path, "conv-2")
    assert aim.read_text() == "conv-1\n", "the link is replaced, its aim is left alone"
    assert read_session(tmp_path) == "conv-2"


def test_a_pipe_or_a_folder_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME, 0o600)
    with pytest.raises(ClawError, match="it is no file"):
        read_session(tmp_path)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    with pytest.raises(ClawError, match="it is no file"):
        read_session(tmp_path)
    with pytest.raises(OSError, match="is a folder"):
        write_session(tmp_path, "conv-1")


@each_row("mode", [0o644, 0o660, 0o602])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    write_session(tmp_path, "conv-1")
    (tmp_path / NAME).chmod(mode)
    with pytest.raises(ClawError, match="its mode is"):
        read_session(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    write_session(tmp_path, "conv-1")
    os.chown(tmp_path / NAME, 12_345, 12_345)
    with pytest.raises(ClawError, match="belongs to uid 12345"):
        read_session(tmp_path)
