"""Samplers of llama.cpp for one generation: the chain, the grammar beside it, log probabilities.

The grammar is no part of the chain: constraint.py asks it for one token first.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from clawd.engine.protocol import Sampling, TokenLogprob, TopLogprob
from clawd.engine.worker import sampling
from clawd.engine.worker.constraint import NOTHING_FITS, Constraint, Trigger
from clawd.engine.worker.grammar import GrammarPlan
from clawd.engine.worker.guidance import Matcher
from clawd.engine.worker.llama import lib

# The same function, which returns the address as a number: no pointer is made and read.
_logits_address = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int32)(
    ctypes.cast(lib.llama_get_logits_ith, ctypes.c_void_p).value or 0
)
_Logits = npt.NDArray[np.float32]
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_NUMBERS, _NUMBER_BYTES = 3, 4
# Of fewer tokens llama.cpp sorts all as fast as numpy finds the likeliest.
_LEAST_TOKENS = 100_000
# Every so many tokens are looked at to guess where the likeliest begin, and so many times as many
# as are needed are taken, at first.
_SAMPLED_EVERY = 64
_SAMPLED_MARGIN = 8
# Of more than this share of all, the search saves nothing.
_MOST_FOUND = 1 / 16
_MAX_VIEWS = 256
_REMEMBERING = (sampling.Penalties, sampling.Dry)


class VocabularyHandle(msgspec.Struct, frozen=True, kw_only=True):
    """What samplers need of a loaded model."""

    context: Any
    vocab: Any
    size: int
    n_ctx: int
    piece: Callable[[int], bytes]
    ends_generation: Callable[[int], bool]
    tokenize: Callable[[str], list[int]]
    views: dict[int, _Logits] = {}

    def logits(self, row: int) -> _Logits:
        """Return the output at a row of the last batch; it is llama.cpp's memory."""
        place = _logits_address(self.context, row)
        found = self.views.get(place)
        if found is None:  # to make a view takes longer than to look through it
            if len(self.views) >= _MAX_VIEWS:
                self.views.clear()
            found = np.ctypeslib.as_array((ctypes.c_float * self.size).from_address(place))
            self.views[place] = found
        return found


