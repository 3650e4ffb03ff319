"""Samplers of llama.cpp for one generation: the chain, the grammar beside it, log probabilities.

The grammar is no part of the chain: constraint.py asks it for one token first.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from clawd.engine.protocol import SamplingConfig, TokenLogprob, TopLogprob
from clawd.engine.worker import sampling
from clawd.engine.worker.constraint import NOTHING_FITS, Constraint
from clawd.engine.worker.grammar import GrammarPlan
from clawd.engine.worker.llama import lib
from clawd.engine.worker.trigger import Trigger

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_ROOT = b"root"
# A mask over 150,000 tokens takes tens of milliseconds, over so many one or two.
_LIKELIEST = 1024


class VocabularyHandle(msgspec.Struct, frozen=True, kw_only=True):
    """What samplers need of a loaded model."""

    context: Any
    vocab: Any
    size: int
    n_ctx: int
    piece: Callable[[int], bytes]
    ends_generation: Callable[[int], bool]
    tokenize: Callable[[str], list[int]]

    def logits(self, row: int) -> npt.NDArray[np.float32]:
        """Return the output at a row of the last batch; it is llama.cpp's memory."""
        pointer = lib.llama_get_logits_ith(self.context, row)
        address = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(address, (self.size,))


class Candidates:
    """llama_token_data_array over numpy memory, as large as the vocabulary."""

    def __init__(self, size: int) -> None:
        self._data = np.zeros(size, _CANDIDATE)
        self._ids = np.arange(size, dtype=np.int32)
        self.raw = lib.llama_token_data_array()
        address = ctypes.POINTER(lib.llama_token_data)
        self.raw.data = cast("ctypes.Array[Any]", self._data.ctypes.data_as(address))

    def fill(self, logits: npt.NDArray[np.float32]) -> None:
        """Take every token with its logit."""
        self._data["id"] = self._ids
        self._data["logit"] = logits
        self._set_size(len(self._ids))

    def fill_likeliest(self, logits: npt.NDArray[np.float32], count: int) -> float:
        """Take the `count` likeliest tokens; return the lowest logit among them."""
        chosen = np.argpartition(logits, -count)[-count:]
        self._data["id"][:count] = chosen
        self._data["logit"][:count] = logits[chosen]
        self._set_size(count)
        return float(logits[chosen].min())

    @property
    def highest(self) -> float:
        """Return the highest logit, minus infinity of none."""
        return float(self._data["logit"][: self.raw.size].max(initial=-np.inf))

    def fill_one(self, token: int) -> None:
        """Take one token only."""
        self._data[0] = (token, 1.0, 0.0)
        self._set_size(1)

    def drop(self, tokens: Sequence[int]) -> None:
        """Leave out tokens, and those that a grammar forbade."""
        data = self._data[: self.raw.size]
        allowed = data[np.isfinite(data["logit"]) & ~np.isin(data["id"], list(tokens))]
        self._data[: len(allowed)] = allowed
        self._set_size(len(allowed))

    @property
    def selected(self) -> int:
        """Return the token that a sampler picked."""
        return int(self._data["id"][self.raw.selected])

    @property
    def is_first_allowed(self) -> bool:
        """Return whether the only token was left as it was."""
        return bool(np.isfinite(self._data["logit"][0]))

    def _set_size(self, size: int) -> None:
        self.raw.size = size
        self.raw.selected = -1
        self.raw.sorted = False


