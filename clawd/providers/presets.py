"""Named ways to sample, as values. A preset shapes the distribution; it never sets a penalty.

Each says all of the shape that it needs, so that one replaces another without a rest of it.
"""

from typing import Any

import msgspec

from clawd.errors import InvalidRequestError
from clawd.providers.base import Sampling


def _plain(shape: Sampling) -> Sampling:
    """Return the shape with what only special ones use switched off."""
    return msgspec.structs.replace(shape, typical_p=1.0, xtc_probability=0.0)


PRESETS: dict[str, Sampling] = {
    "deterministic": _plain(Sampling(temperature=0.0)),
    "precise": _plain(Sampling(temperature=0.3, top_k=40, top_p=0.9, min_p=0.1)),
    "balanced": _plain(Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)),
    "creative": _plain(Sampling(temperature=1.1, top_k=100, top_p=0.98, min_p=0.03)),
    "wild": Sampling(
        temperature=1.5,
        top_k=0,
        top_p=1.0,
        min_p=0.05,
        typical_p=1.0,
        xtc_probability=0.5,
        xtc_threshold=0.1,
    ),
}


def preset_values() -> dict[str, dict[str, Any]]:
    """Return what each preset sets, by the names of the settings."""
    return {name: _given(preset) for name, preset in PRESETS.items()}


def check_preset(name: str) -> None:
    """Make sure that there is a preset of this name; "" is none.

    Raises:
        InvalidRequestError: there is no such preset; says which are there.
    """
    if name and name not in PRESETS:
        raise InvalidRequestError(
            f"there is no sampling preset {name!r}; there are: {', '.join(PRESETS)}",
            hint="Name one of them, or leave the preset out.",
        )


def with_preset(wishes: Sampling) -> Sampling:
    """Return the wishes with the preset's values where they are silent, and no preset any more.

    Raises:
        InvalidRequestError: there is no such preset.
    """
    if not wishes.preset:
        return wishes
    check_preset(wishes.preset)
    asked = _given(wishes)
    return msgspec.structs.replace(Sampling(), **_given(PRESETS[wishes.preset]) | asked, preset="")


def _given(sampling: Sampling) -> dict[str, Any]:
    values = msgspec.structs.asdict(sampling)
    return {
        name: value
        for name, value in values.items()
        if value is not None and value != () and name != "preset"
    }
