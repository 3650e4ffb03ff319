"""Which conversation belongs to a folder: kept in the home, believed only where it can be."""

import os
from pathlib import Path

import pytest

from clawctl.shell.turn import FOLDERS, OLD_NAME, read_session, write_session
from clawd.errors import ClawError
from tests.support.rows import each_row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def old_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / OLD_NAME
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_p9_what_is_written_is_private_and_nothing_of_it_is_in_the_folder(
    folder: Path, home: Path
) -> None:
    other = folder / "below"
    other.mkdir()
    write_session(folder, home, "conv-1")
    write_session(folder, home, "conv-2")
    write_session(other, home, "conv-3")
    assert read_session(folder, home) == "conv-2"
    assert read_session(other, home) == "conv-3"
    assert [path.name for path in folder.iterdir()] == ["below"]
    assert {path.stat().st_mode & 0o777 for path in (home / FOLDERS).iterdir()} == {0o600}
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert read_session(link, home) == "conv-2", "a folder is what it is, however it is called"


def test_p9_a_file_of_earlier_versions_is_read_and_moved(folder: Path, home: Path) -> None:
    old = old_file(folder, b"conv-old\n")
    assert read_session(folder, home) == "conv-old"
    assert not old.exists()
    assert read_session(folder, home) == "conv-old"
    old_file(folder, b"conv-older\n")
    write_session(folder, home, "conv-new")
    assert not old.exists()
    assert read_session(folder, home) == "conv-new"


def test_no_file_is_no_conversation(folder: Path, home: Path) -> None:
    assert read_session(folder, home) == ""
    assert read_session(folder / "gone", home) == ""


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
def test_hostile_contents_are_refused(folder: Path, home: Path, content: bytes) -> None:
    old = old_file(folder, content)
    with pytest.raises(ClawError, match="holds no id"):
        read_session(folder, home)
    assert old.read_bytes() == content
    assert not home.exists()


def test_a_link_is_not_followed(folder: Path, home: Path) -> None:
    aim = folder / "aim"
    aim.write_text("conv-1\n")
    aim.chmod(0o600)
    (folder / OLD_NAME).symlink_to(aim)
    with pytest.raises(ClawError, match="symbolic link"):
        read_session(folder, home)
    write_session(folder, home, "conv-2")
    assert aim.read_text() == "conv-1\n", "neither the link nor its aim is touched"
    assert read_session(folder, home) == "conv-2"


def test_a_pipe_or_a_folder_is_refused_without_waiting(folder: Path, home: Path) -> None:
    os.mkfifo(folder / OLD_NAME, 0o600)
    with pytest.raises(ClawError, match="it is not a file"):
        read_session(folder, home)
    (folder / OLD_NAME).unlink()
    (folder / OLD_NAME).mkdir()
    with pytest.raises(ClawError, match="it is not a file"):
        read_session(folder, home)
    write_session(folder, home, "conv-1")
    assert (folder / OLD_NAME).is_dir()


@each_row("mode", [0o644, 0o660, 0o602])
def test_a_file_that_others_may_use_is_refused(folder: Path, home: Path, mode: int) -> None:
    old_file(folder, b"conv-1\n", mode)
    with pytest.raises(ClawError, match="its mode is"):
        read_session(folder, home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_refused(folder: Path, home: Path) -> None:
    os.chown(old_file(folder, b"conv-1\n"), 12_345, 12_345)
    with pytest.raises(ClawError, match="belongs to uid 12345"):
        read_session(folder, home)
