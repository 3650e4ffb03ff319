"""Which samplers a generation goes through, in which order; sampler.py builds them.

The order is llama.cpp's own: logit bias, penalties, DRY, top-k (early: what follows costs per
candidate), typical, top-p, min-p, XTC, temperature, and at last the draw.
"""

import math
import secrets
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from clawd.engine.protocol import Sampling

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
