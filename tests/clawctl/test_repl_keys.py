"""The keys of the REPL in a real terminal: Ctrl-C in every state, signals, what is typed ahead."""

import os
import shlex
import signal
import sys
import threading
from pathlib import Path

import pytest

from clawd.errors import ClawError
from clawd.wire.events import ApprovalResolved, MessageJoined, TextDelta, TurnFinished
from clawd.wire.policy import AnswerApproval
from clawd.wire.turns import SendMessage, SteerReport, SteerTurn
from tests.clawctl.conftest import Look
from tests.clawctl.repl_turns import (
    at_prompt,
    evaluating,
    running_a_tool,
    waiting_for_answer,
    waiting_for_approval,
)
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.screen import TerminalScreen
from tests.support.terminal import REQUEST, STARTED, echo, endless, finished


@pytest.mark.parametrize(
    ("turn", "shown"),
    [
        (endless, "never ending"),
        (evaluating, "1%"),
        (running_a_tool, "shell"),
        (waiting_for_approval, "Approve? [y/N]"),
        (waiting_for_answer, "Which one?"),
    ],
)
def test_ctrl_c_comes_back_to_the_prompt_from_every_state_of_a_turn(
    daemon: FakeDaemon, look: Look, turn: object, shown: str
) -> None:
    daemon.handlers["send_message"] = turn
    screen = look("agent")
    screen.wait_for(at_prompt)
    screen.type("x\r")
    screen.wait_for(shown)
    screen.press("C-c")
    screen.wait_for("● stopped")
    screen.wait_for(at_prompt)
    daemon.handlers["send_message"] = echo
    screen.type("again\r")
    screen.wait_for("<again>")


def test_ctrl_c_ends_a_command_that_hangs(daemon: FakeDaemon, look: Look) -> None:
    reached, gone = threading.Event(), threading.Event()

    def hang(call: Call) -> None:
        reached.set()
        call.gone.wait(60)
        gone.set()
        raise ClawError("cancelled", code="cancelled")

    daemon.handlers["list_tools"] = hang
    screen = look("agent")
    screen.wait_for(at_prompt)
    screen.type("/tools\r")
    assert reached.wait(60)
    screen.press("C-c")
    screen.wait_for("● stopped")
    screen.wait_for(at_prompt)
    assert gone.wait(60), "the daemon was told"


# Does something to the session, which the name `ReplSession` stands for, before it runs.
PROGRAM = """
import sys, time
from clawctl.main import main
from clawctl.repl import session
from clawctl.repl.session import ReplSession
{}
sys.exit(main(["agent"]))
"""
SLOW = """
read = ReplSession._read
def slowly(self):
    time.sleep(1.1)
    return read(self)
ReplSession._read = slowly
"""
DEAF = """
session._WINDOW_S = 600
judge = ReplSession._leave_if_pressed_often
def slowly(self):
    judge(self)
    for number in range(len(self._presses) + 1, 4):
        print(f"press {number} comes now", flush=True)
        while len(self._presses) < number:
            time.sleep(0.01)
ReplSession._leave_if_pressed_often = slowly
"""


def altered(environ: dict[str, str], change: str) -> TerminalScreen:
    return TerminalScreen([sys.executable, "-c", PROGRAM.format(change)], environ)


def test_three_presses_at_the_prompt_leave(daemon: FakeDaemon, look: Look) -> None:
    screen = look("agent")
    screen.wait_for(at_prompt)
    screen.press_until_end("C-c")
    assert screen.exit_code() == 0


def test_three_presses_at_once_leave_however_long_the_next_prompt_takes(
    daemon: FakeDaemon, environ: dict[str, str]
) -> None:
    with altered(environ, SLOW) as screen:
        screen.wait_for(at_prompt)
        screen.press("C-c", "C-c", "C-c")
        assert screen.exit_code() == 0


def test_a_third_press_between_two_prompts_leaves(
    daemon: FakeDaemon, environ: dict[str, str]
) -> None:
    with altered(environ, DEAF) as screen:
        screen.wait_for(at_prompt)
        screen.press("C-c")
        for number in (2, 3):
            screen.wait_for(f"press {number} comes now")
            screen.press("C-c")
        assert screen.exit_code() == 0


@pytest.mark.parametrize("turn", [endless, waiting_for_approval])
def test_three_presses_in_a_second_leave_in_mid_turn(
    daemon: FakeDaemon, look: Look, turn: object
) -> None:
    daemon.handlers["send_message"] = turn
    screen = look("agent")
    screen.wait_for(at_prompt)
    screen.type("x\r")
    screen.wait_for("c conversation" if turn is waiting_for_approval else "never ending")
    # Presses that come at once are one for the kernel; a busy machine makes that long.
    screen.press_until_end("C-c")
    assert screen.exit_code() == 0


