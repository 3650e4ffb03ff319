"""Long texts in pieces: nothing is lost, and no special token is cut in two."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from clawd.engine.worker.model import LONG, Cutter
from tests.support.rows import each_row

SPECIAL = ("<|end|>", "<|e", "[x]", "")


def pieces(text: str, *, cuts_runs: bool = True) -> list[str]:
    return list(Cutter(SPECIAL, cuts_runs=cuts_runs).cut(text))


def test_a_short_text_stays_whole() -> None:
    for text in ("", "a", "x" * LONG, "<|end|>" * (LONG // 7)):
        assert pieces(text) == [text]


def test_a_long_text_of_words_stays_whole() -> None:
    text = "some words " * LONG
    assert pieces(text) == [text]


def test_a_run_without_a_blank_is_cut() -> None:
    assert [len(piece) for piece in pieces("x" * (3 * LONG))] == [LONG, LONG, LONG]
    assert [len(piece) for piece in pieces("x" * (2 * LONG + 5))] == [LONG, LONG, 5]


def test_runs_stay_whole_for_tokenizers_that_bear_them() -> None:
    text = "x" * (3 * LONG)
    assert pieces(text, cuts_runs=False) == [text]


def test_many_special_tokens_are_cut_at_their_borders() -> None:
    found = pieces("<|end|>" * 10_000, cuts_runs=False)
    assert len(found) == 9
    assert all(piece == "<|end|>" * (len(piece) // 7) for piece in found)
    assert max(map(len, found)) < LONG + 7


def test_a_vocabulary_without_special_tokens_cuts_runs_alone() -> None:
    assert len(list(Cutter((), cuts_runs=True).cut("x" * (2 * LONG)))) == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["<|end|>", "<|e", "[x]", "x", " ", "<", "|end|>", "é"]),
            st.integers(1, 6000),
        ),
        max_size=6,
    )
)
def test_pieces_add_up_and_special_tokens_are_never_cut(parts: list[tuple[str, int]]) -> None:
    text = "".join(part * count for part, count in parts)
    found = pieces(text)
    assert "".join(found) == text
    assert all(found) or not text
    borders = set(itertools.accumulate(map(len, found)))
    cutter = Cutter(SPECIAL, cuts_runs=True)
    assert cutter._special is not None
    for match in cutter._special.finditer(text):
        assert borders.isdisjoint(range(match.start() + 1, match.end()))


@each_row("special", ["^", "]", "\\", "-"])
def test_special_tokens_may_begin_with_any_character(special: str) -> None:
    text = (special * 2) * LONG
    assert "".join(Cutter([special], cuts_runs=True).cut(text)) == text
