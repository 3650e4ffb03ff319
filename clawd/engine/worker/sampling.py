"""Which samplers a generation goes through, in which order; model.py builds them.

The order is llama.cpp's own: penalties, top-k (early: what follows costs per candidate),
typical, top-p, min-p, temperature, and at last the draw.
"""

import math
import secrets

import msgspec

from clawd.engine.protocol import SamplingConfig

MAX_SEED = 0xFFFF_FFFE
_FRACTIONS = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
)


class Penalties(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Make tokens of the last `last_n` less likely."""

    last_n: int
    repeat: float
    frequency: float
    presence: float


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


class Temperature(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Divide the logits by `t`."""

    t: float


class Draw(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Draw one by its probability."""

    seed: int


class Greedy(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Take the likeliest."""


Stage = Penalties | TopK | Typical | TopP | MinP | Temperature | Draw | Greedy


def plan_stages(config: SamplingConfig, *, model_seed: int = 0) -> tuple[Stage, ...]:
    """Return the stages in order; the last one picks.

    Args:
        config: the generation's values. Neutral ones leave their stage out.
        model_seed: the seed of requests that bring none; 0 means a new one for each.

    Raises:
        ValueError: a value that makes no sense to a sampler.
    """
    _check(config)
    stages: list[Stage] = []
    if has_penalties(config):
        stages.append(
            Penalties(
                last_n=config.penalty_last_n,
                repeat=config.repeat_penalty,
                frequency=config.frequency_penalty,
                presence=config.presence_penalty,
            )
        )
    if config.temperature <= 0:
        return (*stages, Greedy())
    if config.top_k > 0:
        stages.append(TopK(k=config.top_k))
    if config.typical_p < 1:
        stages.append(Typical(p=config.typical_p))
    if config.top_p < 1:
        stages.append(TopP(p=config.top_p))
    if config.min_p > 0:
        stages.append(MinP(p=config.min_p))
    if config.temperature != 1:
        stages.append(Temperature(t=config.temperature))
    return (*stages, Draw(seed=_seed(config.seed, model_seed)))


def has_penalties(config: SamplingConfig) -> bool:
    """Return whether any penalty changes anything."""
    return config.penalty_last_n > 0 and (
        config.repeat_penalty != 1 or config.frequency_penalty != 0 or config.presence_penalty != 0
    )


def _check(config: SamplingConfig) -> None:
    for name in _FRACTIONS:
        value = getattr(config, name)
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, expected a finite number")
    if config.repeat_penalty <= 0:
        raise ValueError(f"repeat_penalty is {config.repeat_penalty}, expected more than 0")


def _seed(asked: int, model_seed: int) -> int:
    if asked >= 0:
        return asked % (MAX_SEED + 1)
    return model_seed % (MAX_SEED + 1) if model_seed > 0 else secrets.randbelow(MAX_SEED + 1)
