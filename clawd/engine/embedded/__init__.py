"""The embedded default model, shipped as package data: its path and its hash.

`training/` in the source tree makes the weights. The engine's ordinary model loading does the rest.
"""

from pathlib import Path

EMBEDDED_MODEL_SHA256 = "9708d8a6169c0a18f28a37fd8ffe738d6faaac865455922e9a85e250b37cb9b0"


def embedded_model_path() -> Path:
    """Returns the GGUF file of the embedded model (Q8_0, 4 MB) inside the installed package."""
    return Path(__file__).parent / "clawd-tiny.gguf"
