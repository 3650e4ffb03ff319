"""What stands for pictures in text and among tokens, and how encoding one is bounded. No model."""

import itertools
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.engine.worker.pictures import (
    SIGN,
    Album,
    Encoding,
    PictureError,
    PicturePiece,
    positions_of,
    sign_of,
    spans_of,
    split_at_signs,
    whole_length,
    without_signs,
)
from clawd.engine.worker.prompt import TokenGuard
from clawd.wire.pictures import Picture
from tests.support.pictures import picture

ONE, TWO = picture(shade=1), picture(shade=2)


class Eyes:
    """Takes every picture for an overview of 3 cells and a slice of 4 that take 2 positions."""

    def __init__(self) -> None:
        self.looked: list[Picture] = []
        self.album = Album(self.look)

    def look(self, shown: Picture) -> Iterator[tuple[int, ...] | PicturePiece]:
        self.looked.append(shown)
        return iter([(90,), PicturePiece(3, 3), (91, 92), PicturePiece(4, 2)])


def test_a_picture_is_its_own_tokens_and_cells_that_no_other_has() -> None:
    eyes = Eyes()
    one, two = eyes.album.tokens(ONE), eyes.album.tokens(TWO)
    assert [token for token in one if token >= 0] == [90, 91, 92]
    assert len(one) == len(two) == 10
    cells = [token for token in (*one, *two) if token < 0]
    assert len(set(cells)) == 14
    assert eyes.album.tokens(ONE) == one
    assert eyes.looked == [ONE, TWO]


def test_pieces_are_known_by_picture_and_index() -> None:
    eyes = Eyes()
    tokens = [1, *eyes.album.tokens(ONE), 2, *eyes.album.tokens(TWO), 3]
    pieces = eyes.album.pieces([TWO, ONE])
    found = [(*pieces[span.number], span.end - span.start) for span in spans_of(tokens)]
    assert found == [(ONE, 0, 3), (ONE, 1, 4), (TWO, 0, 3), (TWO, 1, 4)]


def test_a_picture_twice_in_a_row_is_two_pieces() -> None:
    album = Album(lambda _shown: iter([PicturePiece(3, 3)]))
    tokens = [*album.tokens(ONE), *album.tokens(ONE)]
    assert [(span.start, span.end) for span in spans_of(tokens)] == [(0, 3), (3, 6)]
    assert [whole_length(tokens, length) for length in range(7)] == [0, 0, 0, 3, 3, 3, 6]


@given(st.lists(st.sampled_from([ONE, TWO, None]), max_size=6), st.data())
def test_no_piece_is_cut_and_positions_count_whole_ones(
    shown: list[Picture | None], data: st.DataObject
) -> None:
    eyes = Eyes()
    parts = [eyes.album.tokens(each) if each is not None else [7, 8] for each in shown]
    tokens = list(itertools.chain(*parts))
    spans = spans_of(tokens)
    assert {at for span in spans for at in range(span.start, span.end)} == {
        at for at, token in enumerate(tokens) if token < 0
    }
    length = data.draw(st.integers(0, len(tokens)))
    whole = whole_length(tokens, length)
    cut = [span for span in spans if span.start < length < span.end]
    assert whole == (cut[0].start if cut else length)
    slices = sum(span.end <= whole for span in spans if span.end - span.start == 4)
    assert positions_of(tokens, whole, eyes.album.lags) == whole - 2 * slices


def test_the_sign_of_a_picture_is_read_back_and_no_text_makes_one() -> None:
    text = f"a{sign_of(ONE)}b{sign_of(TWO)}"
    assert split_at_signs(text) == ["a", ONE.sha256, "b", TWO.sha256, ""]
    assert without_signs(text) == "a<__media__>b<__media__>"
    marked = TokenGuard([], "").mark(text)
    assert SIGN not in marked
    assert split_at_signs(marked) == [marked]


def test_encoding_computes_only_while_it_is_waited_for() -> None:
    steps: list[int] = []

    def work(encoding: Encoding) -> str:
        for step in range(3):
            steps.append(step)
            assert encoding.pause()
        return "embeddings"

    encoding = Encoding(work)
    assert steps == []
    results: list[str | None] = []
    while not results or results[-1] is None:
        results.append(encoding.go_on(0.0))
        assert len(steps) == min(len(results), 3)
    assert results == [None, None, None, "embeddings"]


def test_encoding_that_is_stopped_ends_with_the_operation_it_is_in() -> None:
    ended = threading.Event()

    def work(encoding: Encoding) -> None:
        while encoding.pause():
            pass
        ended.set()

    encoding = Encoding(work)
    assert encoding.go_on(0.0) is None
    encoding.stop()
    assert ended.is_set()
    Encoding(work).stop()  # what was not begun has nothing to end


@pytest.mark.parametrize("error", [PictureError("bad"), ValueError("bad")])
def test_what_fails_is_raised_where_it_is_waited_for(error: Exception) -> None:
    def work(_encoding: Encoding) -> None:
        raise error

    with pytest.raises(PictureError, match="bad"):
        Encoding(work).go_on(10.0)
