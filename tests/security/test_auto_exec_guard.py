"""What the guard binds, and what it puts aside after a command: on real files, without a sandbox.

Here the test plays the command between `enter` and `leave`; that what is bound cannot be written
is the escape matrix's to show.
"""

import asyncio
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from clawd.errors import SandboxUnavailableError
from clawd.security.sandbox import auto_exec_guard
from clawd.security.sandbox.auto_exec_guard import AutoExecGuard, QuarantinedPaths
from clawd.security.sandbox.auto_exec_scan import ScanResult, gitlinks
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from tests.support.rows import each_row


class Desk:
    """A workspace with a guard."""

    def __init__(self, workspace: Path, *granted: str) -> None:
        self.workspace = workspace
        self.guard = AutoExecGuard(granted=granted)

    def put(self, path: str, text: str = "x") -> Path:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def repository(self, path: str = ".") -> None:
        subprocess.run(["git", "init", "-q", path], cwd=self.workspace, check=True)

    async def bound(self) -> dict[str, bool]:
        visit = await self.guard.enter(self.workspace)
        await self.guard.leave(visit)
        return {os.path.relpath(path, self.workspace): writable for writable, path in visit.binds}

    def names(self) -> set[str]:
        return {str(p.relative_to(self.workspace)) for p in self.workspace.rglob("*")}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_what_runs_later_is_bound_read_only_and_a_repository_cannot_be_moved(
    desk: Desk,
) -> None:
    desk.repository()
    for path in ("conftest.py", "a/b/.envrc", ".vscode/tasks.json", "v/pyvenv.cfg", "v/lib/x.pth"):
        desk.put(path)
    for path in ("main.py", "node_modules/a/conftest.py", "Makefile"):
        desk.put(path)
    assert await desk.bound() == {
        ".git": True,
        ".git/config": False,
        ".git/hooks": False,
        "conftest.py": False,
        "a/b/.envrc": False,
        ".vscode": False,
        "v/pyvenv.cfg": False,
        "v/lib": False,
    }


async def test_modules_worktrees_bare_repositories_and_linked_hooks_are_found(desk: Desk) -> None:
    desk.repository()
    desk.put(".git/modules/a/HEAD")
    for part in ("objects", "refs"):
        (desk.workspace / ".git/modules/a" / part).mkdir()
    desk.put(".git/modules/a/config")
    desk.put(".git/worktrees/w/HEAD")
    desk.put(".git/worktrees/w/commondir")
    desk.put("scripts/check")
    (desk.workspace / ".git/hooks/pre-commit").symlink_to("../../scripts/check")
    (desk.workspace / ".git/config").write_text("[core]\n\thooksPath = tools/hooks\n")
    desk.put("tools/hooks/post-commit")
    found = await desk.bound()
    assert {
        ".git/modules/a/config",
        ".git/worktrees/w/commondir",
        "scripts/check",
        "tools/hooks",
    } <= set(found)


async def test_what_is_new_is_quarantine_under_a_name_that_nothing_runs(desk: Desk) -> None:
    visit = await desk.guard.enter(desk.workspace)
    desk.put("deep/conftest.py")
    desk.put(".husky/pre-push")
    desk.put("main.py")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=(".husky", "deep/conftest.py"))
    assert desk.names() == {
        "deep",
        "deep/conftest.py.clawd-held",
        ".husky.clawd-held",
        ".husky.clawd-held/pre-push",
        "main.py",
    }
    # And again: the first one stays.
    visit = await desk.guard.enter(desk.workspace)
    desk.put("deep/conftest.py", "second")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=("deep/conftest.py",))
    assert (desk.workspace / "deep/conftest.py.clawd-held").read_text() == "x"
    assert (desk.workspace / "deep/conftest.py.clawd-held-2").read_text() == "second"


async def test_a_new_repository_stays_unless_something_in_it_runs(desk: Desk) -> None:
    visit = await desk.guard.enter(desk.workspace)
    desk.repository("plain")
    desk.repository("trap")
    desk.put("trap/.git/hooks/post-commit")
    desk.put("trap/.git/config", "[alias]\n\tst = !x\n")
    assert await desk.guard.leave(visit) == QuarantinedPaths(
        held=("trap/.git/config", "trap/.git/hooks")
    )


