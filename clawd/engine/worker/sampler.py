"""Samplers of llama.cpp for one generation: the chain, the grammar beside it, log probabilities.

The grammar is no part of the chain: constraint.py asks it for one token first.

`plan_stages` says which samplers a generation goes through, without llama.cpp.

The order is llama.cpp's own: logit bias, penalties, DRY, top-k (early: what follows costs per
candidate), typical, top-p, min-p, XTC, temperature, and at last the draw.
"""

import ctypes
import math
import secrets
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from clawd.engine.protocol import Sampling, TokenLogprob, TopLogprob
from clawd.engine.worker.constraint import NOTHING_FITS, Constraint, Trigger
from clawd.engine.worker.grammar import GrammarPlan
from clawd.engine.worker.guidance import Matcher
from clawd.engine.worker.llama import lib

_T = TypeVar("_T")
MAX_SEED = 0xFFFF_FFFE
MAX_TOP_LOGPROBS = 20
MAX_BREAKERS = 64
MAX_LOOK_BACK = 1 << 20
_FRACTIONS = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "dry_multiplier",
    "dry_base",
    "xtc_probability",
    "xtc_threshold",
)


class LogitBias(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Add to the logits of single tokens."""

    biases: tuple[tuple[int, float], ...]


class Penalties(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Make tokens of the last `last_n` less likely."""

    last_n: int
    repeat: float
    frequency: float
    presence: float


class Dry(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Make a token less likely the longer the repetition that it would continue."""

    multiplier: float
    base: float
    allowed_length: int
    last_n: int
    breakers: tuple[str, ...]


class TopK(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Keep the `k` likeliest."""

    k: int


class Typical(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Keep the locally typical ones of mass `p`."""

    p: float


class TopP(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Keep the likeliest ones of mass `p`."""

    p: float


class MinP(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Keep those at least `p` times as likely as the likeliest."""

    p: float


class Xtc(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Sometimes drop all but the least likely of those above a threshold."""

    probability: float
    threshold: float
    seed: int


class Temperature(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Divide the logits by `t`."""

    t: float


class Draw(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Draw one by its probability."""

    seed: int


class Greedy(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Take the likeliest."""


Shaper = TopK | Typical | TopP | MinP | Xtc | Temperature
Stage = LogitBias | Penalties | Dry | Shaper | Draw | Greedy


def plan_stages(sampling: Sampling, *, model_seed: int = 0) -> tuple[Stage, ...]:
    """Return the stages in order; the last one picks.

    Args:
        sampling: the generation's values. Neutral ones leave their stage out.
        model_seed: the seed of requests that bring none; 0 means a new one for each.

    Raises:
        ValueError: a value that makes no sense to a sampler.
    """
    _check(sampling)
    stages = _biasing(sampling)
    temperature = _or(sampling.temperature, 0.8)
    if temperature <= 0:
        return (*stages, Greedy())
    seed = _seed(_or(sampling.seed, -1), model_seed)
    if (k := _or(sampling.top_k, 40)) > 0:
        stages.append(TopK(k=k))
    if (p := _or(sampling.typical_p, 1.0)) < 1:
        stages.append(Typical(p=p))
    if (p := _or(sampling.top_p, 0.95)) < 1:
        stages.append(TopP(p=p))
    if (p := _or(sampling.min_p, 0.05)) > 0:
        stages.append(MinP(p=p))
    if (p := _or(sampling.xtc_probability, 0.0)) > 0:
        stages.append(Xtc(probability=p, threshold=_or(sampling.xtc_threshold, 0.1), seed=seed))
    if temperature != 1:
        stages.append(Temperature(t=temperature))
    return (*stages, Draw(seed=seed))


def remembered_tokens(stages: Sequence[Stage]) -> int:
    """Return how many of the prompt's last tokens the stages look back on; DRY's may be all."""
    counts = [each.last_n for each in stages if isinstance(each, Penalties | Dry)]
    return MAX_LOOK_BACK if min(counts, default=0) < 0 else max(counts, default=0)


class SampledTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Which tokens stages may pick: of the likeliest as many as `count`, and those of `raised`."""

    count: int
    raised: tuple[int, ...] = ()


def reach_of(stages: Sequence[Stage]) -> SampledTokens | None:
    """Return which tokens can be picked at all, by what the model says of them; None for any.

    Each token that a bias or a penalty may lower makes room for one that was behind it.
    """
    count = 0
    raised: tuple[int, ...] = ()
    for stage in stages:
        match stage:
            case LogitBias():
                count += len(stage.biases)
                raised = tuple(token for token, bias in stage.biases if bias > 0)
            case Penalties() if min(stage.repeat - 1, stage.frequency, stage.presence) >= 0:
                count += stage.last_n
            case TopK():
                return SampledTokens(count=count + stage.k, raised=raised)
            case Greedy():
                return SampledTokens(count=count + 1, raised=raised)
            case _:
                return None
    return None


def _biasing(sampling: Sampling) -> list[Stage]:
    """Return the stages that move logits, before any that drops candidates."""
    stages: list[Stage] = []
    if sampling.logit_bias:
        stages.append(LogitBias(biases=tuple(sampling.logit_bias.items())))
    penalties = Penalties(
        last_n=_or(sampling.penalty_last_n, 64),
        repeat=_or(sampling.repeat_penalty, 1.0),
        frequency=_or(sampling.frequency_penalty, 0.0),
        presence=_or(sampling.presence_penalty, 0.0),
    )
    if penalties.last_n > 0 and (
        penalties.repeat != 1 or penalties.frequency != 0 or penalties.presence != 0
    ):
        stages.append(penalties)
    dry = _dry_of(sampling)
    if dry.multiplier > 0 and dry.last_n != 0:
        stages.append(dry)
    return stages


def _dry_of(sampling: Sampling) -> Dry:
    return Dry(
        multiplier=_or(sampling.dry_multiplier, 0.0),
        base=_or(sampling.dry_base, 1.75),
        allowed_length=_or(sampling.dry_allowed_length, 2),
        last_n=_or(sampling.dry_last_n, -1),
        breakers=_or(sampling.dry_breakers, ("\n", ":", '"', "*")),
    )


def _or(value: _T | None, other: _T) -> _T:
    return other if value is None else value


def _check(sampling: Sampling) -> None:
    for name in _FRACTIONS:
        value = getattr(sampling, name)
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{name} is {value}, expected a finite number")
    if (repeat := sampling.repeat_penalty) is not None and repeat <= 0:
        raise ValueError(f"repeat_penalty is {repeat}, expected more than 0")
    if not 0 <= (top := sampling.top_logprobs or 0) <= MAX_TOP_LOGPROBS:
        raise ValueError(f"top_logprobs is {top}, expected 0 to {MAX_TOP_LOGPROBS}")
    dry = _dry_of(sampling)
    if dry.multiplier > 0 and dry.base < 1:
        raise ValueError(f"dry_base is {dry.base}, expected at least 1")
    if dry.allowed_length < 0:
        raise ValueError(f"dry_allowed_length is {dry.allowed_length}, expected 0 or more")
    if len(dry.breakers) > MAX_BREAKERS:
        raise ValueError(f"dry_breakers are {len(dry.breakers)}, expected at most {MAX_BREAKERS}")
    for token, bias in (sampling.logit_bias or {}).items():
        if math.isnan(bias) or bias == math.inf:
            raise ValueError(f"logit_bias of token {token} is {bias}, expected a number")


def _seed(asked: int, model_seed: int) -> int:
    if asked >= 0:
        return asked % (MAX_SEED + 1)
    return model_seed % (MAX_SEED + 1) if model_seed > 0 else secrets.randbelow(MAX_SEED + 1)


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
_REMEMBERING = (Penalties, Dry)


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

    def logprob(self, row: int, token: int) -> float:
        """Return a token's log probability as the model has it, before any sampler."""
        logits = self.logits(row)
        largest = float(logits.max())
        return float(logits[token]) - largest - float(np.log(np.exp(logits - largest).sum()))


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

    def fill_from(self, least: _Logits, logits: _Logits, reach: SampledTokens) -> bool:
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
        self, handle: VocabularyHandle, candidates: Candidates, stages: Sequence[Stage]
    ) -> None:
        self.handle = handle
        self.raw = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self._candidates = candidates
        self._reach = reach_of(stages) if handle.size >= _LEAST_TOKENS else None
        self._is_greedy = stages == (Greedy(),)
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

    def sample_decided(self, row: int, token: int, least: float) -> int:
        """Return this token where the model gives it at least so much, else one of the others.

        It is not drawn, and what it is compared with is all the others together: the likeliest of
        many ways to begin otherwise may well be less likely than it.
        """
        picked = token
        if math.exp(self.handle.logprob(row, token)) < least:
            picked = self.pick_of(np.delete(np.arange(self.handle.size), token), row)
        self.remember(picked)
        return picked

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

    def __init__(self, chain: SamplerChain, *, call_from: float | None = None) -> None:
        self.chain = chain
        self._constraint: Constraint | None = None
        self._call_from = call_from
        self._opening: int | None = None  # what a call begins with, before the first token
        self._log_likely = 0.0

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
        openings = (*plan.starts, *plan.markers)
        if self._call_from is not None and plan.is_lazy and openings and not in_reasoning:
            (self._opening, *_) = picker.tokenize(openings[0].decode())

    @property
    def likely(self) -> float:
        """Return the probability of the calls so far; 1 where nobody asked for it."""
        return math.exp(self._log_likely)

    @property
    def lifted(self) -> str:
        """Return why the grammar that should hold does not any more, or ""."""
        return self._constraint.lifted if self._constraint is not None else ""

    def sample(self, row: int) -> int:
        """Pick a token from the last batch's output at index `row`, and remember it."""
        constraint = self._constraint
        if constraint is not None and constraint.is_active:
            token = constraint.sample(row)
            if self._call_from is not None and token != NOTHING_FITS:
                self._log_likely += self.chain.handle.logprob(row, token)
            return token
        opening, self._opening = self._opening, None
        if opening is None or self._call_from is None:
            token = self.chain.sample(row)
        else:
            token = self.chain.sample_decided(row, opening, self._call_from)
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
    stages = plan_stages(config, model_seed=model_seed)
    sampler = LlamaSampler(SamplerChain(handle, candidates, stages), call_from=config.call_from)
    memory = remembered_tokens(stages)
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


def _new_stage(stage: Stage, handle: VocabularyHandle) -> Any:
    match stage:
        case LogitBias():
            return _logit_bias(stage, handle.size)
        case Penalties():
            return lib.llama_sampler_init_penalties(
                handle.size, stage.last_n, stage.repeat, stage.frequency, stage.presence
            )
        case Dry():
            return _dry(stage, handle)
        case Draw():
            return lib.llama_sampler_init_dist(stage.seed)
        case Greedy():
            return lib.llama_sampler_init_greedy()
        case _:
            return _new_shaper(stage)


def _new_shaper(stage: Shaper) -> Any:
    sampler: Any
    match stage:
        case TopK():
            sampler = lib.llama_sampler_init_top_k(stage.k)
        case Typical():
            sampler = lib.llama_sampler_init_typical(stage.p, 1)
        case TopP():
            sampler = lib.llama_sampler_init_top_p(stage.p, 1)
        case MinP():
            sampler = lib.llama_sampler_init_min_p(stage.p, 1)
        case Xtc():
            sampler = lib.llama_sampler_init_xtc(stage.probability, stage.threshold, 1, stage.seed)
        case Temperature():
            sampler = lib.llama_sampler_init_temp(stage.t)
    return sampler


def _logit_bias(stage: LogitBias, size: int) -> Any:
    # Of several for one token llama.cpp adds all, or the first where it does not get every token.
    summed: dict[int, float] = {}
    for token, bias in stage.biases:
        summed[token] = summed.get(token, 0.0) + bias
    biases = (lib.llama_logit_bias * len(summed))(*starmap(lib.llama_logit_bias, summed.items()))
    return lib.llama_sampler_init_logit_bias(size, len(summed), biases)


def _dry(stage: Dry, handle: VocabularyHandle) -> Any:
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
