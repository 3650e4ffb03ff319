"""The REPL's editor in a real terminal: lines, pastes, completion, history, the bar below."""

import re
import shlex
import sys
from pathlib import Path

import msgspec
import pytest

from clawd.wire.conversations import (
    ConversationLine,
    OpenConversation,
    SessionFileLine,
    WriteSessionFile,
)
from clawd.wire.events import TurnFinished
from clawd.wire.pictures import Document
from clawd.wire.policy import PolicyExplanation
from clawd.wire.tools import ToolLine, ToolList
from clawd.wire.turns import SendMessage
from tests.clawctl.conftest import Look
from tests.clawctl.repl_turns import at_prompt
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.pictures import png
from tests.support.rows import thorough
from tests.support.screen import TerminalScreen
from tests.support.terminal import STARTED, echo, finished

ALLOWED = PolicyExplanation(verdict="allow", risk="low", reason="reads", rule="")


@pytest.fixture
def workspace(daemon: FakeDaemon, tmp_path: Path) -> Path:
    """Let the daemon work in a folder with some files."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "adapter.py").write_text("def connect():\n    return 'ready'\n")
    (folder / "notes.md").write_text("remember the milk\n")
    (folder / "big.log").write_text("a long line of a log\n" * 4_000)
    (folder / "photo.png").write_bytes(png(3, 2))
    (folder / "paper.pdf").write_bytes(b"%PDF-1.7\0")
    (folder / "photo.bmp").write_bytes(b"BM\0\0")
    (folder / ".gitignore").write_text("*.tmp\n")
    (folder / "adapter.tmp").write_text("")
    daemon.handlers["status"] = daemon.status(workspace=str(folder))
    daemon.handlers["send_message"] = echo
    daemon.handlers["explain_policy"] = ALLOWED
    return folder


def take(screen: TerminalScreen, line: str) -> None:
    """Press Tab until what is offered is taken: while a menu is filled, Tab opens it or is lost."""
    for last in (False,) * 20 + (True,):
        screen.press("Tab")
        try:
            screen.wait_for(lambda shown: shown.line.startswith(line), limit_s=3.0)
        except AssertionError:
            if last:
                raise
        else:
            return


def sent(daemon: FakeDaemon) -> list[str]:
    return [call.text for call in daemon.calls_of(SendMessage)]


class TestLines:
    def test_a_message_may_have_several_lines(self, daemon: FakeDaemon, look: Look) -> None:
        daemon.handlers["send_message"] = echo
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.press("one", "A-Enter", "two", "C-j", "three\\", "Enter", "four", "Enter")
        screen.wait_for("four>")
        assert sent(daemon) == ["one\ntwo\nthree\nfour"]

    def test_wide_and_accented_characters_are_sent_as_typed(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        daemon.handlers["send_message"] = echo
        screen = look("agent", columns=60)
        screen.wait_for(at_prompt)
        screen.type("日本語 naïve 🙂")
        screen.press("Left", "Left", "x", "Enter")
        screen.wait_for("x 🙂>")
        assert sent(daemon) == ["日本語 naïvex 🙂"]

    def test_ten_thousand_pasted_lines_are_folded_and_sent_whole(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        def send_message(call: Call) -> TurnFinished:
            call.emit(STARTED)
            return finished(f"<{call.params.text.count(chr(10)) + 1} lines>")

        daemon.handlers["send_message"] = send_message
        text = "\n".join(f"line {number} with \x1b[31msome\x07 words" for number in range(10_000))
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.type("look: ")
        screen.paste(text)
        screen.wait_for("> look: [pasted 10,000 lines]")
        screen.type(" and tell\r")
        screen.wait_for("<10000 lines>")
        assert sent(daemon) == [f"look: {text} and tell"]
        # It is at hand again, and means the same.
        screen.wait_for(at_prompt)
        screen.press("Up")
        screen.wait_for(lambda shown: shown.line == "> look: [pasted 10,000 lines] and tell")
        screen.press("Enter")
        screen.wait_for(lambda _: len(daemon.calls_of(SendMessage)) == 2)
        assert sent(daemon)[1] == sent(daemon)[0]
        assert not (daemon.home / "history").exists()

    def test_a_paste_that_no_message_can_hold_is_refused(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.type("kept ")
        screen.paste("0123456789abcde\n" * (5 * 65_536))
        screen.wait_for(
            lambda shown: "the paste is over 4 MiB" in shown.text and shown.line == "> kept"
        )

    def test_the_external_editor_writes_the_message(
        self, daemon: FakeDaemon, look: Look, tmp_path: Path
    ) -> None:
        daemon.handlers["send_message"] = echo
        program = tmp_path / "editor.py"
        program.write_text(
            "import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n"
            "file.write_text(file.read_text() + ' and\\nmore')\n"
        )
        command = f"{shlex.quote(sys.executable)} {shlex.quote(str(program))}"
        screen = look("agent", env={"VISUAL": command})
        screen.wait_for(at_prompt)
        screen.press("begun", "C-x", "C-e")
        screen.wait_for(re.compile("begun and\n… more"))
        screen.press("Enter")
        screen.wait_for("more>")
        assert sent(daemon) == ["begun and\nmore"]


class TestHistory:
    def test_up_finds_lines_that_begin_alike_and_ctrl_r_searches(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        daemon.handlers["send_message"] = echo
        (daemon.home / "history").write_text("\n# t\n+alpha one\n\n# t\n+beta two\n\n# t\n+gamma\n")
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.press("al", "Up")
        screen.wait_for(lambda shown: shown.line == "> alpha one")
        screen.press("C-c")
        screen.wait_for(at_prompt)
        screen.press("C-r", "two")
        screen.wait_for("beta two")
        screen.press("Enter")
        screen.press("Enter")
        screen.wait_for("<beta two>")

    def test_neither_a_secret_nor_a_line_after_a_blank_is_kept(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        daemon.handlers["send_message"] = echo
        screen = look("agent")
        for text in ("plain words", " private words", "my password: correct-horse-7"):
            screen.wait_for(at_prompt)
            screen.type(f"{text}\r")
            screen.wait_for(f"<{text.strip()}>")
        screen.wait_for(at_prompt)
        screen.press("C-d")
        assert screen.exit_code() == 0
        kept = (daemon.home / "history").read_text(encoding="utf-8")
        assert "plain words" in kept
        assert "private" not in kept
        assert "horse" not in kept


class TestCompletion:
    def test_commands_and_their_arguments_with_live_values(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        line = ToolLine(name="file_frobnicate", short="d", description="d", parameters={})
        daemon.handlers["list_tools"] = ToolList(items=(line,))
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.type("/too")
        screen.wait_for("/tools")
        screen.wait_for("List the tools.")
        screen.type("l file_f")
        take(screen, "> /tool file_frobnicate")

    def test_files_are_found_by_a_few_letters(
        self, daemon: FakeDaemon, look: Look, workspace: Path
    ) -> None:
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.type("read @adap")
        screen.wait_for("src/adapter.py")
        assert "adapter.tmp" not in screen.text
        take(screen, "> read @src/adapter.py")
        screen.press("Enter")
        screen.press("Enter")
        screen.wait_for("return 'ready'")
        (text,) = sent(daemon)
        assert text.startswith("read @src/adapter.py\n\n[file src/adapter.py]\n```\ndef connect()")


class TestAttached:
    def test_a_long_file_becomes_a_session_file(
        self, daemon: FakeDaemon, look: Look, workspace: Path
    ) -> None:
        daemon.handlers["open_conversation"] = ConversationLine(
            id="conv-1", title="", created_at="", updated_at="", messages=0
        )
        daemon.handlers["write_session_file"] = SessionFileLine(
            name="big.log",
            mime="text/plain",
            summary="",
            size=1,
            is_kept=False,
            created_at="",
            updated_at="",
        )
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.type("what failed in @big.log?\r")
        screen.wait_for("file+session://big.log")
        (stored,) = daemon.calls_of(WriteSessionFile)
        assert stored.content == (workspace / "big.log").read_bytes()
        assert len(daemon.calls_of(OpenConversation)) == 1
        (message,) = daemon.calls_of(SendMessage)
        assert message.conversation_id == "conv-1"
        assert "file+session://big.log" in message.text
        assert len(message.text) < 500

    def test_a_picture_goes_as_it_is(self, daemon: FakeDaemon, look: Look, workspace: Path) -> None:
        daemon.handlers["send_message"] = echo
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.type("what is on @photo.png ?\r")
        screen.wait_for("with photo.png")
        screen.wait_for("<what is on @photo.png ?>")
        (message,) = daemon.calls_of(SendMessage)
        assert message.pictures == (png(3, 2),)
        assert message.text == "what is on @photo.png ?"
        assert message.files == ("photo.png",)

    def test_a_pdf_goes_as_it_is(self, daemon: FakeDaemon, look: Look, workspace: Path) -> None:
        daemon.handlers["send_message"] = echo
        screen = look("agent")
        screen.wait_for(at_prompt)
        screen.type("what is in @paper.pdf ?\r")
        screen.wait_for("with paper.pdf")
        screen.wait_for("<what is in @paper.pdf ?>")
        (message,) = daemon.calls_of(SendMessage)
        assert message.documents == (Document(name="paper.pdf", data=b"%PDF-1.7\0"),)
        assert (message.text, message.pictures) == ("what is in @paper.pdf ?", ())

    def test_what_cannot_go_with_a_message_is_refused_and_comes_back(
        self, daemon: FakeDaemon, look: Look, workspace: Path
    ) -> None:
        screen = look("agent", columns=120)
        for hints, name, told in (
            (1, "photo.bmp", "neither text nor a PDF"),
            (2, "/etc/hostname", "lies outside of the workspace"),
        ):
            screen.wait_for(at_prompt)
            screen.type(f"see @{name} \r")
            screen.wait_for(re.compile(rf"(?s){told}.*hint.*\n> see @{name} *$", re.MULTILINE))
            assert screen.all_text.count("hint") == hints
            assert not sent(daemon)
            screen.press("C-c")

    def test_what_the_policy_forbids_is_refused(
        self, daemon: FakeDaemon, look: Look, workspace: Path
    ) -> None:
        daemon.handlers["explain_policy"] = msgspec.structs.replace(
            ALLOWED, verdict="deny", reason="notes.md is forbidden here"
        )
        screen = look("agent", columns=120)
        screen.wait_for(at_prompt)
        screen.type("see @notes.md \r")
        screen.wait_for("may not be read: notes.md is forbidden here")
        assert not sent(daemon)


class TestBar:
    def test_an_emergency_stop_that_somebody_else_sets_is_shown_in_red(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        screen = look("agent", columns=60)
        screen.wait_for(at_prompt)
        screen.wait_for(" embedded · supervised")
        daemon.handlers["status"] = daemon.status(
            estop=True, default_model="another", sandbox="none"
        )
        bar = "^ ESTOP · .* · supervised · another · sandbox none"
        screen.wait_for(re.compile(bar, re.MULTILINE))
        assert screen.cell_of("ESTOP").fg == "red"
        assert max(map(len, screen.lines)) <= 60

    def test_a_daemon_that_is_gone_is_told_without_a_key(self, home: Path, look: Look) -> None:
        with FakeDaemon(home / "run" / "clawd.sock", home):
            screen = look("--no-start", "agent")
            screen.wait_for(at_prompt)
            screen.wait_for(" embedded")
        screen.wait_for("no daemon")

    @pytest.mark.parametrize("columns", [20, 60] if thorough() else [20])
    def test_a_narrow_terminal_is_enough(
        self, daemon: FakeDaemon, look: Look, columns: int
    ) -> None:
        daemon.handlers["send_message"] = echo
        screen = look("agent", columns=columns)
        screen.wait_for(at_prompt)
        screen.type("hello\r")
        screen.wait_for("<hello>")
        screen.wait_for(" supervised")
        screen.resize(24, 40)
        screen.type("again\r")
        screen.wait_for("<again>")
