"""`clawctl policy`: one call explained, a table of cases judged, over a fake daemon."""

import json
from pathlib import Path

import pytest
from msgspec.structs import astuple, replace

from clawctl.app import utc_time
from clawctl.main import main
from clawd.wire.policy import (
    CheckPolicy,
    ExplainPolicy,
    PolicyBoundary,
    PolicyCaseLine,
    PolicyCheck,
    PolicyExplanation,
    PolicyReplay,
    ReplayCount,
    ReplayLine,
    ReplayPolicy,
    ReplaySkip,
    ShowPolicy,
)
from tests.clawctl.conftest import Capture
from tests.support.fake_daemon import FakeDaemon
from tests.support.rows import each_row

RIGHT = PolicyCaseLine(
    name="reading", tool="file_read", expect="allow", verdict="allow", risk="low", reason="reads"
)
WRONG = PolicyCaseLine(
    name="removing",
    tool="shell",
    expect="deny",
    verdict="ask",
    risk="medium",
    reason="runs rm",
    problem="expected deny, the policy says ask",
)


pytestmark = pytest.mark.usefixtures("own_home")


def test_explain_says_verdict_risk_and_rule(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture
) -> None:
    daemon.handlers["explain_policy"] = PolicyExplanation(
        verdict="deny", risk="high", reason="runs rm", rule="blocked", hint="do not"
    )
    command = ["policy", "explain", "shell", '{"command":"rm x"}', "-C", str(tmp_path)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("deny", "high", "runs rm", "blocked", "do not"))
    (asked,) = daemon.calls_of(ExplainPolicy)
    assert (asked.tool, asked.workspace) == ("shell", str(tmp_path))
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "deny"


