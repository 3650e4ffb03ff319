"""Rules by patterns: what they cover, what they never cover, and how they are granted."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from clawd.errors import InvalidRequestError
from clawd.security.approval_rules import matches_file
from clawd.security.approvals import Answer, ApprovalQuestion, Approvals, PendingApproval
from clawd.security.command import Wall, assess
from clawd.security.policy import Allow, Ask, Deny, PolicySettings
from clawd.security.risk import Action
from tests.security import fakes
from tests.security.test_gate import World
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench as Tools

WALL = Wall(own=("/tmp",), shown=("/usr",))


def shell(command: str, **changes: object) -> Action:
    action = fakes.action(tool="shell", arguments={"command": command})
    assessment = assess(
        command, PolicySettings(), workspace=action.workspace, home=Path("/home/ada"), wall=WALL
    )
    return msgspec.structs.replace(action, assessment=assessment, outward=False, **changes)


async def answered(
    world: World, action: Action, answer: Answer, *, in_view_of: tuple[str, ...] = ()
) -> PendingApproval:
    """Ask about a call and answer; returns what was shown."""
    shown: list[PendingApproval] = []
    approvals = Approvals(world.rules, estop=fakes.Stop())

    async def deliver(pending: PendingApproval) -> bool:
        shown.append(pending)
        approvals.answer(pending.id, answer, fakes.ADA, digest=pending.digest)
        return True

    question = ApprovalQuestion(action=action, reason="asks", in_view_of=in_view_of)
    async with asyncio.timeout(60):
        assert (await approvals.ask(question, deliver=deliver)).granted
    return shown[0]


async def grant(world: World, pattern: str, **changes: object) -> None:
    wanted = {"verdict": "allow", "workspace": "", "conversation_id": "", "days": 0, **changes}
    await Approvals(world.rules, estop=fakes.Stop()).grant(pattern, fakes.ADA, **wanted)  # type: ignore[arg-type]


def verdict(world: World, command: str, **changes: object) -> str:
    return type(world.gate.review(shell(command, **changes))).__name__.lower()


@each_row(
    ("asked", "pattern", "similar"),
    [
        ("pytest -q", "pytest *", "cd src && pytest tests -x | tail -5"),
        ("git commit -m a", "git commit *", "git commit --amend -m 'b c'"),
        ("npm run build", "npm run build *", "NODE_ENV=x npm run build -- --watch"),
        ("python -m pytest a", "python -m pytest *", "timeout 60 python -m pytest b"),
        ("python3 gen.py 1", "python3 gen.py *", "python3 gen.py 2"),
        ("terraform plan", "terraform *", "terraform apply -auto-approve"),
        ("git add -A && git commit -m a", "git add *, git commit *", "git commit -m b"),
        ("make -j4 > log", "make *, > /home/ada/w/log", "make all > log"),
        ("for f in a b; do cp $f d; done", "cp *", "cp a b"),
    ],
)
async def test_p1_a_rule_covers_the_next_similar_call_and_says_so_before(
    asked: str, pattern: str, similar: str
) -> None:
    world = World()
    assert verdict(world, similar) in {"ask", "deny"}
    shown = await answered(world, shell(asked), "project")
    assert shown.rule == f"shell {pattern} in /home/ada/w"
    found = world.gate.review(shell(similar))
    assert isinstance(found, Allow), found
    [rule] = world.rules.rules(fakes.ADA)
    assert found.rule_id == rule.id
    assert found.rule == f"rule {rule.id}: {shown.rule}"
    assert rule.receipt_id


@each_row(
    ("pattern", "command"),
    [
        ("git commit *", "git commit -m x && terraform apply"),
        ("git commit *", "git commit -m x; git push"),
        ("git commit *", "git commit -m $(terraform x)"),
        ("git commit *", "git commit -m x > log"),
        ("git commit *", "git commit -m x > ../log"),
        ("git commit *", "git -c core.editor=./x commit"),
        ("git commit *", "git -C sub commit"),
        ("git commit *", "PATH=. git commit"),
        ("git commit *", "git commit -F /etc/passwd"),
        ("git *", "git push --force origin main"),
        ("pytest *", "./pytest"),
        ("pytest *", "bash pytest"),
        ("pytest *", "pytest -q; rm x"),
        ("pytest *", "pytest <(terraform x)"),
        ("pytest *", "$x pytest"),
        ("pytest *", "f() { pytest; }; f"),
        ("npm run build *", "npm run $x"),
        ("npm run build", "npm run build --x"),
        ("rm *", "rm x"),
        ("terraform plan *", "terraform apply"),
        ("terraform plan *", "terraform"),
        ("> log", "echo x > log2"),
        ("*", "terraform x"),
    ],
)
async def test_a_rule_never_covers_more_than_its_words(pattern: str, command: str) -> None:
    world = World()
    try:
        await grant(world, pattern)
    except InvalidRequestError:
        assert pattern in {"> log", "*"}
    assert verdict(world, command) in {"ask", "deny"}


async def test_rules_cover_a_compound_together() -> None:
    world = World()
    await grant(world, "git add *")
    assert verdict(world, "git add -A && git commit -m x") == "ask"
    await grant(world, "git commit *")
    assert verdict(world, "git add -A && git commit -m x && git status") == "allow"


async def test_a_rule_granted_at_medium_does_not_cover_the_same_command_at_high() -> None:
    world = World()
    await answered(world, shell("tar xf a.tar"), "project")
    assert verdict(world, "tar xf b.tar") == "allow"
    assert verdict(world, "tar --to-command=./x -xf b.tar") == "deny"


async def test_where_a_rule_holds_is_what_was_answered() -> None:
    elsewhere = {"workspace": Path("/home/ada/other")}
    for answer, here, there in (
        ("once", "ask", "ask"),
        ("conversation", "allow", "ask"),
        ("project", "allow", "ask"),
        ("always", "allow", "allow"),
    ):
        world = World()
        await answered(world, shell("pytest"), answer)  # type: ignore[arg-type]
        assert verdict(world, "pytest -x") == here, answer
        assert verdict(world, "pytest -x", **elsewhere) == there, answer
        other = verdict(world, "pytest", conversation_id="another")
        assert other == ("ask" if answer in {"once", "conversation"} else "allow"), answer


async def test_a_rule_that_refuses_wins_and_reaches_what_only_reads() -> None:
    world = World()
    await grant(world, "git *")
    await grant(world, "git log *", verdict="deny", workspace="/home/ada/w")
    assert verdict(world, "git commit -m x") == "allow"
    refused = world.gate.review(shell("ls && git log -1"))
    assert isinstance(refused, Deny)
    assert "git log *" in refused.reason
    assert refused.hint.startswith("clawctl approval revoke rule-")


async def test_in_a_conversation_with_untrusted_text_patterns_cover_nothing() -> None:
    world = World()
    await grant(world, "pytest *")
    world.taint.mark(shell("pytest").conversation_id, "web_fetch example.org")
    assert verdict(world, "pytest") == "ask"
    assert verdict(world, "ls") == "allow"


@each_row("command", ["pytest -q", "terraform plan"])
async def test_a_rule_given_in_view_of_untrusted_text_covers_until_another_source_comes(
    command: str,
) -> None:
    world = World()
    conversation = shell(command).conversation_id
    world.taint.mark(conversation, "host a.example.org:443")
    asked = world.gate.review(shell(command))
    assert isinstance(asked, Ask | Deny)
    assert (asked.tainted_by, asked.in_view_of) == ((), ("host a.example.org:443",))
    await answered(world, shell(command), "project", in_view_of=asked.in_view_of)
    assert verdict(world, command) == "allow"
    world.taint.mark(conversation, "host b.example.org:443")
    assert verdict(world, command) in {"ask", "deny"}


async def test_what_fills_an_environment_counts_once_where_untrusted_text_is() -> None:
    world = World()
    install = shell(".venv/bin/pip install x")
    install = msgspec.structs.replace(install, outward=install.assessment.outward)
    world.taint.mark(install.conversation_id, "host a.example.org:443")
    asked = world.gate.review(install)
    assert isinstance(asked, Deny)
    assert (asked.may_ask, asked.tainted_by) == (True, ("host a.example.org:443",))


async def test_a_rule_ends_and_is_revoked() -> None:
    world, clock = World(), fakes.Clock()
    world.rules.now = clock
    await grant(world, "pytest *", days=3)
    assert verdict(world, "pytest") == "allow"
    clock.advance(days=4)
    assert verdict(world, "pytest") == "ask"
    await grant(world, "pytest *")
    [rule] = world.rules.rules(fakes.ADA)
    await world.rules.revoke(rule.id, fakes.ADA)
    assert verdict(world, "pytest") == "ask"


@each_row("pattern", ["", "*", "$x *", "a\nb", "bash *", "sudo *", "> x", "x" * 300, "'git' *"])
async def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequestError):
        await grant(World(), pattern)


def test_what_is_on_no_list_may_be_asked_and_names_a_line_that_can_be_pasted() -> None:
    refused = World().gate.review(shell("terraform plan"))
    assert refused == Deny(
        reason="supervised refuses high risk: `terraform` is not on the list of this project",
        hint="clawctl policy allow 'terraform *' --project",
        rule_may_allow=True,
        may_ask=True,
    )
    for command in ("rm x", "git push -f origin main", "cat /etc/passwd"):
        blocked = World().gate.review(shell(command))
        assert isinstance(blocked, Deny)
        assert not blocked.may_ask
    readonly = World(PolicySettings(autonomy="readonly")).gate.review(shell("terraform plan"))
    assert isinstance(readonly, Deny)
    assert not readonly.may_ask
    for command in ("terraform plan", "f() { ls; }; f", "PATH=. ls", "pytest"):
        found = World().gate.review(shell(command))
        assert 'autonomy = "full"' not in (found.hint if isinstance(found, Deny) else "")
    assert isinstance(World().gate.review(shell("pytest")), Ask)


class Files:
    """Calls of file tools in a workspace with links, and what the gate says to them."""

    def __init__(self, base: Path) -> None:
        self.tools = Tools(base.resolve())
        self.world = World()
        (self.tools.workspace / "src/deep").mkdir(parents=True)
        (self.tools.workspace / "docs").mkdir()
        (base / "outside").mkdir()
        for name, leads in (
            ("src/to_docs", "../docs"),
            ("src/away", str(base / "outside")),
            ("docs/to_src", "../src"),
            ("src/settings", "../.vscode"),
        ):
            (self.tools.workspace / name).symlink_to(leads)

    def action(self, path: str, tool: str = "file_write") -> Action:
        values: dict[str, object] = {"path": path, "content": "x"}
        if tool == "file_edit":
            values = {"path": path, "new_text": "x", "old_text": "y"}
        elif tool == "fs_ops":
            wanted = [{"op": "write", "path": each, "content": "x"} for each in path.split()]
            values = {"operations": wanted}
        assessment = self.tools.tool(tool).risk(values, self.tools.context())
        return fakes.action(
            tool=tool,
            arguments=values,
            assessment=assessment,
            workspace=self.tools.workspace,
            outward=assessment.outward,
        )

    def verdict(self, path: str, tool: str = "file_write") -> str:
        return type(self.world.gate.review(self.action(path, tool))).__name__.lower()

    async def grant(self, pattern: str, **changes: object) -> None:
        await grant(self.world, pattern, **{"workspace": str(self.tools.workspace), **changes})


@each_row(
    ("asked", "pattern", "similar", "others"),
    [
        ("src/app.py", "src/**", "src/deep/b.py", "docs/a.md"),
        ("src/deep/b.py", "src/deep/**", "src/deep/new/c.py", "src/app.py"),
        ("./docs/../src/app.py", "src/**", "src/b.py", "docs/../a.py"),
        ("docs/to_src/app.py", "src/**", "src/b.py", "docs/b.py"),
        ("notes.md", "notes.md", "./notes.md", "notes.txt"),
        ("src/.hidden", "src/.hidden", "src/./.hidden", "src/.other"),
        ("pages/[id]/page.ts", "pages/[[]id]/**", "pages/[id]/b.ts", "pages/i/page.ts"),
        ("src/a.py src/b.py", "src/**", "src/c.py src/deep/d.py", "src/c.py docs/a.md"),
    ],
)
async def test_a_rule_for_a_write_covers_its_folder_and_says_so_before(
    asked: str, pattern: str, similar: str, others: str, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    tool = "fs_ops" if " " in asked else "file_write"
    shown = await answered(files.world, files.action(asked, tool), "project")
    assert shown.rule == f"file_write {pattern} in {files.tools.workspace}"
    found = files.world.gate.review(files.action(similar, tool))
    assert isinstance(found, Allow), found
    [rule] = files.world.rules.rules(fakes.ADA)
    assert found.rule == f"rule {rule.id}: {shown.rule}", "a receipt names it so"
    assert files.verdict(others, tool) == "ask"
    if tool == "file_write":
        for other in ("file_edit", "file_append"):
            assert files.verdict(similar, other) == "allow", other


async def test_always_for_a_write_is_for_its_project_alone(tmp_path: Path) -> None:
    files = Files(tmp_path)
    await answered(files.world, files.action("src/app.py"), "always")
    [rule] = files.world.rules.rules(fakes.ADA)
    assert rule.workspace == str(files.tools.workspace)


async def test_no_pattern_covers_a_write_that_is_guarded_or_leads_elsewhere(
    tmp_path: Path,
) -> None:
    files = Files(tmp_path)
    for pattern in ("**", "*", "src/**", ".*/**", "src/*/**", ".vscode/**", "**/.git/**"):
        await files.grant(f"file_write {pattern}")
    assert files.verdict("src/deep/a.py") == "allow"
    asked = {
        *("conftest.py", "src/deep/conftest.py", ".git/config", "src/.git/hooks/pre-commit"),
        *(".vscode/tasks.json", "src/settings/tasks.json", ".bashrc", "src/.envrc", "AGENTS.md"),
        *(".venv/bin/python", "src/.npmrc", "src/.prettierrc.js", "src/to_docs/.vimrc"),
        "docs/.hidden",
    }
    refused = {
        *("../a.py", "src/../../a.py", "src/away/a.py", "/etc/passwd", "keys/id", "src/../keys/a"),
        *("~/a.py", str(tmp_path / "outside" / "b")),
    }
    wrong = {path: found for path in asked if (found := files.verdict(path)) != "ask"}
    wrong |= {path: found for path in refused if (found := files.verdict(path)) != "deny"}
    assert wrong == {}
    offered = [path for path in asked if files.action(path).assessment.patterns]
    assert offered == ["docs/.hidden"], "just that file"
    assert files.verdict("src/a.py src/conftest.py", "fs_ops") == "ask"
    assert files.verdict("src/a.py ../b", "fs_ops") == "deny"


async def test_a_link_that_comes_later_takes_nothing_along(tmp_path: Path) -> None:
    files = Files(tmp_path)
    await files.grant("file_write src/**")
    assert files.verdict("src/deep/a.md") == "allow"
    (files.tools.workspace / "src/deep").rmdir()
    (files.tools.workspace / "src/deep").symlink_to("../docs")
    assert files.verdict("src/deep/a.md") == "ask"


async def test_a_rule_that_refuses_writes_refuses_hidden_and_guarded_ones_too(
    tmp_path: Path,
) -> None:
    files = Files(tmp_path)
    await files.grant("file_write **")
    await files.grant("file_write docs/**", verdict="deny")
    rows = {
        "src/a.py": "allow",
        "docs/a.md": "deny",
        "docs/.hidden": "deny",
        "docs/conftest.py": "deny",
        "src/to_docs/a.md": "deny",
    }
    assert {path: files.verdict(path) for path in rows} == rows
    assert files.verdict("src/a.py docs/a.md", "fs_ops") == "deny"
    refused = files.world.gate.review(files.action("docs/a.md", "file_edit"))
    assert isinstance(refused, Deny)
    assert "never file_write docs/** in " in refused.reason


async def test_a_pattern_of_files_that_is_none_is_refused() -> None:
    for pattern in ("", "/etc/**", "~/x", "../x", "a/../b", "a//b", "./a", "a\nb", "x" * 300):
        with pytest.raises(InvalidRequestError):
            await grant(World(), f"file_write {pattern}", workspace="/home/ada/w")
    with pytest.raises(InvalidRequestError, match="every project; add --project"):
        await grant(World(), "file_write **")
    await grant(World(), "file_edit docs/**")


async def test_no_rule_of_files_covers_a_command_nor_one_of_words_a_file(tmp_path: Path) -> None:
    files = Files(tmp_path)
    await files.grant("file_write **")
    assert verdict(files.world, "echo x > src/a.py") == "ask"
    (tmp_path / "b").mkdir()
    other = Files(tmp_path / "b")
    await other.grant("src/app.py *")
    assert other.verdict("src/app.py") == "ask"


def test_what_a_pattern_of_files_matches() -> None:
    rows = {
        ("**", "a"): True,
        ("**", "a/b/c"): True,
        ("src/**", "src"): False,
        ("src/**", "src/a/b"): True,
        ("src/**", "srcs/a"): False,
        ("**/*.md", "a.md"): True,
        ("**/*.md", "a/b/c.md"): True,
        ("*.md", "a/b.md"): False,
        ("src/*/a.py", "src/x/a.py"): True,
        ("src/*/a.py", "src/x/y/a.py"): False,
        ("**/**/x", "x"): True,
        ("**/a", "b/.c/a"): False,
        (".c/**", ".c/a"): True,
        ("?", "ab"): False,
        ("/".join(["**"] * 60 + ["z"]), "/".join("a" * 60)): False,
    }
    found = {row: matches_file(*row) for row in rows}
    assert found == rows
