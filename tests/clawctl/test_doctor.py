"""`clawctl doctor`: what it calls wrong, what it only notes, and what it says to do."""

import errno
import json
import os
import socket
import stat
import subprocess
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from clawctl.commands.doctor import disk, of_files
from clawctl.main import main
from clawd import __version__
from clawd.paths import layout
from clawd.wire.daemon import WorkerLine
from clawd.wire.mcp import McpServerLine, McpServerList
from clawd.wire.models import LoadedModel, LoadedModelList
from clawd.wire.tools import ToolList, ToolProblem
from tests.support.fake_daemon import FakeDaemon
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("own_home", "clawd_inside")

WELL = {"version": __version__, "sandbox": "bwrap", "sandbox_layers": ("namespaces", "seccomp")}


@pytest.fixture(autouse=True)
def _set_up(home: Path) -> None:
    """Put config and workspace into the home, so that what is found is the daemon's."""
    (home / "workspace").mkdir()
    (home / "config.toml").write_text(f'workspace_dir = "{home / "workspace"}"\n')
    (home / "config.toml").chmod(0o600)
    (home / "run").mkdir(mode=0o700, exist_ok=True)
    (home / "run").chmod(0o700)


def doctor(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], **changes: object
) -> tuple[int, dict[str, tuple[str, str, str]]]:
    daemon.handlers["status"] = daemon.status(**{**WELL, **changes})
    daemon.handlers.setdefault("list_loaded_models", LoadedModelList(items=()))
    code = main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    return code, {each["check"]: (each["state"], each["says"], each["fix"]) for each in found}


def test_all_is_well(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = doctor(daemon, capsys)
    assert code == 0
    expected = {"ok", "note"} if os.getuid() == 0 else {"ok"}  # root's daemon is noted
    assert {state for state, _, _ in found.values()} == expected
    assert [check for check, (state, _, _) in found.items() if state == "note"] in ([], ["user"])
    assert found["sandbox"] == ("ok", "bwrap (namespaces, seccomp)", "")


def test_s1_a_daemon_that_runs_as_root_is_noted(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = doctor(daemon, capsys, pid=1)  # root's, everywhere
    assert code == 0
    state, says, fix = found["user"]
    assert (state, says.split(":")[0]) == ("note", "clawd runs as root")
    assert "as a user of your own" in fix
    other = 5001 if os.getuid() == 0 else None
    with subprocess.Popen(["/usr/bin/sleep", "60"], user=other) as process:
        try:
            _, found = doctor(daemon, capsys, pid=process.pid)
        finally:
            process.kill()
    assert found["user"][0] == "ok"


@pytest.mark.parametrize(
    ("changes", "check", "word"),
    [
        ({"sandbox": "none", "sandbox_reason": "no bwrap here"}, "sandbox", "Install bubblewrap"),
        ({"receipts_enabled": False}, "receipts", "enabled = true"),
        ({"receipts_problem": "the log was cut"}, "receipts", "receipt verify"),
        ({"rules_problem": "no JSON"}, "approval rules", "approval_rules.json"),
        ({"problem": "the file is damaged"}, "daemon", "restart clawd"),
    ],
)
def test_what_is_wrong_fails_and_says_what_to_do(
    daemon: FakeDaemon,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    check: str,
    word: str,
) -> None:
    code, found = doctor(daemon, capsys, **changes)
    assert code == 1
    state, says, fix = found[check]
    assert state == "wrong"
    assert word in fix
    assert says


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"version": "0.0.1"}, "daemon"),
        ({"sandbox": "landlock", "sandbox_reason": "Landlock stands in"}, "sandbox"),
        ({"sandbox_unbounded": ("memory of all processes together",)}, "limits"),
        ({"estop": True, "estop_reason": "smoke"}, "emergency stop"),
        (
            {"workers": (WorkerLine(alias="m", pid=1, state="ready", running=0, fence="none"),)},
            "model m",
        ),
    ],
)
def test_a_note_is_no_fault(
    daemon: FakeDaemon,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    check: str,
) -> None:
    code, found = doctor(daemon, capsys, **changes)
    assert code == 0
    state, _, fix = found[check]
    assert (state, bool(fix)) == ("note", True)


@pytest.mark.parametrize(
    ("severity", "state", "code"), [("refused", "wrong", 1), ("warning", "note", 0)]
)
def test_tools_of_others_that_were_left_out_are_wrong_and_doubtful_ones_are_not(
    daemon: FakeDaemon,
    capsys: pytest.CaptureFixture[str],
    severity: Literal["refused", "warning"],
    state: str,
    code: int,
) -> None:
    problem = ToolProblem(file="/m/CLAWD-a.tools", line=3, severity=severity, reason="it is bad")
    daemon.handlers["list_tools"] = ToolList(items=(), problems=(problem,))
    assert doctor(daemon, capsys)[0] == code
    found = doctor(daemon, capsys)[1]["tools of others"]
    assert found[0] == state
    assert "/m/CLAWD-a.tools: it is bad" in found[1]
    assert "clawctl tool problems" in found[2]


