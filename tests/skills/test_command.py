"""Files of commands: what one says, and what is sent and run for it."""

import shlex
import subprocess

import pytest

from clawd.errors import InvalidRequestError
from clawd.skills.skill_file import MAX_FILE_BYTES, MAX_SHELL_COMMANDS, Filling, read_command
from tests.support.rows import each_row

REVIEW = b"""---
description: Review what is staged.
argument-hint: "[FOLDER]"
allowed-tools: Read, Bash(git log *)
model: other
---
Review $1 ($ARGUMENTS):
!`git diff -- $1`
and !`git log -1`.
"""
HOSTILE = "a'; rm -rf ~; echo '$(id)`id`\"\\"


def filled(body: str, arguments: str) -> tuple[str, str, list[str]]:
    filling = Filling(body, arguments)
    ran = filling.shell_commands()
    printed = [f"<{number} $1 !`x`>" for number in range(1, len(ran) + 1)]
    return *filling.message(printed), ran


def test_a_file_says_what_it_is_and_stands_for_a_message() -> None:
    about = read_command(REVIEW, "review")
    assert (about.description, about.hint) == ("Review what is staged.", "[FOLDER]")
    assert about.allowed_tools == ("Read", "Bash(git log *)")
    assert about.problems == ()
    typed, whole, ran = filled(about.body, "'a b;rm -rf x' c")
    # What was printed is text: no place in it is filled, and nothing in it is run.
    assert ran == ["git diff -- 'a b;rm -rf x'", "git log -1"]
    assert whole == "Review a b;rm -rf x ('a b;rm -rf x' c):\n<1 $1 !`x`>\nand <2 $1 !`x`>."
    assert typed == "Review a b;rm -rf x ('a b;rm -rf x' c):\n\nand ."


def test_without_a_place_the_arguments_go_below_as_they_are() -> None:
    about = read_command(b"Say it for $10.\n", "say")
    assert about.description == "Say it for $10."
    assert filled(about.body, "it's loud and !`rm x` $1") == (
        "Say it for $10.\n\nit's loud and !`rm x` $1",
        "Say it for $10.\n\nit's loud and !`rm x` $1",
        [],
    )
    assert filled(about.body, "")[1] == "Say it for $10."


def test_arguments_stay_arguments_for_the_shell() -> None:
    (one,) = Filling("!`printf '[%s]' $1`", shlex.quote(HOSTILE)).shell_commands()
    assert subprocess.run(["bash", "-c", one], capture_output=True, text=True).stdout == (
        f"[{HOSTILE}]"
    )
    (all_,) = Filling("!`printf '[%s]' $ARGUMENTS $2`", "'a b' ';id'").shell_commands()
    assert subprocess.run(["bash", "-c", all_], capture_output=True, text=True).stdout == (
        "[a b][;id][;id]"
    )
    assert Filling("!`ls $1 $2`", "").shell_commands() == ["ls '' ''"]


@each_row(
    ("body", "arguments", "why"),
    [
        ("$1", "it's", "cannot be parted"),
        ("!`ls $ARGUMENTS`", "it's", "cannot be parted"),
        ("!`ls $1`", "'a\nrm x'", "line break"),
        ("!`ls $ARGUMENTS`", "b 'a\rrm x'", "line break"),
        ("text", "a\0b", "NUL"),
        ("$ARGUMENTS" * 1000, "x" * 5000, "4 MiB"),
        ("text", "x" * (4 << 20), "4 MiB"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(body: str, arguments: str, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        filled(body, arguments)


def test_a_line_break_in_a_text_alone_is_text() -> None:
    assert filled("a $1 b", "'x\ny'")[1] == "a x\ny b"


@each_row(
    ("data", "name", "why"),
    [
        (b"text", "Review", "called"),
        (b"text", "../out", "called"),
        (b"text", "0", "called"),
        (b"text", "x" * 65, "called"),
        (b"\xff\xfe", "a", "UTF-8"),
        (b"x" * (MAX_FILE_BYTES + 1), "a", "bytes"),
        (b"a\0b", "a", "control"),
        ("a\u202eb".encode(), "a", "hidden"),
        (b"", "a", "no text"),
        (b'!`git diff "$1"`', "a", "in quotes"),
        (b"!`git diff '$ARGUMENTS'`", "a", "in quotes"),
        (b'!`echo "a \\" $1"`', "a", "in quotes"),
        (b"!`echo 'open $1`", "a", "in quotes"),
        (b"!`echo \\$1`", "a", "in quotes"),
        (b"!`echo $$1`", "a", "in quotes"),
        (b"!`echo $'x $1'`", "a", "in quotes"),
        (b"!`true`" * (MAX_SHELL_COMMANDS + 1), "a", "at most"),
    ],
)
def test_what_is_broken_says_why(data: bytes, name: str, why: str) -> None:
    assert why in "; ".join(each.text for each in read_command(data, name).problems)


@each_row(
    "command",
    ["git log --format='%h %s' -- $1", 'test "$HOME" != $1', "echo \\\\ $1", "echo 'a'\\''b' $2"],
)
def test_quotes_beside_a_place_are_fine(command: str) -> None:
    assert read_command(f"!`{command}`".encode(), "a-b_2").problems == ()
