"""undo of commands: what one did to the workspace comes back, byte for byte, links and modes."""

import asyncio
import os
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.errors import ClawError
from clawd.memory.blobs import Blobs
from clawd.memory.changes import ChangeLimits
from clawd.memory.snapshots import Snapshots
from clawd.memory.store import Memory
from clawd.security.copies import Copies
from clawd.tools.base import ToolContext
from clawd.tools.changes import Aftermath, ChangeScope, call_facts
from tests.support.rows import Rows
from tests.tools.builtin.conftest import Bench

ENVIRON = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_NOSYSTEM": "1",
}
BIND = "python3 -c 'import socket; socket.socket(1).bind(\"s\")'"
# Each deletes, moves or rewrites much of what `furnish` makes. `S` stands for the folder src.
SPELLINGS = r"""
rm -rf src docs
rm -r -- src/*
rm -rf ./* .[!.]*
\rm -f README.md src/a.py src/b.py
command rm -rf src
env rm -rf src
/bin/rm -rf docs
find . -type f -not -path './.git/*' -delete
find src -delete
find src -type f -exec rm {} +
find src docs -type f -print0 | xargs -0 rm -f
find . -name '*.py' -exec sh -c 'echo gone > "$1"' _ {} \;
ls src/*.py | xargs -I F mv F F.bak
for f in src/*.py; do unlink "$f"; done
while read -r f; do rm -f "$f"; done < <(ls -d src/*)
mv src elsewhere
mv src docs && mv docs/src/a.py .
mkdir new && mv src/* new/ && rmdir src/deep/er 2>/dev/null; true
mv README.md src/a.py && mv docs/guide.md README.md
cp docs/guide.md src/a.py; cp -f README.md src/b.py
cp -r src copy && rm -rf src && mv copy src2
sed -i 's/line/LINE/' src/*.py README.md
sed -i.bak -e '1d' docs/guide.md src/a.py
perl -pi -e 's/o/0/g' src/*.py
perl -e 'unlink glob "src/*.py"; rename "docs", "d"'
perl -MFile::Path -e 'File::Path::remove_tree("src")'
truncate -s 0 src/*.py README.md
truncate -s 5 docs/guide.md
: > README.md; > src/a.py
echo new > README.md; echo more >> src/a.py
printf x | tee src/a.py docs/guide.md
cat /dev/null > src/b.py
dd if=/dev/zero of=src/a.py bs=1 count=4 conv=notrunc status=none
dd if=/dev/urandom of=README.md bs=64 count=1 status=none
shred -u src/a.py docs/guide.md
python3 -c 'import shutil; shutil.rmtree("src")'
python3 -c 'import os; [os.unlink(os.path.join(d, f)) for d, _, fs in os.walk("docs") for f in fs]'
python3 -c 'import pathlib; [p.write_text("x") for p in pathlib.Path("src").glob("*.py")]'
python3 -c 'import os; os.replace("README.md", "src/a.py"); os.rename("docs", "src/docs")'
python3 -c 'f = open("src/a.py", "r+b"); f.seek(3); f.write(b"\0\xff"); f.close()'
awk 'BEGIN { print "x" > "src/a.py"; print "y" > "README.md" }'
ed -s src/a.py <<< $',d\nw'
patch -p0 -s <<< $'--- README.md\n+++ README.md\n@@ -1 +1 @@\n-# a project\n+# another\n'
tar cf /tmp/$$.tar src && tar xf /tmp/$$.tar --strip-components=1 -C docs && rm -rf src /tmp/$$.tar
(cd docs && tar cf - .) | (cd src && tar xf -); rm README.md
zip -qrm /dev/shm/$$.zip src && rm -f /dev/shm/$$.zip
install -m 600 README.md src/a.py
chmod -R a-rwx,u+rwx src; chmod 000 README.md
chmod +x src/*.py; chmod 700 docs
ln -sf /etc/passwd README.md; ln -sfn .. link
ln -f README.md src/a.py; rm -f hard
rm link dangling; ln -s src/b.py link; mkdir dangling
rm -rf src && ln -s docs src
rm -rf docs && echo "a file now" > docs
mkdir -p x/y/z && touch x/y/z/f && mkfifo pipe && rm script.sh
bash -c 'eval "$(echo cm0gLXJmIHNyYyBkb2Nz | base64 -d)"'
set -- src docs; "r""m" -r"f" "$@"
touch -d 2001-01-01 src/a.py && cp -p src/b.py src/a.py && rm -rf docs
find . -depth -name '*' -path './src*' -exec rm -rf {} +
mapfile -t F < <(find src -type f); rm "${F[@]}"
""".strip().splitlines()
IN_GIT = r"""
git clean -qfdx && rm -rf src
git rm -rqf src docs
git checkout -q -- . && git clean -qfdx
git reset -q --hard HEAD~1
git reset -q --hard && git clean -qfd
git stash -q -u
git stash -q && git stash drop -q
git restore --source=HEAD~1 --staged --worktree .
git commit -qam 'something else'
git commit -q --amend -m 'another past'
git checkout -q -b other HEAD~1 2>/dev/null || git checkout -qf -b other HEAD~1
git branch -q -D kept && git tag -d v1 >/dev/null
git update-ref -d refs/heads/kept; git reflog expire --expire=now --all
git gc -q --prune=now
git checkout -qf HEAD~1 && git branch -qf main HEAD
git filter-branch -f --tree-filter 'rm -rf docs' HEAD >/dev/null 2>&1
git mv src lib && git add -A
git rm -q --cached -r . && rm -rf src
rm -rf .git
rm -rf .git/refs .git/logs .git/index
find .git -type f -name '[0-9a-f]*' -path '*objects*' -delete
git worktree add -q ../wt-$$ kept 2>/dev/null; rm -rf ../wt-$$; rm -rf docs
git rebase -q --onto HEAD~2 HEAD~1 2>/dev/null; git rebase --abort 2>/dev/null; rm -rf src
git show HEAD -- docs | git apply -R
""".strip().splitlines()


