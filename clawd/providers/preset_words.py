"""A preset's name at the beginning of a message, as `creative 0.9 a poem about the sea`. Pure.

The word stands first, in small letters, as the presets are written; after it may stand a
temperature with a decimal point, and then comes the text. So `Creative people …`, `precise` alone
and `wild 5 horses …`, whose 5 is text, mean what they say.
"""

import re

import msgspec

from clawd.providers.base import Sampling
from clawd.providers.presets import PRESETS

MAX_TEMPERATURE = 2.0

_TEMPERATURE = r"\d?\.\d{1,3}"
_WORD = re.compile(
    rf"(?P<preset>{'|'.join(PRESETS)})(?:[ \t]+(?P<temperature>{_TEMPERATURE}))?"
    rf"\s+(?P<text>(?!{_TEMPERATURE}\s*\Z)\S.*)",
    re.DOTALL,
)


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
