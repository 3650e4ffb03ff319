"""Named ways to sample, as values. A preset shapes the distribution; it never sets a penalty."""

import msgspec

from clawd.errors import InvalidRequestError
from clawd.providers.base import Sampling

PRESETS: dict[str, Sampling] = {
    "deterministic": Sampling(temperature=0.0),
    "precise": Sampling(temperature=0.3, top_k=40, top_p=0.9, min_p=0.1),
    "balanced": Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    "creative": Sampling(temperature=1.1, top_k=100, top_p=0.98, min_p=0.03),
    "wild": Sampling(
        temperature=1.5,
        top_k=0,
        top_p=1.0,
        min_p=0.05,
        xtc_probability=0.5,
        xtc_threshold=0.1,
    ),
}


def with_preset(wishes: Sampling) -> Sampling:
    """Return the wishes with the preset's values where they are silent, and no preset any more.

    Raises:
        InvalidRequestError: there is no such preset.
    """
    if not wishes.preset:
        return wishes
    preset = PRESETS.get(wishes.preset)
    if preset is None:
        raise InvalidRequestError(
            f"there is no sampling preset {wishes.preset!r}; there are: {', '.join(PRESETS)}",
            hint="Name one of them, or leave the preset out.",
        )
    silent = {
        name: value
        for name in Sampling.__struct_fields__
        if getattr(wishes, name) in (None, (), "") and (value := getattr(preset, name)) is not None
    }
    return msgspec.structs.replace(wishes, **{**silent, "preset": ""})
