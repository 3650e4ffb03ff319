"""A home on a small disk of its own, which a test fills, empties, or lets nobody write to."""

import contextlib
import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.home import Home

BALLAST = "ballast"
BLOCK = b"x" * 4096


def mount_problem() -> str:
    """Return why no disk can be mounted here; empty where one can."""
    with tempfile.TemporaryDirectory() as folder:
        done = _mount(Path(folder), size_mb=1)
        if done.returncode == 0:
            subprocess.run(["umount", folder], check=True)
        return done.stderr.strip() or ("" if done.returncode == 0 else "mount failed")


@contextlib.contextmanager
def mounted(folder: Path, size_mb: int) -> Iterator[None]:
    """Hold a small disk mounted at a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    done = _mount(folder, size_mb)
    if done.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    folder.chmod(0o700)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@contextlib.contextmanager
def home_on_disk(folder: Path, size_mb: int = 8) -> Iterator[Home]:
    """Hold a home that lies on a small disk, and end its daemon before the disk goes."""
    folder.mkdir(exist_ok=True)
    home = Home(folder)
    with mounted(home.path, size_mb):
        try:
            yield home
        finally:
            empty(home.path)
            remount(home.path, "rw")
            home.close()


def fill(folder: Path) -> None:
    """Write until nothing more goes onto the disk."""
    with (folder / BALLAST).open("ab", buffering=0) as file:
        try:
            while True:
                file.write(BLOCK)
        except OSError as error:
            assert error.errno == errno.ENOSPC


def empty(folder: Path) -> None:
    """Make the room again."""
    with contextlib.suppress(OSError):
        (folder / BALLAST).unlink(missing_ok=True)


def remount(folder: Path, how: str) -> None:
    """Let the disk be read only (`ro`) or writable (`rw`), though files are open on it."""
    words = ["mount", "-o", f"remount,{how}", str(folder)]
    if how == "ro":  # a file that is open for writing keeps the disk itself writable
        words = ["mount", "-o", "bind,remount,ro", str(folder)]
    elif how == "rw":
        words = ["mount", "-o", "bind,remount,rw", str(folder)]
    subprocess.run(words, check=True, capture_output=True)


def _mount(folder: Path, size_mb: int) -> "subprocess.CompletedProcess[str]":
    if os.geteuid() != 0:
        return subprocess.CompletedProcess([], 1, "", "only root can mount a disk")
    return subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=700", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
