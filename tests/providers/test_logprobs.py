"""Tokens found again in the texts that a parser lets through."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from clawd.engine.protocol import TokenLogprob
from clawd.providers.local_answer import TokenTrail


def token(piece: bytes) -> TokenLogprob:
    return TokenLogprob(token=0, piece=piece, logprob=-0.5)


def trail(*pieces: bytes) -> TokenTrail:
    made = TokenTrail()
    made.push(map(token, pieces))
    return made


def pieces(found: tuple[TokenLogprob, ...]) -> list[bytes]:
    return [each.piece for each in found]


def test_reasoning_and_markers_are_left_out() -> None:
    found = trail(b"<think>", b"hm", b"</think>", b"\n\n", b"Yes", b".")
    assert pieces(found.take("Yes")) == [b"Yes"]
    assert pieces(found.take(".")) == [b"."]
    assert found.take("more") == ()


def test_text_that_was_held_back_comes_with_its_tokens_later() -> None:
    found = TokenTrail()
    found.push([token(b"a"), token(b"<")])
    assert pieces(found.take("a")) == [b"a"]
    found.push([token(b"b")])
    assert pieces(found.take("<b")) == [b"<", b"b"]


def test_a_token_that_two_texts_share_goes_with_the_first() -> None:
    found = trail(b"ab", b"cd")
    assert pieces(found.take("a")) == [b"ab"]
    assert pieces(found.take("bc")) == [b"cd"]
    assert pieces(found.take("d")) == []


def test_a_character_of_several_tokens_comes_with_all_of_them() -> None:
    euro = "€".encode()
    found = trail(b"x", euro[:1], euro[1:2], euro[2:], b"y")
    assert pieces(found.take("x")) == [b"x"]
    assert pieces(found.take("€")) == [euro[:1], euro[1:2], euro[2:]]
    assert pieces(found.take("y")) == [b"y"]


def test_an_answer_that_ends_inside_a_character_keeps_its_tokens() -> None:
    assert pieces(trail(b"a", b"\xe2").take("a\ufffd")) == [b"a", b"\xe2"]


def test_nothing_is_told_of_a_text_that_no_token_says() -> None:
    found = trail(b"abc")
    assert found.take("xyz") == ()
    assert pieces(found.take("abc")) == [b"abc"]
    assert TokenTrail().take("a") == ()


@given(st.text(max_size=30), st.lists(st.integers(0, 120)), st.lists(st.integers(0, 30)))
def test_however_it_is_cut_the_tokens_add_up_to_the_text(
    text: str, token_cuts: list[int], text_cuts: list[int]
) -> None:
    data = text.encode()
    borders = sorted({0, len(data), *(cut for cut in token_cuts if cut < len(data))})
    given_pieces = [data[a:b] for a, b in itertools.pairwise(borders)]
    made = trail(*given_pieces)
    places = sorted({0, len(text), *(cut for cut in text_cuts if cut < len(text))})
    told = [text[a:b] for a, b in itertools.pairwise(places)]
    found = [piece for each in told for piece in pieces(made.take(each))]
    assert b"".join(found) == data
