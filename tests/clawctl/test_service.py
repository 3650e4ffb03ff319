"""`clawctl service`, with stand-ins for systemctl and its like that note their calls."""

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from clawctl import systemctl
from clawctl.systemctl import MARK, escaped
from clawd.errors import ClawError
from clawd.paths import layout
from tests.support.fake_systemd import FakeSystemd
from tests.support.here import environment, run_here
from tests.support.home import Home
from tests.support.hostile import HOSTILE
from tests.support.rows import each_row


class World(FakeSystemd):
    """A throwaway account, and a systemd that does what it is told and nothing else."""

    def __init__(self, home: Home, folder: Path) -> None:
        super().__init__(folder / "fake")
        self.home = home
        self.fake = self.path
        self.units = Path(home.environ["HOME"]) / ".config/systemd/user"
        home.environ |= {"PATH": f"{self.fake}:/usr/bin:/bin"}
        del home.environ["CLAWD_HOME"]

    def ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `clawctl service` in this process; the journal writes to the streams of its own."""
        if arguments[0] == "logs":
            return self.home.ctl("service", *arguments)
        with environment(self.home.environ), pytest.MonkeyPatch.context() as patch:
            # What has not refused to be reloaded by then does not: nobody here answers later.
            patch.setattr("clawctl.commands.service.RELOAD_PATIENCE_S", 0.05)
            done = run_here(["service", *arguments])
        return subprocess.CompletedProcess(arguments, done.code, done.out, done.err)

    def json(self, *arguments: str) -> Any:
        done = self.ctl(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(Home(tmp_path), tmp_path)


def test_installing_writes_the_units_and_starts_them(world: World) -> None:
    done = world.home.ctl("service", "install", "--user")  # as people run it
    assert done.returncode == 0, done.stderr
    assert world.calls() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable clawd.socket clawd.service",
        "systemctl --user start clawd.socket",
        "systemctl --user restart clawd.service",
        f"loginctl show-user {os.getuid()} --property=Linger",
    ]
    service = (world.units / "clawd.service").read_text(encoding="utf-8")
    program = str(Path(sys.executable).parent / "clawd")
    program = f'"{program}"' if " " in program else program
    assert service.startswith(MARK)
    assert f"\nExecStart={program}\n" in service
    assert f"\nExecStartPre={program} --check-config\n" in service
    assert "ListenStream=%t/clawd/clawd.sock" in (world.units / "clawd.socket").read_text("utf-8")
    assert "/wakes_at" in (world.units / "clawd-wake.service").read_text("utf-8")
    assert (world.units / "clawd-wake.timer").read_text("utf-8").startswith(MARK)
    assert "✓ start it when you log in  [systemctl --user enable" in done.stderr


def test_installing_again_changes_nothing(world: World) -> None:
    world.ctl("install", "--user")
    before = {path: path.stat().st_mtime_ns for path in world.units.iterdir()}
    report = world.json("install", "--user")
    assert {path: path.stat().st_mtime_ns for path in world.units.iterdir()} == before
    assert [step["result"] for step in report["steps"][:2]] == ["unchanged", "unchanged"]


def test_a_dry_run_does_nothing_and_says_what_it_would_do(world: World) -> None:
    report = world.json("install", "--user", "--dry-run")
    assert not world.units.exists()
    assert world.calls() == []
    assert {step["result"] for step in report["steps"]} == {"planned"}
    assert len(report["steps"]) == 8


def test_units_can_be_printed_without_any_systemd(world: World) -> None:
    world.says("state", "offline\n")
    done = world.ctl("install", "--user", "--print")
    assert done.returncode == 0
    assert "ExecStart=" in done.stdout
    assert world.calls() == []


def test_another_home_is_served_at_its_own_socket(world: World) -> None:
    other = world.home.path
    world.home.environ["CLAWD_HOME"] = str(other)
    files = world.json("install", "--user", "--print")["files"]
    assert f"\nEnvironment=CLAWD_HOME={other}\n" in files[0]["text"]
    assert f"\nListenStream={other}/run/clawd.sock\n" in files[1]["text"]


def test_a_unit_that_a_person_wrote_is_not_overwritten(world: World) -> None:
    world.units.mkdir(parents=True)
    mine = world.units / "clawd.service"
    mine.write_text("[Service]\nExecStart=/opt/mine\n", encoding="utf-8")
    done = world.ctl("install", "--user")
    assert done.returncode == 1
    assert "clawctl did not write it" in done.stderr
    assert mine.read_text(encoding="utf-8") == "[Service]\nExecStart=/opt/mine\n"
    assert world.calls() == []
    assert world.ctl("uninstall", "--user").returncode == 0
    assert mine.exists()


def test_a_package_unit_is_used_instead_of_a_second_one(world: World, tmp_path: Path) -> None:
    unit = tmp_path / "root/usr/lib/systemd/system/clawd.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("", encoding="utf-8")
    report = world.json("install", "--system", "--root", str(tmp_path / "root"))
    assert not (tmp_path / "root/etc").exists()
    assert "comes from a package" in report["notes"][0]
    done = world.ctl("uninstall", "--system", "--root", str(tmp_path / "root"))
    assert done.returncode == 1
    assert "apt remove clawd" in done.stderr


@pytest.mark.skipif(
    Path(sys.executable).parts[1] in {"home", "root", "tmp", "var"},
    reason="this environment is where the machine's service may not look",
)
def test_the_machines_service_goes_into_an_image(world: World, tmp_path: Path) -> None:
    root = tmp_path / "image"
    root.mkdir()
    report = world.json("install", "--system", "--root", str(root))
    written = sorted(str(each.relative_to(root)) for each in root.rglob("*") if each.is_file())
    assert written == [
        "etc/systemd/system/clawd.service",
        "etc/systemd/system/clawd.socket",
        "etc/sysusers.d/clawd.conf",
        "etc/tmpfiles.d/clawd.conf",
    ]
    assert world.calls() == [
        f"systemd-sysusers --root={root} {root}/etc/sysusers.d/clawd.conf",
        f"systemd-tmpfiles --create --root={root} {root}/etc/tmpfiles.d/clawd.conf",
        f"systemctl --root={root} enable clawd.socket clawd.service",
    ]
    assert "usermod -aG clawd-ctl" in report["notes"][0]
    world.json("uninstall", "--system", "--root", str(root))
    assert not [each for each in root.rglob("*") if each.is_file()]


@each_row("folder", ["/home/ada/.local", "/root/venv", "/tmp/venv"])
def test_the_machines_service_cannot_run_what_it_cannot_see(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemctl, "own_program", lambda: Path(folder, "bin/clawd"))
    with pytest.raises(ClawError, match="may not look into"):
        systemctl.files_of("system", tmp_path, {}, layout({}))


def test_without_lingering_the_line_that_changes_it_is_offered(world: World) -> None:
    world.says("loginctl.says", "Linger=no\n")
    done = world.ctl("install", "--user")
    assert "loginctl enable-linger" in done.stdout


@pytest.mark.parametrize(
    ("state", "problem", "told"),
    [
        ("offline", "", "XDG_RUNTIME_DIR is not set"),
        ("", "Failed to connect to bus: No medium found", "enable-linger"),
        ("", "System has not been booted with systemd as init system", "In a container"),
    ],
)
def test_without_a_manager_it_is_said_what_to_do(
    world: World, state: str, problem: str, told: str
) -> None:
    world.says("state", state)
    world.says("problem", problem)
    for verb in ("install", "start", "status", "stop"):
        done = world.ctl(verb, "--user")
        assert done.returncode == 1
        assert told in done.stderr
    assert not world.units.exists()


def test_without_systemctl_it_is_said_what_to_do(world: World) -> None:
    (world.fake / "systemctl").unlink()
    world.home.environ["PATH"] = str(world.fake)
    done = world.ctl("install", "--user")
    assert done.returncode == 1
    assert "no systemctl on this machine" in done.stderr
    assert "supervisor" in done.stderr


def test_a_step_that_fails_stops_the_rest(world: World) -> None:
    world.says("fail.enable", "Failed to enable unit: it is masked\nmore\n")
    done = world.ctl("install", "--user")
    assert done.returncode == 1
    assert "it is masked" in done.stderr
    assert world.calls()[-1] == "systemctl --user enable clawd.socket clawd.service"


def test_uninstalling_removes_the_units_and_leaves_the_data(world: World) -> None:
    data = Path(world.home.environ["HOME"]) / ".clawd"
    data.mkdir()
    (data / "memory.sqlite").write_text("x", encoding="utf-8")
    world.ctl("install", "--user")
    world.calls()
    done = world.ctl("uninstall", "--user")
    assert done.returncode == 0, done.stderr
    assert world.calls() == [
        "systemctl --user disable --now clawd.socket clawd.service",
        "systemctl --user daemon-reload",
        "systemctl --user reset-failed clawd.service",
    ]
    assert [*world.units.iterdir()] == []
    assert f"Your data stays: {data}" in done.stdout
    assert (data / "memory.sqlite").exists()
    assert "Nothing was installed" in world.ctl("uninstall", "--user").stdout


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        (("start",), "start clawd.socket clawd.service"),
        (("stop",), "stop clawd.socket clawd.service"),
        (("restart",), "restart clawd.service"),
        (("restart", "--socket"), "restart clawd.socket clawd.service"),
        (("enable",), "enable clawd.socket clawd.service"),
        (("disable",), "disable clawd.socket clawd.service"),
        (("reload",), "reload clawd.service"),
    ],
)
def test_a_verb_is_one_systemctl_command(world: World, verb: tuple[str, ...], call: str) -> None:
    report = world.json(*verb, "--user")
    assert world.calls() == [f"systemctl --user {call}"]
    assert report["steps"][0]["command"] == f"systemctl --user {call}"
    world.ctl(*verb, "--user", "--dry-run")
    assert world.calls() == []


def test_a_service_that_is_not_installed_is_not_started(world: World) -> None:
    world.unit("LoadState=not-found\n")
    done = world.ctl("start", "--user")
    assert done.returncode == 1
    assert "clawctl service install --user" in done.stderr


def test_a_refused_reload_is_an_error_with_its_reason(world: World) -> None:
    world.unit(
        "LoadState=loaded\nActiveState=active\n"
        "StatusText=serving; RELOAD REFUSED, the old config stays: the configuration has 1 "
        "problem\n"
    )
    done = world.ctl("reload", "--user")
    assert done.returncode == 1
    assert "the old config stays: the configuration has 1 problem" in done.stderr


def test_the_status_tells_at_a_glance(world: World) -> None:
    world.unit(
        "LoadState=loaded\nActiveState=active\nMainPID=77\nStatusText=serving; 1 turn running\n"
        "UnitFileState=enabled\nFragmentPath=/x/clawd.service\nDropInPaths=/x/gpu.conf\n"
        "Result=success\nExecMainCode=2\nExecMainStatus=9\nNRestarts=3\nWatchdogUSec=1min 30s\n"
        "MemoryCurrent=1500000000\nTasksCurrent=12\n"
    )
    world.says(
        "show.clawd.socket",
        "LoadState=loaded\nActiveState=active\nSubState=running\n"
        "Listen=/nonexistent/clawd.sock (Stream)\n",
    )
    done = world.ctl("status", "--user")
    assert done.returncode == 0, done.stderr
    for part in (
        "running, pid 77",
        "serving; 1 turn running",
        "/x/clawd.service (enabled, 1 drop-ins)",
        "(signal 9); restarted 3 times",
        "every 90 s",
        "1.5 GB with models and tools, 12 tasks",
        "/nonexistent/clawd.sock is gone, nobody can connect: clawctl service restart --socket",
    ):
        assert part in done.stdout
    state = world.json("status", "--user")
    assert (state["restarts"], state["watchdog_s"], state["pid"]) == (3, 90.0, 77)


def test_no_text_of_a_unit_drives_the_terminal(world: World) -> None:
    world.unit(
        f"LoadState=loaded\nActiveState=active\nFragmentPath=/x\nStatusText={HOSTILE}\n"
        f"Result={HOSTILE}\nExecMainCode=1\nExecMainStatus={HOSTILE}\n".replace("\0", "")
    )
    world.says("fail.stop", HOSTILE.replace("\0", ""))
    shown = world.ctl("status", "--user")
    failed = world.ctl("stop", "--user")
    assert failed.returncode == 1
    for text in (shown.stdout, shown.stderr, failed.stdout, failed.stderr):
        assert {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"}} <= {"\n"}


@pytest.mark.parametrize(
    ("unit", "socket", "state", "code"),
    [
        ("LoadState=loaded\nActiveState=inactive\n", "active", "waiting", 0),
        ("LoadState=loaded\nActiveState=inactive\n", "inactive", "stopped", 1),
        ("LoadState=loaded\nActiveState=failed\nResult=watchdog\n", "inactive", "failed", 1),
        ("LoadState=loaded\nActiveState=activating\n", "active", "starting", 0),
        ("LoadState=not-found\nActiveState=inactive\n", "inactive", "not installed", 1),
    ],
)
def test_the_status_has_one_word_and_an_exit_code(
    world: World, unit: str, socket: str, state: str, code: int
) -> None:
    world.unit(unit)
    world.says("show.clawd.socket", f"LoadState=loaded\nActiveState={socket}\n")
    done = world.ctl("status", "--user", "--json")
    assert (json.loads(done.stdout)["state"], done.returncode) == (state, code)


def test_logs_are_asked_of_the_journal_by_field(world: World) -> None:
    world.says("journalctl.says", "a line\n")
    done = world.ctl(
        *("logs", "--user", "-n", "5", "-f", "--since", "1 hour ago", "-p", "err"),
        *("--tool", "shell", "--event", "tool_denied"),
    )
    assert done.returncode == 0
    assert done.stdout == "a line\n"
    assert world.calls() == [
        "journalctl --user --unit clawd.service --no-pager --lines=5 --since=1 hour ago "
        "--priority=err --follow CLAWD_TOOL=shell CLAWD_EVENT=tool_denied"
    ]


def test_entries_of_the_journal_are_one_json_document_or_one_a_line(world: World) -> None:
    entries = [{"MESSAGE": "one"}, {"MESSAGE": [27, 91]}]
    world.says("journalctl.says", "".join(f"{json.dumps(each)}\n" for each in entries))
    assert world.json("logs", "--user") == entries
    assert "--output=json" in world.calls()[0]
    followed = world.ctl("logs", "--user", "--json", "--follow")
    assert [json.loads(line) for line in followed.stdout.splitlines()] == entries
    world.says("fail.journalctl", "")
    refused = world.ctl("logs", "--user", "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["message"] == "journalctl ended with status 1"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_the_machines_service_is_not_for_everybody(world: World) -> None:
    done = world.ctl("start", "--system")
    assert done.returncode == 1
    assert "sudo" in done.stderr


@each_row(
    ("path", "word"),
    [
        ("/opt/clawd/bin/clawd", "/opt/clawd/bin/clawd"),
        ("/a b/clawd", '"/a b/clawd"'),
        ("/100%/$x/clawd", "/100%%/$$x/clawd"),
        ('/a"b\\/clawd', '"/a\\"b\\\\/clawd"'),
    ],
)
def test_a_path_is_one_word_of_an_exec_line(path: str, word: str) -> None:
    assert escaped(Path(path)) == word
