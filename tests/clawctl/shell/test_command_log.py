"""What is kept of commands: text, status, folder, and the ends of the output."""

from hypothesis import given
from hypothesis import strategies as st

from clawctl.shell.command_log import KEPT_COMMANDS, Capture, Record, Records


def ran(records: Records, command: str, output: bytes = b"", status: int = 0) -> None:
    records.line(command)
    records.started()
    records.output(output)
    records.finished(status, "/w")


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_a_capture_keeps_both_ends_and_counts_the_rest(chunks: list[bytes]) -> None:
    capture = Capture(head=16, tail=8)
    for chunk in chunks:
        capture.add(chunk)
    whole = b"".join(chunks)
    rest = whole[16:]
    assert capture.ends() == (whole[:16], rest[-8:], max(len(rest) - 8, 0))


def test_a_command_is_kept_with_what_came_of_it() -> None:
    records = Records()
    records.finished(0, "/w")
    assert records.last() is None
    ran(records, "make", b"no rule", status=2)
    expected = Record(command="make", status=2, cwd="/w", head=b"no rule")
    assert records.last() == expected == records.last_failure


def test_the_last_failure_is_not_the_last_command() -> None:
    records = Records()
    ran(records, "false", status=1)
    ran(records, "true")
    assert records.last_failure == records.last(2)
    assert records.last(3) is None
    assert records.last(0) is None


def test_lines_of_a_command_are_joined_and_what_a_program_reads_is_no_part_of_it() -> None:
    records = Records()
    records.line("cat <<E")
    records.line("text")
    records.started()
    records.line("typed into read -e")
    records.finished(0, "/w")
    last = records.last()
    assert last is not None
    assert last.command == "cat <<E\ntext"


def test_a_line_that_was_given_up_is_forgotten() -> None:
    records = Records()
    records.line("for x in")
    records.finished(130, "/w")
    ran(records, "ls")
    last = records.last()
    assert last is not None
    assert last.command == "ls"


def test_what_is_shown_at_the_prompt_is_no_output() -> None:
    records = Records()
    ran(records, "ls", b"a")
    records.output(b"$ typing")
    ran(records, "pwd", b"/w")
    assert [r.head for r in (records.last(2), records.last()) if r] == [b"a", b"/w"]


def test_only_the_newest_commands_are_kept() -> None:
    records = Records()
    for number in range(KEPT_COMMANDS + 5):
        ran(records, str(number))
    assert records.last(KEPT_COMMANDS + 1) is None
    oldest = records.last(KEPT_COMMANDS)
    assert oldest is not None
    assert oldest.command == "5"


def test_a_shell_that_marks_no_starts_keeps_all_between_prompts() -> None:
    records = Records(marks_starts=False)
    records.finished(0, "/w")
    records.output(b"$ ls\r\na\r\n")
    records.finished(1, "/w")
    assert records.last() == Record(command="", status=1, cwd="/w", head=b"$ ls\r\na\r\n")
