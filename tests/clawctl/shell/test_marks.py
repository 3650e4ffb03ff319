"""Marks in a shell's output: found wherever the output is cut, and not to be forged."""

from hypothesis import given
from hypothesis import strategies as st

from clawctl.shell.hooks import MAX_MARK_BYTES, MarkReader, ShellMark, reply_text
from tests.support.rows import each_row

NONCE = "5f" * 16
DONE = f"\x1b]7717;{NONCE};done;1;/srv/my project\a".encode()


def read(*chunks: bytes) -> tuple[bytes, list[ShellMark]]:
    reader = MarkReader(NONCE)
    parts = [part for chunk in chunks for part in reader.feed(chunk)]
    shown = b"".join(part for part in parts if isinstance(part, bytes)) + reader.rest()
    return shown, [part for part in parts if isinstance(part, ShellMark)]


def test_a_mark_is_taken_out_at_every_cut() -> None:
    data = b"before\x1b[1m" + DONE + b"after"
    expected = (b"before\x1b[1mafter", [ShellMark(kind="done", value="1;/srv/my project")])
    for cut in range(len(data) + 1):
        assert read(data[:cut], data[cut:]) == expected


def test_marks_keep_their_place_in_the_output() -> None:
    reader = MarkReader(NONCE)
    start = f"\x1b]7717;{NONCE};start;\a".encode()
    assert reader.feed(b"$ ls\n" + start + b"file\n" + DONE) == [
        b"$ ls\n",
        ShellMark(kind="start"),
        b"file\n",
        ShellMark(kind="done", value="1;/srv/my project"),
    ]


@each_row(
    "data",
    [
        b"\x1b]7717;" + b"00" * 16 + b";done;0;/\a",
        b"\x1b]7717;;ask;> hello\a",
        b"\x1b]0;title\a",
        b"\x1b]7717",
        b"\x1b",
    ],
)
def test_what_has_not_the_nonce_is_shown_as_it_is(data: bytes) -> None:
    assert read(data) == (data, [])


@given(st.binary(max_size=200), st.integers(min_value=0, max_value=200))
def test_other_output_comes_out_byte_for_byte(data: bytes, cut: int) -> None:
    assert read(data[:cut], data[cut:]) == (data, [])


def test_a_mark_without_an_end_is_given_up_and_holds_nothing_back_for_ever() -> None:
    shown, marks = read(DONE[:-1] + b"x" * MAX_MARK_BYTES, b"after")
    assert marks == []
    assert shown.endswith(b"after")


def test_escapes_of_a_value_are_undone() -> None:
    value = rb"a\nb\\nc\e[1m\a\r"
    data = f"\x1b]7717;{NONCE};line;".encode() + value + b"\a"
    assert read(data) == (b"", [ShellMark(kind="line", value="a\nb\\nc\x1b[1m\a\r")])


@given(st.text(alphabet="ab\\n\n%'\"$`", max_size=30))
def test_an_answer_is_one_line_that_printf_reads_back(text: str) -> None:
    line = reply_text(text)
    assert "\n" not in line
    undone = line.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")
    assert undone == text
