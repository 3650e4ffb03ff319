"""Tools under the unit's hardening: in bubblewrap, with nothing of the machine's state in sight."""

import json

import pytest

from tests.support.booted import Machine
from tests.support.machine_clawd import approving, configure, ctl, of

pytestmark = [pytest.mark.booted, pytest.mark.timeout(300)]

LOOK = """
for place in /var/lib/clawd /run/clawd /run/clawd-priv /home/alice /root \
    /etc/clawd /run/credentials /run/dbus /run/systemd /sys/fs/cgroup; do
    ls "$place" >/dev/null 2>&1 && ls -A "$place" | sed "s|^|SEEN $place/|"
done
echo "HOME holds:" $(ls -A /var/lib/private/clawd)
for each in /proc/[0-9]*; do tr '\\0' ' ' < $each/cmdline; echo; done
id -u; cat /proc/net/dev | wc -l; hostname; pwd
touch /usr/touched /etc/touched 2>/dev/null && echo WROTE
echo kept > kept.txt
"""


def shell(machine: Machine, user: str, command: str) -> tuple[int, str]:
    return approving(
        machine, user, "tool", "run", "shell", "--json", json.dumps({"command": command})
    )


def test_tools_run_in_bubblewrap_inside_the_unit(machine: Machine) -> None:
    status = of(machine, "alice", "status")

    assert status["sandbox"] == "bwrap", status["sandbox_reason"]
    assert "cgroup (kill)" in status["sandbox_layers"]
    assert status["receipts_problem"] == ""


def test_an_approved_command_runs_and_leaves_a_receipt_that_verifies(machine: Machine) -> None:
    machine.put("/var/lib/private/clawd/workspace/plan.txt", "water the roses\n")
    machine.out("chown", "-R", "--reference=/var/lib/private/clawd", "/var/lib/private/clawd")

    code, screen = shell(machine, "alice", "touch seen; cat plan.txt")

    assert code == 0, screen
    assert "Approve?" in screen
    assert "water the roses" in screen
    (receipt,) = of(machine, "alice", "receipt", "list")
    assert (receipt["tool"], receipt["status"], receipt["approval"]) == ("shell", "allowed", "user")
    verified = of(machine, "alice", "receipt", "verify")
    assert (verified["ok"], verified["receipts"]) == (True, 1)


def test_a_command_in_the_unit_reaches_a_granted_host_and_no_other(machine: Machine) -> None:
    configure(
        machine,
        tables='[security]\nautonomy = "full"\negress_hosts = ["127.0.0.1:8099"]\n'
        'allowed_addresses = ["127.0.0.1:8099"]',
    )
    serve = "echo fetched > /srv/page; cd /srv; exec python3 -m http.server --bind 127.0.0.1 8099"
    machine.out("systemd-run", "--unit=site", "sh", "-c", serve)
    machine.out("systemctl", "start", "clawd.service")
    get = (
        "exec 3<>/dev/tcp/127.0.0.1/3128; "
        "printf 'GET http://127.0.0.1:{}/page HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3"
    )
    wait = "for i in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/8099) && exit; sleep 0.1; done"
    machine.out("bash", "-c", f"({wait}) 2>/dev/null")

    workspace = machine.path("/var/lib/private/clawd/workspace")
    (workspace / "get.sh").write_text(f"{get.format(8099)}; {get.format(8100)}", encoding="utf-8")

    code, screen = shell(machine, "alice", "bash get.sh")

    assert code == 0, screen
    assert "fetched" in screen
    assert "127.0.0.1 is refused: it is this machine" in screen
    receipt = of(machine, "alice", "receipt", "show", "1")["receipt"]
    assert receipt["contacted"].startswith("127.0.0.1:8099 127.0.0.1 ")
    assert receipt["refused"] == "127.0.0.1:8100"


def test_without_an_answer_an_asking_command_does_not_run(machine: Machine) -> None:
    done = ctl(machine, "alice", "tool", "run", "shell", "--json", '{"command": "touch x"}')

    assert done.returncode in {3, 4}
    assert of(machine, "alice", "receipt", "list")[0]["status"] == "denied"


def test_a_command_sees_nothing_of_the_machines_state_or_its_users(machine: Machine) -> None:
    configure(machine, tables='[security]\nautonomy = "full"')
    machine.put("/home/bob/secret.txt", "of bob")
    machine.out("systemctl", "start", "clawd.service")
    workspace = machine.path("/var/lib/private/clawd/workspace")
    (workspace / "look.sh").write_text(LOOK, encoding="utf-8")

    code, screen = shell(machine, "alice", "bash look.sh")

    assert code == 0, screen
    assert "SEEN" not in screen
    assert "WROTE" not in screen
    assert "HOME holds: workspace\r\n" in screen  # it is where it is, alone
    assert "systemd" not in screen
    lines = screen.split()
    assert "3" in lines, "loopback alone has a line below the two of the heading"
    kept = workspace / "kept.txt"
    assert kept.read_text() == "kept\n"
    assert kept.stat().st_uid == workspace.stat().st_uid


def test_a_command_that_is_stopped_leaves_no_process(machine: Machine) -> None:
    configure(machine, tables='[security]\nautonomy = "full"')
    ctl(machine, "alice", "status")
    command = json.dumps({"command": "(setsid sleep 4711 &); sleep 4711"})
    machine.out(
        "systemd-run",
        "--unit=call",
        "--uid=alice",
        "clawctl",
        "tool",
        "run",
        "shell",
        "--json",
        command,
    )
    machine.wait_until(
        lambda: machine.run("pgrep", "-f", "sleep 4711").returncode == 0, "a running command"
    )

    assert ctl(machine, "bob", "estop").returncode == 0

    machine.wait_until(
        lambda: machine.run("pgrep", "-x", "sleep").returncode == 1, "no command running"
    )
