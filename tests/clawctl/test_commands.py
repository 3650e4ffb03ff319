"""The one-shot commands: what they ask, what they print, how they end."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import msgspec
import pytest

from clawctl.app import ListingGroup
from clawctl.main import cli, main
from clawctl.turn import SILENCE_S
from clawd.errors import ClawError
from clawd.wire.conversations import (
    ConversationDetail,
    ConversationLine,
    ConversationPage,
    MessageLine,
)
from clawd.wire.daemon import MeaningLine
from clawd.wire.memory import ClearMemory, MemoryHit, MemoryHits, SearchMemory
from clawd.wire.method import Done
from clawd.wire.models import CheckProvider, ProviderLine, ProviderList
from clawd.wire.schedules import ScheduleLine, ScheduleList, ScheduleRun
from clawd.wire.tools import (
    ChangeLine,
    ChangeList,
    JobList,
    RunTool,
    ToolLine,
    ToolList,
    ToolOutcome,
)
from tests.clawctl.conftest import Capture, Look, Run, json_of
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.pictures import picture
from tests.support.rows import each_row

CONVERSATION = ConversationLine(
    id="conv-1", title="A\x1b[2Jtitle", created_at="2026", updated_at="2026-01-02", messages=2
)


pytestmark = pytest.mark.usefixtures("own_home")


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

    def test_tells_how_much_is_indexed_for_searches_by_meaning_and_why_no_more_is(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        line = MeaningLine(model="near/m", indexed=3, messages=10, problem="no server")
        daemon.handlers["status"] = daemon.status(meaning=line)
        main(["status"])
        out = " ".join(capsys.readouterr().out.split())
        assert "! searches by meaning: no server" in out
        assert "search by words, and by meaning with near/m: 3 of 10 messages indexed" in out

    def test_names_the_layers_of_the_sandbox_and_what_has_no_bound(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["status"] = daemon.status(
            sandbox="bwrap",
            sandbox_layers=("namespaces", "seccomp"),
            sandbox_unbounded=("memory of all processes together",),
        )
        main(["status"])
        assert (
            "bwrap: namespaces, seccomp; not bounded: memory of all processes together"
            in capsys.readouterr().out
        )

    def test_is_exit_6_where_no_daemon_answers(self, tmp_path: Path, capsys: Capture) -> None:
        assert main(["--no-start", "status"]) == 6
        captured = capsys.readouterr()
        assert "error: no daemon answers" in captured.err
        assert "hint: Start one with: clawd" in captured.err
        assert main(["--socket", str(tmp_path / "x.sock"), "status", "--json"]) == 6
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "unreachable"


def groups() -> list[str]:
    """Return the commands that do nothing without one of their own."""
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return [
        name
        for name, command in commands.items()
        if isinstance(command, click.Group)
        and not (command.invoke_without_command or isinstance(command, ListingGroup))
    ]


class TestUsage:
    @each_row(
        ("arguments", "words"),
        [
            (["statsu"], "Did you mean status?"),
            (["etsop"], "No such command 'etsop'.\n"),
            (["restat"], "Did you mean restart?"),
            (["status", "--nonsense"], "No such option"),
            (["tool", "run"], "Missing argument"),
            (["tool", "run", "time", "--json", "{"], "is not JSON"),
            (["tool", "run", "time", "--json", "[]"], "must be an object"),
            (["tool", "run", "time", "--json", '{"a": "\udcff"}'], "is not JSON"),
            (["tool", "run", "time", "--json", "[" * 100_000], "is nested too deep"),
            (["agent", "-m", "x", "-C", "~no-such-user/x"], "there is no such folder"),
            (["memory", "clear"], "--yes"),
            (["onboard", "--base-url", "http://x"], "belong together"),
        ],
    )
    def test_mistakes_are_exit_2(
        self, capsys: Capture, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert main(arguments) == 2
        assert words in capsys.readouterr().err

    @each_row("group", [[], *([name] for name in groups())])
    def test_without_a_command_the_help_is_shown_as_it_is(
        self, capsys: Capture, group: list[str]
    ) -> None:
        assert main([*group, "--help"]) == 0
        told = capsys.readouterr().out
        assert main(group) in {0, 2}  # click before 8.2: 0
        captured = capsys.readouterr()
        assert captured.out + captured.err == told
        assert "Usage: clawctl" in told

    def test_a_group_that_lists_does_so_without_a_command(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["list_jobs"] = JobList(items=())
        for words in (["jobs"], ["jobs", "list"]):
            assert main(words) == 0
            assert capsys.readouterr().out.startswith("No jobs")
        for words in (["jobs", "--json"], ["jobs", "list", "--json"]):
            assert json_of(capsys, *words) == []
        assert main(["jobs", "--help"]) == 0
        assert "Usage: clawctl jobs" in capsys.readouterr().out
        assert main(["jobs", "nonsense"]) == 2

    def test_help_names_every_command_and_the_exit_codes(self, capsys: Capture) -> None:
        assert main(["--help"]) == 0
        out = capsys.readouterr().out
        for word in ("agent", "estop", "receipt", "Exit codes", "130 interrupted"):
            assert word in out

    def test_version_works_without_a_daemon(self, capsys: Capture) -> None:
        assert main(["version"]) == 0
        assert "(not running)" in capsys.readouterr().out

    def test_version_names_the_daemon_that_runs(self, daemon: FakeDaemon, capsys: Capture) -> None:
        document = json_of(capsys, "version", "--json")
        assert isinstance(document, dict)
        assert (document["clawctl"], document["clawd"]) == ("0.1.0", "9.9.9")
        assert document["protocol"] == {"min": 1, "max": 1, "spoken": 1}
        assert {"llama_cpp", "python"} < set(document)


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
    def test_what_does_not_fit_a_terminal_goes_on_below_its_own_column(
        self, daemon: FakeDaemon, look: Look
    ) -> None:
        short = "Tells the time of a zone, the current one where none is named."
        tool = ToolLine(name="time", short=short, description="d", parameters={})
        daemon.handlers["list_tools"] = ToolList(items=(tool,))
        screen = look("tool", "list", columns=60)
        screen.wait_for("is named.")
        assert screen.exit_code() == 0
        assert [line.rstrip() for line in screen.text.split("\n")[1:3]] == [
            "time  builtin  Tells the time of a zone, the current one",
            "               where none is named.",
        ]

    def test_list_shows_names_and_what_they_do(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["list_tools"] = ToolList(
            items=(ToolLine(name="time", short="Tells it.", description="d", parameters={}),)
        )
        main(["tool", "list"])
        shown = capsys.readouterr()
        assert "time  builtin  Tells it." in shown.out
        assert shown.err == "mode: split (models are offered each tool by its name)\n"

    def test_show_tells_arguments_other_names_and_an_example(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        line = ToolLine(
            name="file_read",
            short="Reads.",
            description="Reads a file.",
            parameters={
                "properties": {"path": {"description": "Where."}, "max_lines": {}},
                "required": ["path"],
            },
            offered_as='fs(action="read")',
            aliases=("cat",),
            example={"path": "it's"},
        )
        daemon.handlers["list_tools"] = ToolList(items=(line,), mode="unified")
        assert main(["tool", "show", "cat"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "file_read: Reads.",
            "",
            "Reads a file.",
            "",
            "  path (required) Where.",
            "  max_lines (optional)",
            'offered as: fs(action="read")',
            "other names: cat",
            """example: clawctl tool run file_read --json '{"path":"it'"'"'s"}'""",
        ]
        assert json.loads(msgspec.json.encode(line)) == json_of(
            capsys, "tool", "show", "file_read", "--json"
        )
        assert main(["tool", "show", "nosuch"]) == 1
        assert "the tools are: file_read" in capsys.readouterr().err

    def test_run_prints_the_output_made_safe(self, daemon: FakeDaemon, clawctl: Run) -> None:
        daemon.handlers["run_tool"] = outcome()
        done = clawctl("tool", "run", "time", "--json", '{"zone": "UTC"}')
        assert done.returncode == 0
        assert done.stdout == "12:00‹U+001B›[2J\n"
        assert "allowed, risk low, 3 ms  receipt-1" in done.stderr
        assert daemon.calls_of(RunTool) == [RunTool(name="time", arguments='{"zone": "UTC"}')]

    def test_run_speaks_of_no_prompt_however_long_a_tool_takes(
        self, daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def slow(_call: Call) -> ToolOutcome:
            time.sleep(2 * SILENCE_S)
            return outcome()

        daemon.handlers["run_tool"] = slow
        assert main(["tool", "run", "time"]) == 0
        assert capsys.readouterr().err.startswith("● allowed")

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
        # Once: the row beside it says how it ended, above what nobody let run.
        about, why = f"● {changes['status']}, ", "no\n"
        if changes["status"] == "denied":
            about, why = f"  {why}", about
        assert re.match(f"{re.escape(why)}(.*\n)?{re.escape(about)}", done.stderr)

    def test_run_takes_bytes_that_are_no_utf8_from_a_pipe(
        self, daemon: FakeDaemon, environ: dict[str, str]
    ) -> None:
        daemon.handlers["run_tool"] = outcome()
        done = subprocess.run(
            [sys.executable, "-m", "clawctl", "tool", "run", "time", "--json", "-"],
            env={**environ, "PYTHONIOENCODING": "utf-8:strict"},
            input=b'{"zone": "\xff"}',
            capture_output=True,
            timeout=60,
            start_new_session=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert daemon.calls_of(RunTool) == [RunTool(name="time", arguments='{"zone": "\ufffd"}')]

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
        assert "untrusted" not in out

    def test_show_names_pictures_before_the_words(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        shown = picture(3, 2).facts
        said = MessageLine(
            id=1,
            turn_id="t",
            timestamp="2026",
            role="user",
            content="what is it?",
            pictures=(shown,),
        )
        daemon.handlers["show_conversation"] = ConversationDetail(
            conversation=CONVERSATION, messages=(said,)
        )
        main(["conversation", "show", "conv"])
        told = f"(picture 3x2, sha256 {shown.sha256[:12]})\nwhat is it?\n"
        assert told in capsys.readouterr().out

    def test_r5_show_tells_what_was_thought_and_what_could_not_be_read(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        said = MessageLine(
            id=1,
            turn_id="t",
            timestamp="2026",
            role="assistant",
            content="answer",
            reasoning="a plan\x1b[2J",
            unreadable=("<tool_call>\n" + "x" * 300,),
        )
        daemon.handlers["show_conversation"] = ConversationDetail(
            conversation=CONVERSATION, messages=(said,)
        )
        main(["conversation", "show", "conv"])
        out = capsys.readouterr().out
        told = f"could not be read as a call, and was not run: <tool_call> {'x' * 187}…\n"
        assert out.index(told) < out.index("a plan‹U+001B›[2J\n\nanswer\n")

    def test_show_tells_where_untrusted_text_came_from(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        tainted = msgspec.structs.replace(
            CONVERSATION, untrusted_sources=("example.org", "the file a\x1b[2J")
        )
        daemon.handlers["show_conversation"] = ConversationDetail(conversation=tainted, messages=())
        main(["memory", "show", "conv"])
        told = "holds untrusted text from example.org, the file a‹U+001B›[2J"
        assert told in capsys.readouterr().out

    def test_clear_needs_a_yes(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["clear_memory"] = Done(message="1 conversation deleted")
        assert main(["memory", "clear", "conv-1", "--yes"]) == 0
        assert daemon.calls_of(ClearMemory) == [ClearMemory(conversation_id="conv-1")]
        assert capsys.readouterr().out == "1 conversation deleted\n"


def test_lists_fit_into_a_terminal(
    daemon: FakeDaemon, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, folder = "2026-11-29T05:00:00Z", "/srv/" + "projects/" * 9
    daemon.handlers["list_changes"] = ChangeList(
        items=(
            ChangeLine(
                receipt_id="rcpt-" + "1" * 26,
                at=at,
                tool="file_append",
                path="docs/" * 12 + "notes.md",
                action="changed",
                size_before=123_456,
                size_after=123_999,
                conversation_id="c",
                workspace=folder,
            ),
        )
    )
    daemon.handlers["list_schedules"] = ScheduleList(
        items=(
            ScheduleLine(
                id="s",
                name="report-of-the-week",
                owner=0,
                when="Mon..Fri 07:00 Europe/Berlin",
                zone="",
                prompt="report",
                workspace=folder,
                mode="readonly",
                wakes_at=at,
                last=ScheduleRun(number=1, due_at=at, cause="time", state="finished"),
            ),
        )
    )
    monkeypatch.setattr("clawctl.safe_stream.columns", lambda _stream: 80)
    for command in (["undo", "--list"], ["schedule", "list"], ["model", "list", "--available"]):
        for is_terminal in (False, True):
            monkeypatch.setattr("sys.stdout.isatty", lambda found=is_terminal: found)
            assert main(command) == 0
            _, *rows = capsys.readouterr().out.splitlines()
            assert (max(map(len, rows)) <= 80) == is_terminal, command
