"""Agents and commands of Markdown files: found, listed, and that one is what was looked at."""

from pathlib import Path

import msgspec
import pytest

from clawd.config.schema import AgentProfile
from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError
from clawd.plugins.loader import PluginPins
from clawd.runtime.context_facts import AgentsFact, FactScope
from clawd.security.taint import FileOrigins
from clawd.skills.skill_file import MAX_FILE_BYTES, read_definition
from clawd.skills.store import AgentStore, CommandStore
from clawd.tools.outcome import DELEGATE
from tests.security.fakes import ADA
from tests.support.rows import each_row

REVIEWER = """---
name: reviewer
description: "Reviews code."
tools: Read, Grep, Bash(git log *)
model: sonnet
---
You review code.
"""


class Bench:
    def __init__(self, base: Path) -> None:
        self.home, self.workspace = base / "home" / "agents", base / "work"
        self.person = base / "person" / ".agents" / "agents"
        self.theirs = self.workspace / ".agents" / "agents"
        self.workspace.mkdir()
        pins, roots = PluginPins(base / "pins.json"), lambda: (self.workspace,)
        self.store = AgentStore(self.home, self.person, pins, roots)

    def trust(self, name: str) -> None:
        digest = self.store.review(name, self.workspace).skill.digest
        self.store.trust(name, self.workspace, digest=digest, by=7)

    def states(self) -> list[tuple[str, str]]:
        return [(each.name, each.state) for each in self.store.found(self.workspace).items]


def write(place: Path, name: str, text: str = "You look.") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.md").write_text(text)
    return place / f"{name}.md"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path.resolve())


def test_the_fields_that_count_are_read_and_others_ignored(bench: Bench) -> None:
    write(bench.home, "reviewer", REVIEWER)
    found, _ = bench.store.read("reviewer", bench.workspace)
    about = found.about
    assert (found.is_own, about.description, about.body) == (
        True, "Reviews code.", "You review code.",
    )  # fmt: skip
    assert about.allowed_tools == ("Read", "Grep", "Bash(git log *)")
    listed = read_definition(b"---\ntools:\n  - Read\n  - Grep\n---\ntext", "a")
    assert listed.allowed_tools == ("Read", "Grep")


@each_row(
    ("data", "name", "why"),
    [
        (b"\xff", "a", "no UTF-8"),
        (b"", "a", "no text"),
        (b"---\nname: a\n---\n", "a", "no text"),
        (b"---\nname: b\n---\ntext", "a", "another `name`"),
        (b"text", "A b", "lower-case"),
        ("te\u202ext".encode(), "a", "hidden"),
        (b"te\x1b[2Jxt", "a", "control"),
        (b"x" * (MAX_FILE_BYTES + 1), "a", "bytes"),
    ],
)
def test_what_is_broken_says_why(data: bytes, name: str, why: str) -> None:
    assert why in "; ".join(each.text for each in read_definition(data, name).problems)


def test_a_workspaces_is_untrusted_until_it_is_trusted_as_it_is(bench: Bench) -> None:
    file = write(bench.theirs, "reviewer", REVIEWER)
    with pytest.raises(ForbiddenError, match="untrusted"):
        bench.store.read("reviewer", bench.workspace)
    before = bench.store.review("reviewer", bench.workspace).skill.digest
    file.write_text(REVIEWER + "And write to /etc.\n")
    with pytest.raises(InvalidRequestError):
        bench.store.trust("reviewer", bench.workspace, digest=before, by=7)
    bench.trust("reviewer")
    assert bench.states() == [("reviewer", "ready")]
    assert bench.store.read("reviewer", bench.workspace)[0].state == "ready"
    file.write_text(REVIEWER + "And ask for more.\n")
    assert bench.states() == [("reviewer", "changed")]
    with pytest.raises(ForbiddenError, match="changed"):
        bench.store.read("reviewer", bench.workspace)
    bench.trust("reviewer")
    bench.store.revoke("reviewer", bench.workspace)
    assert bench.states() == [("reviewer", "untrusted")]


def test_the_owners_goes_before_and_needs_no_trust(bench: Bench) -> None:
    write(bench.home, "a")
    write(bench.person, "b")
    write(bench.theirs, "a", "You obey me.")
    write(bench.workspace / ".claude" / "agents", "c")
    assert bench.states() == [
        ("a", "ready"), ("b", "ready"), ("a", "shadowed"), ("c", "untrusted"),
    ]  # fmt: skip
    assert bench.store.read("a", bench.workspace)[0].about.body == "You look."


def test_links_folders_and_names_that_lead_elsewhere_are_none(bench: Bench, tmp_path: Path) -> None:
    outside = write(tmp_path / "elsewhere", "secret")
    bench.theirs.mkdir(parents=True)
    (bench.theirs / "link.md").symlink_to(outside)
    (bench.theirs / "folder.md").mkdir()
    assert bench.states() == [("folder", "broken"), ("link", "broken")]
    for name in ("../../elsewhere/secret", "/etc/passwd", "a\0b", "", "x" * 65):
        with pytest.raises(NotFoundError):
            bench.store.read(name, bench.workspace)
    (bench.workspace / ".claude").symlink_to(tmp_path)
    write(tmp_path / "agents", "led")
    assert "led" not in dict(bench.states())


async def test_a_model_that_may_have_helpers_is_told_of_those_that_are_ready(bench: Bench) -> None:
    configured = {"writer": AgentProfile(description="Writes\nmuch."), "plain": AgentProfile()}
    fact = AgentsFact(bench.store, FileOrigins(), lambda: configured)
    scope = FactScope(
        principal=ADA,
        owner=ADA.uid,
        conversation_id="c1",
        workspace=bench.workspace,
        offered=frozenset({DELEGATE}),
    )
    write(bench.home, "reviewer", REVIEWER)
    write(bench.theirs, "theirs")
    told = (await fact.facts(scope))["agents"].text.splitlines()
    assert told[1:] == ["reviewer: Reviews code.", "writer: Writes much.", "plain"]
    assert await fact.facts(msgspec.structs.replace(scope, offered=frozenset())) == {}
    configured.clear()
    (bench.home / "reviewer.md").unlink()
    assert await fact.facts(scope) == {}


def test_a_command_is_found_where_commands_are_and_one_can_be_checked(bench: Bench) -> None:
    pins, roots = PluginPins(bench.workspace / "pins.json"), lambda: (bench.workspace,)
    store = CommandStore(bench.home.parent / "commands", bench.person, pins, roots)
    write(bench.home.parent / "commands", "with_bar", "Mine.")
    theirs = write(bench.workspace / ".claude" / "commands", "review", "Look at $1.")
    found = [(each.name, each.state) for each in store.found(bench.workspace).items]
    assert found == [("with_bar", "ready"), ("review", "untrusted")]
    assert store.read("with_bar", bench.workspace)[0].about.body == "Mine."
    with pytest.raises(ForbiddenError) as told:
        store.read("review", bench.workspace)
    assert told.value.hint.endswith("clawctl skill trust review --kind command trusts.")
    elsewhere = bench.workspace.parent / "other folder"
    write(elsewhere / ".claude" / "commands", "review", "Look at $1.")
    with pytest.raises(ForbiddenError) as told:
        store.read("review", elsewhere)
    assert f"--kind command -C '{elsewhere}'" in told.value.hint
    seen = store.inspect(theirs).skill
    assert (seen.name, seen.state, seen.about.problems) == ("review", "untrusted", ())
    broken = write(bench.workspace, "broken", "!`ls '$1'`")
    for path in (broken, bench.workspace / "none.md", bench.workspace):
        assert store.inspect(path).skill.about.problems, path
