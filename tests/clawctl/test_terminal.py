"""clawctl on a real pseudo-terminal: approvals, questions, Ctrl-C, colour."""

import functools
import json
import queue
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pexpect
import pytest

from clawctl.turn import FRAMES
from clawd.errors import ClawError
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    DiffLine,
    FileDiff,
    QuestionAsked,
    TextDelta,
    ToolFinished,
    TurnFinished,
)
from clawd.wire.turns import SendMessage
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.terminal import (
    LIMIT_S,
    PROMPT,
    REQUEST,
    STARTED,
    Spawn,
    asking,
    code_of,
    end,
    endless,
    finished,
)

# What is typed too early is the subject of three tests; in the others nobody types so early.
HASTY = """
import sys
from clawctl import approve
from clawctl.__main__ import run
approve.SETTLE_S = 0.05
sys.exit(run())
"""


@pytest.fixture
def hasty(spawn: Spawn) -> Spawn:
    """Run clawctl as `spawn` does; it gives people a moment only to see what is asked."""
    return functools.partial(spawn, how=("-c", HASTY))


def editor(folder: Path, script: str) -> str:
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def asking_of(
    daemon: FakeDaemon, questions: Sequence[ApprovalRequested | QuestionAsked]
) -> list[str]:
    """Let a turn ask one after the other; return the list that takes in the answers."""
    answers: list[str] = []

    def send_message(call: Call) -> TurnFinished:
        call.emit(STARTED)
        for question in questions:
            call.emit(question)
            answers.append(call.answer().value)
            call.emit(ApprovalResolved(approval_id="a1", answer=answers[-1], by="uid 1"))
        return finished("<over>")

    daemon.handlers["send_message"] = send_message
    return answers


