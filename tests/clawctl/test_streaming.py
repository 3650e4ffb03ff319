"""`agent --output-format stream-json`: lines that a program follows, and what it answers."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from clawctl.streaming import SCHEMA, schema
from clawd.errors import ClawError
from clawd.wire.events import (
    ApprovalResolved,
    MessageJoined,
    Notice,
    QuestionAsked,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolRequested,
    TurnFinished,
)
from clawd.wire.turns import SendMessage
from tests.clawctl.conftest import Run
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.schema_check import is_valid
from tests.support.terminal import REQUEST, STARTED, endless, finished

LIMIT_S = 60
STREAM = ("--output-format", "stream-json")


def test_the_schema_that_is_shipped_is_that_of_the_lines(clawctl: Run) -> None:
    made = f"{json.dumps(schema(), indent=2, ensure_ascii=False)}\n"
    assert SCHEMA.read_text(encoding="utf-8") == made, f"write this to {SCHEMA}: {made}"
    assert clawctl("agent", "--stream-schema").stdout == made


def lines_of(out: str) -> list[dict[str, Any]]:
    """Return the lines, each of which must be what the schema says."""
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line for line in lines if not is_valid(line, schema())] == []
    return lines


class Turn:
    """clawctl with pipes at both ends, as a program runs it."""

    def __init__(self, environ: dict[str, str], *words: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "clawctl", "agent", "-m", "x", *STREAM, *words],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, kind: str) -> dict[str, Any]:
        assert self.child.stdout is not None
        for line in iter(self.child.stdout.readline, ""):
            (found,) = lines_of(line)
            if found["type"] == kind:
                return found
        raise AssertionError(f"there was no {kind}")

    def say(self, text: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(text)
        self.child.stdin.flush()

    def end(self) -> tuple[int, dict[str, Any]]:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.close()
        last = lines_of(self.child.stdout.read())[-1]
        return self.child.wait(LIMIT_S), last


@pytest.fixture
def turn(environ: dict[str, str]) -> Any:
    made: list[Turn] = []

    def begin(*words: str) -> Turn:
        made.append(Turn(environ, *words))
        return made[-1]

    yield begin
    for each in made:
        if each.child.poll() is None:
            each.child.kill()
        each.child.wait()
        for stream in (each.child.stdin, each.child.stdout, each.child.stderr):
            assert stream is not None
            stream.close()


def asking(call: Call) -> TurnFinished:
    call.emit(STARTED, REQUEST)
    answer = call.answer()
    call.emit(ApprovalResolved(approval_id="a1", answer=answer.value, by="uid 1"))
    return finished(f"<{answer.question} {answer.value} {answer.digest}>")


def test_a_turn_is_an_event_a_line_from_where_it_runs_to_how_it_ended(
    daemon: FakeDaemon, clawctl: Run
) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(
            msgspec.structs.replace(STARTED, model="m", workspace="/w"),
            ReasoningDelta(text="hm"),
            TextDelta(text="I \x1b[2Jlook."),
            Notice(level="warning", text="low disk"),
            MessageJoined(turn_id="t1", text="and quickly"),
            ToolRequested(call_id="1", tool="shell", arguments='{"command":"false"}'),
            ToolFinished(
                call_id="1",
                tool="shell",
                status="failed",
                output="no",
                receipt_id="r1",
                exit_code=1,
            ),
        )
        return finished("I look.")

    daemon.handlers["send_message"] = send_message
    done = clawctl("agent", "-m", "x", *STREAM)
    lines = lines_of(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    begin, _, _, _, joined, _, result, last = lines
    assert joined == {"type": "joined", "text": "and quickly"}
    assert [line["type"] for line in lines] == [
        *("begin", "reasoning", "text", "notice", "joined", "tool_call", "tool_result", "end"),
    ]
    # The conversation says nothing of its mode: it is the daemon's.
    told = {name: begin[name] for name in ("conversation_id", "model", "mode", "workspace")}
    assert told == {
        "conversation_id": "conv-1",
        "model": "m",
        "mode": "supervised",
        "workspace": "/w",
    }
    assert (result["status"], result["receipt_id"], result["exit_code"]) == ("failed", "r1", 1)
    assert (last["reason"], last["exit_code"], last["text"]) == ("stop", 0, "I look.")
    assert last["usage"]["context_used"] == 512
    assert daemon.calls_of(SendMessage)[0].interactive is False, "stdin is no pipe here"


def test_a_program_answers_on_stdin_and_what_is_no_answer_changes_nothing(
    daemon: FakeDaemon, turn: Callable[..., Turn]
) -> None:
    daemon.handlers["send_message"] = asking
    running = turn()
    asked = running.until("approval")
    assert asked["answers"] == ["once", "conversation", "project", "always", "deny"]
    for wrong in ("y", '{"type":"approval","id":"a1","answer":"yes"}', '{"answer":"once"}'):
        running.say(f"{wrong}\n")
        assert "is not an answer" in running.until("notice")["text"]
    running.say('{"type":"approval","id":"another","answer":"once"}\n')
    running.say('{"type":"approval","id":"a1",')
    running.say('"answer":"conversation"}\n')
    code, last = running.end()
    assert (code, last["text"]) == (0, "<a1 conversation d1>")
    assert daemon.calls_of(SendMessage)[0].interactive is True


def test_where_stdin_is_closed_a_question_is_a_no(
    daemon: FakeDaemon, turn: Callable[..., Turn], clawctl: Run
) -> None:
    daemon.handlers["send_message"] = asking
    running = turn()
    running.until("approval")
    code, last = running.end()  # which closes stdin
    assert (code, last["exit_code"], last["text"]) == (4, 4, "<a1 deny d1>")
    assert last["unanswered_approvals"] == 1
    silent = turn("--no-input")
    assert silent.end()[1]["text"] == "<a1 deny d1>"
    assert daemon.calls_of(SendMessage)[-1].interactive is False
    # A message that is read from stdin leaves nobody there.
    done = clawctl("agent", *STREAM, stdin='{"type":"approval","id":"a1","answer":"once"}\n')
    assert lines_of(done.stdout)[-1]["text"] == "<a1 deny d1>"


def test_somebody_else_may_answer_beside(daemon: FakeDaemon, turn: Callable[..., Turn]) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(STARTED, REQUEST)
        call.emit(ApprovalResolved(approval_id="a1", answer="once", by="uid 7"))
        return finished("done elsewhere")

    daemon.handlers["send_message"] = send_message
    running = turn()
    assert running.until("approval_answered")["by"] == "uid 7"
    assert running.end()[1]["text"] == "done elsewhere"


def test_a_question_of_the_model_takes_any_text(
    daemon: FakeDaemon, turn: Callable[..., Turn]
) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(STARTED, QuestionAsked(question_id="q1", text="Which?", options=("red", "blue")))
        return finished(f"<{call.answer().value}>")

    daemon.handlers["send_message"] = send_message
    running = turn()
    assert running.until("question")["options"] == ["red", "blue"]
    running.say('{"type":"question","id":"q1","answer":"blue"}\n')
    assert running.end()[1]["text"] == "<blue>"


def test_the_last_line_says_how_it_ended_whatever_happened(
    daemon: FakeDaemon, turn: Callable[..., Turn], clawctl: Run
) -> None:
    def fails(call: Call) -> None:
        call.emit(STARTED)
        raise ClawError("the model broke", hint="load another", code="engine")

    daemon.handlers["send_message"] = fails
    done = clawctl("agent", "-m", "x", *STREAM)
    last = lines_of(done.stdout)[-1]
    assert (done.returncode, last["reason"], last["exit_code"]) == (1, "failed", 1)
    assert last["error"] == {
        "code": "engine",
        "message": "the model broke",
        "hint": "load another",
    }
    daemon.handlers["send_message"] = endless
    running = turn()
    running.until("text")
    running.child.send_signal(signal.SIGINT)
    code, last = running.end()
    assert (code, last["reason"], last["exit_code"]) == (130, "cancelled", 130)
    both = clawctl("agent", "-m", "x", "--json", *STREAM)
    assert (both.returncode, "exclude each other" in both.stderr) == (2, True)
