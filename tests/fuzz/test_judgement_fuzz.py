"""What the judgement of shell commands calls plain really is plain: it is run, and looked at."""

import asyncio
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clawd.security.command import MAX_COMMAND_BYTES, assess
from clawd.security.policy import PolicySettings
from clawd.security.risk import Assessment
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.security.shell_paths import files_read
from clawd.security.shell_script import MAX_PARSED_BYTES
from tests.support.rows import each_row
from tests.support.shell_grammar import ACTORS, FRAMES, JOINS, OPERANDS, READERS, Grammar

# More for a campaign: CLAWD_FUZZ_COMMANDS=200000 CLAWD_FUZZ_SEED=7
COMMANDS = int(os.environ.get("CLAWD_FUZZ_COMMANDS", "2500"))
SEED = int(os.environ.get("CLAWD_FUZZ_SEED", "20261121"))
BATCH = 150
POLICY = PolicySettings()
_MARK = "\x1e"
_DRIVER = (
    "while IFS= read -r -d '' c; do printf '\\036'; "
    'timeout -s KILL 3 bash --noprofile --norc -c "$c" </dev/null 2>&1 | head -c 20000; done'
)


def judged(command: str, workspace: Path = Path("/home/ada/work")) -> Assessment:
    return assess(command, POLICY, workspace=workspace, home=Path("/home/ada"))


PIECES = st.sampled_from(
    [*READERS, *ACTORS, *FRAMES, *OPERANDS, *JOINS, "{", "\0", "\ud800", "\x1b"]
)


@example("|" * 5000)
@example("(" * 3000)
@example("{a,b}" * 30)
@example("$(" * 2000)
@example("<<a" * 3000)
@example("`" * 20_000)
@example("a\\\n" * 15_000)
@example("env " * 15_000)
@example("sudo sh -c '" * 20)
@example("if " * 5000)
@example("x=" * 20_000)
@example("[[ " * 5000)
@example("case x in " * 3000)
@example("${" * 10_000)
@example("$((" * 5000)
@example("find -exec " * 5000)
@example("漢" * 5000 + "{")
@settings(deadline=None, max_examples=60)
@given(st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=40).map(" ".join)))
def test_whatever_is_judged_is_judged(command: str) -> None:
    found = judged(command)
    assert found.risk != "low"
    assert not found.blocked or found.risk == "high"
    assert found == judged(command)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_judged(data: bytes) -> None:
    assert judged(data.decode("utf-8", "surrogateescape")).risk in {"medium", "high"}
    assert judged(data.decode("latin-1")).risk in {"medium", "high"}


WORST = ("-|", "<<=(", "?a", ")*", "@1", ">", "[a]*", "<<a\n", "((=", "$)", "a=b ", "漢{", "x;")


@each_row("size", [MAX_PARSED_BYTES, MAX_COMMAND_BYTES])
@each_row("piece", WORST)
def test_what_is_worst_for_the_grammar_is_judged(piece: str, size: int) -> None:
    """The parser's time grows with the square of some errors: the limit on its input must hold."""
    text = (piece * size).encode()[:size].decode("utf-8", "ignore")
    found = judged(text)
    assert found.risk == "high"
    assert not (size == MAX_COMMAND_BYTES and not found.blocked)


def test_a_long_here_document_is_judged_by_what_is_around_it() -> None:
    body = "<li>it's [1] | $HOME</li>\n" * 1000
    assert judged(f"cat > a.html <<'EOF'\n{body}EOF\n").blocked == ""
    assert "rm" in judged(f"cat > a.html <<'EOF'\n{body}EOF\nrm -rf *").blocked
    for unsure in (
        f"cat > a.html <<EOF\n{body}EOF\n", f"echo '<<EOF\n{body}EOF\n'", f"cat <<'EOF'\n{body}",
        f"bash <<'EOF'\n{body}EOF\n", f"echo $((1<<EOF\n{body}EOF\n", f"# <<'EOF'\n{body}EOF\n",
    ):  # fmt: skip
        assert "too long" in judged(unsure).blocked, unsure[:20]


# --- what is called plain is run


