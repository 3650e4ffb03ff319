"""A file system that turns read-only under a running daemon, as the kernel does after an error."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.test_full_disks import FULL, SAID, lines, write
from tests.support.home import Home
from tests.support.second_verifier import verify as verify_again

pytestmark = [pytest.mark.fault, pytest.mark.daemon]

APPEND = ("tool", "run", "file_append", "--json", '{"path": "a.txt", "content": "y"}')


class Disk:
    """An ext4 in a file, mounted by a loop device."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self._image = folder / "disk.img"

    def mount(self) -> str:
        """Make and mount it; return why that cannot be had here."""
        if os.geteuid() != 0:
            return "only root can mount a disk"
        with self._image.open("wb") as file:
            file.truncate(64 << 20)
        self.root.mkdir()
        mount = ("mount", "-o", "loop,errors=remount-ro", self._image, self.root)
        for argv in (("mkfs.ext4", "-q", self._image), mount):
            try:
                subprocess.run(argv, check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as error:
                return f"no loop device or ext4 here: {error}"
        if not self._trigger.exists():
            return f"this kernel has no {self._trigger}"
        self.root.chmod(0o700)
        return ""

    def fail(self) -> None:
        """Let the file system find an error: it takes no more writes."""
        self._trigger.write_text("1")

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.root], check=False, capture_output=True)

    @property
    def _trigger(self) -> Path:
        device = self.root.stat().st_dev
        name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
        return Path(f"/sys/fs/ext4/{name}/trigger_fs_error")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    try:
        if reason := made.mount():
            pytest.skip(reason)
        yield made
    finally:
        made.unmount()


@pytest.fixture
def home(disk: Disk) -> Iterator[Home]:
    made = Home(disk.root)
    made.configure(write("x"), SAID, {"text": "answered"}, tables=FULL)
    try:
        yield made
    finally:
        made.close()


def test_what_cannot_be_recorded_is_not_done_and_everything_can_be_stopped(
    home: Home, disk: Disk
) -> None:
    home.start()
    assert home.ctl("agent", "-m", "write 1").returncode == 0
    disk.fail()
    for words in (
        ("agent", "-m", "write 2"),
        ("agent", "-m", "hello"),
        APPEND,
        ("knowledge", "save", "some keywords", "some text"),
    ):
        done = home.ctl(*words)
        assert done.returncode == 1, (words, done)
        assert "cannot be read or written" in done.stderr
        assert "read-only (mount) or failing (dmesg)" in done.stderr
    assert lines(home) == 1

    stopped = home.ctl("estop")
    assert stopped.returncode == 1
    assert "Every tool is stopped" in stopped.stderr
    assert home.json("status")["estop"]
    assert "stays set" in home.ctl("estop", "--clear").stderr
    assert home.ctl(*APPEND).returncode != 0
    assert lines(home) == 1

    told = home.ctl("doctor").stdout
    assert "nothing can be written to" in told
    assert "Read-only file system" in told
    assert home.ctl("memory", "list").returncode == 0
    assert home.ctl("receipt", "verify").returncode == 0
    home.close()
    assert verify_again(home.receipts)[-1] is None
