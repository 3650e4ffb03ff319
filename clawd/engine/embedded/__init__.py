"""The embedded default model, shipped as package data: its path and its hash.

`training/` in the source tree makes the weights. The engine's ordinary model loading does the rest.
"""

from pathlib import Path

EMBEDDED_MODEL_SHA256 = "ad4446e0cc5404708a5848d7ec16c499b9568b895bfa41c0f8b18ead9ad94cd2"


def embedded_model_path() -> Path:
    """Returns the GGUF file of the embedded model (Q8_0, 4 MB) inside the installed package."""
    return Path(__file__).parent / "clawd-tiny.gguf"
