"""Who may do what with the machine's daemon: members, admins, and everybody else."""

import pytest

from tests.support.booted import Machine
from tests.support.machine_clawd import (
    ASKED,
    approving,
    ask,
    at_terminal,
    ctl,
    of,
    script,
    state,
)

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(300)]

EXIT_NO_DAEMON = 6
NOTE = {"name": "file_write", "arguments": {"path": "note.txt", "content": "of alice\n"}}
LONG = {"name": "shell", "arguments": {"command": "sleep 4711"}}
FULL = '[security]\nautonomy = "full"\n'
KEEP = {
    "name": "knowledge_save",
    "arguments": {"keywords": ["alice", "garden"], "content": "roses"},
}


def test_who_is_in_no_group_is_refused_and_told_which_one_to_join(machine: Machine) -> None:
    done = ctl(machine, "mallory", "agent", "-m", "hello")

    assert done.returncode == EXIT_NO_DAEMON
    assert "clawd-ctl" in done.stderr
    assert done.stdout == ""
    status = ctl(machine, "mallory", "status")
    assert status.returncode == EXIT_NO_DAEMON
    # Nor does he reach what the daemon keeps by another way.
    for place in ("/var/lib/clawd", "/var/lib/private/clawd", "/run/clawd-priv"):
        assert machine.run("ls", place, user="mallory").returncode != 0


def test_two_users_see_nothing_of_each_other(machine: Machine) -> None:
    script(
        machine,
        {"when": "garden", "tool_calls": [KEEP, NOTE]},
        {"when": "garden", "after": "tool", "text": "kept"},
        {"text": "hello yourself"},
    )
    code, screen = approving(machine, "alice", "agent", "-m", "remember my garden")
    assert code == 0, screen
    ask(machine, "bob", "hello")
    talk = of(machine, "alice", "conversation", "list")[0]["id"]

    assert [each["title"] for each in of(machine, "bob", "conversation", "list")] == ["hello"]
    assert ctl(machine, "bob", "conversation", "show", talk).returncode == 1
    assert ctl(machine, "bob", "conversation", "delete", talk, "--yes").returncode != 0
    assert ctl(machine, "bob", "agent", "--conversation", talk, "-m", "hi").returncode == 1
    assert of(machine, "alice", "memory", "search", "garden")
    assert of(machine, "bob", "memory", "search", "garden") == []
    receipt = of(machine, "alice", "receipt", "list")[0]["id"]
    assert of(machine, "bob", "receipt", "list") == []
    assert ctl(machine, "bob", "receipt", "show", receipt).returncode == 1
    assert "note.txt" in ctl(machine, "alice", "undo", "--list").stdout
    assert "note.txt" not in ctl(machine, "bob", "undo", "--list").stdout
    assert ctl(machine, "bob", "files", "list", "-c", talk).returncode == 1
    assert (
        ctl(machine, "bob", "config", "show").returncode
        == ctl(machine, "alice", "config", "show").returncode
    )


def test_an_approval_is_seen_and_given_by_its_owner_and_admins_only(machine: Machine) -> None:
    script(machine, {"tool_calls": [NOTE]}, {"text": "that is all"})
    asked = at_terminal(machine, "alice", "agent", "-m", "write a note")
    asked.expect(ASKED)
    (waiting,) = of(machine, "carol", "approval", "list")
    (own,) = of(machine, "alice", "approval", "list")
    approval = waiting["id"]

    assert own["id"] == approval
    assert of(machine, "bob", "approval", "list") == []
    assert ctl(machine, "bob", "approval", "allow", approval).returncode != 0
    assert of(machine, "alice", "approval", "list") == [own]
    assert ctl(machine, "carol", "approval", "deny", approval).returncode == 0

    asked.expect("that is all")
    asked.close()
    (receipt,) = of(machine, "alice", "receipt", "list")
    assert receipt["status"] == "denied"
    assert not (state(machine) / "workspace" / "note.txt").exists()


def test_an_admin_sees_and_stops_what_is_others(machine: Machine) -> None:
    script(machine, {"tool_calls": [LONG]}, {"text": "that is all"}, tables=FULL)
    asked = at_terminal(machine, "alice", "agent", "-m", "take your time")
    machine.wait_until(
        lambda: machine.run("pgrep", "-f", "sleep 4711").returncode == 0, "a running command"
    )

    assert of(machine, "bob", "conversation", "list") == []
    (seen,) = of(machine, "carol", "conversation", "list")
    assert seen["title"] == "take your time"
    assert ctl(machine, "carol", "estop").returncode == 0

    machine.wait_until(
        lambda: machine.run("pgrep", "-f", "sleep 4711").returncode == 1, "no command running"
    )
    asked.close()


def test_any_member_sets_the_emergency_stop_and_only_an_admin_clears_it(machine: Machine) -> None:
    done = ctl(machine, "bob", "estop", "--reason", "smoke")
    assert done.returncode == 0, done.stderr

    assert ctl(machine, "bob", "estop", "--clear").returncode == 1
    assert ctl(machine, "alice", "estop", "--clear").returncode == 1
    assert of(machine, "alice", "status")["estop"]
    assert ctl(machine, "alice", "tool", "run", "file_list").returncode == 7
    machine.out("systemctl", "restart", "clawd.service")
    assert of(machine, "alice", "status")["estop_reason"] == "smoke"
    assert (state(machine) / "ESTOP").exists()

    assert ctl(machine, "carol", "estop", "--clear").returncode == 0
    assert ctl(machine, "alice", "tool", "run", "file_list").returncode == 0
