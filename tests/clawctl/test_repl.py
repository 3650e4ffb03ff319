"""The REPL on a real pseudo-terminal."""

import stat
from pathlib import Path

import msgspec

from clawd.errors import ClawError
from clawd.wire.daemon import EstopReport, SetEstop
from clawd.wire.events import PromptEvaluated, TokenLedger, TokenPart, TurnFinished
from clawd.wire.tools import RunTool, ToolOutcome
from clawd.wire.turns import SendMessage
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.terminal import (
    PROMPT,
    STARTED,
    Spawn,
    asking,
    code_of,
    echo,
    endless,
    finished,
)


def test_answers_and_leaves_by_command(daemon: FakeDaemon, spawn: Spawn) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(
            STARTED,
            PromptEvaluated(
                tokens=10, cached=0, elapsed_ms=100, context_used=10, context_size=2048
            ),
        )
        ledger = TokenLedger(
            parts=(TokenPart(name="system", tokens=400), TokenPart(name="history", tokens=112)),
            free=1536,
            context_size=2048,
            is_estimate=call.params.text == "again",
        )
        return msgspec.structs.replace(finished(f"<{call.params.text}>"), ledger=ledger)

    daemon.handlers["send_message"] = send_message
    child = spawn("agent", "-v")
    child.expect("clawd 9.9.9 · embedded · supervised")
    child.expect(PROMPT)
    child.sendline("hello")
    child.expect("● prompt eval: 10 tok · 100 ms · 100.0 tok/s · ctx 0%")
    child.expect("<hello>")
    child.expect("● context: system 400 · history 112 · free 1536")
    child.expect("512 tok · 9.5 tok/s · 25 %")
    child.expect(PROMPT)
    child.sendline("again")
    child.expect("<again>")
    child.expect("● context: about system 400")
    child.expect(PROMPT)
    child.sendline("/exit")
    assert code_of(child) == 0
    first, second = daemon.calls_of(SendMessage)
    assert (first.conversation_id, second.conversation_id) == ("", "conv-1")


def test_keeps_its_history_private(daemon: FakeDaemon, spawn: Spawn) -> None:
    daemon.handlers["send_message"] = echo
    child = spawn("agent")
    child.expect(PROMPT)
    child.sendline("remember me")
    child.expect("<remember me>")
    child.expect(PROMPT)
    child.sendeof()
    assert code_of(child) == 0
    history = daemon.home / "history"
    assert "remember me" in history.read_text(encoding="utf-8")
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_ctrl_c_stops_the_answer_and_comes_back(daemon: FakeDaemon, spawn: Spawn) -> None:
    daemon.handlers["send_message"] = endless
    child = spawn("agent")
    child.expect(PROMPT)
    child.sendline("x")
    child.expect("never ending")
    child.sendintr()
    child.expect("● stopped")
    child.expect(PROMPT)
    child.sendline("/help")
    child.expect("emergency stop")
    child.expect(PROMPT)
    child.sendeof()
    assert code_of(child) == 0


def test_ctrl_c_at_the_prompt_clears_the_line(daemon: FakeDaemon, spawn: Spawn) -> None:
    daemon.handlers["send_message"] = echo
    child = spawn("agent")
    child.expect(PROMPT)
    child.send("thrown away")
    child.expect("away")
    child.sendintr()
    child.expect(PROMPT)
    child.sendline("kept")
    child.expect("<kept>")
    child.expect(PROMPT)
    child.sendeof()
    assert code_of(child) == 0


def test_asks_for_approvals_in_between(daemon: FakeDaemon, spawn: Spawn) -> None:
    daemon.handlers["send_message"] = asking
    child = spawn("agent")
    child.expect(PROMPT)
    child.sendline("write")
    child.expect(r"Approve\? \[y/N\]  ")
    child.sendline("y")
    child.expect("<a1 once d1>")
    child.expect(PROMPT)
    child.sendeof()
    assert code_of(child) == 0


def test_an_error_is_shown_and_the_conversation_goes_on(daemon: FakeDaemon, spawn: Spawn) -> None:
    def send_message(call: Call) -> TurnFinished:
        if call.params.text == "bad":
            raise ClawError("it broke", hint="do better")
        return echo(call)

    daemon.handlers["send_message"] = send_message
    child = spawn("agent")
    child.expect(PROMPT)
    child.sendline("bad")
    child.expect("it broke")
    child.expect("do better")
    # Nothing of it was stored, so it is in the prompt again.
    child.expect(f"{PROMPT}bad|bad")
    child.send("\x15")
    child.sendline("good")
    child.expect("<good>")


def test_a_restarted_daemon_is_found_again_and_told_of(home: Path, spawn: Spawn) -> None:
    path = home / "run" / "clawd.sock"
    with FakeDaemon(path, home, send_message=echo):
        child = spawn("agent")
        child.expect(PROMPT)
        child.sendline("one")
        child.expect("<one>")
        child.expect(PROMPT)
    with FakeDaemon(path, home, send_message=echo) as second:
        assert second.welcome is not None
        second.welcome = msgspec.structs.replace(second.welcome, pid=4_321)
        child.sendline("two")
        child.expect(r"the daemon was restarted; connected to the new one \(pid 4321\)")
        child.expect("<two>")
        assert second.calls_of(SendMessage)[0].conversation_id == "conv-1"


def test_ctrl_backslash_is_the_emergency_stop(daemon: FakeDaemon, spawn: Spawn) -> None:
    daemon.handlers["set_estop"] = EstopReport(is_set=True)
    daemon.handlers["send_message"] = endless
    child = spawn("agent")
    child.expect(PROMPT)
    child.send("\x1c")
    child.expect("EMERGENCY STOP is set. Allow tools again")
    child.expect(PROMPT)
    child.sendline("x")
    child.expect("never ending")
    child.send("\x1c")
    child.expect("EMERGENCY STOP is set. Allow tools again")
    assert len(daemon.calls_of(SetEstop)) == 2


def test_history_is_offered_again(daemon: FakeDaemon, spawn: Spawn) -> None:
    daemon.handlers["send_message"] = echo
    child = spawn("agent")
    child.expect(PROMPT)
    child.sendline("once more")
    child.expect("<once more>")
    child.expect(PROMPT)
    child.send("\x1b[A")
    child.expect("once more")
    child.sendline("!")
    child.expect("<once more!>")


def test_undo_is_a_call_of_the_conversation(daemon: FakeDaemon, spawn: Spawn) -> None:
    daemon.handlers["send_message"] = echo
    daemon.handlers["run_tool"] = ToolOutcome(
        status="allowed",
        kind="ok",
        output="undone: a.txt removed",
        receipt_id="receipt-1",
        risk="medium",
        duration_ms=1,
    )
    child = spawn("agent")
    child.expect(PROMPT)
    child.sendline("hello")
    child.expect("<hello>")
    child.expect(PROMPT)
    child.sendline("/undo x")
    child.expect("takes a number of steps")
    child.sendline("/undo 2")
    child.expect("undone: a.txt removed")
    child.sendline("/exit")
    child.expect("/exit")
    assert "receipt-1" not in child.before, "receipts are under /receipts"
    assert code_of(child) == 0
    (call,) = daemon.calls_of(RunTool)
    assert (call.name, call.arguments, call.conversation_id) == (
        "undo",
        '{"steps": 2}',
        "conv-1",
    )
    assert call.interactive is True
