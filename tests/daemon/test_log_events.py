"""What an administrator can count on in the log: each event of a turn, by its stable name."""

import json
from pathlib import Path

import pytest

from clawd.service.logs import EVENTS
from tests.support.home import Home

pytestmark = pytest.mark.daemon

CALLS = [
    {"name": "cwd", "arguments": {}},
    {"name": "file_read", "arguments": {"path": "missing.txt"}},
    {"name": "file_read", "arguments": {"path": "/etc/shadow"}},
]


def events(home: Home) -> list[dict[str, object]]:
    lines = (json.loads(line) for line in home.log().splitlines() if line.startswith("{"))
    return [line for line in lines if "event" in line]


def test_one_turn_and_one_stop_tell_every_event(home: Home) -> None:
    home.configure({"tool_calls": CALLS}, {"text": "done"})
    home.environ["CLAWD_LOG"] = "json"
    home.start()
    assert home.ctl("agent", "-m", "go").returncode == 0
    assert home.ctl("estop").returncode == 0
    assert home.ctl("estop", "--clear").returncode == 0
    home.close()
    told = events(home)
    assert {each["event"] for each in told} >= {
        "startup",
        "config_path",
        "workspace_path",
        "provider_selected",
        "channel_started",
        "conversation_started",
        "tool_requested",
        "tool_approved",
        "tool_denied",
        "tool_completed",
        "tool_failed",
        "receipt_written",
        "memory_persisted",
        "estop_triggered",
        "estop_cleared",
        "shutdown",
    }
    of_cwd = [each["event"] for each in told if each.get("tool") == "cwd"]
    assert of_cwd == ["tool_requested", "tool_approved", "tool_completed"]
    conversation = next(each for each in told if each["event"] == "conversation_started")
    requested = next(each for each in told if each["event"] == "tool_requested")
    assert requested["conversation"] == conversation["conversation"]


def test_each_name_of_an_event_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
    assert [name for name, _ in EVENTS.values() if f"`{name}`" not in page] == []