class Ground:
    """A workspace full of traps, and a folder outside that can be read."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.outside = folder / "work", folder / "outside"
        for path, text in {
            self.workspace / "a.txt": "TOKEN-a a\n",
            self.workspace / "b.txt": "TOKEN-b b\n",
            self.workspace / "sub/c.txt": "TOKEN-c c\n",
            self.workspace / "list": "a.txt\0sub/c.txt\0OUT/secret.txt\0b.txt\n",
            self.workspace / "x.sh": "#!/bin/sh\n/usr/bin/touch RAN\n",
            self.workspace / "cat": "#!/bin/sh\n/usr/bin/touch RAN\n",
            self.workspace / "-oRAN": "TOKEN-o\n",
            self.workspace / "-delete": "TOKEN-delete\n",
            self.outside / "secret.txt": "TOKEN-outside\n",
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("OUT", str(self.outside)))
        for name in ("x.sh", "cat"):
            (self.workspace / name).chmod(0o755)
        self._commit()
        self.before = self.tree()
        self._sandbox = Sandbox(SandboxSettings(home=None))

    def _commit(self) -> None:
        """Make a repository of it, where git is installed."""
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        for words in (
            ("init", "-q", "-b", "main"),
            ("add", "."),
            (*identity, "commit", "-qm", "x"),
        ):
            try:
                subprocess.run(
                    ["git", *words], cwd=self.workspace, check=True, env={"PATH": "/usr/bin"}
                )
            except FileNotFoundError:
                return

    def tree(self) -> dict[str, str]:
        """Return what is there: kinds, modes, contents. What git caches does not count."""
        found: dict[str, str] = {}
        for path in sorted(self.workspace.rglob("*")):
            name = str(path.relative_to(self.workspace))
            if name == ".git/index":
                continue
            content = path.read_bytes() if path.is_file() else b""
            mode = path.lstat().st_mode
            found[name] = f"{mode:o} {hashlib.sha256(content).hexdigest()}"
        return found

    async def outputs(self, commands: list[str]) -> list[str]:
        """Run them one after another in one sandbox; return what each printed."""
        result = await self._sandbox.run(
            ChildCommand(
                argv=("bash", "--noprofile", "--norc", "-c", _DRIVER),
                workspace=self.workspace,
                readonly_paths=(self.outside,),
                stdin="\0".join([*commands, ""]).encode("utf-8", "surrogateescape"),
                timeout_s=100,
                max_output_bytes=1 << 26,
            )
        )
        assert result.exit_code == 0, result.output
        return result.output.split(_MARK)[1:]

    async def culprits(self, commands: list[str]) -> list[str]:
        """Return which of them change something, one at a time."""
        found = []
        for command in commands:
            before = self.tree()
            await self.outputs([command])
            if self.tree() != before:
                found.append(command)
        return found


def plain_commands(ground: Ground) -> Iterator[str]:
    """Yield the generated commands that are called plain, each once."""
    grammar = Grammar(SEED, ground.outside)
    seen: set[str] = set()
    for _ in range(COMMANDS):
        command = grammar.command()
        if command in seen or "\0" in command:
            continue
        seen.add(command)
        found = assess(command, POLICY, workspace=ground.workspace, home=Path("/home/ada"))
        if found.risk == "medium" and not found.blocked:
            yield command


def check_reads(ground: Ground, command: str, output: str) -> None:
    """Whose text was shown must be among what the command is said to read."""
    assert "TOKEN-outside" not in output, command
    named = files_read(command, ground.workspace)
    if named is None:
        return
    files = {"TOKEN-a": "a.txt", "TOKEN-b": "b.txt", "TOKEN-c": "sub/c.txt"}
    for token, name in files.items():
        path = ground.workspace / name
        reads = [Path(os.path.normpath(each)) for each in named]
        is_told = any(each == path or each in path.parents for each in reads)
        assert is_told or token not in output, (command, named)


@pytest.mark.sandbox
@pytest.mark.timeout(1200)
async def test_what_is_called_plain_changes_nothing_and_reads_what_it_names(tmp_path: Path) -> None:
    ground = await asyncio.to_thread(Ground, tmp_path)
    commands = list(plain_commands(ground))
    assert len(commands) > COMMANDS // 60
    for start in range(0, len(commands), BATCH):
        batch = commands[start : start + BATCH]
        outputs = await ground.outputs(batch)
        if ground.tree() != ground.before:
            fresh = await asyncio.to_thread(Ground, tmp_path / f"again-{start}")
            again = [
                command.replace(str(tmp_path), str(fresh.workspace.parent)) for command in batch
            ]
            pytest.fail(f"called plain, and yet: {await fresh.culprits(again)}")
        assert len(outputs) == len(batch)
        for command, output in zip(batch, outputs, strict=True):
            check_reads(ground, command, output)


@pytest.mark.sandbox
async def test_the_ground_bites(tmp_path: Path) -> None:
    """Commands that are not plain do leave traces here, so that plain ones would as well."""
    ground = await asyncio.to_thread(Ground, tmp_path)
    commands = [
        "PATH=.; cat",
        "touch RAN1",
        "sort -[o]* a.txt",
        "rm RAN; ./x.sh",
        "sort -o a.txt b.txt",
        "echo x > RAN2",
    ]
    commands += ["git branch other"]
    outputs = await ground.outputs([f"cat {ground.outside}/secret.txt", "cat a.txt"])
    assert [text.strip() for text in outputs] == ["TOKEN-outside", "TOKEN-a a"]
    for command in commands:
        assert judged(command).risk == "high", command
    assert await ground.culprits(commands) == commands