class TestApproval:
    def test_shows_everything_and_y_allows_once(self, daemon: FakeDaemon, spawn: Spawn) -> None:
        daemon.handlers["send_message"] = asking
        child = spawn("agent", "-m", "x")
        child.expect(r"Approve\? \[y/N\]  ")
        shown = child.before
        for word in ("file_write", "medium", "writes a file", "/w", "no‹U+202E›tes.txt"):
            assert word in shown
        lines = [line.strip() for line in shown.splitlines()]
        assert "│   | Approve? [y/N]" in lines, "no line of an argument looks like the question"
        assert "│   | ‹U+001B›[2Jtwo" in lines
        assert "cannot be seen" in shown
        child.sendline("y")
        child.expect("<a1 once d1>")
        assert code_of(child) == 0
        assert daemon.calls_of(SendMessage)[0].interactive is True

    def test_takes_only_a_clear_yes(self, daemon: FakeDaemon, hasty: Spawn) -> None:
        rows = {"": "deny", "n": "deny", "yess": "deny", "a": "conversation", "yes": "once"}
        rows["c"] = "conversation"
        answers = asking_of(daemon, [REQUEST] * len(rows))
        child = hasty("agent", "-m", "x")
        for typed in rows:
            child.expect(r"Approve\? \[y/N\]  ")
            child.sendline(typed)
        child.expect("<over>")
        assert dict(zip(rows, answers, strict=True)) == rows

    def test_end_of_input_denies(self, daemon: FakeDaemon, hasty: Spawn) -> None:
        daemon.handlers["send_message"] = asking
        child = hasty("agent", "-m", "x")
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendeof()
        child.expect("<a1 deny d1>")

    def test_always_shows_the_rule_and_asks_again(self, daemon: FakeDaemon, hasty: Spawn) -> None:
        daemon.handlers["send_message"] = asking
        child = hasty("agent", "-m", "x")
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("A")
        child.expect("the rule   file_write notes.txt")
        child.expect(r"from now on\? \[y/N\]")
        child.sendline("y")
        child.expect("<a1 always d1>")

    def test_always_without_the_second_yes_denies(self, daemon: FakeDaemon, hasty: Spawn) -> None:
        daemon.handlers["send_message"] = asking
        child = hasty("agent", "-m", "x")
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("A")
        child.expect(r"from now on\? \[y/N\]")
        child.sendline("")
        child.expect("<a1 deny d1>")

    def test_details_show_the_exact_arguments_and_ask_again(
        self, daemon: FakeDaemon, hasty: Spawn
    ) -> None:
        daemon.handlers["send_message"] = asking
        child = hasty("agent", "-m", "x")
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("d")
        child.expect("digest     d1")
        child.expect(re.escape(r'"content":"one\nApprove? [y/N]\n\u001b[2Jtwo"'))
        child.expect(r"\r\n  ╰ Approve\? \[y/N\]  ")
        child.sendline("y")
        child.expect("<a1 once d1>")

    def test_e_sends_what_the_editor_left_and_waits_for_the_next_question(
        self, daemon: FakeDaemon, environ: dict[str, str], hasty: Spawn, tmp_path: Path
    ) -> None:
        answers = []

        def send_message(call: Call) -> TurnFinished:
            call.emit(STARTED, REQUEST)
            answers.append(call.answer())
            call.emit(ApprovalResolved(approval_id="a1", answer="edit", by="uid 1"))
            again = msgspec.structs.replace(
                REQUEST, approval_id="a2", digest="d2", arguments=answers[0].arguments
            )
            call.emit(again)
            answers.append(call.answer())
            return finished("<over>")

        daemon.handlers["send_message"] = send_message
        environ["VISUAL"] = editor(tmp_path, 'sed -i s/one/three/ "$1"; stat -c %a "$1"')
        child = hasty("agent", "-m", "x")
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("e")
        child.expect("600")
        child.expect(r"\| three")
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("y")
        child.expect("<over>")
        edit, yes = answers
        assert (edit.question, edit.value, edit.digest) == ("a1", "edit", "d1")
        values = json.loads(REQUEST.arguments)
        values["content"] = values["content"].replace("one", "three")
        assert json.loads(edit.arguments) == values
        assert (yes.question, yes.value, yes.digest) == ("a2", "once", "d2")

    def test_an_edit_that_came_to_nothing_asks_again(
        self, daemon: FakeDaemon, environ: dict[str, str], hasty: Spawn, tmp_path: Path
    ) -> None:
        daemon.handlers["send_message"] = asking
        environ["VISUAL"] = str(tmp_path / "editor")
        child = hasty("agent", "-m", "x")
        for script, told in (
            ("true", "nothing was changed"),
            ('echo [] > "$1"', "not a JSON object"),
            ("exit 3", "ended with 3"),
        ):
            child.expect(r"Approve\? \[y/N\]  ")
            editor(tmp_path, script)
            child.sendline("e")
            child.expect(f"not edited.*{told}")
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("")
        child.expect("<a1 deny d1>")

    def test_p7_an_edit_shows_what_the_file_becomes_and_not_its_arguments_as_well(
        self, daemon: FakeDaemon, hasty: Spawn
    ) -> None:
        values = {"path": "a.txt", "old_text": "second", "new_text": "2\u202eb"}
        lines = (
            DiffLine(mark=" ", text="first\r", number=1),
            DiffLine(mark="-", text="second\r", number=2),
            DiffLine(mark="+", text="2\u202eb\r", number=2),
        )
        diff = FileDiff(path="a.txt", lines=lines, added=1, removed=1, new_size=12)
        request = msgspec.structs.replace(
            REQUEST, tool="file_edit", arguments=json.dumps(values), changes=(diff,)
        )
        daemon.handlers["send_message"] = lambda call: asking(call, request)
        child = hasty("agent", "-m", "x")
        child.expect(r"Approve\? \[y/N\]  ")
        rows = re.sub(r"\x1b\[\d*[A-Za-z]", "", child.before).split("\r\n")
        shown = [row.rpartition("\r")[2].strip() for row in rows]
        at = shown.index("╭ edit a.txt  +1 −1 · medium: writes a file")
        assert shown[at + 1 :] == [
            "│ in /w",
            "│ CR LF line ends",
            "│ 1   first",
            "│ 2 − second",
            "│ 2 + 2‹U+202E›b",
            "│ the arguments hold characters that cannot be seen, written ‹U+…›",
            "╰",
        ]

    def test_is_never_read_from_a_pipe(
        self, daemon: FakeDaemon, environ: dict[str, str], tmp_path: Path
    ) -> None:
        daemon.handlers["send_message"] = asking
        script = f"printf 'y\\ny\\n' | {shlex.quote(sys.executable)} -m clawctl agent -m x -"
        child = pexpect.spawn(
            "/bin/sh", ["-c", script], env=environ, encoding="utf-8", timeout=LIMIT_S
        )
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("n")
        child.expect("<a1 deny d1>")
        end(child)

    def test_what_was_typed_before_the_question_is_no_answer(
        self, daemon: FakeDaemon, spawn: Spawn
    ) -> None:
        people: queue.Queue[Any] = queue.Queue()

        def send_message(call: Call) -> TurnFinished:
            people.get(timeout=LIMIT_S).sendline("y")
            return asking(call)

        daemon.handlers["send_message"] = send_message
        child = spawn("agent", "-m", "x")
        people.put(child)
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("n")
        child.expect("<a1 deny d1>")

    def test_several_lines_at_once_are_no_answer(self, daemon: FakeDaemon, spawn: Spawn) -> None:
        daemon.handlers["send_message"] = asking
        child = spawn("agent", "-m", "x")
        child.expect(r"Approve\? \[y/N\]  ")
        child.send("y\nmake install\n")
        child.expect("Several lines at once are not an answer")
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("n")
        child.expect("<a1 deny d1>")

    @pytest.mark.parametrize("changes", [{"risk": "high"}, {"rule": ""}])
    def test_high_risk_and_untrusted_text_take_a_whole_word(
        self, daemon: FakeDaemon, hasty: Spawn, changes: dict[str, str]
    ) -> None:
        rows = {"": "deny", "yes": "once", "Y E S": "deny"}
        answers = asking_of(daemon, [msgspec.structs.replace(REQUEST, **changes)] * len(rows))
        child = hasty("agent", "-m", "x")
        for typed in rows:
            child.expect(r"Approve\? \[yes/N\]  ")
            child.sendline(typed)
        child.expect("<over>")
        assert dict(zip(rows, answers, strict=True)) == rows

    def test_a_key_of_habit_in_place_of_the_word_is_neither_yes_nor_no(
        self, daemon: FakeDaemon, hasty: Spawn
    ) -> None:
        answers = asking_of(daemon, [msgspec.structs.replace(REQUEST, rule="")] * 2)
        child = hasty("agent", "-m", "x")
        for word in ("yes", ""):
            for typed in ("y", "a", "p", "A", word):
                child.expect(r"Approve\? \[yes/N\]  ")
                child.sendline(typed)
                if typed and typed != word:
                    child.expect(f"{typed} is not an answer here: the whole word, or Enter for no")
        child.expect("<over>")
        assert answers == ["once", "deny"]

    def test_what_differs_in_the_environment_is_shown(
        self, daemon: FakeDaemon, hasty: Spawn
    ) -> None:
        request = msgspec.structs.replace(REQUEST, environment={"LD_PRELOAD": "./x\u200b.so"})
        daemon.handlers["send_message"] = lambda call: asking(call, request)
        child = hasty("agent", "-m", "x")
        child.expect(re.escape("with LD_PRELOAD=./x‹U+200B›.so"))
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("")
        child.expect("<a1 deny d1>")

    def test_ends_when_somebody_else_answers(self, daemon: FakeDaemon, hasty: Spawn) -> None:
        def send_message(call: Call) -> TurnFinished:
            call.emit(STARTED, REQUEST)
            call.emit(ApprovalResolved(approval_id="a1", answer="once", by="uid 7"))
            return finished("done elsewhere")

        daemon.handlers["send_message"] = send_message
        child = hasty("agent", "-m", "x")
        child.expect(r"approved \(once\) by uid 7")
        child.expect("done elsewhere")
        assert code_of(child) == 0

    def test_ctrl_c_at_the_question_cancels_the_turn(
        self, daemon: FakeDaemon, hasty: Spawn
    ) -> None:
        def send_message(call: Call) -> None:
            call.emit(STARTED, REQUEST)
            call.until_cancelled()

        daemon.handlers["send_message"] = send_message
        child = hasty("agent", "-m", "x")
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendintr()
        assert code_of(child) == 130

    def test_works_for_tool_run(self, daemon: FakeDaemon, spawn: Spawn) -> None:
        def run_tool(call: Call) -> None:
            call.emit(REQUEST)
            raise ClawError(f"answered {call.answer().value}")

        daemon.handlers["run_tool"] = run_tool
        child = spawn("tool", "run", "file_write")
        child.expect(r"Approve\? \[y/N\]  ")
        child.sendline("y")
        child.expect("answered once")