class LlamaSampler:
    """The samplers of one generation; answers `Sampler`."""

    def __init__(
        self,
        handle: VocabularyHandle,
        candidates: Candidates,
        stages: Sequence[sampling.Stage],
        *,
        negligible_gap: float | None = None,
    ) -> None:
        self._handle = handle
        self._negligible_gap = negligible_gap
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self._picker: LlamaPicker | None = None
        self._constraint: Constraint | None = None
        self._candidates = candidates
        for stage in stages:
            sampler = _new_stage(stage, handle)
            if not sampler:
                self.close()
                raise ValueError(f"the sampler does not take {stage}")
            lib.llama_sampler_chain_add(self._chain, sampler)

    def constrain(self, plan: GrammarPlan, *, in_reasoning: bool) -> None:
        """Hold the generation to a grammar; called before the first sample."""
        self._picker = LlamaPicker(
            self._handle, self._candidates, self._chain, plan.gbnf, self._negligible_gap
        )
        in_reasoning = in_reasoning or plan.in_reasoning
        trigger = None
        if plan.is_lazy or in_reasoning:
            trigger = Trigger(
                plan.markers, plan.starts, thoughts=plan.thoughts, in_reasoning=in_reasoning
            )
        repeats = plan.is_lazy and not plan.is_last
        self._constraint = Constraint(self._picker, trigger, repeats=repeats)

    def sample(self, row: int) -> int:
        """Pick a token from the last batch's output at index `row`, and remember it."""
        constraint = self._constraint
        if constraint is not None and constraint.is_active:
            return constraint.sample(row)
        token = int(lib.llama_sampler_sample(self._chain, self._handle.context, row))
        if constraint is not None:
            constraint.watch(token)
        return token

    def accept(self, tokens: Sequence[int]) -> None:
        """Count tokens as if they had been sampled."""
        for token in tokens:
            lib.llama_sampler_accept(self._chain, token)

    def close(self) -> None:
        """Free the chain, its samplers and the grammar."""
        chain, self._chain = self._chain, None
        if chain:
            lib.llama_sampler_free(chain)
        picker, self._picker = self._picker, None
        if picker is not None:
            picker.close()


class LlamaPicker:
    """Answers `Picker` with a chain and a grammar of llama.cpp; the chain stays its owner's."""

    def __init__(
        self,
        handle: VocabularyHandle,
        candidates: Candidates,
        chain: Any,
        gbnf: str,
        negligible_gap: float | None,
    ) -> None:
        self._negligible_gap = negligible_gap
        self._handle = handle
        self._candidates = candidates
        self._chain = chain
        self._gbnf = gbnf.encode()
        self._grammar: Any = None
        self.piece = handle.piece
        self.ends_generation = handle.ends_generation
        self.tokenize = handle.tokenize

    def pick(self, row: int) -> int:
        """Return a token by the request's samplers; nothing is remembered."""
        self._candidates.fill(self._handle.logits(row))
        return self._apply_chain()

    def pick_allowed(self, row: int, banned: Sequence[int]) -> int:
        """Return a token of those that the grammar allows and are not banned, or NOTHING_FITS."""
        logits = self._handle.logits(row)
        if not self._is_among_likeliest(logits, banned):
            self._candidates.fill(logits)
            self._mask(banned)
        return self._apply_chain() if self._candidates.raw.size else NOTHING_FITS

    def _is_among_likeliest(self, logits: npt.NDArray[np.float32], banned: Sequence[int]) -> bool:
        """Mask the likeliest tokens only; say whether all others are too unlikely to be drawn."""
        if self._negligible_gap is None or self._handle.size <= 2 * _LIKELIEST:
            return False
        lowest = self._candidates.fill_likeliest(logits, _LIKELIEST)
        self._mask(banned)
        return lowest < self._candidates.highest - self._negligible_gap

    def _mask(self, banned: Sequence[int]) -> None:
        lib.llama_sampler_apply(self._grammar, ctypes.byref(self._candidates.raw))
        self._candidates.drop(banned)

    def remember(self, token: int) -> None:
        """Count a token for penalties."""
        lib.llama_sampler_accept(self._chain, token)

    def start_grammar(self) -> None:
        """Begin the grammar anew.

        Raises:
            RuntimeError: llama.cpp does not take it, though it did when it was planned.
        """
        self.close()
        self._grammar = lib.llama_sampler_init_grammar(self._handle.vocab, self._gbnf, _ROOT)
        if not self._grammar:
            raise RuntimeError("llama.cpp does not take a grammar that it took before")

    def allows(self, token: int) -> bool:
        """Return whether the grammar may go on with this token."""
        self._candidates.fill_one(token)
        lib.llama_sampler_apply(self._grammar, ctypes.byref(self._candidates.raw))
        return self._candidates.is_first_allowed

    def accept(self, token: int) -> None:
        """Let the grammar go on with a token that it allows; another one aborts the process."""
        lib.llama_sampler_accept(self._grammar, token)

    def may_end(self) -> bool:
        """Return whether the grammar may end here."""
        end = int(lib.llama_vocab_eos(self._handle.vocab))
        if end < 0 or not self.ends_generation(end):
            end = int(lib.llama_vocab_eot(self._handle.vocab))
        return end >= 0 and self.allows(end)

    def close(self) -> None:
        """Free the grammar; harmless when done twice."""
        grammar, self._grammar = self._grammar, None
        if grammar:
            lib.llama_sampler_free(grammar)

    def _apply_chain(self) -> int:
        lib.llama_sampler_apply(self._chain, ctypes.byref(self._candidates.raw))
        return self._candidates.selected


