"""The moment between showing a call and asking about it, on a pseudo-terminal of our own."""

import os
import pty
import termios
import threading
from collections.abc import Iterator

import msgspec
import pytest

from clawctl import approve
from clawctl.approve import Terminal
from clawctl.render import Palette
from clawd.wire.events import ApprovalRequested, Event, FileDiff
from tests.support.terminal import LIMIT_S, REQUEST


class Clock:
    """Time that passes while a stream is waited for, and however busy the machine is not else."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class HastyStream:
    """A stream that nothing comes from; while it is waited for, somebody types."""

    def __init__(self, clock: Clock, keyboard: int, typed: bytes) -> None:
        self._clock = clock
        self._keyboard = keyboard
        self._typed = typed
        self._quiet, self._never = os.pipe()
        self.waiting: tuple[Event, ...] = ()
        self.has_ended = False
        self.waited_s: list[float] = []
        self.answers: list[tuple[str, str, str]] = []

    def fileno(self) -> int:
        return self._quiet

    def read(self, limit_s: float) -> None:
        if not self.waited_s:
            os.write(self._keyboard, self._typed)
        self.waited_s.append(limit_s)
        self._clock.now += limit_s

    def answer(self, question: str, value: str, digest: str = "") -> None:
        self.answers.append((question, value, digest))

    def close(self) -> None:
        os.close(self._quiet)
        os.close(self._never)


@pytest.fixture
def keyboard() -> Iterator[tuple[int, Terminal]]:
    master, slave = pty.openpty()
    terminal = Terminal(slave)
    yield master, terminal
    terminal.close()
    os.close(master)


@pytest.mark.parametrize("typed", [b"y\n", b"y", b"y\ny\ny\n"])
def test_what_is_typed_before_the_question_is_put_does_not_count(
    keyboard: tuple[int, Terminal], monkeypatch: pytest.MonkeyPatch, typed: bytes
) -> None:
    master, terminal = keyboard
    clock = Clock()
    monkeypatch.setattr(approve, "time", clock)
    stream = HastyStream(clock, master, typed)
    asked = threading.Event()

    def person() -> None:
        seen = b""
        while b"d details" not in seen:
            seen += os.read(master, 4096)
        asked.set()
        os.write(master, b"\n")

    thread = threading.Thread(target=person)
    thread.start()
    approve.approve(terminal, REQUEST, stream)  # type: ignore[arg-type]
    thread.join(LIMIT_S)
    stream.close()
    assert asked.is_set()
    assert stream.waited_s == [approve.SETTLE_S], "nobody was given the time to look"
    assert stream.answers == [("a1", "deny", "d1")]


def test_a_line_after_an_answer_begins_where_the_terminal_put_it(
    keyboard: tuple[int, Terminal],
) -> None:
    master, terminal = keyboard
    termios.tcsetwinsize(master, (24, 80))
    os.write(master, b"yes\n")
    assert terminal.ask_alone("q" * 60) == "yes"
    terminal.show("x" * 60)
    seen = b""
    while b"x" not in seen or not seen.endswith(b"\n"):
        seen += os.read(master, 4096)
    assert b"x" * 60 in seen, "it is broken as if it went on behind the question"


class Typist(Terminal):
    """A terminal at which one line is typed, and Enter from then on; keeps what was asked."""

    def __init__(self, line: str) -> None:
        self._null = os.open(os.devnull, os.O_RDWR)
        super().__init__(self._null)
        self._typed = line
        self.asked: list[str] = []

    def settle(self, stream: object, is_over: object) -> None:
        return

    def ask(self, question: str, stream: object, is_over: object, **_options: bool) -> str:
        self.asked.append(question)
        return self._typed if len(self.asked) == 1 else ""


def answer_to(request: ApprovalRequested, line: str) -> tuple[str, str]:
    """Return what was asked and what was sent."""
    terminal = Typist(line)
    stream = HastyStream(Clock(), -1, b"")
    approve.approve(terminal, request, stream)  # type: ignore[arg-type]
    terminal.close()
    stream.close()
    [(_, word, _)] = stream.answers
    return terminal.asked[0], word


def test_p1_what_is_on_no_list_takes_a_key_that_is_meant() -> None:
    request = msgspec.structs.replace(
        REQUEST,
        tool="shell",
        arguments='{"command":"terraform plan"}',
        risk="high",
        rule="shell terraform * in /w",
        patterns=("terraform *",),
        unlisted=("terraform",),
    )
    answers = {line: answer_to(request, line)[1] for line in ("", "y", "Y", "yes", "a", "A", "n")}
    assert set(answers.values()) == {"deny"}, answers
    question, word = answer_to(request, "o")
    assert question == (
        "  │ p project (terraform *)   e edit   d details\n"
        "  ╰ `terraform` is not on the list of this project: [o]nce / [p]roject / [n]o   "
    )
    assert (word, answer_to(request, "p")[1]) == ("once", "project")
    # Where no pattern covers it, or untrusted text is about, it runs once or not.
    bare = msgspec.structs.replace(request, rule="", patterns=())
    question, word = answer_to(bare, "p")
    assert (question.count("[p]roject"), word) == (0, "deny")
    assert answer_to(bare, "o")[1] == "once"


def test_a_key_of_habit_at_what_is_on_no_list_asks_again() -> None:
    request = msgspec.structs.replace(
        REQUEST,
        tool="shell",
        risk="high",
        reason="`terraform` is not on the list of this project",
        rule="shell terraform * in /w",
        patterns=("terraform *",),
        unlisted=("terraform",),
    )
    wrong = {}
    for line, times in {"y": 2, "yes": 2, "a": 2, "A": 2, "": 1, "n": 1, "no": 1, "o": 1}.items():
        terminal = Typist(line)
        stream = HastyStream(Clock(), -1, b"")
        approve.approve(terminal, request, stream)  # type: ignore[arg-type]
        terminal.close()
        stream.close()
        if len(terminal.asked) != times:
            wrong[line] = terminal.asked
    assert wrong == {}
    shown = approve.request_lines(Palette(is_on=False), request)
    assert shown[0] == "  ╭ shell · high", "the question itself says why"


def test_one_key_allows_what_a_question_of_medium_risk_names() -> None:
    request = msgspec.structs.replace(
        REQUEST, tool="shell", rule="shell pytest * in /w", patterns=("pytest *",)
    )
    question, word = answer_to(request, "p")
    assert "p project (pytest *)" in question
    assert word == "project"
    assert answer_to(msgspec.structs.replace(request, rule=""), "p")[1] == "deny"
    writes = msgspec.structs.replace(request, patterns=("sort *", "> /w/out/a.txt", "> /wx"))
    assert "p project (sort *, > out/a.txt, > /wx)" in answer_to(writes, "p")[0]


def test_s12_a_long_question_says_what_it_is_once_more_beside_the_prompt() -> None:
    content = "x\n" * 400
    rows = {
        "shell": ({"command": "make all"}, (), "shell  make all  22 B of arguments"),
        "file_write": (
            {"path": "docs/a.md", "content": content},
            (FileDiff(path="docs/a.md", added=400, new_size=800),),
            "file_write  docs/a.md  +400 -0 lines, 800 B",
        ),
    }
    for tool, (arguments, changes, expected) in rows.items():
        request = msgspec.structs.replace(
            REQUEST,
            tool=tool,
            arguments=msgspec.json.encode(arguments).decode(),
            changes=changes,
        )
        assert approve.in_short(request) == expected


def test_s12_letters_that_pass_for_others_are_named_in_a_question() -> None:
    request = msgspec.structs.replace(
        REQUEST, tool="shell", arguments='{"command":"curl https://p\u0430ypal.com"}'
    )
    shown = approve.request_lines(Palette(is_on=False), request)
    assert shown[-1].endswith("p‹\u0430 CYRILLIC SMALL LETTER A›ypal")
