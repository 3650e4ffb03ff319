"""A clawd of one's own, under the service manager of one user."""

import pytest

from tests.support.booted import Machine
from tests.support.user_manager import Run, as_user

pytestmark = [pytest.mark.booted, pytest.mark.timeout(300)]


@pytest.fixture
def as_mallory(machine: Machine) -> Run:
    """Run a command as a user who is in no group of clawd's, in a session with a manager."""
    return as_user(machine, "mallory")


def test_a_user_who_wants_one_gets_a_daemon_by_the_socket_unit(
    machine: Machine, as_mallory: Run
) -> None:
    assert as_mallory("systemctl", "--user", "start", "clawd.socket").returncode == 0

    answer = as_mallory("clawctl", "agent", "-q", "-m", "hello")

    assert "tiny demo model" in answer.stdout, answer.stderr
    status = as_mallory("clawctl", "status", "--json").stdout
    assert '"/home/mallory/.clawd"' in status
    shown = as_mallory("systemctl", "--user", "show", "-p", "ActiveState", "clawd.service")
    assert shown.stdout == "ActiveState=active\n"
    assert machine.run("systemctl", "is-active", "clawd.service").stdout == "inactive\n"


def test_it_is_started_again_reloaded_and_stopped_by_its_user(
    machine: Machine, as_mallory: Run
) -> None:
    def main_pid() -> int:
        words = ("systemctl", "--user", "show", "--value", "-p", "MainPID", "clawd.service")
        return int(as_mallory(*words).stdout)

    assert as_mallory("systemctl", "--user", "start", "clawd.service").returncode == 0
    first = main_pid()
    as_mallory("kill", "-KILL", str(first))
    machine.wait_until(lambda: main_pid() not in {0, first}, "another main process")
    assert as_mallory("systemctl", "--user", "reload", "clawd.service").returncode == 0
    assert as_mallory("clawctl", "agent", "-q", "-m", "hello").returncode == 0
    stopped = as_mallory("systemctl", "--user", "stop", "clawd.socket", "clawd.service")
    assert stopped.returncode == 0
    assert machine.run("pgrep", "-u", "mallory", "-f", "clawd").returncode == 1


def test_nobody_gets_one_who_did_not_ask(machine: Machine, as_mallory: Run) -> None:
    enabled = machine.out("find", "/etc/systemd/user", "-name", "clawd*")

    assert enabled == ""
    assert as_mallory("systemctl", "--user", "is-active", "clawd.socket").stdout == "inactive\n"
