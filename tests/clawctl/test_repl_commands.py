"""The REPL's slash commands, and that each leads to something."""

import inspect
import re
import threading
from pathlib import Path

import msgspec

from clawctl.repl.slash import COMMANDS, handler
from clawd.errors import ForbiddenError, NotFoundError
from clawd.wire.conversations import (
    ConversationChunk,
    ConversationDetail,
    ConversationLine,
    DeleteConversation,
    ForkConversation,
    MessageLine,
    PromptText,
)
from clawd.wire.events import ModelLoading, TokenLedger, TokenPart, TurnFinished
from clawd.wire.method import Done
from clawd.wire.models import LoadedModel, ModelLine, ModelList, ProviderLine, ProviderList
from clawd.wire.policy import PolicyExplanation, RuleList
from clawd.wire.skills import FillCommand, FilledCommand, SkillLine, SkillList
from clawd.wire.tools import JobLine, JobList, JobOutput, RunTool, ToolLine, ToolList, ToolOutcome
from clawd.wire.turns import SamplingLine, SamplingReport, SamplingWishes, SendMessage, ShowSampling
from tests.clawctl.conftest import Look
from tests.clawctl.repl_turns import at_prompt
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.pictures import png
from tests.support.screen import TerminalScreen
from tests.support.terminal import STARTED, echo, finished

REQUIRED = (
    "exit quit clear reset compress continue system plan tools tool memory knowledge policy model "
    "preset sampling mcp files receipts cost undo help rename title fork status estop agent "
    "think reasoning theme editor provider approvals doctor copy retry save refine mode rewind "
    "jobs resume skill plan-first paste sop"
)
LINE = ConversationLine(
    id="conv-1", title="a talk", created_at="", updated_at="", messages=2, workspace="/srv/space"
)
LOCAL = ProviderLine(name="local", kind="local", model="embedded", is_default=True)
REMOTE = ProviderLine(name="far", kind="openai-compatible", model="m-1")


def say(screen: TerminalScreen, line: str, *shown: str) -> None:
    """Send a line and wait for what it shows, and for the next prompt."""
    screen.wait_for(at_prompt)
    before = len(screen.raw)
    screen.type(f"{line}\r")
    for text in shown:
        screen.wait_for(text, anywhere=True)
    screen.wait_for(lambda seen: len(seen.raw) > before and at_prompt(seen))


def test_every_command_is_there_and_leads_to_a_function() -> None:
    assert set(COMMANDS) == {f"/{name}" for name in REQUIRED.split()}
    for command in COMMANDS.values():
        assert len(inspect.signature(handler(command)).parameters) == 2


def test_help_is_grouped_and_tells_more_of_one(daemon: FakeDaemon, look: Look) -> None:
    screen = look("agent", lines=90, columns=100)
    say(screen, "/help", "The conversation", "Safety and records", "Ctrl-\\ is the emergency stop")
    for name in COMMANDS:
        assert re.search(rf"^  {re.escape(name)}\b", screen.text, re.MULTILINE), name
    say(screen, "/help tool", "It goes through the same gate")
    say(screen, "/toools", "Did you mean /tools?")


def test_m1_sampling_shows_what_is_in_force_and_sets_what_follows(
    daemon: FakeDaemon, look: Look
) -> None:
    penalty = SamplingLine(name="repeat_penalty", value="1.1", origin="message")
    heat = SamplingLine(name="temperature", value="0.8", origin="config")
    daemon.handlers |= {
        "send_message": echo,
        "show_sampling": SamplingReport(
            provider="local", model="m", items=(heat, penalty), is_whole=True
        ),
    }
    screen = look("agent", columns=100)
    say(screen, "/sampling", "temperature", "the configuration")
    say(screen, "/sampling temperature=0.2 repeat_penalty=1.1 seed=7", "set here")
    say(screen, "/sampling heat=1", "heat=1 is not NAME=VALUE of sampling")
    say(screen, "/sampling top_p=9", "sampling: Expected")
    say(screen, "/sampling seed=off", "set here")
    say(screen, "one", "<one>")
    say(screen, "/sampling off", "Nothing is set here any more")
    say(screen, "two", "<two>")
    wishes = SamplingWishes(temperature=0.2, repeat_penalty=1.1)
    assert [each.sampling for each in daemon.calls_of(SendMessage)] == [wishes, None]
    asked = [each.sampling for each in daemon.calls_of(ShowSampling)]
    assert asked == [None, msgspec.structs.replace(wishes, seed=7), wishes, None]