@each_row("mode", [0o000, 0o111, 0o444, 0o555], fresh=["desk"])
async def test_a_folder_that_a_command_closed_keeps_nothing_back(desk: Desk, mode: int) -> None:
    folder = desk.put("a/b/conftest.py").parent.parent
    (folder / "b/conftest.py").unlink()
    visit = await desk.guard.enter(desk.workspace)
    desk.put("a/b/conftest.py")
    for closed in (folder / "b", folder):
        closed.chmod(mode)
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=("a/b/conftest.py",))
    # Root is not kept out, so this is what shows it there.
    assert stat.S_IMODE((folder / "b").stat().st_mode) == mode | 0o700


async def test_a_name_too_long_for_the_ending_is_shortened(desk: Desk) -> None:
    visit = await desk.guard.enter(desk.workspace)
    names = ("a" * 251 + ".pth", "a" * 250 + "b.pth", "é" * 125 + ".pth")
    for name in names:
        desk.put(name)
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=tuple(sorted(names)))
    ending = ".clawd-held"
    assert desk.names() == {
        "a" * 244 + ending,
        "a" * 242 + f"{ending}-2",
        "é" * 122 + ending,
    }


@each_row("text", ["[core]\n" * 20_000, None], ids=["long", "no-file"], fresh=["desk"])
async def test_settings_that_cannot_be_read_whole_are_not_plain(
    desk: Desk, text: str | None
) -> None:
    visit = await desk.guard.enter(desk.workspace)
    (desk.workspace / "n/.git").mkdir(parents=True)
    if text is None:
        os.mkfifo(desk.workspace / "n/.git/config")
    else:
        desk.put("n/.git/config", text)
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=("n/.git/config",))


async def test_a_cancelled_look_is_finished_first(desk: Desk) -> None:
    visit = await desk.guard.enter(desk.workspace)
    desk.put("conftest.py")
    leaving = asyncio.create_task(desk.guard.leave(visit))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert desk.names() == {"conftest.py.clawd-held"}


async def test_who_enters_while_another_leaves_does_not_trust_what_that_one_made(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await desk.guard.enter(desk.workspace)
    desk.put("conftest.py")
    scanned, go_on = asyncio.Event(), asyncio.Event()
    find = auto_exec_guard._found

    async def slow(place: auto_exec_guard._Place, most: int) -> ScanResult:
        found = await find(place, most)
        scanned.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(auto_exec_guard, "_found", slow)
    entering = asyncio.create_task(desk.guard.enter(desk.workspace))
    await scanned.wait()
    leaving = asyncio.create_task(desk.guard.leave(first))
    for _ in range(5):
        await asyncio.sleep(0)
    go_on.set()
    second = await entering
    assert await leaving == QuarantinedPaths(held=("conftest.py",))
    desk.put("conftest.py", "again")
    assert await desk.guard.leave(second) == QuarantinedPaths(held=("conftest.py",))


async def test_a_folder_under_another_name_takes_its_files_along(desk: Desk) -> None:
    desk.put("old/conftest.py")
    visit = await desk.guard.enter(desk.workspace)
    (desk.workspace / "old").rename(desk.workspace / "new")
    assert not await desk.guard.leave(visit)
    visit = await desk.guard.enter(desk.workspace)
    (desk.workspace / "new").rename(desk.workspace / "aside")
    desk.put("new/conftest.py", "other")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=("new/conftest.py",))


async def test_what_the_owner_edits_meanwhile_stays(desk: Desk) -> None:
    file = desk.put("tests/conftest.py")
    visit = await desk.guard.enter(desk.workspace)
    desk.put("tests/conftest.py.new", "edited").rename(file)
    assert not await desk.guard.leave(visit)


async def test_a_link_is_quarantine_when_it_is_exchanged(desk: Desk) -> None:
    desk.put("real.sh")
    (desk.workspace / ".envrc").symlink_to("real.sh")
    visit = await desk.guard.enter(desk.workspace)
    assert [path for _, path in visit.binds] == [str(desk.workspace / "real.sh")]
    (desk.workspace / ".envrc").unlink()
    desk.put(".envrc", "other")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=(".envrc",))


