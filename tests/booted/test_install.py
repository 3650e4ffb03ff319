"""The life of the package on a machine without a network: in, up, out, in again, gone."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.booted import Machine
from tests.support.installed import install, package
from tests.support.machine_clawd import (
    CONFIG,
    SERVICE,
    ask,
    configure,
    ctl,
    entries,
    is_active,
    main_pid,
    of,
    shown,
    state,
)

pytestmark = [pytest.mark.booted, pytest.mark.timeout(300)]

# Groups keep their numbers, so that none of what they could open is given to others; the rest are
# notes of dpkg, of apt and of systemd about what happened.
STAYS = re.compile(
    r"/etc/(group|gshadow)-?|/var/(log|cache|tmp|lib/(dpkg|apt|systemd|pam|private))(/.*)?"
    r"|/etc/ld\.so\.cache|/tmp/systemd-private-.*|/tmp|/etc|/etc/.*\.d|/etc/.*\.wants|/root"
)
LISTING = """
import json, os, stat
found = {}
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys", "dev", "run")]
    for name in [*folders, *files]:
        path = os.path.join(folder, name)
        about = os.lstat(path)
        size = about.st_size if stat.S_ISREG(about.st_mode) else 0
        found[path] = [about.st_mode, about.st_uid, about.st_gid, size]
print(json.dumps(found))
"""


def listing(machine: Machine) -> dict[str, list[int]]:
    return dict(json.loads(machine.out("python3", "-c", LISTING)))


def remove(machine: Machine, how: str) -> None:
    machine.out("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", how, "-y", "clawd")


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same package with a higher number, and with code that tells of it."""
    folder = tmp_path_factory.mktemp("newer")
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "-R", str(package()), str(tree)], check=True)
    control = tree / "DEBIAN" / "control"
    text = control.read_text(encoding="utf-8")
    control.write_text(re.sub(r"(?m)^Version: .*$", "Version: 99.0-1", text), encoding="utf-8")
    site = tree / "usr/lib/clawd/lib/python3.11/site-packages/clawd"
    (site / "__init__.py").write_text('__version__ = "99.0"\n', encoding="utf-8")
    for compiled in (site / "__pycache__").glob("__init__.*"):  # never compared to its source
        compiled.unlink()
    deb = folder / "newer.deb"
    words = ["dpkg-deb", "-Znone", "--root-owner-group", "-b", str(tree), str(deb)]
    subprocess.run(words, check=True, capture_output=True)
    shutil.rmtree(tree)
    return deb


def test_the_package_installs_without_a_network_and_purges_clean(bare_machine: Machine) -> None:
    machine = bare_machine
    interfaces = machine.out("cat", "/proc/net/dev").splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
    before = listing(machine)

    said = install(machine)

    assert "clawd-ctl" in said  # what to do next
    assert is_active(machine, "clawd.socket")
    about = machine.out("stat", "-c", "%U %G %a", "/run/clawd/clawd.sock").split()
    assert about == ["root", "clawd-ctl", "660"]
    assert machine.out("systemctl", "is-system-running").strip() == "running"
    answer = machine.run("clawctl", "agent", "-q", "-m", "hello", "--no-input")
    assert "tiny demo model" in answer.stdout, answer.stderr
    assert state(machine).exists()

    remove(machine, "purge")

    after = listing(machine)
    left = sorted(path for path in after if path not in before and not STAYS.fullmatch(path))
    lost = sorted(path for path in before if path not in after and not STAYS.fullmatch(path))
    changed = sorted(
        path
        for path, about_it in after.items()
        if before.get(path, about_it) != about_it and not STAYS.fullmatch(path)
    )
    assert (left, lost, changed) == ([], [], [])
    assert not [path for path in after if "clawd" in path and "/dpkg/" not in path]
    assert machine.run("ls", "/run/clawd", "/run/clawd-priv").stdout == ""
    assert machine.run("pgrep", "-f", "clawd").returncode == 1
    assert machine.run("systemctl", "cat", SERVICE).returncode != 0
    assert machine.out("systemctl", "--failed", "--no-legend", "--no-pager") == ""


def test_an_upgrade_keeps_all_data_and_restarts_in_order(machine: Machine, newer: Path) -> None:
    configure(machine, top="# mine")
    mine = machine.path(CONFIG).read_text(encoding="utf-8")
    ask(machine, "alice", "my favourite colour is teal")
    told = of(machine, "alice", "conversation", "list")
    assert ctl(machine, "alice", "tool", "run", "file_list").returncode == 0
    receipts = of(machine, "alice", "receipt", "list")
    first = main_pid(machine)
    before = of(machine, "alice", "status")["version"]
    assert before != "99.0"

    install(machine, newer)

    assert machine.out("dpkg-query", "-W", "-f", "${Version}", "clawd") == "99.0-1"
    assert main_pid(machine) not in {0, first}
    now = of(machine, "alice", "status")
    assert (now["version"], now["pid"]) == ("99.0", main_pid(machine))
    started = [entry["CLAWD_VERSION"] for entry in entries(machine, "CLAWD_EVENT=startup")]
    assert started == [before, "99.0"]
    assert is_active(machine)
    assert is_active(machine, "clawd.socket")
    assert of(machine, "alice", "conversation", "list") == told
    assert of(machine, "alice", "receipt", "list") == receipts
    assert of(machine, "alice", "receipt", "verify")["ok"]
    assert machine.path(CONFIG).read_text(encoding="utf-8") == mine
    assert shown(machine, "NRestarts") == "0"
    assert "clawd ended" in machine.out("journalctl", "-u", SERVICE, "--no-pager")
    assert machine.out("systemctl", "--failed", "--no-legend", "--no-pager") == ""


def test_what_was_removed_comes_back_with_its_data(machine: Machine) -> None:
    deb = machine.path("/root/again.deb")
    shutil.copyfile(package(), deb)
    configure(machine, top="# mine")
    ask(machine, "alice", "my favourite colour is teal")
    told = of(machine, "alice", "conversation", "list")

    remove(machine, "remove")

    assert not is_active(machine, "clawd.socket")
    assert machine.run("pgrep", "-f", "clawd").returncode == 1
    assert machine.run("ls", "/run/clawd").stdout == ""
    assert (state(machine) / "memory.sqlite").exists()
    assert "# mine" in machine.path(CONFIG).read_text(encoding="utf-8")

    machine.out(
        "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "/root/again.deb"
    )

    assert of(machine, "alice", "conversation", "list") == told
    assert "# mine" in machine.path(CONFIG).read_text(encoding="utf-8")


def test_a_package_that_is_already_there_is_installed_again(machine: Machine) -> None:
    ask(machine, "alice", "hello")
    told = of(machine, "alice", "conversation", "list")

    install(machine)

    assert of(machine, "alice", "conversation", "list") == told
    assert ctl(machine, "bob", "status").returncode == 0
