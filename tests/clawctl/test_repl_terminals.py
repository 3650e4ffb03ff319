"""The REPL on other terminals, with hostile text, and with a real daemon that is restarted."""

import re
import threading
from pathlib import Path

import pytest

from clawd.wire.daemon import Status
from clawd.wire.events import (
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolRequested,
    ToolStarted,
    TurnFinished,
)
from clawd.wire.turns import SendMessage
from tests.clawctl.conftest import Look
from tests.clawctl.repl_turns import at_prompt, in_two_parts
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.home import Home
from tests.support.rows import thorough
from tests.support.screen import clawctl_screen
from tests.support.terminal import STARTED, echo, finished

HOSTILE = (
    "\x1b]0;owned\x07\x1b]52;c;aGk=\x07\x1b[2J\x1b[?1049h\x1bc\x9b31m\x1bP+q\x1b\\\x07"
    "\u202etxet\x1b[6n"
)
# Whatever we and the editor send: moves, erasing, colours, modes, and the question for the cursor.
OURS = re.compile(rb"\x1b\[(?:\??[0-9;]*[hlABCDHJKm]|6n)|\x1b\[\?2026[hl]|\x1b[78=>]|[\r\n\x08\t]")
LATIN = {"PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"}
FORBIDDEN_MODES = (b"\x1b[?1049h", b"\x1b[2J", b"\x1bc", b"\x1b]", b"\x1bP")


def controls_of_others(raw: bytes) -> list[bytes]:
    """Return the control characters of a stream that belong to no sequence of ours."""
    return re.findall(rb"[\x00-\x1f\x7f]", OURS.sub(b"", raw))


def test_no_sequence_of_a_model_or_tool_reaches_the_terminal(
    daemon: FakeDaemon, look: Look
) -> None:
    def hostile(call: Call) -> TurnFinished:
        call.emit(
            STARTED,
            ReasoningDelta(text=HOSTILE),
            ToolRequested(call_id="1", tool=f"sh{HOSTILE}", arguments=f'{{"a":"{HOSTILE}"}}'),
            ToolStarted(call_id="1", tool="shell"),
            ToolProgress(call_id="1", text=f"{HOSTILE}\n"),
            ToolFinished(
                call_id="1", tool="shell", status="allowed", output=HOSTILE, receipt_id=HOSTILE
            ),
            *[TextDelta(text=char) for char in f"answer {HOSTILE} end"],
        )
        return finished(f"answer {HOSTILE} end")

    daemon.handlers["send_message"] = hostile
    daemon.handlers["status"] = daemon.status(default_model=f"m{HOSTILE}", workspace=f"/w{HOSTILE}")
    screen = look("agent", lines=60, columns=100)
    screen.wait_for(at_prompt)
    screen.type("x\r")
    screen.wait_for("end")
    screen.wait_for(at_prompt)
    raw = bytes(screen.raw)
    assert controls_of_others(raw) == []
    assert not [mode for mode in FORBIDDEN_MODES if mode in raw]
    assert "\u202e".encode() not in raw


def test_a_dumb_terminal_gets_lines_only(daemon: FakeDaemon, look: Look) -> None:
    daemon.handlers["send_message"] = echo
    screen = look("agent", env={"TERM": "dumb"})
    screen.wait_for("> ")
    screen.type("hello\\\rworld\r")
    screen.wait_for("<hello\nworld>")
    screen.type("/exit\r")
    assert screen.exit_code() == 0
    assert b"\x1b" not in screen.raw
    assert daemon.calls_of(SendMessage)[0].text == "hello\nworld"


def test_plain_mode_tells_in_words_what_the_bar_would_show(daemon: FakeDaemon, look: Look) -> None:
    daemon.handlers["send_message"] = echo
    screen = look("agent", env={"CLAWD_PLAIN": "1"})
    screen.wait_for("> ")
    screen.type("hello\r")
    screen.wait_for("<hello>")
    daemon.handlers["status"] = daemon.status(estop=True)
    asked = len(daemon.calls_of(Status))
    # The second question comes after the answer to the first.
    screen.wait_for(lambda _: len(daemon.calls_of(Status)) > asked + 1)
    screen.type("again\r")
    screen.wait_for("ESTOP")
    screen.wait_for(lambda shown: shown.line == ">")
    screen.press("C-d")
    assert screen.exit_code() == 0
    assert "+hello" in (daemon.home / "history").read_text(encoding="utf-8")