def test_a_gateway_that_is_off_or_listens_here_is_well(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(daemon, capsys)[1]["gateway"][:2] == (
        "ok",
        "off: programs cannot connect by HTTP",
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        code, found = doctor(daemon, capsys, gateway=address)
    assert code == 0
    assert found["gateway"] == ("ok", f"{address}, keys: 0; this machine only", "")


def test_a_gateway_that_nobody_answers_at_is_wrong(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    # Held, so that nobody else can listen there.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{held.getsockname()[1]}"
        code, found = doctor(daemon, capsys, gateway=address)
    assert code == 1
    state, says, fix = found["gateway"]
    assert (state, says) == ("wrong", f"{address} does not answer")
    assert fix


@pytest.mark.parametrize(("scheme", "state"), [("http", "note"), ("https", "ok")])
def test_a_gateway_for_other_machines_is_noted_where_it_has_no_tls(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], scheme: str, state: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"{scheme}://0.0.0.0:{listening.getsockname()[1]}"
        code, found = doctor(daemon, capsys, gateway=address)
    assert (code, found["gateway"][0]) == (0, state)
    assert "other machines" in found["gateway"][1]
    assert ("tls_cert" in found["gateway"][2]) == (state == "note")


def test_mcp_servers_are_judged_one_by_one(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    away = McpServerLine(alias="away", link="waiting", transport="http", problem="refused")
    up = McpServerLine(alias="up", link="ready", transport="stdio", tools=3)
    other = McpServerLine(alias="other", link="ready", transport="stdio", changed=("read",))
    off = McpServerLine(alias="off", link="off", transport="stdio")
    shut = msgspec.structs.replace(up, alias="shut", reach_problem="it was refused a.test:443")
    daemon.handlers["list_mcp_servers"] = McpServerList(items=(up, away, other, off, shut))
    code, found = doctor(daemon, capsys)
    assert code == 0
    assert found["MCP server up"] == ("ok", "3 tools", "")
    assert found["MCP server off"] == ("ok", "off", "")
    assert found["MCP server shut"][:2] == ("note", "it was refused a.test:443")
    assert "hosts in [mcp.servers.shut]" in found["MCP server shut"][2]
    assert found["MCP server away"][:2] == ("note", "refused")
    assert "clawctl mcp connect away" in found["MCP server away"][2]
    assert found["MCP server other"][0] == "note"
    assert "mcp diff other" in found["MCP server other"][2]


def test_people_get_a_line_for_each_and_the_way_out(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.handlers["status"] = daemon.status(**{**WELL, "receipts_problem": "cut\x1b[31m"})
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "✓ sandbox: bwrap (namespaces, seccomp)" in shown
    assert "✗ receipts: cut" in shown
    assert "→ Look at the log with clawctl receipt verify." in shown
    assert "\x1b" not in shown


def test_a_mend_closes_what_was_judged_and_not_what_took_its_place(tmp_path: Path) -> None:
    home, victim = tmp_path / "h", tmp_path / "victim"
    home.mkdir(mode=0o700)
    victim.touch(mode=0o644)
    victim.chmod(0o644)
    for name in ("receipts.key", "memory.sqlite"):
        (home / name).touch()
        (home / name).chmod(0o644)
    found = [each for each in of_files(layout({"CLAWD_HOME": str(home)})) if each.mend is not None]
    (home / "receipts.key").unlink()
    (home / "receipts.key").symlink_to(victim)
    swapped, kept = found
    assert swapped.mend is not None
    assert kept.mend is not None
    with pytest.raises(OSError, match="replaced"):
        swapped.mend()
    kept.mend()
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644
    assert stat.S_IMODE((home / "memory.sqlite").stat().st_mode) == 0o600


@each_row(("number", "state"), [(errno.EROFS, "wrong"), (errno.EACCES, "ok")])
def test_a_file_system_that_takes_no_files_is_wrong_whatever_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, state: str
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("clawctl.commands.doctor.tempfile.TemporaryFile", refuse)
    monkeypatch.setattr("clawctl.commands.doctor.FEW_BYTES", 0)
    monkeypatch.setattr("clawctl.commands.doctor.LEAST_BYTES", 0)
    found = disk("disk", tmp_path).finding
    assert found.state == state
    assert ("Read-only file system" in found.says) == (state == "wrong")


def test_r6_what_was_done_otherwise_with_a_chat_template_is_noted(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = LoadedModel(name="plain", path="/p.gguf", pid=1, state="ready")
    odd = LoadedModel(
        name="odd", path="/o.gguf", pid=2, state="ready", template_notes=("it drops tool calls",)
    )
    daemon.handlers["list_loaded_models"] = LoadedModelList(items=(plain, odd))
    code, found = doctor(daemon, capsys)
    assert code == 0
    assert found["chat template plain"][:2] == ("ok", "used as it is")
    assert found["chat template odd"][:2] == ("note", "it drops tool calls")
