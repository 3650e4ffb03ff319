"""The one-shot commands of trust: approvals, receipts, the emergency stop."""

import json
from pathlib import Path

import msgspec
import pytest

from clawctl.main import main
from clawd.errors import ClawError, NotFoundError, StorageError
from clawd.wire.daemon import ClearEstop, EstopReport, SetEstop
from clawd.wire.method import Done
from clawd.wire.policy import (
    AnswerApproval,
    ApprovalLine,
    ApprovalList,
    RevokeRule,
    RuleLine,
    RuleList,
)
from clawd.wire.receipts import (
    ListReceipts,
    ReceiptDetail,
    ReceiptLine,
    ReceiptPage,
    Verification,
)
from tests.clawctl.conftest import Capture, json_of
from tests.support.fake_daemon import Call, FakeDaemon

APPROVAL = ApprovalLine(
    id="approval-01ab",
    digest="d1",
    tool="shell",
    arguments='{"command":"ls\u200b -la"}',
    risk="medium",
    reason="runs ls",
    workspace="/w",
    conversation_id="conv-1",
    owner=1000,
    asked_at="2026-01-02T03:04:05Z",
    expires_in_s=90,
    rule="shell ls *",
)


pytestmark = pytest.mark.usefixtures("own_home")


class TestApproval:
    def test_list_shows_the_arguments_whole_with_what_cannot_be_seen(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["list_approvals"] = ApprovalList(items=(APPROVAL,))
        main(["approval", "list"])
        out = capsys.readouterr().out
        assert "approval-01ab  shell  risk medium" in out
        assert 'command: "ls‹U+200B› -la"' in out
        assert "shell ls *" in out

    @pytest.mark.parametrize(
        ("arguments", "answer"),
        [
            (["allow", "01ab"], "once"),
            (["approve", "01ab"], "once"),
            (["allow", "01ab", "--conversation"], "conversation"),
            (["allow", "01ab", "--always"], "always"),
            (["deny", "approval-01ab"], "deny"),
        ],
    )
    def test_an_answer_carries_the_digest_of_what_was_listed(
        self, daemon: FakeDaemon, capsys: Capture, arguments: list[str], answer: str
    ) -> None:
        daemon.handlers["list_approvals"] = ApprovalList(items=(APPROVAL,))
        daemon.handlers["answer_approval"] = Done()
        assert main(["approval", *arguments]) == 0
        (sent,) = daemon.calls_of(AnswerApproval)
        assert (sent.approval_id, sent.digest, sent.answer) == ("approval-01ab", "d1", answer)

    def test_days_go_with_always_only(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["list_approvals"] = ApprovalList(items=(APPROVAL,))
        daemon.handlers["answer_approval"] = Done()
        assert main(["approval", "allow", "01ab", "--days", "7"]) == 2
        assert main(["approval", "allow", "01ab", "--always", "--days", "0"]) == 2
        assert daemon.calls_of(AnswerApproval) == []
        assert main(["approval", "allow", "01ab", "--always", "--days", "7"]) == 0
        assert daemon.calls_of(AnswerApproval)[0].days == 7

    @pytest.mark.parametrize("part", ["", "b", "1ab"])
    def test_too_short_a_part_of_an_id_names_nothing(
        self, daemon: FakeDaemon, capsys: Capture, part: str
    ) -> None:
        daemon.handlers["list_approvals"] = ApprovalList(items=(APPROVAL,))
        assert main(["approval", "allow", part]) == 1
        assert daemon.calls_of(AnswerApproval) == []

    def test_what_differs_in_the_environment_is_shown(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        line = msgspec.structs.replace(APPROVAL, environment={"LANG": "C\u202e"})
        daemon.handlers["list_approvals"] = ApprovalList(items=(line,))
        main(["approval", "list"])
        assert "with       LANG=C‹U+202E›" in capsys.readouterr().out

    def test_an_id_that_is_not_pending_is_refused_with_those_that_are(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["list_approvals"] = ApprovalList(items=(APPROVAL,))
        assert main(["approval", "allow", "zzzz"]) == 1
        assert "pending: approval-01ab" in capsys.readouterr().err
        assert daemon.calls_of(AnswerApproval) == []

    def test_rules_are_listed_and_revoked(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["list_rules"] = RuleList(
            items=(
                RuleLine(
                    id="rule-1",
                    tool="shell",
                    pattern="ls *",
                    owner=1,
                    created_at="2026",
                    expires_at="2027",
                ),
            )
        )
        daemon.handlers["revoke_rule"] = Done()
        main(["approval", "rules"])
        assert "rule-1  shell  any           2027     ls *" in capsys.readouterr().out
        main(["approval", "rules", "--revoke", "rule-1"])
        main(["approval", "revoke", "rule-2"])
        assert [asked.rule_id for asked in daemon.calls_of(RevokeRule)] == ["rule-1", "rule-2"]

    def test_status_says_that_no_rule_is_in_force(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["status"] = daemon.status(rules_problem="/x/rules.json holds none")
        assert main(["status"]) == 0
        shown = capsys.readouterr().out
        assert "PROBLEM: no stored rule is in force: /x/rules.json holds none" in shown


class TestReceipt:
    LINE = ReceiptLine(
        seq=1,
        id="receipt-1",
        timestamp="2026",
        conversation_id="",
        tool="time",
        status="allowed",
        risk="low",
        approval="auto",
        reason="",
        duration_ms=1,
        receipt_hash="ab",
    )

    def test_list_asks_for_no_more_than_wanted(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["list_receipts"] = ReceiptPage(items=(self.LINE,), cursor="more")
        assert main(["receipt", "list", "--limit", "2"]) == 0
        limits = [request.limit for request in daemon.calls_of(ListReceipts)]
        assert limits == [2, 1]

    def test_show_of_an_unknown_one_is_exit_1(self, daemon: FakeDaemon, capsys: Capture) -> None:
        def refuse(_call: Call) -> ReceiptDetail:
            raise NotFoundError("no receipt zz")

        daemon.handlers["show_receipt"] = refuse
        assert main(["receipt", "show", "zz"]) == 1
        assert "no receipt zz" in capsys.readouterr().err

    def test_verify_needs_no_daemon_and_says_what_is_missing(
        self, home: Path, capsys: Capture
    ) -> None:
        assert main(["receipt", "verify"]) == 1
        assert str(home / "tool_receipts.log") in capsys.readouterr().err

    def test_verify_of_a_broken_file_is_exit_1(self, tmp_path: Path, capsys: Capture) -> None:
        chain = tmp_path / "chain.log"
        chain.write_text("not a receipt\n")
        document = json_of(capsys, "receipt", "verify", "--path", str(chain), "--json", code=1)
        assert isinstance(document, dict)
        assert document["ok"] is False
        assert document["first_bad"] == 1
        assert document["message"].startswith("invalid chain at receipt 1")

    def test_verify_asks_the_daemon_too_and_the_worst_decides(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["verify_receipts"] = Verification(
            ok=False,
            receipts=2,
            level="chain",
            message="invalid chain at receipt 3: cut tail",
            head_seq=2,
            head_hash="ab",
            first_bad=3,
            kind="cut tail",
        )
        assert main(["receipt", "verify"]) == 1
        assert "invalid chain at receipt 3" in capsys.readouterr().out


class TestEstop:
    def test_goes_to_the_daemon_that_runs(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["set_estop"] = EstopReport(is_set=True, reason="odd")
        daemon.handlers["estop_state"] = EstopReport(is_set=True, reason="odd")
        daemon.handlers["clear_estop"] = EstopReport(is_set=False)
        assert main(["estop", "--reason", "odd"]) == 0
        assert capsys.readouterr().out == "EMERGENCY STOP is set: odd\n"
        assert json_of(capsys, "estop", "--status", "--json") == {"is_set": True, "reason": "odd"}
        assert main(["estop", "--clear"]) == 0
        assert daemon.calls_of(SetEstop) == [SetEstop(reason="odd")]
        assert len(daemon.calls_of(ClearEstop)) == 1

    def test_works_on_the_file_without_a_daemon(self, home: Path, capsys: Capture) -> None:
        assert main(["estop", "--status"]) == 0
        assert main(["estop", "--reason", "odd"]) == 0
        note = json.loads((home / "ESTOP").read_text(encoding="utf-8"))
        assert note["reason"] == "odd"
        assert note["by"].startswith("uid ")
        assert [path.name for path in home.iterdir()] == ["ESTOP"]
        assert main(["estop", "--status"]) == 0
        assert main(["estop", "--clear"]) == 0
        assert not (home / "ESTOP").exists()
        out = capsys.readouterr().out
        assert out.count("EMERGENCY STOP is set: odd") == 2
        assert out.count("is not set") == 2

    def test_what_cannot_be_set_or_removed_is_told_in_a_sentence(
        self, home: Path, capsys: Capture
    ) -> None:
        (home / "ESTOP").mkdir()
        assert main(["estop", "--clear"]) == 1
        assert "ESTOP cannot be removed: Is a directory" in capsys.readouterr().err
        assert main(["estop"]) == 6
        told = capsys.readouterr().err
        assert "no daemon answers" in told
        assert "ESTOP cannot be written: Is a directory" in told
        assert "NOTHING WAS STOPPED" in told

    def test_a_stop_that_holds_in_the_daemon_alone_is_told_as_that(
        self, home: Path, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        def unwritten(_call: Call) -> EstopReport:
            raise StorageError("ESTOP could not be written; the stop holds")

        daemon.handlers["set_estop"] = unwritten
        daemon.handlers["estop_state"] = EstopReport(is_set=True)
        (home / "ESTOP").mkdir()
        assert main(["estop"]) == 1
        told = capsys.readouterr().err
        assert "Every tool is stopped, and stays so until the daemon ends" in told
        assert "NOTHING" not in told

    def test_a_bare_file_counts(self, home: Path, capsys: Capture) -> None:
        (home / "ESTOP").touch()
        assert main(["estop", "--status"]) == 0
        assert "is set" in capsys.readouterr().out

    def test_a_daemon_that_fails_does_not_keep_it_from_being_set(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["set_estop"] = lambda call: call.hang_up()
        assert main(["estop"]) == 0
        assert (daemon.home / "ESTOP").exists()
        assert "was written" in capsys.readouterr().err

    def test_a_refusal_of_a_daemon_of_another_home_is_told(
        self, home: Path, tmp_path: Path, capsys: Capture
    ) -> None:
        def refuse(_call: Call) -> EstopReport:
            raise ClawError("no", code="forbidden")

        with FakeDaemon(home / "run" / "clawd.sock", tmp_path / "other", set_estop=refuse):
            assert main(["estop"]) == 1
        assert not (home / "ESTOP").exists()

    def test_a_socket_that_nobody_serves_names_no_home(
        self, tmp_path: Path, home: Path, capsys: Capture
    ) -> None:
        assert main(["--socket", str(tmp_path / "x.sock"), "estop"]) == 1
        assert not (home / "ESTOP").exists()
        assert "CLAWD_HOME" in capsys.readouterr().err