def test_m9_refine_offers_better_words_and_sends_nothing(
    daemon: FakeDaemon, look: Look, home: Path
) -> None:
    screen = look("agent", columns=100)
    say(screen, "/refine mend it", "/refine is off")
    assert daemon.calls_of(SendMessage) == []
    (home / "client.toml").write_text("refine = true\n")
    say(screen, "/refine", "/refine takes a message")
    daemon.handlers["open_conversation"] = LINE
    daemon.handlers["delete_conversation"] = Done()
    daemon.handlers["send_message"] = lambda _call: finished("Mend the function add.")
    screen.wait_for(at_prompt)
    screen.type("/refine mend it\r")
    screen.wait_for("> Mend the function add.")
    (asked,) = daemon.calls_of(SendMessage)
    assert (asked.text, asked.conversation_id) == ("mend it", LINE.id)
    assert asked.tools_allow == ("-*",)
    assert "Rewrite the user's message" in (asked.system or "")
    (deleted,) = daemon.calls_of(DeleteConversation)
    assert deleted.conversation_id == LINE.id


def test_model_provider_preset_and_system_text_go_with_the_next_message(
    daemon: FakeDaemon, look: Look
) -> None:
    daemon.handlers |= {
        "send_message": echo,
        "list_providers": ProviderList(items=(LOCAL, REMOTE)),
        "list_models": ModelList(
            folder="/m", items=(ModelLine(name="other", path="/m/other.gguf", size_bytes=1),)
        ),
        "load_model": LoadedModel(
            name="other", path="/m/other.gguf", pid=1, state="ready", context_size=4096
        ),
        "show_prompt": PromptText(
            system="You are clawd.",
            fragments=(),
            block="",
            untrusted=(),
            tools=(),
            workspace="/w",
            conversation_id="",
        ),
    }
    screen = look("agent", lines=60, columns=100)
    say(screen, "/model", "/m/other.gguf")
    say(screen, "/model other", "other answers from now on, context 4096")
    say(screen, "/preset sideways", "is not a preset")
    say(screen, "/preset wild", "Sampling is wild")
    say(screen, "/system", "You are clawd.")
    say(screen, "/system Answer in rhyme.", "in place of clawd's own")
    say(screen, "one", "<one>")
    say(screen, "/provider nowhere", "there is no provider nowhere", "Configured are: local, far")
    say(screen, "/provider far", "far (m-1) answers")
    say(screen, "/system off", "in force again")
    say(screen, "/preset off", "own way")
    say(screen, "two", "<two>")
    first, second = daemon.calls_of(SendMessage)
    assert (first.model, first.preset, first.system) == ("other", "wild", "Answer in rhyme.")
    assert (second.provider, second.model, second.preset, second.system) == ("far", "", "", None)


def test_the_policy_is_that_of_the_conversation_and_its_mode(
    daemon: FakeDaemon, look: Look
) -> None:
    def explain(call: Call) -> PolicyExplanation:
        by = f"judged in {call.params.autonomy} of {call.params.conversation_id or 'none'}"
        return PolicyExplanation(verdict="deny", risk="medium", reason=by, rule="policy")

    kept = msgspec.structs.replace(LINE, mode="readonly")
    daemon.handlers |= {
        "send_message": echo,
        "open_conversation": kept,
        "show_conversation": ConversationDetail(conversation=kept, messages=()),
        "list_rules": RuleList(items=()),
        "explain_policy": explain,
    }
    screen = look("agent", lines=60, columns=100)
    say(screen, "/mode readonly", "mode readonly")
    say(screen, "/policy file_write {}", "judged in readonly of none")
    say(screen, "/continue", "conv-1")
    say(screen, "/policy", "readonly (of this conversation)")
    say(screen, "/policy file_write {}", "judged in None of conv-1")


def test_one_message_or_all_are_planned_first(daemon: FakeDaemon, look: Look) -> None:
    daemon.handlers |= {"send_message": echo}
    screen = look("agent", lines=40, columns=100)
    say(screen, "/plan-first one", "<one>")
    say(screen, "two", "<two>")
    say(screen, "/plan-first on", "Messages are planned first")
    say(screen, "three", "<three>")
    say(screen, "/plan-first off", "Messages are not planned first")
    assert [(sent.text, sent.plan_first) for sent in daemon.calls_of(SendMessage)] == [
        ("one", True),
        ("two", False),
        ("three", True),
    ]