def furnish(folder: Path) -> None:
    """Fill a folder as a small project is: programs, links, odd names, all kinds of modes."""
    (folder / "src" / "deep" / "er").mkdir(parents=True)
    (folder / "docs").mkdir()
    (folder / "empty").mkdir(mode=0o700)
    (folder / "README.md").write_text("# a project\n")
    for name in ("a", "b"):
        (folder / "src" / f"{name}.py").write_text(f"line one of {name}\nline two\n" * 20)
    (folder / "src" / "deep" / "er" / "c.bin").write_bytes(bytes(range(256)) * 30)
    (folder / "docs" / "guide.md").write_text("read this\nline\n")
    (folder / "docs" / "a name\nof two lines").write_text("odd")
    (folder / "docs" / os.fsdecode(b"\xff\xfe no utf-8")).write_bytes(b"\x00\xff")
    (folder / "script.sh").write_text("#!/bin/sh\necho hello\n")
    (folder / "script.sh").chmod(0o755)
    (folder / "secret.txt").write_text("mine\n")
    (folder / "secret.txt").chmod(0o600)
    (folder / "link").symlink_to("src/a.py")
    (folder / "dangling").symlink_to("nowhere/at/all")
    (folder / "to-folder").symlink_to("docs")
    (folder / "hard").hardlink_to(folder / "docs" / "guide.md")


def make_repository(folder: Path) -> None:
    """Make a repository of it: three commits, a branch, a tag, something staged and not."""
    script = """
    git init -q -b main . && git add -A && git commit -qm one
    echo two >> README.md && git commit -qam two && git branch kept && git tag v1
    echo three >> docs/guide.md && git commit -qam three
    echo staged >> src/a.py && git add src/a.py && echo unstaged >> src/b.py
    echo untracked > notes.txt; printf '*.log\\n' > .gitignore; echo ignored > run.log
    """
    subprocess.run(["bash", "-ec", script], cwd=folder, env=ENVIRON, check=True)