async def test_a_file_with_another_name_is_watched_as_well(desk: Desk) -> None:
    os.link(desk.put("conftest.py"), desk.workspace / "same.py")
    visit = await desk.guard.enter(desk.workspace)
    desk.put("same.py", "other")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=("conftest.py",))


async def test_beside_a_running_command_only_what_cannot_be_moved_is_bound(desk: Desk) -> None:
    desk.repository()
    for path in ("conftest.py", "sub/conftest.py", "sub/.vscode/tasks.json"):
        desk.put(path)
    first = await desk.guard.enter(desk.workspace)
    desk.put("late/.envrc")
    desk.put(".profile")
    second = await desk.guard.enter(desk.workspace)
    assert {os.path.relpath(path, desk.workspace) for _, path in second.binds} == {
        ".git",
        ".git/config",
        ".git/hooks",
        "conftest.py",
    }
    desk.put("sub/conftest.py", "written by the second")
    desk.put("sub/.vscode/tasks.json", "written by the second")
    expected = (".profile", "late/.envrc", "sub/.vscode", "sub/conftest.py")
    assert await desk.guard.leave(second) == QuarantinedPaths(held=expected)
    desk.put("sub/conftest.py", "and by the first, whose bind is gone")
    assert await desk.guard.leave(first) == QuarantinedPaths(held=("sub/conftest.py",))


@each_row(("folder", "files"), [("v/lib", 2_100), ("v/lib/a/b/c/d", 1)], fresh=["desk"])
async def test_beside_a_running_command_a_guarded_folder_is_read_whole_and_in_a_thread(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, folder: str, files: int
) -> None:
    (desk.workspace / folder).mkdir(parents=True)
    for number in range(files):
        (desk.workspace / folder / f"{number}.py").touch()
    desk.put("v/pyvenv.cfg")
    readers: set[int] = set()
    content = auto_exec_guard._content

    def read(path: str, depth: int = 0) -> auto_exec_guard.Content:
        readers.add(threading.get_ident())
        return content(path, depth)

    monkeypatch.setattr(auto_exec_guard, "_content", read)
    first = await desk.guard.enter(desk.workspace)
    assert not readers
    second = await desk.guard.enter(desk.workspace)
    assert str(desk.workspace / "v/lib") not in {path for _, path in second.binds}
    last = list((desk.workspace / folder).iterdir())[-1]
    last.write_text("written by the second")
    assert await desk.guard.leave(second) == QuarantinedPaths(held=("v/lib",))
    assert not await desk.guard.leave(first)
    assert readers
    assert threading.get_ident() not in readers


async def test_what_is_granted_is_left_alone(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "conftest.py", ".vscode", "a/*")
    desk.put("conftest.py")
    visit = await desk.guard.enter(desk.workspace)
    assert visit.binds == ()
    for path in ("b/conftest.py", ".vscode/tasks.json", "a/b/.envrc", ".envrc"):
        desk.put(path)
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=(".envrc",))


async def test_a_link_put_in_the_way_does_not_lead_the_renaming_outside(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "work")
    desk.workspace.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "conftest.py").write_text("the owner's")
    visit = await desk.guard.enter(desk.workspace)
    (desk.workspace / "sub").symlink_to(outside)
    assert not await desk.guard.leave(visit)
    assert (outside / "conftest.py").exists()


async def test_what_a_command_makes_is_found_among_any_number_of_folders(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_exec_guard, "_BEFORE", 5)
    monkeypatch.setattr(auto_exec_guard, "_SMALL", 3)
    desk.repository()
    visit = await desk.guard.enter(desk.workspace)
    for number in range(20):
        desk.put(f"crowd{number}/deep/note")
    desk.put("crowd7/deep/down/.envrc")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=("crowd7/deep/down/.envrc",))
    # And no crowd hides the repository, or what is written beyond the bound.
    visit = await desk.guard.enter(desk.workspace)
    assert str(desk.workspace / ".git/hooks") in {path for _, path in visit.binds}
    assert not visit.is_whole
    desk.put("crowd9/deep/.envrc")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=("crowd9/deep/.envrc",))


