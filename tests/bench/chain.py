"""The fixed text that the benchmark's model answers with, and texts that resemble it.

Every token of the chain has one successor. The order is such that the text of any stretch of it is
tokenised back into the very tokens that it came from, as a real model's text nearly always is: both
sides see the same number of tokens where an answer returns in a prompt, and an answer can be found
again in a text that holds it.
"""

import itertools
import random
from collections.abc import Iterator, Sequence

from clawd.engine.protocol import ModelConfig
from clawd.engine.worker.model import LlamaModel
from tests.bench.streams import BenchError
from tests.support.gguf_models import EMBEDDED

SEED = 1
# Whether a token keeps its borders depends on the run of letters it stands in, not further back.
WINDOW = 10


class Vocabulary:
    """The tokens of the benchmark's model, which are the embedded model's."""

    def __init__(self) -> None:
        self._model = LlamaModel(ModelConfig(path=str(EMBEDDED), n_ctx=256))

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return self._model.tokenize(text, parse_special=False)

    def text(self, tokens: Sequence[int]) -> str:
        """Return what tokens of printable text say."""
        return b"".join(self._model.piece(token) for token in tokens).decode("ascii")

    def printable(self) -> list[int]:
        """Return the tokens that are whole printable ASCII; markers have no text."""
        return [token for token in range(self._model.n_vocab) if self._is_printable(token)]

    def _is_printable(self, token: int) -> bool:
        piece = self._model.piece(token)
        return piece.isascii() and piece.decode("ascii").isprintable() and piece != b""


def chain_of(vocabulary: Vocabulary) -> list[int]:
    """Return the printable tokens in an order whose text is tokenised back into them."""
    left = vocabulary.printable()
    random.Random(SEED).shuffle(left)
    chain: list[int] = []
    while (place := _next_place(vocabulary, chain, left)) is not None:
        chain.append(left.pop(place))
    return chain


def edited(
    vocabulary: Vocabulary, tokens: Sequence[int], *, every: int, seed: str
) -> tuple[int, ...]:
    """Return the tokens with one in `every` changed, which are tokenised back as they are.

    Raises:
        BenchError: nothing fits in such a place.
    """
    source = random.Random(seed)
    changed = list(tokens)
    others = vocabulary.printable()
    for place in range(every - 1, len(changed), every):
        was = changed[place]
        window = slice(max(0, place - WINDOW), place + WINDOW)
        for candidate in source.sample(others, len(others)):
            changed[place] = candidate
            if candidate != was and _is_stable(vocabulary, changed[window]):
                break
        else:
            raise BenchError(f"no token can stand at place {place} of the edited text")
    return tuple(changed)


def repeats(prompt: Sequence[int], answer: Sequence[int]) -> int:
    """Return how many pairs of neighbours in the answer were there before, in it or the prompt."""
    seen = set(_neighbours(prompt))
    count = 0
    for pair in _neighbours(answer):
        count += pair in seen
        seen.add(pair)
    return count


def _next_place(vocabulary: Vocabulary, chain: list[int], left: list[int]) -> int | None:
    before = chain[-WINDOW:]
    fitting = (
        place for place, token in enumerate(left) if _is_stable(vocabulary, [*before, token])
    )
    return next(fitting, None)


def _is_stable(vocabulary: Vocabulary, tokens: Sequence[int]) -> bool:
    return vocabulary.tokenize(vocabulary.text(tokens)) == list(tokens)


def _neighbours(tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
    return itertools.pairwise(tokens)
