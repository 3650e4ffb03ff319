"""Tokens per second with speculation against the same engine without, greedy, one stream.

The model's answer is always the same stretch of its chain. The edit-like prompt holds that stretch
with one token in 25 changed, so that guesses from it are right for 22 tokens and then wrong. The
plain prompt holds random words: no two neighbours of the answer are in it, nor twice in the answer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import msgspec

from tests.bench.chain import Vocabulary, edited, repeats
from tests.bench.llama.aims import row
from tests.bench.llama.bench import Bench
from tests.bench.llama.ours import running_ours
from tests.bench.llama.talk import Heard, Side, decode_rate, words
from tests.bench.report import Row
from tests.bench.streams import BenchError

EDIT, PLAIN = "speculation_edit", "speculation_plain"
ROWS = (EDIT, PLAIN)
SETTINGS = ("auto", "off")
CHANGED_EVERY = 25
CONTEXT_TOKENS = 4096
MAX_DRAWS = 20


_Pairs = list[tuple[Heard, Heard]]


def rows(bench: Bench, wanted: Sequence[str]) -> Iterator[Row]:
    """Measure the wanted rows on two daemons of ours, which differ in that setting alone."""
    folder = bench.folder / "speculation"
    folder.mkdir()
    setup = bench.setup(
        answer_tokens=bench.scale.edit_tokens, streams=1, context_tokens=CONTEXT_TOKENS
    )
    with ExitStack() as stack:
        auto, off = (
            stack.enter_context(
                running_ours(folder / each, msgspec.structs.replace(setup, speculation=each))
            )
            for each in SETTINGS
        )
        texts = _Texts(bench, _answer_of(auto, off, bench))
        for name, text_of in ((EDIT, texts.edit), (PLAIN, texts.plain)):
            if name in wanted:
                pairs = bench.rounds(name, (auto, off), _asking(text_of), _told, names=SETTINGS)
                _check_identical(pairs)
                yield row(name, [(decode_rate([one]), decode_rate([two])) for one, two in pairs])


class _Texts:
    """What the user says; another text for every seed.

    Args:
        bench: the run.
        answer: to every message.
    """

    def __init__(self, bench: Bench, answer: str) -> None:
        self._vocabulary = Vocabulary()
        self._words = bench.scale.own_words
        self._answer = self._vocabulary.tokenize(answer)
        if len(self._answer) != bench.scale.edit_tokens:
            raise BenchError(
                f"the answer's text has {len(self._answer)} tokens, "
                f"expected the {bench.scale.edit_tokens} that it was made of"
            )

    def edit(self, seed: str) -> str:
        """Return the answer with a part of its tokens changed."""
        tokens = edited(self._vocabulary, self._answer, every=CHANGED_EVERY, seed=seed)
        return self._vocabulary.text(tokens)

    def plain(self, seed: str) -> str:
        """Return words that share no two neighbouring tokens with the answer."""
        for draw in range(MAX_DRAWS):
            text = words(self._words, f"{seed} {draw}")
            if not repeats(self._vocabulary.tokenize(text), self._answer):
                return text
        raise BenchError(f"{MAX_DRAWS} draws of random words all repeat a part of the answer")


def _asking(text_of: Callable[[str], str]) -> Callable[[Side, str], Heard]:
    """Return what asks once, in a conversation of its own."""

    def ask(side: Side, seed: str) -> Heard:
        with side.talk() as talk:
            return talk.say(text_of(seed))

    return ask


def _answer_of(auto: Side, off: Side, bench: Bench) -> str:
    """Load both models; return what they answer, whatever is asked."""
    ask = _asking(lambda seed: words(bench.scale.own_words, seed))
    warm_up = [(ask(auto, "warm-up"), ask(off, "warm-up"))]
    _check_identical(warm_up)
    return warm_up[0][1].text


def _check_identical(pairs: _Pairs) -> None:
    for with_guesses, without in pairs:
        if with_guesses.text != without.text:
            raise BenchError(
                f"speculation changed the answer: {with_guesses.text[:200]!r}, "
                f"without it {without.text[:200]!r}"
            )


def _told(heard: Heard) -> str:
    return f"{decode_rate([heard]):.1f} tok/s ({heard.prompt_tokens} prompt tokens)"
