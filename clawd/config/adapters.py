"""How a LoRA adapter is written in the config: a GGUF file, and behind a colon how much it counts.

lora = ["~/adapters/style.gguf", "~/adapters/law.gguf:0.5"]
"""

import re

_ADAPTER = re.compile(
    r"(?P<file>.+\.gguf)(:(?P<scale>[-+]?(\d+\.?\d*|\.\d+)))?", re.DOTALL | re.IGNORECASE
)


def split_adapter(text: str) -> tuple[str, float]:
    """Return the file and the scale, which is 1 where none is given.

    Raises:
        ValueError: it is no such text; the message is what to expect.
    """
    match = _ADAPTER.fullmatch(text)
    if match is None:
        raise ValueError('a .gguf file, or one with a scale behind it, as "style.gguf:0.5"')
    return match["file"], float(match["scale"] or 1)
