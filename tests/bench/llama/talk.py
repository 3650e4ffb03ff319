"""Conversations with either side, and what is heard of their answers, piece by piece."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

import msgspec

from tests.bench.streams import BenchError, user_texts

# Told the number of pieces heard so far, it says whether that is enough; the rest is not waited
# for, and the answer is cancelled by the closing connection.
IsEnough = Callable[[int], bool]


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One answer; times are those of `streams.now`.

    Attributes:
        sent_at: when the message was sent.
        heard_at: when each piece of text came.
        ended_at: when the answer was over, on our side also stored.
        tokens: generated; 0 where the answer was not heard to its end.
        prompt_tokens: of the whole prompt; 0 where the answer was not heard to its end.
        cached_tokens: of these, not computed anew.
        text: of the answer; "" where it was not heard to its end.
    """

    sent_at: float
    heard_at: tuple[float, ...]
    ended_at: float
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    text: str = ""

    @property
    def first_token_ms(self) -> float:
        """From sending the message to the first text."""
        return 1000 * (self.heard_at[0] - self.sent_at)

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens computed anew, a second, from sending the message to the first text."""
        return 1000 * (self.prompt_tokens - self.cached_tokens) / self.first_token_ms


class Talk(Protocol):
    """One conversation on one connection."""

    def say(self, text: str, is_enough: IsEnough | None = None) -> Heard:
        """Send a message and hear the answer.

        Raises:
            BenchError: the answer does not have the length that was asked for.
        """

    def resumed(self) -> AbstractContextManager["Talk"]:
        """Connect again to go on with this conversation, after a restart."""


class Side(Protocol):
    """One of the two that are compared."""

    def talk(self) -> AbstractContextManager[Talk]:
        """Connect for a conversation of its own."""

    def restart(self) -> None:
        """End the server's processes and start them again; connections are lost."""

    def memory_mb(self) -> float:
        """Return what its processes take in RAM, in millions of bytes."""


def never(_pieces: int) -> bool:
    """Hear every answer to its end."""
    return False


def say_together(side: Side, texts: Sequence[str]) -> tuple[Heard, ...]:
    """Open a conversation for each text and say all at once, on connections that are open."""
    barrier = threading.Barrier(len(texts))

    def say(talk: Talk, text: str) -> Heard:
        barrier.wait()
        return talk.say(text)

    with ExitStack() as stack, ThreadPoolExecutor(len(texts)) as pool:
        talks = [stack.enter_context(side.talk()) for _ in texts]
        return tuple(pool.map(say, talks, texts))


def decode_rate(answers: Sequence[Heard]) -> float:
    """Return tokens a second of all answers together, while all of them are on their way.

    The time counts from when the last has begun until the first has ended: what an engine does with
    prompts that come a little apart, all at once or in turn with what runs, is not decoding.

    Raises:
        BenchError: they were never all on their way.
    """
    began = max(answer.heard_at[0] for answer in answers)
    ended = min(answer.heard_at[-1] for answer in answers)
    if ended <= began:
        raise BenchError("an answer ended before another began: answers are too short")
    return sum(_tokens_between(answer, began, ended) for answer in answers) / (ended - began)


def _tokens_between(answer: Heard, began: float, ended: float) -> float:
    """Return the tokens heard after `began` until `ended`; a piece may hold more than one."""
    pieces = sum(began < at <= ended for at in answer.heard_at)
    return pieces * answer.tokens / len(answer.heard_at)


def gaps_within(answers: Sequence[Heard], began: float, ended: float) -> list[float]:
    """Return the seconds between neighbouring pieces, of those gaps that touch that span.

    Raises:
        BenchError: an answer was over before the span was.
    """
    gaps: list[float] = []
    for answer in answers:
        if answer.heard_at[-1] < ended:
            raise BenchError("a running answer ended before the newcomer's began: it is too short")
        neighbours = zip(answer.heard_at, answer.heard_at[1:], strict=False)
        gaps += [
            later - earlier for earlier, later in neighbours if later > began and earlier < ended
        ]
    return gaps


def words(count: int, seed: str) -> str:
    """Return random words, the same for a seed."""
    (text,) = user_texts(count, 1, seed)
    return text
