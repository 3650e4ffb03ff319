"""The shell tool over a real sandbox."""

import asyncio
import subprocess

import pytest

from clawd.security.policy import PolicySettings
from tests.support.rows import each_row
from tests.support.time_limits import TimeLimit
from tests.tools.builtin.conftest import Bench

pytestmark = pytest.mark.sandbox


async def test_a_command_answers_what_it_prints(bench: Bench) -> None:
    bench.put("a.txt", "hello\n")
    result = await bench.call("shell", command="cat a.txt; echo bye >&2")
    assert (result.success, result.output) == (True, "hello\nbye")
    assert result.metadata["exit_code"] == 0
    assert result.metadata["sandbox"] == "bwrap"
    assert "".join(bench.reported) == "hello\nbye\n"
    assert (await bench.call("shell", command="true")).output == "(no output)"


async def test_a_failure_tells_the_code_and_keeps_the_output(bench: Bench) -> None:
    result = await bench.call("shell", command="echo before; exit 3")
    assert (result.success, result.error) == (False, "The command exited with code 3")
    assert (result.output, result.metadata["exit_code"]) == ("before", 3)
    missing = await bench.call("shell", command="no-such-program")
    assert missing.error == "The command exited with code 127 (there is no such command)"
    killed = await bench.call("shell", command="kill -9 $$")
    assert killed.error == "The command exited with code 137 (ended by signal 9)"


async def test_a_command_that_takes_too_long_is_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = TimeLimit(monkeypatch)
    bench.heard = limit.is_over_at("begun")
    result = await bench.call("shell", command="echo begun; sleep 300", timeout_s="271.25")
    assert result.error == "The command was ended after 271.25 s"
    assert (result.output, result.metadata["timed_out"]) == ("begun", True)
    bench.changes = {"shell_timeout_s": 0.3}
    assert not (await bench.call("shell", command="sleep 300")).success


async def test_much_output_is_cut_and_said_to_be(bench: Bench) -> None:
    bench.changes = {"max_shell_output_bytes": 100}
    result = await bench.call("shell", command="head -c 1000 /dev/zero | tr '\\0' x")
    assert result.output == "x" * 100 + "\n[cut: 900 of 1000 bytes left out]"
    assert result.metadata["truncated"] is True


async def test_what_is_judged_to_read_only_cannot_write_even_by_a_name_that_is_an_option(
    bench: Bench,
) -> None:
    bench.policy = PolicySettings()
    bench.put("-oout", "")
    bench.put("a.txt", "b\na\n")
    await bench.sandbox.probe()
    assert bench.risk("shell", command="sort *").risk == "low"
    result = await bench.call("shell", command="sort *")
    assert not result.success
    assert "Read-only file system" in result.output
    assert sorted(path.name for path in bench.workspace.iterdir()) == ["-oout", "a.txt"]
    assert (await bench.call("shell", command="echo x > b && cat b")).output == "x"
    assert (await bench.call("shell", command="sort -r a.txt > /tmp/b; cat /tmp/b")).success


async def test_the_shell_cannot_reach_beyond_the_workspace(bench: Bench) -> None:
    (bench.home / "key").write_text("secret")
    bench.put("keys/id", "private")
    result = await bench.call("shell", command=f"cat {bench.home}/key; ls {bench.home}")
    assert "secret" not in result.output
    assert not result.success


async def test_cancelling_ends_the_command(bench: Bench) -> None:
    await bench.sandbox.probe()
    task = asyncio.create_task(bench.call("shell", command="touch begun; sleep 300; touch ended"))
    async with asyncio.timeout(60):
        while not (bench.workspace / "begun").exists():
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (bench.workspace / "ended").exists()


@each_row(
    ("command", "blocked"),
    [("ls -la", False), ("rm -rf /", True), ("cat /etc/passwd", True), ("cat ../x", True)],
    fresh=["bench"],
)
def test_the_risk_is_that_of_the_command(bench: Bench, command: str, blocked: bool) -> None:
    assert bool(bench.risk("shell", command=command).blocked) is blocked


