"""`clawctl service` on a machine that systemd runs: for root, for an image, and for a user."""

import json
import re

import pytest

from tests.support.booted import Done, Machine
from tests.support.machine_clawd import (
    SERVICE,
    ask,
    configure,
    ctl,
    entries,
    is_active,
    main_pid,
    of,
    shown,
)
from tests.support.user_manager import Run, as_user

pytestmark = [pytest.mark.booted, pytest.mark.timeout(300)]


def service(machine: Machine, *words: str) -> Done:
    return ctl(machine, "root", "service", *words)


def test_root_sees_starts_reloads_and_stops_the_service(machine: Machine) -> None:
    waiting = of(machine, "root", "service", "status")
    assert (waiting["state"], waiting["scope"], waiting["pid"]) == ("waiting", "system", 0)
    assert service(machine, "start").returncode == 0
    running = of(machine, "root", "service", "status")
    assert (running["state"], running["pid"]) == ("running", main_pid(machine))
    assert running["socket_is_there"]
    assert running["watchdog_s"] == 30
    at_a_glance = service(machine, "status").stdout
    assert re.search(r"clawd +running, pid \d+, up ", at_a_glance)
    assert "serving" in at_a_glance

    assert service(machine, "reload").returncode == 0
    assert len(entries(machine, "CLAWD_EVENT=config_reloaded")) == 1
    configure(machine, tables='[security]\nautonomy = "godmode"')
    refused = service(machine, "reload")

    assert refused.returncode == 1
    assert "godmode" in refused.stderr
    assert "clawctl config validate" in refused.stderr
    configure(machine)
    assert service(machine, "restart").returncode == 0
    assert main_pid(machine) not in {0, running["pid"]}
    assert "clawd started" in service(machine, "logs").stdout
    assert service(machine, "stop").returncode == 0
    stopped = service(machine, "status")
    assert stopped.returncode == 1
    assert not is_active(machine, "clawd.socket")
    assert "is installed" not in stopped.stderr
    nobody = ctl(machine, "alice", "--no-start", "status")
    assert nobody.returncode == 6


def test_a_member_sees_how_the_service_stands_and_may_not_change_it(machine: Machine) -> None:
    ask(machine, "bob", "hello")

    seen = of(machine, "alice", "service", "status", "--system")
    refused = ctl(machine, "alice", "service", "stop", "--system")

    assert seen["state"] == "running"
    assert refused.returncode == 1
    assert "sudo" in refused.stderr
    assert is_active(machine)


def test_the_service_of_the_package_is_enabled_and_not_written_again(machine: Machine) -> None:
    assert shown(machine, "UnitFileState") == "disabled"

    report = of(machine, "root", "service", "install", "--system")

    assert "comes from a package" in report["notes"][0]
    assert shown(machine, "UnitFileState") == "enabled"
    assert is_active(machine)
    # Only the links of `enable` are in /etc.
    written = machine.out("find", "/etc/systemd/system", "-name", "clawd*", "-type", "f")
    assert written == ""
    again = ctl(machine, "root", "service", "uninstall")
    assert again.returncode == 1
    assert "apt remove clawd" in again.stderr
    assert is_active(machine)


def test_an_image_gets_units_and_groups_and_this_machine_stays_as_it_is(machine: Machine) -> None:
    machine.out("mkdir", "-p", "/srv/image/etc")

    report = of(machine, "root", "service", "install", "--system", "--root", "/srv/image")

    assert report["scope"] == "system"
    units = machine.path("/srv/image/etc/systemd/system")
    assert "ExecStart=/usr/bin/clawd\n" in (units / SERVICE).read_text(encoding="utf-8")
    assert (units / "multi-user.target.wants" / SERVICE).is_symlink()
    assert (units / "sockets.target.wants" / "clawd.socket").is_symlink()
    groups = machine.path("/srv/image/etc/group").read_text(encoding="utf-8")
    assert "clawd-ctl:" in groups
    assert machine.path("/srv/image/etc/clawd").is_dir()
    assert not is_active(machine)
    assert shown(machine, "UnitFileState") == "disabled"

    removed = ctl(machine, "root", "service", "uninstall", "--system", "--root", "/srv/image")

    assert removed.returncode == 0, removed.stderr
    assert machine.out("find", "/srv/image", "-name", "clawd*", "-type", "f") == ""


@pytest.fixture
def as_mallory(machine: Machine) -> Run:
    """Run a command as a user who is in no group of clawd's, in a session with a manager."""
    return as_user(machine, "mallory")


def test_a_user_installs_the_packages_units_and_lets_go_of_them(
    machine: Machine, as_mallory: Run
) -> None:
    installed = as_mallory("clawctl", "service", "install", "--user", "--json")

    assert installed.returncode == 0, installed.stderr
    assert "comes from a package" in json.loads(installed.stdout)["notes"][0]
    assert "tiny demo model" in as_mallory("clawctl", "agent", "-q", "-m", "hello").stdout
    status = json.loads(as_mallory("clawctl", "service", "status", "--json").stdout)
    assert (status["scope"], status["state"], status["starts"]) == ("user", "running", "enabled")
    assert as_mallory("clawctl", "service", "reload").returncode == 0
    logs = as_mallory("clawctl", "service", "logs")
    assert logs.returncode in {0, 1}, logs.stderr  # without a login manager no journal is theirs
    refused = as_mallory("clawctl", "service", "uninstall")
    assert refused.returncode == 1
    assert "clawctl service disable" in refused.stderr
    assert as_mallory("clawctl", "service", "stop").returncode == 0
    assert as_mallory("clawctl", "service", "disable").returncode == 0
    assert machine.run("pgrep", "-u", "mallory", "-f", "/usr/bin/clawd").returncode == 1
    assert not is_active(machine)


def test_a_user_without_packaged_units_writes_and_removes_own_ones(
    machine: Machine, as_mallory: Run
) -> None:
    # As after pipx: the program is there, and no package brought units for users.
    packaged = ("/usr/lib/systemd/user/clawd.service", "/usr/lib/systemd/user/clawd.socket")
    machine.out("rm", *packaged)
    machine.out("systemctl", "daemon-reload")
    # The daemon that runs already hands its home over.
    assert as_mallory("clawctl", "agent", "-q", "-m", "my colour is teal").returncode == 0
    before = json.loads(as_mallory("clawctl", "status", "--json").stdout)

    installed = as_mallory("clawctl", "service", "install")

    assert installed.returncode == 0, installed.stdout + installed.stderr
    units = machine.path("/home/mallory/.config/systemd/user")
    assert (units / SERVICE).exists()
    after = json.loads(as_mallory("clawctl", "status", "--json").stdout)
    assert after["home"] == before["home"] == "/home/mallory/.clawd"
    assert after["pid"] != before["pid"]
    own = json.loads(as_mallory("clawctl", "service", "status", "--json").stdout)
    assert (own["state"], own["pid"]) == ("running", after["pid"])
    (talk,) = json.loads(as_mallory("clawctl", "conversation", "list", "--json").stdout)
    assert talk["title"] == "my colour is teal"

    removed = as_mallory("clawctl", "service", "uninstall")

    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert "/home/mallory/.clawd" in removed.stdout + removed.stderr
    assert machine.out("find", "/home/mallory/.config", "-name", "clawd*") == ""
    assert machine.run("pgrep", "-u", "mallory", "-f", "clawd").returncode == 1
    assert machine.path("/home/mallory/.clawd/memory.sqlite").exists()