def test_r5_think_goes_with_the_messages_of_its_conversation_and_shows_how_it_stands(
    daemon: FakeDaemon, look: Look
) -> None:
    kept = msgspec.structs.replace(LINE, think="high")
    daemon.handlers |= {
        "send_message": echo,
        "open_conversation": kept,
        "show_conversation": ConversationDetail(conversation=kept, messages=()),
    }
    screen = look("agent", lines=60, columns=100)
    say(screen, "/think", "the model's to say.")
    say(screen, "/think much", "much is none of on, off, low, medium, high, auto")
    say(screen, "/think off", "Thinking is off in this conversation from your next message on.")
    say(screen, "/think", "Thinking is off in this conversation.")
    say(screen, "one", "<one>")
    say(screen, "/continue", "conv-1")
    say(screen, "/think", "Thinking is on, and its effort high in this conversation.")
    say(screen, "two", "<two>")
    assert [each.think for each in daemon.calls_of(SendMessage)] == ["off", ""]


def test_a_model_that_is_not_there_is_told_and_changes_nothing(
    daemon: FakeDaemon, look: Look
) -> None:
    told = threading.Event()

    def load(call: Call) -> None:
        call.emit(ModelLoading(model="nope", loaded_bytes=1, total_bytes=4))
        assert told.wait(60)
        raise NotFoundError("there is no model nope", hint="known are: other")

    daemon.handlers |= {
        "send_message": echo,
        "list_providers": ProviderList(items=(LOCAL,)),
        "load_model": load,
    }
    screen = look("agent")
    screen.type("/model nope\r")
    screen.wait_for("loading nope 25%")
    told.set()
    say(screen, "/model nope", "there is no model nope", "known are: other")
    say(screen, "one", "<one>")
    assert daemon.calls_of(SendMessage)[0].model == ""


def test_a_tool_runs_in_the_conversation(daemon: FakeDaemon, look: Look) -> None:
    tool = ToolLine(
        name="file_list",
        short="Lists",
        description="Lists a folder.",
        parameters={"properties": {"path": {"description": "the folder"}}, "required": ["path"]},
        example={"path": "."},
    )
    daemon.handlers |= {
        "send_message": echo,
        "list_tools": ToolList(items=(tool,)),
        "run_tool": ToolOutcome(
            status="allowed",
            kind="ok",
            output="a.txt",
            receipt_id="receipt-1",
            risk="low",
            duration_ms=1,
        ),
    }
    screen = look("agent", lines=40)
    say(screen, "hello", "<hello>")
    say(screen, "/tool file_list", "Lists a folder.", '/tool file_list {"path":"."}')
    say(screen, "/tool file_list {nonsense", "is not a JSON object")
    say(screen, '/tool file_list {"path": "src"}', "a.txt", "receipt-1")
    (call,) = daemon.calls_of(RunTool)
    assert (call.name, call.arguments, call.conversation_id) == (
        "file_list",
        '{"path": "src"}',
        "conv-1",
    )


def test_cost_shows_the_context_by_part(daemon: FakeDaemon, look: Look) -> None:
    def send(call: Call) -> TurnFinished:
        call.emit(STARTED)
        parts = (TokenPart(name="system", tokens=400), TokenPart(name="mcp fs", tokens=112))
        ledger = TokenLedger(parts=parts, free=1536, context_size=2048)
        done = finished("<done>")
        return TurnFinished(
            conversation_id="conv-1", turn_id="t", text="<done>", usage=done.usage, ledger=ledger
        )

    daemon.handlers["send_message"] = send
    screen = look("agent", lines=40)
    say(screen, "/cost", "0 turns", "known after the next answer")
    say(screen, "hello", "<done>")
    say(screen, "/cost", "1 turn in", "mcp fs")
    assert re.search(r"free +1536 +75%", screen.text)