def test_the_plain_prompt_completes_and_lists_in_words(
    daemon: FakeDaemon, look: Look, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").touch()
    daemon.handlers["status"] = daemon.status(workspace=str(tmp_path))
    daemon.handlers["send_message"] = echo
    screen = look("agent", env={"CLAWD_PLAIN": "1"})
    screen.wait_for("> ")
    screen.type("/preset det\t")
    screen.wait_for(lambda shown: shown.line == "> /preset deterministic")
    screen.type("\r")
    screen.wait_for("Sampling is deterministic")
    screen.wait_for(lambda shown: shown.line == ">")
    screen.type("/re\t")
    screen.press("Tab")
    screen.wait_for("/receipts  ")
    screen.wait_for("/retry  ")
    screen.wait_for(lambda shown: shown.line == "> /re")
    screen.press("C-u")
    screen.type("read @no\t")
    screen.wait_for(lambda shown: shown.line == "> read @notes.txt")
    assert b"\x1b[" not in screen.raw.replace(b"\x1b[K", b"").replace(b"\x1b[?2004", b"")


def test_colour_is_left_out_where_it_is_not_wanted(daemon: FakeDaemon, look: Look) -> None:
    daemon.handlers["status"] = daemon.status(estop=True)
    daemon.handlers["send_message"] = echo
    screen = look("agent", env={"NO_COLOR": "1"})
    screen.wait_for("ESTOP ·")
    screen.type("hello\r")
    screen.wait_for("<hello>")
    assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", bytes(screen.raw))


# The one that can least; the others in the thorough form.
@pytest.mark.parametrize("term", ["vt100", *(["screen-256color", "linux"] if thorough() else [])])
def test_other_terminals_do(daemon: FakeDaemon, look: Look, term: str) -> None:
    daemon.handlers["send_message"] = echo
    screen = look("agent", env={"TERM": term})
    screen.wait_for(at_prompt)
    screen.type("hello\r")
    screen.wait_for("<hello>")


def test_a_resize_in_mid_answer_loses_nothing(daemon: FakeDaemon, look: Look) -> None:
    go_on = threading.Event()
    daemon.handlers["send_message"] = in_two_parts(go_on)
    screen = look("agent", columns=100)
    screen.wait_for(at_prompt)
    screen.type("x\r")
    screen.wait_for("first words")
    screen.resize(30, 60)
    go_on.set()
    screen.wait_for("last words")
    screen.wait_for(at_prompt)
    assert screen.all_text.count("first words") == 1


def test_a_locale_without_utf_8_gets_signs_that_it_can_show(daemon: FakeDaemon, look: Look) -> None:
    def answering(call: Call) -> TurnFinished:
        call.emit(
            STARTED,
            ToolRequested(call_id="1", tool="shell", arguments='{"command":"ls"}'),
            ToolFinished(call_id="1", tool="shell", status="allowed", output="", receipt_id="r"),
            TextDelta(text="- gr\u00fc\u00df dich \u65e5\u672c\n"),
        )
        return finished("- gr\u00fc\u00df dich \u65e5\u672c\n")

    daemon.handlers["send_message"] = answering
    screen = look("agent", env={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", **LATIN})
    screen.wait_for(at_prompt)
    screen.type("x\r")
    screen.wait_for("dich")
    screen.wait_for(at_prompt)
    assert "ok shell" in screen.all_text
    assert bytes(screen.raw).isascii()
    assert "Traceback" not in screen.all_text


@pytest.mark.daemon
def test_a_restarted_daemon_goes_on_with_the_same_conversation(tmp_path: Path) -> None:
    home = Home(tmp_path)
    try:
        home.configure({"text": "I answer."})
        home.start()
        with clawctl_screen(home.environ, "agent", columns=120) as screen:
            screen.wait_for(at_prompt)
            screen.type("hello\r")
            screen.wait_for("I answer.")
            screen.wait_for(at_prompt)
            screen.type("typed meanwhile")
            home.kill()
            screen.wait_for("no daemon")
            home.start()
            screen.wait_gone("no daemon")
            screen.wait_for("> typed meanwhile")
            screen.press("Enter")
            screen.wait_for("the daemon was restarted")
            screen.wait_for(at_prompt)
            screen.press("C-d")
            assert screen.exit_code() == 0
        (only,) = home.json("conversation", "list")
        assert only["messages"] == 4
    finally:
        home.close()


@pytest.mark.daemon
def test_a_daemon_that_dies_in_mid_answer_is_told_of_and_started_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    try:
        home.configure({"text": "too late", "delay_s": 60}, {"text": "in time"})
        home.start()
        with clawctl_screen(home.environ, "agent", columns=120, lines=40) as screen:
            screen.wait_for(at_prompt)
            screen.type("slow one\r")
            screen.wait_for("thinking")
            home.kill()
            screen.wait_for("the daemon closed the connection")
            screen.wait_for("the daemon was restarted")
            screen.wait_for(re.compile("was kept|were kept"))
            # The message may be in the prompt again; before that, Ctrl-C would not take it away.
            screen.wait_for(lambda shown: shown.line.startswith(">"))
            screen.press("C-c")
            screen.wait_for(at_prompt)
            screen.type("/status\r")
            screen.wait_for("workspace")
    finally:
        home.close()
