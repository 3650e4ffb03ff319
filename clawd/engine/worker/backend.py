"""What the scheduler and the prompt builder ask of a loaded model; model.py answers it.

The interface is what makes both of them testable without a model.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import msgspec

from clawd.engine.protocol import Sampling, TokenLogprob
from clawd.engine.worker.buffers import Buffer
from clawd.engine.worker.grammar import GrammarPlan


class DecodeResult(IntEnum):
    """How a decode ended (llama.h `llama_decode`)."""

    OK = 0
    NO_CELLS = 1
    FAILED = -1


class SpecialToken(Protocol):
    """A token that a tokeniser cuts out of text before anything else."""

    @property
    def text(self) -> str:
        """Return how it is written."""
        ...

    @property
    def is_control(self) -> bool:
        """Return whether it is of kind CONTROL (else USER_DEFINED)."""
        ...


class InfillTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens around a gap to be filled in (llama.h llama_vocab_fim_pre and so on).

    `repository` stands before the name of what files belong to and `file` before each file's; None
    where there is none.
    """

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    file: int | None = None


class Vocabulary(Protocol):
    """Text to tokens and back."""

    @property
    def infill_tokens(self) -> InfillTokens | None:
        """Return the tokens around a gap; None for a model that fills none in."""
        ...

    @property
    def special_tokens(self) -> Sequence[SpecialToken]:
        """Return the control and user-defined tokens."""
        ...

    @property
    def leading_token(self) -> int | None:
        """Return the token every prompt starts with (BOS), or None."""
        ...

    @property
    def n_vocab(self) -> int:
        """Return how many tokens there are, ids from 0."""
        ...

    def tokenize(self, text: str, *, parse_special: bool, add_special: bool = False) -> list[int]:
        """Return the text's tokens.

        Args:
            text: what to cut into tokens.
            parse_special: control tokens written out in the text become control tokens.
            add_special: with those that the model wants at a text's beginning and end.
        """
        ...

    def piece(self, token: int) -> bytes:
        """Return the token's text; a part of a UTF-8 character is possible."""
        ...


class Sampler(Protocol):
    """Picks tokens for one generation; `close` must be called exactly once."""

    @property
    def likely(self) -> float:
        """Return the probability of the calls so far; 1 where nobody asked for it."""
        ...

    @property
    def lifted(self) -> str:
        """Return why the grammar that should hold does not any more, or ""."""
        ...

    def constrain(self, plan: GrammarPlan, *, in_reasoning: bool) -> None:
        """Hold the generation to a grammar; called before the first sample.

        Args:
            plan: the grammar, and from where on it holds.
            in_reasoning: the prompt ends inside of reasoning, which the grammar leaves alone.
        """
        ...

    def sample(self, row: int) -> int:
        """Pick a token from the last batch's output at index `row`, and remember it.

        NOTHING_FITS (constraint.py) means that the grammar forbids every token.
        """
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


class Backend(Protocol):
    """A model with its KV memory. Positions of a sequence start at 0 and have no holes.

    The batch is built with `add_token` and `add_prompt`, run by `decode` (which empties it),
    and its rows are then there for samplers until the next decode.
    """

    @property
    def n_ctx(self) -> int:
        """Return how many tokens a sequence can hold."""
        ...

    @property
    def shares_cells(self) -> bool:
        """Return whether n_ctx cells are all there is, and a shared prefix takes them once.

        Otherwise every sequence has n_ctx cells of its own, and what is idle slows nothing down.
        """
        ...

    @property
    def n_batch(self) -> int:
        """Return the largest number of tokens in one batch."""
        ...

    @property
    def n_sequences(self) -> int:
        """Return how many sequences the memory can hold, ids from 0."""
        ...

    @property
    def reuses_whole_only(self) -> bool:
        """Return whether a kept sequence can only be extended, not cut (recurrent, hybrid)."""
        ...

    @property
    def expected_prefill_rate(self) -> float:
        """Return a guess of prompt tokens per second, used until it is measured."""
        ...

    def add_token(self, token: int, position: int, sequence: int) -> int:
        """Add a token whose output is wanted; return its row."""
        ...

    def add_prompt(
        self, tokens: Sequence[int], position: int, sequence: int, *, last_output: bool
    ) -> int:
        """Add consecutive tokens, the output of the last if wanted; return the last one's row."""
        ...

    def add_draft(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        """Add consecutive tokens whose outputs are all wanted, in the rows behind the last one."""
        ...

    def decode(self) -> DecodeResult:
        """Run the batch. NO_CELLS leaves the memory as it was."""
        ...

    def cut(self, sequence: int, length: int) -> bool:
        """Drop a sequence's tokens from position `length` on; False when it cannot be cut."""
        ...

    def share_prefix(self, source: int, target: int, length: int) -> bool:
        """Let the empty sequence `target` begin with the first `length` tokens of `source`.

        False leaves it empty.
        """
        ...

    def clear(self) -> None:
        """Empty the memory."""
        ...

    def state_size(self, sequence: int) -> int:
        """Return how many bytes `save_state` writes; 0 when it cannot."""
        ...

    def save_state(self, sequence: int, into: Buffer) -> int:
        """Copy a sequence's memory into a buffer of its size; return the bytes written."""
        ...

    def load_state(self, sequence: int, state: Buffer) -> bool:
        """Fill the empty sequence with what `save_state` wrote; False leaves it empty.

        The state must be whole and of this model: llama.cpp ends the process on some that is not.
        """
        ...

    def piece(self, token: int) -> bytes:
        """Return the token's text; a part of a UTF-8 character is possible."""
        ...

    def ends_generation(self, token: int) -> bool:
        """Return whether the token means that the answer ends."""
        ...

    def new_sampler(self, config: Sampling, prompt: Sequence[int]) -> Sampler:
        """Return a sampler; the prompt's last tokens count for penalties.

        Raises:
            ValueError: a value that no sampler takes.
        """
        ...

    def logprob(self, row: int, token: int, top: int) -> TokenLogprob:
        """Return a token's log probability at a row of the last batch, and the `top` likeliest."""
        ...