async def test_beyond_the_bound_what_is_old_stays(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_exec_guard, "_BEFORE", 3)
    monkeypatch.setattr(auto_exec_guard, "_CLOCK_SLACK_NS", -60 * 10**9)  # so it counts as old
    for folder in "abcd":
        desk.put(f"{folder}/e/conftest.py")
    visit = await desk.guard.enter(desk.workspace)
    assert not await desk.guard.leave(visit)


async def test_a_mark_of_an_environment_puts_itself_aside_and_not_its_neighbours(
    desk: Desk,
) -> None:
    desk.put("lib/code.py")
    visit = await desk.guard.enter(desk.workspace)
    desk.put("pyvenv.cfg")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=("pyvenv.cfg",))
    assert (desk.workspace / "lib/code.py").exists()


async def test_a_folder_named_as_an_environment_is_one(desk: Desk) -> None:
    desk.put(".venv/bin/activate")
    assert await desk.bound() == {".venv/bin": False}
    desk.put("venv/main.py")
    desk.put("tools/lib/a")
    visit = await desk.guard.enter(desk.workspace)
    desk.put("venv/bin/python")
    (desk.workspace / ".venv").rename(desk.workspace / "old")
    (desk.workspace / "tools").rename(desk.workspace / ".venv")
    (desk.workspace / "virtualenv").symlink_to("old")
    held = (".venv/lib", "old", "venv/bin", "virtualenv")  # the link, and what it leads to
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=held)


async def test_a_module_of_a_repository_may_have_any_name(desk: Desk) -> None:
    desk.repository()
    visit = await desk.guard.enter(desk.workspace)
    module = ".git/modules/node_modules/__pycache__"
    desk.put(f"{module}/HEAD")
    for part in ("objects", "refs"):
        (desk.workspace / module / part).mkdir()
    desk.put(f"{module}/config", "[alias]\n\tst = !x\n")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=(f"{module}/config",))


async def test_a_repository_among_caches_is_found_by_the_index(desk: Desk) -> None:
    desk.repository()
    for path in ("node_modules/old/.git/config", "node_modules/e/.git/config"):
        desk.put(path, "[alias]\n\tst = !x\n")
    await _name_in_index(desk, "node_modules/old")
    assert ("node_modules/old/.git/config", False) in (await desk.bound()).items()
    visit = await desk.guard.enter(desk.workspace)
    desk.put("node_modules/e/node_modules/f/.git/config", "[alias]\n\tst = !x\n")
    await _name_in_index(desk, "node_modules/e")
    (desk.workspace / ".git").chmod(0o111)
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=("node_modules/e/.git/config",))


async def test_the_index_of_a_module_and_one_in_two_files_name_repositories_too(
    desk: Desk,
) -> None:
    desk.repository()
    desk.put("m/x")
    (desk.workspace / ".git/modules").mkdir()
    await _git(desk, "init", "-q", "--separate-git-dir", "../.git/modules/m", at="m")
    visit = await desk.guard.enter(desk.workspace)
    hidden = ("__pycache__/n", "m/node_modules/n")
    for path in hidden:
        desk.put(f"{path}/.git/config", "[alias]\n\tst = !x\n")
    await _name_in_index(desk, "node_modules/n", at="m")
    await _name_in_index(desk, "__pycache__/n")
    await _git(desk, "update-index", "--split-index")
    assert await desk.guard.leave(visit) == QuarantinedPaths(
        held=tuple(f"{path}/.git/config" for path in hidden)
    )


async def _name_in_index(desk: Desk, path: str, at: str = ".") -> None:
    await _git(desk, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{path}", at=at)


async def _git(desk: Desk, *words: str, at: str = ".") -> None:
    await asyncio.to_thread(subprocess.run, ["git", *words], cwd=desk.workspace / at, check=True)


async def test_links_in_the_place_of_settings_are_quarantined(desk: Desk) -> None:
    desk.put("real/x.desktop")
    desk.put("sub/.config/app.toml")
    visit = await desk.guard.enter(desk.workspace)
    (desk.workspace / "sub/.config/autostart").symlink_to("../../real")
    (desk.workspace / ".config").symlink_to("real")
    held = (".config", "real", "sub/.config/autostart")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=held)


