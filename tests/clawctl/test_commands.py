"""The one-shot commands: what they ask, what they print, how they end."""

import json
from pathlib import Path

import pytest

from clawctl.main import main
from clawd.errors import ClawError, NotFoundError
from clawd.wire.methods import (
    AnswerApproval,
    CheckProvider,
    ClearEstop,
    ClearMemory,
    ListReceipts,
    RevokeRule,
    RunTool,
    SearchMemory,
    SetEstop,
)
from clawd.wire.reports import (
    ApprovalLine,
    ApprovalList,
    ConversationDetail,
    ConversationLine,
    ConversationPage,
    Done,
    EstopReport,
    MemoryHit,
    MemoryHits,
    MessageLine,
    ProviderLine,
    ProviderList,
    ReceiptDetail,
    ReceiptLine,
    ReceiptPage,
    ReceiptVerdict,
    RuleLine,
    RuleList,
    ToolLine,
    ToolList,
    ToolOutcome,
)
from tests.clawctl.conftest import Run
from tests.support.fake_daemon import Call, FakeDaemon

CONVERSATION = ConversationLine(
    id="conv-1", title="A\x1b[2Jtitle", created_at="2026", updated_at="2026-01-02", messages=2
)
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


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    for name in ("CLAWD_SOCKET", "XDG_RUNTIME_DIR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "CLAWD_HOME"):
        monkeypatch.setenv(name, environ[name])


Capture = pytest.CaptureFixture[str]


def json_of(capsys: Capture, *arguments: str, code: int = 0) -> object:
    assert main(arguments) == code
    document: object = json.loads(capsys.readouterr().out)
    return document


class TestStatus:
    def test_is_shown_for_people(self, daemon: FakeDaemon, capsys: Capture) -> None:
        assert main(["status"]) == 0
        out = capsys.readouterr().out
        assert "up 1 d 1 h" in out
        assert "supervised" in out
        assert "\x1b" not in out

    def test_as_json_has_pid_home_socket_and_version(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        document = json_of(capsys, "status", "--json")
        assert isinstance(document, dict)
        assert document["home"] == str(daemon.home)
        assert document["socket"] == str(daemon.path)
        assert document["version"] == "9.9.9"
        assert isinstance(document["pid"], int)

    def test_says_when_nothing_is_recorded_and_tools_are_stopped(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["status"] = daemon.status(
            estop=True, estop_reason="odd", receipts_enabled=False
        )
        main(["status"])
        out = capsys.readouterr().out
        assert "SET: odd" in out
        assert "nothing is recorded" in out

    def test_is_exit_6_where_no_daemon_answers(self, tmp_path: Path, capsys: Capture) -> None:
        assert main(["--no-start", "status"]) == 6
        captured = capsys.readouterr()
        assert "error: no daemon answers" in captured.err
        assert "hint: Start one with: clawd" in captured.err
        assert main(["--socket", str(tmp_path / "x.sock"), "status", "--json"]) == 6
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "unreachable"


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["statsu"], "Did you mean status?"),
            (["status", "--nonsense"], "No such option"),
            (["tool", "run"], "Missing argument"),
            (["tool", "run", "time", "--json", "{"], "is not JSON"),
            (["tool", "run", "time", "--json", "[]"], "must be an object"),
            (["memory", "clear"], "--yes"),
            (["onboard", "--base-url", "http://x"], "belong together"),
        ],
    )
    def test_mistakes_are_exit_2(
        self, capsys: Capture, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert main(arguments) == 2
        assert words in capsys.readouterr().err

    def test_help_names_every_command_and_the_exit_codes(self, capsys: Capture) -> None:
        assert main(["--help"]) == 0
        out = capsys.readouterr().out
        for word in ("agent", "estop", "receipt", "Exit codes", "130 interrupted"):
            assert word in out

    def test_version_works_without_a_daemon(self, capsys: Capture) -> None:
        assert main(["version"]) == 0
        assert "(not running)" in capsys.readouterr().out

    def test_version_names_the_daemon_that_runs(self, daemon: FakeDaemon, capsys: Capture) -> None:
        assert json_of(capsys, "version", "--json") == {"clawctl": "0.1.0", "clawd": "9.9.9"}


class TestProvider:
    def test_list_marks_the_default(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["list_providers"] = ProviderList(
            items=(
                ProviderLine(name="local", kind="local", model="embedded", is_default=True),
                ProviderLine(name="mock", kind="mock", model=""),
            )
        )
        main(["provider", "list"])
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["NAME", "KIND", "MODEL"]
        assert lines[1].split() == ["*", "local", "local", "embedded"]
        assert lines[2].split() == ["mock", "mock"]

    def test_test_says_what_answered_or_fails(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["check_provider"] = Done(message="embedded answered")
        assert main(["provider", "test", "local"]) == 0
        assert capsys.readouterr().out == "embedded answered\n"
        assert daemon.calls_of(CheckProvider) == [CheckProvider(name="local")]

        def refuse(_call: Call) -> Done:
            raise ClawError("HTTP 401", hint="check the key", code="provider")

        daemon.handlers["check_provider"] = refuse
        assert main(["provider", "test"]) == 1
        assert "hint: check the key" in capsys.readouterr().err


def outcome(**changes: object) -> ToolOutcome:
    values = {
        "status": "allowed",
        "kind": "ok",
        "output": "12:00\x1b[2J",
        "receipt_id": "receipt-1",
        "risk": "low",
        "duration_ms": 3,
    }
    return ToolOutcome(**{**values, **changes})  # type: ignore[arg-type]


class TestTool:
    def test_list_shows_names_and_what_they_do(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["list_tools"] = ToolList(
            items=(ToolLine(name="time", short="Tells it.", description="d", parameters={}),)
        )
        main(["tool", "list"])
        assert "time  builtin  Tells it." in capsys.readouterr().out

    def test_run_prints_the_output_made_safe(self, daemon: FakeDaemon, clawctl: Run) -> None:
        daemon.handlers["run_tool"] = outcome()
        done = clawctl("tool", "run", "time", "--json", '{"zone": "UTC"}')
        assert done.returncode == 0
        assert done.stdout == "12:00‹U+001B›[2J\n"
        assert "allowed, risk low, 3 ms  receipt-1" in done.stderr
        assert daemon.calls_of(RunTool) == [RunTool(name="time", arguments='{"zone": "UTC"}')]

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"status": "failed", "kind": "failed"}, 1),
            ({"status": "failed", "kind": "timed_out"}, 1),
            ({"status": "denied", "kind": "denied"}, 3),
            ({"status": "denied", "kind": "unanswered", "unanswered": True}, 3),
            ({"status": "denied", "kind": "stopped"}, 7),
        ],
    )
    def test_run_tells_by_its_exit_code_what_came_of_it(
        self, daemon: FakeDaemon, clawctl: Run, changes: dict[str, object], code: int
    ) -> None:
        daemon.handlers["run_tool"] = outcome(output="denied: no", **changes)
        done = clawctl("tool", "run", "time", "--no-input")
        assert done.returncode == code
        assert done.stdout == ""
        assert "denied: no" in done.stderr

    def test_run_gives_json_on_request(self, daemon: FakeDaemon, clawctl: Run) -> None:
        daemon.handlers["run_tool"] = outcome(exit_code=4, status="failed")
        done = clawctl("tool", "run", "time", "--json", "-", "--output", "json", stdin="{}")
        assert done.returncode == 1
        assert json.loads(done.stdout)["exit_code"] == 4


