"""The fixed text of the benchmark's model, and texts that resemble it."""

import pytest

from tests.bench.chain import Vocabulary, chain_of, edited, repeats


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary()


def test_the_chain_is_long_has_no_token_twice_and_is_tokenised_back(
    vocabulary: Vocabulary,
) -> None:
    chain = chain_of(vocabulary)
    assert len(set(chain)) == len(chain) > 1000
    assert vocabulary.tokenize(vocabulary.text(chain)) == chain
    assert repeats([], chain) == 0


def test_an_edited_text_differs_in_one_token_of_25_and_is_tokenised_back(
    vocabulary: Vocabulary,
) -> None:
    tokens = chain_of(vocabulary)[100:600]
    changed = edited(vocabulary, tokens, every=25, seed="a")
    places = [
        at for at, (one, other) in enumerate(zip(tokens, changed, strict=True)) if one != other
    ]
    assert places == list(range(24, 500, 25))
    assert vocabulary.tokenize(vocabulary.text(changed)) == list(changed)
    assert edited(vocabulary, tokens, every=25, seed="a") == changed
    assert edited(vocabulary, tokens, every=25, seed="b") != changed


def test_repeats_are_counted_in_the_prompt_and_in_the_answer_itself() -> None:
    assert repeats([1, 2, 3], [4, 5, 6]) == 0
    assert repeats([1, 2, 3], [9, 2, 3, 7]) == 1
    assert repeats([], [1, 2, 5, 1, 2]) == 1
    # A border of prompt and answer is no pair of either.
    assert repeats([1, 2], [3, 2, 3]) == 0
