"""The stages of training as data: how many tokens, from which seed, at which learning rate.

A stage starts from the weights of the one before. Its rate rises over the first `warm_up` share of
its tokens, stays at `rate` until `hold`, and falls linearly to `rate * last` at the end.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One run of the trainer."""

    name: str
    tokens: int
    seed: int
    rate: float
    hold: float
    last: float
    warm_up: float = 0.015
    max_tokens: int = 288
    copying_tokens: int = 0  # random copying among the first tokens
    kept: float = 0.0  # the share of the start weights in the average that ends the stage

    def rate_at(self, done: float) -> float:
        """Returns the learning rate factor when a share `done` of the tokens is seen."""
        fall = 1.0 if done < self.hold else (1 - done) / (1 - self.hold)
        return min(1.0, (done + 1e-4) / self.warm_up) * self.rate * max(self.last, fall)


STAGES = (
    Stage(
        "base", tokens=5_200_000, seed=777, rate=1.0, hold=0.45, last=0.02, copying_tokens=260_000
    ),
    Stage("settle", tokens=3_500_000, seed=778, rate=0.8, hold=0.3, last=0.01),
    Stage("tools", tokens=9_700_000, seed=9001, rate=0.7, hold=0.25, last=0.003),
    Stage(
        "refine",
        tokens=5_200_000,
        seed=31,
        rate=0.6,
        hold=0.25,
        last=0.003,
        max_tokens=448,
        kept=0.4,
    ),
)