def everything(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Return what is in a folder: of each path its kind, mode and bytes or target."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        facts: tuple[Any, ...] = (stat.S_IFMT(about.st_mode), stat.S_IMODE(about.st_mode))
        if path.is_symlink():
            facts = (stat.S_IFLNK, str(path.readlink()))
        elif stat.S_ISREG(about.st_mode):
            facts += (path.read_bytes(),)
        found[str(path.relative_to(folder))] = facts
    return found


class Desk:
    """Commands in a workspace as dispatch runs them, without a sandbox, and undo."""

    def __init__(self, bench: Bench, memory: Memory, base: Path) -> None:
        self.bench = bench
        self.memory = memory
        self.base = base
        self.calls = 0
        self.max_bytes = 1 << 30
        self.snapshots: Snapshots

    async def open(self) -> None:
        blobs = Blobs(self.base / "snapshots" / "blobs", lambda: self.max_bytes)
        changes = await self.memory.changes(self.base / "undo", ChangeLimits, blobs)
        self.bench.changes["changes"] = changes
        copies = Copies(self.base, frozenset)
        self.snapshots = Snapshots(self.base / "snapshots", blobs, changes=changes, copies=copies)

    def context(self, **changes: Any) -> ToolContext:
        self.calls += 1
        made = msgspec.structs.replace(self.bench.context(), receipt_id=f"rcp-{self.calls}")
        return msgspec.structs.replace(made, **changes)

    async def run(self, command: str, **context: Any) -> Aftermath:
        visit = await self.snapshots.enter(call_facts(self.context(**context), "shell"))
        assert visit is not None
        await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", command],
            cwd=self.bench.workspace,
            env=ENVIRON,
            capture_output=True,
            timeout=60,
        )
        return await self.snapshots.leave(visit)

    async def tool(self, name: str, **given: Any) -> str:
        result = await self.bench.tool(name).invoke(given, self.context())
        return result.output if result.success else f"{result.output}|{result.error}"

    async def undo(self, **given: Any) -> str:
        return await self.tool("undo", **given)

    def everything(self) -> dict[str, tuple[Any, ...]]:
        return everything(self.bench.workspace)


@pytest.fixture
async def desk(bench: Bench, tmp_path: Path) -> AsyncIterator[Desk]:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    try:
        made = Desk(bench, memory, tmp_path)
        await made.open()
        yield made
    finally:
        await memory.close()


def differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return what differs, shortened, for a message."""
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    return {name: (str(one.get(name))[:60], str(other.get(name))[:60]) for name in names[:8]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("has_git", [False, True])
async def test_what_a_command_destroys_in_any_spelling_comes_back(
    desk: Desk, *, has_git: bool
) -> None:
    furnish(desk.bench.workspace)
    if has_git:
        make_repository(desk.bench.workspace)
    before, rows = desk.everything(), Rows()
    spellings = IN_GIT if has_git else SPELLINGS
    for number, command in enumerate(spellings):
        with rows.row(command):
            try:
                aftermath = await desk.run(command)
                assert aftermath.changed, "the command changed nothing"
                assert not aftermath.uncovered, aftermath
                after = desk.everything()
                assert after != before
                told = await desk.undo()
                assert differing(desk.everything(), before) == {}, told
                if number % 5:
                    continue
                told = await desk.undo(redo=True)
                assert differing(desk.everything(), after) == {}, told
                told = await desk.undo()
                assert differing(desk.everything(), before) == {}, told
            finally:
                if desk.everything() != before:  # so that the next row begins as it should
                    shutil.rmtree(desk.bench.workspace)
                    desk.bench.workspace.mkdir()
                    furnish(desk.bench.workspace)
                    if has_git:
                        make_repository(desk.bench.workspace)
                    before = desk.everything()
    rows.check()
    assert len(SPELLINGS) >= 57


async def test_calls_of_one_file_by_tools_and_commands_are_taken_back_in_turn(desk: Desk) -> None:
    file = desk.bench.put("f", "first\n")
    await desk.tool("file_write", path="f", content="second\n")
    await desk.run("sed -i s/second/third/ f; echo x > made")
    await desk.tool("file_append", path="f", content="fourth\n")
    preview = await desk.bench.tool("undo").preview({"steps": 3}, desk.context())
    assert preview is not None
    assert [(each.path, each.is_removed, each.added, each.removed) for each in preview.diffs] == [
        ("f", False, 1, 2),
        ("made", True, 0, 1),
    ]
    context = msgspec.structs.replace(desk.context(), preview=preview)
    result = await desk.bench.tool("undo").invoke({"steps": 3}, context)
    assert result.success, result.error
    assert (file.read_text(), (desk.bench.workspace / "made").exists()) == ("first\n", False)


async def test_what_became_another_after_it_was_shown_is_left_alone(desk: Desk) -> None:
    for name in ("a", "b"):
        desk.bench.put(name, "before")
    await desk.run("rm a; echo other > b")
    preview = await desk.bench.tool("undo").preview({}, desk.context())
    await desk.run("echo third > b")
    context = msgspec.structs.replace(desk.context(), preview=preview)
    with_force = await desk.bench.tool("undo").invoke({"force": True, "steps": 2}, context)
    assert "not what it was when this change was shown" in with_force.error
    assert (desk.bench.workspace / "b").read_text() == "third\n"


async def test_one_call_is_named_by_its_receipt(desk: Desk) -> None:
    desk.bench.put("f", "1")
    await desk.run("rm f")
    first = f"rcp-{desk.calls}"
    await desk.run("echo g > g")
    assert await desk.undo(call=first) == "undone: f restored (1 B)"
    assert (desk.bench.workspace / "g").exists()
    await desk.run("echo h > h")
    with pytest.raises(ClawError, match="more than one call"):
        await desk.undo(call="rcp-")
    assert "can be undone" in await desk.undo(call="rcp-nobody")


async def test_what_a_person_did_since_is_named_and_left_alone(desk: Desk) -> None:
    here, rows = desk.bench.workspace, Rows()
    for command, act, reason in [
        ("rm f", "echo mine > f", "f: it was changed since"),
        ("echo x > f", "echo mine > f", "f: it was changed since"),
        ("echo x > f", "rm f", "f: it is gone"),
        ("mv f g", "mkdir f", "f: it was changed since"),
        ("rm f", "ln -s /etc/passwd f", "f: it was changed since"),
        ("chmod 600 f", "chmod 640 f", "f: it was changed since"),
        ("rm -r d", "ln -s /etc d", "d: it was changed since"),
        ("mkdir new", "rmdir new && touch new", "new: it was changed since"),
        ("mv f g", "mkfifo f", "f: it was changed since"),
    ]:
        with rows.row((command, act)):
            shutil.rmtree(here)
            here.mkdir()
            desk.bench.put("f", "first\n").chmod(0o644)
            desk.bench.put("d/in", "in d\n")
            await desk.run(command)
            subprocess.run(["bash", "-ec", act], cwd=here, check=True)
            before = desk.everything()
            told = await desk.undo()
            assert told.startswith(f"|nothing of this call is undone. {reason}"), told
            assert desk.everything() == before
            await desk.undo(force=True)
            assert not (here / "new").is_dir()
            if command != "mkdir new":
                assert (here / "f").read_text() == "first\n"
                assert (here / "d" / "in").read_text() == "in d\n"
                assert not (here / "d").is_symlink()
    rows.check()


async def test_an_index_that_git_status_refreshed_is_no_change_of_anybodys(desk: Desk) -> None:
    folder = desk.bench.workspace
    furnish(folder)
    make_repository(folder)

    def git(words: str) -> None:
        subprocess.run(["bash", "-ec", words], cwd=folder, env=ENVIRON, check=True)

    before = everything(folder)
    await desk.run("git commit -qm 'something else'")
    index = (folder / ".git" / "index").read_bytes()
    git("touch -d '2 days ago' README.md && git status -s >/dev/null")
    assert (folder / ".git" / "index").read_bytes() != index
    assert "undone: .git/index restored" in await desk.undo()
    assert everything(folder) == before
    # A commit of the person's is one.
    for command in ("git commit -qm another", "echo z > z.txt && git add z.txt"):
        await desk.run(command)
        git("echo mine >> mine.txt && git add -A && git commit -qm mine")
        assert ".git/index: it was changed since" in await desk.undo()


async def test_a_folder_that_somebody_put_something_into_stays(desk: Desk) -> None:
    await desk.run("mkdir -p new/deep && echo x > new/deep/f")
    desk.bench.put("new/mine", "a person's")
    told = await desk.undo()
    assert "new: the folder holds what did not come from there" in told
    assert [path.name for path in (desk.bench.workspace / "new").iterdir()] == ["mine"]


async def test_what_is_not_kept_is_said_and_never_made_up(desk: Desk) -> None:
    here, rows = desk.bench.workspace, Rows()
    for name, prepare, command, told in [
        ("ignored and large", "echo data/ > .gitignore; mkdir data; cd data; touch $(seq 1100)",
         "rm -rf data", "data/ was not kept (ignored and large)"),
        ("made anew", "mkdir node_modules; (cd node_modules; touch $(seq 1100))",
         "rm -rf node_modules", "node_modules/ was not kept (ignored and large)"),
        ("ignored and large file", "echo '*.bin' > .gitignore; head -c 1100000 /dev/zero > a.bin",
         "rm a.bin", "a.bin was not kept"),
        ("a new one", "echo 'out/' > .gitignore", "mkdir out; cd out; touch $(seq 1100)",
         "out/ is new and stays (ignored and large)"),
        ("no room", "head -c 300000 /dev/urandom > big; echo small > small",
         "rm big small", "big was not kept"),
        ("socket", BIND, "rm s", "s was not kept"),
    ]:  # fmt: skip
        with rows.row(name):
            shutil.rmtree(here)
            here.mkdir()
            desk.max_bytes = 250_000 if name == "no room" else 1 << 30
            subprocess.run(["bash", "-ec", prepare], cwd=here, check=True)
            aftermath = await desk.run(command)
            assert told in aftermath.uncovered, aftermath
            said = await desk.undo()
            assert "Traceback" not in said
            if name == "no room":
                assert "not kept, so left as it is: big" in said
                assert (here / "small").read_text() == "small\n"
    rows.check()


async def test_small_things_that_are_ignored_come_back(desk: Desk) -> None:
    desk.bench.put(".gitignore", "*.log\nbuild/\n")
    desk.bench.put("run.log", "a log")
    desk.bench.put("build/out/a.o", "an object")
    before = desk.everything()
    assert (await desk.run("rm -rf build run.log")).uncovered == ()
    await desk.undo()
    assert desk.everything() == before


async def test_thousands_of_files_come_back(desk: Desk) -> None:
    for number in range(3_000):
        desk.bench.put(f"d{number % 50}/f{number}", f"{number}\n")
    before = desk.everything()
    assert (await desk.run("rm -rf d?; for d in d*; do mv $d n$d; done")).changed > 3_000
    told = await desk.undo()
    assert "more files and folders" in told
    assert differing(desk.everything(), before) == {}


async def test_each_change_of_commands_side_by_side_counts_once(desk: Desk) -> None:
    desk.bench.put("a", "a")
    desk.bench.put("b/b", "b")
    before = desk.everything()
    facts = [call_facts(desk.context(), "shell") for _ in range(2)]
    one = await desk.snapshots.enter(facts[0])
    (desk.bench.workspace / "a").write_text("by the first")
    two = await desk.snapshots.enter(facts[1])
    assert one is not None
    assert two is not None
    (desk.bench.workspace / "b" / "b").unlink()
    (desk.bench.workspace / "b").rmdir()
    assert (await desk.snapshots.leave(two)).changed == 2
    (desk.bench.workspace / "c").write_text("c")
    assert (await desk.snapshots.leave(one)).changed == 2
    assert "a restored" in await desk.undo()
    assert "b restored (folder)" in await desk.undo()
    assert desk.everything() == before


async def test_a_new_start_reads_again_only_what_was_changed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(desk.bench.workspace)
    await desk.run("echo x > x; sleep 0.1")
    await desk.run("true")  # what had just been written is settled now
    await desk.snapshots.close()
    kept: list[int] = []
    put = Blobs.put

    def counted(self: Blobs, file: int, size: int) -> str:
        kept.append(size)
        return put(self, file, size)

    monkeypatch.setattr(Blobs, "put", counted)
    await desk.open()
    (desk.bench.workspace / "README.md").write_text("another\n")
    before = desk.everything()
    await desk.run("rm -r README.md src")
    assert kept == [8]
    await desk.undo()
    assert desk.everything() == before


async def test_contents_that_nothing_names_are_removed_and_all_others_stay(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawd.memory.blobs._SPARED_S", 0.0)
    desk.bench.put("f", "first")
    await desk.run("echo second > f")
    await desk.undo()
    await desk.run("echo third > f")
    await desk.snapshots.close()
    contents = {path.read_text() for path in desk.base.glob("snapshots/blobs/*/*")}
    assert contents == {"first", "second\n", "third\n"}
    memory = desk.bench.changes["changes"]
    for group in await memory.listed(_scope(desk), calls=9, reverting=True):
        await asyncio.to_thread(memory.drop, *(each.number for each in group))
    await desk.open()
    await desk.run("true")
    contents = {path.read_text() for path in desk.base.glob("snapshots/blobs/*/*")}
    assert contents == {"first", "third\n"}
    assert await desk.undo() == "undone: f restored (5 B)"


async def test_a_kept_content_that_was_damaged_is_never_written(desk: Desk) -> None:
    desk.bench.put("a", "a's content")
    desk.bench.put("b", "b")
    await desk.run("rm a b")
    for blob in desk.base.glob("snapshots/blobs/*/*"):
        if blob.read_text() == "a's content":
            blob.write_text("b's content")
    told = await desk.undo()
    assert "a: what was kept of a is damaged" in told
    assert not (desk.bench.workspace / "a").exists()
    assert (desk.bench.workspace / "b").read_text() == "b"
    assert sorted(path.name for path in desk.bench.workspace.iterdir()) == ["b"]


async def test_no_look_follows_a_link_that_is_put_in_the_place_of_a_folder(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("a secret")
    desk.bench.put("d/secret", "x")
    await desk.run("rm -r d && ln -s ../outside d")
    contents = {path.read_text() for path in desk.base.glob("snapshots/blobs/*/*")}
    assert "a secret" not in contents
    await desk.undo()
    assert (desk.bench.workspace / "d" / "secret").read_text() == "x"
    assert (tmp_path / "outside" / "secret").read_text() == "a secret"


async def test_a_workspace_that_is_too_much_says_so_and_the_command_runs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawd.security.snapshot.MAX_ENTRIES", 5)
    for number in range(9):
        desk.bench.put(f"f{number}", "x")
    aftermath = await desk.run("rm f1")
    assert aftermath.uncovered == ("it holds more than 5 files and folders",)
    assert "can be undone" in await desk.undo()


def _scope(desk: Desk) -> ChangeScope:
    return ChangeScope(owner=1000, workspace=str(desk.bench.workspace), conversation_id="c1")