async def test_what_would_run_outside_later_is_quarantine_and_told(bench: Bench) -> None:
    result = await bench.call("shell", command="echo done; touch conftest.py")
    assert not result.success
    assert result.output == "done"
    assert "renamed to NAME.clawd-held: conftest.py." in result.error
    assert result.metadata["put_aside"] == ["conftest.py"]
    assert (bench.workspace / "conftest.py.clawd-held").exists()
    both = await bench.call("shell", command="touch .envrc; exit 3")
    assert both.error.startswith("The command exited with code 3. Files that")


async def test_a_guarded_file_that_cannot_be_moved_or_removed_is_explained(bench: Bench) -> None:
    bench.put("conftest.py", "a = 1\n")
    subprocess.run(["git", "init", "-q", "."], cwd=bench.workspace, check=True)
    subprocess.run(["git", "add", "conftest.py"], cwd=bench.workspace, check=True)
    unexplained = []
    for command in ("git rm -qf conftest.py", "git mv conftest.py b.py", "mv conftest.py b.py",
                    "sed -i s/1/2/ conftest.py", "cp /dev/null conftest.py"):  # fmt: skip
        result = await bench.call("shell", command=command)
        if result.success or "[read-only for commands is what programs" not in result.output:
            unexplained.append((command, result.output))
    assert unexplained == []
    assert (bench.workspace / "conftest.py").read_text() == "a = 1\n"
    others = await bench.call("shell", command="ls nothing")
    assert "read-only for commands" not in others.output


async def test_what_a_model_put_into_the_index_comes_out_by_no_rule(bench: Bench) -> None:
    await bench.sandbox.probe()
    subprocess.run(["git", "init", "-q", "."], cwd=bench.workspace, check=True)
    prepare = (
        "git update-index --add --cacheinfo "
        "100644,$(echo ./evil | git hash-object -w --stdin),.envrc"
    )
    assert (await bench.call("shell", command=prepare)).success
    bench.is_answered = True
    both = await bench.call("shell", command=f"{prepare} && git checkout -- .envrc")
    assert both.metadata["put_aside"] == [".envrc"], "with a yes, too, where it does more"
    bench.is_answered = False
    alone = await bench.call("shell", command="git checkout -- .envrc")
    assert alone.metadata["put_aside"] == [".envrc"]
    for command in ("git checkout .", "git restore .envrc"):
        told = await bench.tool("shell").preview({"command": command}, bench.context())
        assert told is not None
        assert told.losses == ("it may bring .envrc, which programs outside run later",)
    assert not (bench.workspace / ".envrc").exists()


async def test_a_guarded_file_that_git_cannot_replace_is_explained(bench: Bench) -> None:
    await bench.sandbox.probe()
    git = ("git", "-C", str(bench.workspace), "-c", "user.name=U", "-c", "user.email=u@example.org")

    def run(*words: str) -> None:
        subprocess.run([*git, *words], check=True, capture_output=True)

    run("init", "-q", "-b", "main")
    for branch, text in (("main", "a = 1\n"), ("other", "a = 2\n")):
        if branch == "other":
            run("switch", "-qc", branch)
        bench.put("conftest.py", text)
        run("add", "-A")
        run("commit", "-qm", branch)
    result = await bench.call("shell", command="git switch main")
    assert "Switched to branch 'main'" in result.output
    assert "[git left conftest.py as before: programs outside the sandbox run" in result.output
    assert "file_write does when a person says yes" in result.output
    assert bench.risk("file_write", path="conftest.py", content="a = 1\n").risk == "medium"
    assert (bench.workspace / "conftest.py").read_text() == "a = 2\n"
    shell = bench.tool("shell")
    told = {}
    for command in ("git switch other", "git merge -q other && ls", "git restore conftest.py",
                    "git stash", "git switch -c new", "git switch other && make"):  # fmt: skip
        preview = await shell.preview({"command": command}, bench.context())
        told[command] = preview.losses if preview else ()
    brings = ("it may bring conftest.py, which programs outside run later",)
    assert list(told.values()) == [brings] * 4 + [()] * 2, told
    # A person said yes to this very call, which said what it brings.
    assert "programs outside may run what" in bench.risk("shell", command="git switch main").reason
    bench.is_answered = True
    brought = await bench.call("shell", command="git restore . && git switch other")
    assert brought.success, brought
    assert "git left" not in brought.output
    again = await bench.call("shell", command="git switch main")
    assert again.success, again
    assert (bench.workspace / "conftest.py").read_text() == "a = 1\n"