def _deep(workspace: Path, size: int) -> tuple[int, str]:
    """Make folders whose path from the workspace is so long; return the innermost, and its path."""
    descriptor = os.open(workspace, os.O_PATH)
    names: list[str] = []
    while len("/".join(names)) < size:
        names.append("d" * min(200, size - len("/".join(names))))
        os.mkdir(names[-1], dir_fd=descriptor)
        inner = os.open(names[-1], os.O_PATH, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    return descriptor, "/".join(names)


async def test_s10_a_path_too_long_for_the_kernel_hides_nothing(desk: Desk) -> None:
    mine, below = _deep(desk.workspace, 5_000)
    try:
        # The owner's own cannot be bound by bubblewrap, and is told from what a command changes.
        os.close(os.open("conftest.py", os.O_CREAT | os.O_WRONLY, dir_fd=mine))
        visit = await desk.guard.enter(desk.workspace)
        assert visit.binds == ()
        os.mkdir(".vscode", dir_fd=mine)
        os.close(os.open(".envrc", os.O_CREAT | os.O_WRONLY, dir_fd=mine))
        os.close(os.open("main.py", os.O_CREAT | os.O_WRONLY, dir_fd=mine))
        quarantined = await desk.guard.leave(visit)
        assert quarantined == QuarantinedPaths(held=(f"{below}/.envrc", f"{below}/.vscode"))
        near = Path(f"/proc/self/fd/{mine}")
        assert sorted(path.name for path in near.iterdir()) == [
            ".envrc.clawd-held", ".vscode.clawd-held", "conftest.py", "main.py",
        ]  # fmt: skip
        visit = await desk.guard.enter(desk.workspace)
        (near / "conftest.py").write_text("x")
        assert await desk.guard.leave(visit) == QuarantinedPaths(held=(f"{below}/conftest.py",))
    finally:
        os.close(mine)


async def test_s10_a_command_beside_a_name_too_long_to_bind_runs(desk: Desk) -> None:
    # As long as the kernel takes it, but not with what bubblewrap puts before it.
    room = 4_095 - len(str(desk.workspace)) - len("/conftest.py") - 1
    deep, _ = _deep(desk.workspace, room)
    try:
        os.close(os.open("conftest.py", os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    finally:
        os.close(deep)
    sandbox = Sandbox(SandboxSettings(levels=("bwrap",)))
    if (await sandbox.probe()).level == "none":
        pytest.skip("no bubblewrap here")
    command = ChildCommand(argv=("echo", "ran"), workspace=desk.workspace)
    assert (await sandbox.run(command)).output == "ran\n"


async def test_the_home_of_clawd_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/conftest.py").touch()
    guard = AutoExecGuard(left_out=frozenset({str(tmp_path / "home")}))
    visit = await guard.enter(tmp_path)
    assert visit.binds == ()


async def test_what_is_there_to_fill_an_environment_may_and_nothing_else(desk: Desk) -> None:
    desk.repository()
    desk.put("v/pyvenv.cfg")
    desk.put("v/lib/a.py")
    visit = await desk.guard.enter(desk.workspace, opens=("environments",))
    bound = {os.path.relpath(path, desk.workspace) for _, path in visit.binds}
    assert bound == {".git", ".git/config", ".git/hooks"}
    for path in ("v/lib/b.py", "v/bin/tool", ".venv/pyvenv.cfg", ".venv/bin/python"):
        desk.put(path)
    for path in ("conftest.py", ".local/bin/tool"):
        desk.put(path)
    held = (".local/bin", "conftest.py")
    assert await desk.guard.leave(visit) == QuarantinedPaths(held=held)
    assert "v/lib" in await desk.bound()


async def test_a_clone_keeps_what_its_repository_holds_but_no_hook_of_its_own(desk: Desk) -> None:
    desk.put("conftest.py")
    visit = await desk.guard.enter(desk.workspace, opens=("clones",))
    desk.repository("app")
    for path in ("app/tests/conftest.py", "app/.vscode/tasks.json", "app/.envrc"):
        desk.put(path)
    desk.put("app/.git/hooks/post-checkout")
    desk.put("conftest.py", "another")
    quarantined = await desk.guard.leave(visit)
    assert quarantined == QuarantinedPaths(held=("app/.git/hooks",))
    assert "conftest.py" in {os.path.relpath(path, desk.workspace) for _, path in visit.binds}


async def test_what_brings_files_of_commits_may_and_repositories_stay_as_they_are(
    desk: Desk,
) -> None:
    desk.repository()
    for path in ("conftest.py", ".vscode/tasks.json", ".venv/bin/tool"):
        desk.put(path)
    visit = await desk.guard.enter(desk.workspace, opens=("checkouts",))
    bound = {os.path.relpath(path, desk.workspace) for _, path in visit.binds}
    assert bound == {".git", ".git/config", ".git/hooks", ".venv/bin"}
    desk.repository("app")
    desk.put("conftest.py", "another")
    for path in (".envrc", ".vscode/launch.json", "app/.git/hooks/post-merge", "v/pyvenv.cfg"):
        desk.put(path)
    quarantined = await desk.guard.leave(visit)
    assert quarantined == QuarantinedPaths(held=("app/.git/hooks", "v/pyvenv.cfg"))


async def test_beside_others_nothing_of_that_kind_is_brought_and_nobody_waits(desk: Desk) -> None:
    desk.put("conftest.py")
    first = await desk.guard.enter(desk.workspace)
    visit = await desk.guard.enter(desk.workspace, opens=("checkouts",))
    assert visit.opens == ()
    assert [path for _, path in visit.binds] == [str(desk.workspace / "conftest.py")]
    assert not await desk.guard.leave(visit)
    assert not await desk.guard.leave(first)


async def test_who_may_fill_an_environment_is_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_exec_guard, "_TURN_LIMIT_S", 0.05)
    first = await desk.guard.enter(desk.workspace)
    with pytest.raises(SandboxUnavailableError, match="another command"):
        await desk.guard.enter(desk.workspace, opens=("environments",))
    monkeypatch.setattr(auto_exec_guard, "_TURN_LIMIT_S", 60.0)
    waiting = asyncio.create_task(desk.guard.enter(desk.workspace, opens=("environments",)))
    await desk.guard.leave(first)
    alone = await waiting
    other = asyncio.create_task(desk.guard.enter(desk.workspace))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not other.done()
    desk.put(".venv/bin/tool")
    assert not await desk.guard.leave(alone)
    assert not await desk.guard.leave(await other)


_SHORT, _LONG = "1" * 40, "1" * 64


def _git_in(folder: Path, *words: str, text: str = "") -> None:
    subprocess.run(["git", *words], cwd=folder, input=text, text=True, check=True)


@each_row("version", ["2", "3", "4"])
@each_row(("kind", "name"), [("sha1", _SHORT), ("sha256", _LONG)])
def test_repositories_in_an_index_are_found(
    tmp_path: Path, version: str, kind: str, name: str
) -> None:
    _git_in(tmp_path, "init", "-q", f"--object-format={kind}")
    links = {"node_modules/e", "node_modules/éé", "z" * 5000, "a/b"}
    files = [f"{'f' * (number % 40)}{number}" for number in range(60)]
    lines = [f"160000 {name} 0\t{link}" for link in links]
    lines += [f"100644 {name} 0\t{file}" for file in files]
    _git_in(tmp_path, "update-index", "--add", "--index-info", text="\n".join(lines) + "\n")
    if version == "3":
        (tmp_path / "new").touch()
        _git_in(tmp_path, "add", "--intent-to-add", "new")
    _git_in(tmp_path, "update-index", "--force-write-index", "--index-version", version)
    index = (tmp_path / ".git/index").read_bytes()
    assert index[7] == int(version)
    assert gitlinks(index) == links
    assert gitlinks(index[: len(index) // 2]) <= links


@each_row("index", [b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\1\0\0\xe0\0", b"x\0\0\xe0\0"])
def test_what_is_no_index_names_none(index: bytes) -> None:
    assert not gitlinks(index)
