"""The systemd units: what clawd relies on in them, and what systemd itself says of them."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.rows import each_row

UNITS = Path(__file__).resolve().parents[1] / "systemd"
MAX_EXPOSURE = 3.0
TARGETS = ("sysinit", "basic", "shutdown", "sockets", "network", "multi-user", "umount")

needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def read_unit(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    unit.read_string((UNITS / name).read_text(encoding="utf-8"))
    return unit


def write_program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def system_root(tmp_path: Path) -> Path:
    """A root in which the system units and all they name exist."""
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    for name in ("clawd.service", "clawd.socket"):
        shutil.copy(UNITS / name, units)
    for target in TARGETS:
        (units / f"{target}.target").write_text("[Unit]\nDescription=x\n", encoding="utf-8")
    for program in ("usr/bin/clawd", "bin/kill", "usr/bin/kill"):
        write_program(tmp_path / program)
    return tmp_path


def verify(*arguments: str, runtime: Path) -> tuple[int, str]:
    """Runs systemd-analyze verify; unknown keys are only warnings, so its stderr counts too."""
    answer = subprocess.run(
        ["systemd-analyze", "verify", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "XDG_RUNTIME_DIR": str(runtime)},
    )
    return answer.returncode, answer.stderr


@needs_analyze
@pytest.mark.parametrize("name", ["clawd.service", "clawd.socket"])
def test_systemd_finds_nothing_to_say_about_a_system_unit(system_root: Path, name: str) -> None:
    unit = system_root / "etc/systemd/system" / name
    assert verify(f"--root={system_root}", str(unit), runtime=system_root) == (0, "")


@needs_analyze
def test_systemd_would_name_a_misspelt_key(system_root: Path) -> None:
    unit = system_root / "etc/systemd/system/clawd.service"
    text = unit.read_text(encoding="utf-8")
    unit.write_text(text.replace("WatchdogSec=", "WatchdogSecs="), encoding="utf-8")
    assert "WatchdogSecs" in verify(f"--root={system_root}", str(unit), runtime=system_root)[1]


@needs_analyze
@each_row("name", ["clawd.service", "clawd.socket", "clawd-wake.service", "clawd-wake.timer"])
def test_systemd_finds_nothing_to_say_about_a_user_unit(tmp_path: Path, name: str) -> None:
    program = tmp_path / "bin/clawd"
    write_program(program)
    for unit in ("clawd.service", "clawd.socket", "clawd-wake.service", "clawd-wake.timer"):
        text = (UNITS / "user" / unit).read_text(encoding="utf-8")
        text = text.replace("=/usr/bin/clawd", f"={program}")
        (tmp_path / unit).write_text(text, encoding="utf-8")
    assert verify("--user", str(tmp_path / name), runtime=tmp_path) == (0, "")


@each_row("text, code", [("1\n", 0), ("99999999999\n", 1), ("", 1), ("no number\n", 2), (None, 2)])
def test_clawd_is_woken_for_what_is_due_and_for_nothing_else(
    tmp_path: Path, text: str | None, code: int
) -> None:
    place = tmp_path / "wakes at"
    if text is not None:
        place.write_text(text)
    condition = read_unit("user/clawd-wake.service")["Service"]["ExecCondition"]
    shell, script, _ = shlex.split(condition.replace("%h/.clawd/wakes_at", "x").replace("%%", "%"))[
        1:
    ]
    asked = subprocess.run(["/bin/sh", shell, script, str(place)], check=False, capture_output=True)
    assert bool(asked.returncode) == bool(code)


@needs_analyze
def test_the_system_service_is_little_exposed(system_root: Path) -> None:
    answer = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--root={system_root}", "clawd.service"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
    )
    found = re.search(r"Overall exposure level for clawd.service: ([\d.]+)", answer.stdout)
    assert found is not None, answer.stderr
    assert float(found[1]) < MAX_EXPOSURE


def test_the_system_socket_belongs_to_root_and_the_control_group() -> None:
    assert dict(read_unit("clawd.socket")["Socket"]) == {
        "ListenStream": "/run/clawd/clawd.sock",
        "FileDescriptorName": "control",
        "SocketUser": "root",
        "SocketGroup": "clawd-ctl",
        "SocketMode": "0660",
        "DirectoryMode": "0755",
        "RemoveOnStop": "yes",
    }


def test_the_user_socket_is_closed_to_everybody_else() -> None:
    assert dict(read_unit("user/clawd.socket")["Socket"]) == {
        "ListenStream": "%t/clawd/clawd.sock",
        "FileDescriptorName": "control",
        "SocketMode": "0600",
        "DirectoryMode": "0700",
        "RemoveOnStop": "yes",
    }


def test_the_daemons_user_is_dynamic_and_in_no_group_of_ours() -> None:
    service = read_unit("clawd.service")["Service"]
    assert service["DynamicUser"] == "yes"
    assert not {"User", "Group", "SupplementaryGroups"} & set(service)


def test_stopping_the_service_leaves_the_sockets_directory_alone() -> None:
    socket = Path(read_unit("clawd.socket")["Socket"]["ListenStream"])
    runtime = read_unit("clawd.service")["Service"]["RuntimeDirectory"]
    assert Path("/run", runtime) != socket.parent
    assert "RuntimeDirectory" not in read_unit("user/clawd.service")["Service"]


@each_row("name", ["clawd.service", "user/clawd.service"])
def test_the_service_tells_systemd_how_it_is(name: str) -> None:
    service = read_unit(name)["Service"]
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "main"
    assert int(service["WatchdogSec"]) > 0
    assert service["ExecStartPre"].endswith("clawd --check-config")
    assert service["ExecReload"].endswith("kill -HUP $MAINPID")
    assert service["Delegate"] == "yes"
    assert read_unit(name)["Unit"]["Requires"] == "clawd.socket"


def test_the_system_service_keeps_its_state_where_the_paths_say() -> None:
    service = read_unit("clawd.service")["Service"]
    assert service["Environment"] == "CLAWD_HOME=/var/lib/clawd"
    assert service["StateDirectory"] == "clawd"
    assert service["StateDirectoryMode"] == "0700"
    assert service["ConfigurationDirectory"] == "clawd"


def test_the_sandbox_can_be_built_inside_the_service() -> None:
    service = read_unit("clawd.service")["Service"]
    assert "AF_NETLINK" in service["RestrictAddressFamilies"].split()
    assert {"user", "pid", "net", "mnt"} <= set(service["RestrictNamespaces"].split())
    assert {"@mount", "seccomp"} <= set(service["SystemCallFilter"].split())
    assert "ProcSubset" not in service


def test_the_service_sees_who_is_at_the_other_end() -> None:
    # Under PrivateUsers=yes the kernel shows every peer as nobody.
    assert "PrivateUsers" not in read_unit("clawd.service")["Service"]


def test_installing_makes_both_groups_and_a_readable_config_folder() -> None:
    def entries(name: str) -> list[list[str]]:
        lines = (UNITS / name).read_text(encoding="utf-8").splitlines()
        return [line.split() for line in lines if line and not line.startswith("#")]

    assert entries("clawd.sysusers") == [
        ["g", "clawd-ctl", "-", "-"],
        ["g", "clawd-admin", "-", "-"],
    ]
    assert entries("clawd.tmpfiles") == [["d", "/etc/clawd", "0755", "root", "root", "-"]]
