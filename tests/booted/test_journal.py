"""What the journal holds of a call: fields to search by, and no text of anybody."""

import json

import pytest

from tests.support.booted import Machine
from tests.support.machine_clawd import SERVICE, ask, of

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(300)]


def entries(machine: Machine, *matches: str) -> list[dict[str, object]]:
    words = ["journalctl", "-u", SERVICE, "--no-pager", "-o", "json", *matches]
    return [json.loads(line) for line in machine.out(*words).splitlines()]


def test_the_journal_is_searched_by_the_fields_of_a_conversation(machine: Machine) -> None:
    ask(machine, "alice", "my favourite colour is teal")
    ask(machine, "bob", "hello")
    (talk,) = of(machine, "alice", "conversation", "list")

    found = entries(machine, f"CLAWD_CONVERSATION={talk['id']}")

    assert found
    assert {str(entry["CLAWD_CONVERSATION"]) for entry in found} == {talk["id"]}
    assert "teal" not in json.dumps(entries(machine))
