"""Files by descriptor: what opens, what never does, and what a write leaves behind."""

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from clawd.errors import (
    BusyError,
    ClawError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
)
from clawd.security import paths as beneath
from clawd.security.file_content import FileState, ReplacementRules
from clawd.security.paths import HeldPaths, PathRules, open_beneath, walk_beneath
from clawd.security.workspace import Workspace

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(params=["openat2", "walk"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace beside a secret; every test runs with the system call and with the walk."""
    if request.param == "walk":
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    elif not beneath.has_openat2():
        pytest.skip("this kernel has no openat2")
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "ws" / "a.txt").write_text("first\nsecond\n")
    return tmp_path / "ws"


@pytest.fixture
def workspace(root: Path) -> Iterator[Workspace]:
    with Workspace(PathRules(workspace=root)) as opened:
        yield opened


def read(workspace: Workspace, path: str) -> str:
    with workspace.open_read(path) as file:
        return file.read().decode()


def test_files_inside_open_by_every_name_they_have(workspace: Workspace, root: Path) -> None:
    (root / "link").symlink_to("sub/../a.txt")
    (root / "sub" / "up").symlink_to("../a.txt")
    (root / "whole").symlink_to(root / "a.txt")
    for path in ("a.txt", "./a.txt", "sub/../a.txt", str(root / "a.txt"), "link", "sub/up"):
        assert read(workspace, path) == "first\nsecond\n", path
    assert read(workspace, "whole") == "first\nsecond\n"


def test_nothing_outside_opens(workspace: Workspace, root: Path) -> None:
    (root / "out").symlink_to("../secret")
    (root / "absolute").symlink_to(root.parent / "secret")
    (root / "folder").symlink_to("..")
    (root / "magic").symlink_to("/proc/self/cwd")
    for path in (
        "../secret",
        "sub/../../secret",
        str(root.parent / "secret"),
        "out",
        "absolute",
        "folder/secret",
        "/proc/self/root/etc/passwd",
        f"/proc/{os.getpid()}/root/{root.parent}/secret",
        "magic/pyproject.toml",
    ):
        with pytest.raises((ForbiddenError, NotFoundError)):
            workspace.open_read(path)
        with pytest.raises((ForbiddenError, NotFoundError)):
            workspace.write(path + "x" if path == "magic" else path, b"broken")
    assert (root.parent / "secret").read_text() == "secret"


def test_special_files_are_refused_and_never_waited_for(workspace: Workspace, root: Path) -> None:
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        for path in ("fifo", "socket"):
            with pytest.raises(InvalidRequestError, match="not a regular file"):
                workspace.open_read(path)
            with pytest.raises(InvalidRequestError, match="not a regular file"):
                workspace.write(path, b"x")
            with pytest.raises(InvalidRequestError, match="not a regular file"):
                workspace.append(path, b"x")
    with pytest.raises(InvalidRequestError, match="folder"):
        workspace.open_read("sub")
    with pytest.raises(InvalidRequestError, match="folder"):
        workspace.write("sub", b"x")


def test_forbidden_paths_inside_are_not_there(root: Path) -> None:
    (root / "keys").mkdir()
    (root / "keys" / "id").write_text("private")
    (root / "link").symlink_to("keys/id")
    rules = PathRules(workspace=root, forbidden=(root / "keys",))
    with Workspace(rules) as workspace:
        for path in ("keys/id", "link", "sub/../keys/id"):
            with pytest.raises(ForbiddenError):
                workspace.open_read(path)
            with pytest.raises(ForbiddenError):
                workspace.write(path, b"x")
        with pytest.raises(ForbiddenError):
            workspace.entries("keys")
        names = [entry.name for entry in workspace.entries(".")]
        assert names == ["a.txt", "link", "sub"]
        assert all("keys" not in name for name, _ in workspace.walk("."))


def test_a_link_swapped_in_while_files_are_opened_never_leads_out(
    workspace: Workspace, root: Path
) -> None:
    (root / "real").mkdir()
    (root / "real" / "file").write_text("inside")
    (root.parent / "file").write_text("OUTSIDE")
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            (root / "real").rename(root / "kept")
            with contextlib.suppress(FileExistsError):  # the write below has just made it
                (root / "real").symlink_to("..")
                (root / "real").unlink()
            while (root / "kept").exists():
                try:
                    (root / "kept").rename(root / "real")
                except OSError:
                    shutil.rmtree(root / "real", ignore_errors=True)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        for _ in range(1500):
            try:
                seen.add(read(workspace, "real/file"))
                workspace.write("real/new", b"x")
            except ClawError:
                continue
    finally:
        ended.set()
        swapper.join()
        sys.setswitchinterval(interval)
    assert seen <= {"inside"}
    assert not (root.parent / "new").exists()


def _swapped(
    root: Path,
    others: list[Callable[[Path], object]],
    acts: list[Callable[[], object]],
    *,
    is_enough: Callable[[], bool] = lambda: True,
) -> None:
    """Act five hundred times and more while `file` is now a regular file, now something else."""
    file, ended, swaps = root / "file", threading.Event(), 0

    def swap() -> None:
        nonlocal swaps
        for make in itertools.cycle([lambda path: path.write_text("inside"), *others]):
            made = root.parent / "made"
            make(made)
            made.rename(file)
            swaps += 1
            if ended.is_set():
                return

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for number in itertools.count():
            with contextlib.suppress(ClawError):
                acts[number % len(acts)]()
            if number >= 500 and swaps >= 500 and is_enough():
                return
    finally:
        ended.set()
        swapper.join()
        sys.setswitchinterval(interval)


def test_a_file_that_others_swap_for_a_link_or_a_fifo_never_leads_out_and_never_blocks(
    workspace: Workspace, root: Path
) -> None:
    secret, seen = root.parent / "secret", set[str]()
    others: list[Callable[[Path], object]] = [
        lambda path: path.symlink_to("../secret"),
        lambda path: path.symlink_to(secret),
        os.mkfifo,
    ]
    acts: list[Callable[[], object]] = [
        lambda: seen.add(read(workspace, "file")),
        lambda: workspace.write("file", b"written"),
        lambda: workspace.append("file", b"added"),
        lambda: workspace.state("file"),
    ]
    # Until one got through: else nothing would show that they could have.
    _swapped(root, others, acts, is_enough=lambda: "inside" in seen)
    assert not any("secret" in text for text in seen)
    assert secret.read_text() == "secret"


def test_a_removal_takes_the_file_that_was_looked_at_and_no_other(
    workspace: Workspace, root: Path
) -> None:
    inside = FileState.of(b"inside")
    _swapped(
        root,
        [lambda path: path.symlink_to("../secret")],
        [lambda: workspace.remove("file", inside)],
    )
    assert (root.parent / "secret").read_text() == "secret"
    (root / "file").unlink(missing_ok=True)
    (root / "file").write_text("other")
    with pytest.raises(BusyError):
        workspace.remove("file", inside)
    assert (root / "file").read_text() == "other"


def test_a_workspace_that_was_swapped_for_a_link_is_not_entered(root: Path) -> None:
    rules = PathRules(workspace=root)
    (root.parent / "elsewhere").mkdir()
    root.rename(root.parent / "kept")
    root.symlink_to("elsewhere")
    with pytest.raises(ClawError), Workspace(rules):
        pass
    deep = PathRules(workspace=root / "deep")
    (root.parent / "elsewhere" / "deep").mkdir()
    with pytest.raises(ForbiddenError, match="not the folder that it was"), Workspace(deep):
        pass


def test_outside_files_mean_files_never_processes_or_devices(root: Path) -> None:
    rules = PathRules(workspace=root, workspace_only=False)
    with Workspace(rules) as workspace:
        for path in ("/proc/self/environ", "/proc/self/cmdline", f"/proc/{os.getpid()}/comm"):
            with pytest.raises(ForbiddenError, match="processes"):
                workspace.open_read(path)
        with pytest.raises(ClawError):
            workspace.open_read("/proc/self/fd/0")
        with pytest.raises(InvalidRequestError, match="a device"):
            workspace.open_read("/dev/null")
        for act in (workspace.write, workspace.append):
            with pytest.raises(ClawError):
                act("/dev/null", b"x")
            with pytest.raises(ForbiddenError, match="processes"):
                act("/proc/self/oom_score_adj", b"0")


def test_clawds_home_is_closed_also_inside_of_the_workspace(root: Path) -> None:
    home = root / ".clawd"
    (home / "undo").mkdir(parents=True)
    (home / "undo" / "kept").write_text("old")
    (root / "way").symlink_to(".clawd/undo")
    with Workspace(PathRules(workspace=root, home=home)) as workspace:
        for path in (".clawd/undo/kept", "way/kept", "sub/../.clawd/ESTOP", ".clawd"):
            for act in (
                workspace.open_read,
                workspace.state,
                workspace.entries,
                partial(workspace.write, data=b"x"),
                partial(workspace.append, data=b"x"),
                partial(workspace.remove, was=None),
            ):
                with pytest.raises(ForbiddenError):
                    act(path)
    assert (home / "undo" / "kept").read_text() == "old"
    assert not (home / "ESTOP").exists()


def test_p9_a_new_file_gets_what_the_owners_umask_leaves_and_an_old_one_keeps_its_own(
    root: Path,
) -> None:
    (root / "a.txt").chmod(0o751)
    before = os.umask(0o077)  # the daemon's own, which keeps its home private
    try:
        with Workspace(PathRules(workspace=root), umask=0o027) as workspace:
            for name in ("new", "a.txt"):
                workspace.write(name, b"x")
            workspace.append("made/here/new", b"x")
    finally:
        os.umask(before)
    found = {
        name: oct((root / name).stat().st_mode & 0o777)
        for name in ("new", "made/here/new", "made/here", "made", "a.txt")
    }
    assert found == {
        "new": "0o640",
        "made/here/new": "0o640",
        "made/here": "0o750",
        "made": "0o750",
        "a.txt": "0o751",
    }


DIES_AT_THE_RENAME = """
import os, signal, sys
from pathlib import Path
from clawd.security.paths import PathRules
from clawd.security.workspace import Workspace
os.rename = lambda *_names, **_options: os.kill(os.getpid(), signal.SIGKILL)
with Workspace(PathRules(workspace=Path(sys.argv[1]))) as workspace:
    workspace.write("a.txt", b"half")
"""


def test_s12_what_a_killed_process_left_of_a_write_goes_with_the_next_one(tmp_path: Path) -> None:
    root = tmp_path / "ws"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("whole")
    command = [sys.executable, "-c", DIES_AT_THE_RENAME, str(root)]
    assert subprocess.run(command, check=False, cwd=REPOSITORY).returncode == -signal.SIGKILL
    (stale,) = root.glob(".clawd-*.tmp")
    others = {root / ".clawd-0123456789abcdef0123456789abcdef.tmp", root / "sub" / stale.name}
    for other in others:
        other.write_text("somebody's, by a name that is not ours there")
    with stale.open() as at_work, Workspace(PathRules(workspace=root)) as workspace:
        fcntl.flock(at_work, fcntl.LOCK_EX)
        workspace.write("new", b"x")
        assert stale.exists()  # somebody works on it
        fcntl.flock(at_work, fcntl.LOCK_UN)
        workspace.write("sub/new", b"x")
        assert stale.exists()  # another folder was written to
        workspace.write("new", b"y")
    assert set(root.rglob(".clawd-*.tmp")) == others
    assert (root / "a.txt").read_text() == "whole"


def test_s12_a_process_that_is_killed_while_it_writes_leaves_nothing(root: Path) -> None:
    names: list[str] = []

    def chunks() -> Iterator[bytes]:
        yield b"half"
        names.extend(path.name for path in root.iterdir())

    with Workspace(PathRules(workspace=root)) as workspace:
        workspace.restore("a.txt", chunks(), ReplacementRules())
    assert sorted(names) == ["a.txt", "sub"]


def test_set_user_id_does_not_survive_a_write(workspace: Workspace, root: Path) -> None:
    (root / "a.txt").chmod(0o6755)
    workspace.write("a.txt", b"x")
    assert (root / "a.txt").stat().st_mode & 0o7777 == 0o755


def test_without_hard_links_a_new_file_is_made_all_the_same(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_names: object, **_options: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert workspace.write("new", b"x") is True
    assert sorted(p.name for p in root.iterdir()) == ["a.txt", "new", "sub"]


def test_a_write_is_whole_keeps_permissions_and_leaves_no_scraps(
    workspace: Workspace, root: Path
) -> None:
    (root / "a.txt").chmod(0o640)
    inode = (root / "a.txt").stat().st_ino
    assert workspace.write("a.txt", b"new") is False
    assert workspace.write("deep/er/b.txt", b"made") is True
    assert (root / "a.txt").read_text() == "new"
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o640
    assert (root / "a.txt").stat().st_ino != inode
    assert (root / "deep" / "er" / "b.txt").read_text() == "made"
    assert sorted(p.name for p in root.iterdir()) == ["a.txt", "deep", "sub"]


def test_a_write_through_a_link_changes_what_it_leads_to(workspace: Workspace, root: Path) -> None:
    (root / "link").symlink_to("a.txt")
    workspace.write("link", b"new")
    assert (root / "link").is_symlink()
    assert (root / "a.txt").read_text() == "new"


def test_a_resolved_path_is_taken_as_it_is_and_never_through_a_link(
    workspace: Workspace, root: Path
) -> None:
    plan = ReplacementRules(must_be_new=True)
    for name in ("sub /a", " sub/~", "~/notes", "b "):
        assert workspace.restore(root / name, (b"x",), plan)
        assert (root / name).read_bytes() == b"x"
        with workspace.open_read(root / name) as file:
            assert file.read() == b"x"
    (root / "link").symlink_to("sub")
    (root / "to-a").symlink_to("a.txt")
    for path in (root / "link" / "new", root / "to-a", root / "sub" / ".." / "a.txt"):
        for act in (
            partial(workspace.state, path),
            partial(workspace.restore, path, (b"x",), ReplacementRules()),
            partial(workspace.remove, path, None),
            partial(workspace.open_read, path),
        ):
            with pytest.raises(ForbiddenError, match="another place"):
                act()
    assert (root / "a.txt").read_text() == "first\nsecond\n"


def test_a_write_breaks_hard_links_and_an_append_refuses_them(
    workspace: Workspace, root: Path
) -> None:
    os.link(root.parent / "secret", root / "alias")
    with pytest.raises(ForbiddenError, match="names"):
        workspace.append("alias", b"x")
    workspace.write("alias", b"mine")
    assert (root.parent / "secret").read_text() == "secret"
    assert (root / "alias").read_text() == "mine"


def test_an_append_adds_or_creates(workspace: Workspace, root: Path) -> None:
    assert workspace.append("a.txt", b"third\n") is False
    assert workspace.append("new/log", b"one\n") is True
    assert (root / "a.txt").read_text() == "first\nsecond\nthird\n"
    assert (root / "new" / "log").read_text() == "one\n"


def test_what_is_wrong_is_said(workspace: Workspace) -> None:
    with pytest.raises(NotFoundError, match="nothing-here does not exist"):
        workspace.open_read("nothing-here")
    with pytest.raises(InvalidRequestError, match="through a file"):
        workspace.open_read("a.txt/below")
    with pytest.raises(InvalidRequestError, match="slash"):
        workspace.write("new/", b"x")
    with pytest.raises(InvalidRequestError, match="too long"):
        workspace.open_read("x" * 300)


def test_a_walk_is_sorted_and_follows_no_links(workspace: Workspace, root: Path) -> None:
    (root / "sub" / "loop").symlink_to("..")
    (root / "sub" / "z").write_text("")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("")
    names = [name for name, _ in workspace.walk(".", skip=frozenset({".git"}))]
    assert names == ["a.txt", "sub", "sub/loop", "sub/z"]
    assert [name for name, _ in workspace.walk("sub")] == ["loop", "z"]


def test_the_owner_may_let_files_leave_the_workspace(root: Path) -> None:
    rules = PathRules(workspace=root, workspace_only=False, forbidden=(root.parent / "forbidden",))
    (root.parent / "forbidden").mkdir()
    (root.parent / "forbidden" / "x").write_text("no")
    (root.parent / "way").symlink_to("forbidden/x")
    with Workspace(rules) as workspace:
        assert read(workspace, "../secret") == "secret"
        assert workspace.write("../new/file", b"x") is True
        for path in ("../forbidden/x", "../way"):
            with pytest.raises(ForbiddenError):
                workspace.open_read(path)
    assert (root.parent / "new" / "file").read_text() == "x"


def test_the_walk_and_the_system_call_agree(tmp_path: Path) -> None:
    if not beneath.has_openat2():
        pytest.skip("this kernel has no openat2")
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "f").write_text("x")
    (tmp_path / "up").symlink_to("d/e/../f")
    (tmp_path / "out").symlink_to("../x")
    (tmp_path / "root").symlink_to("/")
    (tmp_path / "loop").symlink_to("loop")
    folder = os.open(tmp_path, os.O_PATH)
    try:
        for path in (
            ".", "d", "d/f", "d/e/..", "d/..", "up", "out", "root", "loop", "..", "d/../..",
            "no", "d/f/x", "d/no/..", "root/etc", "d/e/../../d/f", "/etc",
        ):  # fmt: skip
            assert _outcome(open_beneath, folder, path) == _outcome(walk_beneath, folder, path), (
                path
            )
    finally:
        os.close(folder)


def _outcome(opener: object, folder: int, path: str) -> object:
    assert callable(opener)
    try:
        descriptor = opener(folder, path, os.O_PATH)
    except OSError as error:
        return error.errno
    try:
        return os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)


def _folder_moved(root: Path) -> None:
    (root / "docs").rename(root / "elsewhere")


def _folder_exchanged(root: Path) -> None:
    (root / "docs").rename(root / "elsewhere")
    (root / "docs").mkdir()
    (root / "docs" / "a.txt").write_text("other")


def _folder_made_a_link(root: Path) -> None:
    (root / "docs").rename(root / "elsewhere")
    (root / "docs").symlink_to(root / "sub")


def _file_made_a_link(root: Path) -> None:
    (root / "docs" / "a.txt").unlink()
    (root / "docs" / "a.txt").symlink_to(root.parent / "secret")


def _missing_folder_made_a_link(root: Path) -> None:
    (root / "docs" / "new").symlink_to(root / "sub")


def _opened(held: HeldPaths, path: str, rules: PathRules, *, is_parent: bool) -> Path:
    """Open a held path, or the folder that it is in; return where that lies."""
    act = partial(held.open_parent, make=None) if is_parent else partial(held.open, flags=0)
    descriptor = act(path, rules)
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    finally:
        os.close(descriptor)


def test_s3_a_held_path_alone_refuses_what_leads_elsewhere_by_now(tmp_path: Path) -> None:
    ways: tuple[tuple[Callable[[Path], None], str], ...] = (
        (_folder_moved, "docs/a.txt"),
        (_folder_exchanged, "docs/a.txt"),
        (_folder_made_a_link, "docs/a.txt"),
        (_file_made_a_link, "docs/a.txt"),
        (_missing_folder_made_a_link, "docs/new/b.txt"),
    )
    wrong = []
    for number, (swap, path) in enumerate(ways):
        root = tmp_path / str(number) / "ws"
        for name in ("docs", "sub"):
            (root / name).mkdir(parents=True)
        (root / "docs" / "a.txt").write_text("mine")
        (root / "sub" / "a.txt").write_text("other")
        (root.parent / "secret").write_text("secret")
        held, rules = HeldPaths(), PathRules(workspace=root)
        held.locate(path, rules)
        if path == "docs/a.txt":
            os.close(held.open(path, rules, os.O_RDONLY))
        swap(root)
        for is_parent in (False, True):
            with contextlib.suppress(ForbiddenError):
                opened = _opened(held, path, rules, is_parent=is_parent)
                wrong.append((swap.__name__, str(opened)))
        held.close()
    # Who asks for the folder of a file asks nothing of the file.
    assert [name for name, _ in wrong] == ["_file_made_a_link"]
    assert wrong[0][1].endswith("/docs")
