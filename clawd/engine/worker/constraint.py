"""Holds a generation to a grammar: sample, check that one token, mask only when it fails.

A model that writes calls well never pays for a mask. A grammar that cannot go on by itself, as it
became too complex, holds nothing any more and says so. Nothing here knows llama.cpp.
"""

import logging
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Protocol

_MAX_LEADING_BLANKS = 256


class _Place(Enum):
    START = auto()
    REASONING = auto()
    TEXT = auto()


class Trigger:
    """Looks for markers, in whatever pieces they come.

    Args:
        markers: what is looked for; with no `starts` either, the end of the reasoning.
        starts: what is looked for as the first thing of the answer only.
        thoughts: what opens and closes reasoning at the start of an answer.
        in_reasoning: the prompt ends within reasoning.
    """

    def __init__(
        self,
        markers: Sequence[bytes],
        starts: Sequence[bytes] = (),
        *,
        thoughts: Sequence[tuple[bytes, bytes]] = (),
        in_reasoning: bool = False,
    ) -> None:
        self._markers = markers
        self._starts = starts
        self._thoughts = dict(thoughts)
        self._closings: Sequence[bytes] = tuple(self._thoughts.values()) or (b"</think>",)
        self._place = _Place.REASONING if in_reasoning else _Place.START
        self._held = b""

    def push(self, piece: bytes) -> bytes | None:
        """Take bytes; return them from the marker on once it is there, None before.

        Where only the end of the reasoning is waited for, what is returned begins behind it.
        """
        self._held += piece
        found = None
        if self._place is _Place.START:
            found = self._begin()
        if self._place is _Place.REASONING:
            found = self._reason()
        if found is None and self._place is _Place.TEXT:
            found = self._look()
        if found is not None:
            self._held = b""
            self._place = _Place.TEXT
        return found

    def _begin(self) -> bytes | None:
        """Decide what the answer begins with, as soon as it can be told."""
        begin = self._held.lstrip()
        is_near = len(self._held) - len(begin) <= _MAX_LEADING_BLANKS
        if is_near and any(begin.startswith(start) for start in self._starts):
            return begin
        opening = next((each for each in self._thoughts if begin.startswith(each)), None)
        if is_near and opening is not None:
            self._closings = (self._thoughts[opening],)
            self._held = begin[len(opening) :]
            self._place = _Place.REASONING
        elif not is_near or not any(
            each.startswith(begin) for each in (*self._starts, *self._thoughts)
        ):
            self._place = _Place.TEXT
        return None

    def _reason(self) -> bytes | None:
        at, closing = _first(self._held, self._closings)
        if at < 0:
            self._held = _tail(self._held, self._closings)
            return None
        self._held = self._held[at + len(closing) :]
        self._thoughts = {}
        if not self._markers and not self._starts:
            return self._held
        self._place = _Place.START
        return self._begin()

    def _look(self) -> bytes | None:
        at, _ = _first(self._held, self._markers)
        if at >= 0:
            return self._held[at:]
        self._held = _tail(self._held, self._markers)
        return None


def _first(text: bytes, markers: Sequence[bytes]) -> tuple[int, bytes]:
    """Return where the first of these stands, and which it is; -1 for none."""
    return min(
        ((at, marker) for marker in markers if (at := text.find(marker)) >= 0), default=(-1, b"")
    )


def _tail(text: bytes, markers: Sequence[bytes]) -> bytes:
    """Return the end of a text in which a marker may have begun."""
    longest = max(map(len, markers), default=1)
    return text[max(len(text) - longest + 1, 0) :]


NOTHING_FITS = -1
# More tokens than any marker is long.
_MAX_WATCHED = 1024
# Small models find no end to a number, and a grammar sets none.
_MAX_DIGITS = 100

logger = logging.getLogger(__name__)


class Picker(Protocol):
    """Picks tokens from the last batch's output, and asks the grammar; sampler.py has the one."""

    def pick(self, row: int) -> int:
        """Return a token by the request's samplers; nothing is remembered."""
        ...

    def pick_allowed(self, row: int, *, digits: bool) -> int:
        """Return a token of those that the grammar allows, or NOTHING_FITS.

        Without `digits` none that begins with one, if there are others.
        """
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

    def grammar_error(self) -> str:
        """Return why the grammar cannot go on, or ""."""
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
        self.lifted = ""  # why nothing is held any more
        self._digits = 0  # in a row
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
        picked = token = self._picker.pick(row)
        is_endless = self._digits >= _MAX_DIGITS
        if not self._picker.allows(token) or (is_endless and self._is_digits(token)):
            token = self._picker.pick_allowed(row, digits=not is_endless)
            if self._is_lifted():
                token = picked
        if token == NOTHING_FITS:
            return token
        self._picker.remember(token)
        if self._is_active and not self._picker.ends_generation(token):
            self._feed(token)
        return token

    def _start(self) -> None:
        self._picker.start_grammar()
        self._is_active = True

    def _begin_with(self, begun: bytes) -> None:
        """Start the grammar with what the model has written of it already.

        Where that is no beginning of what the grammar describes, the model is left alone.
        """
        self._start()
        for token in self._tokens_of(begun):
            if not self._picker.allows(token):
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

    def _feed(self, token: int) -> None:
        self._picker.accept(token)
        self._digits = self._digits + 1 if self._is_digits(token) else 0
        if not self._is_lifted() and self._repeats and self._picker.may_end():
            self._is_active = False

    def _is_digits(self, token: int) -> bool:
        return self._picker.piece(token).isdigit()

    def _is_lifted(self) -> bool:
        """Return whether the grammar broke down, and hold nothing from there on if so."""
        self.lifted = self._picker.grammar_error()
        if self.lifted:
            logger.warning("an answer is not held to its grammar any more: %s", self.lifted)
            self._is_active, self._trigger = False, None
        return bool(self.lifted)
