"""A plan as a person meets it: drawn while it changes, asked for, kept over a restart."""

import re
from typing import Any

import pytest

from clawd.errors import NotFoundError
from clawd.wire.conversations import ShowPlan
from clawd.wire.memory import ClearMemory
from clawd.wire.tools import RunTool
from clawd.wire.turns import SendMessage
from tests.support.inprocess import daemon_in
from tests.support.lent_home import LentHome
from tests.support.screen import clawctl_screen

pytestmark = pytest.mark.daemon


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}


def test_a_plan_is_drawn_when_it_changes_and_shown_after_a_restart(
    lent_home: LentHome,
) -> None:
    home = lent_home
    home.configure(
        call("plan", action="add", items=[{"text": "look"}, {"text": "write"}]),
        call("plan", action="update", id="1", status="completed"),
        {"text": "planned"},
    )
    done = home.ctl("agent", "-m", "plan it")
    assert done.returncode == 0, done.stderr
    assert "[ ] 1. look\n[ ] 2. write\n" in done.stderr
    assert "[x] 1. look\n[ ] 2. write\n" in done.stderr
    home.kill()
    home.start()
    with clawctl_screen(home.environ, "agent", "--continue", lines=40) as screen:
        screen.wait_for(re.compile("^>", re.MULTILINE))
        screen.type("/plan\r")
        screen.wait_for(re.compile("1. .*look\n.*2. write"))
        screen.type("/clear\r")
        screen.type("/plan\r")
        screen.wait_for("There is no plan in this conversation")
        screen.type("/exit\r")
        assert screen.exit_code() == 0
    receipts = [(line["tool"], line["status"], line["risk"]) for line in home.receipt_lines()]
    assert receipts == [("plan", "allowed", "low")] * 2


async def test_a_plan_outside_of_conversations_is_of_its_workspace(tmp_path: Any) -> None:
    async with daemon_in(tmp_path) as inside:
        add = RunTool(name="plan", arguments='{"action":"add","text":"mine"}')
        assert (await inside.ask(add)).output == "- [ ] 1. mine"
        shown = await inside.ask(ShowPlan())
        assert [(item.id, item.text, item.status) for item in shown.items] == [
            (1, "mine", "pending")
        ]
        assert (shown.markdown, shown.workspace) == ("- [ ] 1. mine", str(inside.workspace))


async def test_a_plan_is_gone_with_its_conversation(tmp_path: Any) -> None:
    async with daemon_in(tmp_path) as inside:
        conversation_id = (await inside.ask(SendMessage(text="hello"))).conversation_id
        add = RunTool(
            name="plan",
            arguments='{"action":"add","text":"x"}',
            conversation_id=conversation_id,
        )
        assert (await inside.ask(add)).status == "allowed"
        shown = await inside.ask(ShowPlan(conversation_id=conversation_id))
        assert shown.markdown == "- [ ] 1. x"
        await inside.ask(ClearMemory(conversation_id=conversation_id))
        refusal = await inside.refused(ShowPlan(conversation_id=conversation_id))
        assert refusal.code == NotFoundError.default_code