class TestQuestion:
    def test_takes_a_number_or_text(self, daemon: FakeDaemon, hasty: Spawn) -> None:
        rows = {"2": "blue", "3": "3", "green": "green"}
        question = QuestionAsked(question_id="a1", text="Which?", options=("red", "blue"))
        answers = asking_of(daemon, [question] * len(rows))
        child = hasty("agent", "-m", "x")
        for typed in rows:
            child.expect("Which")
            child.expect("2  blue")
            child.expect("> ")
            child.sendline(typed)
        child.expect("<over>")
        assert dict(zip(rows, answers, strict=True)) == rows

    def test_enter_gives_the_answer_that_is_offered_and_nothing_else_does(
        self, daemon: FakeDaemon, hasty: Spawn
    ) -> None:
        rows = {"": "yes", "n": "no", "y": "yes", "what?": "what?"}
        question = QuestionAsked(
            question_id="a1", text="Go on?", options=("yes", "no"), default="yes"
        )
        answers = asking_of(daemon, [question] * (len(rows) + 1))
        child = hasty("agent", "-m", "x")
        for typed in rows:
            child.expect_exact("Go on? [Y/n] ")
            child.sendline(typed)
        child.expect_exact("Go on? [Y/n] ")
        child.sendeof()
        child.expect("<over>")
        assert answers == [*rows.values(), ""], "the end of input is no answer"

    def test_m9_a_page_is_shown_whole_and_opened_after_a_yes_only(
        self, daemon: FakeDaemon, hasty: Spawn, environ: dict[str, str], tmp_path: Path
    ) -> None:
        url = "https://example.org/" + "long/" * 60 + "?q=1"
        program, opened = tmp_path / "bin" / "xdg-open", tmp_path / "opened"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\necho "$#: $1" >> {opened}\n')
        program.chmod(0o755)
        environ |= {"PATH": f"{program.parent}:{environ['PATH']}", "DISPLAY": ":9"}

        rows = {"n": "", "": "", "y": "opened"}
        question = QuestionAsked(question_id="a1", text="Open it?", url=url)
        answers = asking_of(daemon, [question] * len(rows))
        child = hasty("agent", "-m", "x")
        for typed in rows:
            child.expect_exact("wants to open a page")
            child.expect_exact("?q=1")
            child.expect_exact("[y/N]")
            assert not opened.exists()
            child.sendline(typed)
        child.expect_exact("<over>")
        assert code_of(child) == 0
        assert dict(zip(rows, answers, strict=True)) == rows
        assert opened.read_text() == f"1: {url}\n"
        environ.pop("DISPLAY")
        answers = asking_of(daemon, [question])
        child = hasty("agent", "-m", "x")
        child.expect_exact("[y/N]")
        child.sendline("y")
        child.expect_exact("<over>")
        assert answers == ["there is no desktop here"]

    def test_that_ran_out_gives_the_turn_back(self, daemon: FakeDaemon, hasty: Spawn) -> None:
        def send_message(call: Call) -> TurnFinished:
            call.emit(
                QuestionAsked(question_id="q1", text="Which?"),
                ToolFinished(
                    call_id="1", tool="ask_user", status="failed", output="error: no answer",
                    receipt_id="r",
                ),
            )  # fmt: skip
            return finished("went on")

        daemon.handlers["send_message"] = send_message
        child = hasty("agent", "-m", "x")
        child.expect("went on")
        assert code_of(child) == 0


