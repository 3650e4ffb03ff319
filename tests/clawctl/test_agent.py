"""`clawctl agent -m` against a fake daemon: streams, exit codes, JSON, stdin."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawd.errors import ClawError
from clawd.wire.codec import MAX_FRAME_BYTES
from clawd.wire.conversations import ConversationLine, DeleteConversation, OpenConversation
from clawd.wire.events import (
    ApprovalRequested,
    HopFinished,
    HopReset,
    HopUsage,
    Notice,
    PromptEvaluated,
    PromptProgress,
    TextDelta,
    TokenLedger,
    TokenPart,
    ToolFinished,
    ToolRequested,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    TurnUsage,
)
from clawd.wire.method import Done
from clawd.wire.pictures import Document
from clawd.wire.policy import AddRule
from clawd.wire.turns import SamplingWishes, SendMessage
from tests.clawctl.conftest import Run
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.pictures import png
from tests.support.rows import each_row

STARTED = TurnStarted(conversation_id="conv-1", turn_id="turn-1", provider="local")
USAGE = TurnUsage(
    prompt_tokens=100, completion_tokens=5, tokens_per_s=12.34, context_used=512, context_size=2048
)
HOP = HopUsage(
    prompt_tokens=100, cached_tokens=20, new_tokens=79, reevaluated_tokens=1, completion_tokens=5
)
LEDGER = TokenLedger(
    parts=(TokenPart(name="system", tokens=60), TokenPart(name="history", tokens=45)),
    free=1943,
    context_size=2048,
)


def finished(text: str, **changes: object) -> TurnFinished:
    values = {"conversation_id": "conv-1", "turn_id": "turn-1", "text": text, "usage": USAGE}
    return TurnFinished(**{**values, **changes})  # type: ignore[arg-type]


def with_a_tool(call: Call) -> TurnFinished:
    call.emit(
        STARTED,
        PromptProgress(processed=50, cached=0, total=100),
        PromptEvaluated(tokens=100, cached=20, elapsed_ms=400, context_used=100, context_size=2048),
        TextDelta(text="I look."),
        HopFinished(usage=HOP),
        ToolRequested(call_id="1", tool="file_list", arguments='{"path":"."}'),
        ToolStarted(call_id="1", tool="file_list"),
        ToolFinished(
            call_id="1",
            tool="file_list",
            status="allowed",
            output="a.txt\nb.txt",
            receipt_id="receipt-1",
            duration_ms=7,
        ),
        TextDelta(text="Two "),
        TextDelta(text="files."),
    )
    return finished("Two files.", ledger=LEDGER)


def test_the_answer_goes_to_stdout_and_all_about_it_to_stderr(
    daemon: FakeDaemon, clawctl: Run
) -> None:
    daemon.handlers["send_message"] = with_a_tool
    done = clawctl("agent", "-m", "which files?")
    assert done.returncode == 0
    assert done.stdout == "I look.\nTwo files.\n"
    assert '→ file_list {"path":"."}' in done.stderr
    assert "✓ file_list allowed  7 ms  receipt-1" in done.stderr
    assert "● prompt eval: 80 tok · 400 ms · 200.0 tok/s · 20 cached · ctx 5%" in done.stderr
    assert "● 25% / 512 tokens  last: 12.3 tok/s" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    (request,) = daemon.calls_of(SendMessage)
    assert request == SendMessage(text="which files?", interactive=False)


def test_a_command_of_the_repl_is_told_to_be_a_text_here(daemon: FakeDaemon, clawctl: Run) -> None:
    daemon.handlers["send_message"] = with_a_tool
    done = clawctl("agent", "-m", "/estop now")
    assert "● /estop: it goes to the model as text." in done.stderr
    assert daemon.calls_of(SendMessage)[0].text == "/estop now"
    assert "as text" not in clawctl("agent", "-m", "/etc/hosts is odd").stderr


def test_quiet_leaves_the_answer_only(daemon: FakeDaemon, clawctl: Run) -> None:
    daemon.handlers["send_message"] = with_a_tool
    done = clawctl("agent", "-q", "-m", "which files?")
    assert done.stdout == "I look.\nTwo files.\n"
    assert done.stderr == ""


def test_no_prompt_progress_hides_the_metrics_and_keeps_the_tools(
    daemon: FakeDaemon, clawctl: Run
) -> None:
    daemon.handlers["send_message"] = with_a_tool
    done = clawctl("agent", "--no-prompt-progress", "-m", "which files?")
    assert "file_list" in done.stderr
    assert "●" not in done.stderr


def test_json_is_one_document_with_the_calls(daemon: FakeDaemon, clawctl: Run) -> None:
    daemon.handlers["send_message"] = with_a_tool
    done = clawctl("agent", "--json", "-m", "which files?")
    document = json.loads(done.stdout)
    assert document["text"] == "Two files."
    assert document["conversation_id"] == "conv-1"
    assert document["usage"]["context_used"] == 512
    assert document["tool_calls"] == [
        {
            "call_id": "1",
            "tool": "file_list",
            "arguments": '{"path":"."}',
            "status": "allowed",
            "output": "a.txt\nb.txt",
            "receipt_id": "receipt-1",
            "duration_ms": 7,
            "ran": "file_list",
        }
    ]
    assert document["hops"] == [
        {
            "prompt_tokens": 100,
            "cached_tokens": 20,
            "new_tokens": 79,
            "reevaluated_tokens": 1,
            "completion_tokens": 5,
            "drafted_tokens": 0,
            "accepted_tokens": 0,
            "tokens_per_s": 0.0,
        }
    ]
    assert document["ledger"] == {
        "parts": [{"name": "system", "tokens": 60}, {"name": "history", "tokens": 45}],
        "free": 1943,
        "context_size": 2048,
        "is_estimate": False,
    }
    assert done.stderr == ""


def test_a_lost_prefix_shows(daemon: FakeDaemon, clawctl: Run) -> None:
    def lost(call: Call) -> TurnFinished:
        call.emit(
            STARTED,
            PromptEvaluated(
                tokens=100,
                cached=20,
                elapsed_ms=400,
                context_used=100,
                context_size=2048,
                new=10,
                reevaluated=70,
            ),
        )
        return finished("ok")

    daemon.handlers["send_message"] = lost
    done = clawctl("agent", "-m", "x")
    assert "80 tok · 400 ms · 200.0 tok/s · 20 cached · 70 known ones again · ctx 5%" in done.stderr


def test_hints_go_with_the_message(daemon: FakeDaemon, clawctl: Run) -> None:
    daemon.handlers["send_message"] = finished("ok")
    done = clawctl("agent", "-m", "x", "--hint", "privacy=local", "--hint", "cost=")
    assert done.returncode == 0
    (request,) = daemon.calls_of(SendMessage)
    assert request.hints == {"privacy": "local", "cost": ""}
    wrong = clawctl("agent", "-m", "x", "--hint", "privacy")
    assert wrong.returncode == 2
    assert "--hint privacy: expected NAME=VALUE, e.g. privacy=local" in wrong.stderr


def test_an_answer_that_came_without_deltas_is_printed(daemon: FakeDaemon, clawctl: Run) -> None:
    daemon.handlers["send_message"] = finished("whole")
    assert clawctl("agent", "-q", "-m", "x").stdout == "whole\n"


def test_text_of_a_void_hop_is_said_to_be_void(daemon: FakeDaemon, clawctl: Run) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(STARTED, TextDelta(text="half"), HopReset(reason="broken"), TextDelta(text="new"))
        return finished("new")

    daemon.handlers["send_message"] = send_message
    done = clawctl("agent", "-m", "x")
    assert done.stdout == "half\nnew\n"
    assert "void" in done.stderr


def test_why_a_turn_was_stopped_stands_below_its_text_once(
    daemon: FakeDaemon, clawctl: Run
) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(
            STARTED,
            TextDelta(text="I act."),
            ToolRequested(call_id="1", tool="shell", arguments="{}"),
            TextDelta(text="I stopped: enough."),
        )
        return finished("I stopped: enough.", stop_reason="cap")

    daemon.handlers["send_message"] = send_message
    done = clawctl("agent", "-m", "x")
    assert (done.returncode, done.stdout) == (5, "I act.\nI stopped: enough.\n")
    assert "stopped" not in done.stderr


def test_nothing_that_a_terminal_would_act_on_is_printed(daemon: FakeDaemon, clawctl: Run) -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202e"

    def send_message(call: Call) -> TurnFinished:
        call.emit(
            STARTED,
            TextDelta(text=f"a{evil}"),
            Notice(level="info", text=evil),
            ToolRequested(call_id="1", tool=f"t{evil}", arguments=f'{{"{evil}":1}}'),
            ToolFinished(
                call_id="1", tool=f"t{evil}", status="failed", output=evil, receipt_id=evil
            ),
        )
        raise ClawError(evil, hint=evil)

    daemon.handlers["send_message"] = send_message
    done = clawctl("agent", "-m", "x")
    assert done.returncode == 1
    for char in "\x1b\x07\u202e":
        assert char not in done.stdout + done.stderr
    assert "‹U+001B›" in done.stdout
    assert "‹U+001B›" in done.stderr


@each_row(
    ("changes", "code"),
    [
        ({}, 0),
        ({"denied": 2}, 0),
        ({"unanswered_approvals": 1, "denied": 1}, 4),
        ({"stop_reason": "cap"}, 5),
        ({"stop_reason": "cap", "unanswered_approvals": 1}, 5),
        ({"stop_reason": "loop"}, 5),
        ({"stop_reason": "length"}, 0),
    ],
)
def test_the_exit_code_tells_how_it_ended(
    daemon: FakeDaemon, here: Run, changes: dict[str, object], code: int
) -> None:
    daemon.handlers["send_message"] = finished("answer", **changes)
    done = here("agent", "-q", "-m", "x")
    assert done.stdout == "answer\n"
    assert done.returncode == code


def test_a_failed_turn_is_exit_1_with_message_and_hint(daemon: FakeDaemon, clawctl: Run) -> None:
    def send_message(call: Call) -> None:
        call.emit(STARTED, TextDelta(text="par"))
        raise ClawError("the model broke", hint="load another", code="engine")

    daemon.handlers["send_message"] = send_message
    done = clawctl("agent", "-m", "x")
    assert done.returncode == 1
    assert done.stdout == "par\n"
    assert "error: the model broke\nhint: load another\n" in done.stderr
    as_json = clawctl("agent", "--json", "-m", "x")
    assert as_json.returncode == 1
    document = json.loads(as_json.stdout)
    assert document["error"]["code"] == "engine"
    assert document["conversation_id"] == "conv-1"


def test_a_daemon_that_dies_in_a_turn_is_exit_6(daemon: FakeDaemon, clawctl: Run) -> None:
    daemon.handlers["send_message"] = lambda call: call.hang_up()
    done = clawctl("agent", "-m", "x")
    assert done.returncode == 6
    assert "closed the connection" in done.stderr


def test_an_approval_that_nobody_can_see_is_denied_at_once(
    daemon: FakeDaemon, clawctl: Run
) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(
            ApprovalRequested(
                approval_id="a1",
                digest="d1",
                call_id="1",
                tool="shell",
                arguments="{}",
                risk="medium",
                reason="r",
                workspace="/w",
            )
        )
        answer = call.answer()
        return finished(f"{answer.question} {answer.value} {answer.digest}")

    daemon.handlers["send_message"] = send_message
    assert clawctl("agent", "-q", "-m", "x", stdin="y\n").stdout == "a1 deny d1\n"


class TestTheMessage:
    def sent(self, daemon: FakeDaemon) -> str:
        (request,) = daemon.calls_of(SendMessage)
        assert isinstance(request, SendMessage)
        return request.text

    @pytest.mark.parametrize("arguments", [("-m", "-"), ("-",)])
    def test_is_read_from_stdin_for_a_dash(
        self, daemon: FakeDaemon, clawctl: Run, arguments: tuple[str, ...]
    ) -> None:
        daemon.handlers["send_message"] = finished("ok")
        clawctl("agent", *arguments, stdin="line one\nline two\n")
        assert self.sent(daemon) == "line one\nline two"

    def test_takes_what_is_piped_in_after_its_text(self, daemon: FakeDaemon, clawctl: Run) -> None:
        daemon.handlers["send_message"] = finished("ok")
        clawctl("agent", "-m", "sum up", stdin="the notes\n")
        assert self.sent(daemon) == "sum up\n\nthe notes"

    def test_must_not_be_empty(self, daemon: FakeDaemon, clawctl: Run) -> None:
        done = clawctl("agent", "-m", "-", stdin=" \n")
        assert done.returncode == 2
        assert "empty" in done.stderr
        assert daemon.requests == []

    def test_goes_to_the_chosen_conversation_workspace_and_model(
        self, daemon: FakeDaemon, clawctl: Run, tmp_path: Path
    ) -> None:
        daemon.handlers["send_message"] = finished("ok")
        clawctl(
            "agent", "-m", "x", "-C", str(tmp_path), "--conversation", "conv-7", "--agent", "rev",
            "--provider", "p", "--model", "m", "--preset", "precise",
        )  # fmt: skip
        (request,) = daemon.calls_of(SendMessage)
        assert request == SendMessage(
            text="x",
            conversation_id="conv-7",
            workspace=str(tmp_path.resolve()),
            agent="rev",
            provider="p",
            model="m",
            preset="precise",
        )

    def test_continues_the_newest_conversation(self, daemon: FakeDaemon, clawctl: Run) -> None:
        daemon.handlers["send_message"] = finished("ok")
        daemon.handlers["open_conversation"] = ConversationLine(
            id="conv-9", title="", created_at="", updated_at="", messages=3
        )
        clawctl("agent", "-m", "x", "--continue")
        assert daemon.calls_of(OpenConversation) == [OpenConversation(resume=True)]
        assert daemon.calls_of(SendMessage)[0].conversation_id == "conv-9"

    @each_row(
        "arguments",
        [
            ("-C", ".", "--here"),
            ("--continue", "--conversation", "c"),
            ("-C", "/does/not/exist"),
            ("stray",),
        ],
    )
    def test_options_that_cannot_be_meant_are_exit_2(
        self, daemon: FakeDaemon, here: Run, arguments: tuple[str, ...]
    ) -> None:
        assert here("agent", "-m", "x", *arguments).returncode == 2
        assert daemon.requests == []


def test_p9_what_is_piped_without_m_is_one_message(daemon: FakeDaemon, clawctl: Run) -> None:
    daemon.handlers["send_message"] = lambda call: finished(f"got {call.params.text!r}")
    text = "one\n\n/help is not a command here\ntwo\n"
    done = clawctl("agent", "-q", stdin=text)
    assert (done.returncode, done.stdout) == (0, f"got {text.rstrip()!r}\n")
    assert clawctl("agent", "--json", stdin="one\ntwo\n").returncode == 0
    assert [call.text for call in daemon.calls_of(SendMessage)][-1] == "one\ntwo"
    empty = clawctl("agent", stdin="\n")
    assert (empty.returncode, "the message is empty" in empty.stderr) == (2, True)
    assert clawctl("agent", "--lines", "-m", "x").returncode == 2


def test_piped_lines_are_messages_of_one_conversation_where_that_is_asked_for(
    daemon: FakeDaemon, clawctl: Run
) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(STARTED)
        return finished(f"got {call.params.text}")

    daemon.handlers["send_message"] = send_message
    done = clawctl("agent", "-q", "--lines", stdin="one\n\n/nonsense\ntwo\n/exit\nthree\n")
    assert done.returncode == 0
    assert done.stdout == "got one\ngot two\n"
    assert "/nonsense is not a command here" in done.stderr
    first, second = daemon.calls_of(SendMessage)
    assert (first.conversation_id, second.conversation_id) == ("", "conv-1")


def test_an_interrupt_in_a_piped_conversation_ends_it_with_130(
    daemon: FakeDaemon, environ: dict[str, str]
) -> None:
    def send_message(call: Call) -> None:
        call.emit(STARTED, TextDelta(text="never\n"))
        call.until_cancelled()

    daemon.handlers["send_message"] = send_message
    with subprocess.Popen(
        [sys.executable, "-m", "clawctl", "agent", "--lines"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("one\ntwo\n")
        child.stdin.flush()
        assert child.stdout.readline() == "never\n"
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        assert child.returncode == 130
    assert len(daemon.calls_of(SendMessage)) == 1


def test_m1_flags_of_one_run_go_with_its_message_and_its_events_to_a_file(
    daemon: FakeDaemon, clawctl: Run, tmp_path: Path
) -> None:
    daemon.handlers["send_message"] = with_a_tool
    log = tmp_path / "events.jsonl"
    sampling = ("--temperature", "0.2", "--top-p", "0.5", "--seed", "7", "--max-tokens", "9")
    penalties = (
        *("--repeat-penalty", "1.2", "--frequency-penalty", "-1"),
        *("--presence-penalty", "0.5"),
    )
    tools = ("--tools", "file_*", "--tools=-file_write", "--no-plan", "--tools-mode", "unified")
    rest = (
        "--tool-choice",
        "file_list",
        "--no-retry",
        "--url",
        "http://127.0.0.1:1/v1",
        "-v",
        "--log-file",
        str(log),
    )
    thinking = ("--think", "off")
    done = clawctl("agent", *sampling, *penalties, *tools, *thinking, *rest, "-m", "go")
    assert done.returncode == 0
    (request,) = daemon.calls_of(SendMessage)
    assert request == SendMessage(
        text="go",
        sampling=SamplingWishes(
            temperature=0.2,
            top_p=0.5,
            seed=7,
            max_tokens=9,
            repeat_penalty=1.2,
            frequency_penalty=-1.0,
            presence_penalty=0.5,
        ),
        tools_allow=("file_*", "-file_write", "-plan"),
        tool_mode="unified",
        retry=False,
        tool_choice="file_list",
        url="http://127.0.0.1:1/v1",
        think="off",
    )
    assert "· tool_finished call_id=1 tool=file_list status=allowed" in done.stderr
    kinds = [json.loads(line)["type"] for line in log.read_text().splitlines()]
    assert kinds[:2] == ["turn_started", "prompt_progress"]
    assert kinds.count("text") == 3
    assert log.stat().st_mode & 0o777 == 0o600


def test_rules_and_rounds_of_one_run_hold_in_its_conversation(
    daemon: FakeDaemon, clawctl: Run
) -> None:
    line = ConversationLine(id="conv-9", title="", created_at="", updated_at="", messages=0)
    daemon.handlers["open_conversation"] = line
    daemon.handlers["add_rule"] = Done(message="granted")
    daemon.handlers["send_message"] = finished("ok")
    rules = ("--allow", "make *", "--allow", "pytest *", "--deny", "git push *")
    run = clawctl("agent", *rules, "--max-rounds", "3", "--plan-first", "-m", "go")
    assert run.returncode == 0
    assert [
        (rule.pattern, rule.verdict, rule.conversation_id) for rule in daemon.calls_of(AddRule)
    ] == [
        ("make *", "allow", "conv-9"),
        ("pytest *", "allow", "conv-9"),
        ("git push *", "deny", "conv-9"),
    ]
    (request,) = daemon.calls_of(SendMessage)
    assert (request.conversation_id, request.max_rounds) == ("conv-9", 3)
    assert request.plan_first
    # A conversation that is given gets them; none is opened for it.
    assert clawctl("agent", "--deny", "rm *", "--conversation", "c1", "-m", "x").returncode == 0
    assert daemon.calls_of(AddRule)[-1].conversation_id == "c1"
    assert len(daemon.calls_of(OpenConversation)) == 1

    def refused(_call: Call) -> None:
        raise ClawError("no pattern", code="invalid_request")

    daemon.handlers["add_rule"] = refused
    daemon.handlers["delete_conversation"] = Done(message="gone")
    done = clawctl("agent", "--allow", "*", "-m", "x")
    assert (done.returncode, "no pattern" in done.stderr) == (1, True)
    assert daemon.calls_of(DeleteConversation) == [DeleteConversation(conversation_id="conv-9")]
    assert len(daemon.calls_of(SendMessage)) == 2
    assert clawctl("agent", "--max-rounds", "0", "-m", "x").returncode == 2


@each_row(
    ("words", "why"),
    [
        (("--temperature", "99"), "temperature"),
        (("--top-p", "2"), "top-p"),
        (("--frequency-penalty", "3"), "frequency-penalty"),
        (("--log-file", "/nowhere/at/all"), "/nowhere/at/all cannot be written"),
    ],
)
def test_m1_flags_out_of_range_are_refused(
    daemon: FakeDaemon, here: Run, words: tuple[str, ...], why: str
) -> None:
    done = here("agent", *words, "-m", "go")
    assert done.returncode in {1, 2}
    assert why in done.stderr


def test_pictures_go_with_the_message_and_nothing_else_does(
    daemon: FakeDaemon, clawctl: Run, tmp_path: Path
) -> None:
    daemon.handlers["send_message"] = with_a_tool
    (tmp_path / "a.dat").write_bytes(png(3, 2))  # its content says what it is
    (tmp_path / "b.png").write_bytes(b"<svg/>")
    done = clawctl("agent", "--attach", str(tmp_path / "a.dat"), "-m", "what is it?")
    assert done.returncode == 0
    (request,) = daemon.calls_of(SendMessage)
    assert request.pictures == (png(3, 2),)
    refused = clawctl("agent", "--attach", str(tmp_path / "b.png"), "-m", "what is it?")
    assert refused.returncode == 1
    assert "b.png is not a PDF, PNG, JPEG, WebP or GIF" in refused.stderr
    assert clawctl("agent", "--attach", str(tmp_path / "a.dat")).returncode == 2
    (tmp_path / "large.png").write_bytes(png(3, 2) + bytes(MAX_FRAME_BYTES))
    refused = clawctl("agent", "--attach", str(tmp_path / "large.png"), "-m", "and this?")
    assert refused.returncode == 1
    assert "is over the limit of 16777216" in refused.stderr
    assert "smaller files" in refused.stderr
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7")
    assert clawctl("agent", "--attach", str(tmp_path / "paper.pdf"), "-m", "and?").returncode == 0
    _, request = daemon.calls_of(SendMessage)
    assert request.documents == (Document(name="paper.pdf", data=b"%PDF-1.7"),)
    assert request.pictures == ()