def test_retry_asks_again_in_a_copy_that_ends_before(daemon: FakeDaemon, look: Look) -> None:
    def message(number: int, role: str, text: str) -> MessageLine:
        return MessageLine(id=number, turn_id="t", timestamp="", role=role, content=text)

    stored = [
        message(5, "user", "hello"),
        message(6, "assistant", "<hello>"),
        message(7, "user", "more"),
        message(8, "assistant", "<more>"),
    ]
    daemon.handlers |= {
        "send_message": echo,
        "show_conversation": ConversationDetail(conversation=LINE, messages=tuple(stored)),
        "fork_conversation": ConversationLine(
            id="conv-2", title="", created_at="", updated_at="", messages=2
        ),
    }
    screen = look("agent", lines=40)
    say(screen, "/retry", "nothing to ask again")
    say(screen, "hello", "<hello>")
    say(screen, "more", "<more>")
    say(screen, "/retry", "Asked again: more")
    (forked,) = daemon.calls_of(ForkConversation)
    assert (forked.conversation_id, forked.message_id) == ("conv-1", 6)
    last = daemon.calls_of(SendMessage)[-1]
    assert (last.text, last.conversation_id) == ("more", "conv-2")


def test_continue_shows_the_end_of_a_conversation(daemon: FakeDaemon, look: Look) -> None:
    def message(role: str, text: str) -> MessageLine:
        return MessageLine(id=1, turn_id="t", timestamp="", role=role, content=text)

    stored = (message("user", "what was it?"), message("assistant", "it was \x1b[2Jthis"))
    daemon.handlers |= {
        "send_message": echo,
        "open_conversation": LINE,
        "show_conversation": ConversationDetail(conversation=LINE, messages=stored),
    }
    screen = look("agent", lines=40)
    say(screen, "/continue", "You go on in conv-1: a talk (2 messages)", "> what was it?")
    assert "it was ‹U+001B›[2Jthis" in screen.text
    say(screen, "go on", "<go on>")
    assert daemon.calls_of(SendMessage)[0].conversation_id == "conv-1"
    screen.wait_for("a talk")


def test_a_conversation_that_is_continued_keeps_its_own_mode(
    daemon: FakeDaemon, look: Look
) -> None:
    other = msgspec.structs.replace(LINE, id="conv-2", mode="readonly")
    daemon.handlers |= {
        "send_message": echo,
        "open_conversation": other,
        "show_conversation": ConversationDetail(conversation=other, messages=()),
    }
    screen = look("agent", "--mode", "full")
    say(screen, "one", "<one>")
    say(screen, "/clear")
    say(screen, "/continue", "You go on in conv-2")
    say(screen, "two", "<two>")
    assert [each.mode for each in daemon.calls_of(SendMessage)] == ["full", ""]


def test_save_and_copy_keep_what_was_said(daemon: FakeDaemon, look: Look, tmp_path: Path) -> None:
    daemon.handlers |= {
        "send_message": echo,
        "export_conversation": ConversationChunk(text="# a talk\n\nhello\n"),
    }
    screen = look("agent", columns=200, env={"PATH": "/nonexistent"})
    say(screen, "/copy", "There is no answer yet")
    say(screen, "hello", "<hello>")
    say(screen, "/copy", "last-answer.md")
    assert (daemon.home / "last-answer.md").read_text(encoding="utf-8") == "<hello>"
    target = tmp_path / "talk.md"
    say(screen, f"/save {target}", "Written to")
    assert target.read_text(encoding="utf-8") == "# a talk\n\nhello\n"
    say(screen, f"/save {target}", "is there already")


def test_a_picture_is_pasted_into_the_next_message(
    daemon: FakeDaemon, look: Look, tmp_path: Path
) -> None:
    daemon.handlers["send_message"] = echo
    (tmp_path / "photo.png").write_bytes(png(3, 2))
    program = tmp_path / "xclip"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *image/png*) exec cat "${0%/*}/photo.png";; esac\nexit 1\n'
    )
    program.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    screen = look("agent", columns=200, env={"PATH": path, "DISPLAY": ":9", "WAYLAND_DISPLAY": ""})
    say(screen, "/paste", f"A picture of {len(png(3, 2))} bytes goes with your next message")
    say(screen, "what is it?", "<what is it?>")
    say(screen, "and now?", "<and now?>")
    (tmp_path / "photo.png").write_bytes(b"<svg/>")
    say(screen, "/paste", "No PNG or JPEG is in the clipboard")
    assert [each.pictures for each in daemon.calls_of(SendMessage)] == [(png(3, 2),), ()]


