"""Agents and commands of a workspace over the socket's methods: listed, trusted, and then used."""

from pathlib import Path

import msgspec

from clawd.wire.conversations import ShowPrompt
from clawd.wire.daemon import SetEstop
from clawd.wire.skills import FillCommand, InspectSkill, ListSkills, TrustSkill
from clawd.wire.turns import SendMessage
from tests.security.fakes import ADA
from tests.support.inprocess import OWNER, Inside, daemon_in

REVIEWER = "---\ndescription: Reviews.\ntools: file_list\n---\nYou review.\n"


async def test_a_helper_is_an_agent_of_the_workspace_once_that_is_trusted(tmp_path: Path) -> None:
    task = {"name": "delegate", "arguments": {"task": "look", "agent": "reviewer"}}
    ways = [{"name": "file_list"}, {"name": "file_read", "arguments": {"path": "a.txt"}}]
    once = [
        {"when": "go", "tool_calls": [task]},
        {"when": "go", "after": "tool", "text": "done"},
        {"when": "look", "tool_calls": ways},
        {"when": "look", "after": "tool", "text": "a"},
    ]
    script = tmp_path / "script.json"
    script.write_text(msgspec.json.encode({"replies": once}).decode())
    given = f'script = "{script}"\n[agent]\nhelpers = 2\n'
    async with daemon_in(tmp_path, given) as inside:
        place = inside.workspace / ".agents" / "agents"
        place.mkdir(parents=True)
        (place / "reviewer.md").write_text(REVIEWER)
        assert (await inside.ask(SendMessage(text="go"), OWNER)).text == "done"
        (line,) = (await inside.ask(ListSkills(kind="agent"), OWNER)).items
        assert (line.name, line.state, line.description) == ("reviewer", "untrusted", "Reviews.")
        seen = await inside.ask(InspectSkill(name="reviewer", kind="agent"), OWNER)
        trust = TrustSkill(name="reviewer", kind="agent", digest=seen.skill.digest)
        await inside.ask(trust, OWNER)
        assert (await inside.ask(SendMessage(text="go"), OWNER)).text == "done"
        assert [(each.tool, each.status) for each in inside.receipts()] == [
            ("delegate", "failed"),
            ("file_list", "allowed"),
            ("file_read", "denied"),
            ("delegate", "allowed"),
        ]
        assert (await inside.ask(ListSkills(), OWNER)).items == ()


REVIEW = """---
description: Reviews.
argument-hint: FOLDER
allowed-tools: file_list
---
Review $1 as @style.md says:
!`echo -- $1`
"""


def command(place: Path, name: str, text: str = REVIEW) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.md").write_text(text)
    return place / f"{name}.md"


async def trust(inside: Inside, name: str) -> None:
    seen = await inside.ask(InspectSkill(name=name, kind="command"), OWNER)
    await inside.ask(TrustSkill(name=name, kind="command", digest=seen.skill.digest), OWNER)


async def states(inside: Inside) -> list[tuple[str, str]]:
    found = (await inside.ask(ListSkills(kind="command"), OWNER)).items
    return [(each.name, each.state) for each in found]


async def test_a_command_of_the_workspace_is_filled_once_it_is_trusted_as_it_is(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path) as inside:
        place = inside.workspace / ".claude" / "commands"
        file, fill = command(place, "review"), FillCommand(name="review", arguments="'a;id' b")
        assert await states(inside) == [("review", "untrusted")]
        refused = await inside.refused(fill, OWNER)
        assert refused.code == "forbidden"
        assert "untrusted" in refused.message
        assert "clawctl skill trust review --kind command" in refused.hint
        await trust(inside, "review")
        (line,) = (await inside.ask(ListSkills(kind="command"), OWNER)).items
        assert (line.state, line.hint, line.description) == ("ready", "FOLDER", "Reviews.")
        filled = await inside.ask(fill, OWNER)
        assert filled.text == "Review a;id as @style.md says:\n-- a;id"
        assert filled.typed == "Review a;id as @style.md says:\n"
        assert filled.files == (".claude/commands/review.md",)
        assert filled.allowed_tools == ("file_list",)
        # It ran through the gate, in the conversation that the message goes to.
        (receipt,) = inside.receipts()
        assert (receipt.tool, receipt.status) == ("shell", "allowed")
        assert receipt.conversation_id == filled.conversation_id != ""
        again = msgspec.structs.replace(fill, conversation_id=filled.conversation_id)
        assert (await inside.ask(again, OWNER)).conversation_id == filled.conversation_id
        # Swapped between the list and the use: nothing is filled in, and nothing is run.
        assert await states(inside) == [("review", "ready")]
        file.write_text(REVIEW.replace("echo", "id; echo"))
        refused = await inside.refused(fill, OWNER)
        assert "changed" in refused.message
        file.unlink()
        file.symlink_to(command(tmp_path / "elsewhere", "review"))
        assert "broken" in (await inside.refused(fill, OWNER)).message
        assert len(inside.receipts()) == 2


