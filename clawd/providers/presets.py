"""Named ways to sample, as values, and a name at the beginning of a message. Pure.

A preset shapes the distribution; it never sets a penalty. Each says all of the shape that it needs,
so that one replaces another without a rest of it.

In `creative 0.9 a poem about the sea` the word stands first, in small letters, as the presets are
written; after it may stand a temperature with a decimal point, and then comes the text. So
`Creative people …`, `precise` alone and `wild 5 horses …`, whose 5 is text, mean what they say.
"""

import re
from typing import Any

import msgspec

from clawd.errors import InvalidRequestError
from clawd.providers.base import Sampling

MAX_TEMPERATURE = 2.0
_TEMPERATURE = r"\d?\.\d{1,3}"


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
_WORD = re.compile(
    rf"(?P<preset>{'|'.join(PRESETS)})(?:[ \t]+(?P<temperature>{_TEMPERATURE}))?"
    rf"\s+(?P<text>(?!{_TEMPERATURE}\s*\Z)\S.*)",
    re.DOTALL,
)
SHARED = ("temperature", "top_p")
"""Of a preset, what servers elsewhere are asked for: all of them know these."""


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


class PresetWord(msgspec.Struct, frozen=True, kw_only=True):
    """What a message asks of its sampling, and its text without that.

    Attributes:
        preset: its name; empty where the message names none.
        temperature: None where none is given.
    """

    text: str
    preset: str = ""
    temperature: float | None = None

    def over(self, wishes: Sampling) -> Sampling:
        """Return the wishes of a request with this word's in front of them.

        What the preset sets goes before the request's own, as the word was said for this message
        and programs send the same values with every request.
        """
        if not self.preset:
            return wishes
        changes: dict[str, object] = {
            name: None
            for name, value in msgspec.structs.asdict(PRESETS[self.preset]).items()
            if value is not None and name not in {"preset", "stop"}
        }
        changes |= {"preset": self.preset, "temperature": self.temperature}
        return msgspec.structs.replace(wishes, **changes)


def preset_word(text: str) -> PresetWord:
    """Return the preset that a message begins with, and its text."""
    found = _WORD.fullmatch(text)
    if found is None:
        return PresetWord(text=text)
    given = found["temperature"]
    temperature = float(given) if given else None
    if temperature is not None and temperature > MAX_TEMPERATURE:
        return PresetWord(text=text)
    return PresetWord(text=found["text"], preset=found["preset"], temperature=temperature)
