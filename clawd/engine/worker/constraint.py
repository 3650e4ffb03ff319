"""Holds a generation to a grammar: sample, check that one token, mask only when it fails.

A check of one token costs microseconds, a mask over a vocabulary milliseconds; a model that
writes calls well never pays for a mask. Nothing here knows llama.cpp.

llama.cpp aborts when a grammar is fed a token that it forbids, so nothing is fed unchecked. It
also takes bytes for characters that no UTF-8 decoder takes (overlong forms); those are refused.
"""

import codecs
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from clawd.engine.worker.trigger import Trigger

NOTHING_FITS = -1
# Each is one token that the mask let through and UTF-8 did not.
_MAX_MASKS = 64
# More tokens than any marker is long.
_MAX_WATCHED = 1024


class Picker(Protocol):
    """Picks tokens from the last batch's output, and asks the grammar; sampler.py has the one."""

    def pick(self, row: int) -> int:
        """Return a token by the request's samplers; nothing is remembered."""
        ...

    def pick_allowed(self, row: int, banned: Sequence[int]) -> int:
        """Return a token of those that the grammar allows and are not banned, or NOTHING_FITS."""
        ...

    def remember(self, token: int) -> None:
        """Count a token for penalties."""
        ...

    def start_grammar(self) -> None:
        """Begin the grammar anew."""
        ...

    def allows(self, token: int) -> bool:
        """Return whether the grammar may go on with this token."""
        ...

    def accept(self, token: int) -> None:
        """Let the grammar go on with a token that it allows."""
        ...

    def may_end(self) -> bool:
        """Return whether the grammar may end here."""
        ...

    def piece(self, token: int) -> bytes:
        """Return the token's text."""
        ...

    def ends_generation(self, token: int) -> bool:
        """Return whether the token means that the answer ends."""
        ...

    def tokenize(self, text: str) -> list[int]:
        """Return the text's tokens, written-out control tokens included."""
        ...


class Constraint:
    """One generation's grammar: from the first token on, or behind a trigger.

    Args:
        picker: the generation's samplers and grammar.
        trigger: what the grammar waits for; None when it holds from the first token on.
        repeats: wait again when the grammar has ended.
    """

    def __init__(self, picker: Picker, trigger: Trigger | None, *, repeats: bool) -> None:
        self._picker = picker
        self._trigger = trigger
        self._repeats = repeats
        self._is_active = False
        self._unfinished = b""
        self._watched: deque[int] = deque(maxlen=_MAX_WATCHED)
        if trigger is None:
            self._start()

    @property
    def is_active(self) -> bool:
        """Return whether the grammar holds now."""
        return self._is_active

    def watch(self, token: int) -> None:
        """Take a token that was sampled freely: the marker may be whole with it."""
        if self._trigger is None or self._picker.ends_generation(token):
            return
        self._watched.append(token)
        found = self._trigger.push(self._picker.piece(token))
        if found is not None:
            self._begin_with(found if self._repeats else found.lstrip())
            self._watched.clear()

    def sample(self, row: int) -> int:
        """Pick a token that the grammar allows and feed it; NOTHING_FITS when there is none."""
        token = self._picker.pick(row)
        if not self._fits(token):
            token = self._pick_masked(row)
        if token == NOTHING_FITS:
            return token
        self._picker.remember(token)
        if not self._picker.ends_generation(token):
            self._feed(token)
        return token

    def _start(self) -> None:
        self._picker.start_grammar()
        self._is_active = True
        self._unfinished = b""

    def _begin_with(self, begun: bytes) -> None:
        """Start the grammar with what the model has written of it already.

        Where that is no beginning of what the grammar describes, the model is left alone.
        """
        self._start()
        for token in self._tokens_of(begun):
            if not self._fits(token):
                self._is_active = False
                return
            self._feed(token)

    def _tokens_of(self, begun: bytes) -> list[int]:
        """Return the tokens watched last that wrote this; a first one that is cut is cut anew."""
        tokens: list[int] = []
        while begun and self._watched:
            piece = self._picker.piece(self._watched[-1])
            if len(piece) > len(begun):
                break
            tokens.insert(0, self._watched.pop())
            begun = begun[: len(begun) - len(piece)]
        return self._picker.tokenize(begun.decode(errors="replace")) + tokens if begun else tokens

    def _pick_masked(self, row: int) -> int:
        banned: list[int] = []
        while len(banned) < _MAX_MASKS:
            token = self._picker.pick_allowed(row, banned)
            if token == NOTHING_FITS or self._is_text(token):
                return token
            banned.append(token)
        return NOTHING_FITS

    def _fits(self, token: int) -> bool:
        return self._is_text(token) and self._picker.allows(token)

    def _is_text(self, token: int) -> bool:
        """Return whether the token goes on as UTF-8."""
        if self._picker.ends_generation(token):
            return not self._unfinished
        return self._rest_after(token) is not None

    def _rest_after(self, token: int) -> bytes | None:
        """Return the bytes of an unfinished character after a token; None when it is no UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8")("strict")
        try:
            decoder.decode(self._unfinished + self._picker.piece(token))
        except UnicodeDecodeError:
            return None
        return decoder.getstate()[0]

    def _feed(self, token: int) -> None:
        self._picker.accept(token)
        self._unfinished = self._rest_after(token) or b""
        if self._repeats and self._picker.may_end():
            self._is_active = False
