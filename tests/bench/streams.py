"""Answers that are streamed at the same time, on either side, and what is counted about them."""

import random
import statistics
import string
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

import msgspec

WORD_LENGTH = 6


class BenchError(Exception):
    """A side did not do what is measured; a figure would be false."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One streamed answer; times are those of `time.perf_counter`.

    Attributes:
        tokens: generated.
        prompt_tokens: of the whole prompt, 0 where the side does not say.
        cached_tokens: of these, not computed anew; 0 where the side does not say.
    """

    sent_at: float
    first_at: float
    ended_at: float
    tokens: int
    prompt_tokens: int = 0
    cached_tokens: int = 0


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """All answers that ran together."""

    answers: tuple[Answer, ...]

    @property
    def tokens_per_s(self) -> float:
        """All tokens over the time from the first request to the end of the last answer."""
        began = min(answer.sent_at for answer in self.answers)
        ended = max(answer.ended_at for answer in self.answers)
        return sum(answer.tokens for answer in self.answers) / (ended - began)

    @property
    def first_token_ms(self) -> float:
        """From request to first text, the mean of the streams."""
        return 1000 * statistics.mean(answer.first_at - answer.sent_at for answer in self.answers)


Ask = Callable[[str], Answer]


class Side(Protocol):
    """One of the two that are compared."""

    def open(self) -> AbstractContextManager[Ask]:
        """Connect; what is returned sends a user's text and reads the answer to its end."""


def ask_together(side: Side, texts: Sequence[str]) -> Round:
    """Ask everything at once, each on a connection that is open before the clock starts."""
    barrier = threading.Barrier(len(texts))

    def ask_one(ask: Ask, text: str) -> Answer:
        barrier.wait()
        return ask(text)

    with ExitStack() as stack, ThreadPoolExecutor(len(texts)) as pool:
        asks = [stack.enter_context(side.open()) for _ in texts]
        return Round(answers=tuple(pool.map(ask_one, asks, texts)))


def user_texts(words: int, streams: int, seed: str) -> list[str]:
    """Return messages of random letters, so that no cache knows them; the same for a seed."""
    source = random.Random(seed)
    return [" ".join(_word(source) for _ in range(words)) for _ in range(streams)]


def now() -> float:
    """Return the clock that all times are taken from."""
    return time.perf_counter()


def _word(source: random.Random) -> str:
    return "".join(source.choices(string.ascii_lowercase, k=WORD_LENGTH))
