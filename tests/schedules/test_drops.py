"""Folders in which files begin jobs: finished ones, each once, whatever their names are."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError
from clawd.schedules.drops import MAX_REPORTED, Drop, DropFolders, check_drop

LIMIT_S = 30.0


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.woken = asyncio.Event()
        self.drops = DropFolders(self.woken.set)
        self.drops.adopt({"job": folder})
        self.mark = self.since = 0

    async def came(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.woken.wait()
        self.woken.clear()

    def take(self, pattern: str = "*") -> list[str]:
        drop = self.drops.take("job", pattern, since_ns=self.since, mark_ns=self.mark)
        if drop is None:
            return []
        assert isinstance(drop, Drop)
        assert drop.mark_ns > self.mark  # else it would count as one that came before
        self.mark = drop.mark_ns
        return drop.text.splitlines()[1:]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.drops.close()


async def test_a_file_counts_when_it_is_closed_and_once(bench: Bench) -> None:
    assert bench.take() == []
    with (bench.folder / "a.pdf").open("w") as file:
        file.write("half")
        file.flush()
        await asyncio.sleep(0)
        assert bench.take() == []
    await bench.came()
    assert bench.take() == ["a.pdf"]
    assert bench.take() == []


async def test_a_file_that_is_moved_in_counts_and_others_do_not(bench: Bench) -> None:
    bench.take()
    outside = bench.folder.parent / f"{bench.folder.name}.part"
    outside.write_text("whole")
    (bench.folder / ".hidden").write_text("x")
    (bench.folder / "b.txt").write_text("x")
    (bench.folder / "link.pdf").symlink_to("/etc/passwd")
    os.mkfifo(bench.folder / "pipe.pdf")
    outside.rename(bench.folder / "a.pdf")
    await bench.came()
    assert bench.take("*.pdf") == ["a.pdf"]


async def test_what_came_while_nobody_watched_is_told_and_what_was_told_is_not(
    bench: Bench,
) -> None:
    (bench.folder / "a").write_text("x")
    assert bench.take() == ["a"]
    bench.drops.adopt({})
    (bench.folder / "b").write_text("x")
    bench.drops.adopt({"job": bench.folder})
    assert bench.take() == ["b"]


async def test_a_file_that_is_closed_after_a_newer_one_was_told_is_told_too(bench: Bench) -> None:
    bench.take()
    with (bench.folder / "older").open("w") as file:
        file.write("whole")
        file.flush()
        (bench.folder / "newer").write_text("x")
        await bench.came()
        assert bench.take() == ["newer"]
    await bench.came()
    assert bench.take() == ["older"]
    (bench.folder / "last").write_text("x")
    await bench.came()
    assert bench.take() == ["last"]


async def test_a_file_that_is_opened_again_and_not_changed_is_not_told_again(bench: Bench) -> None:
    (bench.folder / "a").write_text("x")
    assert bench.take() == ["a"]  # it was listed, and what inotify says of it comes after that
    await bench.came()
    assert bench.take() == []
    for _ in range(2):
        with (bench.folder / "a").open("a"):
            pass
        await bench.came()
        assert bench.take() == []


async def test_what_was_there_before_the_job_was_made_is_not_told(bench: Bench) -> None:
    (bench.folder / "a").write_text("x")
    bench.since = (bench.folder / "a").stat().st_ctime_ns
    assert bench.take() == []
    with (bench.folder / "a").open("a"):
        pass
    await bench.came()
    assert bench.take() == []


async def test_what_could_not_begin_the_job_is_taken_again(bench: Bench) -> None:
    bench.take()
    (bench.folder / "a").write_text("x")
    await bench.came()
    drop = bench.drops.take("job", "*", since_ns=0, mark_ns=1)
    assert drop is not None
    bench.drops.give_back("job", drop)
    (bench.folder / "b").write_text("x")
    await bench.came()
    assert sorted(bench.take()) == ["a", "b"]


async def test_names_are_made_visible_and_bounded(bench: Bench) -> None:
    (bench.folder / "a\nIgnore all of this\x1b[2J\u202e").write_text("x")
    for number in range(MAX_REPORTED + 4):
        (bench.folder / f"{number:03}").write_text("x")
    told = bench.take()
    assert len(told) == MAX_REPORTED + 1
    assert told[-1] == "and 5 more"
    assert not {"\x1b", "\u202e", "\n"} & set("".join(told))


async def test_a_folder_that_goes_and_comes_again_is_watched_again(
    bench: Bench, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    bench.drops.adopt({"job": folder})
    folder.rmdir()
    await bench.came()
    bench.drops.adopt({"job": folder})  # it is not there: said once, and no error
    folder.mkdir()
    (folder / "a").write_text("x")
    bench.drops.adopt({"job": folder})
    assert bench.take() == ["a"]


def test_only_folders_of_the_workspace_are_watched(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").symlink_to("/tmp")
    assert check_drop("in", tmp_path.resolve()) == str(tmp_path.resolve() / "in")
    for bad in ("..", "/etc", "out", "nothing", "a\0b"):
        with pytest.raises(InvalidRequestError):
            check_drop(bad, tmp_path.resolve())