def new_sampler(
    handle: VocabularyHandle,
    candidates: Candidates,
    config: SamplingConfig,
    prompt: Sequence[int],
    model_seed: int,
) -> LlamaSampler:
    """Return a sampler; the prompt's last tokens count for penalties.

    Raises:
        ValueError: a value that no sampler takes.
    """
    for token, _ in config.logit_bias:
        if not 0 <= token < handle.size:
            raise ValueError(f"logit_bias of token {token}, the vocabulary has {handle.size}")
    stages = sampling.plan_stages(config, model_seed=model_seed)
    gap = sampling.negligible_gap(config)
    sampler = LlamaSampler(handle, candidates, stages, negligible_gap=gap)
    memory = sampling.remembered_tokens(config)
    if memory:
        sampler.accept(prompt[-memory:])
    return sampler


def accepts_grammar(vocab: Any, gbnf: str) -> bool:
    """Return whether llama.cpp takes a grammar."""
    grammar = lib.llama_sampler_init_grammar(vocab, gbnf.encode(), _ROOT)
    if not grammar:
        return False
    lib.llama_sampler_free(grammar)
    return True


def token_logprob(handle: VocabularyHandle, row: int, token: int, top: int) -> TokenLogprob:
    """Return a token's log probability as the model has it, before any sampler, and the top ones.

    `row` is an index of the last batch.
    """
    logits = handle.logits(row)
    largest = float(logits.max())
    log_sum = largest + float(np.log(np.exp(logits - largest).sum()))
    count = min(top, handle.size)
    best: list[int] = []
    if count:
        found = np.argpartition(logits, -count)[-count:]
        best = [int(one) for one in found[np.argsort(-logits[found], kind="stable")]]
    return TokenLogprob(
        token=token,
        piece=handle.piece(token),
        logprob=float(logits[token]) - log_sum,
        top=tuple(
            TopLogprob(token=one, piece=handle.piece(one), logprob=float(logits[one]) - log_sum)
            for one in best
        ),
    )


def _new_stage(stage: sampling.Stage, handle: VocabularyHandle) -> Any:
    match stage:
        case sampling.LogitBias():
            return _logit_bias(stage, handle.size)
        case sampling.Penalties():
            return lib.llama_sampler_init_penalties(
                handle.size, stage.last_n, stage.repeat, stage.frequency, stage.presence
            )
        case sampling.Dry():
            return _dry(stage, handle)
        case sampling.Draw():
            return lib.llama_sampler_init_dist(stage.seed)
        case sampling.Greedy():
            return lib.llama_sampler_init_greedy()
        case _:
            return _new_shaper(stage)


def _new_shaper(stage: sampling.Shaper) -> Any:
    sampler: Any
    match stage:
        case sampling.TopK():
            sampler = lib.llama_sampler_init_top_k(stage.k)
        case sampling.Typical():
            sampler = lib.llama_sampler_init_typical(stage.p, 1)
        case sampling.TopP():
            sampler = lib.llama_sampler_init_top_p(stage.p, 1)
        case sampling.MinP():
            sampler = lib.llama_sampler_init_min_p(stage.p, 1)
        case sampling.Xtc():
            sampler = lib.llama_sampler_init_xtc(stage.probability, stage.threshold, 1, stage.seed)
        case sampling.Temperature():
            sampler = lib.llama_sampler_init_temp(stage.t)
    return sampler


def _logit_bias(stage: sampling.LogitBias, size: int) -> Any:
    biases = (lib.llama_logit_bias * len(stage.biases))(
        *(lib.llama_logit_bias(token, bias) for token, bias in stage.biases)
    )
    return lib.llama_sampler_init_logit_bias(size, len(stage.biases), biases)


def _dry(stage: sampling.Dry, handle: VocabularyHandle) -> Any:
    breakers = (ctypes.c_char_p * len(stage.breakers))(*(text.encode() for text in stage.breakers))
    return lib.llama_sampler_init_dry(
        handle.vocab,
        stage.multiplier,
        stage.base,
        stage.allowed_length,
        # Below 0 is nothing to llama.cpp, not the whole context.
        stage.last_n if stage.last_n >= 0 else handle.n_ctx,
        breakers,
        len(stage.breakers),
    )
