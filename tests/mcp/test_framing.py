"""Lines out of pieces, however they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.mcp.connection_end import LineSplitter, LineTooLongError

LINES = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=10)


@given(LINES, st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], sizes: list[int]) -> None:
    data, splitter, got, at = b"".join(line + b"\n" for line in lines), LineSplitter(), [], 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        got += list(splitter.feed(data[at : at + size]))
        at += size
    assert got == [line.rstrip(b"\r") for line in lines if line.strip()]


def test_a_line_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    assert list(LineSplitter(4).feed(b"abcd\nef")) == [b"abcd"]
    with pytest.raises(LineTooLongError, match="more than 4 bytes"):
        list(LineSplitter(4).feed(b"abcde"))


def test_what_came_before_a_line_that_is_too_long_is_given() -> None:
    splitter, got = LineSplitter(4), []
    with pytest.raises(LineTooLongError):
        for line in splitter.feed(b"ab\nabcdefgh"):
            got.append(line)
    assert got == [b"ab"]


@pytest.mark.timeout(60)
def test_a_large_line_in_very_many_pieces_is_put_together() -> None:
    splitter, piece = LineSplitter(256 << 20), b"x" * 4096
    for _ in range(32_768):
        assert list(splitter.feed(piece)) == []
    assert [len(line) for line in splitter.feed(b"\n")] == [128 << 20]
