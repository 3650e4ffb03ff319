"""A call changes what it was judged and approved for, whatever is swapped before it acts."""

import asyncio
import ctypes
import itertools
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clawd.memory.changes import ChangeLimits
from clawd.security.paths import HeldPaths
from clawd.security.policy import PolicySettings
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.base import Tool, ToolContext
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.execution import Executor
from clawd.tools.outcome import CallOutcome
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench, bench_in, request

FLIPS = 10_000
FILE = "docs/settings.json"
WRITERS: dict[str, dict[str, Any]] = {
    "file_write": {"path": FILE, "content": "written"},
    "file_append": {"path": FILE, "content": "written"},
    "file_edit": {"path": FILE, "old_text": "old", "new_text": "written"},
    "fs_ops": {
        "operations": [
            {"op": "append", "path": FILE, "content": "written"},
            {"op": "write", "path": "docs/new/below.json", "content": "written"},
        ]
    },
    "undo": {},
}


class Place:
    """The tools over a workspace: a folder to write in, and two that must stay as they are."""

    def __init__(self, bench: Bench, base: Path, changes: Any) -> None:
        self.bench = bench
        self.workspace, self.outside = base / "ws", base / "outside"
        self.docs, self.vscode = self.workspace / "docs", self.workspace / ".vscode"
        for folder in (self.docs, self.vscode, self.outside):
            folder.mkdir(parents=True)
            (folder / "settings.json").write_text("old")
        bench.workspace = self.workspace
        bench.policy = PolicySettings(forbidden_paths=(), workspace_only=False)
        sandbox = Sandbox(SandboxSettings(home=None))
        deps = BuiltinDeps(policy=bench.policy, home=None, sandbox=sandbox, changes=changes)
        self.tools: dict[str, Tool] = {tool.name: tool for tool in builtin_tools(deps)}
        self._calls = itertools.count()

    def context(self, held: HeldPaths | None = None) -> ToolContext:
        number = f"{self.workspace}-{next(self._calls)}"
        return ToolContext(
            conversation_id="conv-1",
            call_id=number,
            receipt_id=number,
            principal=ADA,
            workspace=self.workspace,
            held=held,
        )

    async def prepare(self, tool: str) -> None:
        """Bring about what the tool needs: something to undo."""
        if tool == "undo":
            await self.tools["file_write"].invoke(WRITERS["file_write"], self.context())

    async def asked(self, tool: str, meanwhile: Callable[[], None]) -> CallOutcome:
        """Make a call and say `once`; while it waits something happens."""
        bench, call = self.bench, request(tool, json.dumps(WRITERS[tool]))
        dispatcher = bench.dispatcher(self.tools.values())
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(dispatcher.call(call, bench.scope()))
            pending = await bench.asked.get()
            meanwhile()
            bench.approvals.answer(pending.id, "once", ADA, digest=pending.digest)
        return running.result()

    def files(self) -> dict[str, str]:
        """Return all that is there, by path from the base; links are not followed."""
        base = self.workspace.parent
        return {
            str(path.relative_to(base)): path.read_text()
            for path in sorted(base.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }


Places = Callable[[], Place]


@pytest.fixture
async def places(tmp_path: Path) -> AsyncIterator[Places]:
    """Make places, each with files of its own."""
    async with bench_in(tmp_path) as bench:
        changes = await bench.memory.changes(tmp_path / "undo", ChangeLimits)
        numbers = itertools.count()
        yield lambda: Place(bench, tmp_path / f"place-{next(numbers)}", changes)


# --- between the question and the act


def _folder_becomes_a_link(place: Place) -> None:
    place.docs.rename(place.workspace / "docs.old")
    place.docs.symlink_to(".vscode")


def _folder_becomes_a_link_to_the_outside(place: Place) -> None:
    place.docs.rename(place.workspace / "docs.old")
    place.docs.symlink_to(place.outside)


def _folder_is_replaced_by_another(place: Place) -> None:
    place.docs.rename(place.workspace / "docs.old")
    place.vscode.rename(place.docs)


def _folder_moves_to_where_files_run(place: Place) -> None:
    place.vscode.rename(place.workspace / "vscode.old")
    place.docs.rename(place.vscode)


def _file_becomes_a_link(place: Place) -> None:
    (place.docs / "settings.json").unlink()
    (place.docs / "settings.json").symlink_to("../.vscode/settings.json")


SWAPS = (
    _folder_becomes_a_link,
    _folder_becomes_a_link_to_the_outside,
    _folder_is_replaced_by_another,
    _folder_moves_to_where_files_run,
    _file_becomes_a_link,
)


async def test_s3_what_is_swapped_while_a_person_is_asked_is_left_alone(places: Places) -> None:
    wrong = []
    for tool, swap in itertools.product(WRITERS, SWAPS):
        place = places()
        await place.prepare(tool)
        seen: list[dict[str, str]] = []

        def meanwhile(
            place: Place = place,
            swap: Callable[[Place], None] = swap,
            seen: list[dict[str, str]] = seen,
        ) -> None:
            swap(place)
            seen.append(place.files())

        outcome = await place.asked(tool, meanwhile)
        if outcome.status == "allowed" or seen != [place.files()]:
            wrong.append((tool, swap.__name__, outcome.text, place.files()))
    assert not wrong


async def test_s3_what_is_left_as_it_was_is_written_after_a_yes(places: Places) -> None:
    for tool in WRITERS:
        place = places()
        await place.prepare(tool)
        before = place.files()
        outcome = await place.asked(tool, lambda: None)
        changed = {path for path, text in place.files().items() if before.get(path) != text}
        assert outcome.status == "allowed", (tool, outcome.text)
        assert f"ws/{FILE}" in changed
        assert all(path.startswith("ws/docs/") for path in changed)


async def test_s3_a_missing_folder_that_becomes_a_link_is_not_written_through(
    places: Places,
) -> None:
    place = places()
    (place.docs / "settings.json").unlink()
    place.docs.rmdir()
    before = place.files()
    outcome = await place.asked("file_write", lambda: place.docs.symlink_to(".vscode"))
    assert outcome.status == "denied"
    assert "leads to another place" in outcome.text
    assert place.files() == before


async def test_s3_a_rule_holds_for_the_file_it_was_granted_for_and_not_for_its_name(
    places: Places,
) -> None:
    place = places()
    bench, call = place.bench, request("file_write", json.dumps(WRITERS["file_write"]))
    dispatcher = bench.dispatcher(place.tools.values())
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(dispatcher.call(call, bench.scope()))
        await bench.answer("always")
    assert (await dispatcher.call(call, bench.scope())).status == "allowed"
    assert bench.asked.empty()
    _folder_becomes_a_link(place)
    before = place.files()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        again = tasks.create_task(dispatcher.call(call, bench.scope()))
        pending = await bench.answer("deny")
    assert "run or obey later" in pending.question.reason
    assert again.result().status == "denied"
    assert place.files() == before


# --- while it acts


@contextmanager
def flipping(one: Path, other: Path) -> Iterator[Callable[[], int]]:
    """Exchange two names all the time, in a thread; gives how often that was done so far."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    done, is_over = [0], threading.Event()

    def flip() -> None:
        while not is_over.is_set():
            # renameat2(2) with RENAME_EXCHANGE
            if libc.renameat2(-100, names[0], -100, names[1], 2) != 0:
                raise OSError(ctypes.get_errno(), "renameat2 failed")
            done[0] += 1

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        is_over.set()
        thread.join()
        if done[0] % 2:
            libc.renameat2(-100, names[0], -100, names[1], 2)


async def _race(place: Place, tool: str, target: Path, flips: int, calls: int) -> tuple[int, int]:
    """Call while `docs` and a link to the target change places; returns calls, and those done.

    Raises:
        AssertionError: something was changed that no call was judged by.
    """
    link = place.workspace / "other"
    link.symlink_to(target)
    executor, made, done = Executor(), 0, 0
    await place.prepare(tool)
    docs = os.open(place.docs, os.O_PATH | os.O_DIRECTORY)
    kept = (target / "settings.json").read_bytes(), sorted(target.iterdir())
    with flipping(place.docs, link) as count:
        while count() < flips or made < calls or not done:
            made += 1
            if tool == "file_edit":  # what it replaces must stand there each time
                _write_in(docs, "settings.json", b"old")
            held = HeldPaths()
            try:
                context = place.context(held)
                assessment = place.tools[tool].risk(WRITERS[tool], context)
                if assessment.blocked:
                    continue  # it changed too fast to be judged
                if any(Path(each).is_relative_to(target) for each in held.places):
                    # It was judged by the target: then a person is asked about just that.
                    assert assessment.outward
                    continue
                ended = await executor.run(
                    place.tools[tool], WRITERS[tool], context, call=str(made)
                )
                done += ended.result.success
            finally:
                held.close()
            now = (target / "settings.json").read_bytes(), sorted(target.iterdir())
            assert now == kept, (tool, made, ended.result)
    os.close(docs)
    return made, done


def _write_in(folder: int, name: str, data: bytes) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_TRUNC, dir_fd=folder)
    os.write(descriptor, data)
    os.close(descriptor)


async def _races(places: Places, flips: int, calls: int) -> None:
    for tool, inside in itertools.product(WRITERS, (True, False)):
        place = places()
        target = place.vscode if inside else place.outside
        await _race(place, tool, target, flips, calls)


async def test_s3_no_call_writes_elsewhere_while_links_are_flipped(places: Places) -> None:
    await _races(places, FLIPS, 12)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_s3_no_call_writes_elsewhere_however_long_links_are_flipped(places: Places) -> None:
    await _races(places, 10 * FLIPS, 400)
