"""Which tokens each text of an answer is made of. Pure.

A parser takes markers and reasoning out and holds text back; what it lets through is found again
in what the tokens say, in their order.
"""

import codecs
from collections import deque
from collections.abc import Iterable

from clawd.providers.base import TokenLogprob

_BROKEN = "\ufffd"


class TokenTrail:
    """The tokens of one answer that no text was told of yet."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._waiting: deque[tuple[str, TokenLogprob | None]] = deque()

    def push(self, logprobs: Iterable[TokenLogprob]) -> None:
        """Take the next tokens."""
        for each in logprobs:
            self._waiting.append((self._decoder.decode(each.piece), each))

    def take(self, text: str) -> tuple[TokenLogprob, ...]:
        """Return the tokens that say the next text; those before it are dropped.

        A token that two texts share goes with the first. Nothing is told of a text that the
        tokens do not say.
        """
        if not self._waiting or not text:
            return ()
        said = "".join(part for part, _ in self._waiting)
        at = said.find(text)
        if at < 0 and text.endswith(_BROKEN):
            # The answer ended inside a character, whose tokens are the last.
            at, text = said.find(text[:-1]), said[max(said.find(text[:-1]), 0) :] + _BROKEN
        return self._taken(at, at + len(text)) if at >= 0 else ()

    def _taken(self, start: int, end: int) -> tuple[TokenLogprob, ...]:
        taken: list[TokenLogprob] = []
        position = 0
        while self._waiting and position < end:
            part, token = self._waiting.popleft()
            after = position + len(part)
            if token is not None and (after > start or (not part and position >= start)):
                taken.append(token)
            if after > end:
                self._waiting.appendleft((part[end - position :], None))
            position = after
        return tuple(taken)
