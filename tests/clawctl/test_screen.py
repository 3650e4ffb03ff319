"""The last wall before a terminal: only our own codes pass, lines end, marks are few."""

import io
import re

from hypothesis import given
from hypothesis import strategies as st

from clawctl.screen import Screen, plain
from clawd.wire.safe_text import terminal_safe

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


def test_marks_are_counted_also_when_they_come_one_by_one() -> None:
    text = shown("z", *["\u0301"] * 50, "ok")
    assert text.count("\u0301") == 8
    assert text.endswith("ok")
    assert shown("é́ नमस्ते") == "é́ नमस्ते"


def test_json_goes_around_it() -> None:
    stream = io.StringIO()
    assert plain(Screen(stream)) is stream  # type: ignore[arg-type]
    assert plain(stream) is stream