def test_arguments_that_are_no_object_never_reach_the_daemon(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    for arguments in ("ls", "[]", "{"):
        assert main(["policy", "explain", "shell", arguments]) == 1
        error = capsys.readouterr().err
        assert "is not a JSON object" in error
        assert "clawctl policy explain shell" in error
    assert daemon.calls_of(ExplainPolicy) == []


def test_a_table_as_it_should_be_is_counted(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "cases.toml"
    file.write_text("[[case]]")
    daemon.handlers["check_policy"] = PolicyCheck(items=(RIGHT, RIGHT))
    assert main(["policy", "test", str(file)]) == 0
    assert capsys.readouterr().out == "2 of 2 cases are as they should be.\n"
    assert daemon.calls_of(CheckPolicy)[0].table == "[[case]]"


def test_what_is_wrong_is_shown_and_fails(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "cases.toml"
    file.write_text("")
    daemon.handlers["check_policy"] = PolicyCheck(items=(RIGHT, WRONG))
    assert main(["policy", "test", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "removing" in shown
    assert "the policy says ask" in shown
    assert "reading" not in shown
    assert "1 of 2 cases" in shown
    assert main(["policy", "test", str(file), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_a_file_that_cannot_be_read_is_said(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "cases.toml"
    file.write_bytes(b"\xff")
    assert main(["policy", "test", str(file)]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert main(["policy", "test", str(tmp_path / "none")]) == 2


def test_without_a_file_the_configured_table_is_judged(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["check_policy"] = PolicyCheck(items=(RIGHT,))
    assert main(["policy", "test"]) == 0
    (asked,) = daemon.calls_of(CheckPolicy)
    assert (asked.configured, asked.table) == (True, "")


def test_m4_the_boundary_is_listed_whole(daemon: FakeDaemon, capsys: Capture) -> None:
    boundary = PolicyBoundary(
        autonomy="supervised",
        sandbox="bwrap",
        workspace="/home/ada/project",
        workspace_only=True,
        workspace_roots=("/home/ada",),
        forbidden_paths=("/etc", "/home/ada/.ssh\x1b[2J"),
        forbidden_commands=("sudo", "mkfs"),
        allowed_commands=("git log",),
        allowed_domains=("*.example.org",),
        allowed_addresses=("localhost:8080",),
        untrusted_paths=("*.eml",),
        writable_run_later=("conftest.py",),
        egress="ask",
        egress_hosts=("get.example.org:443",),
    )
    daemon.handlers["show_policy"] = boundary
    assert main(["policy", "show", "-C", "."]) == 0
    shown = capsys.readouterr().out
    assert daemon.calls_of(ShowPolicy)[0].workspace == str(Path.cwd())
    values = [
        value
        for each in astuple(boundary)
        for value in (each if isinstance(each, tuple) else [each])
    ]
    missing = [v for v in values if isinstance(v, str) and v.replace("\x1b[2J", "") not in shown]
    assert missing == []
    assert "file tools stay in it" in shown
    assert "\x1b" not in shown
    daemon.handlers["show_policy"] = replace(boundary, workspace_only=False, forbidden_paths=())
    assert main(["policy", "show"]) == 0
    shown = capsys.readouterr().out
    assert "file tools may leave it" in shown
    assert ["forbidden", "paths", "none"] in [line.split() for line in shown.splitlines()]
    assert main(["policy", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workspace_only"] is False


def test_explain_takes_another_autonomy(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["explain_policy"] = PolicyExplanation(
        verdict="allow", risk="low", reason="", rule="full"
    )
    assert main(["policy", "explain", "time", "--autonomy", "full"]) == 0
    assert daemon.calls_of(ExplainPolicy)[0].autonomy == "full"
    assert main(["policy", "explain", "time", "--autonomy", "godmode"]) == 2


CHANGED = ReplayLine(
    seq=7,
    receipt_id="receipt-7",
    timestamp="2026-11-21T08:00:00Z",
    tool="shell",
    arguments='{"command":"ls \u202e"}',
    before="ask",
    after="allow",
    risk="medium",
    reason="runs ls",
)
REPLAY = PolicyReplay(
    items=(CHANGED,),
    counts=(
        ReplayCount(before="ask", after="allow", count=1),
        ReplayCount(before="deny", after="deny", count=4),
    ),
    skipped=(ReplaySkip(reason="its arguments are not kept", count=2),),
)


def test_replay_shows_what_changes_and_says_so_by_its_exit_code(
    daemon: FakeDaemon, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[security]\nautonomy = "full"')
    daemon.handlers["replay_policy"] = REPLAY
    command = ["policy", "replay", "--config", str(file), "--since", "2026-11-01", "--limit", "9"]
    assert main(command) == 1
    shown = capsys.readouterr().out
    assert "7   2026-11-21T08:00:00Z  shell  asked  allowed   medium  runs ls" in shown
    assert "‹U+202E›" in shown
    assert "asked → allowed" in shown
    assert "4 of 5 calls would be decided as they were." in shown
    assert "2 cannot be replayed: its arguments are not kept" in shown
    (asked,) = daemon.calls_of(ReplayPolicy)
    assert asked == ReplayPolicy(config=file.read_text(), since="2026-11-01T00:00:00Z", limit=9)
    assert main([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["items"][0]["after"] == "allow"


def test_a_replay_that_changes_nothing_is_exit_0(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["replay_policy"] = PolicyReplay(items=(), counts=())
    assert main(["policy", "replay"]) == 0
    assert capsys.readouterr().out == "0 of 0 calls would be decided as they were.\n"
    assert daemon.calls_of(ReplayPolicy) == [ReplayPolicy()]


@pytest.mark.parametrize("since", ["yesterday", "7", "7y", "2026-13-1", "2026-11-21T08:00:00"])
def test_a_time_that_is_none_never_reaches_the_daemon(
    daemon: FakeDaemon, capsys: Capture, since: str
) -> None:
    assert main(["policy", "replay", "--since", since]) == 2
    assert "is not a time" in capsys.readouterr().err
    assert daemon.calls_of(ReplayPolicy) == []


@each_row(
    ("since", "begins"),
    [
        ("", ""),
        ("30m", "1970-01-01T00:30:00Z"),
        ("1h", "1970-01-01T00:00:00Z"),
        ("9w", "1970-01-01T00:00:00Z"),
    ],
)
def test_an_age_is_counted_back_from_now(since: str, begins: str) -> None:
    assert utc_time(since, now=3_600.0) == begins
