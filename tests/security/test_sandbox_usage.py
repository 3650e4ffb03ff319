"""What a command may write in all: real commands that fill a disk, and what the walk counts."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.security.sandbox import limits as sandbox_limits
from clawd.security.sandbox.limits import DiskUse, DiskWatch, Oversight, changed_since
from clawd.security.sandbox.plan import ChildCommand, ResourceLimits
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import Sandbox, SandboxSettings

_LIMITS = ResourceLimits(disk_bytes=16 << 20, new_files=2_000)
_MANY = 'python3 -c \'for n in range(10**6): open(f"f{n}", "w").close()\''


async def run(script: str, workspace: Path) -> ChildResult:
    argv = ("bash", "-c", script)
    sandbox = Sandbox(SandboxSettings(limits=_LIMITS))
    return await sandbox.run(ChildCommand(argv=argv, workspace=workspace, timeout_s=90))


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "script",
    [
        "while :; do head -c 1000000 /dev/zero > f$n; n=$((n + 1)); sleep 0.01; done",
        "exec 3> f; rm f; while :; do head -c 1000000 /dev/zero >&3; sleep 0.01; done",
        "while :; do fallocate -l 1000000 f$n; n=$((n + 1)); sleep 0.01; done",
        _MANY,
        f"cd /tmp; {_MANY}",
    ],
    ids=["many-files", "a-file-without-a-name", "allocated", "empty-files", "empty-files-in-tmp"],
)
async def test_who_fills_the_disk_is_ended_and_told_why(tmp_path: Path, script: str) -> None:
    result = await run(script, tmp_path)
    assert result.ended_by == "limit"
    assert result.overuse == "it wrote more than 16777216 bytes or 2000 files"
    assert result.exit_code == 137


@pytest.mark.sandbox
async def test_who_writes_less_is_left_alone(tmp_path: Path) -> None:
    result = await run(
        "head -c 4000000 /dev/zero > f; truncate -s 900M sparse; sleep 0.4", tmp_path
    )
    assert (result.ended_by, result.exit_code) == ("exit", 0)


def test_a_sandbox_that_is_not_set_up_yet_is_not_taken_for_as_full_as_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is, its init sees the host's folders, as this process does."""
    full = DiskUse(written_bytes=0, files=10**9)
    monkeypatch.setattr(sandbox_limits, "_taken", lambda _folder: full)
    watch = DiskWatch((tmp_path,), DiskUse(written_bytes=1_000, files=1_000))
    assert not watch.is_over(os.getpid())


def test_only_what_was_changed_since_then_is_counted(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x" * 100_000)
    since = time.time_ns() + 3_600 * 10**9
    assert changed_since((tmp_path,), since, 0) == DiskUse(written_bytes=0, files=0)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/new").write_bytes(b"x" * 100_000)
    used = changed_since((tmp_path,), 0, 0)
    assert used is not None
    assert used.files == 3
    assert 200_000 <= used.written_bytes <= 300_000


def test_a_file_without_a_name_is_counted_where_it_is_held(tmp_path: Path) -> None:
    holder = (
        "import os, sys\n"
        "held = open('gone', 'wb', 0); held.write(b'x' * 100_000); os.unlink('gone')\n"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # else it holds whatever keeps the output of the test
    ) as held:
        assert held.stdout is not None
        held.stdout.readline()
        used = changed_since((tmp_path,), time.time_ns() + 10**12, held.pid)
        held.kill()
    assert used is not None
    assert used.files == 1
    assert used.written_bytes >= 100_000


def test_what_is_closed_while_it_is_looked_at_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors = tmp_path / "proc/7/fd"
    descriptors.mkdir(parents=True)
    monkeypatch.setattr(sandbox_limits, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(sandbox_limits, "_descendants", lambda init: [init])
    workspace = tmp_path / "w"
    workspace.mkdir()
    with (workspace / "gone").open("wb") as held:
        held.write(b"x" * 100_000)
        held.flush()
        (workspace / "gone").unlink()
        for number in range(9):
            to = "closed by now" if number != 5 else f"/proc/self/fd/{held.fileno()}"
            (descriptors / str(number)).symlink_to(to)
        used = changed_since((workspace,), time.time_ns() + 10**12, 7)
    assert used is not None
    assert used.files == 1


def test_what_is_removed_while_it_is_looked_at_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        (tmp_path / str(number)).touch()
    listed = os.scandir

    @contextlib.contextmanager
    def late(folder: str) -> Iterator[list[os.DirEntry[str]]]:
        with listed(folder) as entries:
            found = list(entries)
        Path(found[0].path).unlink()
        yield found

    monkeypatch.setattr(os, "scandir", late)
    used = changed_since((tmp_path,), 0, 0)
    assert used is not None
    assert used.files == 8


async def test_what_others_remove_does_not_hide_what_the_command_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = DiskUse(written_bytes=1_000_000, files=0)
    used = DiskUse(written_bytes=2_000, files=1)
    monkeypatch.setattr(sandbox_limits, "_taken", lambda _folder: taken)
    monkeypatch.setattr(sandbox_limits, "changed_since", lambda *_: used)
    watch = DiskWatch((tmp_path,), DiskUse(written_bytes=1_000, files=1_000))
    taken = DiskUse(written_bytes=500_000, files=0)
    async with asyncio.timeout(60):
        while not watch.is_over(0):
            await asyncio.sleep(0.001)


def test_who_hides_what_it_holds_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_path: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "iterdir", refused)
    assert changed_since((tmp_path,), 0, os.getpid()) is None
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet reaped
        monkeypatch.setattr(sandbox_limits, "_descendants", lambda init: [init])
        assert changed_since((tmp_path,), 0, ended.pid) == DiskUse(written_bytes=0, files=0)


def test_a_file_of_many_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 100_000)
    for name in ("a", "b", "c"):
        (tmp_path / name).hardlink_to(tmp_path / "f")
    used = changed_since((tmp_path,), 0, 0)
    assert used is not None
    assert used.files == 1
    assert used.written_bytes < 200_000


async def test_what_others_write_ends_nobody_and_is_walked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = DiskUse(written_bytes=0, files=0)
    walks: list[tuple[Path, ...]] = []

    def walked(folders: tuple[Path, ...], _since_ns: int, _init: int) -> DiskUse:
        walks.append(folders)
        return DiskUse(written_bytes=10, files=1)

    monkeypatch.setattr(sandbox_limits, "_taken", lambda _folder: taken)
    monkeypatch.setattr(sandbox_limits, "changed_since", walked)
    watch = DiskWatch((tmp_path,), DiskUse(written_bytes=1_000, files=1_000))
    taken = DiskUse(written_bytes=1_000_000, files=0)
    assert not watch.is_over(0)
    for _ in range(100):
        await asyncio.sleep(0.001)
        assert not watch.is_over(0)
    assert walks == [(tmp_path,)]
    taken = DiskUse(written_bytes=1_000_300, files=0)
    assert not watch.is_over(0)
    assert walks == [(tmp_path,)]


def refused(_path: str, _flags: int) -> int:
    raise PermissionError("as the kernel says of a process that is reaped just then")


def test_a_namespace_of_one_that_was_reaped_just_now_is_gone_and_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    monkeypatch.setattr(sandbox_limits, "can_bind_numbers", lambda: True)
    monkeypatch.setattr(os, "open", refused)
    oversight = Oversight((), ResourceLimits(), None)
    with pytest.raises(ProcessLookupError):
        oversight.begin(gone.pid)
    with pytest.raises(PermissionError):
        oversight.begin(os.getpid())
    assert oversight.end() == ""