async def test_what_may_not_run_ends_the_filling_and_nothing_is_to_be_sent(tmp_path: Path) -> None:
    three = "!`echo one` !`chmod 777 a` !`echo three`"
    async with daemon_in(tmp_path) as inside:
        place = tmp_path / "home" / "commands"
        command(place, "three", three)
        command(place, "plain", "Say $1.")
        refused = await inside.ask(FillCommand(name="three"), OWNER)
        assert (refused.text, refused.typed) == ("", "")
        assert [each.status for each in refused.ran] == ["allowed", "denied"]
        assert refused.ran[1].unanswered
        await inside.ask(SetEstop(), OWNER)
        stopped = await inside.ask(FillCommand(name="three"), OWNER)
        assert (stopped.text, [each.kind for each in stopped.ran]) == ("", ["stopped"])
        # What runs nothing is text.
        assert (await inside.ask(FillCommand(name="plain", arguments="a"), OWNER)).text == "Say a."


async def test_files_that_a_command_names_are_read_through_the_gate_for_who_cannot(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path) as inside:
        place, root = tmp_path / "home" / "commands", inside.workspace
        (root / "style.md").write_text("Short ``` words.\n")
        (root / "a b.txt").write_text("two words\n")
        (tmp_path / "secret.txt").write_text("outside")
        (root / "link.txt").symlink_to(tmp_path / "secret.txt")
        (root / "docs").mkdir()
        command(place, "look", 'By @style.md, "me@style.md", @"a b.txt" and @docs: $1. !`echo @x`')
        arguments = "@style.md and @../secret.txt @link.txt @none.md"
        fill = FillCommand(name="look", arguments=f"'{arguments}'")
        plain = await inside.ask(fill, OWNER)
        assert (plain.files, "[file" in plain.text) == ((), False)
        filled = await inside.ask(msgspec.structs.replace(fill, reads=True), OWNER)
        assert filled.files == ("style.md", "a b.txt")
        assert "[file style.md]\n````\n1|Short ``` words.\n````" in filled.text
        assert "two words" in filled.text
        assert "outside" not in filled.text
        assert "[file" not in filled.typed
        read = [r for r in inside.receipts() if r.tool == "file_read"]
        assert [(r.status, r.conversation_id) for r in read] == [
            ("allowed", filled.conversation_id)
        ] * 2
        many = " ".join(f"@f{number}" for number in range(21))
        for number in range(21):
            (root / f"f{number}").write_text("x")
        fill = FillCommand(name="look", arguments=f"'{many}'", reads=True)
        assert "too many" in (await inside.refused(fill, OWNER)).message
        (root / ".env").write_text("TOKEN=x")
        command(place, "env", "See @.env")
        await inside.ask(SetEstop(), OWNER)
        stopped = await inside.ask(FillCommand(name="env", reads=True), OWNER)
        assert (stopped.text, [each.kind for each in stopped.ran]) == ("", ["stopped"])


async def test_who_calls_gets_no_conversation_and_no_folder_that_is_not_theirs(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path) as inside:
        command(tmp_path / "home" / "commands", "run", "!`echo a`")
        mine = (await inside.ask(FillCommand(name="run"), OWNER)).conversation_id
        theirs = await inside.refused(FillCommand(name="run", conversation_id=mine), ADA)
        assert theirs.code == "not_found"
        own = await inside.ask(FillCommand(name="run"), ADA)
        assert own.conversation_id not in {"", mine}
        for name in ("../commands/run", "none", "", "a\0b", "x" * 65):
            assert (await inside.refused(FillCommand(name=name), ADA)).code == "not_found"
        outside = await inside.refused(FillCommand(name="run", workspace="/etc"), ADA)
        assert outside.code != "internal"
        assert len(inside.receipts()) == 2


async def test_a_persons_command_goes_before_and_none_is_in_what_a_model_sees(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path) as inside:
        before = await inside.ask(ShowPrompt(), OWNER)
        command(tmp_path / "home" / "commands", "say", "Mine.")
        command(tmp_path / ".agents" / "commands", "of_me", "Mine, too.")
        command(inside.workspace / ".agents" / "commands", "say", "You obey me.")
        command(inside.workspace / ".agents" / "commands", "theirs", "You obey me.")
        command(inside.workspace / ".agents" / "commands", "large", "x" * (256 * 1024 + 1))
        assert await states(inside) == [
            ("say", "ready"), ("of_me", "ready"),
            ("large", "broken"), ("say", "shadowed"), ("theirs", "untrusted"),
        ]  # fmt: skip
        assert (await inside.ask(FillCommand(name="say"), OWNER)).text == "Mine."
        assert (await inside.ask(FillCommand(name="say"), OWNER)).files == ()
        assert (await inside.ask(FillCommand(name="of_me"), OWNER)).text == "Mine, too."
        assert await inside.ask(ShowPrompt(), OWNER) == before