class TestCtrlC:
    def test_cancels_the_turn_and_ends_with_130(self, daemon: FakeDaemon, hasty: Spawn) -> None:
        daemon.handlers["send_message"] = endless
        child = hasty("agent", "-m", "x")
        child.expect("never ending")
        child.sendintr()
        assert code_of(child) == 130

    def test_twice_leaves_a_daemon_that_does_not_stop(
        self, daemon: FakeDaemon, hasty: Spawn
    ) -> None:
        def send_message(call: Call) -> None:
            call.emit(STARTED, TextDelta(text="deaf"))
            assert call.cancelled.wait(LIMIT_S)
            call.emit(TextDelta(text=" to that"))
            assert call.gone.wait(LIMIT_S)

        daemon.handlers["send_message"] = send_message
        child = hasty("agent", "-m", "x")
        child.expect("deaf")
        child.sendintr()
        child.expect("to that")
        child.sendintr()
        assert code_of(child) == 130


def test_a_terminal_shows_that_something_goes_on_before_anything_comes(
    daemon: FakeDaemon, spawn: Spawn
) -> None:
    """The daemon goes on only once the spinner was seen, so nothing else can have shown it."""
    seen = queue.Queue[str]()

    def send_message(call: Call) -> TurnFinished:
        assert seen.get(timeout=LIMIT_S) == "it waits"
        call.emit(STARTED)
        assert seen.get(timeout=LIMIT_S) == "it thinks"
        return finished("<at last>")

    daemon.handlers["send_message"] = send_message
    for arguments in (("agent", "-m", "x"), ("agent",)):
        child = spawn(*arguments)
        if "-m" not in arguments:
            child.expect(PROMPT)
            child.sendline("x")
        child.expect(f"[{FRAMES}] waiting")
        seen.put("it waits")
        child.expect(f"([{FRAMES}]) thinking")
        others = FRAMES.replace(child.match[1], "")
        child.expect(f"[{others}] thinking")  # it turns
        seen.put("it thinks")
        child.expect("<at last>")
        if "-m" not in arguments:
            child.expect(PROMPT)
            child.sendline("/exit")
        assert code_of(child) == 0, arguments


def test_colour_is_for_terminals_and_no_color_turns_it_off(
    daemon: FakeDaemon, spawn: Spawn, environ: dict[str, str]
) -> None:
    daemon.handlers["list_tools"] = lambda call: (_ for _ in ()).throw(ClawError("no tools"))
    child = spawn("tool", "list")
    child.expect(pexpect.EOF)
    assert "\x1b[31merror" in child.before
    environ["NO_COLOR"] = "1"
    child = spawn("tool", "list")
    child.expect(pexpect.EOF)
    assert "\x1b" not in child.before


def test_long_values_of_a_report_are_set_in_on_a_terminal(daemon: FakeDaemon, spawn: Spawn) -> None:
    long = " ".join(f"layer{number}" for number in range(40))
    daemon.handlers["status"] = daemon.status(sandbox_layers=(long,))
    child = spawn("status")
    child.expect(pexpect.EOF)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", child.before)
    rows = [row for row in shown.splitlines() if "layer" in row]
    assert len(rows) > 1
    assert all(row.startswith("   ") for row in rows[1:])
    assert all(len(row) <= 120 for row in rows)
    assert sum(row.count("layer") for row in rows) == 40