class Candidates:
    """llama_token_data_array over numpy memory, as large as the vocabulary."""

    def __init__(self, size: int) -> None:
        self._data = np.zeros(size, _CANDIDATE)
        self._numbers, self._logits = self._data["id"], self._data["logit"]
        self._ids = np.arange(size, dtype=np.int32)
        self._is_likely = np.empty(size, np.bool_)
        # What is set and read through views of plain numbers costs a third of what ctypes takes.
        self._tokens = self._data.view(np.int32).data
        self._first = self._data.ctypes.data
        raw = lib.llama_token_data_array()
        self._fields = memoryview(raw).cast("B").cast("q")
        self.raw = ctypes.byref(raw)

    def fill(self, logits: _Logits) -> None:
        """Take every token with its logit."""
        self._numbers[:] = self._ids
        self._logits[:] = logits
        self._set_size(len(self._ids))

    def fill_from(self, least: _Logits, logits: _Logits, reach: sampling.SampledTokens) -> bool:
        """Take the tokens whose logit is `least` or more, in order, and those that are raised.

        Few and short steps: after each decode all but the logits is out of reach of the
        processor's caches, numpy's code as well.

        Returns:
            Whether samplers of this reach can pick nothing else; if not, or if these are many,
            nothing is taken.
        """
        np.greater_equal(logits, least, self._is_likely)
        tokens = self._is_likely.nonzero()[0]
        if not reach.count <= len(tokens) <= _MOST_FOUND * len(logits):
            return False
        if reach.raised:
            tokens = np.union1d(tokens, reach.raised)
        self.fill_these(tokens, logits)
        return True

    def fill_these(self, tokens: npt.NDArray[np.intp], logits: _Logits) -> None:
        """Take some tokens."""
        count = len(tokens)
        self._numbers[:count] = tokens
        self._logits[:count] = logits.take(tokens)
        self._set_size(count)

    @property
    def selected(self) -> int:
        """Return the token that a sampler picked."""
        first, _, selected, _ = self._fields
        return self._tokens[(first - self._first) // _NUMBER_BYTES + _NUMBERS * selected]

    def _set_size(self, size: int) -> None:
        fields = self._fields
        # A sampler that drops the first ones has moved this (XTC).
        fields[0], fields[1] = self._first, size
        fields[2], fields[3] = -1, False  # none is picked, they are not sorted


class SamplerChain:
    """The samplers of one generation, in llama.cpp, and what they are given to choose from.

    Raises:
        ValueError: a value that no sampler takes.
    """

    def __init__(
        self, handle: VocabularyHandle, candidates: Candidates, stages: Sequence[sampling.Stage]
    ) -> None:
        self.handle = handle
        self.raw = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self._candidates = candidates
        self._reach = sampling.reach_of(stages) if handle.size >= _LEAST_TOKENS else None
        self._is_greedy = stages == (sampling.Greedy(),)
        # What the likeliest tokens of the last row had, or more; it is tried for the next.
        self._least = np.array(np.inf, np.float32)
        self._remembers = any(isinstance(each, _REMEMBERING) for each in stages)
        for stage in stages:
            sampler = _new_stage(stage, handle)
            if not sampler:
                self.close()
                raise ValueError(f"the sampler does not take {stage}")
            lib.llama_sampler_chain_add(self.raw, sampler)

    def sample(self, row: int) -> int:
        """Pick a token from the last batch's output at index `row`, and remember it."""
        token = self._pick_likely(row)
        if token is None:
            return int(lib.llama_sampler_sample(self.raw, self.handle.context, row))
        if self._remembers:
            self.remember(token)
        return token

    def pick(self, row: int) -> int:
        """Return a token; nothing is remembered."""
        token = self._pick_likely(row)
        if token is None:
            self._candidates.fill(self.handle.logits(row))
            return self._apply()
        return token

    def _pick_likely(self, row: int) -> int | None:
        """Return the token that llama.cpp would pick of all, without showing it all; None if not.

        What another row had is a good guess of where the likeliest tokens begin.
        """
        if self._is_greedy:
            logits = self.handle.logits(row)
            token = int(logits.argmax())
            # Numbers that are none come first for numpy, and for llama.cpp last.
            return None if math.isnan(logits[token]) else token
        reach = self._reach
        if reach is None:
            return None
        logits = self.handle.logits(row)
        if not self._candidates.fill_from(self._least, logits, reach):
            self._least = _least_likely(logits, reach.count)
            if not self._candidates.fill_from(self._least, logits, reach):
                return None
        return self._apply()

    def pick_of(self, tokens: npt.NDArray[np.intp], row: int) -> int:
        """Return one of these tokens; nothing is remembered."""
        self._candidates.fill_these(tokens, self.handle.logits(row))
        return self._apply()

    def remember(self, token: int) -> None:
        """Count a token for penalties."""
        lib.llama_sampler_accept(self.raw, token)

    def close(self) -> None:
        """Free the samplers; harmless when done twice."""
        raw, self.raw = self.raw, None
        if raw:
            lib.llama_sampler_free(raw)

    def _apply(self) -> int:
        lib.llama_sampler_apply(self.raw, self._candidates.raw)
        return self._candidates.selected


def _least_likely(logits: _Logits, count: int) -> _Logits:
    """Return a logit that more than `count` tokens have, and not many more.

    It is an array without dimensions: numpy makes one of each number, which takes longer.
    """
    sampled = logits[::_SAMPLED_EVERY]
    place = min(1 + _SAMPLED_MARGIN * count // _SAMPLED_EVERY, len(sampled))
    return np.array(np.partition(sampled, -place)[-place])


class LlamaSampler:
    """The samplers of one generation and its grammar; answers `Sampler`."""

    def __init__(self, chain: SamplerChain) -> None:
        self.chain = chain
        self._constraint: Constraint | None = None

    def constrain(self, plan: GrammarPlan, *, in_reasoning: bool) -> None:
        """Hold the generation to a grammar; called before the first sample."""
        if plan.matcher is None:
            return
        picker = LlamaPicker(self.chain, plan.matcher)
        in_reasoning = in_reasoning or plan.in_reasoning
        trigger = None
        if plan.is_lazy or in_reasoning:
            trigger = Trigger(
                plan.markers, plan.starts, thoughts=plan.thoughts, in_reasoning=in_reasoning
            )
        repeats = plan.is_lazy and not plan.is_last
        self._constraint = Constraint(picker, trigger, repeats=repeats)

    @property
    def lifted(self) -> str:
        """Return why the grammar that should hold does not any more, or ""."""
        return self._constraint.lifted if self._constraint is not None else ""

    def sample(self, row: int) -> int:
        """Pick a token from the last batch's output at index `row`, and remember it."""
        constraint = self._constraint
        if constraint is not None and constraint.is_active:
            return constraint.sample(row)
        token = self.chain.sample(row)
        if constraint is not None:
            constraint.watch(token)
        return token

    def accept(self, tokens: Sequence[int]) -> None:
        """Count tokens as if they had been sampled."""
        for token in tokens:
            self.chain.remember(token)

    def close(self) -> None:
        """Free the samplers and the grammar."""
        self.chain.close()


class LlamaPicker:
    """Answers `Picker` with samplers that stay their owner's, and a grammar."""

    def __init__(self, chain: SamplerChain, beginning: Matcher) -> None:
        self._chain = chain
        self._beginning = beginning
        self._matcher = beginning
        self.pick = chain.pick
        self.remember = chain.remember
        self.piece = chain.handle.piece
        self.ends_generation = chain.handle.ends_generation
        self.tokenize = chain.handle.tokenize

    def pick_allowed(self, row: int, *, digits: bool) -> int:
        """Return a token of those that the grammar allows, or NOTHING_FITS.

        Without `digits` none that begins with one, if there are others.
        """
        allowed = self._matcher.allowed(digits=digits)
        if not len(allowed):
            return NOTHING_FITS
        return self._chain.pick_of(allowed, row)

    def start_grammar(self) -> None:
        """Begin the grammar anew."""
        self._matcher = self._beginning.anew()

    def allows(self, token: int) -> bool:
        """Return whether the grammar may go on with this token."""
        return self._matcher.allows(token)

    def accept(self, token: int) -> None:
        """Let the grammar go on with a token."""
        self._matcher.accept(token)

    def may_end(self) -> bool:
        """Return whether the grammar may end here."""
        return self._matcher.may_end()

    def grammar_error(self) -> str:
        """Return why the grammar cannot go on, or ""."""
        return self._matcher.error


def new_sampler(
    handle: VocabularyHandle,
    candidates: Candidates,
    config: Sampling,
    prompt: Sequence[int],
    model_seed: int,
) -> LlamaSampler:
    """Return a sampler; the prompt's last tokens count for penalties.

    Raises:
        ValueError: a value that no sampler takes.
    """
    for token in config.logit_bias or {}:
        if not 0 <= token < handle.size:
            raise ValueError(f"logit_bias of token {token}, the vocabulary has {handle.size}")
    stages = sampling.plan_stages(config, model_seed=model_seed)
    sampler = LlamaSampler(SamplerChain(handle, candidates, stages))
    memory = sampling.remembered_tokens(stages)
    if memory:
        sampler.accept(prompt[-memory:])
    return sampler


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
    # Of several for one token llama.cpp adds all, or the first where it does not get every token.
    summed: dict[int, float] = {}
    for token, bias in stage.biases:
        summed[token] = summed.get(token, 0.0) + bias
    biases = (lib.llama_logit_bias * len(summed))(*starmap(lib.llama_logit_bias, summed.items()))
    return lib.llama_sampler_init_logit_bias(size, len(summed), biases)


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
