"""Agents of a workspace over the socket's methods: listed, trusted, and then a helper is one."""

from pathlib import Path

import msgspec

from clawd.wire.skills import InspectSkill, ListSkills, TrustSkill
from clawd.wire.turns import SendMessage
from tests.support.inprocess import OWNER, daemon_in

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
