"""`agent --resume`: what is offered, how it is filtered, and what a pipe is told."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clawctl.repl.conversation_picker import Talk, _Chooser, talks
from clawd.wire.conversations import (
    ConversationDetail,
    ConversationLine,
    ConversationPage,
    ListConversations,
    MessageLine,
    OpenConversation,
)
from clawd.wire.turns import SendMessage
from tests.clawctl.conftest import Look, Run
from tests.clawctl.repl_turns import at_prompt
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.rows import each_row
from tests.support.terminal import echo

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def line(identity: str, folder: str, *, hours: int, title: str, said: str = "") -> ConversationLine:
    at = (NOW - timedelta(hours=hours)).isoformat().replace("+00:00", "Z")
    return ConversationLine(
        id=identity, title=title, created_at=at, updated_at=at, messages=2, workspace=folder,
        last_words=said,
    )  # fmt: skip


def told_of(folder: str) -> tuple[ConversationLine, ...]:
    """The newest first, as a daemon tells them."""
    return (
        line("conv-new", "/srv/other", hours=1, title="elsewhere", said="mail is sent"),
        line("conv-here", folder, hours=5, title="mend the adder", said="add() adds\x1b[2J now"),
        line("conv-old", folder, hours=50, title="begin the adder", said="begun"),
    )


def offering(daemon: FakeDaemon, folder: str) -> None:
    lines = told_of(folder)

    def listed(call: Call) -> ConversationPage:
        wanted = call.params.workspace
        return ConversationPage(
            items=tuple(each for each in lines if wanted in {"", each.workspace})
        )

    def opened(call: Call) -> ConversationLine:
        return next(each for each in lines if each.id == call.params.conversation_id)

    said = MessageLine(id=1, turn_id="t", timestamp="", role="assistant", content="how it ended")
    daemon.handlers |= {
        "send_message": echo,
        "list_conversations": listed,
        "open_conversation": opened,
        "show_conversation": ConversationDetail(conversation=lines[1], messages=(said,)),
    }


class Listing:
    """A client that lists; `folder` is the one that some of it are of."""

    def __init__(self, lines: tuple[ConversationLine, ...]) -> None:
        self._lines = lines

    def call(self, params: ListConversations) -> ConversationPage:
        assert params.last_words
        found = [each for each in self._lines if params.workspace in {"", each.workspace}]
        return ConversationPage(items=tuple(found))


def offered(folder: str) -> list[Talk]:
    empty = ConversationLine(
        id="conv-empty", title="", created_at="", updated_at="", messages=0, workspace=folder
    )
    return talks(Listing((empty, *told_of(folder))), folder, NOW)  # type: ignore[arg-type]


def test_those_of_the_folder_come_first_and_each_is_told_safely(tmp_path: Path) -> None:
    found = offered(str(tmp_path))
    assert [each.id for each in found] == ["conv-here", "conv-old", "conv-new"]
    assert [(each.folder, each.age) for each in found] == [
        ("here", "5 h 0 min"),
        ("here", "2 d 2 h"),
        ("/srv/other", "1 h 0 min"),
    ]
    assert found[0].last_words == "add() adds‹U+001B›[2J now"


@each_row(
    ("words", "left"),
    [
        ("", ["conv-here", "conv-old", "conv-new"]),
        ("adder", ["conv-here", "conv-old"]),
        ("ADDER begun", ["conv-old"]),
        ("srv", ["conv-new"]),
        ("conv-new", ["conv-new"]),
        ("nothing like it", []),
    ],
)
def test_words_filter_by_title_folder_and_last_words(words: str, left: list[str]) -> None:
    found = offered("/srv/here")
    assert [each.id for each in found if each.has(words)] == left
    chooser = _Chooser(found)
    chooser.move(2)
    chooser.filter(words)
    assert chooser.chosen == (left[0] if left else "")
    for columns in (10, 40, 200):
        for row in "".join(text for _, text in chooser.rows(columns)).split("\n"):
            assert len(row) <= columns


def test_the_chosen_row_is_always_among_those_shown() -> None:
    many = [
        Talk(id=f"conv-{n}", title=f"title {n}.", folder="here", age="", last_words="")
        for n in range(40)
    ]
    chooser = _Chooser(many)
    for step in (0, 1, 12, 100, -3, -100):
        chooser.move(step)
        number = chooser.chosen.removeprefix("conv-")
        assert f"› {' ' * 12}here" in (text := "".join(part for _, part in chooser.rows(200)))
        assert f"title {number}." in text


def test_one_is_chosen_with_the_keys_and_its_end_is_shown(daemon: FakeDaemon, look: Look) -> None:
    offering(daemon, str(Path.cwd()))
    screen = look("agent", "--resume", columns=120, lines=40)
    screen.wait_for("Go on with:")
    screen.wait_for("elsewhere")
    screen.type("adder")
    screen.wait_for(lambda seen: "elsewhere" not in seen.text and "2 of 3" in seen.text)
    screen.type("\x1b[B\x1b[A\r")
    screen.wait_for("how it ended", anywhere=True)
    screen.wait_for(at_prompt)
    assert "Go on with:" not in screen.text  # it gave its rows back
    screen.type("more\r")
    screen.wait_for("<more>")
    (sent,) = daemon.calls_of(SendMessage)
    assert sent.text == "more"
    assert {each.conversation_id for each in daemon.calls_of(OpenConversation)} <= {
        "conv-here", "conv-old",
    }  # fmt: skip
    assert sent.conversation_id in {"conv-here", "conv-old"}


@pytest.mark.parametrize("key", ["\x1b", "\x03", "\x04"])
def test_who_chooses_none_leaves(daemon: FakeDaemon, look: Look, key: str) -> None:
    offering(daemon, "/srv/here")
    screen = look("agent", "--resume")
    screen.wait_for("Go on with:")
    screen.type(key)
    assert screen.exit_code() == 0
    assert daemon.calls_of(OpenConversation) == []


def test_a_dumb_terminal_gets_numbers(daemon: FakeDaemon, look: Look) -> None:
    offering(daemon, "/srv/here")
    screen = look("agent", "--resume", env={"TERM": "dumb"}, columns=160)
    screen.wait_for("[1-3]")
    screen.type("adder\r")
    screen.wait_for("[1-2]")
    screen.type("2\r")
    screen.wait_for("how it ended")
    (opened,) = daemon.calls_of(OpenConversation)
    assert opened.conversation_id == "conv-old"


def test_where_nothing_is_kept_a_new_conversation_begins(daemon: FakeDaemon, look: Look) -> None:
    daemon.handlers |= {
        "send_message": echo,
        "list_conversations": ConversationPage(items=()),
    }
    screen = look("agent", "--resume")
    screen.wait_for("there is no conversation yet")
    screen.wait_for(at_prompt)


def test_a_pipe_is_told_what_to_do_instead(daemon: FakeDaemon, clawctl: Run) -> None:
    done = clawctl("agent", "--resume", stdin="hello\n")
    assert done.returncode == 1
    assert "--resume needs a terminal" in done.stderr
    for way in ("clawctl agent --continue", "--conversation ID", "clawctl conversation list"):
        assert way in done.stderr
    for words in (("-m", "x"), ("--json",), ("--continue",), ("--conversation", "conv-1")):
        assert clawctl("agent", "--resume", *words).returncode == 2
    assert daemon.requests == []


def test_the_repl_chooses_one_while_it_runs_and_leaves_all_as_it_was_on_escape(
    daemon: FakeDaemon, look: Look
) -> None:
    offering(daemon, str(Path.cwd()))
    screen = look("agent", columns=120, lines=40)
    screen.wait_for(at_prompt)
    screen.type("/resume\r")
    screen.wait_for("Go on with:")
    screen.wait_for("elsewhere")
    screen.type("\x1b")
    screen.wait_for(at_prompt)
    assert daemon.calls_of(OpenConversation) == []
    screen.type("/resume nothing like it\r")
    screen.wait_for("No conversation has nothing like it.")
    screen.wait_for(at_prompt)
    screen.type("/resume begin\r")
    screen.wait_for("1 of 1")
    screen.type("\r")
    screen.wait_for("how it ended", anywhere=True)
    screen.wait_for(at_prompt)
    screen.type("more\r")
    screen.wait_for("<more>")
    (sent,) = daemon.calls_of(SendMessage)
    assert sent.conversation_id == "conv-old"


def test_a_pipe_has_nobody_to_choose(daemon: FakeDaemon, clawctl: Run) -> None:
    offering(daemon, str(Path.cwd()))
    done = clawctl("agent", "--lines", stdin="/resume\n")
    assert "/resume needs a terminal to choose at" in done.stdout + done.stderr
    assert daemon.calls_of(ListConversations) == []
