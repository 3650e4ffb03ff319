"""A model's file is the one whose digest was noted when it was put there, or it is not loaded.

What is noted, and where, is `clawd.wire.models`. A file that looks as when it was last found
right is not read again; one that looks otherwise is, and what is found is noted. This finds what
was exchanged, damaged or rewritten by the program that it is shared with; whoever may write the
folder may write the pin as well.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from clawd.engine.gguf import files_of
from clawd.errors import CancelledByUserError, ModelLoadError
from clawd.wire.models import MAX_BYTES, ModelPin, decode_pin, encode_pin, pin_of, seen

_PIECE_BYTES = 4 << 20
PinState = Literal["none", "right", "changed"]


def read_pin(path: Path) -> ModelPin | None:
    """Return what was noted of a file, None for nothing; blocks.

    Raises:
        ModelLoadError: what was noted cannot be read.
    """
    beside = pin_of(path)
    try:
        with beside.open("rb") as file:
            return decode_pin(file.read(MAX_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"the pin of a model cannot be read ({beside}): {error}",
            hint=f"See whether {path.name} is what it should be, then note its digest anew: "
            f"clawctl model accept {path.stem}",
        ) from error


def check_pins(path: Path, name: str, is_over: Callable[[], bool] = lambda: False) -> None:
    """See that all files of a model are what was noted of them; blocks, for large ones long.

    Raises:
        ModelLoadError: one is another than was noted.
        CancelledByUserError: `is_over` said so meanwhile.
    """
    for part in files_of(path):
        pin = read_pin(part)
        if pin is None or not part.exists():
            continue
        found = _digest(part, pin, is_over)
        if found != pin.sha256:
            raise ModelLoadError(
                f"the file of model {name} changed since it was put there ({part}): it has SHA-256 "
                f"{found}, pinned is {pin.sha256}",
                hint=f"If you changed it: clawctl model accept {name}. If not, get it anew"
                f"{_from(pin)}.",
                data={"path": str(part), "found": found, "pinned": pin.sha256},
            )


def pin_state(path: Path) -> tuple[PinState, ModelPin | None]:
    """Return how a model's files are to what was noted of them, and what was noted of the first.

    Blocks, for large ones long. What cannot be read counts as changed.
    """
    pin = None
    try:
        pin = read_pin(path)
        check_pins(path, path.stem)
    except ModelLoadError:
        return "changed", pin
    return ("none" if pin is None else "right"), pin


def _digest(path: Path, pin: ModelPin, is_over: Callable[[], bool]) -> str:
    try:
        with path.open("rb", buffering=0) as file:
            looks = seen(os.fstat(file.fileno()))
            if pin.seen == looks:
                return pin.sha256
            digest = hashlib.sha256()
            piece = bytearray(_PIECE_BYTES)
            while count := file.readinto(piece):
                if is_over():
                    raise CancelledByUserError("the engine is shutting down")
                digest.update(memoryview(piece)[:count])
            is_still = seen(os.fstat(file.fileno())) == looks
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from error
    found = digest.hexdigest()
    if found == pin.sha256 and is_still:
        _note(path, msgspec.structs.replace(pin, seen=looks))
    return found


def _note(path: Path, pin: ModelPin) -> None:
    """Note that a file was found right; where that may not be written it is read again."""
    beside = pin_of(path)
    fresh = beside.with_name(f".{beside.name}.{os.getpid()}.new")
    with contextlib.suppress(OSError):
        try:
            fresh.write_bytes(encode_pin(pin))
            fresh.chmod(0o644)
            fresh.replace(beside)
        finally:
            fresh.unlink(missing_ok=True)


def _from(pin: ModelPin) -> str:
    if pin.source.startswith(("hf:", "ollama:")):
        return f": clawctl model pull {pin.source} --force"
    return f" from {pin.source}" if pin.source else ""
