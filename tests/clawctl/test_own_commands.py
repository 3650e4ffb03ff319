"""The person's own commands: what a file of them says, and what is sent and run for one."""

from pathlib import Path

import msgspec
import pytest

from clawctl.repl.own_commands import MAX_BYTES, OwnCommand, own_command, own_commands
from clawd.errors import InvalidRequestError
from clawd.wire.conversations import OpenConversation
from clawd.wire.tools import RunTool, ToolOutcome
from clawd.wire.turns import SendMessage
from tests.clawctl.conftest import Look
from tests.clawctl.test_repl_commands import LINE, say
from tests.support.fake_daemon import FakeDaemon
from tests.support.terminal import echo

REVIEW = """---
description: Review what is staged.
argument-hint: "[FOLDER]"
allowed-tools: Read, Bash(git log *)
model: other
---
Review $1 ($ARGUMENTS):
!`git diff -- $1`
and !`git log -1`.
"""


def write(home: Path, name: str, text: str) -> None:
    folder = home / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)


def filled(command: OwnCommand, arguments: str) -> tuple[str, str, list[str]]:
    ran = command.to_run(arguments)
    printed = [f"<{number} $1 !`x`>" for number in range(1, len(ran) + 1)]
    return *command.filled(arguments, printed), ran


@pytest.mark.usefixtures("own_home")
def test_a_file_says_what_it_is_and_stands_for_a_message(home: Path) -> None:
    write(home, "review", REVIEW)
    assert own_command("/nothing") is None
    assert own_command("review it") is None
    found = own_command("/review 'a b;rm -rf x' c")
    assert found is not None
    command, rest = found
    assert own_commands() == [command]
    assert (command.usage, command.description) == ("/review [FOLDER]", "Review what is staged.")
    assert command.allowed_tools == ("Read", "Bash(git log *)")
    bare, whole, ran = filled(command, rest)
    # What was printed is text: no place in it is filled, and nothing in it is run.
    assert ran == ["git diff -- 'a b;rm -rf x'", "git log -1"]
    assert whole == ("Review a b;rm -rf x ('a b;rm -rf x' c):\n<1 $1 !`x`>\nand <2 $1 !`x`>.")
    assert bare == "Review a b;rm -rf x ('a b;rm -rf x' c):\n\nand ."


@pytest.mark.usefixtures("own_home")
def test_without_a_place_the_arguments_go_below(home: Path) -> None:
    write(home, "say", "Say it for $10.\n")
    found = own_command("/say loud and !`rm x`")
    assert found is not None
    assert found[0].description == "Say it for $10."
    assert filled(found[0], found[1])[1:] == ("Say it for $10.\n\nloud and !`rm x`", [])
    assert filled(found[0], "")[1] == "Say it for $10."
    with pytest.raises(InvalidRequestError, match="cannot be parted"):
        filled(found[0], "it's")


@pytest.mark.usefixtures("own_home")
def test_what_is_no_name_is_no_command(home: Path) -> None:
    (home / "out.md").write_text("text")
    write(home, "fine", "text")
    for name in ("../out", "Review", "a b", "", ".hidden", "0", "x" * 65):
        (home / "commands" / f"{name}.md").write_text("text")
        assert own_command(f"/{name}") is None, name
    assert [each.name for each in own_commands()] == ["fine"]


@pytest.mark.usefixtures("own_home")
def test_what_is_too_large_or_no_text_is_left_out(home: Path) -> None:
    write(home, "large", "x" * (MAX_BYTES + 1))
    write(home, "fine", "text")
    (home / "commands" / "bytes.md").write_bytes(b"\xff\xfe")
    (home / "commands" / "folder.md").mkdir()
    assert [each.name for each in own_commands()] == ["fine"]


def test_one_is_sent_with_what_its_commands_printed(
    daemon: FakeDaemon, look: Look, home: Path
) -> None:
    write(home, "review", REVIEW)
    outcome = ToolOutcome(
        kind="ok", status="allowed", output="printed", receipt_id="r", risk="low", duration_ms=1
    )
    daemon.handlers |= {"send_message": echo, "run_tool": outcome, "open_conversation": LINE}
    screen = look("agent", lines=60, columns=100)
    say(screen, "/review src", "and printed.")
    say(screen, "/help review", "Review what is staged.")
    daemon.handlers["run_tool"] = msgspec.structs.replace(outcome, kind="denied", status="denied")
    say(screen, "/review src", "nothing was sent: `git diff -- src` did not run")
    say(screen, "two", "<two>")
    assert len(daemon.calls_of(OpenConversation)) == 1
    first, *_ = daemon.calls_of(RunTool)
    assert (first.name, first.conversation_id) == ("shell", LINE.id)
    sent, second = daemon.calls_of(SendMessage)
    assert sent.text == "Review src (src):\nprinted\nand printed."
    assert (sent.allowed_tools, second.allowed_tools) == (("Read", "Bash(git log *)"), ())