def test_ctrl_c_at_the_prompt_clears_what_was_typed(daemon: FakeDaemon, look: Look) -> None:
    daemon.handlers["send_message"] = echo
    screen = look("agent")
    screen.wait_for(at_prompt)
    screen.type("thrown away")
    screen.wait_for("> thrown away")
    screen.press("C-c")
    screen.wait_for(at_prompt)
    screen.type("kept\r")
    screen.wait_for("<kept>")
    screen.press("C-d")
    assert screen.exit_code() == 0
    assert [call.text for call in daemon.calls_of(SendMessage)] == ["kept"]


def test_quiet_ends_with_130_at_the_first_ctrl_c(daemon: FakeDaemon, look: Look) -> None:
    daemon.handlers["send_message"] = endless
    screen = look("agent", "-q")
    screen.wait_for(at_prompt)
    screen.type("x\r")
    screen.wait_for("never ending")
    screen.press("C-c")
    assert screen.exit_code() == 130


class TestTypedAhead:
    @pytest.mark.parametrize("env", [{}, {"CLAWD_PLAIN": "1"}, {"TERM": "dumb"}], ids=str)
    def test_what_comes_before_the_first_prompt_is_sent_line_by_line(
        self, daemon: FakeDaemon, look: Look, env: dict[str, str]
    ) -> None:
        daemon.handlers["send_message"] = echo
        screen = look("agent", env=env)
        screen.type("first\rsecond\rth")
        screen.wait_for("<first>")
        screen.wait_for("<second>")
        screen.wait_for(lambda shown: shown.line == "> th")
        screen.type("ird\r")
        screen.wait_for("<third>")
        sent = [call.text for call in daemon.calls_of(SendMessage)]
        assert sent == ["first", "second", "third"]

    def test_it_is_sent_after_the_answer_and_not_mixed_into_it(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        go_on = threading.Event()

        def slow(call: Call) -> TurnFinished:
            if call.params.text != "first":
                return echo(call)
            call.emit(STARTED, TextDelta(text="one "))
            assert go_on.wait(60)
            call.emit(TextDelta(text="two"))
            return finished("one two")

        daemon.handlers["send_message"] = slow
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.type("first\r")
        screen.wait_for("one")
        screen.type("second é\rno")
        screen.settle()
        assert "second" not in screen.text
        go_on.set()
        screen.wait_for("one two")
        screen.wait_for("<second é>")
        screen.wait_for(lambda shown: shown.line == "> no")

    def test_it_is_never_an_approval(self, daemon: FakeDaemon, look: Look) -> None:
        may_ask = threading.Event()

        def asks(call: Call) -> TurnFinished:
            call.emit(STARTED, TextDelta(text="speaking\n"))
            assert may_ask.wait(60)
            call.emit(REQUEST)
            answer = call.answer()
            call.emit(ApprovalResolved(approval_id="a1", answer=answer.value, by="uid 1"))
            return finished(f"<{answer.value}>")

        daemon.handlers["send_message"] = asks
        screen = look("agent", lines=40)
        screen.wait_for(at_prompt)
        screen.type("x\r")
        screen.wait_for("speaking")
        screen.type("y\ry\r")
        screen.settle()
        may_ask.set()
        screen.wait_for("c conversation")
        screen.settle()
        assert "<once>" not in screen.text
        screen.type("n\r")
        screen.wait_for("<deny>")
        assert not daemon.calls_of(AnswerApproval)

    @pytest.mark.parametrize("env", [{}, {"CLAWD_PLAIN": "1"}], ids=str)
    def test_it_is_said_to_the_turn_that_runs_and_not_sent_again(
        self, daemon: FakeDaemon, look: Look, env: dict[str, str]
    ) -> None:
        turns: list[Call] = []
        go_on = threading.Event()

        def slow(call: Call) -> TurnFinished:
            turns.append(call)
            call.emit(STARTED, TextDelta(text="at work\n"))
            assert go_on.wait(60)
            return finished("at work\n")

        def joins(call: Call) -> SteerReport:
            said: SteerTurn = call.params
            event = MessageJoined(turn_id=said.turn_id, text=said.text, steer_id=said.steer_id)
            turns[0].emit(event)
            return SteerReport(joined=True)

        daemon.handlers.update(send_message=slow, steer_turn=joins)
        screen = look("agent", env=env)
        screen.wait_for(lambda shown: shown.line.startswith(">"))
        screen.type("first\r")
        screen.wait_for("at work")
        # What only an editor can read, and all that follows, waits for one.
        screen.type("sec--\x7f\x7fond\r/status\rthird\r")
        screen.wait_for("second")
        turns[0].emit(TextDelta(text="still at it\n"))
        screen.wait_for("still at it")
        (said,) = daemon.calls_of(SteerTurn)
        assert (said.text, said.turn_id) == ("second", STARTED.turn_id)
        daemon.handlers["send_message"] = echo
        go_on.set()
        screen.wait_for("<third>")
        assert [call.text for call in daemon.calls_of(SendMessage)] == ["first", "third"]

    def test_after_ctrl_c_it_stays_in_the_prompt_unsent(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        daemon.handlers["send_message"] = endless
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.type("x\r")
        screen.wait_for("never ending")
        screen.type("next one\r")
        screen.settle()
        screen.press("C-c")
        screen.wait_for(lambda shown: shown.line == "> next one")
        assert len(daemon.calls_of(SendMessage)) == 1

    def test_after_ctrl_c_it_stays_unsent_also_where_nobody_looked_for_it_before(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        def one_line(call: Call) -> None:
            call.emit(STARTED, TextDelta(text="never ending\n"))
            call.until_cancelled()

        daemon.handlers["send_message"] = one_line
        # Nothing moves here, so nothing is read between two events.
        screen = look("agent", env={"CLAWD_PLAIN": "1"})
        screen.wait_for("> ")
        screen.type("x\r")
        screen.wait_for("never ending")
        screen.press("next one\r", "C-c")
        screen.wait_for("(not sent yet: next one)")
        assert len(daemon.calls_of(SendMessage)) == 1

    @pytest.mark.parametrize("code", ["internal", "estop"])
    def test_it_stays_unsent_below_a_message_that_comes_back(
        self, daemon: FakeDaemon, look: Look, code: str
    ) -> None:
        waits, go_on = threading.Event(), threading.Event()

        def fails(_call: Call) -> None:
            waits.set()
            assert go_on.wait(60)
            raise ClawError("it broke", code=code)

        daemon.handlers["send_message"] = fails
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.type("first\r")
        assert waits.wait(60)
        screen.type("second\r")
        go_on.set()
        screen.wait_for(lambda shown: shown.line.rstrip().endswith("second"))
        daemon.handlers["send_message"] = echo
        screen.press("Enter")
        screen.wait_for("second>")
        sent = [call.text for call in daemon.calls_of(SendMessage)]
        assert sent == ["first", "first\nsecond"]


def test_sigterm_leaves_the_terminal_as_it_was(daemon: FakeDaemon, environ: dict[str, str]) -> None:
    python = shlex.quote(sys.executable)
    program = f"{python} -m clawctl agent; echo left $?; stty -a | grep -ow -- -\\\\?icanon"
    with TerminalScreen(["bash", "-c", program], environ) as screen:
        screen.wait_for(at_prompt)
        # The shell's only child.
        children = Path(f"/proc/{screen.pid}/task/{screen.pid}/children").read_text(
            encoding="ascii"
        )
        os.kill(int(children.split()[0]), signal.SIGTERM)
        screen.wait_for("left 143")
        screen.wait_for("\nicanon")


def test_a_lost_terminal_cancels_the_turn_and_keeps_the_history(
    daemon: FakeDaemon, look: Look
) -> None:
    cancelled = threading.Event()

    def until_gone(call: Call) -> None:
        call.emit(STARTED, TextDelta(text="never ending"))
        assert call.gone.wait(60)
        cancelled.set()
        raise ClawError("cancelled", code="cancelled")

    daemon.handlers["send_message"] = until_gone
    screen = look("agent")
    screen.wait_for(at_prompt)
    screen.type("remember me\r")
    screen.wait_for("never ending")
    screen.hang_up()
    screen.exit_code()
    assert cancelled.wait(60)
    assert "+remember me" in (daemon.home / "history").read_text(encoding="utf-8")


def test_ctrl_z_suspends_and_fg_brings_the_line_back(
    daemon: FakeDaemon, environ: dict[str, str]
) -> None:
    daemon.handlers["send_message"] = echo
    shell = {**environ, "PS1": "shell$ "}
    with TerminalScreen(["bash", "--norc", "--noprofile", "-i"], shell) as screen:
        screen.wait_for("shell$ ")
        screen.type(f"{shlex.quote(sys.executable)} -m clawctl agent\r")
        screen.wait_for(at_prompt)
        screen.type("half a line")
        screen.wait_for("> half a line")
        screen.press("C-z")
        screen.wait_for(lambda shown: shown.line == "shell$")
        screen.type("fg\r")
        screen.wait_for(lambda shown: shown.line == "> half a line")
        screen.type(" and the rest\r")
        screen.wait_for("<half a line and the rest>")
        screen.press("C-d")
        screen.wait_for(lambda shown: shown.line == "shell$")
