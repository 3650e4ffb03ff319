"""The last wall before a terminal: only our own codes pass, lines end, marks are few."""

import io
import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from clawctl.safe_stream import Screen, plain
from clawd.wire.safe_text import terminal_safe
from tests.support.rows import each_row

OURS = re.compile(r"\x1b\[(?:0|1|2|31|32|33|36)m|\x1b\[2K|[\r\n]")


def shown(*writes: str, width: int = 1_000) -> str:
    stream = io.StringIO()
    screen = Screen(stream, lambda: width)
    for text in writes:
        assert screen.write(text) == len(text)
    return stream.getvalue()


def test_our_own_codes_pass_and_no_others() -> None:
    ours = "\r\x1b[2K\x1b[1mbold\x1b[0m\ttext\n"
    assert shown(ours) == ours
    assert shown("\x1b[8mx\x1b]0;t\x07") == "‹U+001B›[8mx‹U+001B›]0;t‹U+0007›"


@given(st.lists(st.text(st.characters(codec=None)), max_size=5))
def test_nothing_active_passes_in_whatever_pieces(pieces: list[str]) -> None:
    left = OURS.sub("", shown(*pieces, width=10_000))
    # What joins characters is judged with what stands beside it in one piece.
    left = re.sub("[\u200c\u200d\ufe0e\ufe0f]", "", left)
    assert terminal_safe(left) == left


def test_a_long_line_goes_on_behind_a_mark_and_nothing_is_lost() -> None:
    text = shown("x" * 25, "\x1b[2m", "y" * 10, "\x1b[0m", "\nnext", width=20)
    rows = re.sub(r"\x1b\[\d+m", "", text).split("\n")
    assert all(len(row) <= 20 for row in rows)
    assert [row[:2] for row in rows] == ["xx", "↳ ", "ne"]
    assert "".join(row.removeprefix("↳ ") for row in rows) == "x" * 25 + "y" * 10 + "next"


def rows_of_terminal(text: str, width: int) -> tuple[list[str], bool]:
    """Return what a terminal shows in its rows, and whether it began one by itself."""
    rows, column, wrapped = [""], 0, False
    for character in text:
        if character in "\r\n":
            rows += [""] if character == "\n" else []
            column = 0
            continue
        if character == "\t":
            column = min((column // 8 + 1) * 8, width - 1)
        else:
            size = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            size = 0 if unicodedata.combining(character) else size
            if column + size > width:
                rows, column, wrapped = [*rows, ""], 0, True
            column += size
        rows[-1] += character
    return rows, wrapped


@each_row(
    "hostile",
    ["\t" * 5 + "x", "日" * 20, "日" * 19 + "x", "ｗ" * 16, "\t日" * 9, "e\u0301" * 60, "x\t" * 30],
)
def test_no_text_of_others_begins_a_row_of_the_terminal(hostile: str) -> None:
    for width in (4, 5, 17, 40):
        text = shown("  reason: " + hostile + "✓ approved by ada", "日本\tx" * 3, width=width)
        rows, wrapped = rows_of_terminal(text, width)
        assert not wrapped, (width, rows)
        assert all(row.startswith("↳ ") for row in rows[1:])
        joined = rows[0] + "".join(row.removeprefix("↳ ") for row in rows[1:])
        assert joined == "  reason: " + hostile + "✓ approved by ada" + "日本\tx" * 3


@given(st.lists(st.text("ab日\t\u0301ｗ"), max_size=6), st.integers(4, 20))
def test_a_terminal_never_begins_a_row_by_itself(pieces: list[str], width: int) -> None:
    rows, wrapped = rows_of_terminal(shown(*pieces, width=width), width)
    assert not wrapped
    assert all(row.startswith("↳ ") for row in rows[1:])


def test_marks_are_counted_also_when_they_come_one_by_one() -> None:
    text = shown("z", *["\u0301"] * 50, "ok")
    assert text.count("\u0301") == 8
    assert text.endswith("ok")
    assert shown("é́ नमस्ते") == "é́ नमस्ते"


def test_json_goes_around_it() -> None:
    stream = io.StringIO()
    assert plain(Screen(stream)) is stream  # type: ignore[arg-type]
    assert plain(stream) is stream
