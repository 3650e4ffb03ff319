"""Which samplers a generation goes through, in which order; sampler.py builds them.

The order is llama.cpp's own: logit bias, penalties, DRY, top-k (early: what follows costs per
candidate), typical, top-p, min-p, XTC, temperature, and at last the draw.
"""

import math
import secrets
from collections.abc import Sequence

import msgspec

from clawd.engine.protocol import SamplingConfig

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


def plan_stages(config: SamplingConfig, *, model_seed: int = 0) -> tuple[Stage, ...]:
    """Return the stages in order; the last one picks.

    Args:
        config: the generation's values. Neutral ones leave their stage out.
        model_seed: the seed of requests that bring none; 0 means a new one for each.

    Raises:
        ValueError: a value that makes no sense to a sampler.
    """
    _check(config)
    stages = _biasing(config)
    if config.temperature <= 0:
        return (*stages, Greedy())
    seed = _seed(config.seed, model_seed)
    if config.top_k > 0:
        stages.append(TopK(k=config.top_k))
    if config.typical_p < 1:
        stages.append(Typical(p=config.typical_p))
    if config.top_p < 1:
        stages.append(TopP(p=config.top_p))
    if config.min_p > 0:
        stages.append(MinP(p=config.min_p))
    if config.xtc_probability > 0:
        stages.append(
            Xtc(probability=config.xtc_probability, threshold=config.xtc_threshold, seed=seed)
        )
    if config.temperature != 1:
        stages.append(Temperature(t=config.temperature))
    return (*stages, Draw(seed=seed))


def remembered_tokens(config: SamplingConfig) -> int:
    """Return how many of the prompt's last tokens the stages look back on; DRY's may be all."""
    dry = 0 if config.dry_multiplier <= 0 else config.dry_last_n
    if dry < 0:
        return MAX_LOOK_BACK
    return max(config.penalty_last_n if has_penalties(config) else 0, dry)


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


def has_penalties(config: SamplingConfig) -> bool:
    """Return whether any penalty changes anything."""
    return config.penalty_last_n > 0 and (
        config.repeat_penalty != 1 or config.frequency_penalty != 0 or config.presence_penalty != 0
    )


def _biasing(config: SamplingConfig) -> list[Stage]:
    """Return the stages that move logits, before any that drops candidates."""
    stages: list[Stage] = []
    if config.logit_bias:
        stages.append(LogitBias(biases=config.logit_bias))
    if has_penalties(config):
        stages.append(
            Penalties(
                last_n=config.penalty_last_n,
                repeat=config.repeat_penalty,
                frequency=config.frequency_penalty,
                presence=config.presence_penalty,
            )
        )
    if config.dry_multiplier > 0 and config.dry_last_n != 0:
        stages.append(
            Dry(
                multiplier=config.dry_multiplier,
                base=config.dry_base,
                allowed_length=config.dry_allowed_length,
                last_n=config.dry_last_n,
                breakers=config.dry_breakers,
            )
        )
    return stages


def _check(config: SamplingConfig) -> None:
    for name in _FRACTIONS:
        value = getattr(config, name)
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, expected a finite number")
    if config.repeat_penalty <= 0:
        raise ValueError(f"repeat_penalty is {config.repeat_penalty}, expected more than 0")
    if not 0 <= config.top_logprobs <= MAX_TOP_LOGPROBS:
        raise ValueError(f"top_logprobs is {config.top_logprobs}, expected 0 to {MAX_TOP_LOGPROBS}")
    if config.dry_multiplier > 0 and config.dry_base < 1:
        raise ValueError(f"dry_base is {config.dry_base}, expected at least 1")
    if config.dry_allowed_length < 0:
        raise ValueError(f"dry_allowed_length is {config.dry_allowed_length}, expected 0 or more")
    if len(config.dry_breakers) > MAX_BREAKERS:
        raise ValueError(
            f"dry_breakers are {len(config.dry_breakers)}, expected at most {MAX_BREAKERS}"
        )
    for token, bias in config.logit_bias:
        if math.isnan(bias) or bias == math.inf:
            raise ValueError(f"logit_bias of token {token} is {bias}, expected a number")


def _seed(asked: int, model_seed: int) -> int:
    if asked >= 0:
        return asked % (MAX_SEED + 1)
    return model_seed % (MAX_SEED + 1) if model_seed > 0 else secrets.randbelow(MAX_SEED + 1)
