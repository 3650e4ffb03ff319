"""What the journal holds of a call: fields to search by, and no text of anybody."""

import json

import pytest

from tests.support.booted import Machine
from tests.support.machine_clawd import approving, ask, ctl, entries, of, script

pytestmark = [pytest.mark.booted, pytest.mark.timeout(300)]

LISTING = {"name": "shell", "arguments": {"command": "echo teal-by-tool"}}


def test_the_journal_is_searched_by_the_fields_of_a_conversation(machine: Machine) -> None:
    ask(machine, "alice", "my favourite colour is teal")
    ask(machine, "bob", "hello")
    (talk,) = of(machine, "alice", "conversation", "list")

    found = entries(machine, f"CLAWD_CONVERSATION={talk['id']}")

    assert found
    assert {entry["CLAWD_CONVERSATION"] for entry in found} == {talk["id"]}
    assert "teal" not in json.dumps(entries(machine))


def test_a_call_is_followed_through_the_journal_from_its_request_to_its_receipt(
    machine: Machine,
) -> None:
    script(machine, {"tool_calls": [LISTING]}, {"text": "that is all"})
    code, screen = approving(machine, "alice", "agent", "-m", "run it")
    assert code == 0, screen
    (receipt,) = of(machine, "alice", "receipt", "list")
    (talk,) = of(machine, "alice", "conversation", "list")

    of_tool = entries(machine, "CLAWD_TOOL=shell")

    events = [entry["CLAWD_EVENT"] for entry in of_tool]
    assert events == ["tool_requested", "tool_approved", "tool_completed"]
    assert {entry["CLAWD_CONVERSATION"] for entry in of_tool} == {talk["id"]}
    assert of_tool[-1]["CLAWD_RECEIPT"] == receipt["id"]
    assert int(of_tool[-1]["CLAWD_DURATION_MS"]) >= 0
    of_receipt = entries(machine, f"CLAWD_RECEIPT={receipt['id']}")
    assert {entry["CLAWD_EVENT"] for entry in of_receipt} == {"receipt_written", "tool_completed"}
    (written,) = entries(machine, "CLAWD_EVENT=receipt_written")
    assert written["MESSAGE_ID"] == "4332a27e84c5453bab1282e3060d2d78"
    assert "teal-by-tool" not in json.dumps(entries(machine))


def test_a_refusal_is_found_by_its_event_and_by_clawctl(machine: Machine) -> None:
    assert ctl(
        machine, "alice", "tool", "run", "shell", "--json", '{"command": "touch x"}'
    ).returncode

    (refused,) = entries(machine, "CLAWD_EVENT=tool_denied")

    assert refused["CLAWD_TOOL"] == "shell"
    told = ctl(machine, "root", "service", "logs", "--event", "tool_denied", "--tool", "shell")
    assert told.returncode == 0, told.stderr
    (line,) = [line for line in told.stdout.splitlines() if "denied" in line]
    assert "shell" in line
