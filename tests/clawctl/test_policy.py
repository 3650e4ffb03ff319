"""`clawctl policy`: one call explained, a table of cases judged, over a fake daemon."""

import json
from pathlib import Path

import pytest

from clawctl.main import main
from clawd.wire.methods import CheckPolicy, ExplainPolicy
from clawd.wire.reports import PolicyCaseLine, PolicyCheck, PolicyExplanation
from tests.support.fake_daemon import FakeDaemon

Capture = pytest.CaptureFixture[str]

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
        assert "is no JSON object" in error
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
