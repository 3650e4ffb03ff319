"""What is kept beside a model's file: its digest, which a changed file must answer for.

`Qwen3-8B-Q4_K_M.gguf.pin` stands beside `Qwen3-8B-Q4_K_M.gguf`. Whoever puts a model there writes
it, the engine reads it before it loads. `seen` is how the file looked when its digest was last
found right: while it looks so it is not read again.

    {"sha256":"9f86d0…","source":"hf:Qwen/Qwen3-8B-GGUF@1a2b3c","seen":{"inode":7,"size":98,…}}
"""

import os
from pathlib import Path

import msgspec

SUFFIX = ".pin"
MAX_BYTES = 65_536


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How a file looks without being read; a change of content changes at least one of them."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class ModelPin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The digest of a model's file, in hexadecimal, and where the file came from."""

    sha256: str
    source: str = ""
    seen: Seen | None = None


def pin_of(path: Path) -> Path:
    """Return where the pin of a model's file stands."""
    return path.with_name(path.name + SUFFIX)


def seen(status: os.stat_result) -> Seen:
    """Return how a file looks."""
    return Seen(
        inode=status.st_ino,
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
        changed_ns=status.st_ctime_ns,
    )


def decode_pin(data: bytes) -> ModelPin:
    """Return a pin as it was written.

    Raises:
        ValueError: it is none.
    """
    pin = msgspec.json.decode(data, type=ModelPin)
    if len(pin.sha256) != 64 or set(pin.sha256) - set("0123456789abcdef"):
        raise ValueError(f"{pin.sha256!r} is no SHA-256 in lower-case hexadecimal")
    return pin


def encode_pin(pin: ModelPin) -> bytes:
    """Return a pin as it is written."""
    return msgspec.json.encode(pin) + b"\n"