def test_p2_jobs_are_counted_below_the_prompt_and_listed(daemon: FakeDaemon, look: Look) -> None:
    job = JobLine(
        id="job-7", command="make all", conversation_id="conv-1", workspace="/srv/space", owner=1,
        state="running", started_at="2026-01-02T03:04:05Z", duration_s=61, limit_s=1800,
        output_bytes=6, receipt_id="receipt-1",
    )  # fmt: skip
    daemon.handlers |= {
        "status": daemon.status(jobs_running=1),
        "list_jobs": JobList(items=(job,)),
        "show_job": JobOutput(job=job, output="begun\x1b[2J\n"),
    }
    screen = look("agent", columns=160)
    screen.wait_for("1 job")
    say(screen, "/jobs", "job-7  running  1 min 1 s", "/srv/space", "make all")
    say(screen, "/jobs output job-7", "begun‹U+001B›[2J")
    say(screen, "/jobs show job-7", "runs since 1 min 1 s, at most 30 min", "receipt-1")


def test_small_commands_answer(daemon: FakeDaemon, look: Look) -> None:
    daemon.handlers["list_jobs"] = JobList(items=())
    screen = look("agent", columns=120)
    for line, shown in (
        ("/mcp", "No MCP servers"),
        ("/mcp nonsense", "No such command"),
        ("/skill", "There are no skills"),
        ("/theme plaid", "is not a theme"),
        ("/theme light", "The theme is light"),
        ("/reasoning folded", "shown folded"),
        ("/files", "no files yet"),
        ("/jobs", "No jobs"),
    ):
        say(screen, line, shown)


def test_commands_of_ones_own_come_from_the_daemon_and_are_sent_filled(
    daemon: FakeDaemon, look: Look, tmp_path: Path
) -> None:
    outcome = ToolOutcome(
        kind="ok", status="allowed", output="printed", receipt_id="r-1", risk="low", duration_ms=1
    )
    lines = (
        SkillLine(
            name="review", state="ready", folder="/x", is_own=True, hint="FOLDER",
            description="Review what is staged.",
        ),
        SkillLine(name="cost", state="ready", folder="/x", is_own=False, description="Shadows."),
        SkillLine(name="theirs", state="untrusted", folder="/x", is_own=False),
    )  # fmt: skip

    def fill(call: Call) -> FilledCommand:
        if call.params.name == "theirs":
            raise ForbiddenError("it is untrusted", hint="clawctl skill trust theirs")
        if call.params.arguments == "bad":
            return FilledCommand(conversation_id=LINE.id, ran=(outcome,))
        return FilledCommand(
            text="Review src:\nprinted @b.md",
            typed="Review src: @a.md\n",
            files=(".claude/commands/review.md",),
            allowed_tools=("Read",),
            conversation_id=LINE.id,
            ran=(outcome,),
        )

    daemon.handlers |= {
        "send_message": echo,
        "list_skills": SkillList(items=lines),
        "fill_command": fill,
    }
    screen = look("agent", lines=60, columns=100)
    say(screen, "/review  src 'it ", "r-1", "printed @b.md>")
    say(screen, "/help", "/review FOLDER", "Review what is staged.")
    assert "Shadows." not in screen.text
    assert "/theirs" not in screen.text
    say(screen, "/help review", "Review what is staged.")
    say(screen, "/theirs", "it is untrusted", "clawctl skill trust theirs")
    say(screen, "/review bad", "nothing was sent")
    say(screen, "/nothing", "/nothing is not a command here")
    say(screen, "/cost", "nothing")
    say(screen, "two", "<two>")
    asked = [each for each in daemon.calls_of(FillCommand) if each.name == "review"]
    assert [(each.arguments, each.conversation_id) for each in asked] == [
        ("src 'it", ""), ("bad", LINE.id),
    ]  # fmt: skip
    assert all(each.interactive for each in asked)
    assert {each.name for each in daemon.calls_of(FillCommand)} == {"review", "theirs"}
    sent, second = daemon.calls_of(SendMessage)
    assert (sent.text, sent.files) == (
        "Review src:\nprinted @b.md", (".claude/commands/review.md",),
    )  # fmt: skip
    assert (sent.allowed_tools, second.allowed_tools) == (("Read",), ())
