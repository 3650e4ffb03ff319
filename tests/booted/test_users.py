"""Who may do what with the machine's daemon: members, admins, and everybody else."""

import json

import pytest

from tests.support.booted import Machine
from tests.support.machine_clawd import (
    ASKED,
    approving,
    ask,
    at_terminal,
    ctl,
    ended,
    is_active,
    of,
    script,
    state,
)

pytestmark = [pytest.mark.booted, pytest.mark.timeout(300)]

EXIT_NO_DAEMON = 6
NOTE = {"name": "file_write", "arguments": {"path": "note.txt", "content": "of alice\n"}}
LONG = {"name": "shell", "arguments": {"command": "sleep 4711"}}
FULL = '[security]\nautonomy = "full"\n'
KEEP = {
    "name": "knowledge_save",
    "arguments": {"keywords": ["alice", "garden"], "content": "roses"},
}


def shell_of(machine: Machine, user: str, command: str) -> tuple[int, str]:
    """Run a command as a tool of the daemon, approved by its user."""
    words = json.dumps({"command": command})
    return approving(machine, user, "tool", "run", "shell", "--json", words)


def test_who_is_in_no_group_is_refused_and_told_of_both_ways(machine: Machine) -> None:
    there = ("--socket", "/run/clawd/clawd.sock")
    done = ctl(machine, "mallory", *there, "agent", "-m", "hello")

    assert done.returncode == EXIT_NO_DAEMON
    assert done.stdout == ""
    status = ctl(machine, "mallory", "--no-start", "status")
    assert status.returncode == EXIT_NO_DAEMON
    for told in (done.stderr, status.stderr):
        assert "Join group clawd-ctl and log in again" in told
        assert "clawctl service install --user" in told
    assert not is_active(machine)
    # Nor does he reach what the daemon keeps by another way.
    for place in ("/var/lib/clawd", "/var/lib/private/clawd", "/run/clawd-priv"):
        assert machine.run("ls", place, user="mallory").returncode != 0


def test_who_is_in_no_group_gets_a_daemon_of_his_own_and_is_told_so(machine: Machine) -> None:
    done = ctl(machine, "mallory", "agent", "-q", "-m", "hello")

    assert "tiny demo model" in done.stdout, done.stderr
    assert "members of group clawd-ctl" in done.stderr
    assert "starting your own" in done.stderr
    assert not is_active(machine)
    status = ctl(machine, "mallory", "status", "--json")
    assert json.loads(status.stdout)["home"] == "/home/mallory/.clawd"
    assert status.stderr == ""  # told once: from now on it is his
    # A member's goes to the machine's, where nothing of that is seen.
    assert of(machine, "alice", "status")["home"] == "/var/lib/clawd"
    assert of(machine, "carol", "conversation", "list") == []


def test_a_member_watches_it_and_works_in_a_shell(machine: Machine) -> None:
    top = ctl(machine, "alice", "top", "--once")
    assert top.returncode == 0, top.stderr
    assert "turns" in top.stdout
    script(machine, {"text": "hello yourself"})
    machine.out("systemctl", "restart", "clawd.service")
    shell = at_terminal(machine, "alice", "shell")
    shell.expect_exact("$ ")

    shell.send("> hello\r")
    shell.expect_exact("hello yourself")
    shell.expect_exact("$ ")
    shell.send("id -un; exit 3\r")
    shell.expect_exact("\nalice")
    assert ended(shell) == 3
    assert len(of(machine, "alice", "conversation", "list")) == 1


def test_notes_and_files_of_a_conversation_are_its_owners_alone(machine: Machine) -> None:
    ask(machine, "alice", "hello")
    (talk,) = of(machine, "alice", "conversation", "list")
    saved = ctl(machine, "alice", "knowledge", "save", "garden gate", "the key is under the pot")
    assert saved.returncode == 0, saved.stderr
    machine.put("/home/alice/secret.txt", "between alice and the model")
    added = ctl(machine, "alice", "files", "add", "/home/alice/secret.txt", "-c", talk["id"])
    assert added.returncode == 0, added.stderr

    assert "under the pot" in ctl(machine, "alice", "knowledge", "load", "garden gate").stdout
    assert len(of(machine, "alice", "files", "list", "-c", talk["id"])) == 1
    ask(machine, "bob", "hello")
    for words in (
        ("knowledge", "load", "garden gate"),
        ("knowledge", "search", "garden"),
        ("knowledge", "list"),
        ("knowledge", "keywords"),
        ("files", "list", "-c", talk["id"]),
        ("files", "show", "secret.txt", "-c", talk["id"]),
        ("conversation", "show", talk["id"]),
    ):
        said = ctl(machine, "bob", *words)
        assert "pot" not in said.stdout + said.stderr, words
        if words[1] in {"list", "keywords"}:  # the others repeat what was asked for
            assert "garden" not in said.stdout, words
        assert "between alice" not in said.stdout + said.stderr, words
    assert ctl(machine, "bob", "files", "show", "secret.txt", "-c", talk["id"]).returncode == 1
    # Nor on the disk, nor by a command in a sandbox.
    for user in ("bob", "mallory"):
        assert machine.run("ls", "/var/lib/clawd/knowledge", user=user).returncode != 0
    code, screen = shell_of(machine, "bob", "cat /var/lib/clawd/knowledge/*/* || echo GONE")
    assert code == 3, screen
    assert "outside the workspace" in screen
    assert "pot" not in screen


def test_the_workspace_is_all_members_and_a_folder_below_it_is_taken_with_c(
    machine: Machine,
) -> None:
    note = json.dumps({"path": "alice/plan.txt", "content": "roses"})
    code, screen = approving(machine, "alice", "tool", "run", "file_write", "--json", note)
    assert code == 0, screen
    code, screen = shell_of(machine, "bob", "cat alice/plan.txt")
    assert (code, "roses" in screen) == (0, True)
    script(
        machine,
        {"tool_calls": [{"name": "file_list", "arguments": {}}]},
        {"text": "that is all"},
    )
    machine.out("systemctl", "reload-or-restart", "clawd.service")

    folder = "/var/lib/clawd/workspace/alice"
    done = ctl(machine, "alice", "agent", "-m", "what is there?", "-C", folder)

    assert done.returncode == 0, done.stderr
    (talk,) = of(machine, "alice", "conversation", "list")
    assert talk["workspace"].endswith("/workspace/alice")
    refused = ctl(machine, "alice", "agent", "-m", "and there?", "-C", "/etc")
    assert refused.returncode != 0
    assert "workspace_roots" in refused.stderr


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
    ended(asked)
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
    ended(asked)


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