class TestMemory:
    def test_list_reads_every_page(self, daemon: FakeDaemon, capsys: Capture) -> None:
        def pages(call: Call) -> ConversationPage:
            cursor = "" if call.params.cursor else "next"
            return ConversationPage(items=(CONVERSATION,), cursor=cursor)

        daemon.handlers["list_conversations"] = pages
        document = json_of(capsys, "memory", "list", "--json")
        assert isinstance(document, list)
        assert len(document) == 2
        main(["memory", "list"])
        assert "A‹U+001B›[2Jtitle" in capsys.readouterr().out

    def test_search_joins_the_words(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["search_memory"] = MemoryHits(
            items=(
                MemoryHit(
                    conversation_id="conv-1",
                    title="t",
                    message_id=1,
                    timestamp="2026",
                    role="user",
                    snippet="two\nlines",
                ),
            )
        )
        main(["memory", "search", "red", "apple"])
        assert "two‹U+000A›lines" in capsys.readouterr().out
        assert daemon.calls_of(SearchMemory) == [SearchMemory(query="red apple", limit=20)]

    def test_show_prints_messages_in_order(self, daemon: FakeDaemon, capsys: Capture) -> None:
        messages = tuple(
            MessageLine(id=i, turn_id="t", timestamp="2026", role=role, content=text)
            for i, (role, text) in enumerate([("user", "question"), ("assistant", "answer")])
        )
        daemon.handlers["show_conversation"] = ConversationDetail(
            conversation=CONVERSATION, messages=messages
        )
        main(["memory", "show", "conv"])
        out = capsys.readouterr().out
        assert out.index("question") < out.index("answer")

    def test_clear_needs_a_yes(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["clear_memory"] = Done(message="1 conversation deleted")
        assert main(["memory", "clear", "conv-1", "--yes"]) == 0
        assert daemon.calls_of(ClearMemory) == [ClearMemory(conversation_id="conv-1")]
        assert capsys.readouterr().out == "1 conversation deleted\n"


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
            (["approve", "01ab"], "once"),
            (["approve", "01ab", "--conversation"], "conversation"),
            (["approve", "01ab", "--always"], "always"),
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

    def test_an_id_that_is_not_pending_is_refused_with_those_that_are(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["list_approvals"] = ApprovalList(items=(APPROVAL,))
        assert main(["approval", "approve", "zzz"]) == 1
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
        assert "rule-1  shell  2027     ls *" in capsys.readouterr().out
        main(["approval", "rules", "--revoke", "rule-1"])
        assert daemon.calls_of(RevokeRule) == [RevokeRule(rule_id="rule-1")]


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

    def test_show_prints_receipt_arguments_and_result(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["show_receipt"] = ReceiptDetail(
            receipt={"seq": 1, "tool": "time"}, arguments="{}", result=""
        )
        main(["receipt", "show", "1"])
        out = capsys.readouterr().out
        assert "seq   1" in out
        assert "(not kept)" in out

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
        daemon.handlers["verify_receipts"] = ReceiptVerdict(
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
