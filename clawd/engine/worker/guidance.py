"""llguidance: the only module that imports it. A model's tokens, and grammars compiled for them.

What a client sent is compiled here, so nothing is waited for without a limit: a thread compiles,
which lets go of the interpreter meanwhile, and is left behind when it takes too long. Nothing can
end it but the process, so there may be few of them.
"""

import importlib
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from clawd.engine.worker.schema import SchemaError

COMPILE_LIMIT_S = 2.0
MAX_LEFT_BEHIND = 2
MISSING = (
    "llguidance is not installed; install it with `pip install 'llguidance>=1.9.1,<2'`, or clawd "
    "with its extra `local`"
)
_MAX_TOLD = 300
# What follows is the grammar, or the answer so far.
_EXCERPT = re.compile(r"\n\s*\d+ \||\s*<state>")
_NO_TOKEN = b"\xff"  # no text has it: what begins so is found by its number alone

llguidance: Any
try:
    llguidance = importlib.import_module("llguidance")
except ImportError:
    llguidance = None


class MissingError(SchemaError):
    """There is nothing to hold an answer with."""


class SlowError(SchemaError):
    """It takes too long to find out whether a schema can be held."""


class _Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """A vocabulary as llguidance asks for it."""

    tokens: list[bytes]
    special_token_ids: list[int]
    eos_token_id: int
    ending: frozenset[int]
    digits: npt.NDArray[np.intp]
    bos_token_id: int | None = None

    def __call__(self, _text: bytes | str) -> list[int]:
        """Return tokens of a text; only forced tokens would need those that the model writes."""
        return []


class Matcher:
    """A grammar at a place of an answer; for one thread at a time."""

    def __init__(self, compiled: Any, vocabulary: "_Pieces") -> None:
        self._matcher = compiled
        self._vocabulary = vocabulary

    def anew(self) -> "Matcher":
        """Return the grammar at the same place, to go on by itself."""
        return Matcher(self._matcher.deep_copy(), self._vocabulary)

    @property
    def error(self) -> str:
        """Return why the grammar cannot go on, or ""; it stays so."""
        return _first_line(self._matcher.get_error()) if self._matcher.is_error() else ""

    def allows(self, token: int) -> bool:
        """Return whether the answer may go on, or end, with this token."""
        if token in self._vocabulary.ending:
            return self.may_end()
        return bool(self._matcher.validate_tokens([token]) == 1)

    def accept(self, token: int) -> None:
        """Go on with a token."""
        self._matcher.consume_token(token)

    def may_end(self) -> bool:
        """Return whether the answer may end here."""
        return bool(self._matcher.is_accepting())

    def allowed(self, *, digits: bool = True) -> npt.NDArray[np.intp]:
        """Return the tokens with which the answer may go on, or end.

        Without `digits` those are left out that begin with one, if there are others.
        """
        vocabulary = self._vocabulary
        if self._matcher.is_stopped():
            return np.array(sorted(vocabulary.ending) if self.may_end() else [], np.intp)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        found = np.flatnonzero(np.unpackbits(bits, count=len(vocabulary.tokens), bitorder="little"))
        if digits:
            return found
        others = found[~np.isin(found, vocabulary.digits)]
        return others if len(others) else found


class Guidance:
    """Compiles grammars for one vocabulary, which is read in a thread of its own meanwhile.

    Args:
        read: returns the text of every token, and which of them end an answer.
        limit_s: what a grammar may take.
    """

    def __init__(
        self,
        read: Callable[[], tuple[list[bytes], Sequence[int]]],
        *,
        limit_s: float = COMPILE_LIMIT_S,
    ) -> None:
        self._read = read
        self._limit_s = limit_s
        self._tokenizer: Any = None
        self._vocabulary: _Pieces | None = None
        self._left_behind: list[threading.Thread] = []
        # The process ends after it, also where the model cannot be used: a thread in native code
        # does not survive the interpreter.
        self._building = threading.Thread(target=self._build)
        if llguidance is not None:
            self._building.start()

    def wait(self) -> None:
        """Wait until the vocabulary is read."""
        if llguidance is not None:
            self._building.join()

    def compile(self, lark: str) -> Matcher:
        """Return a grammar at its beginning.

        Raises:
            SchemaError: it cannot be compiled.
            SlowError: not in time.
            MissingError: llguidance is not there.
        """
        if llguidance is None:
            raise MissingError(MISSING)
        self._building.join()
        self._left_behind = [thread for thread in self._left_behind if thread.is_alive()]
        if len(self._left_behind) >= MAX_LEFT_BEHIND:
            raise SlowError("others that never end are still being compiled; restart the model")
        found: list[Matcher] = []
        thread = threading.Thread(target=lambda: found.append(self._compiled(lark)), daemon=True)
        thread.start()
        thread.join(self._limit_s)
        if not found:
            self._left_behind.append(thread)
            raise SlowError(f"it takes longer than {self._limit_s:g} s to compile")
        if found[0].error:
            raise SchemaError(found[0].error)
        return found[0]

    def _compiled(self, lark: str) -> Matcher:
        matcher = llguidance.LLMatcher(
            self._tokenizer, llguidance.LLMatcher.grammar_from_lark(lark), log_level=0
        )
        assert self._vocabulary is not None
        compiled = Matcher(matcher, self._vocabulary)
        if not compiled.error:
            # Some errors come with the first mask only.
            trial = compiled.anew()
            trial.allowed()
            return trial if trial.error else compiled
        return compiled

    def _build(self) -> None:
        pieces, ending = self._read()
        for token in ending:
            pieces[token] = _NO_TOKEN + pieces[token]
        vocabulary = self._vocabulary = _Pieces(
            tokens=pieces,
            special_token_ids=list(ending),
            eos_token_id=ending[0] if ending else 0,
            ending=frozenset(ending),
            digits=np.array([at for at, each in enumerate(pieces) if each[:1].isdigit()], np.intp),
        )
        self._tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(vocabulary), eos_token=list(ending) or None, slices=[]
        )


def _first_line(error: str) -> str:
    """Return an error without the grammar in which it was found."""
    told = _EXCERPT.split(error)[0].partition("failed to compile JSON schema: ")
    return " ".join((told[2] or told[0]).split())[:_MAX_TOLD] or "llguidance gives no reason"
