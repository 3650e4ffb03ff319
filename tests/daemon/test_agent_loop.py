"""What a person sees of the agent loop when a model does not answer as it should."""

import json

import pytest

from tests.support.home import Home
from tests.support.lent_home import LentHome

pytestmark = pytest.mark.daemon

SLOW = "sleep 600"
SLEEPY = (
    '[security]\nautonomy = "full"\nallowed_commands = ["sleep"]\n[limits]\nshell_timeout_s = 900'
)
PLAIN = """
[providers.models.plain]
kind = "mock"
script = "{script}"
tools = false
[security]
autonomy = "{autonomy}"
"""


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def plain(home: Home, *replies: dict[str, object], autonomy: str = "full") -> None:
    """Configure a scripted model that can call no tools."""
    script = home.path / "script.json"
    tables = PLAIN.format(script=script, autonomy=autonomy)
    home.configure(*replies, provider="plain", tables=tables)


def test_thoughts_alone_are_asked_for_again_and_at_last_are_the_answer(home: Home) -> None:
    home.configure({"reasoning": "hm"}, {"reasoning": "hm"}, {"text": "It is noon."})
    done = home.ctl("agent", "-m", "what time is it?")
    assert (done.returncode, done.stdout.strip()) == (0, "It is noon."), done.stderr
    assert done.stderr.count("again: the model only thought and said nothing") == 2
    home.configure({"reasoning": "It must be noon."})
    done = home.ctl("agent", "-m", "what time is it?")
    assert (done.returncode, done.stdout.strip()) == (0, "It must be noon."), done.stderr
    assert "its thoughts are the answer" in done.stderr


def test_a_call_that_cannot_be_read_is_repaired_and_never_shown_as_the_answer(home: Home) -> None:
    (home.workspace / "notes.md").write_text("x")
    home.configure(
        {"text": 'I look. <tool_call>{"name": "file_list", "argum'},
        {"tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]},
        {"text": "I see {{last_tool_result}}"},
    )
    told = home.json("agent", "-m", "what is here?")
    assert told["text"].strip() == "I see notes.md"
    (conversation,) = home.json("memory", "list")
    messages = home.json("memory", "show", conversation["id"])["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert not any("<tool_call>" in (message["content"] or "") for message in messages)
    (receipt,) = home.receipt_lines()
    assert (receipt["tool"], receipt["status"]) == ("file_list", "allowed")


def test_a_call_that_stays_unreadable_ends_the_turn_with_a_reason(home: Home) -> None:
    home.configure({"text": '<tool_call>{"name": "file_list", "argum'})
    done = home.ctl("agent", "-m", "what is here?")
    assert done.returncode == 0, done.stderr
    assert "could not be read, and none of them was run" in done.stdout
    assert "<tool_call>" not in home.json("agent", "-m", "again")["text"]
    assert home.receipt_lines() == []


def test_arguments_that_are_no_json_are_not_run_and_the_model_is_told_why(home: Home) -> None:
    home.configure(
        {"tool_calls": [{"name": "file_write", "arguments": '{"path": "a.txt", "content": "x'}]},
        {"text": "The tool said: {{last_tool_result}}"},
    )
    done = home.ctl("agent", "-m", "write it")
    assert done.returncode == 0, done.stderr
    assert "The tool said: error: the arguments are no JSON object" in done.stdout
    assert not (home.workspace / "a.txt").exists()
    (receipt,) = home.receipt_lines()
    assert (receipt["tool"], receipt["status"]) == ("file_write", "failed")


def test_an_answer_that_broke_off_is_asked_for_again_unless_that_is_switched_off(
    home: Home,
) -> None:
    broken = {"text": "half an answer", "error": {"kind": "network"}}
    home.configure(broken, {"text": "the whole answer"})
    done = home.ctl("agent", "-m", "hello")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("the whole answer")
    assert "again: the answer was empty or broke off" in done.stderr
    home.configure(broken, {"text": "never"}, tables="[agent]\nretry_on_incomplete = false")
    done = home.ctl("agent", "-m", "hello")
    assert done.returncode != 0
    assert "never" not in done.stdout


def test_a_turn_is_stopped_in_mid_answer_when_its_time_is_up(home: Home) -> None:
    home.configure({"delay_s": 600.0, "text": "never"}, tables="[agent]\nwall_clock_budget_s = 0.5")
    done = home.ctl("agent", "-m", "hello", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["text"]) == (5, "I stopped: 0.5 s are used up."), done.stderr


def test_a_command_is_ended_when_the_time_of_its_turn_is_up(home: Home) -> None:
    home.configure(
        {"text": "I run it.", "tool_calls": [{"name": "shell", "arguments": {"command": SLOW}}]},
        tables=f"[agent]\nwall_clock_budget_s = 8\n{SLEEPY}",
    )
    done = home.ctl("agent", "-m", "go")
    assert (done.returncode, done.stdout) == (5, "I run it.\nI stopped: 8 s are used up.\n")
    (receipt,) = home.receipt_lines()
    assert (receipt["tool"], receipt["status"], receipt["reason"]) == (
        "shell", "failed", "cancelled",
    )  # fmt: skip


def test_commands_of_a_model_without_tools_run_through_the_gate(home: Home) -> None:
    (home.workspace / "notes.md").write_text("x")
    plain(
        home,
        {"text": "I look.\nCMD: ls\nCMD: cat /etc/shadow\nCMD: rm -rf /"},
        {"text": "The commands said: {{last_user}}"},
    )
    told = home.json("agent", "-m", "what is here?")["text"]
    assert "[tool: shell]\nnotes.md" in told
    assert told.count("[tool: shell]\ndenied: ") == 2
    receipts = [(line["tool"], line["status"]) for line in home.receipt_lines()]
    assert receipts == [("shell", "allowed"), ("shell", "denied"), ("shell", "denied")]
    assert (home.workspace / "notes.md").exists()


def test_commands_of_a_model_without_tools_ask_like_calls(home: Home) -> None:
    plain(home, {"text": "CMD: mkdir a"}, {"text": "{{last_user}}"}, autonomy="supervised")
    done = home.ctl("agent", "-m", "what is here?")
    assert done.returncode == 4, done.stderr
    assert "[tool: shell]\ndenied: " in done.stdout


def test_a_command_line_of_a_model_with_tools_is_only_text(home: Home) -> None:
    home.configure({"text": "CMD: ls"}, tables='[security]\nautonomy = "full"')
    assert home.json("agent", "-m", "how do I list?")["text"] == "CMD: ls"
    assert home.receipt_lines() == []
