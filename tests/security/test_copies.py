"""Copies of workspaces: what is in them, what of their changes is merged, and when nothing is."""

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from clawd.errors import (
    CancelledByUserError,
    ClawError,
    ForbiddenError,
    InvalidRequestError,
    StorageError,
)
from clawd.security import copies as module
from clawd.security.copies import Copies, Copy, CopyChanges
from clawd.security.paths import classify, path_rules
from clawd.security.policy import PolicySettings
from clawd.security.snapshot import TreeStep

GOING_ON = threading.Event()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "notes.txt").write_text("mine\n")
    (folder / "src" / "a.py").write_text("a = 1\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("notes.txt")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def copies(home: Path, tmp_path: Path) -> Copies:
    return Copies(home, lambda: frozenset({str(home), str(tmp_path / "work" / "secret")}))


def merged(copies: Copies, copy: Copy) -> list[str]:
    """Merge a copy, and return the paths of what was done."""
    return [step.path for step in merge(copies, copies.changes(copy))]


class Notes:
    """Notes what is done as 7, and does what the test wants before it is."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.act = act
        self.forgotten: list[int] = []

    def note(self, _steps: Sequence[TreeStep]) -> Sequence[int]:
        self.act()
        return (7,)

    def forget(self, numbers: Sequence[int]) -> None:
        self.forgotten += numbers


def merge(
    copies: Copies, found: CopyChanges, cancelled: threading.Event = GOING_ON
) -> list[TreeStep]:
    return copies.merge(found, Notes(), cancelled)


def held(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return what lies in a folder, by path: mode and content, or where a link leads."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        content = b""
        if path.is_symlink():
            content = os.fsencode(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = (path.lstat().st_mode, content)
    return found


def test_a_copy_is_what_the_workspace_is_and_shares_nothing_with_it(
    copies: Copies, work: Path
) -> None:
    copy = copies.make(work, GOING_ON)
    assert held(copy.tree) == held(work)
    assert copy.left_out == ()
    assert (copy.tree / "notes.txt").stat().st_ino != (work / "notes.txt").stat().st_ino
    assert (copy.tree.parent.stat().st_mode & 0o777, copies.changes(copy).changes) == (0o700, ())
    copies.remove(copy)
    assert not copy.tree.parent.exists()


def test_what_is_made_in_it_comes_into_the_workspace(copies: Copies, work: Path) -> None:
    copy = copies.make(work, GOING_ON)
    tree = copy.tree
    (tree / "notes.txt").write_bytes(b"\0binary\xff")
    (tree / "run.sh").chmod(0o600)
    (tree / "src" / "a.py").rename(tree / "src" / "b.py")
    (tree / "new" / "deep").mkdir(parents=True)
    (tree / "new" / "deep" / "line\nbreak.txt").write_text("x")
    odd = Path(os.fsdecode(os.fsencode(tree) + b"/no\xff utf-8"))
    odd.write_bytes(b"y")
    (tree / "link").unlink()
    (tree / "link").symlink_to("src/b.py")
    before = held(tree)
    assert set(merged(copies, copy)) == {
        "notes.txt", "run.sh", "src/a.py", "src/b.py", "new", "new/deep",
        "new/deep/line\nbreak.txt", os.fsdecode(b"no\xff utf-8"), "link",
    }  # fmt: skip
    assert held(work) == before
    assert sorted(each.name for each in copy.tree.parent.iterdir()) == ["before", "tree"]


def test_what_git_has_and_what_is_ignored_stays_behind(copies: Copies, work: Path) -> None:
    git = work / ".git"
    (git / "hooks").mkdir(parents=True)
    (git / "config").write_text("[core]\n")
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (work / ".gitignore").write_text("build/\n*.log\n")
    copy = copies.make(work, GOING_ON)
    tree = copy.tree
    (tree / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\nid\n")
    (tree / ".git" / "config").write_text("[core]\nhooksPath = /tmp\n")
    (tree / "sub" / ".GIT").mkdir(parents=True)
    (tree / "sub" / ".GIT" / "config").write_text("[core]\n")
    (tree / "build").mkdir()
    (tree / "build" / "out").write_text("x")
    (tree / "a.log").write_text("x")
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "a.pyc").write_text("x")
    found = copies.changes(copy)
    assert [each.path for each in found.changes] == ["sub"]
    assert found.unmerged == ("4 in .git", "5 ignored")
    before = held(git)
    merge(copies, found)
    assert held(git) == before


def test_a_folder_that_goes_takes_what_is_ignored_in_it_along(copies: Copies, work: Path) -> None:
    (work / "src" / "__pycache__").mkdir()
    (work / "src" / "__pycache__" / "a.pyc").write_text("x")
    copy = copies.make(work, GOING_ON)
    shutil.rmtree(copy.tree / "src")
    merged(copies, copy)
    assert not (work / "src").exists()


def test_what_is_large_special_or_elsewhere_is_left_out_and_named(
    copies: Copies, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(module, "MAX_REPOSITORY_BYTES", 100)
    (work / "big.bin").write_bytes(b"x" * 101)
    os.mkfifo(work / "pipe")
    (work / "secret").mkdir()
    (work / "secret" / "key").write_text("s")
    (work / ".git").mkdir()
    (work / ".git" / "pack").write_bytes(b"x" * 101)
    (work / "module").mkdir()
    (work / "module" / ".git").write_text("gitdir: /elsewhere\n")
    (work / "node_modules").mkdir()
    for number in range(1_001):
        (work / "node_modules" / str(number)).touch()
    with socket.socket(socket.AF_UNIX) as listening:
        folder = os.open(work, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
        copy = copies.make(work, GOING_ON)
    assert sorted(copy.left_out) == [
        ".git/ (over 100 bytes)",
        "big.bin (over 100 bytes, or closed to clawd)",
        "module/.git (it leads to a repository elsewhere)",
        "node_modules/ (ignored and large)",
        "pipe (a fifo)",
        "socket (no file)",
    ]
    assert not (copy.tree / "secret").exists()
    (copy.tree / "huge").write_bytes(b"x" * 101)
    os.mkfifo(copy.tree / "other")
    (copy.tree / "big.bin").write_text("small")
    found = copies.changes(copy)
    assert "huge (over 100 bytes, or closed to clawd)" in found.unmerged
    assert "other (no file)" in found.unmerged
    with pytest.raises(InvalidRequestError, match=r"big\.bin: it came in the workspace"):
        merge(copies, found)  # what the copy had not is never overwritten


def test_a_workspace_that_is_too_large_is_not_copied(
    copies: Copies, work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 10)
    with pytest.raises(InvalidRequestError, match="at most 10 are copied"):
        copies.make(work, GOING_ON)
    monkeypatch.undo()
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledByUserError):
        copies.make(work, stop)
    monkeypatch.setattr("clawd.security.snapshot.MAX_ENTRIES", 3)
    with pytest.raises(ClawError, match="more than 3 files"):
        copies.make(work, GOING_ON)
    assert list((home / "copies").iterdir()) == []


def test_more_than_is_merged_is_refused_as_a_whole(
    copies: Copies, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copies.make(work, GOING_ON)
    for number in range(module.MAX_MERGED + 1):
        (copy.tree / str(number)).touch()
    with pytest.raises(InvalidRequestError, match="at most 500 are merged"):
        copies.changes(copy)
    monkeypatch.setattr("clawd.security.snapshot.MAX_ENTRIES", 100)
    with pytest.raises(ClawError, match="more than 100 files"):
        copies.changes(copy)
    deep = copy.tree
    for _ in range(250):  # deeper than is looked
        deep /= "d"
        deep.mkdir()
    copies.remove(copy)
    assert not copy.tree.parent.exists()


CHANGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("changed", lambda work: (work / "notes.txt").write_text("other\n"), "notes.txt: it was chan"),
    ("removed", lambda work: (work / "notes.txt").unlink(), "notes.txt: it was removed"),
    ("came", lambda work: (work / "new.txt").write_text("other\n"), "new.txt: it came"),
    ("mode", lambda work: (work / "notes.txt").chmod(0o600), "notes.txt: it was changed"),
    ("link", lambda work: _linked(work, "src"), "src/a.py: it was removed"),
    ("kept", lambda work: (work / "old" / "more").touch(), "old: it holds more, which the copy"),
]


def _linked(work: Path, name: str) -> None:
    (work / name).rename(work.parent / "away")
    (work / name).symlink_to(work.parent / "away")


@pytest.mark.parametrize(
    ("change", "told"), [row[1:] for row in CHANGES], ids=[r[0] for r in CHANGES]
)
def test_what_was_changed_since_is_a_conflict_and_nothing_is_merged(
    copies: Copies, work: Path, change: Callable[[Path], object], told: str
) -> None:
    (work / "old").mkdir()
    copy = copies.make(work, GOING_ON)
    (copy.tree / "notes.txt").write_text("helper\n")
    (copy.tree / "new.txt").write_text("helper\n")
    (copy.tree / "src" / "a.py").write_text("a = 2\n")
    (copy.tree / "old").rmdir()
    found = copies.changes(copy)
    change(work)
    before = held(work)
    with pytest.raises(InvalidRequestError, match="nothing was merged") as refused:
        merge(copies, found)
    assert told in refused.value.message
    assert held(work) == before


def test_of_two_that_changed_one_file_the_second_conflicts(copies: Copies, work: Path) -> None:
    one, other = copies.make(work, GOING_ON), copies.make(work, GOING_ON)
    for name, copy in (("one", one), ("other", other)):
        (copy.tree / "notes.txt").write_text(name)
        (copy.tree / "docs").mkdir()
        (copy.tree / "docs" / f"{name}.md").write_text(name)
    found = copies.changes(other)
    merged(copies, one)
    with pytest.raises(InvalidRequestError, match=r"notes\.txt: it was changed"):
        merge(copies, found)
    assert held(work / "docs").keys() == {"one.md"}
    (other.tree / "notes.txt").write_text("one")  # the same as the first
    assert merged(copies, other) == ["docs/other.md"]


def test_a_merge_that_meets_a_problem_is_taken_back_as_a_whole(copies: Copies, work: Path) -> None:
    """A folder becomes a link between the plan and the act: what came before goes again."""
    copy = copies.make(work, GOING_ON)
    (copy.tree / "notes.txt").write_text("helper\n")
    (copy.tree / "added").mkdir()
    (copy.tree / "added" / "b").write_text("b")
    (copy.tree / "src" / "z.py").write_text("z")
    found, outside = copies.changes(copy), work.parent / "outside"
    outside.mkdir()
    before = held(work)

    def swap() -> None:
        (work / "src").rename(work.parent / "away")
        (work / "src").symlink_to(outside)

    notes = Notes(swap)
    with pytest.raises(InvalidRequestError, match=r"nothing was merged; src/z\.py"):
        copies.merge(found, notes, GOING_ON)
    assert notes.forgotten == [7]
    assert list(outside.iterdir()) == []
    (work / "src").unlink()
    (work.parent / "away").rename(work / "src")
    assert held(work) == before


def test_a_merge_that_is_not_wholly_taken_back_keeps_what_it_replaced_for_the_next_start(
    copies: Copies, work: Path, home: Path
) -> None:
    """What it replaced cannot be read, then the file cannot be looked at, and then all can."""
    copy, away, outside = copies.make(work, GOING_ON), work.parent / "away", work.parent / "out"
    outside.mkdir()
    (copy.tree / "notes.txt").write_text("helper\n")
    (copy.tree / "src" / "a.py").write_text("b = 1\n")
    found, place, before = copies.changes(copy), copy.tree.parent, held(work)

    def swap() -> None:
        (work / "src").rename(away)
        (work / "src").symlink_to(outside)
        (place / "before").rename(place / "aside")

    notes = Notes(swap)
    told = r"not be wholly taken back; notes\.txt: No such file.*is kept in .*/before"
    with pytest.raises(StorageError, match=told):
        copies.merge(found, notes, GOING_ON)
    assert notes.forgotten == []
    copies.remove(copy)
    assert {each.name for each in place.iterdir()} == {"aside", "merging"}
    (work / "src").unlink()
    away.rename(work / "src")
    assert copies.recover() == []
    (place / "aside").rename(place / "before")
    assert Copies(home, lambda: frozenset({str(work / "notes.txt")})).recover() == []
    assert (work / "notes.txt").read_text() == "helper\n"
    assert {each.name for each in place.iterdir()} == {"before", "merging"}
    assert Copies(home, lambda: frozenset({str(home)})).recover() == [7]
    assert (held(work), place.exists()) == (before, False)


def test_flipping_a_folder_and_a_link_during_merges_leads_nowhere(
    copies: Copies, work: Path
) -> None:
    outside, stop = work.parent / "outside", threading.Event()
    outside.mkdir()
    (work / "twin").symlink_to(outside)

    def flip() -> None:
        spare = work / "spare"
        while not stop.is_set():
            (work / "src").rename(spare)
            (work / "twin").rename(work / "src")
            spare.rename(work / "twin")

    flipping = threading.Thread(target=flip)
    found = copies.make(work, GOING_ON)
    for number in range(40):
        (found.tree / "src" / f"{number}.py").write_text("x")
    changes = copies.changes(found)
    flipping.start()
    try:
        for _ in range(20):
            try:
                merge(copies, changes)
            except ClawError:
                continue
    finally:
        stop.set()
        flipping.join()
    assert list(outside.iterdir()) == []


def test_nothing_is_merged_once_it_is_cancelled_or_the_copy_is_gone(
    copies: Copies, work: Path
) -> None:
    copy = copies.make(work, GOING_ON)
    (copy.tree / "notes.txt").write_text("helper\n")
    found, cancelled = copies.changes(copy), threading.Event()
    cancelled.set()
    with pytest.raises(CancelledByUserError):
        merge(copies, found, cancelled=cancelled)
    copies.remove(copy)
    with pytest.raises(ClawError):
        merge(copies, found)
    assert (work / "notes.txt").read_text() == "mine\n"


def test_what_changes_in_the_copy_after_the_look_is_not_merged(copies: Copies, work: Path) -> None:
    copy = copies.make(work, GOING_ON)
    (copy.tree / "notes.txt").write_text("helper\n")
    found = copies.changes(copy)
    (copy.tree / "notes.txt").write_text("unseen\n")
    with pytest.raises(InvalidRequestError, match="nothing was merged"):
        merge(copies, found)
    assert (work / "notes.txt").read_text() == "mine\n"


KILLED = """
    import os, signal, sys, threading
    from pathlib import Path
    from clawd.security import snapshot
    from clawd.security.copies import Copies
    home, work, at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    copies, count = Copies(home, lambda: frozenset({str(home)})), 0
    copy = copies.make(work, threading.Event())
    (copy.tree / "notes.txt").write_text("helper")
    (copy.tree / "src" / "a.py").unlink()
    (copy.tree / "new").mkdir()
    (copy.tree / "new" / "b.py").write_text("b")
    (copy.tree / "run.sh").chmod(0o644)
    found = copies.changes(copy)
    def dying(event, arguments):
        global count
        if event in {"os.rename", "os.remove", "os.mkdir", "os.chmod", "os.link", "os.rmdir"}:
            count += 1
            if count > at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(dying)
    class Notes:
        def note(self, steps):
            return (3,)
        def forget(self, numbers):
            pass
    copies.merge(found, Notes(), threading.Event())
    copies.remove(copy)
    print(count)
"""


def test_a_kill_at_any_moment_of_a_merge_leaves_all_of_it_or_nothing(
    home: Path, work: Path, tmp_path: Path
) -> None:
    before, ends = held(work), set()
    for at in range(0, 60, 2):
        shutil.rmtree(work)
        shutil.copytree(_saved(tmp_path, work, before), work, symlinks=True)
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(home), str(work), str(at)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        forgotten = Copies(home, lambda: frozenset({str(home)})).recover()
        assert list((home / "copies").iterdir()) == []
        after = held(work)
        if after == before:
            ends.add("nothing")
        else:
            assert after["notes.txt"][1] == b"helper", (at, done.stderr)
            assert set(after) == {"link", "new", "new/b.py", "notes.txt", "run.sh", "src"}
            assert forgotten == []
            ends.add("all")
        if done.returncode == 0:
            break
    assert ends == {"nothing", "all"}


def _saved(tmp_path: Path, work: Path, before: dict[str, tuple[int, bytes]]) -> Path:
    """Return a folder that holds what the workspace held at first."""
    saved = tmp_path / "saved"
    if not saved.exists():
        saved.mkdir()
        for name, (mode, content) in before.items():
            place = saved / name
            if mode & 0o170000 == 0o040000:
                place.mkdir()
            elif mode & 0o170000 == 0o120000:
                place.symlink_to(os.fsdecode(content))
            else:
                place.write_bytes(content)
                place.chmod(mode & 0o777)
    return saved


def test_a_path_in_a_copy_is_judged_as_what_it_stands_for(
    copies: Copies, work: Path, home: Path
) -> None:
    copy = copies.make(work, GOING_ON)
    policy = PolicySettings(
        forbidden_paths=(str(work / "secret"),), workspace_only=False, autonomy="full"
    )
    rules = path_rules(policy, workspace=copy.tree, home=home, original=copies.original(copy.tree))
    assert classify("secret/key", rules).place == "forbidden"
    assert classify("notes.txt", rules).place == "inside"
    assert classify(str(work / "notes.txt"), rules).place == "outside"
    assert rules.workspace_only
    assert copies.meant(copy.tree / "src" / "a.py") == work / "src" / "a.py"
    assert copies.meant(work) == work
    assert copies.original(work) is None
    (copy.tree / "out").symlink_to("/usr")
    assert classify("out/bin", rules).place == "outside"
    copies.remove(copy)
    assert copies.original(copy.tree) is None


def test_a_workspace_around_the_home_is_copied_without_it_and_one_in_it_is(
    tmp_path: Path,
) -> None:
    home = tmp_path / "work" / ".clawd"
    inner = home / "workspace"
    inner.mkdir(parents=True)
    (inner / "a").write_text("a")
    (tmp_path / "work" / "b").write_text("b")
    copies = Copies(home, lambda: frozenset({str(home)}))
    around = copies.make(tmp_path / "work", GOING_ON)
    assert held(around.tree).keys() == {"b"}
    within = copies.make(inner, GOING_ON)
    (within.tree / "a").write_text("new")
    assert merged(copies, within) == ["a"]
    assert (inner / "a").read_text() == "new"
    (around.tree / ".clawd").mkdir()
    (around.tree / ".clawd" / "config.toml").write_text("autonomy")
    (home / "config.toml").write_text("a secret")
    with pytest.raises(ClawError, match="it lies under a forbidden path"):
        merged(copies, around)
    assert (home / "config.toml").read_text() == "a secret"


def test_a_workspace_that_became_a_link_is_not_merged_into(copies: Copies, work: Path) -> None:
    copy = copies.make(work, GOING_ON)
    (copy.tree / "notes.txt").write_text("helper\n")
    found = copies.changes(copy)
    _linked(work.parent, "work")
    with pytest.raises((ForbiddenError, ClawError)):
        merge(copies, found)
    assert (work / "notes.txt").read_text() == "mine\n"
